"""Dispatch and combine of many tokens by senders and receivers on multiprocessors of their own.

Stores to peers wait for the link in the order of a multiprocessor's memory accesses, so a program that copies rows
beside one that sends waits for the link as well. Here some multiprocessors do nothing but send, and the others do all
that is local: they count ids, store rows that stay, and take rows as they arrive. A sender waits for nothing, not even
for counts: a row goes to the slot of its token. Its header, which says where it belongs, comes from a receiver's
program of the sending PE.

Rows and headers use the sentinel protocol, counts the LL protocol, and slots are used again as ``rows.py`` says. What a
result says of rows is by source and token, as of rounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import sms
from triton_dist.kernels.moe.arguments import Routing, check_routing, check_rows, check_scales
from triton_dist.kernels.moe.dispatch_counts import (
    PARTS_OF_COUNTS,
    begins_of,
    count_in_parts,
    receive_counts,
    send_tokens_counted,
    words_of_parts,
)
from triton_dist.kernels.moe.results import Dispatched, parts_of, result_of
from triton_dist.kernels.moe.rows import element, look_at, scalar_of, send_words, take_words, word_of
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.language._poll import held_once, no_polls, poll

__all__ = ["Plan", "combine", "dispatch", "launch_combine", "launch_dispatch"]

_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
_REGISTERS = 65536
"""Of a multiprocessor."""


class Plan(NamedTuple):
    """How the work is shared out.

    Attributes:
        sms: how many multiprocessors work; of which ``senders`` send. per_sm: programs of each.
        batch, block: how many rows, and words of each, a program moves at a time.
        quiet: whether a program polls one word of a row until it is there, and only then all others.
    """

    sms: int
    senders: int
    per_sm: int = 4
    num_warps: int = 4
    batch: int = 1
    block: int = 2048
    quiet: bool = False

    @property
    def options(self) -> dict[str, int]:
        registers = min(_REGISTERS // (32 * self.num_warps * self.per_sm) // 8 * 8, 255)
        return {"num_warps": self.num_warps, "maxnreg": registers}


# ---- device code, with the constants of dispatch.py. B rows are moved at a time, BLOCK words of each.


@triton.jit
def _role(senders, SMS: tl.constexpr):
    """Whether this program sends, its number among those that do the same, and how many these are.

    The first programs and the last one do not send: they count ids.
    """
    program = tl.program_id(0)
    sm, layer, layers = program % SMS, program // SMS, tl.num_programs(0) // SMS
    first = SMS - 1 - senders
    sends = (sm >= first) & (sm < SMS - 1)
    receiver = layer * (SMS - senders) + tl.minimum(sm, first)
    index = tl.where(sends, layer * senders + sm - first, receiver)
    return sends, index, tl.where(sends, senders, SMS - senders) * layers


@triton.jit
def _ids_of(ids, tokens, n_tokens, K: tl.constexpr, KP: tl.constexpr):
    choices = tl.arange(0, KP)
    mask = (tokens < n_tokens)[:, None] & (choices < K)[None, :]
    return tl.load(ids + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=mask, other=-1).to(tl.int32)


@triton.jit
def _goes_to(ids, pe, L: tl.constexpr):
    """Which tokens of a block of ids have an expert on ``pe``: [B, 1]."""
    return (tl.max((tl.where(ids >= 0, ids // L, -1) == pe).to(tl.int32), axis=1) != 0)[:, None]


@triton.jit
def _leaves(ids, me, L: tl.constexpr):
    """Which tokens have an expert on another PE: [B, 1]."""
    return (tl.max(((ids >= 0) & (ids // L != me)).to(tl.int32), axis=1) != 0)[:, None]


@triton.jit
def _of_choice(block, k: tl.constexpr):
    """Column k of a block: [B, 1], or a number if there is one row."""
    KP: tl.constexpr = block.shape[1]
    if block.shape[0] == 1:
        return scalar_of(block.reshape([KP]), k)
    else:
        return tl.sum(tl.where((tl.arange(0, KP) == k)[None, :], block, 0), axis=1)[:, None]


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
    mine = _ids_of(ids, index * B + batch, n_tokens, K, KP)
    next_ids = _ids_of(ids, (index + programs) * B + batch, n_tokens, K, KP)
    row = (index * B + batch).to(tl.int64)[:, None]
    words = tl.load(x + row * DATA + columns, mask=_leaves(mine, me, L) & (columns < DATA))
    for i in range(index, tl.cdiv(n_tokens, B), programs):
        row = (i * B + batch).to(tl.int64)[:, None]
        next_row = ((i + programs) * B + batch).to(tl.int64)[:, None]
        later_ids = _ids_of(ids, (i + 2 * programs) * B + batch, n_tokens, K, KP)
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
                send_words(there + at + offsets, sent, _goes_to(mine, pe, L) & (offsets < DATA))
        if SCALES > 0:
            for j in tl.static_range(1, N):
                pe = (me + j) % N
                there = dl.symm_at(place, pe_of(pe, MEMBERS))
                send_words(there + at + (DATA + of_scales), scale, _goes_to(mine, pe, L) & (of_scales < SCALES))
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
        mine = _ids_of(ids, tokens, end, K, KP)
        there = (tokens < end)[:, None] & (choices < K)[None, :]
        weight = tl.load(weights + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=there, other=0.0)
        # The rank of a choice among those of its expert: earlier ones of these tokens, and those of the tokens before.
        flat = mine.reshape([HEADERS * KP])
        same = (flat[:, None] == flat[None, :]) & (order[:, None] < order[None, :])
        ranks = tl.sum(same.to(tl.int32), axis=0) + tl.gather(chosen, tl.maximum(flat, 0), 0)
        sent = (tokens < end)[:, None] & (choices < KP)[None, :]
        at = tl.arange(0, HEADERS)[:, None] * ROW + AT + choices[None, :]
        for j in tl.static_range(1, N + 1):
            place = dl.symm_at(slots + (half + first) * ROW, pe_of((me + j) % N, MEMBERS)) + at
            send_words(place, mine, sent)
            send_words(place + KP, ranks.reshape([HEADERS, KP]), sent)
            send_words(place + 2 * KP, weight.to(tl.int32, bitcast=True), sent)
        chosen += tl.histogram(flat, chosen.shape[0], mask=flat >= 0)


@triton.jit
def _place(
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
def _store_rows(out, words, position, offsets, DATA: tl.constexpr, K: tl.constexpr):
    """Store words of rows, [B, BLOCK], wherever they belong."""
    for k in tl.static_range(K):
        to = _of_choice(position, k)
        if position.shape[0] == 1:
            if to >= 0:
                tl.store(out + to.to(tl.int64) * DATA + offsets, words, mask=offsets < DATA)
        else:
            tl.store(out + to.to(tl.int64) * DATA + offsets, words, mask=(to >= 0) & (offsets < DATA))


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
    stays = _goes_to(_ids_of(ids, tokens, n_tokens, K, KP), me, L)
    next_ids = _ids_of(ids, (index + programs) * B + batch, n_tokens, K, KP)
    words = tl.load(x + tokens.to(tl.int64)[:, None] * DATA + columns, mask=stays & (columns < DATA))
    at_header = batch[:, None] * ROW + AT + of_header
    seen = look_at(slots + (half + index * B) * ROW + at_header, (tokens < n_tokens)[:, None] & (of_header < 3 * KP))
    for i in range(index, tl.cdiv(n_tokens, B), programs):
        tokens = i * B + batch
        known = tokens < n_tokens
        next_tokens = (i + programs) * B + batch
        row, next_row = tokens.to(tl.int64)[:, None], next_tokens.to(tl.int64)[:, None]
        later_ids = _ids_of(ids, (i + 2 * programs) * B + batch, n_tokens, K, KP)
        if SCALES > 0:
            scale = tl.load(scales + row * SCALES + of_scales, mask=stays & (of_scales < SCALES))
        begin = slots + (half + i * B) * ROW
        place = begin + at_header
        header = take_words(seen, place, known[:, None] & (of_header < 3 * KP), begin + AT, pe, 3 * KP)
        seen = look_at(place + programs * (B * ROW), (next_tokens < n_tokens)[:, None] & (of_header < 3 * KP))
        position = _place(
            header, me, tokens, known, begins, memory, capacity, MEMBERS, K, KP, L, MAX_TOKENS, PARTS
        )  # fmt: skip
        next_stays = _goes_to(next_ids, me, L)
        for first in tl.static_range(0, DATA, BLOCK):
            offsets = first + columns
            now = tl.where(words == -0x80000000, 0, words)  # the word that does not arrive as it is, either
            if first + BLOCK < DATA:
                words = tl.load(x + row * DATA + (offsets + BLOCK), mask=stays & (offsets + BLOCK < DATA))
            else:
                words = tl.load(x + next_row * DATA + columns, mask=next_stays & (columns < DATA))
            _store_rows(out, now, position, offsets, DATA, K)
        if SCALES > 0:
            scale = tl.where(scale == -0x80000000, 0, scale)
            _store_rows(out_scales, scale, position, of_scales, SCALES, K)
        stays = next_stays
        next_ids = later_ids


@triton.jit
def _take(seen, places, mask, quiet, last, sent, first, source, count):
    """As ``take_words``. If ``quiet``, the word ``last`` of each row that is ``sent`` is polled before all others."""
    polls = no_polls()
    place = first + (count - 1)
    missing = (tl.min((seen != 0).to(tl.int32).reshape([seen.numel])) == 0) & (quiet != 0)
    while missing:
        word = look_at(last, sent)
        polls = poll(polls, place, dl.CMP_NE, 0, source)
        missing = tl.min((word != 0).to(tl.int32).reshape([word.numel])) == 0
    return take_words(seen, places, mask, first, source, count)


@triton.jit
def _source(i, batches_of, me, N: tl.constexpr, B: tl.constexpr):
    """The source of number i of the batches of peers, its first token, and whether it exists."""
    OTHERS: tl.constexpr = max(N - 1, 1)
    source = (me + 1 + i % OTHERS) % N
    return source, i // OTHERS * B, (N > 1) & (i // OTHERS < scalar_of(batches_of, source))


@triton.jit
def _take_rows(
    out, out_scales, memory, capacity, begins, tokens_of, slots, quiet, number, begin, programs,
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
    source, token, there = _source(begin, batches_of, me, N, B)
    known = there & (token + batch < scalar_of(tokens_of, source))
    place = slots + ((half + source) * MAX_TOKENS + token) * ROW
    mask = known[:, None] & (of_header < 3 * KP)
    seen_header = look_at(place + at + (AT + of_header), mask)
    pe = pe_of(source, MEMBERS)
    header = take_words(seen_header, place + at + (AT + of_header), mask, place + AT, pe, 3 * KP)
    position = _place(
        header, source, token + batch, known, begins, memory, capacity, MEMBERS, K, KP, L, MAX_TOKENS, PARTS
    )  # fmt: skip
    seen = look_at(place + at + columns, (tl.max(position, axis=1) >= 0)[:, None] & (columns < DATA))
    # The headers of the second one.
    source, token, there = _source(begin + programs, batches_of, me, N, B)
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
        position = _place(
            header, source, token + batch, known, begins, memory, capacity, MEMBERS, K, KP, L, MAX_TOKENS, PARTS
        )  # fmt: skip
        seen = look_at(place + at + columns, (tl.max(position, axis=1) >= 0)[:, None] & (columns < DATA))
        source, token, there = _source(i + 2 * programs, batches_of, me, N, B)
        known = there & (token + batch < scalar_of(tokens_of, source))
        next_place = slots + ((half + source) * MAX_TOKENS + token) * ROW
        seen_header = look_at(next_place + at + (AT + of_header), known[:, None] & (of_header < 3 * KP))
        # This one.
        for first in tl.static_range(0, DATA, BLOCK):
            offsets = first + columns
            now = this_seen
            if first + BLOCK < DATA:
                this_seen = look_at(this_place + at + (offsets + BLOCK), sent & (offsets + BLOCK < DATA))
            words = _take(
                now, this_place + at + offsets, sent & (offsets < DATA), quiet,
                this_place + at + (min(first + BLOCK, DATA) - 1), sent, this_place + first, this_pe,
                min(BLOCK, DATA - first),
            )  # fmt: skip
            _store_rows(out, words, this_position, offsets, DATA, K)
        if SCALES > 0:
            scale = take_words(
                seen_scales, at_scales, sent & (of_scales < SCALES), this_place + DATA, this_pe, SCALES
            )  # fmt: skip
            _store_rows(out_scales, scale, this_position, of_scales, SCALES, K)


@triton.jit(do_not_specialize=["n_tokens", "senders", "quiet"])
def _dispatch(
    x, scales, ids, weights, out, out_scales, memory, n_tokens, senders, quiet, capacity, counts, sums, slots, numbers,
    MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr,
    ALIGN: tl.constexpr, FIXED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTERS: tl.constexpr, HEADERS: tl.constexpr, SMS: tl.constexpr,
):  # fmt: skip
    number = next_number(tl.load(numbers + tl.program_id(0)))
    sends, index, programs = _role(senders, SMS)
    if sends:
        _send_rows(
            x, scales, ids, n_tokens, slots, number, index, programs, MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES, ROW,
            B, BLOCK,
        )  # fmt: skip
    else:
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
            out, out_scales, memory, capacity, begins, tokens_of, slots, quiet, number, begin, programs, MEMBERS, K, KP,
            L, MAX_TOKENS, DATA, SCALES, AT, ROW, PARTS, B, BLOCK,
        )  # fmt: skip
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + tl.program_id(0), number)


@triton.jit
def _positions(memory, rank, tokens, known, MAX_TOKENS: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr):
    """Where the rows of tokens of ``rank`` are here, by choice, and their weights: [B, KP]."""
    choices = tl.arange(0, triton.next_power_of_2(K))
    message = (rank * MAX_TOKENS + tokens)[:, None] * K + choices[None, :]
    mask = known[:, None] & (choices < K)[None, :]
    position = tl.load(memory + PARTS[4] + message, mask=mask, other=-1)
    return position, tl.load(memory + PARTS[5] + message, mask=mask, other=0)


@triton.jit
def _rows_of(y, position, offsets, K: tl.constexpr, WORDS: tl.constexpr):
    """Words of the rows of tokens, [B, BLOCK] of each choice: all loads in flight."""
    rows = ()
    for k in tl.static_range(K):
        row = _of_choice(position, k)
        mask = (row >= 0) & (offsets < WORDS)
        rows = rows + (tl.load(y + row.to(tl.int64) * WORDS + offsets, mask=mask, other=0),)  # type: ignore[assignment]  # noqa: RUF005
    return rows


@triton.jit
def _sum_of(rows, position, weight, K: tl.constexpr, DTYPE: tl.constexpr, WEIGHTED: tl.constexpr):
    """Words of the sums of tokens' rows, in the order of their choices."""
    lower = tl.zeros(rows[0].shape, tl.float32)
    upper = tl.zeros(rows[0].shape, tl.float32)
    for k in tl.static_range(K):
        factor = 1.0
        if WEIGHTED:
            factor = _of_choice(weight, k).to(tl.float32, bitcast=True)
            factor = tl.where(_of_choice(position, k) >= 0, factor, 0.0)
        lower += factor * element(rows[k], False, DTYPE)
        upper += factor * element(rows[k], True, DTYPE)
    return word_of(lower, upper, DTYPE)


@triton.jit
def _send_sums(
    y, memory, slots, number, index, programs, MEMBERS: tl.constexpr, K: tl.constexpr, MAX_TOKENS: tl.constexpr,
    WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr, WEIGHTED: tl.constexpr, B: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Send peers the sums of their tokens' rows."""
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    half = ((number & 1) * N + me).to(tl.int64)
    ranks = tl.arange(0, triton.next_power_of_2(N))
    batch = tl.arange(0, B)
    columns = tl.arange(0, BLOCK)[None, :]
    tokens_of = tl.load(memory + PARTS[2] + ranks, mask=ranks < N, other=0)
    batches_of = tl.cdiv(tokens_of, B)
    last = tl.max(tl.where(ranks == me, 0, batches_of)) * (N - 1)
    rank, token, there = _source(index, batches_of, me, N, B)
    known = there & (token + batch < scalar_of(tokens_of, rank))
    next_position, next_weight = _positions(memory, rank, token + batch, known, MAX_TOKENS, K, PARTS)
    for i in range(index, last, programs):
        position, weight = next_position, next_weight
        place = dl.symm_at(slots + (half * MAX_TOKENS + token) * WORDS, pe_of(rank, MEMBERS))
        rank, token, there = _source(i + programs, batches_of, me, N, B)
        known = there & (token + batch < scalar_of(tokens_of, rank))
        next_position, next_weight = _positions(memory, rank, token + batch, known, MAX_TOKENS, K, PARTS)
        sent = tl.max(position, axis=1)[:, None] >= 0
        if tl.max(position.reshape([position.numel])) >= 0:
            rows = _rows_of(y, position, columns, K, WORDS)
            for first in range(0, WORDS, BLOCK):
                offsets = first + columns
                these = rows
                rows = _rows_of(y, position, offsets + BLOCK, K, WORDS)
                words = _sum_of(these, position, weight, K, DTYPE, WEIGHTED)
                send_words(place + batch[:, None] * WORDS + offsets, words, sent & (offsets < WORDS))


@triton.jit
def _seen_of(
    place, ids, me, offsets, N: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """What is there of the sums of each PE, [B, BLOCK]."""
    seen = ()
    for pe in tl.static_range(N):
        mask = _goes_to(ids, pe, L) & (pe != me) & (offsets < WORDS)
        seen = seen + (look_at(place + pe * (MAX_TOKENS * WORDS) + offsets, mask),)  # type: ignore[assignment]  # noqa: RUF005
    return seen


@triton.jit
def _take_sums(
    y, memory, out, ids, n_tokens, slots, quiet, number, index, programs, MEMBERS: tl.constexpr, K: tl.constexpr,
    L: tl.constexpr, MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr,
    WEIGHTED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add up what peers send of this PE's tokens, and what is here."""
    N: tl.constexpr = group_size(MEMBERS)
    KP: tl.constexpr = triton.next_power_of_2(K)
    me = my_rank(MEMBERS)
    half = (number & 1).to(tl.int64) * N
    batch = tl.arange(0, B)
    columns = tl.arange(0, BLOCK)[None, :]
    at = batch[:, None] * WORDS
    tokens = index * B + batch
    next_ids = _ids_of(ids, tokens, n_tokens, K, KP)
    next_position, next_weight = _positions(memory, me, tokens, tokens < n_tokens, MAX_TOKENS, K, PARTS)
    for i in range(index, tl.cdiv(n_tokens, B), programs):
        used = (i * B + batch < n_tokens)[:, None]
        mine, position, weight = next_ids, next_position, next_weight
        tokens = (i + programs) * B + batch
        next_ids = _ids_of(ids, tokens, n_tokens, K, KP)
        next_position, next_weight = _positions(memory, me, tokens, tokens < n_tokens, MAX_TOKENS, K, PARTS)
        place = slots + (half * MAX_TOKENS + i * B) * WORDS
        seen = _seen_of(place + at, mine, me, columns, N, L, MAX_TOKENS, WORDS)
        rows = _rows_of(y, position, columns, K, WORDS)
        for first in range(0, WORDS, BLOCK):
            offsets = first + columns
            these_seen, these_rows = seen, rows
            # The loads of the next block are in flight before the wait for this one.
            seen = _seen_of(place + at, mine, me, offsets + BLOCK, N, L, MAX_TOKENS, WORDS)
            rows = _rows_of(y, position, offsets + BLOCK, K, WORDS)
            own = _sum_of(these_rows, position, weight, K, DTYPE, WEIGHTED)
            lower = tl.zeros([B, BLOCK], tl.float32)
            upper = tl.zeros([B, BLOCK], tl.float32)
            for pe in tl.static_range(N):
                goes = _goes_to(mine, pe, L)
                mask = goes & (pe != me) & (offsets < WORDS)
                slot = place + pe * (MAX_TOKENS * WORDS)
                words = _take(
                    these_seen[pe], slot + at + offsets, mask, quiet,
                    slot + at + (tl.minimum(first + BLOCK, WORDS) - 1), goes & (pe != me), slot + first,
                    pe_of(pe, MEMBERS), tl.minimum(BLOCK, WORDS - first),
                )  # fmt: skip
                words = tl.where(mask, words, tl.where(goes & (pe == me), own, 0))
                lower += element(words, False, DTYPE)
                upper += element(words, True, DTYPE)
            to = out + (tl.cast(i, tl.int64) * B) * WORDS + at + offsets
            tl.store(to, word_of(lower, upper, DTYPE), mask=used & (offsets < WORDS))


@triton.jit(do_not_specialize=["n_tokens", "senders", "quiet"])
def _combine(
    y, memory, ids, out, n_tokens, senders, quiet, flags, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr,
    L: tl.constexpr, MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr,
    WEIGHTED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr, SMS: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    program = tl.program_id(0)
    number = next_number(tl.load(numbers + program))
    sends, index, programs = _role(senders, SMS)
    if sends:
        _send_sums(
            y, memory, slots, number, index, programs, MEMBERS, K, MAX_TOKENS, WORDS, PARTS, DTYPE, WEIGHTED, B, BLOCK
        )  # fmt: skip
    else:
        half = (number & 1).to(tl.int64) * N
        if program == tl.num_programs(0) - 1:
            for pe in tl.static_range(N):
                tl.store(dl.symm_at(flags + half + me, pe_of(pe, MEMBERS)), number.to(tl.int64))
        _take_sums(
            y, memory, out, ids, n_tokens, slots, quiet, number, index, programs, MEMBERS, K, L, MAX_TOKENS, WORDS,
            PARTS, DTYPE, WEIGHTED, B, BLOCK,
        )  # fmt: skip
        if program == tl.num_programs(0) - 1:
            ranks = tl.arange(0, triton.next_power_of_2(N))
            polls = no_polls()
            missing = True
            while missing:
                arrived = tl.load(flags + half + ranks, mask=ranks < N, other=number, volatile=True).to(tl.int32)
                words = (flags + half).to(tl.pointer_type(tl.int32), bitcast=True)
                polls = poll(polls, words, dl.CMP_EQ, number, pe_of(0, MEMBERS), N, 1, 2, 2)
                missing = tl.max((arrived != number).to(tl.int32)) != 0
    tl.debug_barrier()
    tl.store(numbers + program, number)


# ---- the host's part


def _workspace(
    comm: Communicator, name: str, routing: Routing, plan: Plan, row: int, message: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slots of rows of so many words, messages of so many from each PE to each, and numbers of exchanges."""
    programs, n_pes = plan.sms * plan.per_sm, routing.members.size
    name = f"moe split: {name}, {routing.max_tokens} tokens, {plan.batch} at a time, {programs} programs"
    header = -(-programs // 32) * 32
    # A batch may end behind the last token.
    memory = symmetric_workspace(comm, name, header + (2 * n_pes * routing.max_tokens + plan.batch) * row)
    messages = symmetric_workspace(comm, f"{name}, messages", 2 * n_pes * message, torch.int64)
    return memory[header:], messages, memory[:programs]


def _counters(sms: int) -> int:
    """How many programs count ids: the first ones, which do not send."""
    return max(1, min(PARTS_OF_COUNTS, sms // 2 - 1))


def constants_of_dispatch(routing: Routing, data: int, n_scales: int, plan: Plan) -> dict[str, Any]:
    kp = int(triton.next_power_of_2(routing.top_k))
    pes = int(triton.next_power_of_2(routing.members.size))
    at = data + -(-n_scales // 4) * 4
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "KP": kp, "L": routing.local_experts,
        "MAX_TOKENS": routing.max_tokens, "DATA": data, "SCALES": n_scales, "AT": at, "ROW": at + 4 * kp,
        "PARTS": parts_of(routing)[:9], "ALIGN": routing.align, "FIXED": routing.fixed, "B": plan.batch,
        "BLOCK": min(plan.block, int(triton.next_power_of_2(data))),
        "TOKENS": max(1, min(128, 1024 * plan.num_warps // (kp * pes))),
        "COUNTERS": _counters(plan.sms), "HEADERS": max(1, min(16, 128 // kp)), "SMS": plan.sms,
    }  # fmt: skip


def launch_dispatch(
    x: torch.Tensor, scales: torch.Tensor | None, routing: Routing, result: Dispatched, plan: Plan
) -> Launch | None:
    """Dispatch into ``result``."""
    comm = routing.comm
    assert comm is not None and 1 <= plan.senders < plan.sms - _counters(plan.sms) and plan.sms <= sms()
    n_scales = 0 if scales is None else scales.shape[1]
    constants = constants_of_dispatch(routing, x.shape[1] * x.element_size() // 4, n_scales, plan)
    row, local = constants["ROW"], routing.local_experts
    slots, counts, numbers = _workspace(
        comm, f"dispatch of {row} words, {local} experts", routing, plan, row, local + 1
    )
    n_sums = words_of_parts(routing.members.size * local, routing.members.size)
    sums = symmetric_workspace(comm, f"moe split: sums, {plan}, {routing.members.size * local}", n_sums, torch.int64)
    out, out_scales = result.x, result.x if result.scales is None else result.scales
    words = (tensor.view(torch.int32) for tensor in (x, x if scales is None else scales))
    outputs = (tensor.view(torch.int32) for tensor in (out, out_scales))
    return launch(
        _dispatch, (plan.sms * plan.per_sm,), (*words, routing.ids, routing.weights, *outputs, result.memory),
        routing.n_tokens, plan.senders, int(plan.quiet), routing.capacity, counts, sums, slots, numbers, **constants,
        **plan.options, debug=True, sanitize_overflow=False,
    )  # fmt: skip


def constants_of_combine(
    routing: Routing, dtype: torch.dtype, hidden: int, weighted: bool, plan: Plan
) -> dict[str, Any]:
    words = hidden * dtype.itemsize // 4
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "L": routing.local_experts, "MAX_TOKENS": routing.max_tokens,
        "WORDS": words, "PARTS": parts_of(routing)[:6], "DTYPE": _TYPES[dtype], "WEIGHTED": weighted, "B": plan.batch,
        "BLOCK": min(plan.block, int(triton.next_power_of_2(words))), "SMS": plan.sms,
    }  # fmt: skip


def launch_combine(
    y: torch.Tensor, dispatched: Dispatched, out: torch.Tensor, weighted: bool, plan: Plan
) -> Launch | None:
    """Combine into ``out``."""
    routing = dispatched.routing
    comm = routing.comm
    assert comm is not None and 1 <= plan.senders <= plan.sms - 2 and plan.sms <= sms()
    constants = constants_of_combine(routing, y.dtype, y.shape[1], weighted, plan)
    slots, flags, numbers = _workspace(
        comm, f"combine of {constants['WORDS']} words", routing, plan, constants["WORDS"], 1
    )
    return launch(
        _combine, (plan.sms * plan.per_sm,),
        (y.view(torch.int32), dispatched.memory, routing.ids, out.view(torch.int32)), routing.n_tokens, plan.senders,
        int(plan.quiet), flags, slots, numbers, **constants, **plan.options,
    )  # fmt: skip


def dispatch(
    plan: Plan,
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    *,
    num_experts: int,
    max_tokens: int,
    scales: torch.Tensor | None = None,
    align: int = 1,
    capacity: int | None = None,
    expert_capacity: int | None = None,
    group: Any = None,
) -> Dispatched:
    """As :func:`triton_dist.kernels.moe.dispatch`, by this plan; its result is for :func:`combine` here."""
    with calling("dispatch", group) as comm:
        routing = check_routing(
            comm, "dispatch", x, ids, weights, num_experts, max_tokens, align, capacity, expert_capacity, plan.sms
        )
        n_scales = check_scales("dispatch", x, scales)
        result = result_of(routing, x.dtype, x.shape[1], n_scales, torch.empty)
        launch_dispatch(x, scales, routing, result, plan)
        return result


def combine(plan: Plan, y: torch.Tensor, dispatched: Dispatched, *, weighted: bool = True) -> torch.Tensor:
    """As :func:`triton_dist.kernels.moe.combine`, by this plan."""
    with calling("combine", dispatched.routing.comm):
        check_rows("combine", "y", y, tuple(_TYPES))
        out = dispatched.routing.ids.new_empty(dispatched.routing.n_tokens, y.shape[1], dtype=y.dtype)
        launch_combine(y, dispatched, out, weighted, plan)
        return out
