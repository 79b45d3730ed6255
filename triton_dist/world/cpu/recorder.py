"""Writes down what the programs of this PE do to symmetric memory, for triton_dist.check to look at.

Each method is called by the program that does it, right before it happens (``acquire`` and ``leave``: right after),
while this PE has the turn.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from triton_dist.check.log import HOST, Kind, Log, Place, Program
from triton_dist.world.cpu import location, scheduler
from triton_dist.world.cpu.accesses import Ranges, of_pointers

if TYPE_CHECKING:
    from triton_dist.world.cpu.world import CpuWorld

__all__ = ["OutsideError", "Recorder", "Word"]

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


class Recorder:
    """Of one world, on one PE."""

    def __init__(self, world: CpuWorld, log: Log) -> None:
        assert world.turns is not None
        self._world = world
        self._turns = world.turns
        self._log = log
        self._bounds: NDArray[np.int64] = np.empty((2, 0), np.int64)
        self._private: list[_Private] = []
        self._launch = 0

    def flush(self) -> None:
        self._log.flush()

    # ---- the host

    def allocated(self, offset: int, nbytes: int, text: str) -> None:
        self._host(Kind.ALLOCATE, "allocation", offset, nbytes, text)

    def freed(self, offset: int) -> None:
        self._host(Kind.FREE, "free", offset)

    def dropped(self, offset: int) -> None:
        self._host(Kind.DROPPED, "end of the world", offset)

    def allocations(self, spans: Sequence[tuple[int, int]]) -> None:
        """What is allocated now: offsets and sizes."""
        self._bounds = np.array([(begin, begin + size) for begin, size in sorted(spans)], np.int64).reshape(-1, 2).T

    def is_symmetric(self, address: int) -> bool:
        return self._world.heap.find(address) is not None

    def host_block(self, what: str, addresses: NDArray[np.int64], size: int, writes: bool) -> None:
        """Host code reads or writes ``size`` bytes at each of these addresses."""
        for ranges in of_pointers(self._world.heap, self._world.n_pes, addresses, np.array(True), size):
            plain = (ranges.pe, ranges.begins, ranges.ends)
            self._add(Kind.ACCESS, HOST, self._place(what), writes, "plain", plain)

    def host_arrives(self, call: str, pes: tuple[int, ...]) -> None:
        if len(pes) == self._world.n_pes:
            self._private.clear()
        self._add(Kind.ARRIVE, HOST, self._place(call), call, pes, True)

    def host_leaves(self, pes: tuple[int, ...]) -> None:
        self._add(Kind.LEAVE, HOST, pes)

    def host_stuck(self, call: str, pes: tuple[int, ...]) -> None:
        self._add(Kind.STUCK, HOST, self._place(call), call, None, pes)

    def launch_ended(self) -> None:
        self._add(Kind.LAUNCHED)
        self._launch += 1

    def failed(self, text: str) -> None:
        self._add(Kind.FAILED, text)

    def _host(self, kind: Kind, what: str, *items: Any) -> None:
        self._add(kind, self._place(what), *items)

    # ---- programs

    def started(self, program: scheduler.Program, kernel: str) -> None:
        number = self._turns.next_event()
        program.recorded = self._log.program(number, Program(kernel, program.index, self._launch))

    def ended(self, program: scheduler.Program) -> None:
        self._add(Kind.END, program.recorded)

    def stuck(self, program: scheduler.Program) -> None:
        assert program.wait is not None
        line = location.line_of_frame(program.gr_frame)
        text = program.wait.describe()
        place = self._log.place(Place(*(line or ("", 0)), text.split(":")[0]))
        self._add(Kind.STUCK, program.recorded, place, text, program.wait.words, program.wait.pes)

    # ---- what they do to memory

    def block(self, what: str, pointers: NDArray[Any], mask: NDArray[Any], size: int, writes: bool, how: str) -> None:
        """A load or a store of elements of ``size`` bytes."""
        found = of_pointers(self._world.heap, self._world.n_pes, pointers, mask, size)
        for ranges in found:
            self._check(what, ranges)
            self._access(what, writes, how, (ranges.pe, ranges.begins, ranges.ends))
        if not found:
            self._check_guard(what, pointers, mask)
            if self._private:
                self._private_block(what, pointers, mask, size, writes, how)

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
        if words and writes and sem in ("release", "acq_rel"):
            self.release(what, words, sets=False, scope=scope)
        return words

    def word(self, what: str, pe: int, offset: int, size: int, writes: bool) -> None:
        """An atomic access to one word."""
        ranges = self._span(pe, offset, size)
        self._check(what, ranges)
        self._access(what, writes, "atomic", (pe, ranges.begins, ranges.ends))

    def elements(self, what: str, pe: int, offset: int, stride: int, count: int, size: int, writes: bool) -> Ranges:
        """Checked ranges of ``count`` elements a ``stride`` of bytes apart."""
        begins = np.unique(offset + stride * np.arange(count, dtype=np.int64))
        if stride == size:
            return self.span(what, pe, offset, count * size)
        ranges = Ranges(pe, begins, begins + size)
        self._check(what, ranges)
        return ranges

    def span(self, what: str, pe: int, offset: int, nbytes: int) -> Ranges:
        """Checked ranges of ``nbytes`` bytes."""
        ranges = self._span(pe, offset, nbytes)
        self._check(what, ranges)
        return ranges

    def plain(self, what: str, ranges: Ranges, writes: bool) -> None:
        self._access(what, writes, "plain", (ranges.pe, ranges.begins, ranges.ends))

    def put(
        self,
        what: str,
        nbi: bool,
        source: Ranges | None,
        target: Ranges,
        signal: Word | None = None,
        adds: bool = False,
    ) -> None:
        self._add(
            Kind.PUT, self._program, self._place(what), nbi, _plain(source), _plain(target), signal, adds
        )  # fmt: skip

    def get(self, what: str, nbi: bool, source: Ranges, target: Ranges | None) -> None:
        self._add(Kind.GET, self._program, self._place(what), nbi, _plain(source), _plain(target))

    def local(self, what: str, address: int, nbytes: int, nbi: bool) -> Ranges | None:
        """What a copy reads or writes on this side; None where nobody else can be looking."""
        place = self._world.heap.find(address)
        if place is not None:
            return self.span(what, place[0], place[1], nbytes)
        if not nbi:
            return None
        self._private.append(_Private(self._program, address, address + nbytes))
        return self._span(-1 - self._world.pe, address, nbytes)

    # ---- what orders them

    def release(self, what: str, words: list[Word], *, sets: bool, scope: str = "sys") -> None:
        self._add(Kind.RELEASE, self._program, self._place(what), words, sets, scope)

    def acquire(self, what: str, words: list[Word], scope: str = "sys") -> None:
        self._add(Kind.ACQUIRE, self._program, self._place(what), words, scope)

    def fence(self, pe: int | None) -> None:
        self._add(Kind.FENCE, self._program, pe)

    def quiet(self, pe: int | None) -> None:
        if pe is None:
            self._private = [private for private in self._private if private.program != self._program]
        self._add(Kind.QUIET, self._program, pe)

    def arrive(self, what: str, pes: tuple[int, ...], *, completes: bool) -> None:
        self._add(Kind.ARRIVE, self._program, self._place(what), what, pes, completes)

    def leave(self, pes: tuple[int, ...]) -> None:
        self._add(Kind.LEAVE, self._program, pes)

    # ----

    @property
    def _program(self) -> int:
        return scheduler.running().recorded

    def _add(self, kind: Kind, *items: Any) -> None:
        self._log.add(self._turns.next_event(), kind, *items)

    def _place(self, what: str) -> int:
        file, line = location.line_of_frame(sys._getframe()) or ("", 0)
        return self._log.place(Place(file, line, what))

    def _access(self, what: str, writes: bool, how: str, ranges: tuple[int, Any, Any]) -> None:
        self._add(Kind.ACCESS, self._program, self._place(what), writes, how, ranges)

    @staticmethod
    def _span(space: int, begin: int, nbytes: int) -> Ranges:
        return Ranges(space, np.array([begin], np.int64), np.array([begin + nbytes], np.int64))

    def _check(self, what: str, ranges: Ranges) -> None:
        """All of the ranges lie in tensors, each in one."""
        begins, ends = self._bounds
        which = np.searchsorted(begins, ranges.begins, "right") - 1
        inside = (which >= 0) & (ranges.ends <= ends[which]) if begins.size else np.zeros(ranges.begins.size, bool)
        if not inside.all():
            first = int(np.flatnonzero(~inside)[0])
            self._outside(what, ranges.pe, int(ranges.begins[first]), int(ranges.ends[first]))

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

    def _outside(self, what: str, pe: int, begin: int, end: int) -> None:
        self._add(Kind.OUTSIDE, self._program, self._place(what), what, pe, begin, end)
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
            begins = np.unique(addresses)
            self._access(what, writes, how, (-1 - self._world.pe, begins, begins + size))


_GUARD = 1 << 20


def _addresses(pointers: NDArray[Any], mask: NDArray[Any]) -> NDArray[np.int64]:
    """The pointers where ``mask`` is true."""
    shape = np.broadcast_shapes(pointers.shape, mask.shape)
    chosen: NDArray[np.int64] = np.broadcast_to(pointers, shape)[np.broadcast_to(mask, shape)].astype(np.int64)
    return chosen


def _plain(ranges: Ranges | None) -> tuple[int, Any, Any] | None:
    return None if ranges is None else (ranges.pe, ranges.begins, ranges.ends)
