"""The network's part of dispatch and combine on several hosts: rows cross between PEs of equal number on their hosts.

A token's row crosses once to each other host that has one of its experts, with its scales and, as ids of that host's
experts, its routing. The row of sums that the host returns crosses once. Eight tokens that follow each other make a
chunk. Of a chunk the rows for a host are packed, and are one message, a put with a signal, as soon as they are packed;
a message without rows is a signal only. So the network has the first message after one chunk.

Slots have room for every chunk. A signal is ``number * (CHUNK + 1) + rows``, where ``number`` counts the exchanges; it
only grows, and says how many rows a message has. Exchange n uses half n mod 2 of the slots and signals, and has a
message of every chunk from every PE of a column to every other. So slots are used again without acknowledgements: a PE
that sends exchange n + 2 has received exchange n + 1 from each peer, which sent it in a kernel behind the one that had
read exchange n. This takes that at most one exchange is in flight in the same slots. Numbers live in memory, one for
each program, so launches and replays of CUDA graphs need no host. Grids are the same in every launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import check_sm_margin, sms
from triton_dist.kernels.moe.arguments import CHUNK, Routing
from triton_dist.kernels.moe.exchange import InFlight, Slots, refuse_second
from triton_dist.kernels.moe.rows import element, word_of
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of, stride_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace

__all__ = [
    "HostExchange",
    "moe_combine_between_hosts",
    "moe_dispatch_between_hosts",
    "moe_dispatch_between_hosts_receive",
    "moe_dispatch_between_hosts_send",
    "open_host_exchange",
    "options_of",
    "words_of_message",
]

_B = tl.constexpr(CHUNK)


@dataclass(frozen=True)
class HostExchange(Slots):
    """Slots for a message of every chunk from every other host.

    Attributes:
        inbox: [2, hosts - 1, chunks, CHUNK, words] int32. outbox: [hosts - 1, chunks, CHUNK, words], or empty.
        signals: [2, hosts - 1, chunks] int64.
    """

    inbox: torch.Tensor
    outbox: torch.Tensor
    signals: torch.Tensor


# ---- device code. ROW and COLUMN are the group as a grid; K choices, KP of them with padding, L experts of a PE,
#      CHUNKS chunks of a PE's tokens; DATA and SCALES words of a row, MESSAGE words of one that crosses.


@triton.jit
def _host_and_id(ids, ROW: tl.constexpr, COLUMN: tl.constexpr, L: tl.constexpr):
    """The hosts of experts, and their numbers among those of their hosts; -1 for a choice that is not made."""
    rank = ids // L
    if stride_of(ROW) <= stride_of(COLUMN):  # ranks are numbered host by host
        host, local = rank // group_size(ROW), rank % group_size(ROW)
    else:
        host, local = rank % group_size(COLUMN), rank // group_size(COLUMN)
    made = ids >= 0
    return tl.where(made, host, -1), tl.where(made, local * L + ids % L, -1)


@triton.jit
def _routed(
    ids, tokens, n_tokens, ROW: tl.constexpr, COLUMN: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    CHECKED: tl.constexpr,
):  # fmt: skip
    """As :func:`_host_and_id`, of the choices of tokens: [B, KP] each."""
    choices = tl.arange(0, KP)
    mask = (tokens < n_tokens)[:, None] & (choices < K)[None, :]
    given = tl.load(ids + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=mask, other=-1)
    if CHECKED:
        EXPERTS: tl.constexpr = group_size(ROW) * group_size(COLUMN) * L
        assert (given >= -1) & (given < EXPERTS), "dispatch: an expert id is not in [-1, num_experts)"
    return _host_and_id(given.to(tl.int32), ROW, COLUMN, L)


@triton.jit
def _goes(hosts, host):
    """Which of the tokens have an expert on ``host``, and the place of each among them: [B]."""
    goes = tl.max((hosts == host).to(tl.int32), axis=1)
    return goes != 0, tl.cumsum(goes, axis=0) - goes


@triton.jit
def _slot(number, sender, chunk, COLUMN: tl.constexpr, CHUNKS: tl.constexpr):
    """The number of the slot for a chunk of the ``sender``-th other host."""
    return ((number & 1) * (group_size(COLUMN) - 1) + sender) * CHUNKS + chunk


@triton.jit
def _copy(to, source, used, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy rows of words from pointers [B] to pointers [B], where ``used`` is set."""
    SIZE: tl.constexpr = max(1, min(BLOCK, triton.next_power_of_2(WORDS)))
    for first in tl.static_range(0, WORDS, SIZE):
        offsets = first + tl.arange(0, SIZE)[None, :]
        mask = used[:, None] & (offsets < WORDS)
        tl.store(to[:, None] + offsets, tl.load(source[:, None] + offsets, mask=mask), mask=mask)


@triton.jit
def _put(signals, slot, number, dst, src, rows, words, host, COLUMN: tl.constexpr):
    """Send ``rows`` rows of so many words to the PE of this column on ``host``, or their number only."""
    value = number * (_B + 1) + rows
    pe = pe_of(host, COLUMN)
    if rows > 0:
        dl.putmem_signal_nbi(dst, src, rows * words * 4, signals + slot, value, dl.SIGNAL_SET, pe)
    else:
        dl.signal_op(signals + slot, value, dl.SIGNAL_SET, pe)


@triton.jit
def _take(signals, slot, number):
    """Wait for a message, and return how many rows it has."""
    least = number * (_B + 1)
    return (dl.signal_wait_until(signals + slot, dl.CMP_GE, least) - least).to(tl.int32)


@triton.jit
def _send_rows(
    x, scales, ids, weights, rows, row_scales, row_weights, n_tokens, outbox, inbox, signals, numbers,
    ROW: tl.constexpr, COLUMN: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, CHUNKS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, MESSAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Send the tokens' rows to the other hosts, and copy those that this host's experts get to ``rows``."""
    H: tl.constexpr = group_size(COLUMN)
    me = my_rank(COLUMN)
    batch = tl.arange(0, _B)
    choices = tl.arange(0, KP)[None, :]
    number = tl.load(numbers + tl.program_id(0)) + 1
    for chunk in range(tl.program_id(0), CHUNKS, tl.num_programs(0)):
        tokens = chunk * _B + batch
        token = tokens.to(tl.int64)
        hosts, of_host = _routed(ids, tokens, n_tokens, ROW, COLUMN, K, KP, L, True)
        made = (tokens < n_tokens)[:, None] & (choices < K)
        weight = tl.load(weights + token[:, None] * K + choices, mask=made, other=0.0)
        for i in range(1, H):  # from the next host on
            host = (me + i) % H
            goes, place = _goes(hosts, host)
            packed = outbox + ((i - 1) * CHUNKS + chunk).to(tl.int64) * (_B * MESSAGE)
            to = packed + place * MESSAGE
            _copy(to, x + token * DATA, goes, DATA, BLOCK)
            _copy(to + DATA, scales + token * SCALES, goes, SCALES, BLOCK)
            there = goes[:, None] & (choices < K)
            tl.store((to + (DATA + SCALES))[:, None] + choices, tl.where(hosts == host, of_host, -1), mask=there)
            bits = weight.to(tl.int32, bitcast=True)
            tl.store((to + (DATA + SCALES + K))[:, None] + choices, bits, mask=there)
            slot = _slot(number, H - 1 - i, chunk, COLUMN, CHUNKS)
            count = tl.sum(goes.to(tl.int32), axis=0)
            _put(signals, slot, number, inbox + slot * (_B * MESSAGE), packed, count, MESSAGE, host, COLUMN)
        goes, _ = _goes(hosts, me)
        row = (me * CHUNKS + chunk).to(tl.int64) * _B + batch
        _copy(rows + row * DATA, x + token * DATA, goes, DATA, BLOCK)
        _copy(row_scales + row * SCALES, scales + token * SCALES, goes, SCALES, BLOCK)
        tl.store(row_weights + row[:, None] * K + choices, weight, mask=(choices < K) & (row >= 0)[:, None])
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + tl.program_id(0), number)


@triton.jit
def _receive_rows(
    ids, rows, row_scales, row_weights, memory, n_tokens, inbox, signals, numbers, ROW: tl.constexpr,
    COLUMN: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, CHUNKS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, MESSAGE: tl.constexpr, AT_IDS: tl.constexpr, AT_COUNTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy what the other hosts send to ``rows``, and store all rows' ids and how many rows each chunk has."""
    H: tl.constexpr = group_size(COLUMN)
    me = my_rank(COLUMN)
    batch = tl.arange(0, _B)
    choices = tl.arange(0, KP)[None, :]
    number = tl.load(numbers + tl.program_id(0)) + 1
    for chunk in range(tl.program_id(0), CHUNKS, tl.num_programs(0)):
        hosts, of_host = _routed(ids, chunk * _B + batch, n_tokens, ROW, COLUMN, K, KP, L, False)
        row = (me * CHUNKS + chunk).to(tl.int64) * _B + batch
        exist = (choices < K) & (batch >= 0)[:, None]
        tl.store(memory + AT_IDS + row[:, None] * K + choices, tl.where(hosts == me, of_host, -1), mask=exist)
        for i in range(1, H):
            slot = _slot(number, i - 1, chunk, COLUMN, CHUNKS)
            count = _take(signals, slot, number)
            chunk_of_all = (me + i) % H * CHUNKS + chunk
            row = chunk_of_all.to(tl.int64) * _B + batch
            used = batch < count
            found = inbox + slot * (_B * MESSAGE) + batch * MESSAGE
            there = used[:, None] & (choices < K)
            chosen = tl.load((found + (DATA + SCALES))[:, None] + choices, mask=there, other=-1)
            tl.store(memory + AT_IDS + row[:, None] * K + choices, chosen, mask=exist)
            weight = tl.load((found + (DATA + SCALES + K))[:, None] + choices, mask=there, other=0)
            tl.store(row_weights + row[:, None] * K + choices, weight.to(tl.float32, bitcast=True), mask=exist)
            tl.store(memory + AT_COUNTS + chunk_of_all, count)
            _copy(rows + row * DATA, found, used, DATA, BLOCK)
            _copy(row_scales + row * SCALES, found + DATA, used, SCALES, BLOCK)
    tl.debug_barrier()
    tl.store(numbers + tl.program_id(0), number)


@triton.jit(do_not_specialize=["n_tokens"])
def moe_dispatch_between_hosts_send(
    x, scales, ids, weights, rows, row_scales, row_weights, n_tokens, outbox, inbox, signals, numbers,
    ROW: tl.constexpr, COLUMN: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, CHUNKS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, MESSAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The send half of a dispatch: wait for nothing."""
    _send_rows(
        x, scales, ids, weights, rows, row_scales, row_weights, n_tokens, outbox, inbox, signals, numbers, ROW, COLUMN,
        K, KP, L, CHUNKS, DATA, SCALES, MESSAGE, BLOCK,
    )  # fmt: skip
    dl.quiet()  # the messages have left the outbox


@triton.jit(do_not_specialize=["n_tokens"])
def moe_dispatch_between_hosts_receive(
    ids, rows, row_scales, row_weights, memory, n_tokens, inbox, signals, numbers, ROW: tl.constexpr,
    COLUMN: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, CHUNKS: tl.constexpr,
    DATA: tl.constexpr, SCALES: tl.constexpr, MESSAGE: tl.constexpr, AT_IDS: tl.constexpr, AT_COUNTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The receive half."""
    _receive_rows(
        ids, rows, row_scales, row_weights, memory, n_tokens, inbox, signals, numbers, ROW, COLUMN, K, KP, L, CHUNKS,
        DATA, SCALES, MESSAGE, AT_IDS, AT_COUNTS, BLOCK,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n_tokens"])
def moe_dispatch_between_hosts(
    x, scales, ids, weights, rows, row_scales, row_weights, memory, n_tokens, outbox, inbox, signals, sent_numbers,
    received_numbers, ROW: tl.constexpr, COLUMN: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    CHUNKS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr, MESSAGE: tl.constexpr, AT_IDS: tl.constexpr,
    AT_COUNTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Both halves."""
    _send_rows(
        x, scales, ids, weights, rows, row_scales, row_weights, n_tokens, outbox, inbox, signals, sent_numbers, ROW,
        COLUMN, K, KP, L, CHUNKS, DATA, SCALES, MESSAGE, BLOCK,
    )  # fmt: skip
    _receive_rows(
        ids, rows, row_scales, row_weights, memory, n_tokens, inbox, signals, received_numbers, ROW, COLUMN, K, KP, L,
        CHUNKS, DATA, SCALES, MESSAGE, AT_IDS, AT_COUNTS, BLOCK,
    )  # fmt: skip
    dl.quiet()  # the messages have left the outbox


@triton.jit(do_not_specialize=["n_tokens"])
def moe_combine_between_hosts(
    memory, ids, out, n_tokens, sums, inbox, signals, numbers, ROW: tl.constexpr, COLUMN: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, CHUNKS: tl.constexpr, WORDS: tl.constexpr,
    AT_COUNTS: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return this host's sums to the hosts of their tokens, and add those of all hosts, in their order."""
    H: tl.constexpr = group_size(COLUMN)
    me = my_rank(COLUMN)
    batch = tl.arange(0, _B)
    number = tl.load(numbers + tl.program_id(0)) + 1
    for chunk in range(tl.program_id(0), CHUNKS, tl.num_programs(0)):
        for i in range(1, H):
            host = (me + i) % H
            chunk_of_all = host * CHUNKS + chunk
            count = tl.load(memory + AT_COUNTS + chunk_of_all)
            slot = _slot(number, H - 1 - i, chunk, COLUMN, CHUNKS)
            src = sums + chunk_of_all.to(tl.int64) * (_B * WORDS)
            _put(signals, slot, number, inbox + slot * (_B * WORDS), src, count, WORDS, host, COLUMN)
    for chunk in range(tl.program_id(0), CHUNKS, tl.num_programs(0)):
        tokens = chunk * _B + batch
        hosts, _ = _routed(ids, tokens, n_tokens, ROW, COLUMN, K, KP, L, False)
        for i in range(1, H):
            _take(signals, _slot(number, i - 1, chunk, COLUMN, CHUNKS), number)
        own = (me * CHUNKS + chunk).to(tl.int64) * _B + batch
        for first in range(0, WORDS, BLOCK):
            offsets = first + tl.arange(0, BLOCK)[None, :]
            lower = tl.zeros([_B, BLOCK], tl.float32)
            upper = tl.zeros([_B, BLOCK], tl.float32)
            for host in range(H):
                goes, place = _goes(hosts, host)
                mask = goes[:, None] & (offsets < WORDS)
                slot = _slot(number, tl.maximum((host - me + H) % H, 1) - 1, chunk, COLUMN, CHUNKS)
                found = inbox + slot * (_B * WORDS) + (place * WORDS)[:, None]
                words = tl.load(found + offsets, mask=mask & (host != me), other=0)
                words |= tl.load(sums + own[:, None] * WORDS + offsets, mask=mask & (host == me), other=0)
                lower += element(words, False, DTYPE)
                upper += element(words, True, DTYPE)
            to = out + tokens.to(tl.int64)[:, None] * WORDS + offsets
            tl.store(to, word_of(lower, upper, DTYPE), mask=(tokens < n_tokens)[:, None] & (offsets < WORDS))
    tl.debug_barrier()
    tl.store(numbers + tl.program_id(0), number)
    dl.quiet()  # the messages have left the sums


# ---- the host's part


def words_of_message(routing: Routing, data: int, n_scales: int) -> int:
    """How many words of a row cross: data, scales, ids and weights, a multiple of 16 bytes."""
    return -(-(data + n_scales + 2 * routing.top_k) // 4) * 4


def open_host_exchange(
    comm: Communicator,
    function: str,
    routing: Routing,
    what: str,
    row_words: int,
    buffer: int,
    sm_margin: int,
    *,
    packed: bool,
) -> HostExchange:
    """The slots of an exchange. *Collective* the first time.

    Args:
        packed: whether rows are packed before they are sent, which takes an outbox.

    Raises:
        RuntimeError: an exchange in these slots is in flight. ValueError: ``sm_margin`` leaves no program.
    """
    programs = min(routing.num_sms or min(sms(), check_sm_margin(function, sm_margin)), routing.chunks)
    name = f"moe between hosts: {what}, {routing.max_tokens} tokens, buffer {buffer}, {programs} programs"
    in_flight = comm.own(InFlight)
    refuse_second(function, name, in_flight)
    slots = (routing.hosts - 1) * routing.chunks
    memory = symmetric_workspace(comm, name, (3 if packed else 2) * slots * CHUNK * row_words)
    words = symmetric_workspace(comm, f"{name}, signals", 2 * programs + 2 * slots, torch.int64)
    inbox = 2 * slots * CHUNK * row_words
    numbers = words[: 2 * programs].view(2, -1)
    return HostExchange(
        name, numbers[0], numbers[1], programs, in_flight, memory[:inbox], memory[inbox:], words[2 * programs :]
    )


def options_of(words: int) -> dict[str, Any]:
    """How many words of a row are moved at a time, and how many warps do it, 16 bytes a thread."""
    block = min(256 if triton_dist.kind() == "cpu" else 512, int(triton.next_power_of_2(words)))
    return {"BLOCK": block, "num_warps": max(4, min(8, CHUNK * block // 128))}
