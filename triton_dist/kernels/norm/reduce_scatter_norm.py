"""Reduce-scatter + bias + residual + norm (+ quantisation) in one kernel: what precedes a sequence-parallel region.

Every PE has partial sums x of all rows. PE i gets the sums of the i-th shard of the rows, adds bias and its shard of
the residual, and normalises: the first half of ``two_shot`` of :mod:`all_reduce_norm`. ``unfused`` is a reduce-scatter
and one kernel for the rest, and rounds the sum once more. The last PEs may have fewer rows, or none (``shards.py``):
they receive zeros in place of a row that they lack, and store nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import check_algorithm
from triton_dist.kernels.collectives.exchanged_rows import (
    exchange_begin,
    exchange_end,
    exchange_next,
    send_rows,
    sum_of_received,
    words_in,
)
from triton_dist.kernels.collectives.reduce_scatter import reduce_scatter, reduce_scatter_parts
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
from triton_dist.kernels.prepared import Launch, Prepared, launch
from triton_dist.kernels.protocols.members import group_size, my_rank
from triton_dist.kernels.shards import each_of, own_rows
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["ALGORITHMS", "reduce_scatter_norm"]


@triton.jit(do_not_specialize=["M", "each"])
def reduce_scatter_norm_fused(
    x, residual, bias, weight, shift, out, new_residual, scales, slots, trace, M, H, eps, each,
    LAYER: tl.constexpr, QUANTUM: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    PIECE: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    slots, number = exchange_begin(slots, 1, words_in(BLOCK, DTYPE), MEMBERS)
    for row in range(tl.program_id(0), each, tl.num_programs(0)):  # of each PE's rows
        began = clock(trace)
        for first in range(0, group_size(MEMBERS), GROUP):
            ranks = first + tl.arange(0, GROUP)
            places = ranks * each + row
            values = load_rows(x, places, (ranks < group_size(MEMBERS)) & (places < M), H, BLOCK)
            send_rows(slots, number, 0, first, values, DTYPE, GROUP, MEMBERS)
        record_event(trace, SEND, row, began)
        rows = row + tl.arange(0, 1)
        there = my_rank(MEMBERS) * each + rows < M
        old = load_rows(residual, rows, there, H, BLOCK)
        added, factor, shifted = load_vectors(bias, weight, shift, H, BLOCK)
        total = sum_of_received(slots, number, 0, trace, row, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
        values = add(total, added, old, DTYPE)
        store_rows(new_residual, values, rows, there, H)
        values = normalize(values, factor, shifted, H, eps, LAYER)
        store_normalized(out, scales, values, rows, there, H, QUANTUM)
        number = exchange_next(slots, number, row + tl.num_programs(0) < each)
    exchange_end(slots, number)


@fused_norm
def reduce_scatter_norm(
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
    """This PE's rows of the norm of the sum of every PE's ``x`` (+ bias + residual), and of that sum.

    Args:
        x: [M, H], this PE's partial sums of all rows, of any M. PE p gets rows p · c to (p + 1) · c, where c is
            M / n_pes, rounded up, or those that there are: the shards of ``torch.chunk``.
        residual: [m, H], this PE's m rows.
        algorithm: ``fused``, up to 16384 columns, ``unfused``, or ``auto``.
    """
    with calling("reduce_scatter_norm", group) as comm:
        prepared, given = comm.own(Prepared), (x, residual, bias, weight, norm_bias)
        signature = signature_of(prepared, "reduce_scatter_norm", (norm, eps, quantize, algorithm), given)
        if (known := prepared.details(signature)) is not None:
            to: Normed = known.new()
            if prepared.repeat(signature, *given, *to):
                return to
        arguments = (x, weight, residual, bias, norm, norm_bias, eps, quantize)
        checked = check("reduce_scatter_norm", *arguments, shared_by=comm)
        check_algorithm("reduce_scatter_norm", algorithm, tuple(ALGORITHMS))
        compared = "reduce_scatter_norm", x.shape, x.dtype, *checked.form, algorithm
        comm.compare(*compared)
        own = len(own_rows(comm, x.shape[0]))
        to = new_outputs(x, checked, own, own)
        if x.shape[0]:
            ways = {name: partial(way, comm, x, checked, to) for name, way in ALGORITHMS.items()}
            made = choose(comm, "reduce_scatter_norm", algorithm, x, ways)()
            new = new_results(to)
            prepared.keep(signature, made, *compared, details=new, new=new)
        return to


def fused(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed) -> Launch | None:
    slots, programs = slots_for(comm, "reduce_scatter_norm", 1, x)
    each = each_of(x.shape[0], comm.n_pes)
    grid = min(each, programs)
    return launch(
        reduce_scatter_norm_fused, (grid,),
        (x, norm.residual, norm.bias, norm.weight, norm.shift, to.output, to.residual, to.scales), slots,
        record("reduce_scatter_norm", grid, 2 * triton.cdiv(each, grid) * comm.n_pes), *x.shape, norm.eps, each,
        **row_constants(x, norm), **exchange_constants(comm, x),
    )  # fmt: skip


def unfused(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed) -> None:
    summed = torch.empty_like(to.residual)
    each = each_of(x.shape[0], comm.n_pes)
    if each * comm.n_pes == x.shape[0]:
        reduce_scatter(summed, x, group=comm)
    else:
        reduce_scatter_parts(summed, x, each * x.shape[1], group=comm)
    if summed.shape[0]:
        local_norm(summed, norm, to)


ALGORITHMS: dict[str, Callable[..., Launch | None]] = {"fused": fused, "unfused": unfused}
