"""Bias + residual + norm (+ quantisation) + all-gather in one kernel: what ends a sequence-parallel region.

Every PE has a shard of the rows. It adds bias and residual, normalises, and sends each row to all PEs from registers,
so that the normalised rows are not read again. ``unfused`` is one kernel for the norm and an all-gather. Quantised rows
are sent as fp8, unfused: half the bytes. The last PEs may have fewer rows, or none (``shards.py``): what they send in
place of a row that they lack is not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import check_algorithm
from triton_dist.kernels.collectives.all_gather import all_gather, all_gather_parts
from triton_dist.kernels.collectives.exchanged_rows import (
    exchange_begin,
    exchange_end,
    exchange_next,
    receive_rows,
    send_rows,
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
from triton_dist.kernels.norm.rows import add, load_rows, load_vectors, normalize, store_rows
from triton_dist.kernels.prepared import Launch, Prepared, launch
from triton_dist.kernels.protocols.members import group_size, my_rank
from triton_dist.kernels.protocols.workspace import symmetric_buffer
from triton_dist.kernels.shards import gathered_rows, wrong_shard
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["ALGORITHMS", "norm_all_gather"]


@triton.jit(do_not_specialize=["M", "each"])
def norm_all_gather_fused(
    x, residual, bias, weight, shift, out, new_residual, slots, trace, M, H, eps, each,
    LAYER: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr,
    MEMBERS: tl.constexpr,
):  # fmt: skip
    slots, number = exchange_begin(slots, 1, words_in(BLOCK, DTYPE), MEMBERS)
    for row in range(tl.program_id(0), each, tl.num_programs(0)):
        began = clock(trace)
        rows = row + tl.arange(0, 1)
        there = my_rank(MEMBERS) * each + rows < M
        old = load_rows(residual, rows, there, H, BLOCK)
        added, factor, shifted = load_vectors(bias, weight, shift, H, BLOCK)
        values = add(load_rows(x, rows, there, H, BLOCK), added, old, DTYPE)
        store_rows(new_residual, values, rows, there, H)
        values = normalize(values, factor, shifted, H, eps, LAYER)
        for first in range(0, group_size(MEMBERS), GROUP):
            send_rows(slots, number, 0, first, values, DTYPE, GROUP, MEMBERS)
        record_event(trace, SEND, row, began)
        for first in range(0, group_size(MEMBERS), GROUP):
            ranks = first + tl.arange(0, GROUP)
            places = ranks * each + row
            received = receive_rows(slots, number, 0, first, trace, row, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
            store_rows(out, received, places, (ranks < group_size(MEMBERS)) & (places < M), H)
        number = exchange_next(slots, number, row + tl.num_programs(0) < each)
    exchange_end(slots, number)


@fused_norm
def norm_all_gather(
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
    rows: int | None = None,
    group: Any = None,
) -> Normed:
    """The norm of every PE's rows ``x`` (+ bias + residual), in the order of PEs; and of this PE's rows that sum.

    Args:
        x: [m, H], this PE's rows, as many on every PE, but for the last PEs with ``rows``.
        residual: [m, H], of the same rows.
        algorithm: ``fused``, up to 16384 columns, without quantisation; ``unfused``; or ``auto``.
        rows: how many rows all PEs have together, the same on all PEs; by default ``n_pes`` times those of ``x``. With
            any M PE p has rows p · c to (p + 1) · c, where c is M / n_pes, rounded up, or those that there are: the
            shards of ``torch.chunk``.
    """
    with calling("norm_all_gather", group) as comm:
        prepared, given = comm.own(Prepared), (x, residual, bias, weight, norm_bias)
        signature = signature_of(prepared, "norm_all_gather", (norm, eps, quantize, algorithm, rows), given)
        if (known := prepared.details(signature)) is not None:
            to: Normed = known.new()
            if prepared.repeat(signature, *given, to.output, to.residual):
                return to
        checked = check("norm_all_gather", x, weight, residual, bias, norm, norm_bias, eps, quantize)
        check_algorithm("norm_all_gather", algorithm, tuple(ALGORITHMS))
        m, each, of_rows = gathered_rows(comm, "norm_all_gather", x, rows)
        compared = "norm_all_gather", *of_rows, f"{x.shape[1]} columns", x.dtype, *checked.form, algorithm
        comm.compare(*compared)
        if why := wrong_shard(comm, x, m, each):
            raise ValueError(f"norm_all_gather: {why}")
        if quantize is not None and algorithm == "fused":
            raise ValueError("norm_all_gather: algorithm fused does not quantise; use unfused")
        to = new_outputs(x, checked, m, x.shape[0])
        if m:
            possible = ALGORITHMS if quantize is None else {"unfused": unfused}
            ways = {name: partial(way, comm, x, checked, to, each) for name, way in possible.items()}
            made = choose(comm, "norm_all_gather", algorithm, x, ways, rows=each)()
            new = new_results(to)
            prepared.keep(signature, made, *compared, details=new, new=new)
        return to


def fused(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed, each: int) -> Launch | None:
    slots, programs = slots_for(comm, "norm_all_gather", 1, x)
    constants = row_constants(x, norm)
    del constants["QUANTUM"]
    grid = min(each, programs)
    return launch(
        norm_all_gather_fused, (grid,), (x, norm.residual, norm.bias, norm.weight, norm.shift, to.output, to.residual),
        slots,
        record("norm_all_gather", grid, (1 + comm.n_pes) * triton.cdiv(each, grid)), *to.output.shape, norm.eps,
        each, **constants, **exchange_constants(comm, x),
    )  # fmt: skip


def unfused(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed, each: int) -> None:
    mine = new_outputs(x, norm, x.shape[0], 0)
    if x.shape[0]:
        local_norm(x, norm, Normed(mine.output, to.residual, mine.scales))
    are_equal = each * comm.n_pes == to.output.shape[0]
    for name, part, whole in (("output", mine.output, to.output), ("scales", mine.scales, to.scales)):
        if part is not None and whole is not None:
            gathered = symmetric_buffer(comm, f"norm_all_gather, {name}", whole.nbytes).view(whole.dtype)
            gathered = gathered.view(whole.shape)
            if are_equal:
                all_gather(gathered, part, group=comm)
            else:
                all_gather_parts(gathered, part, each * whole[0].numel(), group=comm)
            whole.copy_(gathered)


ALGORITHMS: dict[str, Callable[..., Launch | None]] = {"fused": fused, "unfused": unfused}
