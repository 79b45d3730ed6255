"""Dispatch of many tokens: the results of ``dispatch.py`` by senders and receivers (``senders.py``).

A sender stores the words of a token's row to the slots of the token on all PEs that have one of its experts. Receivers
first count ids, in parts (``dispatch_counts.py``), and tell every PE the headers of their PE's tokens: of each choice
the expert, the rank among those of its expert, and the weight. Then they store the rows of their own PE that stay, for
which no slot is used, and then take the rows of peers. The loads of the next batches are in flight before this one is
waited for.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.dispatch_counts import (
    PARTS_OF_COUNTS,
    begins_of,
    count_in_parts,
    receive_counts,
    send_tokens_counted,
    words_of_parts,
)
from triton_dist.kernels.moe.results import Dispatched, parts_of
from triton_dist.kernels.moe.rows import look_at, scalar_of, send_words, take_words
from triton_dist.kernels.moe.senders import (
    ARRIVES,
    Plan,
    batch_of_peers,
    block_for,
    goes_to,
    ids_of,
    multiprocessors,
    of_choice,
    role,
    senders_of,
    work_of,
    workspace,
)
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.language._poll import held_once

__all__ = ["constants_of", "dispatch_many", "make_slots", "place_rows", "plan_of", "store_rows"]


# ---- device code, with the constants of dispatch.py


@triton.jit
def _leaves(ids, me, L: tl.constexpr):
    """Which tokens have an expert on another PE: [B, 1]."""
    return (tl.max(((ids >= 0) & (ids // L != me)).to(tl.int32), axis=1) != 0)[:, None]


@triton.jit
def _send_rows(
    x, scales, ids, n_tokens, slots, number, index, programs, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    ROW: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the words of rows to slots of peers."""
    N: tl.constexpr = group_size(MEMBERS)
    SCALE_BLOCK: tl.constexpr = max(1, triton.next_power_of_2(SCALES))
    me = my_rank(MEMBERS)
    half = ((number & 1) * N + me).to(tl.int64) * MAX_TOKENS
    batch = tl.arange(0, B)
    columns = tl.arange(0, BLOCK)[None, :]
    of_scales = tl.arange(0, SCALE_BLOCK)[None, :]
    # Ids are loaded two batches ahead, words one block ahead.
    mine = ids_of(ids, index * B + batch, n_tokens, K, KP)
    next_ids = ids_of(ids, (index + programs) * B + batch, n_tokens, K, KP)
    row = (index * B + batch).to(tl.int64)[:, None]
    words = tl.load(x + row * DATA + columns, mask=_leaves(mine, me, L) & (columns < DATA))
    for i in range(index, tl.cdiv(n_tokens, B), programs):
        row = (i * B + batch).to(tl.int64)[:, None]
        next_row = ((i + programs) * B + batch).to(tl.int64)[:, None]
        later_ids = ids_of(ids, (i + 2 * programs) * B + batch, n_tokens, K, KP)
        leaves = _leaves(mine, me, L)
        if SCALES > 0:
            scale = tl.load(scales + row * SCALES + of_scales, mask=leaves & (of_scales < SCALES))
        place = slots + (half + i * B) * ROW
        at = batch[:, None] * ROW
        for first in tl.static_range(0, DATA, BLOCK):
            offsets = first + columns
            sent = words
            if first + BLOCK < DATA:
                words = tl.load(x + row * DATA + (offsets + BLOCK), mask=leaves & (offsets + BLOCK < DATA))
            else:
                words = tl.load(x + next_row * DATA + columns, mask=_leaves(next_ids, me, L) & (columns < DATA))
            for j in tl.static_range(1, N):
                pe = (me + j) % N
                there = dl.symm_at(place, pe_of(pe, MEMBERS))
                send_words(there + at + offsets, sent, goes_to(mine, pe, L) & (offsets < DATA))
        if SCALES > 0:
            for j in tl.static_range(1, N):
                pe = (me + j) % N
                there = dl.symm_at(place, pe_of(pe, MEMBERS))
                send_words(there + at + (DATA + of_scales), scale, goes_to(mine, pe, L) & (of_scales < SCALES))
        mine = next_ids
        next_ids = later_ids


@triton.jit
def _send_headers(
    ids, weights, n_tokens, counts, sums, slots, number, index, programs, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr,
    TOKENS: tl.constexpr, COUNTERS: tl.constexpr, HEADERS: tl.constexpr,
):  # fmt: skip
    """Tell every PE the experts, ranks and weights of tokens that follow each other, ``HEADERS`` at a time."""
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    half = ((number & 1) * N + me).to(tl.int64) * MAX_TOKENS
    each = tl.cdiv(n_tokens, programs)
    begin = tl.minimum(index * each, n_tokens)
    end = tl.minimum(begin + each, n_tokens)
    pe = pe_of(me, MEMBERS)
    chosen, _ = count_in_parts(ids, n_tokens, begin, sums, number, pe, N, K, KP, L, TOKENS, COUNTERS)
    send_tokens_counted(sums, n_tokens, counts, number, MEMBERS, L, COUNTERS)
    choices = tl.arange(0, KP)
    order = tl.arange(0, HEADERS * KP)
    for first in range(begin, end, HEADERS):
        tokens = first + tl.arange(0, HEADERS)
        mine = ids_of(ids, tokens, end, K, KP)
        there = (tokens < end)[:, None] & (choices < K)[None, :]
        weight = tl.load(weights + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=there, other=0.0)
        # The rank of a choice among those of its expert: earlier ones of these tokens, and those of the tokens before.
        flat = mine.reshape([HEADERS * KP])
        is_expert = (flat >= 0) & (flat < N * L)  # others are a mistake, which the programs that count tell of
        same = (flat[:, None] == flat[None, :]) & (order[:, None] < order[None, :])
        ranks = tl.sum(same.to(tl.int32), axis=0) + tl.gather(chosen, tl.where(is_expert, flat, 0), 0)
        sent = (tokens < end)[:, None] & (choices < KP)[None, :]
        at = tl.arange(0, HEADERS)[:, None] * ROW + AT + choices[None, :]
        for j in tl.static_range(1, N + 1):
            place = dl.symm_at(slots + (half + first) * ROW, pe_of((me + j) % N, MEMBERS)) + at
            send_words(place, mine, sent)
            send_words(place + KP, ranks.reshape([HEADERS, KP]), sent)
            send_words(place + 2 * KP, weight.to(tl.int32, bitcast=True), sent)
        chosen += tl.histogram(flat, chosen.shape[0], mask=is_expert)


@triton.jit
def place_rows(
    header, source, tokens, known, begins, memory, capacity, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Where the rows of tokens belong, by choice, [B, KP], -1 for none; and tell the result so."""
    B: tl.constexpr = header.shape[0]
    LP: tl.constexpr = triton.next_power_of_2(L + 1)
    FIELDS: tl.constexpr = header.shape[1] // KP
    choices = tl.arange(0, KP)
    field = tl.arange(0, FIELDS)[None, :, None]
    words = header.reshape([B, FIELDS, KP])
    expert = tl.sum(tl.where(field == 0, words, 0), axis=1) - my_rank(MEMBERS) * L
    rank = tl.sum(tl.where(field == 1, words, 0), axis=1)
    weight = tl.sum(tl.where(field == 2, words, 0), axis=1)
    here = known[:, None] & (expert >= 0) & (expert < L) & (choices < K)[None, :]
    index = tl.where(here, source * LP + expert, 0).reshape([B * KP])
    position = tl.gather(begins, index, 0).reshape([B, KP]) + rank
    position = tl.where(here & (position < capacity), position, -1)
    message = (source * MAX_TOKENS + tokens)[:, None] * K + choices[None, :]
    is_choice = known[:, None] & (choices < K)[None, :]
    kept = position >= 0
    tl.store(memory + PARTS[4] + message, position, mask=is_choice)
    tl.store(memory + PARTS[5] + message, weight, mask=is_choice)
    tl.store(memory + PARTS[6] + position, weight, mask=kept)
    which = tl.broadcast_to(choices[None, :], [B, KP])
    tl.store(memory + PARTS[6] + tl.cdiv(capacity, 4) * 4 + position, which, mask=kept)
    return position


@triton.jit
def _store_row(out, words, to, offsets, DATA: tl.constexpr):
    if words.shape[0] == 1:
        if to >= 0:
            tl.store(out + to.to(tl.int64) * DATA + offsets, words, mask=offsets < DATA)
    else:
        tl.store(out + to.to(tl.int64) * DATA + offsets, words, mask=(to >= 0) & (offsets < DATA))


@triton.jit
def store_rows(out, words, position, offsets, DATA: tl.constexpr, K: tl.constexpr):
    """Store words of rows, [B, BLOCK], wherever they belong."""
    if K <= 8:
        for k in tl.static_range(K):
            _store_row(out, words, of_choice(position, k), offsets, DATA)
    else:  # which would be long code
        for k in range(K):
            _store_row(out, words, of_choice(position, k), offsets, DATA)


@triton.jit
def _keep_own(
    x, scales, out, out_scales, memory, ids, n_tokens, capacity, begins, slots, number, index, programs,
    MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr,
    B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the rows of this PE's own tokens that stay."""
    N: tl.constexpr = group_size(MEMBERS)
    HEADER: tl.constexpr = held_once(4 * KP, B)
    SCALE_BLOCK: tl.constexpr = max(1, triton.next_power_of_2(SCALES))
    me = my_rank(MEMBERS)
    pe = pe_of(me, MEMBERS)
    batch = tl.arange(0, B)
    columns = tl.arange(0, BLOCK)[None, :]
    of_header = tl.arange(0, HEADER)[None, :]
    of_scales = tl.arange(0, SCALE_BLOCK)[None, :]
    half = ((number & 1) * N + me).to(tl.int64) * MAX_TOKENS
    tokens = index * B + batch
    stays = goes_to(ids_of(ids, tokens, n_tokens, K, KP), me, L)
    next_ids = ids_of(ids, (index + programs) * B + batch, n_tokens, K, KP)
    words = tl.load(x + tokens.to(tl.int64)[:, None] * DATA + columns, mask=stays & (columns < DATA))
    at_header = batch[:, None] * ROW + AT + of_header
    seen = look_at(slots + (half + index * B) * ROW + at_header, (tokens < n_tokens)[:, None] & (of_header < 3 * KP))
    for i in range(index, tl.cdiv(n_tokens, B), programs):
        tokens = i * B + batch
        known = tokens < n_tokens
        next_tokens = (i + programs) * B + batch
        row, next_row = tokens.to(tl.int64)[:, None], next_tokens.to(tl.int64)[:, None]
        later_ids = ids_of(ids, (i + 2 * programs) * B + batch, n_tokens, K, KP)
        if SCALES > 0:
            scale = tl.load(scales + row * SCALES + of_scales, mask=stays & (of_scales < SCALES))
        begin = slots + (half + i * B) * ROW
        place = begin + at_header
        header = take_words(seen, place, known[:, None] & (of_header < 3 * KP), begin + AT, pe, 3 * KP)
        seen = look_at(place + programs * (B * ROW), (next_tokens < n_tokens)[:, None] & (of_header < 3 * KP))
        position = place_rows(
            header, me, tokens, known, begins, memory, capacity, MEMBERS, K, KP, L, MAX_TOKENS, PARTS
        )  # fmt: skip
        next_stays = goes_to(next_ids, me, L)
        for first in tl.static_range(0, DATA, BLOCK):
            offsets = first + columns
            now = tl.where(words == -0x80000000, 0, words)  # the word that does not arrive as it is, either
            if first + BLOCK < DATA:
                words = tl.load(x + row * DATA + (offsets + BLOCK), mask=stays & (offsets + BLOCK < DATA))
            else:
                words = tl.load(x + next_row * DATA + columns, mask=next_stays & (columns < DATA))
            store_rows(out, now, position, offsets, DATA, K)
        if SCALES > 0:
            scale = tl.where(scale == -0x80000000, 0, scale)
            store_rows(out_scales, scale, position, of_scales, SCALES, K)
        stays = next_stays
        next_ids = later_ids


@triton.jit
def _take_rows(
    out, out_scales, memory, capacity, begins, tokens_of, slots, number, begin, programs,
    MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr,
    B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take the rows of peers. The headers of a batch are waited for, and its words looked at, one batch ahead."""
    N: tl.constexpr = group_size(MEMBERS)
    HEADER: tl.constexpr = held_once(4 * KP, B)
    SCALE_BLOCK: tl.constexpr = held_once(max(1, triton.next_power_of_2(SCALES)), B)
    me = my_rank(MEMBERS)
    batch = tl.arange(0, B)
    columns = tl.arange(0, BLOCK)[None, :]
    of_header = tl.arange(0, HEADER)[None, :]
    of_scales = tl.arange(0, SCALE_BLOCK)[None, :]
    half = (number & 1).to(tl.int64) * N
    at = batch[:, None] * ROW
    batches_of = tl.cdiv(tokens_of, B)
    last = tl.max(tl.where(tl.arange(0, tokens_of.shape[0]) == me, 0, batches_of)) * (N - 1)
    # The first batch.
    source, token, there = batch_of_peers(begin, batches_of, me, N, B)
    known = there & (token + batch < scalar_of(tokens_of, source))
    place = slots + ((half + source) * MAX_TOKENS + token) * ROW
    mask = known[:, None] & (of_header < 3 * KP)
    seen_header = look_at(place + at + (AT + of_header), mask)
    pe = pe_of(source, MEMBERS)
    header = take_words(seen_header, place + at + (AT + of_header), mask, place + AT, pe, 3 * KP)
    position = place_rows(
        header, source, token + batch, known, begins, memory, capacity, MEMBERS, K, KP, L, MAX_TOKENS, PARTS
    )  # fmt: skip
    seen = look_at(place + at + columns, (tl.max(position, axis=1) >= 0)[:, None] & (columns < DATA))
    # The headers of the second one.
    source, token, there = batch_of_peers(begin + programs, batches_of, me, N, B)
    known = there & (token + batch < scalar_of(tokens_of, source))
    next_place = slots + ((half + source) * MAX_TOKENS + token) * ROW
    seen_header = look_at(next_place + at + (AT + of_header), known[:, None] & (of_header < 3 * KP))
    for i in range(begin, last, programs):
        this_place, this_position, this_seen, this_pe = place, position, seen, pe
        sent = (tl.max(position, axis=1) >= 0)[:, None]
        if SCALES > 0:
            at_scales = this_place + at + (DATA + of_scales)
            seen_scales = look_at(at_scales, sent & (of_scales < SCALES))
        # The next batch.
        place = next_place
        mask = known[:, None] & (of_header < 3 * KP)
        pe = pe_of(source, MEMBERS)
        header = take_words(seen_header, place + at + (AT + of_header), mask, place + AT, pe, 3 * KP)
        position = place_rows(
            header, source, token + batch, known, begins, memory, capacity, MEMBERS, K, KP, L, MAX_TOKENS, PARTS
        )  # fmt: skip
        seen = look_at(place + at + columns, (tl.max(position, axis=1) >= 0)[:, None] & (columns < DATA))
        source, token, there = batch_of_peers(i + 2 * programs, batches_of, me, N, B)
        known = there & (token + batch < scalar_of(tokens_of, source))
        next_place = slots + ((half + source) * MAX_TOKENS + token) * ROW
        seen_header = look_at(next_place + at + (AT + of_header), known[:, None] & (of_header < 3 * KP))
        # This one.
        for first in tl.static_range(0, DATA, BLOCK):
            offsets = first + columns
            now = this_seen
            if first + BLOCK < DATA:
                this_seen = look_at(this_place + at + (offsets + BLOCK), sent & (offsets + BLOCK < DATA))
            words = take_words(
                now, this_place + at + offsets, sent & (offsets < DATA), this_place + first, this_pe,
                min(BLOCK, DATA - first),
            )  # fmt: skip
            store_rows(out, words, this_position, offsets, DATA, K)
        if SCALES > 0:
            scale = take_words(
                seen_scales, at_scales, sent & (of_scales < SCALES), this_place + DATA, this_pe, SCALES
            )  # fmt: skip
            store_rows(out_scales, scale, this_position, of_scales, SCALES, K)


@triton.jit(do_not_specialize=["n_tokens", "senders"])
def moe_dispatch_many(
    x, scales, ids, weights, out, out_scales, memory, n_tokens, senders, capacity, counts, sums, slots, numbers,
    MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr,
    ALIGN: tl.constexpr, FIXED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTERS: tl.constexpr, HEADERS: tl.constexpr, SMS: tl.constexpr,
):  # fmt: skip
    number = next_number(tl.load(numbers + tl.program_id(0)))
    sends, receives, index, programs = role(senders, SMS)
    if sends:
        _send_rows(
            x, scales, ids, n_tokens, slots, number, index, programs, MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES, ROW,
            B, BLOCK,
        )  # fmt: skip
    if receives:
        _send_headers(
            ids, weights, n_tokens, counts, sums, slots, number, index, programs, MEMBERS, K, KP, L, MAX_TOKENS, AT,
            ROW, TOKENS, COUNTERS, HEADERS,
        )  # fmt: skip
        arrived = receive_counts(counts, number, MEMBERS, L)
        begins, tokens_of = begins_of(arrived, memory, capacity, MEMBERS, L, PARTS, ALIGN, FIXED)
        _keep_own(
            x, scales, out, out_scales, memory, ids, n_tokens, capacity, begins, slots, number, index, programs,
            MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES, AT, ROW, PARTS, B, BLOCK,
        )  # fmt: skip
        # Batches of peers are taken from the program on that would have had the next one of this PE's own.
        begin = (index - tl.cdiv(n_tokens, B) % programs + programs) % programs
        _take_rows(
            out, out_scales, memory, capacity, begins, tokens_of, slots, number, begin, programs, MEMBERS, K, KP,
            L, MAX_TOKENS, DATA, SCALES, AT, ROW, PARTS, B, BLOCK,
        )  # fmt: skip
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + tl.program_id(0), number)


# ---- the host's part


def dispatch_many(
    function: str,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: Routing,
    result: Dispatched,
    buffer: int,
    sm_margin: int,
) -> Launch | None:
    """Dispatch into ``result``."""
    n_scales = 0 if scales is None else scales.shape[1]
    words = x.shape[1] * x.element_size() // 4
    plan = plan_of(function, routing, words, sm_margin)
    constants = constants_of(routing, words, n_scales, plan)
    slots, counts, sums, numbers = _memory(routing, constants, plan, buffer)
    out, out_scales = result.x, result.x if result.scales is None else result.scales
    given = map(in_int32, (x, x if scales is None else scales))
    outputs = map(in_int32, (out, out_scales))
    return launch(
        moe_dispatch_many, (plan.programs,), (*given, routing.ids, routing.weights, *outputs, result.memory),
        routing.n_tokens,
        plan.senders, routing.capacity, counts, sums, slots, numbers, **constants, **plan.options, debug=True,
        sanitize_overflow=False,
    )  # fmt: skip


def make_slots(function: str, routing: Routing, words: int, n_scales: int) -> None:
    """Make the memory of dispatches with this routing's sizes, of rows of so many words. *Collective.*"""
    plan = plan_of(function, routing, words, 0)
    _memory(routing, constants_of(routing, words, n_scales, plan), plan, 0)


def plan_of(function: str, routing: Routing, words: int, sm_margin: int) -> Plan:
    """How rows of so many words are dispatched."""
    n_sms, per_sm = multiprocessors(function, sm_margin)
    work = work_of(routing.members.size, routing.top_k)
    received = work.stays + ARRIVES * work.crosses + routing.top_k  # rows for all choices are stored here
    senders = senders_of(work.leaves + work.crosses, received, n_sms)
    warps, batch = (16, 4) if sm_margin else (4, 1)
    return Plan(n_sms, senders, per_sm, warps, batch, block_for(words, 2048, batch))


def constants_of(routing: Routing, words: int, n_scales: int, plan: Plan) -> dict[str, Any]:
    kp = int(triton.next_power_of_2(routing.top_k))
    pes = int(triton.next_power_of_2(routing.members.size))
    at = words + -(-n_scales // 4) * 4
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "KP": kp, "L": routing.local_experts,
        "MAX_TOKENS": routing.max_tokens, "DATA": words, "SCALES": n_scales, "AT": at, "ROW": at + 4 * kp,
        "PARTS": parts_of(routing)[:9], "ALIGN": routing.align, "FIXED": routing.fixed, "B": plan.batch,
        "BLOCK": plan.block, "TOKENS": max(1, min(128, 1024 * plan.num_warps // (kp * pes))),
        "COUNTERS": max(1, min(PARTS_OF_COUNTS, plan.sms // 2 - 1)), "HEADERS": max(1, min(16, 128 // kp)),
        "SMS": plan.sms,
    }  # fmt: skip


def _memory(routing: Routing, constants: dict[str, Any], plan: Plan, buffer: int) -> tuple[torch.Tensor, ...]:
    """Slots, messages of counts, counts of parts, and numbers of exchanges."""
    assert routing.comm is not None
    row, local = constants["ROW"], routing.local_experts
    what = f"dispatch of {row} words, {local} experts"
    name, slots, counts, numbers = workspace(routing.comm, what, routing, plan, row, local + 1, buffer)
    n_sums = words_of_parts(routing.members.size * local, routing.members.size)
    return slots, counts, symmetric_workspace(routing.comm, f"{name}, sums", n_sums, torch.int64), numbers
