"""What a world is, whatever carries it: the contract between the public API and the CPU and GPU worlds.

A world is N processing elements (PEs), one process each, and a symmetric heap: an allocation made by all PEs in the
same order, which each PE can name on every other. Nothing here knows how a heap is mapped or how PEs found each other.
"""

from __future__ import annotations

import gc
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Protocol, TypeVar

import torch

from triton_dist import environment
from triton_dist.bootstrap import exit_report
from triton_dist.bootstrap.launch import Launch
from triton_dist.bootstrap.rendezvous import Member
from triton_dist.native_calls import Guard
from triton_dist.world.allocations import Allocation, AllocationRegistry
from triton_dist.world.gpus import Gpu
from triton_dist.world.groups import ALIGNMENT, GroupMemory, HostGroup
from triton_dist.world.host_ops import HostOps
from triton_dist.world.host_streams import HostStreams
from triton_dist.world.hosts import Host, find_hosts
from triton_dist.world.integers import integer
from triton_dist.world.not_copied import NotCopied
from triton_dist.world.raw_tensor import start_of
from triton_dist.world.teams import Team, as_range

__all__ = ["World", "check_same_calls", "group_memory_size"]

RANK_SECONDS = 300.0  # for the members of a process group to use it for the first time

_TEXT_BYTES = 480
"""What PEs can tell each other at a time; the CPU world's control block takes 511 bytes."""


class Owned(Protocol):
    """A resource of which a world owns at most one instance: see :meth:`World.own`."""

    def __init__(self, world: World) -> None: ...

    def close(self) -> None: ...


_Owned = TypeVar("_Owned", bound=Owned)


class World(NotCopied, ABC):
    """The PEs of this run and their symmetric heap. Made by :func:`triton_dist.init`, ended by :meth:`finalize`.

    Methods marked *collective* must be called by every PE, in the same order. A world is a context manager: leaving the
    block finalises it, and leaving it by an exception aborts it, because the other PEs may be anywhere.
    """

    kind: str
    """"cpu" or "gpu"."""

    pe: int
    """This process's number, from 0 to ``n_pes - 1``."""

    n_pes: int
    """How many PEs the world has."""

    device: torch.device
    """Where this PE's symmetric tensors live and its kernels run."""

    gpu: Gpu
    """What the GPUs of all PEs have, with the name of this PE's, for which kernels are cut; in a GPU world."""

    finalized: bool = False
    """Whether the world has ended."""

    forked: bool = False
    """Whether this process is a child of the PE, by ``fork()``: here the world has ended, and gives nothing back."""

    aborted: bool = False
    """Whether it has ended by :meth:`abort`: kernels of this PE may wait for ever, so nothing may wait for them."""

    team_world: Team
    """The team of all PEs."""

    teams: dict[int, Team]
    """This PE's teams, by their handles."""

    host_ops: HostOps
    """The operations that hosts start; see :mod:`triton_dist.world.host_ops`."""

    group_memory: GroupMemory
    """The symmetric memory that groups of some PEs allocate."""
    host_streams: HostStreams | None = None
    """What stands for streams where there is no GPU."""
    shares_gpu = False
    """Whether any two PEs share a GPU. Copies between these are kernels, which need multiprocessors."""

    def __init__(self, launch: Launch) -> None:
        self.pe = launch.pe
        self.n_pes = launch.n_pes
        self._launch = launch
        self.registry = AllocationRegistry()
        self.team_world = Team(self, "world", 0, range(launch.n_pes))
        self.teams = {0: self.team_world}
        self._owned: dict[type, Any] = {}
        self._owning = threading.RLock()
        self._told_rank = False
        self._hosts = find_hosts(launch, self._memory_domain)
        self._team_shared: Team | None = None

    def own(self, kind: type[_Owned]) -> _Owned:
        """This world's ``kind``. The first call creates it as ``kind(world)``; the world closes it at its end.

        Any thread may call this.
        """
        found = self._owned.get(kind)
        if found is None:
            with self._owning:
                if kind not in self._owned:
                    self._owned[kind] = kind(self)
                found = self._owned[kind]
        return found  # type: ignore[no-any-return]

    # ---- hosts

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts of the PEs, in the order of their first PEs; pretended ones under ``TRITON_DIST_TOPOLOGY``."""
        return self._hosts.all

    def is_reachable(self, pe: int) -> bool:
        """Whether this PE's loads and stores reach the symmetric memory of ``pe``: ``shmem_ptr`` is not null.

        Raises:
            ValueError, TypeError: as of :meth:`check_pe`. RuntimeError: the world is finalized.
        """
        self.check_live()
        return self._reaches(self.check_pe(pe))

    def _reaches(self, pe: int) -> bool:
        near = not self._hosts.pretended or pe in self._hosts.of(self.pe).pes
        return near and self._maps(pe)

    def check_reachable(self, pe: int) -> None:
        """RuntimeError if this PE's loads and stores do not reach ``pe``."""
        if not self.is_reachable(pe):
            raise RuntimeError(
                f"PE {self.pe} on host {self._hosts.of(self.pe)} cannot reach the memory of PE {pe} on host"
                f" {self._hosts.of(pe)} by load and store: it can be put to and got from, and take part in signals,"
                " atomics and collectives"
            )

    def team_shared(self) -> Team:
        """The team of the PEs of this PE's host. *Collective* over the world. See :func:`triton_dist.team_shared`."""
        self.check_live()
        if len(self.hosts) == 1:
            return self.team_world
        if self._team_shared is None:
            parts = []
            for host in self.hosts:
                if (part := as_range(host.pes)) is None:
                    raise ValueError(
                        f"host {host} has PEs {', '.join(map(str, host.pes))}, and a team has its PEs at equal"
                        " distances: number the PEs host by host"
                    )
                parts.append(part)
            self._team_shared = self.team_world.split_predefined("team_shared()", parts)
        return self._team_shared

    @staticmethod
    def _memory_domain(member: Member) -> str:
        """What PEs that share memory have in common."""
        return member.host_identity

    def _maps(self, pe: int) -> bool:
        """Whether the heap of ``pe`` is mapped here."""
        return True

    # ---- symmetric tensors

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous symmetric tensor with unspecified contents, aligned to at least 16 bytes. *Collective.*

        Raises:
            RuntimeError: PEs ask for different shapes or dtypes; the message holds both. MemoryError: the heap is full;
                the message holds what was asked for, what is free and the variable that sets the size.
        """
        call = f"empty({tuple(shape)}, {dtype})"
        self.together(self.team_world, call)
        tensor = self._allocate(tuple(shape), dtype)
        if tensor is None:
            gc.collect()  # tensors in cycles of references are still there
            while tensor is None and self._collect_again(call):
                tensor = self._allocate(tuple(shape), dtype)
        if tensor is None:
            raise MemoryError(self._full(tuple(shape), dtype))
        return tensor

    def clear(self, tensor: torch.Tensor) -> None:
        """Fill a new tensor of :meth:`empty` with zeros."""
        tensor.zero_()

    def free(self, tensor: torch.Tensor) -> None:
        """Give an allocation of :meth:`empty` back. Neither it nor a view of it may be used again. *Collective.*

        Raises:
            ValueError: ``tensor`` does not start an allocation of this world's heap.
        """
        allocation = None if self.finalized else self.registry.started_by(self._begin_of(tensor))
        # What cannot be freed here is announced, too: the other PEs must not wait for a call that never comes.
        call = f"free(tensor {allocation.number}: {allocation})" if allocation else "free(no allocation)"
        self.finish_work()
        self.together(self.team_world, call)
        if allocation is None:
            raise ValueError(
                "this tensor does not start an allocation of the symmetric heap, or it was freed before: free takes"
                " what empty, zeros, full or from_tensor returned, once"
            )
        if allocation in self.registry:
            self._give_back(allocation)

    @abstractmethod
    def peer(self, tensor: torch.Tensor, pe: int) -> torch.Tensor:
        """``tensor``, a symmetric tensor or a view of one, as it lies on ``pe``: same shape, strides and dtype.

        Raises:
            ValueError: ``tensor`` is not in the symmetric heap, was freed, or there is no such ``pe``.
        """

    def place_of(self, tensor: torch.Tensor) -> str:
        """Where a symmetric tensor begins, in words that are the same on all PEs."""
        begin, group, owner = self._begin_of(tensor), self.group_memory.find(start_of(tensor)), ""
        allocation = self.registry.find(begin)
        if group is not None:
            allocation, owner = group[0], f" of {group[1]}"
        if allocation is None:
            return "in another library's part of the heap"
        return f"from byte {begin - allocation.begin} of tensor {allocation.number}{owner}"

    @abstractmethod
    def check_symmetric(self, tensor: torch.Tensor, name: str = "the tensor") -> None:
        """ValueError if ``tensor``, the argument ``name``, is not this PE's own symmetric memory, or was freed."""

    @abstractmethod
    def register(self, tensor: torch.Tensor) -> torch.Tensor:
        """A symmetric tensor on the memory of ``tensor``. *Collective.* See :func:`triton_dist.register_tensor`."""

    @property
    def heap_free(self) -> int:
        """Bytes of the symmetric heap that are not allocated. Dropped tensors count until they are collected.

        Raises:
            RuntimeError: the world is finalized.
        """
        self.check_live()
        return self._free_bytes()

    @abstractmethod
    def _free_bytes(self) -> int: ...

    def collect(self) -> int:
        """Give back what was dropped on all PEs; how many tensors that was. *Collective.*

        Other collective calls that the hosts make do so, too: this is for those who want it now, and runs Python's
        garbage collector first.
        """
        gc.collect()
        before = len(self.registry)
        self.together(self.team_world, "collect()")
        return before - len(self.registry)

    def _collect_again(self, call: str) -> bool:
        """Whether something more could be given back. All PEs find the same."""
        before = len(self.registry)
        self.together(self.team_world, f"{call}, when memory is full")
        return len(self.registry) < before

    @abstractmethod
    def _allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """A tensor, entered in the registry; None when the heap is too full. Called by all PEs at the same time."""

    @abstractmethod
    def _full(self, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        """What to say when the heap cannot hold such a tensor."""

    @abstractmethod
    def _begin_of(self, tensor: torch.Tensor) -> int:
        """Where ``tensor`` begins, as the registry numbers places; -1 if it is not of this PE's heap."""

    @abstractmethod
    def _give_back(self, allocation: Allocation) -> None:
        """End an allocation. Called by all PEs at the same time, when no device works on it any more."""

    def finish_work(self) -> None:
        """Wait until this PE's device has done all that was started."""

    # ---- groups of some PEs

    def open_group(self, pes: range, name: str) -> HostGroup:
        """A group of these PEs, in which their hosts act :meth:`together`. *Collective* over its members.

        Args:
            name: the same on all members, and no other group's of this world; of 8 to 127 bytes.

        Raises:
            RuntimeError: this PE has as many groups as it may.
        """
        self.check_live()
        group = HostGroup(name, pes)
        self._open_group(group)
        self.together(group, f"opening {group}")
        return group

    def close_group(self, group: HostGroup) -> None:
        """End a group, and give back what it has allocated. *Collective* over its members."""
        self.finish_work()
        self.together(group, f"closing {group}")
        self.group_memory.release(group)
        self._close_group(group)

    def empty_in(self, group: HostGroup, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """As :meth:`empty`, for the members of a group alone, from :attr:`group_memory`. *Collective* over them.

        The memory is given back when all members have dropped the tensor, at a later allocation, or with the group.
        """
        return self.group_memory.allocate(self.together, self.finish_work, group, shape, dtype)

    def pes_of_ranks(self, rank: int, ranks: Sequence[int]) -> list[int]:
        """The PEs that are these ranks of ``torch.distributed``, of which this PE is ``rank``. *Collective* over them.

        Raises:
            ValueError: a rank is no PE of this world, as far as one can tell: it did not come in time.
        """
        if self._launch.store is None:
            return [self.pe] * len(ranks)
        self.check_live()
        if not self._told_rank:
            self._launch.store.set(f"PE of rank/{rank}", str(self.pe))
            self._told_rank = True
        keys = [f"PE of rank/{other}" for other in ranks]
        try:
            self._launch.await_keys(keys, f"find the PEs of ranks {', '.join(map(str, ranks))}", RANK_SECONDS)
        except TimeoutError:
            missing = [
                str(other) for other, key in zip(ranks, keys, strict=True) if not self._launch.store.check([key])
            ]
            raise ValueError(
                f"the group of ranks {', '.join(map(str, ranks))}: rank {', '.join(missing)} did not come within"
                f" {RANK_SECONDS:g} s, or is no PE of this world. All members call a function with a group, and all"
                " must be PEs of the world"
            ) from None
        return [self.check_pe(int(found)) for found in self._launch.store.get_all(keys)]

    def repeats_launches(self) -> bool:
        """Whether a kernel that is launched now, in this context, is the one that was launched before with equal
        arguments, and on this PE's device."""
        return False

    def guards_of_repeats(self) -> Sequence[Guard]:
        """What :meth:`repeats_launches` and :meth:`check_live` ask, as data; empty if launches are never repeated."""
        return ()

    @staticmethod
    def is_internal_file(file: str) -> bool:
        """Whether a file's lines are never the user's, where a launch is looked for in the stack."""
        return False

    def launcher_of_repeats(self, launcher: Any, symmetric: Sequence[bool], depth: int) -> Any:
        """What launches a kernel again as ``launcher``, one of Triton's with our checks in front, has launched it.

        Args:
            symmetric: which of the kernel's first arguments are known to be symmetric, and not freed, at each launch.
                All others of its arguments are those of the launch that has passed the checks.
            depth: how many frames of this package there are above the launcher's.
        """
        return launcher

    compares_every_call = False
    """Whether :meth:`compare_call` costs so little that it is for every call, and not only for new ones."""

    def leaves_kernels_unfinished(self, error: BaseException) -> bool:
        """Whether ``error`` may have ended a kernel in its middle, in a world that goes on after it."""
        return False

    def break_world(self, reason: str) -> None:
        """Break the world; the others' waits end with ``PE <this one> <reason>``. Only the first failure counts.

        Only where :meth:`leaves_kernels_unfinished` can be true.
        """
        raise NotImplementedError

    @abstractmethod
    def compare_call(self, group: HostGroup, number: int, call: str, made: Callable[[int], str | None]) -> None:
        """Check that call ``number`` of each member of ``group`` is ``call``, as far as they have come to it.

        Args:
            made: this PE's call of a number, None if it has not come to it yet. Any thread may call it.

        Raises:
            RuntimeError: a member's call is another one; the message has both.
        """

    def _open_group(self, group: HostGroup) -> None:
        """Prepare that the hosts of a group meet."""

    def _close_group(self, group: HostGroup) -> None:
        """Undo :meth:`_open_group`."""

    # ---- doing things together

    @abstractmethod
    def barrier_all(self) -> None:
        """Wait until every PE is here and the work that each had started on its device is complete. *Collective.*"""

    def together(self, team: Team | HostGroup, call: str, value: str = "") -> list[str]:
        """Meet the other members of ``team`` in ``call``; what each passed as ``value``, in the team's order.

        *Collective* over the team. Where all PEs meet, what they have all dropped is given back.

        Raises:
            RuntimeError: members call different things; the message has what each called. Or the world is finalized.
        """
        self.check_live()
        of_all = team is self.team_world
        dropped = self.registry.dropped(_TEXT_BYTES - len(call) - len(value)) if of_all else ""
        texts = self._exchange(team, call, "\n".join((call, value, dropped)))
        calls, values, drops = zip(*((*text.split("\n"), "", "")[:3] for text in texts), strict=True)
        check_same_calls(team, calls)
        if of_all and (unused := self.registry.unused(drops)):
            self.finish_work()
            for allocation in unused:
                self._give_back(allocation)
        return list(values)

    @abstractmethod
    def _exchange(self, team: Team | HostGroup, call: str, text: str) -> list[str]:
        """What each member of the team says, in the team's order; ``call`` is for messages. *Collective* over it."""

    @abstractmethod
    def make_team(self, parent: Team, team: Team) -> int:
        """The handle of the new ``team``, some PEs of ``parent``; -1 on the others. *Collective* over ``parent``.

        Raises:
            RuntimeError: there are as many teams as there can be.
        """

    @abstractmethod
    def unmake_team(self, team: Team) -> None:
        """Its handle may be used for another team from now on. *Collective* over the team."""

    def finalize(self) -> None:
        """End the world: its heap is gone afterwards. *Collective*; a second call does nothing."""
        if not self.finalized:
            self.finalized = True
            try:
                with self._closing():
                    self._close()
            except BaseException as error:
                if self._launch.detector is not None:
                    self._launch.detector.fail(exit_report.of(error))
                raise
            if self._launch.detector is not None:
                self._launch.detector.end()

    def abort(self, why: str = "gave up its world") -> None:
        """End the world on this PE alone, after an error, without a wait. The others, told ``why``, must end, too."""
        if not self.finalized:
            self.finalized = self.aborted = True
            if self._launch.detector is not None:
                self._launch.detector.fail(why)
            with self._closing():
                self._drop()

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Close the owned resources at the end of the block, also after an error."""
        with ExitStack() as stack:
            for thing in self._owned.values():
                stack.callback(thing.close)
            yield
        self._owned.clear()

    @abstractmethod
    def _close(self) -> None:
        """Wait for the other PEs, then give everything back. Called once, by :meth:`finalize`."""

    def _drop(self) -> None:
        """Let go of what can be let go without waiting for other PEs. Called once, by :meth:`abort`."""

    def check_live(self) -> None:
        """RuntimeError if the world has ended."""
        if self.finalized:
            raise RuntimeError(
                f"this process was forked from PE {self.pe}, whose world a child has no part in: start processes before"
                " triton_dist.init(), or by the method spawn"
                if self.forked
                else "this world is finalized"
            )

    def check_pe(self, pe: int) -> int:
        """``pe`` as an int, if there is such a PE.

        Raises:
            ValueError: there is not. TypeError: ``pe`` is no integer.
        """
        pe = integer("pe", pe)
        if not 0 <= pe < self.n_pes:
            raise ValueError(f"pe {pe} is out of range [0, {self.n_pes})")
        return pe

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.finalize()
        else:
            self.abort(exit_report.of(error))

    def __repr__(self) -> str:
        return f"<{self.kind} world: PE {self.pe} of {self.n_pes} on {self.device}>"


def check_same_calls(team: Team | HostGroup, calls: Sequence[str]) -> None:
    """RuntimeError if the members of a team call different things."""
    if len(set(calls)) > 1:
        listed = "; ".join(f"PE {pe}: {theirs}" for pe, theirs in zip(team.pes, calls, strict=True))
        raise RuntimeError(f"the PEs call different collectives: {listed}")


def group_memory_size(launch: Launch) -> int:
    """Bytes of each PE's memory of groups; none in a world of one PE, whose only group is the world. *Collective.*

    Raises:
        RuntimeError: PEs have different sizes.
    """
    if launch.n_pes == 1:
        return 0
    sizes = launch.exchange("group memory", str(environment.get("TRITON_DIST_GROUP_MEMORY")))
    for pe, size in enumerate(sizes):
        if size != sizes[0]:
            raise RuntimeError(
                f"TRITON_DIST_GROUP_MEMORY is {sizes[0]} bytes on PE 0 and {size} on PE {pe}: set it alike on all PEs"
            )
    return int(sizes[0]) // ALIGNMENT * ALIGNMENT
