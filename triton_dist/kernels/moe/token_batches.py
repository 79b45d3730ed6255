"""Which tokens go to which PEs, by batches of 8: what PEs tell each other before rows move (``tokens.py``).

A PE sends a token once to each PE that has one of its experts, and a receiver's rows are in the order of sources and
tokens. So all that a receiver must know of a source is which of its tokens come: a bit for each. The row of the first
token of a batch is

    rows from lower ranks + rows of the parts of its source in front of it + rows of its part's batches in front of it

of which the source counts the last. Bits and row are one word of a batch, in the LL protocol.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

import triton_dist.language as dl
from triton_dist.kernels.dependent_launch import DependentLaunches
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.rows import scalar_of
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.ll import next_number, wait_for_flags
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of, stride_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.world.current import current_world

__all__ = [
    *("BATCH", "MOST_ROWS", "WARPS", "Tables", "batch_slots", "constants_of", "exchange_batches", "moe_token_batches"),
    *("header_words", "tables_of"),
]

BATCH = 8
"""Tokens of a batch: the bits of a byte, and of each of up to 8 PEs the bytes of a word of 64 bits."""

MOST_ROWS = 1 << 23
"""Of a PE: a row and the bits of a batch share 31 bits."""

WARPS = 8

_PARTS = 8
"""Programs for each rank, at most."""


class Tables(NamedTuple):
    """Where the parts of the memory of a result begin, in words, and how many words and batches it has.

    Attributes:
        tokens_of: int32 [n_pes], how many tokens each source has. rows_of: int32 [n_pes + 1], how many of them come
            here, and all together.
        goes: int64 [batches]; byte r has the bits of the tokens that this PE sends to rank r.
        comes: int32 [n_pes, batches], the first row of a batch of a source, times 256, plus the bits of what comes.
        sends: int32 [n_pes, batches], the first row of a batch of this PE on each PE, times 256, plus the bits of what
            goes there; of dispatches that store to results of peers (``tokens_direct_hopper.py``).
    """

    tokens_of: int
    rows_of: int
    goes: int
    comes: int
    words: int
    batches: int
    sends: int


def tables_of(routing: Routing) -> Tables:
    n_pes, batches = routing.members.size, -(-routing.max_tokens // BATCH)
    rows_of = -(-n_pes // 4) * 4
    goes = rows_of + -(-(n_pes + 1) // 4) * 4
    comes = goes + -(-2 * batches // 4) * 4
    sends = comes + n_pes * batches
    return Tables(0, rows_of, goes, comes, sends + n_pes * batches, batches, sends)


def header_words(top_k: int, n_scales: int, with_ids: bool) -> int:
    """Words of what goes beside a row (``token_headers.py``): scales, ids and weights; a multiple of 16 bytes."""
    return -(-(n_scales + 2 * top_k * with_ids) // 4) * 4


@triton.jit
def _tell(
    ids, memory, begin, end, n_tokens, place, part, number, rank, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    N: tl.constexpr, TABLES: tl.constexpr, TOKENS: tl.constexpr, PARTS: tl.constexpr, DIRECT: tl.constexpr,
):  # fmt: skip
    """Tell ``rank`` which of the tokens of a part go there: how many, of how many of all parts, and for each batch a
    word. With ``DIRECT`` keep these words, too. Returns how many go there."""
    EACH: tl.constexpr = TOKENS // 8
    choices = tl.arange(0, KP)
    order = tl.arange(0, 8)[None, :]
    flag = number.to(tl.int64) << 32
    goes = (memory + TABLES[2]).to(tl.pointer_type(tl.int8), bitcast=True)
    rows = 0
    for first in range(begin, end, TOKENS):
        tokens = first + tl.arange(0, TOKENS)
        mask = (tokens < end)[:, None] & (choices < K)[None, :]
        given = tl.load(ids + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=mask, other=-1)
        assert (given >= -1) & (given < N * L), "dispatch_tokens: an expert id is not in [-1, num_experts)"
        mine = given.to(tl.int32)
        there = tl.max(((mine >= 0) & (mine // L == rank)).to(tl.int32), axis=1).reshape([EACH, 8])
        bits = tl.sum(there << order, axis=1)
        count = tl.sum(there, axis=1)
        before = rows + tl.cumsum(count, axis=0) - count
        batches = first // 8 + tl.arange(0, EACH)
        known = batches * 8 < end
        tl.store(goes + batches * 8 + rank, bits.to(tl.int8), mask=known)
        tl.store(place + 2 * PARTS + batches, flag | (before * 256 + bits).to(tl.int64), mask=known)
        if DIRECT:
            tl.store(memory + TABLES[6] + rank * TABLES[5] + batches, before * 256 + bits, mask=known)
        rows += tl.sum(count, axis=0)
    tl.store(place + 2 * part, flag | tl.cast(rows, tl.int64))
    tl.store(place + 2 * part + 1, flag | n_tokens.to(tl.int64))
    return rows


@triton.jit
def _rows_in_front(counts, rows, rank, part, number, STEP: tl.constexpr, PARTS: tl.constexpr, MEMBERS: tl.constexpr):
    """Tell every PE how many rows of this PE's part go to ``rank``, and be told by every PE of its parts: how many rows
    there are in front of those on ``rank``.

    ``counts`` are int64 [n_pes, n_pes, parts], of sources and ranks, with ``STEP`` words from source to source.
    """
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    message = (number.to(tl.int64) << 32) | tl.cast(rows, tl.int64)
    for pe in tl.static_range(N):
        tl.store(dl.symm_at(counts + me * STEP + rank * PARTS + part, pe_of(pe, MEMBERS)), message)
    ranks = tl.arange(0, triton.next_power_of_2(N))
    parts = tl.arange(0, PARTS)[None, :]
    mask = (ranks < N)[:, None] & (parts < PARTS)
    first = counts + rank * PARTS
    told = wait_for_flags(
        first + ranks[:, None] * STEP + parts, mask, number, first, pe_of(0, MEMBERS), N, PARTS, STEP,
        stride_of(MEMBERS),
    )  # fmt: skip
    in_front = (ranks < me)[:, None] | ((ranks == me)[:, None] & (parts < part))
    return tl.sum(tl.sum(tl.where(in_front, told, 0), axis=1), axis=0)


@triton.jit(do_not_specialize=["n_tokens", "capacity"])
def moe_token_batches(
    ids, memory, n_tokens, capacity, messages, numbers, MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr,
    L: tl.constexpr, TABLES: tl.constexpr, TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr,
    DEPENDENT: tl.constexpr, DIRECT: tl.constexpr,
):  # fmt: skip
    """Some programs for each rank tell it which tokens go there, a part each, and are told by it which come; with
    ``DIRECT`` also where they go there."""
    if DEPENDENT:
        gdc_launch_dependents()  # the kernel that moves tokens waits for this one's end before it reads the tables
    N: tl.constexpr = group_size(MEMBERS)
    BATCHES: tl.constexpr = TABLES[5]
    STEP: tl.constexpr = BATCHES + 2 * PARTS + N * PARTS * DIRECT
    program, me = tl.program_id(0), my_rank(MEMBERS)
    rank, part = program // PARTS, program % PARTS
    number = next_number(tl.load(numbers + program))
    half = messages + (number & 1) * (N * STEP)
    place = dl.symm_at(half + me * STEP, pe_of(rank, MEMBERS))
    n_tokens = tl.cast(n_tokens, tl.int32)
    each = tl.cdiv(tl.cdiv(n_tokens, 8), PARTS) * 8
    begin = tl.minimum(part * each, n_tokens)
    end = tl.minimum(begin + each, n_tokens)
    sent = _tell(
        ids, memory, begin, end, n_tokens, place, part, number, rank, K, KP, L, N, TABLES, TOKENS, PARTS, DIRECT
    )
    if DIRECT:
        row = _rows_in_front(half + 2 * PARTS + BATCHES, sent, rank, part, number, STEP, PARTS, MEMBERS)
        sends = memory + TABLES[6] + rank * BATCHES
        tl.debug_barrier()  # all threads have stored the words of their batches
        for first in range(begin, end, 8 * WORDS):
            batches = first // 8 + tl.arange(0, WORDS)
            known = batches * 8 < end
            tl.store(sends + batches, tl.load(sends + batches, mask=known, other=0) + row * 256, mask=known)
    ranks = tl.arange(0, triton.next_power_of_2(N))
    columns = tl.arange(0, 2 * PARTS)[None, :]
    mask = (ranks < N)[:, None] & (columns < 2 * PARTS)
    places = half + ranks[:, None] * STEP + columns
    told = wait_for_flags(places, mask, number, half, pe_of(0, MEMBERS), N, 2 * PARTS, STEP, stride_of(MEMBERS))
    rows = tl.where(columns % 2 == 0, told, 0)
    rows_of = tl.sum(rows, axis=1)
    tokens_of = tl.max(tl.where(columns % 2 == 1, told, 0), axis=1)
    total = tl.sum(rows_of, axis=0)
    assert total <= capacity, "dispatch_tokens: more rows arrive than capacity"
    if program == 0:
        tl.store(memory + TABLES[0] + ranks, tokens_of, mask=ranks < N)
        tl.store(memory + TABLES[1] + ranks, rows_of, mask=ranks < N)
        tl.store(memory + TABLES[1] + N, total)
    in_front = (ranks < rank)[:, None] | ((ranks == rank)[:, None] & (columns < 2 * part))
    row = tl.sum(tl.sum(tl.where(in_front, rows, 0), axis=1), axis=0)
    theirs = tl.cdiv(scalar_of(tokens_of, rank), 8)
    each = tl.cdiv(theirs, PARTS)
    end = tl.minimum(part * each + each, theirs)
    slot = half + rank * STEP + 2 * PARTS
    for first in range(part * each, end, WORDS):
        batches = first + tl.arange(0, WORDS)
        left = tl.minimum(end - first, WORDS)
        words = wait_for_flags(
            slot + batches, batches < end, number, slot + first, pe_of(rank, MEMBERS), 1, left, 0
        )  # fmt: skip
        tl.store(memory + TABLES[3] + rank * BATCHES + batches, words + row * 256, mask=batches < end)
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + program, number)


class _Slots(NamedTuple):
    """messages: symmetric int64, [2, n_pes, 2 * parts + batches], of direct dispatches with n_pes * parts words more.
    numbers: int32 [programs], of the last exchange."""

    messages: torch.Tensor
    numbers: torch.Tensor


def batch_slots(routing: Routing, buffer: int, *, direct: bool = False) -> _Slots:
    """*Collective* the first time."""
    assert routing.comm is not None
    n_pes, batches, parts = routing.members.size, tables_of(routing).batches, _parts_of(routing)
    name = f"moe batches of tokens: {batches} batches, {parts} parts, buffer {buffer}{', direct' if direct else ''}"
    words = batches + 2 * parts + n_pes * parts * direct
    messages = symmetric_workspace(routing.comm, name, 2 * n_pes * words, torch.int64)
    return _Slots(messages, symmetric_workspace(routing.comm, f"{name}, numbers", n_pes * parts))


def _parts_of(routing: Routing) -> int:
    """How many programs there are for each rank, a power of two; all together no more than ``num_sms``, if possible."""
    share = routing.num_sms // routing.members.size
    return 1 << max(min(share, _PARTS), 1).bit_length() - 1


def exchange_batches(routing: Routing, memory: torch.Tensor, buffer: int = 0, *, direct: bool = False) -> Launch | None:
    """Fill the tables of a result, that of where rows go if it is ``direct``. *Collective* the first time."""
    of, programs = batch_slots(routing, buffer, direct=direct), routing.members.size * _parts_of(routing)
    return launch(
        moe_token_batches, (programs,), (routing.ids, memory), routing.n_tokens, routing.capacity, of.messages,
        of.numbers, **constants_of(routing, direct=direct), num_warps=WARPS, debug=True, sanitize_overflow=False,
    )  # fmt: skip


def constants_of(routing: Routing, *, direct: bool = False) -> dict[str, Any]:
    kp, parts = int(triton.next_power_of_2(routing.top_k)), _parts_of(routing)
    most = int(triton.next_power_of_2(max(-(-routing.max_tokens // parts), BATCH)))
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "KP": kp, "L": routing.local_experts,
        "TABLES": tables_of(routing), "TOKENS": min(most, 8192 // kp), "WORDS": min(most // BATCH, 512), "PARTS": parts,
        "DEPENDENT": begins_early(), "DIRECT": direct,
    }  # fmt: skip


def begins_early() -> bool:
    """Whether the kernel behind this one begins while it runs (``dependent_launch.py``)."""
    return current_world().own(DependentLaunches).possible
