"""Writes down what the programs of this PE do to symmetric memory, for triton_dist.check to look at.

Each method is called by the program that does it, right before it happens (``acquire`` and ``leave``: right after),
while this PE has the turn.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from triton_dist._C.op_table import Cmp
from triton_dist.check.log import HOST, LONGEST_LIST, NONE, Flag, Kind, Log, Place
from triton_dist.check.log import Program as LoggedProgram
from triton_dist.cpu import location
from triton_dist.cpu.accesses import Ranges, joined, of_pointers
from triton_dist.cpu.memory import SymmetricMemory
from triton_dist.cpu.program import Program, running
from triton_dist.cpu.turn_taking import Turns

__all__ = ["OutsideError", "Recorded", "Recorder", "Word"]

Word = tuple[int, int]
"""A word that programs are ordered by: PE and offset."""


class OutsideError(RuntimeError):
    """An access that touches memory of no symmetric tensor. Not made."""


@dataclass(frozen=True)
class _Private:
    """Memory of this process that a copy under way reads or writes."""

    program: int
    begin: int
    end: int


class Recorded(Protocol):
    """What is recorded of: a :class:`~triton_dist.cpu.world.CpuWorld`, which says what each of these is."""

    pe: int
    n_pes: int
    heap: SymmetricMemory

    def describe(self, address: int) -> str: ...

    def break_world(self, reason: str) -> None: ...


class Recorder:
    """Of one world, on one PE. ``turns`` number its events."""

    def __init__(self, world: Recorded, turns: Turns, log: Log, *, work: bool = False) -> None:
        """``work``: also what takes time and orders nothing."""
        self._world = world
        self._work = work
        self._turns = turns
        self._log = log
        self._bounds: NDArray[np.int64] = np.empty((2, 0), np.int64)
        self._private: list[_Private] = []
        self._launch = 0

    def flush(self) -> None:
        self._log.flush()

    # ---- the host

    def allocated(self, offset: int, nbytes: int, text: str) -> None:
        self._add(Kind.ALLOCATE, HOST, self._place("allocation"), offset, nbytes, self._log.text(text))

    def freed(self, offset: int) -> None:
        self._add(Kind.FREE, HOST, self._place("free"), offset)

    def dropped(self, offset: int) -> None:
        self._add(Kind.DROPPED, HOST, self._place("end of the world"), offset)

    def allocations(self, spans: Sequence[tuple[int, int]]) -> None:
        """What is allocated now: offsets and sizes."""
        self._bounds = np.array([(begin, begin + size) for begin, size in sorted(spans)], np.int64).reshape(-1, 2).T

    def is_symmetric(self, address: int) -> bool:
        return self._world.heap.find(address) is not None

    def host_block(self, what: str, addresses: NDArray[np.int64], size: int, writes: bool) -> None:
        """Host code reads or writes ``size`` bytes at each of these addresses."""
        for ranges in of_pointers(self._world.heap, self._world.n_pes, addresses, np.array(True), size):
            try:
                self._check(what, ranges, HOST)
            except OutsideError:
                self._world.break_world("touched memory of no symmetric tensor")  # which reports
                raise SystemExit(1) from None
            self._add(Kind.ACCESS, HOST, self._place(what), self._ranges(ranges), flags=Flag.WRITES * writes)

    def host_arrives(self, call: str, pes: tuple[int, ...]) -> None:
        if len(pes) == self._world.n_pes:
            self._private.clear()
        self._add(Kind.ARRIVE, HOST, self._place(call), self._log.list(pes), flags=Flag.COMPLETES)

    def host_leaves(self, pes: tuple[int, ...]) -> None:
        self._add(Kind.LEAVE, HOST, NONE, self._log.list(pes))

    def host_stuck(self, call: str, pes: tuple[int, ...]) -> None:
        self._add(Kind.STUCK, HOST, self._place(call), self._log.text(call), NONE, self._log.list(pes))

    def launch_ended(self) -> None:
        self._add(Kind.LAUNCHED, HOST, NONE)
        self._launch += 1

    def does_not_compile(self, file: str, line: int, kernel: str, target: str, text: str) -> None:
        place = self._log.place(Place(file, line, "compile"))
        self._add(Kind.UNCOMPILED, HOST, place, *map(self._log.text, (kernel, target, text)))

    def failed(self, text: str) -> None:
        self._add(Kind.FAILED, HOST, NONE, self._log.text(text))

    # ---- programs

    def started(self, program: Program, kernel: str) -> None:
        number = self._turns.next_event()
        program.recorded = self._log.program(number, LoggedProgram(kernel, program.index, self._launch))

    def ended(self, program: Program) -> None:
        self._add(Kind.END, program.recorded, NONE)

    def stuck(self, program: Program) -> None:
        assert program.wait is not None
        line = location.line_of_frame(program.gr_frame)
        text = program.wait.describe()
        place = self._log.place(Place(*(line or ("", 0)), text.split(":")[0]))
        words = self._words(program.wait.words[:LONGEST_LIST]) if program.wait.words else NONE
        pes = self._log.list(program.wait.pes) if program.wait.pes else NONE
        self._add(Kind.STUCK, program.recorded, place, self._log.text(text), words, pes)

    # ---- what they do to memory

    def block(self, what: str, pointers: NDArray[Any], mask: NDArray[Any], size: int, writes: bool, how: str) -> None:
        """A load or a store of elements of ``size`` bytes. ``how``: a key of ``_HOW``."""
        found = of_pointers(self._world.heap, self._world.n_pes, pointers, mask, size)
        if how == "atomic":  # in no order: from this PE on, so that PEs that do the same touch different ones at a time
            found.sort(key=lambda ranges: (ranges.pe - self._world.pe) % self._world.n_pes)
        for ranges in found:
            self._check(what, ranges)
            self._access(what, writes, how, ranges)
        if not found:
            self._check_guard(what, pointers, mask)
            if self._work:
                self._moved(what, size * int(_addresses(pointers, mask).size), writes)
            if self._private:
                self._private_block(what, pointers, mask, size, writes, how)

    def dot(self, operations: int, size: int, stages: int) -> None:
        """A ``tl.dot`` of so many multiplications and additions, of operands with ``size`` bytes an element, in a
        kernel with ``num_stages=stages``."""
        if self._work:
            self._add(Kind.WORK, self._program, self._place("tl.dot"), 0, 0, operations, stages, size=size)

    def _moved(self, what: str, nbytes: int, writes: bool) -> None:
        if nbytes:
            self._add(Kind.WORK, self._program, self._place(what), *((0, nbytes) if writes else (nbytes, 0)))

    def atomic_block(
        self, what: str, pointers: NDArray[Any], mask: NDArray[Any], size: int, sem: str, scope: str, writes: bool
    ) -> list[Word]:
        """An atomic operation on each element. Returns the words, for :meth:`acquire` if ``sem`` has it."""
        self.block(what, pointers, mask, size, writes, "atomic")
        words = [
            (ranges.pe, int(offset))
            for ranges in of_pointers(self._world.heap, self._world.n_pes, pointers, mask, size)
            for begin, end in zip(ranges.begins, ranges.ends, strict=True)
            for offset in range(begin, end, size)
        ]
        chosen = _addresses(pointers, mask)
        first, last = self._world.heap.base(0), self._world.heap.base(self._world.n_pes - 1) + self._world.heap.size
        private = (chosen < first) | (chosen >= last)  # programs of one PE may well be ordered by other memory
        words += [(-1 - self._world.pe, int(address)) for address in np.unique(chosen[private])]
        if words and writes:
            self.release(what, words, _order(sem not in ("release", "acq_rel"), scope) | Flag.ATOMIC)
        return words

    def word(self, what: str, pe: int, offset: int, size: int) -> None:
        """An atomic read of one word, which orders nothing."""
        ranges = self._span(pe, offset, size)
        self._check(what, ranges)
        self._access(what, False, "atomic", ranges)

    def update(
        self, what: str, word: Word, size: int, values: tuple[int, int] | None, flags: int, *, relaxed: bool = False,
        scope: str = "sys",
    ) -> None:  # fmt: skip
        """An atomic change of one word of ``size`` bytes; ``values``: what it is before and after, if it is known.

        ``flags``: ``SETS`` or ``ADDS``, ``ATOMIC`` and ``CARRIES`` as :class:`Kind` has it.
        """
        self._check(what, self._span(*word, size))
        before, after = map(_int64, values or (0, 0))
        flags |= _order(relaxed, scope) | (Flag.VALUED if values else 0)
        self._add(Kind.UPDATE, self._program, self._place(what), *word, before, after, flags=flags, size=size)

    def send(self, what: str, word: Word, size: int, flags: int, *, relaxed: bool = False, scope: str = "sys") -> None:
        """As :meth:`update`, of a word that changes when this arrives."""
        self._check(what, self._span(*word, size))
        number = self._turns.next_event()
        flags |= _order(relaxed, scope)
        self._log.add(number, Kind.SENT, self._program, self._place(what), *word, flags=flags, size=size)
        running().sent = number

    def arrived(self, program: int, sent: int, values: tuple[int, int] | None) -> None:
        """What a program has sent, by the number of that event, has arrived; ``values`` as in :meth:`update`."""
        before, after = map(_int64, values or (0, 0))
        self._add(Kind.ARRIVED, program, NONE, sent, 0, before, after, flags=Flag.VALUED if values else 0)

    def look(
        self, what: str, words: list[Word], size: int, *, relaxed: bool = False, scope: str = "sys",
        until: tuple[Cmp, int, bool] | None = None,
    ) -> None:  # fmt: skip
        """Words of ``size`` bytes have been read. ``until``: by a wait, which ended when they compared with a
        value, as numbers with a sign or without."""
        for word in words:
            self._check(what, self._span(*word, size))
        flags, value, cmp = _order(relaxed, scope), 0, 0
        if until is not None:
            cmp, value = until[0], _int64(until[1])
            flags |= Flag.WAITS | (Flag.SIGNED if until[2] else 0)
        for i in range(0, len(words), LONGEST_LIST // 2):
            part = self._words(words[i : i + LONGEST_LIST // 2])
            self._add(Kind.LOOK, self._program, self._place(what), part, 0, value, flags=flags, size=size, cmp=cmp)

    def elements(self, what: str, pe: int, offset: int, stride: int, count: int, size: int) -> Ranges:
        """Checked ranges of ``count`` elements a ``stride`` of bytes apart."""
        if abs(stride) <= size:  # without gaps
            reach = (count - 1) * stride
            return self.span(what, pe, offset + min(reach, 0), abs(reach) + size)
        begins = np.unique(offset + stride * np.arange(count, dtype=np.int64))
        ranges = Ranges(pe, begins, begins + size)
        self._check(what, ranges)
        return ranges

    def span(self, what: str, pe: int, offset: int, nbytes: int) -> Ranges:
        """Checked ranges of ``nbytes`` bytes."""
        ranges = self._span(pe, offset, nbytes)
        self._check(what, ranges)
        return ranges

    def plain(self, what: str, ranges: Ranges, writes: bool) -> None:
        self._access(what, writes, "plain", ranges)

    def put(self, what: str, source: Ranges | None, target: Ranges, flags: int = 0) -> None:
        """``flags``: ``NBI``, or ``ATOMIC`` for a single element."""
        if source is not None and _same(source, target):  # every PE's part to all PEs, where it is: changes nothing
            self.plain(what, source, writes=False)
            return
        self.overlap(what, source, target)
        ranges = self._ranges(source), self._ranges(target)
        self._add(Kind.PUT, self._program, self._place(what), *ranges, flags=flags)

    def get(self, what: str, source: Ranges, target: Ranges | None, flags: int = 0) -> None:
        self.overlap(what, source, target)
        ranges = self._ranges(source), self._ranges(target)
        self._add(Kind.GET, self._program, self._place(what), *ranges, flags=flags)

    def overlap(self, what: str, source: Ranges | None, target: Ranges | None, *, same: bool = False) -> None:
        """Note if a copy's source and target share memory without being the ``same``, or even then."""
        if source is None or target is None or source.pe != target.pe or (_same(source, target) and not same):
            return
        first = np.searchsorted(source.ends, target.begins, "right")
        touches = first < source.begins.size
        touches[touches] = source.begins[first[touches]] < target.ends[touches]
        if touches.any():
            i = int(np.flatnonzero(touches)[0])
            begin = max(int(target.begins[i]), int(source.begins[first[i]]))
            end = min(int(target.ends[i]), int(source.ends[first[i]]))
            self._add(Kind.OVERLAP, self._program, self._place(what), target.pe, begin, end)

    def local(self, what: str, address: int, nbytes: int, nbi: bool) -> Ranges | None:
        """What a copy reads or writes on this side; None where no other program can be looking."""
        place = self._world.heap.find(address)
        if place is not None:
            return self.span(what, place[0], place[1], nbytes)
        if not nbi:
            return None
        self._private.append(_Private(self._program, address, address + nbytes))
        return self._span(-1 - self._world.pe, address, nbytes)

    # ---- what orders them

    def release(self, what: str, words: list[Word], flags: int) -> None:
        self._add_words(Kind.RELEASE, what, words, flags)

    def acquire(self, what: str, words: list[Word], *, relaxed: bool = False, scope: str = "sys") -> None:
        self._add_words(Kind.ACQUIRE, what, words, _order(relaxed, scope))

    def proxy_fence(self, *, completes: bool = False) -> None:
        """``completes``: in an op, which completes stores by TMA, too."""
        self._add(Kind.PROXY_FENCE, self._program, NONE, flags=Flag.COMPLETES if completes else 0)

    def fence(self, pe: int | None) -> None:
        self._add(Kind.FENCE, self._program, NONE, -1 if pe is None else pe)

    def quiet(self, pe: int | None) -> None:
        if pe is None:
            self._private = [private for private in self._private if private.program != self._program]
        self._add(Kind.QUIET, self._program, NONE, -1 if pe is None else pe)

    def arrive(self, what: str, pes: tuple[int, ...], *, completes: bool) -> None:
        flags = Flag.COMPLETES if completes else 0
        self._add(Kind.ARRIVE, self._program, self._place(what), self._log.list(pes), flags=flags)

    def leave(self, pes: tuple[int, ...]) -> None:
        self._add(Kind.LEAVE, self._program, NONE, self._log.list(pes))

    # ----

    @property
    def _program(self) -> int:
        return running().recorded

    def _add(self, kind: Kind, program: int, place: int, *operands: int, **more: int) -> None:
        self._log.add(self._turns.next_event(), kind, program, place, *operands, **more)

    def _add_words(self, kind: Kind, what: str, words: list[Word], flags: int) -> None:
        for i in range(0, len(words), LONGEST_LIST // 2):
            part = self._words(words[i : i + LONGEST_LIST // 2])
            self._add(kind, self._program, self._place(what), part, flags=flags)

    def _words(self, words: Sequence[Word]) -> int:
        return self._log.list([number for word in words for number in word])

    def _ranges(self, ranges: Ranges | None) -> int:
        return NONE if ranges is None else self._log.ranges(ranges.pe, ranges.begins, ranges.ends)

    def _place(self, what: str) -> int:
        file, line = location.line_of_frame(sys._getframe()) or ("", 0)
        return self._log.place(Place(file, line, what))

    def _access(self, what: str, writes: bool, how: str, ranges: Ranges) -> None:
        flags = _HOW[how] | Flag.WRITES * writes
        self._add(Kind.ACCESS, self._program, self._place(what), self._ranges(ranges), flags=flags)

    @staticmethod
    def _span(space: int, begin: int, nbytes: int) -> Ranges:
        return Ranges(space, np.array([begin], np.int64), np.array([begin + nbytes], np.int64))

    def _check(self, what: str, ranges: Ranges, program: int | None = None) -> None:
        """All of the ranges lie in tensors, each in one. ``program``: the one that runs, or the host."""
        begins, ends = self._bounds
        which = np.searchsorted(begins, ranges.begins, "right") - 1
        inside = (which >= 0) & (ranges.ends <= ends[which]) if begins.size else np.zeros(ranges.begins.size, bool)
        if not inside.all():
            first = int(np.flatnonzero(~inside)[0])
            self._outside(what, ranges.pe, int(ranges.begins[first]), int(ranges.ends[first]), program)

    def _check_guard(self, what: str, pointers: NDArray[Any], mask: NDArray[Any]) -> None:
        """Nothing lies between the heaps."""
        heap = self._world.heap
        addresses = _addresses(pointers, mask)
        for pe in range(self._world.n_pes):
            end = heap.base(pe) + heap.size
            between = (addresses >= end) & (addresses < end + _GUARD)
            if between.any():
                first = int(addresses[between][0])
                self._outside(what, pe, first - heap.base(pe), first - heap.base(pe) + 1)

    def _outside(self, what: str, pe: int, begin: int, end: int, program: int | None = None) -> None:
        self._add(Kind.OUTSIDE, self._program if program is None else program, self._place(what), pe, begin, end)
        place = self._world.describe(self._world.heap.base(pe) + begin)
        raise OutsideError(f"{what} touches {end - begin} bytes at {place}, which are not all in one symmetric tensor")

    def _private_block(
        self, what: str, pointers: NDArray[Any], mask: NDArray[Any], size: int, writes: bool, how: str
    ) -> None:
        """Memory of this process that no other PE can see, but a copy that is under way."""
        addresses = _addresses(pointers, mask)
        if not addresses.size:
            return
        low, high = int(addresses.min()), int(addresses.max()) + size
        if any(low < private.end and private.begin < high for private in self._private):
            begins, ends = joined(addresses, size)
            self._access(what, writes, how, Ranges(-1 - self._world.pe, begins, ends))


_GUARD = 1 << 20


def _addresses(pointers: NDArray[Any], mask: NDArray[Any]) -> NDArray[np.int64]:
    """The pointers where ``mask`` is true."""
    shape = np.broadcast_shapes(pointers.shape, mask.shape)
    chosen: NDArray[np.int64] = np.broadcast_to(pointers, shape)[np.broadcast_to(mask, shape)].astype(np.int64)
    return chosen


_HOW = {
    "plain": 0,
    "atomic": Flag.ATOMIC,
    "volatile": Flag.VOLATILE,
    "tma": Flag.TMA,
    "complete tma": Flag.TMA | Flag.COMPLETES,
}


def _same(one: Ranges, other: Ranges) -> bool:
    return (
        one.pe == other.pe and np.array_equal(one.begins, other.begins) and np.array_equal(one.ends, other.ends)
    )  # fmt: skip


def _order(relaxed: bool, scope: str) -> int:
    return Flag.RELAXED * relaxed | Flag.SCOPE_GPU * (scope != "sys")


def _int64(bits: int) -> int:
    """The same 64 bits, as a number with a sign."""
    return (bits + (1 << 63)) % (1 << 64) - (1 << 63)
