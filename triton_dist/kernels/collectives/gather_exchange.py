"""``exchange``, an all-gather: every PE sends its part to all PEs, block by block, without flags or barriers.

As :mod:`~triton_dist.kernels.collectives.exchange`, whose slots it uses, but nothing is added up: one latency, and each
byte is sent once. ``push`` has two barriers, of which the first waits until the outputs may be overwritten; here slots
are in between. The sentinel protocol leaves no word of which all elements are -0.0: one of them arrives as 0.0. So it
is for GEMM operands, where the two make no difference.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_dist.kernels.collectives.exchange import cut_of, slots_of, warps_of
from triton_dist.kernels.collectives.exchanged_rows import (
    exchange_begin,
    exchange_end,
    exchange_next,
    receive_words,
    send_words,
)
from triton_dist.kernels.collectives.parts import is_wide, length_of_part, store_in_parts, widened
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.members import group_size, my_rank
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["FLOATS", "gather_exchange", "why_not_gathered"]

FLOATS = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float8_e4m3fn: tl.float8e4nv,
    torch.float8_e5m2: tl.float8e5,
}


@triton.jit
def all_gather_exchange(
    output, input, slots, trace, n, total, row,
    DTYPE: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr, MEMBERS: tl.constexpr,
    WIDE: tl.constexpr = False,
):  # fmt: skip
    N_PES: tl.constexpr = group_size(MEMBERS)
    n = widened(n, WIDE)
    slots, number = exchange_begin(slots, 1, WORDS, MEMBERS)
    own = length_of_part(my_rank(MEMBERS), n, total)
    least = length_of_part(tl.cast(N_PES - 1, tl.int32), n, total)
    blocks = tl.cdiv(n, WORDS)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        began = clock(trace)
        offsets = block * WORDS + tl.arange(0, WORDS)[None, :]
        if (block + 1) * WORDS <= own:  # without a mask words are loaded in vectors, whatever n is
            words = tl.load(input + offsets)
        else:
            words = tl.load(input + offsets, mask=offsets < own, other=0)
        for first in range(0, N_PES, GROUP):
            send_words(slots, number, 0, first, words, DTYPE, GROUP, MEMBERS)
        record_event(trace, SEND, block, began)
        for first in range(0, N_PES, GROUP):
            gathered = receive_words(slots, number, 0, first, trace, block, DTYPE, WORDS, GROUP, PIECE, MEMBERS)
            ranks = first + tl.arange(0, GROUP)[:, None]
            if row is None:
                to = output + (ranks.to(tl.int64) * n + offsets)
            else:  # of each rank's row i the row i of the output
                to = output + ((offsets // row * row) * N_PES + ranks * row + offsets % row)
            store_in_parts(to, gathered, offsets, ranks, (block + 1) * WORDS <= least, n, total, N_PES)
        number = exchange_next(slots, number, block + tl.num_programs(0) < blocks)
    exchange_end(slots, number)


def why_not_gathered(dtype: torch.dtype, part_bytes: int) -> str | None:
    """Why ``exchange`` does not gather parts of so many bytes, of elements of ``dtype``; None if it does."""
    if dtype not in FLOATS:
        return f"algorithm exchange takes {', '.join(map(str, FLOATS))}, got {dtype}"
    if part_bytes % 4:
        return f"algorithm exchange takes parts of whole words of 4 bytes, got {part_bytes} bytes"
    return None


def gather_exchange(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    *,
    dtype: torch.dtype,
    limit: int = NO_LIMIT,
    part: int = 0,
    row: int | None = None,
) -> Launch | None:
    """Launch it, of int32 words whose elements are of ``dtype``. *Collective* the first time, for a length.

    Args:
        part: words of a part, where parts may be shorter; 0: as many as ``input`` has.
        row: the words of a row of matrices that lie side by side in ``output``.
    """
    n = part or input.numel()
    cut = cut_of(n, 1, comm.n_pes, limit)
    return launch(
        all_gather_exchange, (cut.programs,), (output, input),
        slots_of(comm, cut.size), record("all_gather, exchange", cut.programs, cut.events),
        n, output.numel() if part else None, row, FLOATS[dtype], cut.words, cut.group, cut.piece, comm.members,
        is_wide(n, cut.words), num_warps=warps_of(cut.words),
    )  # fmt: skip
