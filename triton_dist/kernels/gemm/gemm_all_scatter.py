"""GEMM and all-scatter: C = A · B with B split by columns over the PEs, and all of C on every PE.

The first five algorithms are the taxonomy of Iris (Awad et al., "Iris: First-Class Multi-GPU Programming Experience in
Triton", 2025), with the copy engine as one more consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton

import triton_dist
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import WIRE, flops
from triton_dist.kernels.gemm.copy_engine import send_by_copy_engine
from triton_dist.kernels.gemm.epilogue import Epilogue
from triton_dist.kernels.gemm.fp8 import FP8, BlockScales, Scale
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.plan_cache import cached, in_bucket, shape_of
from triton_dist.kernels.prepared import Launch
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.stream_barrier import stream_barrier

__all__ = ["ALGORITHMS", "HOPPER_ALGORITHMS", "gemm_all_scatter"]

ALGORITHMS = (
    "bulk_synchronous",
    "producer_consumer",
    "copy_engine",
    "fused_sequential",
    "fused_producer_consumer",
    "warp_specialized",
)
HOPPER_ALGORITHMS = ("copy_engine", "warp_specialized")

COMM_PROGRAMS = 16
"""Programs, or multiprocessors, that send where some do nothing else: enough for most of an H200's NVLink."""


@fused_gemm(ALGORITHMS)
def gemm_all_scatter(call: Call) -> Computation:
    """C = A · B on every PE, from B's columns on each.

    ``a`` is [M, K], the same on every PE, ``b`` [K, N / n_pes], this PE's columns of B, and ``out`` [M, N], or
    [M, N / 2] with the activation ``swiglu``, symmetric.

    - ``bulk_synchronous``: the GEMM, then its tiles are sent; no overlap.
    - ``producer_consumer``: two kernels on two streams; the GEMM has most of the GPU and sets a flag for each tile, the
      other waits for the flags and sends.
    - ``copy_engine``: the same, but the copy engine is the consumer, so that all multiprocessors compute. For Hopper
      GPUs.
    - ``fused_sequential``: one kernel; a program sends each tile that it has computed, then computes the next.
    - ``fused_producer_consumer``: one kernel; some programs send what the others compute.
    - ``warp_specialized``: one kernel; in every program one warp sends a tile while the others compute the next. For
      Hopper GPUs.
    """
    comm, a, b = call.comm, call.a, call.b
    n_pes, me = comm.n_pes, comm.my_rank
    rows, columns = a.shape[0], call.columns
    out = call.result((rows, columns * n_pes), symmetric=True)
    c = out[:, me * columns : (me + 1) * columns]
    scale, epilogue = call.scale(), call.epilogue(c, reduces=False)
    on_hopper = not isinstance(scale, BlockScales) and _hopper_fits(comm, a, b, c)
    return Computation(
        out,
        c,
        {
            name: _needs(name, on_hopper, call.sm_margin)
            or partial(_FUNCTIONS[name], comm, a, b, c, scale, epilogue, call.sm_margin)
            for name in _preferred()
        },
    )


_NEEDS = (
    "needs a Hopper GPU, up to 8 PEs, operands of 16-bit floats, or of fp8 with b by columns and no scales of blocks,"
    " a result of 16-bit floats, and rows (of out: each PE's part, too) that begin at multiples of 16 bytes"
)


def _needs(name: str, on_hopper: bool, sm_margin: int) -> str:
    """What an algorithm needs that is not there; empty if it is available."""
    if name in HOPPER_ALGORITHMS and not on_hopper:
        return _NEEDS
    if "producer_consumer" in name and portable.programs(sm_margin) < 2:
        return "needs two SMs"
    return ""


def _preferred() -> tuple[str, ...]:
    """The algorithms; in the CPU world, which takes the first that is available, the simplest fused one is in front."""
    if triton_dist.kind() == "cpu":
        return ("fused_sequential", *(name for name in ALGORITHMS if name != "fused_sequential"))
    return ALGORITHMS


def _hopper_fits(comm: Communicator, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    from triton_dist.kernels.gemm.hopper.launch import fits

    # All PEs must agree: also the other PEs' columns begin at a multiple of 16 bytes.
    return c.shape[1] * c.element_size() % 16 == 0 and fits(comm, a, b, c)


def _bulk_synchronous(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> None:
    stream_barrier(comm)
    local_gemm(comm, a, b, c, scale, epilogue, sm_margin)
    portable.send(comm, c, None, portable.programs(sm_margin))
    stream_barrier(comm)


def _producer_consumer(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> None:
    flags = _tile_flags(comm, c, epilogue.fold)
    grid = portable.programs(sm_margin)
    comm_programs = min(COMM_PROGRAMS, grid // 2)
    stream_barrier(comm)
    if triton_dist.kind() == "cpu":  # one kernel at a time
        portable.local(a, b, c, flags, grid=grid, scale=scale, epilogue=epilogue)
        portable.send(comm, c, flags, comm_programs, epilogue.fold)
    else:
        with side_stream(comm) as side:
            portable.local(a, b, c, flags, grid=grid - comm_programs, scale=scale, epilogue=epilogue)
            with torch.cuda.stream(side):
                portable.send(comm, c, flags, comm_programs, epilogue.fold)
    stream_barrier(comm)


def _fused_sequential(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> None:
    stream_barrier(comm)
    portable.scatter(comm, a, b, c, portable.programs(sm_margin), scale, epilogue)
    stream_barrier(comm)


def _fused_producer_consumer(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> Launch | None:
    grid = portable.programs(sm_margin)
    by_rows = b.stride(1) == 1 or a.dtype in FP8
    if not isinstance(scale, BlockScales) and by_rows and _hopper_fits(comm, a, b, c):
        from triton_dist.kernels.gemm.hopper import gemm_all_scatter_comm_programs as hopper

        comm_programs = min(_comm_programs(comm, a, c), grid // 2)
        fold, like = epilogue.fold, in_bucket(c)
        key = ("comm programs", comm_programs, fold, sm_margin, *shape_of(a, b))
        plan = cached(comm, key, lambda: hopper.make_plan(comm, a, like, comm_programs, sm_margin, fold))
        return hopper.run(plan, comm_programs, a, b, c, scale, epilogue)
    stream_barrier(comm)
    portable.scatter_by_programs(
        comm, a, b, c, _tile_flags(comm, c, epilogue.fold), min(COMM_PROGRAMS, grid // 2), grid, scale, epilogue
    )
    stream_barrier(comm)
    return None


def _comm_programs(comm: Communicator, a: torch.Tensor, c: torch.Tensor) -> int:
    """How many programs send: more where a GEMM of this depth is computed faster than it can be sent."""
    sent = c.numel() * c.element_size() * (comm.n_pes - 1) / WIRE
    computed = 2 * c.numel() * a.shape[1] / flops(a.dtype)
    return COMM_PROGRAMS if sent < computed else 2 * COMM_PROGRAMS


def _warp_specialized(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: torch.Tensor | None,
    epilogue: Epilogue,
    sm_margin: int,
) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import gemm_all_scatter as hopper

    fold = epilogue.fold
    key = ("scatter", fold, sm_margin, *shape_of(a, b))
    plan = cached(comm, key, lambda: hopper.make_plan(comm, a, in_bucket(c), sm_margin, fold))
    return hopper.run(plan, a, b, c, scale, epilogue)


_FUNCTIONS: dict[str, Callable[..., object]] = {
    "bulk_synchronous": _bulk_synchronous,
    "producer_consumer": _producer_consumer,
    "copy_engine": send_by_copy_engine,
    "fused_sequential": _fused_sequential,
    "fused_producer_consumer": _fused_producer_consumer,
    "warp_specialized": _warp_specialized,
}


def _tile_flags(comm: Communicator, c: torch.Tensor, fold: int) -> torch.Tensor:
    size = portable.blocks(c.dtype, fold)
    tiles = triton.cdiv(c.shape[0], size["BLOCK_M"]) * triton.cdiv(c.shape[1], size["BLOCK_N"])
    enough = max(4096, int(triton.next_power_of_2(tiles)))  # calls leave them zero, so that all sizes may share them
    return cached(comm, ("tile flags", enough), lambda: torch.zeros(enough, dtype=torch.int32, device=c.device))
