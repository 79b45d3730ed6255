"""``two_exchanges``, an all-reduce: a reduce-scatter and an all-gather of blocks in one kernel, without flags.

As ``two_shot``, two latencies and 2 (n - 1) / n of the tensor sent, but by the sentinel protocol, as ``exchange``
(exchange.py). Block b of all parts is one round of two messages. A program sends each PE its part's block, adds up what
it receives, in the order of ranks, and sends the sum to all PEs, to its own as well: all store the same words.

The two messages of a round have slots of their own, so nothing orders them. For each of the two the protocol's argument
(protocols/sentinel.py) holds: the message goes from every PE to all; in the round in which a program receives it, it
clears the slot of the round before; ``exchange_next`` orders that before its messages of the next round; and a peer
writes to the slot two rounds later, after it has received this program's message of the round in between.

It may be in place. A program loads the places to which it stores, and no other does; all of its threads have sent what
they loaded before it has received its own message.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_dist.kernels.collectives.exchange import TYPES, cut_of, reduced_block, slots_of, warps_of
from triton_dist.kernels.collectives.exchange_chunks import send_chunks
from triton_dist.kernels.collectives.exchanged_rows import (
    exchange_begin,
    exchange_end,
    exchange_next,
    receive_rows,
    send_rows,
    words_in,
)
from triton_dist.kernels.collectives.parts import is_wide, length_of_part, part_of, store_in_parts, widened
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.members import group_size
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["MESSAGES", "two_exchanges"]

MESSAGES = tl.constexpr(2)
"""Of a round: parts of inputs, and their sums."""


@triton.jit
def all_reduce_two_exchanges(
    output, input, slots, trace, n, part,
    MEAN: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr,
    MEMBERS: tl.constexpr, WIDE: tl.constexpr = False,
):  # fmt: skip
    N_PES: tl.constexpr = group_size(MEMBERS)
    part = widened(part, WIDE)
    slots, number = exchange_begin(slots, MESSAGES, words_in(BLOCK, DTYPE), MEMBERS)
    least = length_of_part(tl.cast(N_PES - 1, tl.int32), part, n)
    blocks = tl.cdiv(part, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        began = clock(trace)
        send_chunks(slots, number, 0, input, block, part, n, DTYPE, BLOCK, GROUP, MEMBERS)
        record_event(trace, SEND, block, began)
        sums = reduced_block(slots, number, trace, block, MEAN, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
        began = clock(trace)
        for first in range(0, N_PES, GROUP):
            send_rows(slots, number, 1, first, sums, DTYPE, GROUP, MEMBERS)
        record_event(trace, SEND, block, began)
        offsets = block * BLOCK + tl.arange(0, BLOCK)[None, :]
        for first in range(0, N_PES, GROUP):
            rows = receive_rows(slots, number, 1, first, trace, block, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
            ranks = first + tl.arange(0, GROUP)[:, None]
            to, rows = output + (ranks.to(tl.int64) * part + offsets), rows.to(output.dtype.element_ty)
            store_in_parts(to, rows, offsets, ranks, (block + 1) * BLOCK <= least, part, n, N_PES)
        number = exchange_next(slots, number, block + tl.num_programs(0) < blocks)
    exchange_end(slots, number)


def two_exchanges(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, op: str = "sum", *, limit: int = NO_LIMIT
) -> Launch | None:
    """Launch it; ``why_no_exchange`` has refused what it does not take. *Collective* the first time, for a length."""
    n, per_word, messages = input.numel(), 4 // input.element_size(), int(MESSAGES.value)
    part = part_of(n, comm.n_pes)
    cut = cut_of(part, per_word, comm.n_pes, limit, messages)
    return launch(
        all_reduce_two_exchanges, (cut.programs,), (output.view(-1), input.view(-1)),
        slots_of(comm, cut.size, messages), record("all_reduce, two_exchanges", cut.programs, messages * cut.events),
        n, part, op == "avg", TYPES[input.dtype], cut.block, cut.group, cut.piece, comm.members,
        is_wide(part, cut.block), num_warps=warps_of(cut.words),
    )  # fmt: skip
