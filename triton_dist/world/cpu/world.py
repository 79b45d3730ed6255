"""The CPU world: symmetric tensors over memory that the PEs' processes share."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from triton_dist import environment
from triton_dist._C import _runtime
from triton_dist._C._runtime import Caller
from triton_dist.world.base import BrokenWorldError, Launch, World
from triton_dist.world.cpu import schedule
from triton_dist.world.cpu.allocator import CHECKED_GAP, FirstFit
from triton_dist.world.cpu.bootstrap import join
from triton_dist.world.cpu.turns import DeadlockError, Turns

if TYPE_CHECKING:
    from triton_dist.world.cpu.checking import Checking

__all__ = ["BrokenWorldError", "CpuWorld", "current"]

_LOOK_SECONDS = 0.1
"""How often a wait looks whether the awaited PEs still run."""

_current: CpuWorld | None = None


def current() -> CpuWorld | None:
    """This process's world, between its making and its end."""
    return _current


@dataclass(frozen=True)
class _Allocation:
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.shape}, {self.dtype}"


class CpuWorld(World):
    """See :class:`~triton_dist.world.base.World`.

    A tensor holds the mapping it lies in, so it stays readable after :meth:`finalize`: the last one unmaps the heap.

    A PE that fails breaks the world for all: whoever waits for it, now or later, gets a :class:`BrokenWorldError`.
    """

    kind = "cpu"

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self.device = torch.device("cpu")
        self.heap, self.control = join(launch, environment.get("TRITON_DIST_SYMMETRIC_SIZE"))
        self._allocator = FirstFit(self.heap.size, CHECKED_GAP if environment.get("TRITON_DIST_CHECK") else 0)
        self._allocations: dict[int, _Allocation] = {}
        self._rounds = {Caller.HOST: 0, Caller.KERNEL: 0}
        self._next_look = 0.0
        self._kernel_call: str | None = None
        self.turns = self._take_turns(launch)
        self.checking: Checking | None = None
        if environment.get("TRITON_DIST_CHECK"):
            from triton_dist.world.cpu.checking import Checking  # which looks at programs, and so at worlds

            self.checking = Checking(launch, self)
        self.recorder = None if self.checking is None else self.checking.recorder
        self._process = os.getpid()
        if launch.watch is not None:
            launch.watch.on_trouble(lambda trouble: self.control.abort(trouble.pe, trouble.what))
        atexit.register(self._on_exit)
        self._collective("init()")
        global _current
        _current = self

    # ---- symmetric tensors

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self._check_live()
        wanted = _Allocation(tuple(shape), dtype)
        self._collective(f"empty({wanted})")
        offset = self._allocator.allocate(wanted.nbytes)
        if offset is None:
            raise MemoryError(
                f"the symmetric heap cannot hold {wanted.nbytes} bytes more ({wanted}): of its {self._allocator.size} "
                f"bytes {self._allocator.free} are free, at most {self._allocator.largest} in one piece; "
                "TRITON_DIST_SYMMETRIC_SIZE sets its size"
            )
        self._allocations[offset] = wanted
        if self.recorder is not None:
            self.recorder.allocated(offset, wanted.nbytes, str(wanted))
            self._record_allocations()
        return self._tensor(self.pe, offset, wanted.nbytes, dtype).view(wanted.shape)

    def peer(self, tensor: torch.Tensor, pe: int) -> torch.Tensor:
        self._check_live()
        pe = self.check_pe(pe)
        offset = self._own_offset(tensor)
        nbytes = tensor.untyped_storage().nbytes()
        whole = self._tensor(pe, offset, nbytes - nbytes % tensor.itemsize, tensor.dtype)
        return whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def free(self, tensor: torch.Tensor) -> None:
        self._check_live()
        place = self.heap.find(tensor.untyped_storage().data_ptr()) if tensor.device == self.device else None
        offset = place[1] if place and place[0] == self.pe and tensor.storage_offset() == 0 else None
        known = offset in self._allocations
        # What cannot be freed here is announced too: the other PEs must not wait for a call that never comes.
        self._collective(f"free(the tensor at offset {offset} of the heap)" if known else "free(no allocation)")
        if offset is None or not known:
            raise ValueError("this tensor does not start an allocation of the symmetric heap (or it was freed before)")
        del self._allocations[offset]
        if self.recorder is not None:
            self.recorder.freed(offset)
            self._record_allocations()
        self._allocator.release(offset)

    def _record_allocations(self) -> None:
        assert self.recorder is not None
        self.recorder.allocations([(offset, known.nbytes) for offset, known in self._allocations.items()])

    def _tensor(self, pe: int, offset: int, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        # Never of no bytes: torch then forgets the address. Allocations are aligned and padded, so there is room.
        count = max(nbytes, dtype.itemsize)
        raw = torch.frombuffer(self.heap.memory(pe), dtype=torch.uint8, count=count, offset=offset)
        return raw.view(dtype)[: nbytes // dtype.itemsize]

    def _own_offset(self, tensor: torch.Tensor) -> int:
        """Where in this PE's heap the tensor's storage begins."""
        place = self.heap.find(tensor.untyped_storage().data_ptr()) if tensor.device == self.device else None
        if place is None:
            raise ValueError(f"the tensor of shape {tuple(tensor.shape)} on {tensor.device} is not symmetric")
        if place[0] != self.pe:
            raise ValueError(
                f"the tensor of shape {tuple(tensor.shape)} lies on PE {place[0]}: pass PE {self.pe}'s own one"
            )
        return place[1]

    def describe(self, address: int) -> str:
        """What lies at an address, for messages."""
        place = self.heap.find(address)
        if place is None:
            return f"{address:#x} (not symmetric)"
        pe, offset = place
        base = max((begin for begin in self._allocations if begin <= offset), default=None)
        if base is not None and offset - base < self._allocations[base].nbytes:
            index, rest = divmod(offset - base, self._allocations[base].dtype.itemsize)
            inside = f"element {index}" + (f" + {rest} bytes" if rest else "")
            return f"{address:#x} ({inside} of the symmetric tensor ({self._allocations[base]}) on PE {pe})"
        return f"{address:#x} (offset {offset} of PE {pe}'s heap, in no tensor)"

    # ---- doing things together

    def barrier_all(self) -> None:
        self._check_live()
        self._collective("barrier_all()")

    def _close(self) -> None:
        try:
            self._collective("finalize()")
            if self.checking is not None:
                with self.turn("the check"):
                    self.checking.finish()
        except BaseException:
            self._leave()
            raise
        self._leave(politely=True)

    def _drop(self) -> None:
        if self.checking is not None:
            self.checking.fail("gave up its world after an error")
        self._leave()

    def _check_live(self) -> None:
        if self.finalized:
            raise RuntimeError("this world has been finalized")

    def _collective(self, call: str) -> None:
        """Wait for all PEs, and make sure that all do the same."""
        barrier = self.control.host_barrier
        with self.turn(f"PE {self.pe} cannot complete {call}"):
            number = self._announce(Caller.HOST, call)
            ticket = barrier.arrive()
            if self.recorder is not None:
                self.recorder.host_arrives(call)
            if self.turns is None:
                # Short waits, so that a Ctrl-C gets through.
                self.wait(lambda: barrier.wait(ticket, _LOOK_SECONDS / 2), call, needs_all=True)
            else:
                self._wait_in_turns(lambda: barrier.passed(ticket), call)
            self._compare(Caller.HOST, number)
            if self.recorder is not None:
                self.recorder.host_leaves()

    def _announce(self, caller: Caller, call: str) -> int:
        """Tell the other PEs what this one comes to do together; the number of the round."""
        number = self._rounds[caller]
        self._rounds[caller] += 1
        self.control.announce(caller, self.pe, number, call)
        return number

    def _compare(self, caller: Caller, number: int) -> None:
        """Once all have come: RuntimeError if they came to do different things."""
        calls = [self.control.announced(caller, pe, number) for pe in range(self.n_pes)]
        if len(set(calls)) > 1:
            listed = "; ".join(f"PE {pe}: {theirs}" for pe, theirs in enumerate(calls))
            raise RuntimeError(f"the PEs call different collectives: {listed}")

    def wait(self, done: Callable[[], bool], what: str, *, needs_all: bool) -> None:
        """Return when ``done()`` is true; BrokenWorldError when that cannot be hoped for."""
        while not done():
            trouble = self.trouble(needs_all=needs_all)
            if trouble and not done():  # the others may have come, and gone, in between
                raise BrokenWorldError(f"PE {self.pe} cannot complete {what}: {trouble}")

    @contextmanager
    def kernel_barrier(self, call: str) -> Iterator[Callable[[], bool]]:
        """Arrive at the barrier of the kernels for ``call``; the function given tells whether all have.

        One user at a time. RuntimeError, when all have come, if they call different things.
        """
        if self._kernel_call is not None:
            raise RuntimeError(
                f"another program of this PE is already waiting for all PEs in {self._kernel_call}: "
                "collectives are for one program of each PE at a time"
            )
        number = self._announce(Caller.KERNEL, call)
        barrier = self.control.kernel_barrier
        ticket = barrier.arrive()
        self._kernel_call = call
        try:
            yield lambda: barrier.passed(ticket)
        finally:
            self._kernel_call = None
        self._compare(Caller.KERNEL, number)

    # ---- one PE at a time

    def _take_turns(self, launch: Launch) -> Turns | None:
        text, checked = environment.get("TRITON_DIST_SCHEDULE"), environment.get("TRITON_DIST_CHECK")
        if len(set(launch.exchange("schedule", f"{text} {checked}"))) > 1:
            raise RuntimeError("set TRITON_DIST_SCHEDULE and TRITON_DIST_CHECK alike on all PEs")
        return (
            None
            if text == "round-robin" and not checked
            else Turns(launch, schedule.of(text, launch.pe), self._check_trouble)
        )

    @contextmanager
    def turn(self, failing: str) -> Iterator[None]:
        """Do something while the other PEs wait, if PEs take turns. Errors begin with ``failing``."""
        if self.turns is None:
            yield
            return
        try:
            self.turns.take()
        except BrokenWorldError as error:
            raise BrokenWorldError(f"{failing}: {error}") from None
        try:
            yield
        finally:
            self.turns.give()

    @property
    def delays_puts(self) -> bool:
        """Whether copies are to arrive as late as they may."""
        return self.turns is not None and self.turns.schedule.delays_puts

    def _wait_in_turns(self, done: Callable[[], bool], call: str) -> None:
        assert self.turns is not None
        self.turns.step()  # others may have waited for this PE to come
        try:
            while not done():
                trouble = self.trouble(needs_all=True)
                if trouble and not done():
                    raise BrokenWorldError(trouble)
                self.turns.blocked(polls=False)
        except BrokenWorldError as error:
            raise BrokenWorldError(f"PE {self.pe} cannot complete {call}: {error}") from None
        except DeadlockError as deadlock:
            if self.checking is not None:
                self.checking.recorder.host_stuck(call)
                self.checking.give_up(first=deadlock.first)
            reason = f"waits in {call}, which not all PEs have entered, and no PE can go on"
            self.abort(reason)
            raise BrokenWorldError(f"PE {self.pe} {reason}") from None

    def _check_trouble(self) -> None:
        trouble = self.trouble(needs_all=False)
        if trouble is not None:
            raise BrokenWorldError(trouble)

    # ---- when a PE fails

    def trouble(self, *, needs_all: bool) -> str | None:
        """Why waiting is in vain, if it is: the world is broken, or, if all are needed, a PE has left it.

        Cheap enough for a waiting loop: processes are looked at every now and then only.
        """
        now = time.monotonic()
        if self.control.aborted() is None and now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            for pe in range(self.n_pes):
                state = self.control.state(pe)
                if state == _runtime.State.LOST:
                    pid = self.control.pid(pe)
                    self.control.abort(pe, f"is lost: its process {pid} was killed, crashed or just ended")
                elif state == _runtime.State.LEFT and needs_all:
                    self._end_if_reported()
                    return f"PE {pe} has left the world"
        broken = self.control.aborted()
        if broken:
            self._end_if_reported()
        return f"PE {broken[0]} {broken[1]}" if broken else None

    def _end_if_reported(self) -> None:
        """In a checked run whoever finds something says it; the others have nothing to add."""
        if self.checking is not None and self.checking.has_reported:
            raise SystemExit(1)

    def abort(self, reason: str) -> None:
        """Break the world; the others' waits end with ``PE <this one> <reason>``. Only the first failure counts."""
        if self.checking is not None and self.control.aborted() is None:
            self.checking.fail(reason)
        if self._launch.watch is not None:
            self._launch.watch.fail(reason)
        else:
            self.control.abort(self.pe, reason)

    def _on_exit(self) -> None:
        # A program may end without finalize(): nobody need wait for it, nor it for others. The heap outlives it.
        if os.getpid() == self._process and not self.finalized:
            self.finalized = True
            if self.checking is not None:
                self._finish_at_exit()
            self._leave()

    def _finish_at_exit(self) -> None:
        """A checked program that ends without finalize(): what it did is looked at all the same."""
        assert self.checking is not None
        if self.control.aborted() is not None:
            self.checking.fail("ended after an error")
            return
        try:
            self._close()
        except SystemExit as found:
            sys.stdout.flush()
            os._exit(int(str(found)))  # too late for an exit status to come about in any other way

    def _leave(self, *, politely: bool = False) -> None:
        if self.checking is not None:
            self.checking.end()
        if self.turns is not None:
            self.turns.leave(waiting=politely)
        self.control.leave(self.pe)
        atexit.unregister(self._on_exit)
        global _current
        if _current is self:
            _current = None
