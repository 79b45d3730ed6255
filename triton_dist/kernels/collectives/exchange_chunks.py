"""``exchange``, a reduce-scatter: every PE sends each other its chunk, and adds up what it receives, without flags.

As :mod:`~triton_dist.kernels.collectives.exchange`, whose slots it uses, but with another block for each PE.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_dist.kernels.collectives.exchange import (
    TYPES,
    cut_of,
    reduced_block,
    slots_of,
    store_block,
    warps_of,
    why_no_exchange,
)
from triton_dist.kernels.collectives.exchanged_rows import (
    exchange_begin,
    exchange_end,
    exchange_next,
    send_rows,
    words_in,
)
from triton_dist.kernels.collectives.parts import are_in_part, is_wide, length_of_part, widened
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.members import group_size, my_rank
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["exchange_chunks", "send_chunks"]


@triton.jit
def send_chunks(
    slots, number, message, input, block, part, total,
    DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Send each PE this block of its chunk of ``input``: chunks of ``part`` elements, or shorter, of ``total``."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    least = length_of_part(tl.cast(N_PES - 1, tl.int32), part, total)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    for first in range(0, N_PES, GROUP):
        ranks = tl.minimum(first + tl.arange(0, GROUP), N_PES - 1)[:, None]
        places = ranks.to(tl.int64) * part + offsets[None, :]
        if (block + 1) * BLOCK <= least:  # without a mask elements are loaded in vectors
            values = tl.load(input + places)
        else:
            values = tl.load(input + places, mask=are_in_part(offsets[None, :], ranks, part, total), other=0.0)
        send_rows(slots, number, message, first, values, DTYPE, GROUP, MEMBERS)


@triton.jit
def reduce_scatter_exchange(
    output, input, slots, trace, part, total,
    MEAN: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr,
    MEMBERS: tl.constexpr, WIDE: tl.constexpr = False,
):  # fmt: skip
    part = widened(part, WIDE)
    slots, number = exchange_begin(slots, 1, words_in(BLOCK, DTYPE), MEMBERS)
    own = length_of_part(my_rank(MEMBERS), part, total)
    blocks = tl.cdiv(part, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        began = clock(trace)
        send_chunks(slots, number, 0, input, block, part, total, DTYPE, BLOCK, GROUP, MEMBERS)
        record_event(trace, SEND, block, began)
        sums = reduced_block(slots, number, trace, block, MEAN, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
        store_block(output, sums, block, own)
        number = exchange_next(slots, number, block + tl.num_programs(0) < blocks)
    exchange_end(slots, number)


def exchange_chunks(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    op: str = "sum",
    *,
    limit: int = NO_LIMIT,
    part: int = 0,
) -> Launch | None:
    """Launch it. *Collective* the first time, for a length of blocks.

    Args:
        part: elements of a chunk, where chunks may be shorter; 0: as many as ``output`` has.

    Raises:
        ValueError: of a dtype or an operation that it does not take.
    """
    if why := why_no_exchange(input.dtype, op):
        raise ValueError(f"reduce_scatter: {why}")
    each, per_word = part or output.numel(), 4 // input.element_size()
    cut = cut_of(each, per_word, comm.n_pes, limit)
    return launch(
        reduce_scatter_exchange, (cut.programs,), (output.view(-1), input.view(-1)),
        slots_of(comm, cut.size), record("reduce_scatter, exchange", cut.programs, cut.events),
        each, input.numel() if part else None, op == "avg", TYPES[input.dtype], cut.block, cut.group, cut.piece,
        comm.members, is_wide(each, cut.block), num_warps=warps_of(cut.words),
    )  # fmt: skip
