"""The event log of a checked run. Events are totally ordered, since one PE runs at a time.

Each PE has a log of its own, a file of blocks that other processes can read. A block has a header of two little-endian
32-bit words (its kind, and the bytes of its payload) and a payload of at most 1 MiB. Events are records of fixed size
(``EVENT``). The data that they refer to is written once, in an earlier block: texts and places in source files as JSON,
programs as fixed-size records, and lists of integers (the ranges of an access, the words of a wait, the PEs of a
barrier).

A reader does not trust a log. Every number of every event is checked before it is used; an invalid log is a
:class:`LogError`. A log whose writer died is valid up to its last complete block.
"""

from __future__ import annotations

import enum
import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_dist._C.op_table import Cmp

__all__ = [
    *("EVENT", "HOST", "LONGEST_LIST", "NONE", "Flag", "Kind", "Log", "LogError", "PELog", "Place", "Program"),
    "read",
]

HOST = -1
"""In place of a program: the PE's host code."""

NONE = -1
"""Instead of the number of a list or a place: none."""


class LogError(ValueError):
    """A file is not a log, or is damaged."""


class Kind(enum.IntEnum):
    """Events. ``a`` to ``d`` are the fields of their records; *list* and *text* are numbers of earlier ones."""

    PROGRAM = enum.auto()
    """``program`` takes its first step."""
    END = enum.auto()
    """``program`` ends."""
    LAUNCHED = enum.auto()
    """All programs of the launch have ended: the host goes on."""
    ACCESS = enum.auto()
    """``a``: the list of ranges. ``WRITES``, ``ATOMIC``, ``VOLATILE`` or ``TMA``; ``COMPLETES``: a store by TMA that is
    known to be complete."""
    PUT = enum.auto()
    """``a``: source ranges or none; ``b``: target ranges. ``NBI``; ``ATOMIC``: of one element."""
    GET = enum.auto()
    """``a``: source ranges; ``b``: target ranges or none. ``NBI``."""
    UPDATE = enum.auto()
    """A word of ``size`` bytes at offset ``b`` of PE ``a`` changes from ``c`` to ``d`` (with ``VALUED``). ``SETS`` or
    ``ADDS``; ``ATOMIC``: it extends the word's release sequence, so acquires still see earlier releases; ``RELAXED``;
    a scope; ``CARRIES``: it is the signal of the put that the program has just started."""
    LOOK = enum.auto()
    """Words of ``size`` bytes are read, and acquired: ``a``: the list of PEs and offsets. ``WAITS``: until they compare
    (``cmp``) with ``c``. ``RELAXED``; a scope."""
    RELEASE = enum.auto()
    """``a``: the list of words, PEs and offsets, that were written before. As ``UPDATE``, without values."""
    ACQUIRE = enum.auto()
    """``a``: the list of words, PEs and offsets. ``RELAXED``; a scope."""
    FENCE = enum.auto()
    """``a``: the PE, or -1 for all."""
    QUIET = enum.auto()
    """``a``: the PE, or -1 for all."""
    ARRIVE = enum.auto()
    """Arrives at the next barrier of the PEs of list ``a``. ``COMPLETES``: like ``quiet``."""
    LEAVE = enum.auto()
    """Leaves the barrier of the PEs of list ``a``."""
    ALLOCATE = enum.auto()
    """``a``: offset; ``b``: bytes; ``c``: text."""
    FREE = enum.auto()
    """``a``: offset."""
    DROPPED = enum.auto()
    """``a``: offset of a tensor that this PE has dropped at the end of the world, and that was not freed."""
    STUCK = enum.auto()
    """A deadlocked wait. ``a``: text; ``b``: the list of words or none; ``c``: the list of PEs or none."""
    OUTSIDE = enum.auto()
    """``a``: space; ``b``, ``c``: begin and end of what was touched."""
    OVERLAP = enum.auto()
    """Copies between overlapping ranges. ``a``: space; ``b``, ``c``: begin and end of the overlap."""
    FAILED = enum.auto()
    """``a``: text. The PE ended with an error."""
    SENT = enum.auto()
    """As ``UPDATE``, without values: of a word that changes when what the program sends arrives, which ``fence`` and
    ``quiet`` order as they order puts. With ``CARRIES`` the put arrives with it."""
    ARRIVED = enum.auto()
    """What ``program`` sent as the event with number ``a`` has changed the word from ``c`` to ``d`` (``VALUED``)."""
    UNCOMPILED = enum.auto()
    """A kernel was launched that does not compile for a GPU. ``a``: its name; ``b``: the GPU; ``c``: why. All texts."""
    WORK = enum.auto()
    """What orders nothing and takes time. ``a``, ``b``: bytes loaded from and stored to memory of this PE that is not
    symmetric; ``c``: operations of a ``tl.dot``, of operands with ``size`` bytes an element, in a kernel with ``d``
    stages (0: not said). For triton_dist.model."""
    PROXY_FENCE = enum.auto()
    """What is ordered before the program's ordinary accesses from now on is ordered before its copies by TMA, too.
    ``COMPLETES``: and its stores by TMA are complete."""


class Flag:
    """Bits of ``flags``, as plain integers for speed."""

    WRITES = 1
    ATOMIC = 2
    VOLATILE = 4
    NBI = 8
    SETS = 16
    ADDS = 32
    RELAXED = 64
    CARRIES = 128
    VALUED = 256
    WAITS = 512
    SIGNED = 1024
    """The element's type has a sign."""
    COMPLETES = 2048
    SCOPE_GPU = 4096
    """Orders the programs of one PE only; without it, those of all PEs."""
    TMA = 8192
    """By TMA."""


EVENT = np.dtype(
    [
        *(("number", "<i8"), ("a", "<i8"), ("b", "<i8"), ("c", "<i8"), ("d", "<i8")),
        *(("program", "<i4"), ("place", "<i4"), ("flags", "<u4")),
        ("pe", "<i4"),  # zero in the file, since each PE has its own
        *(("kind", "u1"), ("size", "u1"), ("cmp", "u1"), ("unused", "u1")),
    ]
)
"""60 bytes. ``number`` counts the events of all PEs."""

_PROGRAM = np.dtype([("kernel", "<i4"), ("launch", "<i4"), ("index", "<i4", (3,))])

_TEXTS, _PLACES, _PROGRAMS, _LISTS, _EVENTS = range(0x7D000001, 0x7D000006)
_NOWHERE = ("PROGRAM", "END", "LAUNCHED", "FENCE", "QUIET", "LEAVE", "FAILED", "ARRIVED", "PROXY_FENCE")
"""Kinds of events without a place."""
_HEADER = struct.Struct("<II")
_MOST = 1 << 20
"""Bytes of a payload."""
_LONGEST_TEXT = 4096
LONGEST_LIST = 1 << 15
"""Numbers in a list."""
_FAR = 1 << 62
"""More than any address."""
_PENDING = 2048
"""Events that wait to be written."""
_KNOWN_LISTS = 1 << 16
"""Lists that a writer caches, to write equal lists once."""


@dataclass(frozen=True)
class Place:
    """A line of a source file, and what is done there."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        """As short as it is unambiguous."""
        if not self.file:
            return "an unknown place"
        below = os.path.relpath(self.file)
        return f"{self.file if below.startswith('..') else below}:{self.line}"


@dataclass(frozen=True)
class Program:
    kernel: str
    index: tuple[int, int, int]
    launch: int


class Log:
    """One PE's log, as it is being written to the file ``fd``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._events: list[tuple[int, ...]] = []
        self._texts: dict[str, int] = {}
        self._new_texts: list[str] = []
        self._places: dict[Place, int] = {}
        self._new_places: list[Place] = []
        self._new_programs: list[tuple[Any, ...]] = []
        self._programs = 0
        self._lists: dict[bytes, int] = {}
        self._new_lists: list[bytes] = []
        self._n_lists = 0

    def add(
        self,
        number: int,
        kind: Kind,
        program: int = HOST,
        place: int = NONE,
        *operands: int,
        flags: int = 0,
        size: int = 0,
        cmp: int = 0,
    ) -> None:
        a, b, c, d = (*operands, 0, 0, 0, 0)[:4]
        self._events.append((number, a, b, c, d, program, place, flags, 0, kind, size, cmp, 0))
        if len(self._events) >= _PENDING:
            self.flush()

    def text(self, text: str) -> int:
        text = text[:_LONGEST_TEXT]
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            self._new_texts.append(text)
        return self._texts[text]

    def place(self, place: Place) -> int:
        index = self._places.get(place)
        if index is None:
            index = self._places[place] = len(self._places)
            self._new_places.append(place)
        return index

    def list(self, numbers: Sequence[int] | NDArray[np.int64]) -> int:
        """At most ``LONGEST_LIST`` numbers and a first one."""
        data = np.asarray(numbers, "<i8").tobytes()
        index = self._lists.get(data)
        if index is None:
            if len(self._lists) >= _KNOWN_LISTS:
                self._lists.clear()
            index = self._lists[data] = self._n_lists
            self._n_lists += 1
            self._new_lists.append(data)
        return index

    def ranges(self, space: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
        """The list of ranges ``[begins[i], ends[i])`` of a space, PE p's heap (p) or other memory of PE p (-1 - p)."""
        if begins.size > LONGEST_LIST // 2:  # a tile of very many rows: as one
            begins, ends = begins[:1], ends[-1:]
        return self.list(np.concatenate(([space], begins, ends)))

    def program(self, number: int, program: Program) -> int:
        """Note that it starts now."""
        self._new_programs.append((self.text(program.kernel), program.launch, program.index))
        self._programs += 1
        self.add(number, Kind.PROGRAM, self._programs - 1)
        return self._programs - 1

    def flush(self) -> None:
        """Make what was added readable for others."""
        parts: list[bytes] = []
        parts += _json_blocks(_TEXTS, self._new_texts)
        places = [[p.file[:_LONGEST_TEXT], p.line, p.what[:_LONGEST_TEXT]] for p in self._new_places]
        parts += _json_blocks(_PLACES, places)
        parts += _blocks(_PROGRAMS, np.array(self._new_programs, _PROGRAM).tobytes(), _PROGRAM.itemsize)
        parts += _list_blocks(self._new_lists)
        parts += _blocks(_EVENTS, np.array(self._events, EVENT).tobytes(), EVENT.itemsize)
        for new in (self._new_texts, self._new_places, self._new_programs, self._new_lists, self._events):
            new.clear()
        data = memoryview(b"".join(parts))
        while data:
            data = data[os.write(self._fd, data) :]


def _blocks(kind: int, payload: bytes, item: int) -> Iterator[bytes]:
    most = _MOST // item * item
    for begin in range(0, len(payload), most):
        part = payload[begin : begin + most]
        yield _HEADER.pack(kind, len(part)) + part


def _json_blocks(kind: int, items: Sequence[Any]) -> Iterator[bytes]:
    for begin in range(0, len(items), 8):  # of twice _LONGEST_TEXT characters, twelve bytes each, at most
        yield from _blocks(kind, json.dumps(items[begin : begin + 8]).encode(), _MOST)


def _list_blocks(lists: Sequence[bytes]) -> Iterator[bytes]:
    """Each: how many lists, their lengths, their numbers; all of 64 bits."""
    pending: list[bytes] = []
    size = 0
    for data in (*lists, None):
        if pending and (data is None or size + len(data) + 16 > _MOST):
            lengths = np.array([len(pending), *(len(part) // 8 for part in pending)], "<i8").tobytes()
            payload = lengths + b"".join(pending)
            yield _HEADER.pack(_LISTS, len(payload)) + payload
            pending, size = [], 0
        if data is not None:
            pending.append(data)
            size += len(data) + 16


class PELog:
    """The log that one PE has written so far. The events' numbers of texts, places, programs and lists are valid."""

    def __init__(self, pe: int, data: bytes, n_pes: int) -> None:
        """Raises LogError if ``data`` is not a log of a run of ``n_pes`` PEs."""
        self._pe, self._n_pes = pe, n_pes
        self.texts: list[str] = []
        self.places: list[Place] = []
        programs: list[NDArray[Any]] = []
        numbers: list[NDArray[np.int64]] = []
        lengths: list[NDArray[np.int64]] = []
        events: list[NDArray[Any]] = []
        at = 0
        while at + _HEADER.size <= len(data):
            kind, size = _HEADER.unpack_from(data, at)
            if not _TEXTS <= kind <= _EVENTS or size > _MOST:
                raise self._wrong(f"no block at byte {at}")
            begin, at = at + _HEADER.size, at + _HEADER.size + size
            if at > len(data):
                break  # its writer has died, or is still writing
            payload = memoryview(data)[begin:at]
            if kind == _TEXTS:
                self.texts += self._json(payload, lambda item: isinstance(item, str) and item)
            elif kind == _PLACES:
                self.places += self._json(payload, _place)
            elif kind == _PROGRAMS:
                programs.append(self._array(payload, _PROGRAM))
            elif kind == _LISTS:
                self._lists(payload, lengths, numbers)
            else:
                events.append(self._array(payload, EVENT))
        self.programs = np.concatenate([np.empty(0, _PROGRAM), *programs])
        self._numbers = np.concatenate([np.empty(0, np.int64), *numbers])
        self._ends = np.cumsum(np.concatenate([np.empty(0, np.int64), *lengths]))
        self.events = np.concatenate([np.empty(0, EVENT), *events])
        self.events["pe"] = pe
        self._check()

    @property
    def n_lists(self) -> int:
        return int(self._ends.size)

    def _list(self, index: int) -> NDArray[np.int64]:
        begin = int(self._ends[index - 1]) if index else 0
        return self._numbers[begin : int(self._ends[index])]

    def ranges(self, index: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
        """A space, and the begins and ends of its ranges. LogError if the list is not of ranges."""
        numbers = self._list(index)
        half = numbers.size // 2
        if numbers.size < 3 or numbers.size % 2 == 0 or not -self._n_pes <= numbers[0] < self._n_pes:
            raise self._wrong(f"list {index} has no ranges")
        begins, ends = numbers[1 : 1 + half], numbers[1 + half :]
        if not bool((begins < ends).all() and (begins[1:] >= ends[:-1]).all()):
            raise self._wrong(f"list {index} has ranges that do not ascend")
        return int(numbers[0]), begins, ends

    def words(self, index: int) -> list[tuple[int, int]]:
        numbers = self._list(index).tolist()
        pairs = list(zip(numbers[::2], numbers[1::2], strict=False))
        if len(numbers) % 2 or not all(-self._n_pes <= pe < self._n_pes for pe, _ in pairs):
            raise self._wrong(f"list {index} has no words")
        return pairs

    def pes(self, index: int) -> tuple[int, ...]:
        pes = tuple(self._list(index).tolist())
        if not all(0 <= pe < self._n_pes for pe in pes):
            raise self._wrong(f"list {index} has no PEs")
        return pes

    def program(self, index: int) -> Program:
        kernel, launch, coordinates = self.programs[index].tolist()
        x, y, z = map(int, coordinates)
        return Program(self.texts[kernel], (x, y, z), launch)

    # ----

    def _wrong(self, what: str) -> LogError:
        return LogError(f"the log of PE {self._pe} is damaged: {what}")

    def _json(self, payload: memoryview, item: Any) -> list[Any]:
        try:
            found = json.loads(bytes(payload))
        except (ValueError, RecursionError) as error:
            raise self._wrong(str(error)) from None
        items = [item(each) for each in found] if isinstance(found, list) else [False]
        if not all(each is not False for each in items):
            raise self._wrong("a table has items of a wrong type")
        return items

    def _array(self, payload: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
        if len(payload) % dtype.itemsize:
            raise self._wrong(f"a block of {len(payload)} bytes has items of {dtype.itemsize}")
        return np.frombuffer(payload, dtype)

    def _lists(self, payload: memoryview, lengths: list[Any], numbers: list[Any]) -> None:
        words = self._array(payload, np.dtype("<i8"))
        count = int(words[0]) if words.size else -1
        if not 0 <= count < words.size:
            raise self._wrong(f"a block of {words.size} words cannot hold {count} lists")
        theirs = words[1 : 1 + count]
        if not bool((theirs >= 0).all() and (theirs <= words.size).all()) or theirs.sum() != words.size - 1 - count:
            raise self._wrong("the lengths of lists are not those of their block")
        lengths.append(theirs)
        numbers.append(words[1 + count :])

    def _check(self) -> None:
        """Every number of every event is in its range."""
        if self.programs.size and not _within(self.programs["kernel"], 0, len(self.texts)).all():
            raise self._wrong("a program has no kernel")
        events = self.events
        kind = events["kind"]
        lists = {
            "a": ("ACCESS", "GET", "LOOK", "RELEASE", "ACQUIRE", "ARRIVE", "LEAVE"),
            "b": ("PUT",),
        }
        maybe = {"a": ("PUT",), "b": ("GET", "STUCK"), "c": ("STUCK",)}
        good = _within(kind, 1, max(Kind) + 1)
        good &= _within(events["program"], HOST, self.programs.size) & (events["cmp"] <= max(Cmp))
        good &= _within(events["place"], NONE, len(self.places)) & (events["number"] > 0)
        for least, table in ((0, lists), (NONE, maybe)):
            for field, names in table.items():
                of = np.isin(kind, [Kind[name] for name in names])
                good &= ~of | _within(events[field], least, self.n_lists)
        placed = ~np.isin(kind, [Kind[n] for n in _NOWHERE])
        good &= ~placed | (events["place"] >= 0)
        good &= ~np.isin(kind, [Kind.PROGRAM, Kind.END]) | (events["program"] >= 0)
        of = np.isin(kind, [Kind.UPDATE, Kind.SENT])
        good &= ~of | (_within(events["a"], 0, self._n_pes) & (events["size"] > 0))
        good &= (kind != Kind.LOOK) | (events["size"] > 0)
        for which, field in (
            (Kind.STUCK, "a"),
            (Kind.FAILED, "a"),
            (Kind.ALLOCATE, "c"),
            *((Kind.UNCOMPILED, field) for field in "abc"),
        ):
            good &= (kind != which) | _within(events[field], 0, len(self.texts))
        for which in (Kind.OUTSIDE, Kind.OVERLAP):
            good &= (kind != which) | _within(events["a"], -self._n_pes, self._n_pes)
        for which in (Kind.FENCE, Kind.QUIET):
            good &= (kind != which) | _within(events["a"], -1, self._n_pes)
        addressed = np.isin(kind, [Kind.UPDATE, Kind.SENT, Kind.OUTSIDE, Kind.OVERLAP])
        good &= ~addressed | _within(events["b"], -_FAR, _FAR)
        if not good.all():
            raise self._wrong(f"event {int(np.flatnonzero(~good)[0])} refers to what is not there")


def read(fds: Sequence[int]) -> list[PELog]:
    """The logs of all PEs, as far as they are written. PE i writes to ``fds[i]``. LogError: one is damaged."""
    logs = []
    for pe, fd in enumerate(fds):
        # A descriptor of its own: a shared one shares its position with the writer.
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            logs.append(PELog(pe, file.read(), len(fds)))
    return logs


def _place(item: Any) -> Place | bool:
    good = (
        isinstance(item, list)
        and len(item) == 3
        and isinstance(item[0], str)
        and isinstance(item[2], str)
        and type(item[1]) is int
        and 0 <= item[1] < 1 << 31
    )
    return good and Place(*item)


def _within(values: NDArray[Any], least: int, end: int) -> NDArray[np.bool_]:
    return (values >= least) & (values < end)
