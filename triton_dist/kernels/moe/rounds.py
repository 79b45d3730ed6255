"""Dispatch and combine of thousands of tokens by a few programs, through slots that do not grow with the tokens.

Tokens go in batches of B: batch r · P + p is that of program p in round r, where P is the number of programs. In a
round program p of every PE sends its batch to program p of every PE, and receives theirs. Rows use the sentinel
protocol (``rows.py``) in slots of their own for each program, source and place in the batch. In every round a word in
the LL protocol goes from every PE to every PE: the round's number, and which tokens of the batch have rows.

Slots are used again after four rounds, without credits. Program p of a PE sends round g when it has received round
g - 2. Every peer sent the word of that round after it had received and cleared round g - 4, and a fence, since a
program goes: send g - 3, receive g - 4; fence, send g - 2, receive g - 3. All PEs make the same rounds, as many as the
PE with the most tokens needs, which the counts say. So a round waits for nothing but the same round of the same program
of the peers.

The experts' side writes where the rows of a token are by source and token. The rest of a result is as of
``dispatch.py``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import sms
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.dispatch_counts import (
    begins_of,
    count_ids,
    receive_counts,
    send_counts,
    source_of,
)
from triton_dist.kernels.moe.results import Dispatched, parts_of
from triton_dist.kernels.moe.rows import element, look_at, scalar_of, send_words, take_words, word_of
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.ll import next_number, wait_for_flags
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of, stride_of
from triton_dist.kernels.protocols.sentinel import order_messages
from triton_dist.kernels.protocols.workspace import symmetric_workspace

__all__ = ["combine_rounds", "combine_slots", "dispatch_rounds", "dispatch_slots"]

_DEPTH = tl.constexpr(4)
"""Of the slots, in rounds."""


# ---- device code, with the constants of dispatch.py. B tokens make a batch.


@triton.jit
def _slot_of(number, sender, batch, MEMBERS: tl.constexpr, B: tl.constexpr):
    """The number of the slot of a token of this program's batch, in round ``number``, from the rank ``sender``."""
    of_program = ((number & (_DEPTH - 1)) * group_size(MEMBERS) + sender) * tl.num_programs(0) + tl.program_id(0)
    return of_program.to(tl.int64) * B + batch


@triton.jit
def _tell(words, number, bits, pe, MEMBERS: tl.constexpr):
    """Send a PE the word of this program's round."""
    place = words + _slot_of(number, my_rank(MEMBERS), 0, MEMBERS, 1)
    message = (number.to(tl.int64) << 32) | (tl.cast(bits, tl.int64) & 0xFFFFFFFF)
    tl.store(dl.symm_at(place, pe_of(pe, MEMBERS)), message)


@triton.jit
def _told(words, number, MEMBERS: tl.constexpr):
    """Wait for the words of all PEs of this program's round: [NP]."""
    N: tl.constexpr = group_size(MEMBERS)
    ranks = tl.arange(0, triton.next_power_of_2(N))
    places = words + _slot_of(number, ranks, 0, MEMBERS, 1)
    first = words + _slot_of(number, 0, 0, MEMBERS, 1)
    return wait_for_flags(
        places, ranks < N, number, first, pe_of(0, MEMBERS), N, 1, tl.num_programs(0), stride_of(MEMBERS)
    )


@triton.jit
def _rounds(n_tokens, B: tl.constexpr):
    """How many rounds there are, if the PE with the most tokens has so many."""
    return tl.cdiv(tl.cdiv(n_tokens, B), tl.num_programs(0))


@triton.jit
def _ids_of_batch(ids, tokens, n_tokens, K: tl.constexpr, KP: tl.constexpr):
    choices = tl.arange(0, KP)
    mask = (tokens < n_tokens)[:, None] & (choices < K)[None, :]
    return tl.load(ids + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=mask, other=-1).to(tl.int32)


@triton.jit
def _of_choice(block, k: tl.constexpr):
    """Column k of a block."""
    return tl.sum(tl.where((tl.arange(0, block.shape[1]) == k)[None, :], block, 0), axis=1)


@triton.jit
def _send_batch(
    x, scales, mine, weights, chosen, n_tokens, words, slots, number, tokens, MEMBERS: tl.constexpr,
    K: tl.constexpr, L: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Send the rows of a batch to the PEs of their experts, ``mine`` [B, KP].

    ``chosen`` says how often the tokens before choose each expert.
    """
    N: tl.constexpr = group_size(MEMBERS)
    B: tl.constexpr = tokens.shape[0]
    KP: tl.constexpr = mine.shape[1]
    me = my_rank(MEMBERS)
    batch = tl.arange(0, B)
    choices = tl.arange(0, KP)
    homes = tl.where(mine >= 0, mine // L, -1)
    begin = _slot_of(number, me, 0, MEMBERS, B) * ROW
    at = batch[:, None] * ROW
    places = ()
    sends = ()
    for i in tl.static_range(1, N + 1):
        pe = (me + i) % N
        wanted = tl.max((homes == pe).to(tl.int32), axis=1)
        _tell(words, number, tl.sum(wanted << batch), pe, MEMBERS)
        places = places + (dl.symm_at(slots + begin, pe_of(pe, MEMBERS)),)  # type: ignore[assignment]  # noqa: RUF005
        sends = sends + ((wanted != 0)[:, None],)  # type: ignore[assignment]  # noqa: RUF005
    # The rank of a choice among those of its expert: earlier ones of this batch, and those of the tokens before.
    flat = mine.reshape([B * KP])
    order = tl.arange(0, B * KP)
    same = (flat[:, None] == flat[None, :]) & (order[:, None] < order[None, :])
    is_expert = (flat >= 0) & (flat < N * L)  # of others a program that counts them says that they are none
    ranks = tl.sum(same.to(tl.int32), axis=0) + tl.gather(chosen, tl.where(is_expert, flat, 0), 0)
    there = (tokens < n_tokens)[:, None] & (choices < K)[None, :]
    weight = tl.load(weights + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=there, other=0.0)
    header = at + AT + choices[None, :]
    for i in tl.static_range(N):
        send_words(places[i] + header, mine, sends[i] & (choices < KP)[None, :])
        send_words(places[i] + header + KP, ranks.reshape([B, KP]), sends[i] & (choices < KP)[None, :])
        send_words(places[i] + header + 2 * KP, weight.to(tl.int32, bitcast=True), sends[i] & (choices < KP)[None, :])
    from_row = tokens.to(tl.int64)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    used = (tokens < n_tokens)[:, None]
    row = tl.load(x + from_row * DATA + columns, mask=used & (columns < DATA))
    for first in tl.static_range(0, DATA, BLOCK):
        offsets = first + columns
        sent = row
        if first + BLOCK < DATA:  # the next words are in flight while these are stored
            row = tl.load(x + from_row * DATA + (offsets + BLOCK), mask=used & (offsets + BLOCK < DATA))
        for i in tl.static_range(N):
            send_words(places[i] + at + offsets, sent, sends[i] & (offsets < DATA))
    for first in tl.static_range(0, SCALES, BLOCK):
        offsets = first + columns
        of_rows = tl.load(scales + from_row * SCALES + offsets, mask=used & (offsets < SCALES))
        for i in tl.static_range(N):
            send_words(places[i] + at + DATA + offsets, of_rows, sends[i] & (offsets < SCALES))


@triton.jit
def _receive_batch(
    out, out_scales, memory, capacity, begins, words, slots, number, tokens, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, SOURCES: tl.constexpr,
):  # fmt: skip
    """Receive a batch of every PE, and store its rows where they belong."""
    N: tl.constexpr = group_size(MEMBERS)
    B: tl.constexpr = tokens.shape[0]
    LP: tl.constexpr = triton.next_power_of_2(L + 1)
    me = my_rank(MEMBERS)
    batch = tl.arange(0, B)
    choices = tl.arange(0, KP)
    columns = tl.arange(0, BLOCK)[None, :]
    bits = _told(words, number, MEMBERS)
    for i in range(N):  # this PE's own first, then in the order in which PEs send to this one
        source = (me - i + N) % N
        pe = pe_of(source, MEMBERS)
        sent = (((scalar_of(bits, source) >> batch) & 1) != 0)[:, None]
        begin = slots + _slot_of(number, source, 0, MEMBERS, B) * ROW
        places = begin + batch[:, None] * ROW
        header = places + AT + choices[None, :]
        there = sent & (choices < KP)[None, :]
        seen_experts, seen_ranks = look_at(header, there), look_at(header + KP, there)
        seen_weights = look_at(header + 2 * KP, there)
        seen = look_at(places + columns, sent & (columns < DATA))
        expert = take_words(seen_experts, header, there, begin + AT, pe, KP) - me * L
        rank = take_words(seen_ranks, header + KP, there, begin + AT + KP, pe, KP)
        weight = take_words(seen_weights, header + 2 * KP, there, begin + AT + 2 * KP, pe, KP)
        here = sent & (expert >= 0) & (expert < L) & (choices < K)[None, :]
        at_begin = source_of(tokens[:, None], source, SOURCES) * LP + expert
        index = tl.where(here, at_begin, 0).reshape([B * KP])
        position = tl.gather(begins, index, 0).reshape([B, KP]) + rank
        position = tl.where(here & (position < capacity), position, -1)
        kept = position >= 0
        message = (source * MAX_TOKENS + tokens)[:, None] * K + choices[None, :]
        known = (tokens < MAX_TOKENS)[:, None] & (choices < K)[None, :]
        tl.store(memory + PARTS[4] + message, position, mask=known)
        tl.store(memory + PARTS[5] + message, weight, mask=known)
        tl.store(memory + PARTS[6] + position, weight, mask=kept)
        which = tl.broadcast_to(choices[None, :], [B, KP])
        tl.store(memory + PARTS[6] + tl.cdiv(capacity, 4) * 4 + position, which, mask=kept)
        for first in tl.static_range(0, DATA, BLOCK):
            offsets = first + columns
            mask = sent & (offsets < DATA)
            now = seen
            if first + BLOCK < DATA:
                seen = look_at(places + (offsets + BLOCK), sent & (offsets + BLOCK < DATA))
            row = take_words(now, places + offsets, mask, begin + first, pe, min(BLOCK, DATA - first))
            for k in tl.static_range(K):
                to = _of_choice(position, k)[:, None]
                tl.store(out + to.to(tl.int64) * DATA + offsets, row, mask=(to >= 0) & (offsets < DATA))
        for first in tl.static_range(0, SCALES, BLOCK):
            offsets = first + columns
            mask = sent & (offsets < SCALES)
            at = places + DATA + offsets
            row = take_words(look_at(at, mask), at, mask, begin + DATA + first, pe, min(BLOCK, SCALES - first))
            for k in tl.static_range(K):
                to = _of_choice(position, k)[:, None]
                tl.store(out_scales + to.to(tl.int64) * SCALES + offsets, row, mask=(to >= 0) & (offsets < SCALES))


@triton.jit(do_not_specialize=["n_tokens"])
def moe_dispatch_rounds(
    x, scales, ids, weights, out, out_scales, memory, n_tokens, capacity, counts, words, slots, numbers, rounds, order,
    MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr,
    ALIGN: tl.constexpr, FIXED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    SOURCES: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    batch = tl.arange(0, B)
    number = next_number(tl.load(numbers + program))
    first = tl.load(rounds + program) + 1
    send_counts(ids, n_tokens, counts, number, MEMBERS, K, KP, L, TOKENS, False, SOURCES)
    counted = program * B
    begin_of = 0
    if SOURCES[0] > 1:
        begin_of = tl.minimum(counted, n_tokens) // SOURCES[1] * SOURCES[1]
    chosen, _ = count_ids(ids, begin_of, tl.minimum(counted, n_tokens), N, K, KP, L, TOKENS)
    mine = _ids_of_batch(ids, counted + batch, n_tokens, K, KP)
    _send_batch(
        x, scales, mine, weights, chosen, n_tokens, words, slots, first, counted + batch, MEMBERS, K, L, DATA, SCALES,
        AT, ROW, BLOCK,
    )  # fmt: skip
    arrived = receive_counts(counts, number, MEMBERS, L, SOURCES)
    begins, tokens_of = begins_of(arrived, memory, capacity, MEMBERS, L, PARTS, ALIGN, FIXED, SOURCES)
    n_rounds = tl.maximum(_rounds(tl.max(tokens_of), B), 1)
    for i in range(n_rounds):
        if i + 1 < n_rounds:
            order_messages(order + program)  # what was cleared comes before the word of the next round
            begin = ((i + 1) * tl.num_programs(0) + program) * B
            if SOURCES[0] > 1:  # ranks are among those of the token's source
                of_source = begin // SOURCES[1] * SOURCES[1]
                chosen = tl.where(of_source > counted, 0, chosen)
                counted = tl.maximum(counted, of_source)
            more, _ = count_ids(ids, tl.minimum(counted, n_tokens), tl.minimum(begin, n_tokens), N, K, KP, L, TOKENS)
            chosen += more
            counted = begin
            mine = _ids_of_batch(ids, begin + batch, n_tokens, K, KP)
            _send_batch(
                x, scales, mine, weights, chosen, n_tokens, words, slots, first + i + 1, begin + batch, MEMBERS, K, L,
                DATA, SCALES, AT, ROW, BLOCK,
            )  # fmt: skip
        tokens = (i * tl.num_programs(0) + program) * B + batch
        _receive_batch(
            out, out_scales, memory, capacity, begins, words, slots, first + i, tokens, MEMBERS, K, KP, L, MAX_TOKENS,
            DATA, SCALES, AT, ROW, PARTS, BLOCK, SOURCES,
        )  # fmt: skip
    tl.debug_barrier()  # all threads have read the numbers
    tl.store(numbers + program, number)
    tl.store(rounds + program, first + n_rounds - 1)


@triton.jit
def _send_sums(
    y, memory, tokens_of, words, slots, number, tokens, MEMBERS: tl.constexpr, K: tl.constexpr,
    MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr, WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Send every PE the partial sums of its batch."""
    N: tl.constexpr = group_size(MEMBERS)
    B: tl.constexpr = tokens.shape[0]
    KP: tl.constexpr = triton.next_power_of_2(K)
    me = my_rank(MEMBERS)
    batch = tl.arange(0, B)
    choices = tl.arange(0, KP)
    columns = tl.arange(0, BLOCK)[None, :]
    begin = slots + _slot_of(number, me, 0, MEMBERS, B) * WORDS
    for i in range(1, N + 1):
        pe = (me + i) % N
        _tell(words, number, 0, pe, MEMBERS)
        place = dl.symm_at(begin, pe_of(pe, MEMBERS)) + batch[:, None] * WORDS
        known = (tokens < scalar_of(tokens_of, pe))[:, None] & (choices < K)[None, :]
        message = (pe * MAX_TOKENS + tokens)[:, None] * K + choices[None, :]
        position = tl.load(memory + PARTS[4] + message, mask=known, other=-1)
        weight = tl.load(memory + PARTS[5] + message, mask=known & (position >= 0), other=0)
        sends = (tl.max(position, axis=1) >= 0)[:, None]
        for first in tl.static_range(0, WORDS, BLOCK):
            offsets = first + columns
            lower = tl.zeros([B, BLOCK], tl.float32)
            upper = tl.zeros([B, BLOCK], tl.float32)
            for k in tl.static_range(K):
                row = _of_choice(position, k)[:, None]
                read = tl.load(y + row.to(tl.int64) * WORDS + offsets, mask=(row >= 0) & (offsets < WORDS), other=0)
                factor = 1.0
                if WEIGHTED:
                    factor = _of_choice(weight, k)[:, None].to(tl.float32, bitcast=True)
                lower += factor * element(read, False, DTYPE)
                upper += factor * element(read, True, DTYPE)
            send_words(place + offsets, word_of(lower, upper, DTYPE), sends & (offsets < WORDS))


@triton.jit
def _receive_sums(
    out, ids, n_tokens, words, slots, number, tokens, MEMBERS: tl.constexpr, K: tl.constexpr, L: tl.constexpr,
    WORDS: tl.constexpr, DTYPE: tl.constexpr, TAKEN: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    B: tl.constexpr = tokens.shape[0]
    batch = tl.arange(0, B)
    columns = tl.arange(0, TAKEN)[None, :]
    _told(words, number, MEMBERS)
    mine = _ids_of_batch(ids, tokens, n_tokens, K, triton.next_power_of_2(K))
    homes = tl.where(mine >= 0, mine // L, -1)
    used = (tokens < n_tokens)[:, None]
    for first in range(0, WORDS, TAKEN):
        offsets = first + columns
        seen = ()
        for pe in tl.static_range(N):  # all loads are in flight before the first wait
            mask = (tl.max((homes == pe).to(tl.int32), axis=1) != 0)[:, None] & (offsets < WORDS)
            place = slots + _slot_of(number, pe, batch, MEMBERS, B)[:, None] * WORDS + offsets
            seen = seen + (look_at(place, mask),)  # type: ignore[assignment]  # noqa: RUF005
        lower = tl.zeros([B, TAKEN], tl.float32)
        upper = tl.zeros([B, TAKEN], tl.float32)
        for pe in tl.static_range(N):
            mask = (tl.max((homes == pe).to(tl.int32), axis=1) != 0)[:, None] & (offsets < WORDS)
            begin = slots + _slot_of(number, pe, 0, MEMBERS, B) * WORDS
            place = begin + batch[:, None] * WORDS + offsets
            left = tl.minimum(TAKEN, WORDS - first)
            got = take_words(seen[pe], place, mask, begin + first, pe_of(pe, MEMBERS), left)
            lower += tl.where(mask, element(got, False, DTYPE), 0.0)
            upper += tl.where(mask, element(got, True, DTYPE), 0.0)
        at = out + tokens.to(tl.int64)[:, None] * WORDS + offsets
        tl.store(at, word_of(lower, upper, DTYPE), mask=used & (offsets < WORDS))


@triton.jit(do_not_specialize=["n_tokens"])
def moe_combine_rounds(
    y, memory, ids, out, n_tokens, words, slots, rounds, order, MEMBERS: tl.constexpr, K: tl.constexpr,
    L: tl.constexpr, MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr,
    WEIGHTED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr, TAKEN: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    pes = tl.arange(0, triton.next_power_of_2(N))
    batch = tl.arange(0, B)
    first = tl.load(rounds + program) + 1
    tokens_of = tl.load(memory + PARTS[2] + pes, mask=pes < N, other=0)
    n_rounds = tl.maximum(_rounds(tl.max(tokens_of), B), 1)
    # In pass i round i is sent, and round i - 1 received.
    for i in range(n_rounds + 1):
        if i < n_rounds:
            if i > 0:
                order_messages(order + program)  # what was cleared comes before the word of the next round
            tokens = (i * tl.num_programs(0) + program) * B + batch
            _send_sums(
                y, memory, tokens_of, words, slots, first + i, tokens, MEMBERS, K, MAX_TOKENS, WORDS, PARTS, DTYPE,
                WEIGHTED, BLOCK,
            )  # fmt: skip
        if i > 0:
            tokens = ((i - 1) * tl.num_programs(0) + program) * B + batch
            _receive_sums(
                out, ids, n_tokens, words, slots, first + i - 1, tokens, MEMBERS, K, L, WORDS, DTYPE, TAKEN
            )  # fmt: skip
    tl.debug_barrier()  # all threads have read the number
    tl.store(rounds + program, first + n_rounds - 1)


# ---- the host's part


class _Slots:
    """Of one kind of rounds: its slots, and what programs keep between launches.

    Attributes:
        words: [4, n_pes, programs] int64. slots: [4, n_pes, programs, batch, row] int32.
        numbers, rounds, order: [programs] int32: of the last exchange of counts, of the last round, and for fences.
    """

    def __init__(self, comm: Communicator, n_pes: int, what: str, programs: int, row: int) -> None:
        batch, _ = _blocks(row, row)
        name = f"moe rounds: {what}, {programs} programs"
        of_rounds = _DEPTH.value * n_pes * programs
        header = -(-3 * programs // 32) * 32
        memory = symmetric_workspace(comm, name, header + of_rounds * batch * row)
        self.words = symmetric_workspace(comm, f"{name}, words", of_rounds, torch.int64)
        self.slots = memory[header:]
        self.numbers, self.rounds, self.order = memory[: 3 * programs].view(3, -1)


def dispatch_rounds(
    x: torch.Tensor,
    scales: torch.Tensor,
    routing: Routing,
    result: Dispatched,
    out_scales: torch.Tensor,
    constants: dict[str, Any],
    options: dict[str, Any],
    buffer: int,
) -> Launch | None:
    """Dispatch into ``result``. ``scales`` and ``out_scales`` may be anything if there are none.

    Args:
        constants: those of a dispatch, but for blocks. options: of the launch.
    """
    batch, block = _blocks(constants["DATA"], 512)
    programs = min(routing.num_sms, sms())
    of, counts = dispatch_slots(routing, constants["ROW"], programs, buffer)
    warps = _warps(batch * block)
    tensors = *map(in_int32, (x, scales)), routing.ids, routing.weights
    outputs = *map(in_int32, (result.x, out_scales)), result.memory
    return launch(
        moe_dispatch_rounds, (programs,), (*tensors, *outputs), routing.n_tokens, routing.capacity, counts, of.words,
        of.slots, of.numbers, of.rounds, of.order,
        **constants | {"B": batch, "BLOCK": block, "TOKENS": max(1, 64 * warps // constants["KP"])},
        **options | {"num_warps": warps},
    )  # fmt: skip


def dispatch_slots(routing: Routing, row: int, programs: int, buffer: int = 0) -> tuple[_Slots, torch.Tensor]:
    """The slots of rows of so many words, and of counts. *Collective* the first time."""
    comm, n_pes, local = routing.comm, routing.members.size, routing.local_experts
    assert comm is not None
    what = f"{local} experts, buffer {buffer}"
    slots = _Slots(comm, n_pes, f"dispatch of {row} words, {what}", programs, row)
    name = f"moe rounds: counts of {row} words, {what}, {programs} programs"
    return slots, symmetric_workspace(comm, name, 2 * n_pes * routing.sources.number * (local + 1), torch.int64)


def combine_slots(routing: Routing, words: int, programs: int, buffer: int = 0) -> _Slots:
    """The slots of rows of so many words. *Collective* the first time."""
    assert routing.comm is not None
    return _Slots(routing.comm, routing.members.size, f"combine of {words} words, buffer {buffer}", programs, words)


def combine_rounds(
    y: torch.Tensor,
    dispatched: Dispatched,
    out: torch.Tensor,
    dtype: tl.dtype,
    weighted: bool,
    buffer: int,
) -> Launch | None:
    """Combine into ``out``."""
    routing = dispatched.routing
    words, programs = y.shape[1] * y.element_size() // 4, min(routing.num_sms, sms())
    batch, block = _blocks(words, 256)
    pes = int(triton.next_power_of_2(routing.members.size))
    of = combine_slots(routing, words, programs, buffer)
    return launch(
        moe_combine_rounds, (programs,), (in_int32(y), dispatched.memory, routing.ids, in_int32(out)),
        routing.n_tokens, of.words, of.slots, of.rounds, of.order, MEMBERS=routing.members, K=routing.top_k,
        L=routing.local_experts, MAX_TOKENS=routing.max_tokens, WORDS=words, PARTS=parts_of(routing)[:6], DTYPE=dtype,
        WEIGHTED=weighted, B=batch, BLOCK=block, TAKEN=min(block, max(128, 2048 // pes)),
        num_warps=_warps(batch * block),
    )  # fmt: skip


def _blocks(words: int, most: int) -> tuple[int, int]:
    """How many tokens make a batch, and how many words of each are moved at a time."""
    batch = 8
    if triton_dist.kind() == "cpu":  # where a load of more is not taken for a poll (cpu/builder.py)
        batch, most = 2, 256
    return batch, min(most, int(triton.next_power_of_2(words)))


def _warps(words: int) -> int:
    """How many warps move a block of words, 16 bytes a thread."""
    return max(4, min(16, words // 128))
