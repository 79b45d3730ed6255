"""All-reduce + bias + residual + RMSNorm or LayerNorm (+ quantisation to fp8) in one kernel.

Every PE has partial sums x of the same rows. The new residual is the sum over PEs of x, plus bias and residual, rounded
once to x's dtype; the output is the norm of the new residual, as a kernel that read it again would compute it. Every PE
gets both, the same bits.

``one_shot``, for few rows: every PE sends all its rows to all PEs and reduces what it receives; one latency.
``two_shot``: PE i reduces its share of the rows only, adds bias and residual, and sends the new residual to all. Each
PE normalises the rows that it receives: they are in registers, and norm, scales and residual need not be sent
separately, which would take up to twice the bytes. ``unfused``: an all-reduce, then one kernel for the rest. That
rounds the sum once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import check_algorithm
from triton_dist.kernels.collectives.all_reduce import launch_sum
from triton_dist.kernels.collectives.exchanged_rows import (
    exchange_begin,
    exchange_end,
    exchange_next,
    receive_rows,
    send_rows,
    sum_of_received,
    words_in,
)
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.norm.arguments import (
    Norm,
    Normed,
    check,
    exchange_constants,
    new_outputs,
    new_results,
    row_constants,
    signature_of,
    slots_for,
)
from triton_dist.kernels.norm.choice import choose
from triton_dist.kernels.norm.documentation import fused_norm
from triton_dist.kernels.norm.local_norm import local_norm
from triton_dist.kernels.norm.rows import add, load_rows, load_vectors, normalize, store_normalized, store_rows
from triton_dist.kernels.prepared import Launch, Prepared, Step, launch, steps
from triton_dist.kernels.protocols.members import group_size, my_rank
from triton_dist.kernels.protocols.workspace import symmetric_buffer
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["ALGORITHMS", "all_reduce_norm"]


@triton.jit(do_not_specialize=["M"])
def all_reduce_norm_one_shot(
    x, residual, bias, weight, shift, out, new_residual, scales, slots, trace, M, H, eps,
    LAYER: tl.constexpr, QUANTUM: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    PIECE: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    slots, number = exchange_begin(slots, 1, words_in(BLOCK, DTYPE), MEMBERS)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        began = clock(trace)
        rows = row + tl.arange(0, 1)
        there = rows < M
        values = load_rows(x, rows, there, H, BLOCK)
        for first in range(0, group_size(MEMBERS), GROUP):
            send_rows(slots, number, 0, first, values, DTYPE, GROUP, MEMBERS)
        record_event(trace, SEND, row, began)
        old = load_rows(residual, rows, there, H, BLOCK)
        added, factor, shifted = load_vectors(bias, weight, shift, H, BLOCK)
        total = sum_of_received(slots, number, 0, trace, row, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
        values = add(total, added, old, DTYPE)
        store_rows(new_residual, values, rows, there, H)
        values = normalize(values, factor, shifted, H, eps, LAYER)
        store_normalized(out, scales, values, rows, there, H, QUANTUM)
        number = exchange_next(slots, number, row + tl.num_programs(0) < M)
    exchange_end(slots, number)


@triton.jit(do_not_specialize=["M", "each"])
def all_reduce_norm_two_shot(
    x, residual, bias, weight, shift, out, new_residual, scales, slots, trace, M, H, eps, each,
    LAYER: tl.constexpr, QUANTUM: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    PIECE: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    slots, number = exchange_begin(slots, 2, words_in(BLOCK, DTYPE), MEMBERS)
    for row in range(tl.program_id(0), each, tl.num_programs(0)):  # of each PE's rows
        began = clock(trace)
        for first in range(0, group_size(MEMBERS), GROUP):
            ranks = first + tl.arange(0, GROUP)
            rows = ranks * each + row
            values = load_rows(x, rows, (ranks < group_size(MEMBERS)) & (rows < M), H, BLOCK)
            send_rows(slots, number, 0, first, values, DTYPE, GROUP, MEMBERS)
        record_event(trace, SEND, row, began)
        mine = my_rank(MEMBERS) * each + row + tl.arange(0, 1)
        old = load_rows(residual, mine, mine < M, H, BLOCK)
        added, factor, shifted = load_vectors(bias, weight, shift, H, BLOCK)
        total = sum_of_received(slots, number, 0, trace, row, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
        total = add(total, added, old, DTYPE)
        began = clock(trace)
        for first in range(0, group_size(MEMBERS), GROUP):
            send_rows(slots, number, 1, first, total, DTYPE, GROUP, MEMBERS)
        record_event(trace, SEND, row, began)
        for first in range(0, group_size(MEMBERS), GROUP):
            ranks = first + tl.arange(0, GROUP)
            rows = ranks * each + row
            there = (ranks < group_size(MEMBERS)) & (rows < M)
            values = receive_rows(slots, number, 1, first, trace, row, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
            store_rows(new_residual, values, rows, there, H)
            values = normalize(values, factor, shifted, H, eps, LAYER)
            store_normalized(out, scales, values, rows, there, H, QUANTUM)
        number = exchange_next(slots, number, row + tl.num_programs(0) < each)
    exchange_end(slots, number)


@fused_norm
def all_reduce_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    bias: torch.Tensor | None = None,
    norm: str = "rms",
    norm_bias: torch.Tensor | None = None,
    eps: float = 1e-6,
    quantize: str | None = None,
    algorithm: str = "auto",
    group: Any = None,
) -> Normed:
    """The norm of the sum of every PE's ``x`` (+ bias + residual), and that sum, on every PE; the same bits on all.

    Args:
        x: [M, H], this PE's partial sums.
        residual: [M, H], the same on every PE.
        algorithm: ``one_shot`` and ``two_shot``, up to 16384 columns, ``unfused``, or ``auto``.
    """
    with calling("all_reduce_norm", group) as comm:
        prepared, given = comm.own(Prepared), (x, residual, bias, weight, norm_bias)
        signature = signature_of(prepared, "all_reduce_norm", (norm, eps, quantize, algorithm), given)
        if (known := prepared.details(signature)) is not None:
            to: Normed = known.new()
            if prepared.repeat(signature, *given, *to):
                return to
        checked = check("all_reduce_norm", x, weight, residual, bias, norm, norm_bias, eps, quantize)
        check_algorithm("all_reduce_norm", algorithm, tuple(ALGORITHMS))
        compared = "all_reduce_norm", x.shape, x.dtype, *checked.form, algorithm
        comm.compare(*compared)
        to = new_outputs(x, checked, x.shape[0], x.shape[0])
        if x.shape[0]:
            ways = {name: partial(way, comm, x, checked, to) for name, way in ALGORITHMS.items()}
            made = choose(comm, "all_reduce_norm", algorithm, x, ways)()
            new = new_results(to)
            prepared.keep(signature, made, *compared, details=new, new=new)
        return to


def one_shot(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed) -> Launch | None:
    constants = row_constants(x, norm)
    slots, programs = slots_for(comm, "all_reduce_norm, one_shot", 1, x)
    grid = min(x.shape[0], programs)
    return launch(
        all_reduce_norm_one_shot, (grid,),
        (x, norm.residual, norm.bias, norm.weight, norm.shift, to.output, to.residual, to.scales), slots,
        record("all_reduce_norm, one_shot", grid, 2 * triton.cdiv(x.shape[0], grid) * comm.n_pes), *x.shape, norm.eps,
        **constants, **exchange_constants(comm, x),
    )  # fmt: skip


def two_shot(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed) -> Launch | None:
    constants = row_constants(x, norm)
    slots, programs = slots_for(comm, "all_reduce_norm, two_shot", 2, x)
    each = triton.cdiv(x.shape[0], comm.n_pes)
    grid = min(each, programs)
    return launch(
        all_reduce_norm_two_shot, (grid,),
        (x, norm.residual, norm.bias, norm.weight, norm.shift, to.output, to.residual, to.scales), slots,
        record("all_reduce_norm, two_shot", grid, 4 * triton.cdiv(each, grid) * comm.n_pes), *x.shape, norm.eps,
        each, **constants, **exchange_constants(comm, x),
    )  # fmt: skip


def unfused(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed) -> Sequence[Step] | None:
    summed = symmetric_buffer(comm, "all_reduce_norm", x.nbytes).view(x.dtype).view(x.shape)
    reduced = launch_sum(comm, summed, x)
    normed = local_norm(summed, norm, to)
    return steps((reduced, lambda x, *others: (summed, x)), (normed, lambda x, *others: (summed, *others)))


ALGORITHMS: dict[str, Callable[..., Launch | Sequence[Step] | None]] = {
    "one_shot": one_shot,
    "two_shot": two_shot,
    "unfused": unfused,
}
