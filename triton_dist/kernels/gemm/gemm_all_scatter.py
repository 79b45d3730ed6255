"""GEMM and all-scatter: C = A · B with B split by columns over the PEs, and all of C on every PE.

The first five algorithms are the taxonomy of Iris (Awad et al., "Iris: First-Class Multi-GPU Programming Experience in
Triton", 2025), with the copy engine as one more consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import triton

import triton_dist
from triton_dist.kernels.arguments import words
from triton_dist.kernels.collectives.all_gather import low_latency
from triton_dist.kernels.collectives.gather_exchange import gather_exchange
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.between_hosts import scatter_between_hosts
from triton_dist.kernels.gemm.copy_engine import lacks_copy_engine, send_by_copy_engine
from triton_dist.kernels.gemm.few_columns import few_columns, side_by_side_algorithm
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.plan_cache import cached, in_bucket
from triton_dist.kernels.prepared import Launch, Step, nothing, steps
from triton_dist.kernels.protocols.ll import block_of
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.stream_barrier import stream_barrier
from triton_dist.kernels.rates import WIRE, flops

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

    - ``bulk_synchronous``: the GEMM, then its tiles are sent; no overlap. Up to 1 MiB goes by an all-gather that needs
      no barrier, of which a -0.0 may arrive as 0.0; over several hosts an all-gather sends them, too.
    - ``producer_consumer``: two kernels on two streams; the GEMM has most of the GPU and sets a flag for each tile, the
      other waits for the flags and sends.
    - ``copy_engine``: the same, but the copy engine is the consumer, so that all multiprocessors compute. For Hopper
      GPUs.
    - ``fused_sequential``: one kernel; a program sends each tile that it has computed, then computes the next.
    - ``fused_producer_consumer``: one kernel; some programs send what the others compute.
    - ``warp_specialized``: one kernel; in every program one warp sends a tile while the others compute the next. For
      Hopper GPUs.
    """
    columns, me = call.columns, call.comm.my_rank
    out = call.result((call.a.shape[0], columns * call.comm.n_pes), symmetric=True)
    gemm = call.operands(out[:, me * columns : (me + 1) * columns], reduces=False)
    if call.comm.grid.hosts > 1:
        return Computation(out, gemm.c, {"bulk_synchronous": partial(scatter_between_hosts, gemm, out)})
    on_hopper = _hopper_fits(gemm)
    functions = _FUNCTIONS | {"bulk_synchronous": partial(_bulk_synchronous, out)}
    return Computation(
        out,
        gemm.c,
        {name: _needs(name, on_hopper, gemm) or partial(functions[name], gemm) for name in _preferred()},
    )


_NEEDS = (
    "needs a Hopper GPU, up to 8 PEs, operands of 16-bit floats, or of fp8 with b by columns, a result"
    " of 16-bit floats, and rows (of out: each PE's part, too) that begin at multiples of 16 bytes"
)


def _needs(name: str, on_hopper: bool, gemm: Operands) -> str:
    """What an algorithm needs that is not there; empty if it is available."""
    if name in HOPPER_ALGORITHMS and not on_hopper:
        return _NEEDS
    if name == "copy_engine" and (lacks := lacks_copy_engine(gemm.comm)):
        return lacks
    if "producer_consumer" in name and portable.programs(gemm.sm_margin) < 2:
        return "needs two SMs"
    return ""


def _preferred() -> tuple[str, ...]:
    """The algorithms; in the CPU world, which takes the first that is available, the simplest fused one is in front."""
    if triton_dist.kind() == "cpu":
        return ("fused_sequential", *(name for name in ALGORITHMS if name != "fused_sequential"))
    return ALGORITHMS


def _hopper_fits(gemm: Operands) -> bool:
    from triton_dist.kernels.gemm.hopper.launch import takes

    # All PEs must agree: also the other PEs' columns begin at a multiple of 16 bytes.
    return gemm.c.shape[1] * gemm.c.element_size() % 16 == 0 and takes(gemm)


def _bulk_synchronous(out: torch.Tensor, gemm: Operands) -> Sequence[Step] | None:
    comm, mine = gemm.comm, _columns_of(gemm)
    if algorithm := side_by_side_algorithm(gemm.c, comm.n_pes, portable.limit(gemm.sm_margin)):
        return _side_by_side(out, gemm, algorithm)
    entered = stream_barrier(comm)
    multiplied = local_gemm(gemm)
    sent = portable.send(comm, gemm.c, None, portable.programs(gemm.sm_margin))
    return steps(
        (entered, nothing),
        (multiplied, lambda call: call._replace(out=call.out[:, mine])),
        (sent, lambda call: (call.out[:, mine],)),
        (stream_barrier(comm), nothing),
    )


def _side_by_side(out: torch.Tensor, gemm: Operands, algorithm: str) -> Sequence[Step] | None:
    """The product in memory of its own, then an all-gather that puts the PEs' columns side by side."""
    comm, (rows, columns) = gemm.comm, gemm.c.shape
    product = few_columns(comm).view(gemm.c.dtype)[: rows * columns].view(rows, columns)
    multiplied = local_gemm(gemm._replace(c=product))
    to, source = words("gemm_all_scatter", columns * gemm.c.element_size(), out, product)
    limit, row = portable.limit(gemm.sm_margin), source.numel() // rows
    if algorithm == "exchange":
        sent = gather_exchange(comm, to, source, dtype=product.dtype, limit=limit, row=row)
    else:
        block = block_of(in_bucket(gemm.c).shape[0] * row, comm.n_pes, limit)  # so a new M compiles nothing
        sent = low_latency(comm, to, source, limit=limit, block=block, row=row)
    return steps(
        (multiplied, lambda call: call._replace(out=product)),
        (sent, lambda call: (call.out, product)),
    )


def _producer_consumer(gemm: Operands) -> Sequence[Step] | None:
    comm, c, fold, mine = gemm.comm, gemm.c, gemm.fold, _columns_of(gemm)
    flags = _tile_flags(gemm)
    grid = portable.programs(gemm.sm_margin)
    comm_programs = min(COMM_PROGRAMS, grid // 2)
    entered = stream_barrier(comm)
    if triton_dist.kind() == "cpu":  # one kernel at a time
        multiplied = portable.local(gemm, grid, flags)
        sent = portable.send(comm, c, flags, comm_programs, fold)
    else:
        with side_stream(comm) as side:
            multiplied = portable.local(gemm, grid - comm_programs, flags)
            with torch.cuda.stream(side):
                sent = portable.send(comm, c, flags, comm_programs, fold)
    send = sent, lambda call: (call.out[:, mine],)
    return steps(
        (entered, nothing),
        (multiplied, lambda call: call._replace(out=call.out[:, mine]), send),
        (stream_barrier(comm), nothing),
    )


def _fused_sequential(gemm: Operands) -> Sequence[Step] | None:
    return _between_barriers(gemm, lambda: portable.scatter(gemm, portable.programs(gemm.sm_margin)))


def _between_barriers(gemm: Operands, run: Callable[[], Launch | None]) -> Sequence[Step] | None:
    """A launch with ``gemm.a``, ``b`` and ``c`` between two barriers of the stream."""
    mine = _columns_of(gemm)
    entered = stream_barrier(gemm.comm)
    made = run()
    return steps(
        (entered, nothing),
        (made, lambda call: (call.a, call.b, call.out[:, mine])),
        (stream_barrier(gemm.comm), nothing),
    )


def _columns_of(gemm: Operands) -> slice:
    """Which columns of the result this PE computes."""
    width = gemm.c.shape[1]
    return slice(gemm.comm.my_rank * width, (gemm.comm.my_rank + 1) * width)


def _fused_producer_consumer(gemm: Operands) -> Launch | Sequence[Step] | None:
    comm, a, c, fold, sm_margin = gemm.comm, gemm.a, gemm.c, gemm.fold, gemm.sm_margin
    grid = portable.programs(sm_margin)
    if (gemm.b.stride(1) == 1 or a.dtype in FP8) and _hopper_fits(gemm):
        from triton_dist.kernels.gemm.hopper import gemm_all_scatter_comm_programs as hopper

        comm_programs, like = min(_comm_programs(comm, a, c), grid // 2), in_bucket(c)
        key = gemm.key("comm programs", comm_programs)
        plan = cached(
            comm, key, lambda: hopper.make_plan(comm, a, like, comm_programs, sm_margin, fold, gemm.of_blocks)
        )
        return hopper.run(plan, comm_programs, gemm)
    return _between_barriers(
        gemm, lambda: portable.scatter_by_programs(gemm, _tile_flags(gemm), min(COMM_PROGRAMS, grid // 2), grid)
    )


def _comm_programs(comm: Communicator, a: torch.Tensor, c: torch.Tensor) -> int:
    """How many programs send: more where a GEMM of this depth is computed faster than it can be sent."""
    sent = c.numel() * c.element_size() * (comm.n_pes - 1) / WIRE
    computed = 2 * c.numel() * a.shape[1] / flops(a.dtype)
    return COMM_PROGRAMS if sent < computed else 2 * COMM_PROGRAMS


def _warp_specialized(gemm: Operands) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import gemm_all_scatter as hopper

    comm, a, c = gemm.comm, gemm.a, gemm.c
    make = partial(hopper.make_plan, comm, a, in_bucket(c), gemm.sm_margin, gemm.fold, gemm.of_blocks)
    return hopper.run(cached(comm, gemm.key("scatter"), make), gemm)


_FUNCTIONS: dict[str, Callable[..., object]] = {
    "producer_consumer": _producer_consumer,
    "copy_engine": send_by_copy_engine,
    "fused_sequential": _fused_sequential,
    "fused_producer_consumer": _fused_producer_consumer,
    "warp_specialized": _warp_specialized,
}


def _tile_flags(gemm: Operands) -> torch.Tensor:
    c, size = gemm.c, portable.blocks(gemm.c.dtype, gemm.fold)
    tiles = triton.cdiv(c.shape[0], size["BLOCK_M"]) * triton.cdiv(c.shape[1], size["BLOCK_N"])
    enough = max(4096, int(triton.next_power_of_2(tiles)))  # calls leave them zero, so that all sizes may share them
    return cached(gemm.comm, ("tile flags", enough), lambda: torch.zeros(enough, dtype=torch.int32, device=c.device))
