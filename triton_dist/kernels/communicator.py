"""Communicators: who takes part in a call of this package, and what these PEs keep between their calls.

Every function takes ``group=``: None for all PEs of the world, a ``triton_dist.Team``, a ``ProcessGroup``, a
``DeviceMesh`` of one dimension, or a :class:`Communicator`. A group has an implicit communicator; more of them are made
so that calls of one group may overlap.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from triton_dist.kernels.choice.agreement import agreed_tables
from triton_dist.kernels.choice.tables import Table
from triton_dist.kernels.cuda import check, driver
from triton_dist.kernels.grid import Grid, grid_of
from triton_dist.kernels.protocols.members import Members
from triton_dist.native_calls import Guard
from triton_dist.torch_api import stream_handles
from triton_dist.world import World
from triton_dist.world.calls import CallsDifferError
from triton_dist.world.current import current_world
from triton_dist.world.groups import HostGroup
from triton_dist.world.integers import integer
from triton_dist.world.not_copied import NotCopied
from triton_dist.world.shapes import checked_dtype, checked_shape
from triton_dist.world.teams import Team, pes_of_group

__all__ = [
    "Communicator",
    "calling",
    "communicator_named",
    "communicator_of",
    "communicator_of_this_pe",
    "is_communicator_of",
]


class Owned(Protocol):
    """A resource of which a communicator owns at most one instance: see :meth:`Communicator.own`."""

    def __init__(self, communicator: Communicator) -> None: ...

    def close(self) -> None: ...


_Owned = TypeVar("_Owned", bound=Owned)


class _Failure(NamedTuple):
    """A call that ended in an error on this PE, when others may have made it."""

    call: str
    error: str
    in_a_kernel: bool
    """Whether what it exchanges is left as it was in the middle."""


class _Call:
    """Context of a call that has begun; one for all calls of a communicator."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    def __enter__(self) -> Communicator:
        return self._communicator

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        communicator = self._communicator  # as end() does, without a call: every prepared launch comes here
        communicator._depth -= 1
        if error is not None:
            communicator._remember(error)
        communicator._calls.release()


class Communicator(NotCopied):
    """The members of a group, and the workspace and plans of their calls. *Collective* over the group to make.

    Communicators share nothing, so calls with different ones may run at the same time, on different streams, also of
    one group or of groups that overlap. Calls with the same one run one after the other.

    Args:
        group: as ``group`` of every function of this package; of a communicator, its members are taken.

    Raises:
        TypeError: ``group`` is none. ValueError: this PE is not in it, its members are not at equal distances, or a
            member is no PE of the world. RuntimeError: there is no world; the members' hosts have different numbers of
            them.
    """

    def __init__(self, group: Any = None) -> None:
        world = current_world()
        communicators = world.own(_Communicators)
        pes = _pes_of(world, group)
        communicators.made[pes] += 1
        name = f"communicator {pes.start}:{pes.step}:{len(pes)}/{communicators.made[pes]}"
        self._open(world, pes, name, group)
        communicators.known[self] = communicators.named[name] = self

    def _open(self, world: World, pes: range, name: str, group: Any, parent: Communicator | None = None) -> None:
        self._parent = parent
        self.name = name
        """The same on all members, and no other communicator's of this world."""
        self.group = world.team_world if group is None else group
        """What the communicator was made of."""
        self.world = world
        self.pes = pes
        """The members, by their numbers in the world, in the order of their ranks."""
        self.members = Members(pes.start, pes.step, len(pes))
        """The same as a constant of kernels."""
        self.grid: Grid = grid_of(world, pes)
        """The same by hosts."""
        self.n_pes = len(pes)
        """How many members there are."""
        self.my_rank = pes.index(world.pe)
        """This PE's number among the members."""
        self._owned: dict[type, Any] = {}
        self._closed = False
        self.in_call = _Call(self)
        self._calls = threading.RLock()
        self._depth = 0
        self._stream: torch.cuda.Stream | None = None
        self._handle = -1
        """Of the stream of the last call. This, ``_depth`` and ``_made`` are read by native_calls/Table.cpp."""
        self._on_gpu = world.kind == "gpu"
        self.current_stream = stream_handles(world.device.index) if self._on_gpu else int
        """Returns the handle of the current stream."""
        self._hosts = world.open_group(pes, name)
        empty = Table("", self.n_pes)
        agrees = (parent or self).exchange
        self.tables = agreed_tables(self.n_pes, agrees) if self._on_gpu else (empty, empty)
        """Measured times, of this host and of the package, by which algorithms are chosen; the same on all members."""
        self._compares_every_call = world.compares_every_call
        self.described: tuple[str, ...] = ()
        """What is compared of a call beside what its function compares; see :meth:`describing`."""
        self._made = 0
        self._made_before = 0
        """When the call began that other calls may be in."""
        self._failure: _Failure | None = None
        self._last: list[tuple[Any, ...]] = [()] * _REMEMBERED
        self._equal: dict[tuple[Any, ...], None] = {}

    def own(self, kind: type[_Owned]) -> _Owned:
        """This communicator's ``kind``. The first call creates it as ``kind(self)``; :meth:`close` closes it."""
        found = self._owned.get(kind)
        if found is None:
            found = self._owned[kind] = kind(self)
        return found

    @property
    def within_host(self) -> Communicator:
        """A communicator of the members on this PE's host, for parts of this one's calls. *Collective* the first time.

        It ends with this one. Its memory is allocated by all members of this one, as theirs is: so all hosts make the
        same calls with it, of the same shapes.
        """
        return self.own(_WithinHost).communicator

    @property
    def workspace_bytes(self) -> int:
        """Bytes of symmetric memory that calls of this communicator keep on this PE."""
        return sum(getattr(owned, "nbytes", 0) for owned in self._owned.values())

    def close(self) -> None:
        """Give the workspace back. *Collective* over the group; a second call does nothing.

        Graphs that were captured with this communicator must not be replayed any more. An implicit communicator lives
        as long as its world, which closes those that are left.
        """
        if self._closed or self.world.finalized:
            return
        communicators = self.world.own(_Communicators)
        if communicators.known.get(self) is not self:
            raise ValueError(f"{self} is implicit: it ends with the world")
        del communicators.known[self], communicators.named[self.name]
        within = self._owned.get(_WithinHost)
        self._drop()
        if within is not None:
            del communicators.known[within.communicator]
            self.world.close_group(within.communicator._hosts)
        self.world.close_group(self._hosts)

    def _drop(self) -> None:
        self._closed = True
        for owned in self._owned.values():
            owned.close()
        self._owned.clear()

    def check_live(self) -> None:
        """RuntimeError if the communicator was closed, which the end of its world does, too."""
        if self._closed:
            raise RuntimeError(f"{self} was closed")

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:  # else the other members may be anywhere
            self.close()

    def __repr__(self) -> str:
        return f"<communicator of {HostGroup('', self.pes)!r}>".replace("the group of ", "")

    # ---- memory and hosts

    def empty(self, *shape: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
        """A tensor that is symmetric on the members, with unspecified contents. *Collective* over the group.

        Arguments as of :func:`triton_dist.empty`.

        Raises:
            RuntimeError: the communicator is closed. TypeError, ValueError: the shape or dtype is none.
        """
        self.check_live()
        sizes, dtype = checked_shape(shape), checked_dtype(dtype)
        if self._parent is not None:
            return self._parent.empty(sizes, dtype=dtype)
        if self.n_pes == self.world.n_pes:
            return self.world.empty(sizes, dtype)
        return self.world.empty_in(self._hosts, sizes, dtype)

    def zeros(self, *shape: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
        """As :meth:`empty`, filled with zeros."""
        tensor = self.empty(*shape, dtype=dtype)
        self.world.clear(tensor)
        self.barrier()  # so that no peer sees what the memory held before
        return tensor

    def barrier(self) -> None:
        """Wait until all members are here and the work each had started on its device is complete. *Collective.*"""
        self.check_live()
        self.world.finish_work()
        self.world.together(self._hosts, "barrier()")

    def exchange(self, call: str, value: str) -> list[str]:
        """What each member's host passes as ``value``, a line of up to 300 characters, in the order of ranks.
        *Collective.*"""
        self.check_live()
        return [value] if self.n_pes == 1 else self.world.together(self._hosts, call, value)

    def peer(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """``tensor``, which is symmetric on the members, as it lies on the member ``rank``.

        Raises:
            ValueError: there is no such member, or the tensor is not symmetric. TypeError: ``rank`` is no integer.
        """
        rank = integer("rank", rank)
        if not 0 <= rank < self.n_pes:
            raise ValueError(f"rank {rank} is out of range [0, {self.n_pes}) of {self}")
        return self.world.peer(tensor, self.pes[rank])

    def check_one_host(self, function: str) -> None:
        """RuntimeError if members do not reach each other by load and store, as ``function`` needs."""
        if self.grid.hosts > 1:
            far = next(pe for pe in self.pes if not self.world.is_reachable(pe))
            try:
                self.world.check_reachable(far)
            except RuntimeError as error:
                raise RuntimeError(
                    f"{function}: {error}; {function} loads and stores at peers: pass group=triton_dist.team_shared(),"
                    " or another group of one host"
                ) from None

    # ---- calls

    def begin(self, function: str, *, between_hosts: bool = False) -> None:
        """A call begins; another may begin within it, in this thread.

        Args:
            between_hosts: whether members on several hosts can make it.
        """
        if not between_hosts and self.grid.hosts > 1:
            self.check_one_host(function)
        if not self._calls.acquire(False):
            raise RuntimeError(
                f"{function}: another thread is in a call of {self}, whose calls run one after the other: make a"
                " triton_dist.kernels.Communicator for each thread"
            )
        self._depth += 1
        if self._depth == 1:
            self._made_before = self._made
            try:
                if self._failure is not None:
                    self._go_on_after(self._failure, function)
                if self._on_gpu:
                    handle = self.current_stream()
                    if handle != self._handle:
                        self._change_stream(function, handle)
            except BaseException:
                self.end()
                raise

    def end(self) -> None:
        """The call that began last has ended."""
        self._depth -= 1
        self._calls.release()

    def _remember(self, error: BaseException) -> None:
        """A call of this PE has ended in an error. The others may have made it if it was compared, and if the error is
        none that all of them have."""
        if self._made == self._made_before:
            return
        in_a_kernel = self.world.leaves_kernels_unfinished(error)
        if isinstance(error, (CallsDifferError, MemoryError)) and not in_a_kernel:
            return
        if self._failure is None and (in_a_kernel or self.n_pes > 1):
            call = self._last[self._made % _REMEMBERED]
            self._failure = _Failure(_text(call), f"{type(error).__name__}: {error}", in_a_kernel)
            self._handle = -1  # so that prepared calls, too, come to begin()

    def _go_on_after(self, failure: _Failure, function: str) -> None:
        """The first call after one that failed here begins with a barrier of the members' hosts. Those whose call did
        not fail do not come to it, and are waited for."""
        if failure.in_a_kernel:
            text = (
                f"{function}: an earlier call of {self} failed in the middle of what its members exchange. No other can"
                " follow, and this one has ended the world, since others may wait for it: behind such an error go on"
                " with another triton_dist.kernels.Communicator, or end the program. The call was"
                f" {failure.call}, and the error was {failure.error}"
            )
            self.world.break_world(f"cannot go on. {text}")  # others may wait for this one, in either call
            raise RuntimeError(text)
        self.exchange(f"{function}, the first call of {self} after one that failed", "")
        self._failure = None
        if self._stream is not None:
            self._handle = self._stream.cuda_stream

    def stream_handle(self) -> int:
        """The handle of the current stream, on which the call that began last works."""
        return self._handle if self._depth == 1 else self.current_stream()

    @contextmanager
    def describing(self, *what: str) -> Iterator[None]:
        """Calls made inside are compared by this, too: by what a caller has made of its arguments, where the members'
        may look alike and be others, as tensors whose dimensions were moved."""
        self.described = what
        try:
            yield
        finally:
            self.described = ()

    def compare(self, *call: Any) -> None:
        """Check that all members make this call: a function's name, shapes, dtypes and what else must be equal.

        In the CPU world every call is compared, with those of members that have come to it. On GPUs a call that these
        members have not made before is, with all others', for which this one waits.

        Raises:
            RuntimeError: a member's call differs; the message has every member's.
        """
        self._made += 1
        if self.described:
            call = (*call, *self.described)
        self._last[self._made % _REMEMBERED] = call
        if self.n_pes == 1:
            return
        if self._compares_every_call:
            self.world.compare_call(self._hosts, self._made, _text(call), self._call_made)
            return
        if call not in self._equal:
            self.world.compare_call(self._hosts, self._made, _text(call), self._call_made)
            if len(self._equal) == _EQUAL_CALLS:
                del self._equal[next(iter(self._equal))]  # the oldest, which is the same on all members
            self._equal[call] = None

    def _call_made(self, number: int) -> str | None:
        if number > self._made:
            return None
        if number <= self._made - _REMEMBERED:
            return f"call {number}, which has ended long ago"
        return _text(self._last[number % _REMEMBERED])

    def _change_stream(self, function: str, handle: int) -> None:
        """Order this call after the work of the last one, which was put on another stream."""
        stream, last = torch.cuda.current_stream(self.world.device), self._stream
        if last is not None:
            here, there = _capture(stream), _capture(last)
            if here == there:  # both direct, or parts of one capture
                stream.wait_event(last.record_event())
            elif there is not None:
                raise RuntimeError(
                    f"{function}: a CUDA graph that is being captured on another stream holds calls of {self}: end that"
                    " capture first, or make another triton_dist.kernels.Communicator for one of them"
                )
            elif not _is_idle(last):
                raise RuntimeError(
                    f"{function}: a CUDA graph is captured, and earlier work of {self} on another stream has not ended:"
                    " synchronize that stream before the capture, or capture with another"
                    " triton_dist.kernels.Communicator"
                )
        self._stream, self._handle = stream, handle


_REMEMBERED = 64  # calls that a member can name when it is asked
_EQUAL_CALLS = 4096  # that are not compared again


def _text(call: tuple[Any, ...]) -> str:
    function, *arguments = call
    return f"{function}({', '.join(str(tuple(x)) if isinstance(x, torch.Size) else str(x) for x in arguments)})"


class _WithinHost:
    """The communicator of one communicator's members on this PE's host."""

    def __init__(self, parent: Communicator) -> None:
        grid, world = parent.grid, parent.world
        host, _ = grid.place_of(parent.my_rank)
        pes = (
            parent.pes[host * grid.per_host :][: grid.per_host] if grid.is_by_hosts else parent.pes[host :: grid.hosts]
        )
        self.communicator = made = Communicator.__new__(Communicator)
        made._open(world, pes, f"{parent.name}, host {host}", parent, parent)
        world.own(_Communicators).known[made] = made

    @property
    def nbytes(self) -> int:
        return self.communicator.workspace_bytes

    def close(self) -> None:
        self.communicator._drop()


class _Communicators:
    """The communicators of one world. None is made before a group is used, which is collective over its members."""

    def __init__(self, world: World) -> None:
        self.made: Counter[range] = Counter()
        self.implicit: dict[range, Communicator] = {}
        self.known: dict[Any, Communicator] = {}
        """By what ``group=`` was, and each explicit communicator by itself."""
        self.named: dict[str, Communicator] = {}
        self._opening: defaultdict[range, threading.Lock] = defaultdict(threading.Lock)

    def close(self) -> None:
        for communicator in {*self.implicit.values(), *self.known.values()}:
            communicator._drop()
        self.implicit.clear()
        self.known.clear()
        self.named.clear()

    def add(self, world: World, group: Any) -> Communicator:
        """The implicit communicator of a group that is not known yet."""
        self.known[group] = self.of_pes(world, _pes_of(world, group), group)
        return self.known[group]

    def of_pes(self, world: World, pes: range, group: Any) -> Communicator:
        """The implicit communicator of these PEs, which ``group`` is if there is none yet."""
        with self._opening[pes]:  # not one lock for all groups, whose order may differ between PEs
            if pes not in self.implicit:
                made = self.implicit[pes] = _implicit(world, pes, group)
                self.named[made.name] = made
        return self.implicit[pes]


def _implicit(world: World, pes: range, group: Any) -> Communicator:
    communicator = Communicator.__new__(Communicator)
    communicator._open(world, pes, f"implicit {pes.start}:{pes.step}:{len(pes)}", group)
    return communicator


def communicator_of(group: Any = None) -> Communicator:
    """The communicator that ``group=`` means. *Collective* over the group the first time.

    Raises:
        As of :class:`Communicator`; RuntimeError: the team was destroyed, or the communicator closed.
    """
    world = current_world()
    communicators = world.own(_Communicators)
    try:
        found = communicators.known.get(group)
    except TypeError:
        found = None  # not hashable: no group
    if found is None:
        return communicators.add(world, group)
    if type(group) is Team:
        group.check_live()
    return found


def communicator_of_this_pe() -> Communicator:
    """The implicit communicator of this PE alone, whose calls are local."""
    world = current_world()
    pes = range(world.pe, world.pe + 1)
    return world.own(_Communicators).of_pes(world, pes, pes)


def is_communicator_of(communicator: Communicator, group: Any) -> tuple[Guard, ...]:
    """What :func:`communicator_of` asks when it returns ``communicator``, as data, but for the world. Empty if it would
    return another."""
    known = communicator.world.own(_Communicators).known
    if known.get(group) is not communicator:
        return ()
    found = (Guard(known, "item", (group,), "is", communicator),)
    return (*found, *group.guards()) if type(group) is Team else found


def communicator_named(name: str) -> Communicator | None:
    """The communicator with this ``name`` of the current world."""
    return current_world().own(_Communicators).named.get(name)


def calling(function: str, group: Any, *, between_hosts: bool = False) -> _Call:
    """Context of a call of ``function`` by the members of ``group``; gives their communicator.

    Args:
        between_hosts: whether members on several hosts can make the call.
    """
    communicator = communicator_of(group)
    communicator.begin(function, between_hosts=between_hosts)
    return communicator.in_call


def _pes_of(world: World, group: Any) -> range:
    """The members of what ``group=`` was."""
    if isinstance(group, Communicator):
        if group._closed or group.world is not world:
            raise RuntimeError(f"{group} was closed")
        return group.pes
    pes = pes_of_group(world, group)
    if world.pe not in pes:
        raise ValueError(f"PE {world.pe} is not in {HostGroup('', pes)!r}: only members call functions with a group")
    return pes


def _capture(stream: torch.cuda.Stream) -> int | None:
    """The id of the capture that ``stream`` belongs to; None if it is not capturing."""
    status, number, *_ = check(driver().cuStreamGetCaptureInfo(stream.cuda_stream))
    return int(number) if int(status) else None


def _is_idle(stream: torch.cuda.Stream) -> bool:
    """Whether all work of a stream has ended. May be asked while another stream is capturing."""
    cuda = driver()
    (mode,) = check(cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        return int(cuda.cuStreamQuery(stream.cuda_stream)[0]) == 0
    finally:
        check(cuda.cuThreadExchangeStreamCaptureMode(mode))
