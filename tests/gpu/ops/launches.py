"""Launches that would hang, or overwrite what they must not, are errors before they are made."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import check
from triton_dist import World
from triton_dist.compiler import transport


@triton.jit
def meet_programs_then_pes(arrived, BLOCK: tl.constexpr):
    """All programs of the grid wait for each other, which works only if all run; then one of them meets the PEs."""
    tl.atomic_add(arrived, 1)
    while tl.atomic_add(arrived, 0) < tl.num_programs(0):
        pass
    if tl.program_id(0) == 0:
        dl.barrier_all()


@triton.jit
def put_to(x, dst, n, pe):
    dl.putmem(dst + 1, x, n, pe)


@triton.jit(do_not_specialize=["n"])
def scatter(x, y, n):
    dl.sum_reducescatter(dl.TEAM_WORLD, y, x, n)


@triton.jit
def scatter_constant(x, y, N: tl.constexpr):
    dl.sum_reducescatter(dl.TEAM_WORLD, y, x, N, scope="thread")


def _error(kind: type[Exception], launch: object, *arguments: object, **named: object) -> str:
    try:
        launch(*arguments, **named)  # type: ignore[operator]
    except kind as error:
        return str(error)
    raise AssertionError("it was launched")


@check(gpu_only=True)
def a_collective_in_a_grid_that_is_not_resident_is_refused(world: World) -> None:
    arrived = torch.zeros(1, dtype=torch.int32, device=world.device)
    multiprocessors = torch.cuda.get_device_properties(world.device).multi_processor_count
    for warps in (4, 16):
        kernel = meet_programs_then_pes.warmup(arrived, BLOCK=1, num_warps=warps, grid=(1,))
        kernel._init_handles()
        resident = kernel.run._needs.resident
        assert resident % multiprocessors == 0, f"{resident} programs on {multiprocessors} multiprocessors"
        assert multiprocessors <= resident <= multiprocessors * 2048 // (32 * warps), resident
        arrived.zero_()
        meet_programs_then_pes[(resident,)](arrived, BLOCK=1, num_warps=warps)
        torch.cuda.synchronize()
        assert arrived.item() >= resident
        for grid in ((resident + 1,), (resident // 2, 3), (multiprocessors, 1, 32 // warps * 8)):
            message = _error(RuntimeError, meet_programs_then_pes[grid], arrived, BLOCK=1, num_warps=warps)
            assert "kernel meet_programs_then_pes has a collective" in message, message
            assert f"runs {resident} of them at a time" in message, message
            assert "launches.py:" in message and "shmem.barrier_all" in message, message
    triton_dist.barrier_all()


@check(gpu_only=True)
def an_argument_that_is_not_symmetric_is_refused(world: World) -> None:
    symmetric = triton_dist.zeros(64, dtype=torch.int32)
    plain = torch.ones(64, dtype=torch.int32, device=world.device)
    other = (world.pe + 1) % world.n_pes
    put_to[(1,)](plain, symmetric, 16, other)
    put_to[(1,)](plain, symmetric[8:16], 16, other)
    triton_dist.barrier_all()
    assert symmetric.tolist() == [0] + [1] * 4 + [0] * 4 + [1] * 4 + [0] * 51
    message = _error(ValueError, put_to[(1,)], symmetric, plain, 16, other)
    assert "kernel put_to: argument dst, a tensor of shape (64,) and torch.int32" in message, message
    assert "shmem.putmem" in message and "launches.py:" in message, message
    triton_dist.barrier_all()
    triton_dist.free(symmetric)
    message = _error(ValueError, put_to[(1,)], plain, symmetric[8:], 16, other)
    assert "was freed" in message and "launches.py:" in message, message


@check(gpu_only=True)
def a_reducescatter_that_nvshmem_has_no_memory_for_is_refused(world: World) -> None:
    if transport.current() != "nvshmem" or world.n_pes == 1:
        return  # there is no limit
    limit = kernel_limit(world)
    source = triton_dist.full(world.n_pes * limit + 4, world.pe + 1, dtype=torch.int32)
    target = triton_dist.zeros(limit + 4, dtype=torch.int32)
    scatter[(1,)](source, target, limit)
    assert (target[:limit] == world.n_pes * (world.n_pes + 1) // 2).all()
    for message in (
        _error(RuntimeError, scatter[(1,)], source, target, limit + 1),
        _error(RuntimeError, scatter_constant[(1,)], source, target, N=limit + 1),
    ):
        assert "NVSHMEM_REDUCE_SCRATCH_SIZE" in message and "shmem.reducescatter" in message, message
    triton_dist.barrier_all()
    triton_dist.free(source)
    triton_dist.free(target)


def kernel_limit(world: World) -> int:
    """The most int32 that each PE may contribute: what docs/world.md says."""
    import os

    from triton_dist import environment

    return environment.size(os.environ["NVSHMEM_REDUCE_SCRATCH_SIZE"]) // 2 // world.n_pes // 4
