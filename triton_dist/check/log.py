"""What a checked run writes down: events, in an order that all PEs agree on because one runs at a time.

Each PE has a log of its own, a file that others can read. An event is a small tuple, so that writing it costs little;
its first item is its number among the events of all PEs, its second what it is (:class:`Kind`). What events refer to,
places in source files and programs, is written once, with number 0, ahead of its first use.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from triton_dist.check.encoding import LogError, decode_batches, encode_batch, optional_ranges, ranges
from triton_dist.decoding import Schema, boolean, integer, optional, record, sequence, text

__all__ = ["HOST", "ITEMS", "Kind", "Log", "LogError", "Place", "PlainRanges", "Program", "Run", "read"]

PlainRanges = tuple[int, Any, Any]
"""A space, and two arrays: where its ranges begin and end. Space p >= 0 is PE p's heap, -1 - p other memory of PE p."""

HOST = -1
"""In place of a program: the PE's host code."""


class Kind(enum.IntEnum):
    """Events, with the items that follow number and kind. ``program``, ``place`` are indices into the PE's tables."""

    PLACE = enum.auto()
    """``index, Place``"""
    PROGRAM = enum.auto()
    """``index, Program``; its first step happens now."""
    END = enum.auto()
    """``program``"""
    LAUNCHED = enum.auto()
    """All programs of the launch have ended: the host goes on."""
    ACCESS = enum.auto()
    """``program, place, writes, how, ranges``: ``how`` is one of "plain", "atomic", "volatile"."""
    PUT = enum.auto()
    """``program, place, non-blocking, source ranges or None, target ranges, signal word or None, adds``"""
    GET = enum.auto()
    """``program, place, non-blocking, source ranges, target ranges or None``"""
    RELEASE = enum.auto()
    """``program, place, words, sets, scope``: others may see what the program knows in these words."""
    ACQUIRE = enum.auto()
    """``program, place, words, scope``"""
    FENCE = enum.auto()
    """``program, PE or None for all``"""
    QUIET = enum.auto()
    """``program, PE or None for all``"""
    ARRIVE = enum.auto()
    """``program, place, what, PEs, completes``: comes to the next barrier of these PEs."""
    LEAVE = enum.auto()
    """``program, PEs``"""
    ALLOCATE = enum.auto()
    """``place, offset, bytes, text``"""
    FREE = enum.auto()
    """``place, offset``"""
    DROPPED = enum.auto()
    """``place, offset``: when the world ends, a tensor that this PE does not hold any more, and that was not freed."""
    STUCK = enum.auto()
    """``program, place, waits for (text), words or None, PEs of a barrier or None``"""
    OUTSIDE = enum.auto()
    """``program, place, what (text), space, begin, end``"""
    FAILED = enum.auto()
    """``text``: the PE ended with an error."""


_index = integer(0, (1 << 31) - 1)
_place = integer(0, (1 << 31) - 1)
_program = integer(HOST, (1 << 31) - 1)
_pe = integer(0, (1 << 31) - 1)
_offset = integer(-(1 << 63), (1 << 63) - 1)
_text = text(1 << 16)
_word = record(integer(-(1 << 31), (1 << 31) - 1), _offset)
_words = sequence(_word, 1 << 20)
_pes = sequence(_pe, 1 << 20)

ITEMS: dict[int, tuple[Schema, ...]] = {
    Kind.PLACE: (_index, record(_text, _index, _text)),
    Kind.PROGRAM: (_index, record(_text, record(_index, _index, _index), _index)),
    Kind.END: (_program,),
    Kind.LAUNCHED: (),
    Kind.ACCESS: (_program, _place, boolean, _text, ranges),
    Kind.PUT: (_program, _place, boolean, optional_ranges, ranges, optional(_word), boolean),
    Kind.GET: (_program, _place, boolean, ranges, optional_ranges),
    Kind.RELEASE: (_program, _place, _words, boolean, _text),
    Kind.ACQUIRE: (_program, _place, _words, _text),
    Kind.FENCE: (_program, optional(_pe)),
    Kind.QUIET: (_program, optional(_pe)),
    Kind.ARRIVE: (_program, _place, _text, _pes, boolean),
    Kind.LEAVE: (_program, _pes),
    Kind.ALLOCATE: (_place, _offset, _offset, _text),
    Kind.FREE: (_place, _offset),
    Kind.DROPPED: (_place, _offset),
    Kind.STUCK: (_program, _place, _text, optional(_words), optional(_pes)),
    Kind.OUTSIDE: (_program, _place, _text, _pe, _offset, _offset),
    Kind.FAILED: (_text,),
}
"""The types of what follows number and kind, by kind."""


@dataclass(frozen=True)
class Place:
    """A line of a source file, and what is done there."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        """As short as it is unambiguous."""
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
        self._events: list[tuple[Any, ...]] = []
        self._places: dict[Place, int] = {}
        self._programs = 0

    def add(self, *event: Any) -> None:
        self._events.append(event)
        if len(self._events) >= 4096:
            self.flush()

    def place(self, place: Place) -> int:
        index = self._places.get(place)
        if index is None:
            index = self._places[place] = len(self._places)
            self.add(0, Kind.PLACE, index, (place.file, place.line, place.what))
        return index

    def program(self, number: int, program: Program) -> int:
        """Note that it starts now."""
        self._programs += 1
        self.add(number, Kind.PROGRAM, self._programs - 1, (program.kernel, program.index, program.launch))
        return self._programs - 1

    def flush(self) -> None:
        """Make what was added readable for others."""
        if self._events:
            data = memoryview(encode_batch(self._events))
            self._events = []
            while data:
                data = data[os.write(self._fd, data) :]


@dataclass
class Run:
    """What all PEs wrote, so far."""

    n_pes: int
    events: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    """``(PE, event)``, in order."""
    places: list[dict[int, Place]] = field(default_factory=list)
    """By PE and index."""
    programs: list[dict[int, Program]] = field(default_factory=list)


def read(fds: list[int]) -> Run:
    """The logs of all PEs, merged. PE i writes to ``fds[i]``.

    Raises:
        LogError: one of them holds what no checked run writes.
    """
    run = Run(len(fds), [], [{} for _ in fds], [{} for _ in fds])
    for pe, fd in enumerate(fds):
        for event in _events(fd):
            if event[1] == Kind.PLACE:
                run.places[pe][event[2]] = Place(*event[3])
                continue
            if event[1] == Kind.PROGRAM:
                run.programs[pe][event[2]] = Program(*event[3])
            _check_indices(run, pe, event)
            run.events.append((pe, event))
    run.events.sort(key=lambda item: item[1][0])
    return run


def _events(fd: int) -> Iterator[tuple[Any, ...]]:
    # A descriptor of its own: a shared one shares its position with the writer.
    with open(f"/proc/self/fd/{fd}", "rb") as file:
        yield from decode_batches(file.read(), ITEMS)


def _check_indices(run: Run, pe: int, event: tuple[Any, ...]) -> None:
    for schema, item in zip(ITEMS[event[1]], event[2:], strict=True):
        if (schema is _place and item not in run.places[pe]) or (
            schema is _program and item != HOST and item not in run.programs[pe]
        ):
            raise LogError(f"PE {pe}'s log refers to place or program {item}, which it does not tell of before")
