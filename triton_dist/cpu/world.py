"""The CPU world: symmetric tensors over memory that the PEs' processes share."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NoReturn

import torch

from triton_dist import environment
from triton_dist.bootstrap import exit_report
from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.bootstrap.launch import Launch
from triton_dist.bootstrap.rendezvous import Member
from triton_dist.cpu import bootstrap, schedule
from triton_dist.cpu.allocator import CHECKED_GAP, FirstFit, padded
from triton_dist.cpu.channels import CHANNEL_BYTES, Channels
from triton_dist.cpu.checking import Checking
from triton_dist.cpu.copy_engine import CopyEngine
from triton_dist.cpu.host_ops import CpuHostOps
from triton_dist.cpu.memory import SymmetricMemory
from triton_dist.cpu.runtime.control import Caller, State
from triton_dist.cpu.settings import equal_settings
from triton_dist.cpu.team_sync import PLACE_BYTES, GroupBarrier, HeapBarrier, TeamBarrier
from triton_dist.cpu.transport import Transport
from triton_dist.cpu.turn_taking import DeadlockError, Turns
from triton_dist.cpu.unfinished import ended_a_grid
from triton_dist.process_state import of_process
from triton_dist.world.allocations import Allocation
from triton_dist.world.base import World, check_same_calls, group_memory_size
from triton_dist.world.calls import CallsDifferError, check_equal_calls
from triton_dist.world.current import find_world
from triton_dist.world.groups import GroupMemory, HostGroup
from triton_dist.world.raw_tensor import elsewhere, start_of, storage_address, tensor_at
from triton_dist.world.teams import Team, agree_on_handle

__all__ = ["MAX_TEAMS", "CpuWorld", "current", "refuse_stale"]

MAX_TEAMS = 32
"""With the team of all; as many as NVSHMEM has by default, and the p2p device library."""

_LOOK_SECONDS = 0.1
"""How often a wait looks whether the awaited PEs still run."""

_ALIKE = "TRITON_DIST_SCHEDULE", "TRITON_DIST_CHECK", "TRITON_DIST_CPU_SMS", "TRITON_DIST_CPU_CAPABILITY"


class EndedHeaps(weakref.WeakSet[SymmetricMemory]):
    """Heaps of worlds that have ended while tensors on them live. One for each process, since they outlive worlds."""


def current() -> CpuWorld | None:
    """This process's world, between its making and its end."""
    world = find_world()
    return world if isinstance(world, CpuWorld) else None


def refuse_stale(name: str, tensor: torch.Tensor) -> None:
    """Errors for ``tensor``, an argument called ``name``, if it is symmetric and its memory was given back.

    Raises:
        ValueError: the tensor, of this world or on a peer, was freed. RuntimeError: its world is finalized.
    """
    address = storage_address(tensor)
    world = current()
    if world is not None and (place := world.heap.find(address)) is not None:
        if world.allocation_at(place[1]) is None:
            raise ValueError(f"{name}, of shape {tuple(tensor.shape)}, is a symmetric tensor that was freed")
    elif any(heap.find(address) is not None for heap in of_process(EndedHeaps)):
        raise RuntimeError(
            f"{name}, of shape {tuple(tensor.shape)}, is a symmetric tensor of a world that is finalized"
        )


class CpuWorld(World):
    """See :class:`~triton_dist.world.base.World`.

    A tensor holds the mapping it lies in, so it stays readable after :meth:`finalize`: the last one unmaps the heap.

    A PE that fails breaks the world for all: a PE that waits for it, now or later, gets a :class:`BrokenWorldError`.
    """

    kind = "cpu"

    def __init__(self, launch: Launch) -> None:
        self._carrier = _transport_of_all(launch)
        super().__init__(launch)
        self.device = torch.device("cpu")
        teams = MAX_TEAMS * len(Caller.__members__) * PLACE_BYTES
        first = padded(teams + CHANNEL_BYTES)  # of the memory of groups
        for_groups = group_memory_size(launch)
        self._reserved = reserved = first + for_groups
        checked = environment.get("TRITON_DIST_CHECK")
        self._transport = self._join(launch, environment.get("TRITON_DIST_SYMMETRIC_SIZE"), reserved)
        self.heap, self.control = self._transport.heap, self._transport.control
        self.host_ops = CpuHostOps(self, self._transport.collectives)
        self._allocator = FirstFit(self.heap.size, CHECKED_GAP if checked else 0, reuses_late=checked)
        self._allocator.allocate(reserved)  # at offset 0: where teams and groups meet, and the memory of groups
        self._channels = Channels(self.heap, self.pe, teams)
        self._group_places: dict[str, tuple[GroupBarrier, GroupBarrier]] = {}
        self._group_allocations: dict[int, Allocation] = {}
        begin = self.heap.base(self.pe) + first
        self.group_memory = GroupMemory(begin, first, for_groups, self.device, self.heap, self._group_memory_changed)
        self._places: dict[int, Mapping[Caller, TeamBarrier]] = {0: self._transport.barriers}
        self._free_handles = set(range(1, MAX_TEAMS))
        self._next_look = 0.0
        self._kernel_calls: dict[int, str] = {}
        self._left_barriers: dict[int, int] = {}
        """By team: the ticket of a barrier in which a kernel has ended."""
        self.turns = self._take_turns(launch)
        self.host_streams = CopyEngine(self)
        self.checking: Checking | None = None
        if checked:
            assert self.turns is not None
            self.checking = self._begin_check(launch, self.turns)
        self.recorder = None if self.checking is None else self.checking.recorder
        if not faulthandler.is_enabled():
            with suppress(Exception):  # where stderr is no file, as in notebooks
                faulthandler.enable()  # a kernel's wild address ends the PE: its stack has the line
        self._process = os.getpid()
        if launch.detector is not None:
            launch.detector.on_trouble(lambda trouble: self.control.abort(trouble.pe, trouble.what))
        atexit.register(self._on_exit)
        self.together(self.team_world, "init()")

    # ---- symmetric tensors

    @staticmethod
    def _memory_domain(member: Member) -> str:
        return (
            member.kernel_identity if environment.get("TRITON_DIST_CPU_TRANSPORT") == "shared" else member.host_identity
        )

    def _maps(self, pe: int) -> bool:
        return self.heap.maps(pe)

    def peer(self, tensor: torch.Tensor, pe: int) -> torch.Tensor:
        self.check_live()
        pe = self.check_pe(pe)
        self.check_reachable(pe)
        allocation = self._allocation_of(tensor, "the tensor")
        distance = self.heap.base(pe) - self.heap.base(self.pe)
        return elsewhere(tensor, distance, self.device, allocation.use(), self.heap)

    def check_symmetric(self, tensor: torch.Tensor, name: str = "the tensor") -> None:
        self._allocation_of(tensor, name)

    def register(self, tensor: torch.Tensor) -> torch.Tensor:
        self.check_live()
        raise RuntimeError(
            "the CPU world cannot register memory: its PEs are processes, and reach only what they map of each other,"
            " which is the symmetric heap. triton_dist.from_tensor(tensor) gives a symmetric copy, in both worlds"
        )

    def _free_bytes(self) -> int:
        return self._allocator.free

    def _allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        nbytes = math.prod(shape) * dtype.itemsize
        offset = self._allocator.allocate(nbytes)
        if offset is None:
            return None
        allocation, use = self.registry.enter(offset, padded(nbytes), shape, dtype)
        if self.recorder is not None:
            self.recorder.allocated(offset, nbytes, str(allocation))
            self._record_allocations()
        return tensor_at(self.heap.base(self.pe) + offset, shape, dtype, self.device, use, self.heap)

    def _full(self, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        size = self._allocator.size - self._reserved  # which users have not asked for
        return (
            f"the symmetric heap cannot hold {math.prod(shape) * dtype.itemsize} bytes more ({shape}, {dtype}): of its "
            f"{size} bytes {self._allocator.free} are free, at most {self._allocator.largest} in one "
            "piece; TRITON_DIST_SYMMETRIC_SIZE sets its size"
        )

    def _give_back(self, allocation: Allocation) -> None:
        self.registry.remove(allocation)
        self._allocator.release(allocation.begin)
        if self.recorder is not None:
            self.recorder.freed(allocation.begin)
            self._record_allocations()

    def _record_allocations(self) -> None:
        assert self.recorder is not None
        all_of_them = [*self.registry.all(), *self._group_allocations.values()]
        self.recorder.allocations([(allocation.begin, allocation.nbytes) for allocation in all_of_them])

    def _record_dropped(self) -> None:
        """What this PE has dropped, and has not been given back because others have not."""
        assert self.recorder is not None
        gc.collect()
        for allocation in self.registry.all_dropped():
            self.recorder.dropped(allocation.begin)

    def _begin_of(self, tensor: torch.Tensor) -> int:
        place = self._place_of(tensor, start_of(tensor))
        return -1 if place is None or place[0] != self.pe else place[1]

    def _place_of(self, tensor: torch.Tensor, address: int) -> tuple[int, int] | None:
        """The PE and the offset in its heap of an address of a tensor."""
        return self.heap.find(address) if tensor.device == self.device else None

    def _allocation_of(self, tensor: torch.Tensor, name: str) -> Allocation:
        """The allocation of this PE's that a tensor lies in."""
        what = f"{name}, of shape {tuple(tensor.shape)} on {tensor.device},"
        place = self._place_of(tensor, storage_address(tensor))
        if place is None:
            refuse_stale(name, tensor)
            raise ValueError(f"{what} is not symmetric: allocate it with triton_dist.empty, zeros, full or from_tensor")
        pe, offset = place
        if pe != self.pe:
            raise ValueError(f"{what} lies on PE {pe}: pass PE {self.pe}'s own one")
        allocation = self.allocation_at(offset)
        if allocation is None:
            raise ValueError(f"{what} is a symmetric tensor that was freed")
        return allocation

    def allocation_at(self, offset: int) -> Allocation | None:
        """The allocation, of the world or of a group of this PE, at an offset of a heap."""
        found = self.group_memory.find(self.heap.base(self.pe) + offset)
        return found[0] if found is not None else self.registry.find(offset)

    def describe(self, address: int) -> str:
        """What lies at an address, for messages."""
        place = self.heap.find(address)
        if place is None:
            return f"{address:#x} (not symmetric)"
        return self.describe_place(*place)

    def describe_place(self, pe: int, offset: int) -> str:
        """What lies at an offset of a PE's heap, for messages; at this PE's own address where that is not mapped."""
        address = self.heap.base(pe if self.heap.maps(pe) else self.pe) + offset
        allocation = self.allocation_at(offset)
        if allocation is not None and offset - allocation.begin < allocation.nbytes:
            index, rest = divmod(offset - allocation.begin, allocation.dtype.itemsize)
            inside = f"element {index}" + (f" + {rest} bytes" if rest else "")
            return f"{address:#x} ({inside} of the symmetric tensor ({allocation}) on PE {pe})"
        return f"{address:#x} (offset {offset} of PE {pe}'s heap, in no tensor)"

    # ---- doing things together

    def barrier_all(self) -> None:
        self.together(self.team_world, "barrier_all()")
        if self._transport.collectives is not None:
            self._transport.collectives.barrier(self.team_world.pes)

    def _close(self) -> None:
        try:
            if self.recorder is not None:
                self._record_dropped()
            texts = self._exchange(self.team_world, "finalize()", "finalize()")
            check_same_calls(self.team_world, [text.split("\n")[0] for text in texts])
            if self.checking is not None:
                with self.turn("the check"):
                    self.checking.finish()
        except BaseException:
            self._leave()
            raise
        self._transport.close()
        self._leave(politely=True)

    def _drop(self) -> None:
        if self.checking is not None:
            self.checking.fail("gave up its world after an error")
        self._leave()

    def _host_place(self, team: Team | HostGroup) -> TeamBarrier:
        if isinstance(team, HostGroup):
            return self._group_places[team.name][0]
        return self._places[0 if team is self.team_world else team.handle][Caller.HOST]

    def _exchange(self, team: Team | HostGroup, call: str, text: str) -> list[str]:
        with self.turn(f"PE {self.pe} cannot complete {call}"):
            place = self._host_place(team)
            ticket = place.arrive(text)
            # Short waits, so that a Ctrl-C gets through.
            self._come(team, call, lambda: place.passed(ticket), lambda: place.wait(ticket, _LOOK_SECONDS / 2))
            texts = place.said(ticket)
            if self.recorder is not None:
                self.recorder.host_leaves(tuple(team.pes))
            return texts

    def _come(self, team: Team | HostGroup, call: str, passed: Callable[[], bool], wait: Callable[[], bool]) -> None:
        """Return when all members of ``team`` have come to ``call``, as this PE has: now, or within a short time.

        An error from elsewhere, as by Ctrl-C or a handler of signals, breaks the world: this PE's next call would be
        taken for this one.
        """
        self.check_intact(call)
        if self.recorder is not None:
            self.recorder.host_arrives(call, tuple(team.pes))
        try:
            if self.turns is None:
                self.wait(wait, call, needs=team.pes)
            else:
                self._wait_in_turns(passed, call, team)
        except BrokenWorldError:
            raise
        except BaseException as error:
            self.break_world(f"was interrupted in {call} by {type(error).__name__}")
            raise

    def wait(self, done: Callable[[], bool], what: str, *, needs: Container[int]) -> None:
        """Return when ``done()`` is true; BrokenWorldError when that cannot be hoped for. ``needs``: as of trouble."""
        begin = time.monotonic()
        report_after = environment.get("TRITON_DIST_WAIT_TIMEOUT") or math.inf
        while not done():
            trouble = self.trouble(needs=needs)
            if trouble and not done():  # the others may have come, and gone, in between
                raise BrokenWorldError(f"PE {self.pe} cannot complete {what}: {trouble}")
            waits = {pe: call for pe, call in self.waiting_for_this_pe().items() if pe in needs}
            if waits and not done():
                self._give_up(f"waits in {what}, and {_listed(waits)}: they wait for each other")
            if time.monotonic() - begin > report_after:
                self._report_wait(what, report_after)
                report_after = math.inf

    def waiting_for_this_pe(self) -> Mapping[int, str]:
        """Who waits in a call of hosts, of all PEs, a team or a group, that this PE has not come to, and in which."""
        places = [of_team[Caller.HOST] for of_team in self._places.values()]
        places += [waited_in for waited_in, _ in self._group_places.values()]
        return {pe: call.split("\n")[0] for place in places for pe, call in place.ahead().items()}

    def pes_that_left(self) -> list[int]:
        """Whose programs have ended without an error; what they have not sent does not come."""
        return [pe for pe in range(self.n_pes) if self.control.state(pe) == State.LEFT]

    def _give_up(self, reason: str) -> NoReturn:
        self.break_world(reason)
        raise BrokenWorldError(f"PE {self.pe} {reason}")

    def _report_wait(self, what: str, seconds: float) -> None:
        waits = f"the host waits for other PEs in {what}"
        exit_report.say(f"PE {self.pe}: a wait has lasted for {seconds:g} s (TRITON_DIST_WAIT_TIMEOUT)\n    {waits}")
        if environment.get("TRITON_DIST_WAIT_ACTION") == "abort":
            self._give_up(f"waited for {seconds:g} s: {waits}")

    @contextmanager
    def kernel_barrier(self, team: Team, call: str) -> Iterator[Callable[[], bool]]:
        """Arrive where the kernels of a team meet for ``call``; the function given tells whether all have come.

        One user at a time. RuntimeError, when all have come, if they call different things. A kernel that ends in the
        middle has come all the same: the next one here waits first for those that this one waited for.
        """
        if team.handle in self._kernel_calls:
            raise RuntimeError(
                f"another program of this PE is already waiting for all PEs in {self._kernel_calls[team.handle]}: "
                "collectives are for one program of each PE at a time"
            )
        place = self._places[team.handle][Caller.KERNEL]
        ticket = None if team.handle in self._left_barriers else place.arrive(call)

        def passed() -> bool:
            nonlocal ticket
            if ticket is None:
                if not place.passed(self._left_barriers[team.handle]):
                    return False
                del self._left_barriers[team.handle]
                ticket = place.arrive(call)
            return place.passed(ticket)

        self._kernel_calls[team.handle] = call
        try:
            yield passed
        except BaseException:
            if ticket is not None and not place.passed(ticket):
                self._left_barriers[team.handle] = ticket
            raise
        finally:
            del self._kernel_calls[team.handle]
        assert ticket is not None
        check_same_calls(team, place.said(ticket))

    # ---- teams

    def make_team(self, parent: Team, team: Team) -> int:
        handle = agree_on_handle(parent, team, self._free_handles, MAX_TEAMS)
        if self.pe in team.pes:
            self._free_handles.remove(handle)
            self._places[handle] = {
                caller: HeapBarrier.at(
                    self.heap, self.pe, team.pes, (2 * handle + (caller == Caller.KERNEL)) * PLACE_BYTES
                )
                for caller in (Caller.HOST, Caller.KERNEL)
            }
        self.together(parent, "making a team: done")  # only now may members meet there
        return handle if self.pe in team.pes else -1

    def unmake_team(self, team: Team) -> None:
        handle = team.handle
        del self._places[handle]
        self._left_barriers.pop(handle, None)
        self._free_handles.add(handle)

    def _open_group(self, group: HostGroup) -> None:
        call = f"opening {group}"
        if group.pes == self.team_world.pes:  # else PEs that open different ones would wait for each other
            self.together(self.team_world, f"{call}, {group.name!r}")

        def wait(done: Callable[[], bool]) -> None:
            def sleep() -> bool:
                if not done():
                    time.sleep(_LOOK_SECONDS / 50)
                return done()

            self._come(group, call, done, sleep)

        with self.turn(f"PE {self.pe} cannot complete {call}"):
            self._group_places[group.name] = self._channels.open(group.name, group.pes, wait)
            if self.recorder is not None:
                self.recorder.host_leaves(tuple(group.pes))

    compares_every_call = True

    def compare_call(self, group: HostGroup, number: int, call: str, made: Callable[[int], str | None]) -> None:
        # Nobody waits here: that would order the members' accesses, and hide from the check what their kernels lack.
        place = self._group_places[group.name][1]
        ticket = place.arrive(call)
        told = zip(group.pes, place.said_by_now(ticket), strict=True)
        try:
            check_equal_calls({pe: text for pe, text in told if text is not None})
        except CallsDifferError as error:
            self.break_world(f"found that {error}")  # another member may be in its kernel, and wait there for this one
            raise
        self.check_intact(call)

    def leaves_kernels_unfinished(self, error: BaseException) -> bool:
        return ended_a_grid(error) or not isinstance(error, Exception)

    def _close_group(self, group: HostGroup) -> None:
        del self._group_places[group.name]
        self._channels.close(group.name)

    def _group_memory_changed(self, allocation: Allocation) -> None:
        if self.recorder is None:
            return
        if self._group_allocations.pop(allocation.begin, None) is not None:
            self.recorder.freed(allocation.begin)
        else:
            self._group_allocations[allocation.begin] = allocation
            self.recorder.allocated(allocation.begin, allocation.nbytes, str(allocation))
        self._record_allocations()

    # ---- how this PE joins the others

    def _join(self, launch: Launch, size: int, reserved: int) -> Transport:
        if self._carrier == "shared":
            return bootstrap.join(launch, size, reserved)
        from triton_dist.cpu.oshmem import bootstrap as oshmem  # here, since nothing else needs that library

        return oshmem.join(launch, size, reserved)

    def _begin_check(self, launch: Launch, turns: Turns) -> Checking:
        return Checking(launch, self, turns)

    # ---- one PE at a time

    def _take_turns(self, launch: Launch) -> Turns | None:
        text, checked, *_ = equal_settings(launch, _ALIKE)
        return (
            None
            if text == "round-robin" and not checked
            else Turns(launch, schedule.of(text, launch.pe), self._check_trouble)
        )

    @contextmanager
    def turn(self, failing: str | None = None) -> Iterator[None]:
        """Do something while the other PEs wait, if PEs take turns. ``failing`` begins the error of a broken world."""
        if self.turns is None:
            yield
            return
        try:
            self.turns.take()
        except BrokenWorldError as error:
            raise BrokenWorldError(f"{failing}: {error}" if failing else str(error)) from None
        try:
            yield
        finally:
            self.turns.give()

    def runs(self, index: tuple[int, int, int], grid: tuple[int, int, int]) -> bool:
        """Whether the program ``index`` of a grid is run; else it starts and ends."""
        return True

    def delays_copies(self, pe: int) -> bool:
        """Whether copies to and from ``pe`` are to arrive as late as they may: those to another host under the checker,
        where the network orders nothing, and all of them if the schedule says so."""
        if self.turns is None:
            return False
        return self.delays_updates(pe) or self.turns.schedule.delays_puts

    def delays_updates(self, pe: int) -> bool:
        """The same of signals and of atomics that fetch nothing: those to another host under the checker."""
        return self.checking is not None and not self.is_reachable(pe)

    def _wait_in_turns(self, done: Callable[[], bool], call: str, team: Team | HostGroup) -> None:
        assert self.turns is not None
        self.turns.step()  # others may have waited for this PE to come
        try:
            while not done():
                trouble = self.trouble(needs=team.pes)
                if trouble and not done():
                    raise BrokenWorldError(trouble)
                self.turns.blocked(polls=False)
        except BrokenWorldError as error:
            raise BrokenWorldError(f"PE {self.pe} cannot complete {call}: {error}") from None
        except DeadlockError as deadlock:
            if self.checking is not None:
                self.checking.recorder.host_stuck(call, tuple(team.pes))
                self.checking.give_up(first=deadlock.first)
            reason = f"waits in {call}, which not all PEs have entered, and no PE can go on"
            self.break_world(reason)
            raise BrokenWorldError(f"PE {self.pe} {reason}") from None

    def _check_trouble(self) -> None:
        trouble = self.trouble()
        if trouble is not None:
            raise BrokenWorldError(trouble)

    # ---- when a PE fails

    def trouble(self, *, needs: Container[int] = ()) -> str | None:
        """Why waiting is in vain, if it is: the world is broken, or one of the PEs that it ``needs`` has left it.

        Cheap enough for a waiting loop: processes are looked at every now and then only.
        """
        now = time.monotonic()
        if self.control.aborted() is None and now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            for pe in range(self.n_pes):
                state = self.control.state(pe)
                if state == State.LOST:
                    pid = self.control.pid(pe)
                    self.control.abort(pe, f"is lost: its process {pid} was killed, crashed or just ended")
                elif state == State.LEFT and pe in needs and self.control.aborted() is None:
                    # a PE that fails says so before it leaves, which may be since this function began
                    self._end_if_reported()
                    return f"PE {pe} has left the world"
        return self._why_broken()

    def check_intact(self, what: str) -> None:
        """BrokenWorldError if a PE has failed: a call would be taken for another one of the others, whose order is
        lost, also if it need not wait for them. A PE by itself may go on."""
        why = self._why_broken() if self.n_pes > 1 else None
        if why is not None:
            raise BrokenWorldError(f"PE {self.pe} cannot complete {what}: {why}")

    def _why_broken(self) -> str | None:
        broken = self.control.aborted()
        if broken is None:
            return None
        self._end_if_reported()
        return f"PE {broken[0]} {broken[1]}"

    def _end_if_reported(self) -> None:
        """In a checked run the PE that finds something reports it; the others have nothing to add."""
        if self.checking is not None and self.checking.has_reported:
            raise SystemExit(1)

    def break_world(self, reason: str) -> None:
        """Break the world; the others' waits end with ``PE <this one> <reason>``. Only the first failure counts."""
        if self.checking is not None and self.control.aborted() is None:
            self.checking.fail(reason)
        if self._launch.detector is not None:
            self._launch.detector.fail(reason)
        self.control.abort(self.pe, reason)  # now, so that no call of this PE begins after its error

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
        of_process(EndedHeaps).add(self.heap)
        self.control.leave(self.pe)
        atexit.unregister(self._on_exit)


def _listed(calls: Mapping[int, str]) -> str:
    return ", ".join(f"PE {pe} in {call}" for pe, call in calls.items())


def _transport_of_all(launch: Launch) -> str:
    """The transport that ``TRITON_DIST_CPU_TRANSPORT`` names. *Collective.*

    Raises:
        RuntimeError: PEs name different ones, or it cannot do what other variables ask for.
    """
    asked: str = environment.get("TRITON_DIST_CPU_TRANSPORT")
    for pe, theirs in enumerate(launch.exchange("CPU transport", asked)):
        if theirs != asked:
            raise RuntimeError(
                f"TRITON_DIST_CPU_TRANSPORT is {asked} on PE {launch.pe} and {theirs} on PE {pe}: set it alike on all"
                " PEs"
            )
    if asked != "shared":
        for name, usual in (("TRITON_DIST_CHECK", False), ("TRITON_DIST_SCHEDULE", "round-robin")):
            if environment.get(name) != usual:
                raise RuntimeError(
                    f"{name} needs TRITON_DIST_CPU_TRANSPORT=shared: PEs that take turns share memory, and"
                    f" TRITON_DIST_CPU_TRANSPORT is {asked}"
                )
    return asked
