"""Kernels of a dispatch in which all programs send their tokens, then receive: whole, and its halves.

A receiver takes messages by their numbers: of the rows that a PE sends to another one, in the order of its tokens. Of a
row that stays on its PE the header alone goes through a slot, but in halves all rows do, since ``x`` may change in
between. What the result says of rows is by source and message.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.moe.dispatch_counts import (
    begins_of,
    count_ids,
    count_in_parts,
    receive_counts,
    send_counted,
    send_counts,
    source_of,
)
from triton_dist.kernels.moe.rows import look_at, scalar_of, send_words, take_words
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.language._poll import held_once

__all__ = ["moe_dispatch_one_round", "moe_dispatch_receive", "moe_dispatch_send"]

# Blocks of ids and weights are [KP], of PEs [NP], powers of two; constants that all functions take:
# K choices, L experts of a PE, DATA and SCALES words of a row, ROW words of a message with its header.


@triton.jit
def _pes_of(ids, pes, L: tl.constexpr):
    """1 for each of ``pes`` that has one of a token's experts, else 0."""
    return tl.max((tl.where(ids >= 0, ids // L, -1)[:, None] == pes[None, :]).to(tl.int32), axis=0)


@triton.jit
def _leaves(wanted, pes, me, OWN: tl.constexpr):
    """Whether the words of a token's row are sent to anyone."""
    return tl.max(wanted if OWN else tl.where(pes == me, 0, wanted)) != 0


@triton.jit
def _send(
    x, scales, ids, weights, n_tokens, counts, sums, slots, numbers, MEMBERS: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr,
    SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTERS: tl.constexpr, SOURCES: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """``OWN``: whether rows that stay here go through slots, too; else their headers alone."""
    N: tl.constexpr = group_size(MEMBERS)
    TO: tl.constexpr = N if OWN else N - 1  # this PE is the last one that it sends to
    SCALE_BLOCK: tl.constexpr = max(1, min(BLOCK, triton.next_power_of_2(SCALES)))
    pes = tl.arange(0, triton.next_power_of_2(N))
    choices = tl.arange(0, KP)
    block = tl.arange(0, BLOCK)
    me = my_rank(MEMBERS)
    program, programs = tl.program_id(0), tl.num_programs(0)
    number = next_number(tl.load(numbers + program))
    if COUNTERS == 0:
        send_counts(ids, n_tokens, counts, number, MEMBERS, K, KP, L, TOKENS, True, SOURCES)
    half = ((number & 1) * N + me).to(tl.int64) * MAX_TOKENS
    # A program sends tokens that follow each other, so that it counts those before them once.
    each = tl.cdiv(n_tokens, programs)
    begin = tl.minimum(program * each, n_tokens)
    end = tl.minimum(begin + each, n_tokens)
    # A token's ids and its row's first words are in flight while ids are counted and the token before is sent.
    row = begin.to(tl.int64)
    mine = tl.load(ids + row * K + choices, mask=(choices < K) & (begin < end), other=-1).to(tl.int32)
    wanted = _pes_of(mine, pes, L)
    words = tl.load(x + row * DATA + block, mask=(block < DATA) & _leaves(wanted, pes, me, OWN))
    if COUNTERS > 0:
        pe = pe_of(me, MEMBERS)
        chosen, messages = count_in_parts(ids, n_tokens, begin, sums, number, pe, N, K, KP, L, TOKENS, COUNTERS)
        send_counted(sums, counts, number, MEMBERS, L, COUNTERS)
    else:
        chosen, messages = count_ids(ids, 0, tl.where(begin < end, begin, 0), N, K, KP, L, TOKENS, True)
    if SOURCES[0] > 1:  # ranks are among those of the token's source
        of_source = tl.where(begin < end, begin, 0) // SOURCES[1] * SOURCES[1]
        chosen, _ = count_ids(ids, of_source, tl.where(begin < end, begin, 0), N, K, KP, L, TOKENS)
    experts = tl.arange(0, chosen.shape[0])
    for token in range(begin, end):
        row = tl.cast(token, tl.int64)
        if SOURCES[0] > 1:
            chosen = tl.where(token % SOURCES[1] == 0, 0, chosen)
        weight = tl.load(weights + row * K + choices, mask=choices < K, other=0.0)
        there = (choices < K) & (token + 1 < end)
        next_ids = tl.load(ids + (row + 1) * K + choices, mask=there, other=-1).to(tl.int32)
        places = ()
        sends = ()
        for i in tl.static_range(1, N + 1):  # peers first, from the next on; what stays here is here soon
            pe = (me + i) % N
            message = slots + (half + scalar_of(messages, pe)) * ROW
            places = places + (dl.symm_at(message, pe_of(pe, MEMBERS)),)  # type: ignore[assignment]  # noqa: RUF005
            sends = sends + (scalar_of(wanted, pe) != 0,)  # type: ignore[assignment]  # noqa: RUF005
        for i in tl.static_range(TO):
            send_words(places[i] + block, words, sends[i] & (block < DATA))
        next_wanted = _pes_of(next_ids, pes, L)
        words = tl.load(x + (row + 1) * DATA + block, mask=(block < DATA) & _leaves(next_wanted, pes, me, OWN))
        for first in tl.static_range(BLOCK, DATA, BLOCK):
            offsets = first + block
            more = tl.load(x + row * DATA + offsets, mask=(offsets < DATA) & _leaves(wanted, pes, me, OWN))
            for i in tl.static_range(TO):
                send_words(places[i] + offsets, more, sends[i] & (offsets < DATA))
        for first in tl.static_range(0, SCALES, SCALE_BLOCK):
            offsets = first + tl.arange(0, SCALE_BLOCK)
            more = tl.load(scales + row * SCALES + offsets, mask=(offsets < SCALES) & _leaves(wanted, pes, me, OWN))
            for i in tl.static_range(TO):
                send_words(places[i] + DATA + offsets, more, sends[i] & (offsets < SCALES))
        # The rank of a choice: earlier ones of the same expert, by other tokens and by this one.
        same = mine[:, None] == mine[None, :]
        ranks = tl.sum((same & (choices[:, None] < choices[None, :])).to(tl.int32), axis=0)
        hits = experts[:, None] == mine[None, :]
        ranks += tl.sum(tl.where(hits, chosen[:, None], 0), axis=0)
        # The header: [4, KP] words.
        fields = tl.arange(0, 4)[:, None]
        header = tl.where(fields == 0, mine[None, :], tl.where(fields == 1, ranks[None, :], token))
        header = tl.where(fields == 2, weight.to(tl.int32, bitcast=True)[None, :], header)
        for i in tl.static_range(N):
            to = AT + fields * KP + choices[None, :]
            send_words(places[i] + to, header, sends[i] & (to >= 0))
        chosen += tl.sum(hits.to(tl.int32), axis=1)
        messages += wanted
        mine = next_ids
        wanted = next_wanted
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + program, number)


@triton.jit
def _message(i, own, me, N: tl.constexpr):
    """Of the messages to this PE, in the order in which they are taken: number i's source, and its number there."""
    OTHERS: tl.constexpr = max(N - 1, 1)
    return tl.where(i < own, me, (me + 1 + (i - own) % OTHERS) % N), tl.where(i < own, i, (i - own) // OTHERS)


@triton.jit
def _words_of(seen, places, here, left: tl.constexpr, arrives, first, pe, OWN: tl.constexpr):
    """A block of a row of which ``left`` words are left: what arrives in a slot (:func:`take_words`) or is ``here``."""
    mask = tl.arange(0, places.numel) < left
    if OWN:
        return take_words(seen, places, mask, first, pe, min(places.numel, left))
    else:
        if arrives:
            words = take_words(seen, places, mask, first, pe, min(places.numel, left))
        else:
            words = tl.load(here, mask=mask, other=0)
            words = tl.where(words == -0x80000000, 0, words)  # the word that does not arrive as it is, either
        return words


@triton.jit
def _receive(
    x, scales, out, out_scales, memory, capacity, counts, slots, numbers, MEMBERS: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr,
    SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr,
    FIXED: tl.constexpr, BLOCK: tl.constexpr, SOURCES: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """``OWN`` as of :func:`_send`; if it is not set, rows that stay here are those of ``x`` and ``scales``."""
    N: tl.constexpr = group_size(MEMBERS)
    LP: tl.constexpr = triton.next_power_of_2(L + 1)
    SCALE_BLOCK: tl.constexpr = held_once(max(1, min(BLOCK, triton.next_power_of_2(SCALES))))
    choices = tl.arange(0, KP)
    block = tl.arange(0, BLOCK)
    me = my_rank(MEMBERS)
    program, programs = tl.program_id(0), tl.num_programs(0)
    number = next_number(tl.load(numbers + program))
    arrived = receive_counts(counts, number, MEMBERS, L, SOURCES)
    begins, messages = begins_of(arrived, memory, capacity, MEMBERS, L, PARTS, ALIGN, FIXED, SOURCES)
    of_begins = tl.arange(0, arrived.numel)
    firsts = tl.arange(0, messages.shape[0])
    half = (number & 1).to(tl.int64) * (N * MAX_TOKENS)
    # This PE's own messages first, while those of peers are in flight; then the peers' in turn. The words of the
    # next message are looked at before those of this one are waited for.
    own = scalar_of(messages, me * SOURCES[3])
    theirs = tl.max(tl.where(firsts == me * SOURCES[3], 0, messages)) * (N - 1)
    fields = tl.arange(0, 4)[:, None]
    header_words = AT + fields * KP + choices[None, :]
    of_scales = tl.arange(0, SCALE_BLOCK)
    source, index = _message(program, own, me, N)
    there = (program < own + theirs) & (index < scalar_of(messages, source * SOURCES[3]))
    place = slots + (half + source * MAX_TOKENS + index) * ROW
    seen_header = look_at(place + header_words, there & (header_words >= 0))
    seen = look_at(place + block, (block < DATA) & there & (OWN | (source != me)))
    for i in range(program, own + theirs, programs):
        is_message = there
        message = source * MAX_TOKENS + index
        pe = pe_of(source, MEMBERS)
        arrives = OWN | (source != me)
        this_place, this_header, this_seen, this_source = place, seen_header, seen, source
        source, index = _message(i + programs, own, me, N)
        there = (i + programs < own + theirs) & (index < scalar_of(messages, source * SOURCES[3]))
        place = slots + (half + source * MAX_TOKENS + index) * ROW
        seen_header = look_at(place + header_words, there & (header_words >= 0))
        seen = look_at(place + block, (block < DATA) & there & (OWN | (source != me)))
        if is_message:
            if SCALES > 0:
                seen_scales = look_at(this_place + DATA + of_scales, (of_scales < SCALES) & arrives)
            at_header = this_place + header_words
            header = take_words(this_header, at_header, header_words >= 0, this_place + AT, pe, 4 * KP)
            chosen = tl.sum(tl.where(fields == 0, header, 0), axis=0)
            ranks = tl.sum(tl.where(fields == 1, header, 0), axis=0)
            weight = tl.sum(tl.where(fields == 2, header, 0), axis=0)
            token = tl.max(tl.where(fields == 3, header, 0).reshape([4 * KP]))
            expert = chosen - me * L
            is_here = (expert >= 0) & (expert < L) & (choices < K)
            at_begin = tl.where(is_here, source_of(token, this_source, SOURCES) * LP + expert, -1)
            begin = tl.sum(tl.where(of_begins[:, None] == at_begin[None, :], begins[:, None], 0), axis=0)
            position = tl.where(is_here, begin + ranks, -1)
            position = tl.where(position < capacity, position, -1)
            tl.store(memory + PARTS[3] + message, token)
            tl.store(memory + PARTS[8] + token, message, mask=this_source == me)
            tl.store(memory + PARTS[4] + message * K + choices, position, mask=choices < K)
            tl.store(memory + PARTS[5] + message * K + choices, weight, mask=choices < K)
            tl.store(memory + PARTS[6] + position, weight, mask=position >= 0)
            tl.store(memory + PARTS[6] + tl.cdiv(capacity, 4) * 4 + position, choices, mask=position >= 0)
            kept = (position >= 0)[:, None]
            to_rows = position.to(tl.int64)[:, None]
            for first in tl.static_range(0, DATA, BLOCK):
                offsets = first + block
                if first > 0:
                    this_seen = look_at(this_place + offsets, (offsets < DATA) & arrives)
                here = x + tl.cast(token, tl.int64) * DATA + offsets
                row = _words_of(
                    this_seen, this_place + offsets, here, DATA - first, arrives, this_place + first, pe, OWN
                )
                to = out + to_rows * DATA + offsets[None, :]
                tl.store(to, tl.broadcast_to(row[None, :], to.shape), mask=kept & (offsets < DATA)[None, :])
            for first in tl.static_range(0, SCALES, SCALE_BLOCK):
                offsets = first + tl.arange(0, SCALE_BLOCK)
                at = this_place + DATA + offsets
                if first > 0:
                    seen_scales = look_at(at, (offsets < SCALES) & arrives)
                here = scales + tl.cast(token, tl.int64) * SCALES + offsets
                row = _words_of(seen_scales, at, here, SCALES - first, arrives, this_place + DATA + first, pe, OWN)
                to = out_scales + to_rows * SCALES + offsets[None, :]
                tl.store(to, tl.broadcast_to(row[None, :], to.shape), mask=kept & (offsets < SCALES)[None, :])
    tl.debug_barrier()
    tl.store(numbers + program, number)


@triton.jit(do_not_specialize=["n_tokens"])
def moe_dispatch_send(
    x, scales, ids, weights, n_tokens, counts, sums, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    AT: tl.constexpr, ROW: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr, COUNTERS: tl.constexpr,
    SOURCES: tl.constexpr,
):  # fmt: skip
    _send(
        x, scales, ids, weights, n_tokens, counts, sums, slots, numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES,
        AT, ROW, BLOCK, TOKENS, COUNTERS, SOURCES, True,
    )  # fmt: skip


@triton.jit
def moe_dispatch_receive(
    out, out_scales, memory, capacity, counts, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr, FIXED: tl.constexpr,
    BLOCK: tl.constexpr, SOURCES: tl.constexpr,
):  # fmt: skip
    _receive(
        out, out_scales, out, out_scales, memory, capacity, counts, slots, numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA,
        SCALES, AT, ROW, PARTS, ALIGN, FIXED, BLOCK, SOURCES, True,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n_tokens"])
def moe_dispatch_one_round(
    x, scales, ids, weights, out, out_scales, memory, n_tokens, capacity, counts, sums, slots, sent_numbers,
    received_numbers, MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr,
    PARTS: tl.constexpr, ALIGN: tl.constexpr, FIXED: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTERS: tl.constexpr, SOURCES: tl.constexpr,
):  # fmt: skip
    _send(
        x, scales, ids, weights, n_tokens, counts, sums, slots, sent_numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA,
        SCALES, AT, ROW, BLOCK, TOKENS, COUNTERS, SOURCES, False,
    )  # fmt: skip
    _receive(
        x, scales, out, out_scales, memory, capacity, counts, slots, received_numbers, MEMBERS, K, KP, L, MAX_TOKENS,
        DATA, SCALES, AT, ROW, PARTS, ALIGN, FIXED, BLOCK, SOURCES, False,
    )  # fmt: skip
