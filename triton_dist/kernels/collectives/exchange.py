"""``exchange``, an all-reduce: every PE sends each block to all PEs, and adds up what it receives, without flags.

As ``one_shot``, one latency, but by the sentinel protocol: no flag doubles the bytes, and a block is as long as a
program's registers hold, so that medium tensors take little longer than their bytes. That takes floats of up to 32 bits
and a sum or mean: their words leave a value that says that nothing has arrived (protocols/sentinel.py).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.collectives.exchanged_rows import (
    exchange_begin,
    exchange_end,
    exchange_next,
    piece_of,
    send_rows,
    sum_of_received,
    words_in,
    words_of_program,
)
from triton_dist.kernels.collectives.parts import is_wide, widened
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.members import group_size
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = [
    "TYPES",
    "Cut",
    "cut_of",
    "exchange",
    "fits_exchange",
    "group_of",
    "reduced_block",
    "reserve_exchange",
    "slots_of",
    "store_block",
    "warps_of",
    "why_no_exchange",
]

TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
_SLOT_BYTES = 25 << 20
"""Of all programs of a size, for each message of a round: with more than 4 PEs, or with 4 and long blocks, they are
fewer."""
_WORDS_IN_REGISTERS = 8192
_MOST_ROUNDS = 4
"""Of blocks that a program takes one after the other, where a round has one message, with two half as many: larger
tensors go by larger shares (``push``)."""


class Size(NamedTuple):
    """Blocks of so many words, of up to so many programs, which have slots of their own."""

    words: int
    programs: int


_SIZES = Size(512, 512), Size(512, 1024), Size(2048, 512)
"""Of tensors that such programs take at once, the last of larger ones. Several programs are on a multiprocessor at a
time: others hide what one waits for, better than a longer block would."""


@triton.jit
def reduced_block(
    slots, number, trace, block,
    MEAN: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr,
    MEMBERS: tl.constexpr,
):  # fmt: skip
    """The sum of what all PEs have sent as message 0 of a round, or the mean, float32 ``[1, BLOCK]``."""
    total = sum_of_received(slots, number, 0, trace, block, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
    if MEAN:
        total = total / group_size(MEMBERS)
    return total


@triton.jit
def store_block(output, values, block, n):
    """Store ``values``, ``[1, BLOCK]``, as this block of ``n`` elements, those that there are."""
    BLOCK: tl.constexpr = values.shape[1]
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    values = values.reshape([BLOCK]).to(output.dtype.element_ty)
    if (block + 1) * BLOCK <= n:
        tl.store(output + offsets, values)
    else:
        tl.store(output + offsets, values, mask=offsets < n)


@triton.jit(do_not_specialize=["n"])
def all_reduce_exchange(
    output, input, slots, trace, n,
    MEAN: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr,
    MEMBERS: tl.constexpr, WIDE: tl.constexpr = False,
):  # fmt: skip
    n = widened(n, WIDE)
    slots, number = exchange_begin(slots, 1, words_in(BLOCK, DTYPE), MEMBERS)
    blocks = tl.cdiv(n, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        began = clock(trace)
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        if (block + 1) * BLOCK <= n:  # without a mask elements are loaded and stored in vectors, whatever n is
            values = tl.load(input + offsets)
        else:
            values = tl.load(input + offsets, mask=offsets < n, other=0.0)
        for first in range(0, group_size(MEMBERS), GROUP):
            send_rows(slots, number, 0, first, values[None, :], DTYPE, GROUP, MEMBERS)
        record_event(trace, SEND, block, began)
        total = reduced_block(slots, number, trace, block, MEAN, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
        store_block(output, total, block, n)
        number = exchange_next(slots, number, block + tl.num_programs(0) < blocks)
    exchange_end(slots, number)


def why_no_exchange(dtype: torch.dtype, op: str, algorithm: str = "exchange") -> str | None:
    """Why ``algorithm`` does not reduce tensors of ``dtype`` by ``op``; None if it does."""
    if dtype in TYPES and op in ("sum", "avg"):
        return None
    return f"algorithm {algorithm} takes sum and avg of {', '.join(map(str, TYPES))}, got {op} of {dtype}"


def fits_exchange(n_words: int, n_pes: int, limit: int = NO_LIMIT, messages: int = 1) -> bool:
    """Whether it may be the fastest for ``messages`` of so many words from each PE to each: programs take few blocks
    one after the other."""
    size = _size(n_words, messages)
    return n_words <= _MOST_ROUNDS // messages * size.words * _programs(size, n_pes, limit, messages)


def _size(n_words: int, messages: int) -> Size:
    """With several messages a round blocks are never long: what would take such goes by ``push``."""
    sizes = _SIZES[:2] if messages > 1 else _SIZES
    return next((size for size in sizes if n_words <= size.words * size.programs), sizes[-1])


def _programs(size: Size, n_pes: int, limit: int, messages: int) -> int:
    of_one = 4 * words_of_program(messages, n_pes, size.words)
    most = size.programs if triton_dist.kind() == "gpu" else 4
    return min(most, max(1, messages * _SLOT_BYTES // of_one), limit)


def group_of(words: int, n_pes: int) -> int:
    """Of how many PEs blocks of so many words are in registers at a time."""
    return max(1, min(int(triton.next_power_of_2(n_pes)), _WORDS_IN_REGISTERS // words))


def warps_of(words: int) -> int:
    """Of a program whose blocks have so many words."""
    return 4 if words <= 1024 else 8


def slots_of(comm: Communicator, size: Size, messages: int = 1) -> torch.Tensor:
    """Of rounds of so many messages, and of programs of one size. *Collective* when they are made.

    All operations of a communicator share them whose rounds have as many messages: each round of such an operation
    clears, of every message, the slot of the round before, whichever operation that was of.
    """
    words = _programs(size, comm.n_pes, NO_LIMIT, messages) * words_of_program(messages, comm.n_pes, size.words)
    name = f"exchange, {messages} × {size.words} words, {size.programs} programs"
    return symmetric_workspace(comm, name, words)


def reserve_exchange(comm: Communicator, nbytes: int, messages: int = 1) -> None:
    """Make the slots of messages of up to so many bytes from each PE to each. *Collective.*"""
    largest = _SIZES.index(_size(-(-nbytes // 4), messages))
    for size in _SIZES[: largest + 1]:
        slots_of(comm, size, messages)


class Cut(NamedTuple):
    """How a launch is cut.

    Attributes:
        size: of which it has slots; ``block``: elements of a block.
        blocks: of all programs, from each PE to each; ``programs``: how many there are.
        group: of how many PEs blocks are in registers at a time; ``piece``: words that are polled at a time.
        events: how many of a trace a program records of a message in all rounds, at most.
    """

    size: Size
    block: int
    blocks: int
    programs: int
    group: int
    piece: int
    events: int

    @property
    def words(self) -> int:
        """Of a block."""
        return self.size.words


def cut_of(n: int, per_word: int, n_pes: int, limit: int, messages: int = 1) -> Cut:
    """The cut of ``n`` elements from each PE to each, of which a word holds so many, in each of so many messages."""
    size = _size(triton.cdiv(n, per_word), messages)
    words = size.words
    blocks = triton.cdiv(n, words * per_word)
    group = group_of(words, n_pes)
    programs = min(blocks, _programs(size, n_pes, limit, messages))
    piece = piece_of(words, group, gpu=triton_dist.kind() == "gpu")
    waits = triton.cdiv(n_pes, group) * (1 if piece == words else 1 + words // piece)
    events = (1 + waits) * triton.cdiv(blocks, programs)
    return Cut(size, words * per_word, blocks, programs, group, piece, events)


def exchange(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, op: str = "sum", *, limit: int = NO_LIMIT
) -> Launch | None:
    """Launch it; ``why_no_exchange`` has refused what it does not take. *Collective* the first time, for a length."""
    n, per_word = input.numel(), 4 // input.element_size()
    cut = cut_of(n, per_word, comm.n_pes, limit)
    return launch(
        all_reduce_exchange, (cut.programs,), (output.view(-1), input.view(-1)),
        slots_of(comm, cut.size), record("all_reduce, exchange", cut.programs, cut.events),
        n, op == "avg", TYPES[input.dtype], cut.block, cut.group, cut.piece, comm.members,
        is_wide(n, cut.block), num_warps=warps_of(cut.words),
    )  # fmt: skip
