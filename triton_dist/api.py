"""The public functions on the world of this process. They check the caller's values; worlds get clean ones."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import torch

from triton_dist import environment
from triton_dist.bootstrap import exit_report
from triton_dist.bootstrap.discovery import discover
from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.bootstrap.launch import Launch
from triton_dist.process_state import of_process
from triton_dist.world import checked_ops, teams
from triton_dist.world.base import World
from triton_dist.world.current import Current, current_world, find_world, refuse_forked
from triton_dist.world.kind import kind
from triton_dist.world.non_member import NonMember
from triton_dist.world.shapes import checked_dtype, checked_shape

__all__ = [
    "alltoall",
    "barrier",
    "barrier_all",
    "broadcast",
    "collect",
    "empty",
    "fcollect",
    "finalize",
    "free",
    "from_tensor",
    "full",
    "get",
    "init",
    "is_initialized",
    "my_pe",
    "n_pes",
    "peer",
    "put",
    "reduce",
    "reducescatter",
    "register_tensor",
    "team_from_group",
    "team_shared",
    "team_world",
    "zeros",
]

_log = logging.getLogger("triton_dist")

EXIT_SECONDS = 30.0  # for peers of a program that ends without finalize() to do the same


def init(*, group: Any = None, comm: Any = None) -> World:
    """Join the other PEs and make the symmetric heap. *Collective.*

    Who the PEs are comes from ``group`` or ``comm``; without them from an initialised ``torch.distributed``, else from
    what ``torchrun``, ``mpirun`` or ``srun`` has set in the environment (docs/launching.md); else this process is a
    world of one. Whether the world is one of GPUs or of processes without them: :func:`kind`.

    Args:
        group: a process group of ``torch.distributed``, all ranks or some of them. Its ranks are the PEs, and only they
            call this.
        comm: a communicator of mpi4py; likewise.

    Returns:
        the :class:`World`. ``with triton_dist.init() as world:`` finalises it at the end of the block.

    Raises:
        RuntimeError: a world exists already, or a PE has forked this process; the environment names no sound launch; a
            PE does not come within ``TRITON_DIST_INIT_TIMEOUT`` seconds, or fails meanwhile; PEs disagree about how
            many they are or about the kind of world; PEs would share a GPU; NVSHMEM's host and device libraries differ
            in version.
        TypeError: ``group`` or ``comm`` is none. ValueError: a variable of ours has an impossible value.
        ImportError: the GPU world's ``nvshmem4py`` is not installed.
    """
    if is_initialized():
        raise RuntimeError("triton_dist is initialised already: call triton_dist.finalize() before a second init()")
    current = of_process(Current)
    refuse_forked(current.world)
    if current.join is not None:
        if group is not None or comm is not None:
            raise RuntimeError("PEs in one process have no process groups or communicators: call init() without them")
        current.world = current.join()
        return current.world
    if current.launch is not None and current.launch.detector is not None:
        current.launch.detector.end()
    try:
        current.launch = launch = discover(group, comm)
    except KeyboardInterrupt as error:
        exit_report.say_in_one_line(error, "init() waited for the other PEs")
        raise
    if current.process != os.getpid():
        atexit.register(_leave)
        os.register_at_fork(after_in_child=current.leave)
        current.process = os.getpid()
    try:
        environment.check_all()
        _check_same_kind(launch)
        current.world = world = _world_class()(launch)
        _log.info("%r, started by %s", world, launch.launcher)
    except BaseException as error:
        if launch.detector is not None:
            launch.detector.fail(exit_report.of(error))
        raise
    return world


def finalize() -> None:
    """End the world; symmetric tensors and views of peers are invalid afterwards. *Collective.*

    Without a world, nothing happens.
    """
    current = of_process(Current)
    if current.world is not None and not current.world.forked:
        current.world.finalize()
        current.world = None


def is_initialized() -> bool:
    """Whether there is a world: :func:`init` was called, and neither :func:`finalize` nor an error has ended it."""
    return find_world() is not None


def my_pe() -> int:
    """This process's PE number, from 0 to ``n_pes() - 1``."""
    return current_world().pe


def n_pes() -> int:
    """How many PEs the world has."""
    return current_world().n_pes


def barrier_all() -> None:
    """Wait until every PE has come here and the work that each had started on its device is complete. *Collective.*

    What was stored or put to a peer before the barrier, by a kernel or from the host, is visible there after it.
    """
    current_world().barrier_all()


def empty(*shape: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """A symmetric tensor with unspecified contents: one of this shape on every PE, which kernels can name on any PE.

    *Collective*: every PE allocates the same tensors in the same order.

    Args:
        shape: sizes, as ``empty(4, 8)`` or ``empty((4, 8))``. Sizes of zero are allowed.
        dtype: any torch dtype; by default ``torch.get_default_dtype()``.

    Returns:
        a contiguous tensor on this PE's device, aligned to at least 16 bytes. Its memory stays while any tensor on it
        lives on any PE, also a view or a peer's, until :func:`free` or :func:`finalize`. What all PEs have dropped is
        given back at a later collective call of the hosts, when no device works any more on what was started before.

    Raises:
        RuntimeError: there is no world, or PEs ask for different shapes or dtypes.
        MemoryError: the heap is full, also without what has been dropped (its size: ``TRITON_DIST_SYMMETRIC_SIZE``).
        TypeError, ValueError: the shape is not one.
    """
    return current_world().empty(checked_shape(shape), checked_dtype(dtype))


def zeros(*shape: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """A symmetric tensor of zeros. It returns when it is filled on every PE. Otherwise like :func:`empty`."""
    return _filled(checked_shape(shape), 0, checked_dtype(dtype))


def full(shape: int | Sequence[int], fill_value: float | bool, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A symmetric tensor filled with ``fill_value``, which may differ between PEs. It returns when all are filled.

    ``dtype`` is by default what ``torch.full`` takes for such a value. Otherwise like :func:`empty`.
    """
    if dtype is None:
        dtype = torch.full((), fill_value, device="cpu").dtype
    return _filled(checked_shape((shape,)), fill_value, checked_dtype(dtype))


def from_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A symmetric tensor with the shape, dtype and, on this PE, the values of ``tensor``, which may be on any device.

    When it returns, it holds its values on every PE. *Collective*; errors as of :func:`empty`.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    symmetric = current_world().empty(tuple(tensor.shape), tensor.dtype)
    symmetric.copy_(tensor.detach())
    current_world().barrier_all()
    return symmetric


def peer(tensor: torch.Tensor, pe: int) -> torch.Tensor:
    """``tensor``, a symmetric tensor or a view of one, as it lies on ``pe``: load and store there at will.

    On GPUs, ``tensor`` may also be one of torch's symmetric memory with the NVSHMEM backend.

    Reading what a peer writes, and the other way round, needs an order: :func:`barrier_all`, or signals in kernels.

    Raises:
        ValueError: the tensor is not in the symmetric heap or was freed, or ``pe`` is out of range.
        RuntimeError: there is no world, or ``pe`` cannot be reached by load and store.
    """
    return current_world().peer(tensor, pe)


def free(tensor: torch.Tensor) -> None:
    """Give a symmetric tensor's memory back now; neither it nor a view of it may be used again. *Collective.*

    It waits for all that was started on the devices. A tensor that is merely dropped need not be freed.

    Raises:
        ValueError: it is not a tensor as :func:`empty`, :func:`zeros`, :func:`full` or :func:`from_tensor` returned it.
        RuntimeError: there is no world, or PEs free different tensors.
    """
    current_world().free(tensor)


def collect() -> int:
    """Give back, now, what all PEs have dropped; returns how many tensors that was. *Collective.*

    Every collective call of the hosts over all PEs does so, but for :func:`barrier_all` in a GPU world, so this is
    rarely needed. It runs Python's garbage collector first, for tensors in cycles of references.
    """
    return current_world().collect()


def register_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A symmetric tensor on existing memory, where the library allows it. *Collective*, with equal sizes.

    NVSHMEM takes GPU memory of CUDA's virtual memory management: the whole of what one ``cuMemCreate`` made, with a
    handle that other processes can open, in pieces of NVSHMEM's granularity. That is 512 MiB unless
    ``NVSHMEM_CUMEM_GRANULARITY`` says otherwise when the world is made; 2 MiB will do.

    Returns:
        a tensor with the shape, strides and dtype of ``tensor`` on the same memory, at another address: what is written
        to one is read from the other. Pass this one to :func:`peer` and to kernels. It keeps ``tensor`` alive, and is
        unregistered when all PEs have dropped it, or by :func:`free`.

    Raises:
        ValueError: the memory is not of that kind, on some PE; the message says what is wrong.
        RuntimeError: there is no world; it is a CPU world, which can register nothing; PEs pass different sizes.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    return current_world().register(tensor)


# ---- teams


def team_world() -> teams.Team:
    """The team of all PEs, to split others from: see :class:`Team`."""
    return current_world().team_world


def team_shared() -> teams.Team:
    """The team of the PEs of this PE's host. *Collective* over all PEs.

    They reach each other by load and store, unless the CPU world's transport maps nothing (OpenSHMEM over TCP). On one
    host it is :func:`team_world`. Further calls return the same team, which ends with the world.

    Raises:
        ValueError: the numbers of a host's PEs are not at equal distances (on every PE).
        RuntimeError: there is no world, or no more teams can be had.

    OpenSHMEM's ``SHMEM_TEAM_SHARED``.
    """
    return current_world().team_shared()


def team_from_group(group: Any, mesh_dim: str | int | None = None) -> teams.Team | NonMember:
    """The team of a ``torch.distributed`` process group's ranks. *Collective* over all PEs of the world.

    Args:
        group: this PE's ``ProcessGroup``, or a ``DeviceMesh``; where this PE is in no group None, or what ``new_group``
            returned. Other PEs may pass other groups that share no rank with it, as the rows of a mesh do.
        mesh_dim: for a mesh of several dimensions, which one's group, as ``DeviceMesh.get_group`` takes it.

    Returns:
        the team, in the group's order of ranks; a :class:`NonMember`, which is false, where this PE is in no group.

    Raises:
        ValueError: a group's ranks do not ascend at equal distances, which is what teams are (on every PE).
        RuntimeError: ``torch.distributed`` is not initialised; a rank is no PE, or passes another group.
    """
    return teams.from_group(current_world(), group, mesh_dim)


# ---- operations on streams


def put(dst: torch.Tensor, src: torch.Tensor, pe: int, *, stream: Any = None) -> None:
    """Copy ``src`` to ``dst`` on ``pe``.

    Args:
        dst: a symmetric tensor, or a view of one: where it lies on ``pe`` is written.
        src: any tensor on this PE's device, of the same shape and dtype.
        stream: the ``torch.cuda.Stream`` in whose order it is done, by default the current one. The host does not wait.
            None in the CPU world, where it is done when the call returns. So for all functions that take a stream; all
            of them can be captured in a CUDA graph.

    Raises:
        ValueError, TypeError: the operands do not fit; ``dst`` is not symmetric or was freed; there is no such ``pe``.
        RuntimeError: there is no world; ``pe`` cannot be reached by load and store, and a tensor is not contiguous.

    The peer sees it after a :func:`barrier` behind it on the stream. NVSHMEM's ``putmem_on_stream``.
    """
    checked_ops.put(current_world(), dst, src, pe, stream)


def get(dst: torch.Tensor, src: torch.Tensor, pe: int, *, stream: Any = None) -> None:
    """Copy ``src``, a symmetric tensor or a view of one, as it lies on ``pe``, to ``dst`` here. Else like :func:`put`.

    NVSHMEM's ``getmem_on_stream``.
    """
    checked_ops.get(current_world(), dst, src, pe, stream)


def barrier(team: teams.Team | None = None, *, stream: Any = None) -> None:
    """Wait, on the stream, for all PEs of ``team`` (by default all of the world) to come here on theirs. *Collective.*

    What was put or stored to a peer before it, on the stream, is visible there behind it.
    """
    checked_ops.barrier(current_world(), team, stream)


def broadcast(
    dst: torch.Tensor, src: torch.Tensor, root: int = 0, *, team: teams.Team | None = None, stream: Any = None
) -> None:
    """Copy ``src`` of the team's PE ``root`` to every member's ``dst``. *Collective* over the team, and on the stream.

    So for all collectives below: ``dst`` and ``src`` are symmetric, contiguous and of one dtype; they may be the same
    where their sizes are, and else do not overlap. Members call them in the same order with the same sizes (the CPU
    world checks that). OpenSHMEM 1.5, 9.9.7.

    Raises:
        ValueError, TypeError: the operands do not fit; one is not symmetric or was freed; this PE is not in the team.
        RuntimeError: there is no world; the team was destroyed; in the CPU world, members call different things.
    """
    checked_ops.broadcast(current_world(), dst, src, root, team, stream)


def fcollect(dst: torch.Tensor, src: torch.Tensor, *, team: teams.Team | None = None, stream: Any = None) -> None:
    """All-gather: every member's ``src``, one after the other in the team's order, in every member's ``dst``.

    ``dst`` has as many elements as all the ``src`` together. Otherwise like :func:`broadcast`. OpenSHMEM 1.5, 9.9.8.
    """
    checked_ops.fcollect(current_world(), dst, src, team, stream)


def alltoall(dst: torch.Tensor, src: torch.Tensor, *, team: teams.Team | None = None, stream: Any = None) -> None:
    """Part ``i`` of ``src`` goes to member ``i``, as the part of its ``dst`` with this member's number.

    ``dst`` and ``src`` have as many equal parts as the team has members. Otherwise like :func:`broadcast`.
    OpenSHMEM 1.5, 9.9.5.
    """
    checked_ops.alltoall(current_world(), dst, src, team, stream)


def reduce(
    dst: torch.Tensor, src: torch.Tensor, op: str = "sum", *, team: teams.Team | None = None, stream: Any = None
) -> None:
    """All-reduce: combine all members' ``src``, element by element, into every member's ``dst``.

    ``op`` is ``"sum"``, ``"min"`` or ``"max"``; dtypes are integers and floats, no bool or complex numbers. Otherwise
    like :func:`broadcast`. OpenSHMEM 1.5, 9.9.9.
    """
    checked_ops.reduce(current_world(), dst, src, op, team, stream)


def reducescatter(
    dst: torch.Tensor, src: torch.Tensor, op: str = "sum", *, team: teams.Team | None = None, stream: Any = None
) -> None:
    """As :func:`reduce`, but member ``i`` gets part ``i`` of the result: ``src`` is as large as all ``dst`` together.

    NVSHMEM's ``reducescatter``.
    """
    checked_ops.reducescatter(current_world(), dst, src, op, team, stream)


def _world_class() -> type[World]:
    """The class of this kind's world. Only one is ever imported: each needs what the other's machine may lack."""
    if kind() == "gpu":
        from triton_dist.gpu.world import GpuWorld

        return GpuWorld
    from triton_dist.cpu.world import CpuWorld

    return CpuWorld


def _check_same_kind(launch: Launch) -> None:
    kinds = launch.exchange("kind", kind())
    for pe, other in enumerate(kinds):
        if other != kinds[0]:
            raise RuntimeError(
                f"PE 0 is in a {kinds[0]} world and PE {pe} in a {other} world: set TRITON_DIST_WORLD to the same value"
                " for all of them"
            )


def _filled(shape: tuple[int, ...], value: float | bool, dtype: torch.dtype) -> torch.Tensor:
    tensor = current_world().empty(shape, dtype)
    if not value and not isinstance(value, float):  # which may be -0.0
        current_world().clear(tensor)
    else:
        tensor.fill_(value)
    current_world().barrier_all()  # so that no peer sees what the memory held before
    return tensor


def _leave() -> None:
    """At exit without finalize(): finalise if the others end as well, and never wait for one that failed."""
    current = of_process(Current)
    if current.process != os.getpid():
        return
    world, current.world = find_world(), None
    if world is not None:
        assert current.launch is not None
        _end(world, current.launch)
    if current.launch is not None and current.launch.detector is not None:
        current.launch.detector.end()


def _end(world: World, launch: Launch) -> None:
    error = getattr(sys, "last_value", None)
    try:
        if error is None and launch.store is not None:
            launch.store.set(f"leave/{launch.pe}", "")
            keys = [f"leave/{pe}" for pe in range(launch.n_pes)]
            launch.await_keys(keys, "end without finalize()", EXIT_SECONDS)
    except (RuntimeError, TimeoutError) as failure:  # a peer did not come, or took the store with it
        error = failure
    if error is None:
        world.finalize()
    else:
        world.abort(exit_report.of(error))
        if isinstance(error, BrokenWorldError):
            _fail_at_exit(error)
        exit_report.limit_exit()


def _fail_at_exit(error: BaseException) -> NoReturn:
    """The program has run to its end, and has failed all the same: that can be told by its exit status only so."""
    exit_report.say(f"triton_dist: {error}")
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    os._exit(1)
