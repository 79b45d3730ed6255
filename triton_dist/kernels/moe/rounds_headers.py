"""Headers and scales of a dispatch whose rows move by TMA: a kernel in front, which leaves the tables of the result.

Each program counts a part of the ids (``dispatch_counts.py``), sends the headers and scales of as many tokens as any
other, and takes those that the program of its number sends on every PE. Slots are by token, of words in the sentinel
protocol, double-buffered by exchange as ``rows.py`` says: a slot of 24 words of header for 8 choices, and of scales.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.dispatch_counts import (
    begins_of,
    count_in_parts,
    receive_counts,
    send_tokens_counted,
    words_of_parts,
)
from triton_dist.kernels.moe.dispatch_many import place_rows, store_rows
from triton_dist.kernels.moe.results import Dispatched, parts_of
from triton_dist.kernels.moe.rows import look_at, scalar_of, send_words, take_words
from triton_dist.kernels.moe.senders import goes_to, ids_of
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.language._poll import held_once

_COUNTERS = 16
"""How many programs count ids."""

_WARPS = 8

__all__ = ["constants_of_headers", "exchange_headers", "header_slots", "moe_dispatch_rounds_headers"]


@triton.jit
def _send(
    scales, ids, weights, n_tokens, begin, end, chosen, slots, number, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr,
    ROW: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Tell every PE the experts, ranks and weights of tokens, and its tokens' scales, B tokens at a time."""
    N: tl.constexpr = group_size(MEMBERS)
    SCALE_BLOCK: tl.constexpr = max(1, triton.next_power_of_2(SCALES))
    me = my_rank(MEMBERS)
    half = ((number & 1) * N + me).to(tl.int64) * MAX_TOKENS
    choices = tl.arange(0, KP)
    order = tl.arange(0, B * KP)
    columns = tl.arange(0, SCALE_BLOCK)[None, :]
    for first in range(begin, end, B):
        tokens = first + tl.arange(0, B)
        mine = ids_of(ids, tokens, end, K, KP)
        there = (tokens < end)[:, None] & (choices < K)[None, :]
        weight = tl.load(weights + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=there, other=0.0)
        if SCALES > 0:
            given = (tokens < end)[:, None] & (columns < SCALES)
            scale = tl.load(scales + tokens.to(tl.int64)[:, None] * SCALES + columns, mask=given)
        # The rank of a choice among those of its expert: earlier ones of these tokens, and those of the tokens before.
        flat = mine.reshape([B * KP])
        is_expert = (flat >= 0) & (flat < N * L)  # others are a mistake, which the programs that count tell of
        same = (flat[:, None] == flat[None, :]) & (order[:, None] < order[None, :])
        ranks = tl.sum(same.to(tl.int32), axis=0) + tl.gather(chosen, tl.where(is_expert, flat, 0), 0)
        sent = (tokens < end)[:, None] & (choices < KP)[None, :]
        row = tl.arange(0, B)[:, None] * ROW
        at = row + AT + choices[None, :]
        for j in tl.static_range(1, N + 1):
            pe = (me + j) % N
            place = dl.symm_at(slots + (half + first) * ROW, pe_of(pe, MEMBERS))
            send_words(place + at, mine, sent)
            send_words(place + at + KP, ranks.reshape([B, KP]), sent)
            send_words(place + at + 2 * KP, weight.to(tl.int32, bitcast=True), sent)
            if SCALES > 0:
                send_words(place + row + columns, scale, given & goes_to(mine, pe, L))
        chosen += tl.histogram(flat, chosen.shape[0], mask=is_expert)


@triton.jit(do_not_specialize=["n_tokens"])
def moe_dispatch_rounds_headers(
    scales, ids, weights, out_scales, memory, n_tokens, capacity, counts, sums, slots, numbers, MEMBERS: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, SCALES: tl.constexpr,
    AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr, FIXED: tl.constexpr,
    TOKENS: tl.constexpr, COUNTERS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    HEADER: tl.constexpr = held_once(4 * KP, B)
    SCALE_BLOCK: tl.constexpr = held_once(max(1, triton.next_power_of_2(SCALES)), B)
    program, programs = tl.program_id(0), tl.num_programs(0)
    me = my_rank(MEMBERS)
    number = next_number(tl.load(numbers + program))
    each = tl.cdiv(n_tokens, programs)
    begin = tl.minimum(program * each, n_tokens)
    end = tl.minimum(begin + each, n_tokens)
    chosen, _ = count_in_parts(ids, n_tokens, begin, sums, number, pe_of(me, MEMBERS), N, K, KP, L, TOKENS, COUNTERS)
    send_tokens_counted(sums, n_tokens, counts, number, MEMBERS, L, COUNTERS)
    _send(
        scales, ids, weights, n_tokens, begin, end, chosen, slots, number, MEMBERS, K, KP, L, MAX_TOKENS, SCALES, AT,
        ROW, B,
    )  # fmt: skip
    arrived = receive_counts(counts, number, MEMBERS, L)
    begins, tokens_of = begins_of(arrived, memory, capacity, MEMBERS, L, PARTS, ALIGN, FIXED)
    row = tl.arange(0, B)[:, None] * ROW
    of_header = tl.arange(0, HEADER)[None, :]
    columns = tl.arange(0, SCALE_BLOCK)[None, :]
    for i in range(N):
        source = (me - i + N) % N
        pe = pe_of(source, MEMBERS)
        half = ((number & 1) * N + source).to(tl.int64) * MAX_TOKENS
        theirs = scalar_of(tokens_of, source)
        each = tl.cdiv(theirs, programs)
        begin = tl.minimum(program * each, theirs)
        end = tl.minimum(begin + each, theirs)
        for first in range(begin, end, B):
            tokens = first + tl.arange(0, B)
            known = tokens < end
            slot = slots + (half + first) * ROW
            place = slot + row + AT + of_header
            mask = known[:, None] & (of_header < 3 * KP)
            header = take_words(look_at(place, mask), place, mask, slot + AT, pe, 3 * KP)
            position = place_rows(
                header, source, tokens, known, begins, memory, capacity, MEMBERS, K, KP, L, MAX_TOKENS, PARTS
            )  # fmt: skip
            if SCALES > 0:
                mask = (tl.max(position, axis=1) >= 0)[:, None] & (columns < SCALES)
                scale = take_words(look_at(slot + row + columns, mask), slot + row + columns, mask, slot, pe, SCALES)
                store_rows(out_scales, scale, position, columns, SCALES, K)
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + program, number)


def constants_of_headers(routing: Routing, n_scales: int, programs: int, num_warps: int, tokens: int) -> dict[str, Any]:
    kp = int(triton.next_power_of_2(routing.top_k))
    pes = int(triton.next_power_of_2(routing.members.size))
    at = -(-n_scales // 4) * 4
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "KP": kp, "L": routing.local_experts,
        "MAX_TOKENS": routing.max_tokens, "SCALES": n_scales, "AT": at, "ROW": at + 4 * kp,
        "PARTS": parts_of(routing)[:9], "ALIGN": routing.align, "FIXED": routing.fixed,
        "TOKENS": max(1, min(128, 1024 * num_warps // (kp * pes))), "COUNTERS": min(_COUNTERS, programs),
        "B": max(1, min(tokens, 128 // kp, 2048 // int(triton.next_power_of_2(max(n_scales, 1))))),
    }  # fmt: skip


class _Slots(NamedTuple):
    """The slots of headers and scales, and the constants of launches that use them.

    Attributes:
        slots: symmetric int32, [2, n_pes, max_tokens] of ``ROW`` words. counts, sums: of ``dispatch_counts.py``.
        numbers: int32 [programs], of the last exchange.
    """

    slots: torch.Tensor
    counts: torch.Tensor
    sums: torch.Tensor
    numbers: torch.Tensor
    constants: dict[str, Any]


def header_slots(routing: Routing, n_scales: int, programs: int, tokens: int, buffer: int) -> _Slots:
    """*Collective* the first time."""
    comm = routing.comm
    assert comm is not None
    constants = constants_of_headers(routing, n_scales, programs, _WARPS, tokens)
    n_pes, local, row, batch = routing.members.size, routing.local_experts, constants["ROW"], constants["B"]
    name = (
        f"moe headers: {row} words, {routing.max_tokens} tokens, {local} experts, {programs} programs, buffer {buffer}"
    )
    numbers = -(-programs // 32) * 32
    # A batch may end behind the last token.
    memory = symmetric_workspace(comm, name, numbers + (2 * n_pes * routing.max_tokens + batch) * row)
    counts = symmetric_workspace(comm, f"{name}, counts", 2 * n_pes * (local + 1), torch.int64)
    sums = symmetric_workspace(comm, f"{name}, sums", words_of_parts(n_pes * local, n_pes), torch.int64)
    return _Slots(memory[numbers:], counts, sums, memory[:programs], constants)


def exchange_headers(
    scales: torch.Tensor | None, routing: Routing, result: Dispatched, programs: int, tokens: int, buffer: int = 0
) -> Launch | None:
    """Exchange counts, headers and scales: all of ``result`` but its rows. *Collective* the first time."""
    of = header_slots(routing, 0 if scales is None else scales.shape[1], programs, tokens, buffer)
    given = routing.weights if scales is None else scales
    out_scales = result.memory if result.scales is None else in_int32(result.scales)
    return launch(
        moe_dispatch_rounds_headers, (programs,),
        (in_int32(given), routing.ids, routing.weights, out_scales, result.memory), routing.n_tokens,
        routing.capacity, of.counts, of.sums, of.slots, of.numbers, **of.constants, num_warps=_WARPS,
        debug=True, sanitize_overflow=False,
    )  # fmt: skip
