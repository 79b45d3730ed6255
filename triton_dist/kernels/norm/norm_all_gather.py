"""Bias + residual + norm (+ quantisation) + all-gather in one kernel: what ends a sequence-parallel region.

Every PE has a share of the rows. It adds bias and residual, normalises, and sends each row to all PEs from registers,
so that the normalised rows are not read again. ``unfused`` is one kernel for the norm and an all-gather. Quantised rows
are sent as fp8, unfused: half the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import check_algorithm
from triton_dist.kernels.collectives.all_gather import all_gather
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.norm.arguments import (
    Norm,
    Normed,
    Results,
    check,
    exchange_constants,
    new_outputs,
    row_constants,
    signature_of,
    slots_for,
)
from triton_dist.kernels.norm.choice import choose
from triton_dist.kernels.norm.documentation import fused_norm
from triton_dist.kernels.norm.local_norm import local_norm
from triton_dist.kernels.norm.rows import (
    add,
    exchange_begin,
    exchange_end,
    exchange_next,
    load_rows,
    load_vectors,
    normalize,
    receive_rows,
    send_rows,
    store_rows,
    words_in,
)
from triton_dist.kernels.prepared import Launch, Prepared, launch
from triton_dist.kernels.protocols.members import group_size
from triton_dist.kernels.protocols.workspace import symmetric_buffer
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["ALGORITHMS", "norm_all_gather"]


@triton.jit(do_not_specialize=["each"])
def _fused(
    x, residual, bias, weight, shift, out, new_residual, slots, trace, each, H, eps,
    LAYER: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr,
    MEMBERS: tl.constexpr,
):  # fmt: skip
    slots, number = exchange_begin(slots, 1, words_in(BLOCK, DTYPE), MEMBERS)
    for row in range(tl.program_id(0), each, tl.num_programs(0)):
        began = clock(trace)
        rows = row + tl.arange(0, 1)
        there = rows < each
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
            received = receive_rows(slots, number, 0, first, trace, row, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
            store_rows(out, received, ranks * each + row, ranks < group_size(MEMBERS), H)
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
    group: Any = None,
) -> Normed:
    """The norm of every PE's rows ``x`` (+ bias + residual), in the order of PEs; and of this PE's rows that sum.

    Args:
        x: [M, H], this PE's rows, as many on every PE.
        residual: [M, H], of the same rows.
        algorithm: ``fused``, up to 16384 columns, without quantisation; ``unfused``; or ``auto``.
    """
    with calling("norm_all_gather", group) as comm:
        prepared, given = comm.own(Prepared), (x, residual, bias, weight, norm_bias)
        signature = signature_of(prepared, "norm_all_gather", (norm, eps, quantize, algorithm), given)
        if (known := prepared.details(signature)) is not None:
            to: Normed = known.new()
            if prepared.repeat(signature, *given, to.output, to.residual):
                return to
        checked = check("norm_all_gather", x, weight, residual, bias, norm, norm_bias, eps, quantize)
        check_algorithm("norm_all_gather", algorithm, tuple(ALGORITHMS))
        compared = "norm_all_gather", x.shape, x.dtype, *checked.form, algorithm
        comm.compare(*compared)
        if quantize is not None and algorithm == "fused":
            raise ValueError("norm_all_gather: algorithm fused does not quantise; use unfused")
        to = new_outputs(x, checked, comm.n_pes * x.shape[0], x.shape[0])
        if x.shape[0]:
            possible = ALGORITHMS if quantize is None else {"unfused": unfused}
            ways = {name: partial(way, comm, x, checked, to) for name, way in possible.items()}
            made = choose(comm, "norm_all_gather", algorithm, x, ways)()
            prepared.keep(signature, made, *compared, details=Results.of(to))
        return to


def fused(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed) -> Launch | None:
    slots, programs = slots_for(comm, "norm_all_gather", 1, x)
    constants = row_constants(x, norm)
    del constants["QUANTUM"]
    grid = min(x.shape[0], programs)
    return launch(
        _fused, (grid,), (x, norm.residual, norm.bias, norm.weight, norm.shift, to.output, to.residual),
        slots,
        record("norm_all_gather", grid, (1 + comm.n_pes) * triton.cdiv(x.shape[0], grid)), *x.shape, norm.eps,
        **constants, **exchange_constants(comm, x),
    )  # fmt: skip


def unfused(comm: Communicator, x: torch.Tensor, norm: Norm, to: Normed) -> None:
    mine = new_outputs(x, norm, x.shape[0], 0)
    local_norm(x, norm, Normed(mine.output, to.residual, mine.scales))
    for name, part, whole in (("output", mine.output, to.output), ("scales", mine.scales, to.scales)):
        if part is not None and whole is not None:
            gathered = symmetric_buffer(comm, f"norm_all_gather, {name}", whole.nbytes).view(whole.dtype)
            whole.copy_(all_gather(gathered.view(whole.shape), part, group=comm))


ALGORITHMS: dict[str, Callable[..., Launch | None]] = {"fused": fused, "unfused": unfused}
