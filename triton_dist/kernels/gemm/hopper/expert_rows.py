"""Rows of tokens between memories: to peers, and into the order of experts, 16 bytes at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.expert_layout import ARRIVED_ROWS, COPIED, COUNT, MOST_PARTS, SOURCE, TARGET, UNIT
from triton_dist.kernels.gemm.hopper.flags import acquire, wait_peers
from triton_dist.kernels.gemm.hopper.layout import ENTERED

__all__ = ["Arrival", "copy_arrived_rows", "copy_own_rows", "parts_of", "send_tokens", "there"]

_ROWS = gl.constexpr(16)
_WORDS = gl.constexpr(512)
"""A block that a program of four warps copies at a time: 16 loads of 16 bytes of each thread are in flight."""


class Arrival(NamedTuple):
    """Where tokens are, in int32 words.

    Attributes:
        x: this PE's tokens [n_tokens, words].
        gathered: symmetric, those of all PEs [n_pes * max_tokens, words].
        rows: copies in the order of arrival [R, words].
        tokens: int32, the token of each row of all PEs' experts, in the order of the result.
        destinations: int32, bits of the PEs to which each of this PE's tokens goes.
        units: the plan (``expert_layout.py``).
        n_tokens: of this PE.
        senders: how many programs send to peers and copy what has arrived; the others copy this PE's own tokens.
    """

    x: Any
    gathered: Any
    rows: Any
    tokens: Any
    destinations: Any
    units: Any
    n_tokens: Any
    senders: Any


@gluon.constexpr_function
def parts_of(experts):
    """Into how many parts so many experts are divided."""
    return min(int(MOST_PARTS), int(experts))


@gluon.jit
def there(pointer, distance):
    """A symmetric address on a peer, whose memory is ``distance`` bytes away, a multiple of 16.

    That it is one is seen by the compiler, which stores 16 bytes at a time where it knows the alignment.
    """
    return pointer + (distance >> 4) * (128 // pointer.dtype.element_ty.primitive_bitwidth)


@gluon.jit
def _copy(to, to_rows, source, source_rows, mask, WORDS: gl.constexpr, LAYOUT: gl.constexpr):
    """Copy rows of ``WORDS`` words: those of ``mask``."""
    to = to + to_rows.to(gl.int64)[:, None] * WORDS
    source = source + source_rows.to(gl.int64)[:, None] * WORDS
    for column in range(0, WORDS, _WORDS):
        columns = column + gl.arange(0, _WORDS, gl.SliceLayout(0, LAYOUT))[None, :]
        both = mask[:, None] & (columns < WORDS)
        gl.store(to + columns, gl.load(source + columns, mask=both), mask=both)


@gluon.jit
def send_tokens(
    arrival, peers, gathered_distances, epoch, WORDS: gl.constexpr, MAX_TOKENS: gl.constexpr, N_PES: gl.constexpr
):
    """Send this program's part of this PE's tokens to the peers that have experts of them, and signal that it is sent.

    The first peer is the one for which this PE is at distance 1.
    """
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    rows = gl.arange(0, _ROWS, gl.SliceLayout(1, LAYOUT))
    wait_peers(peers.flags + ENTERED, epoch, peers.me, N_PES)
    mine = arrival.gathered + gl.to_tensor(peers.me).to(gl.int64) * (MAX_TOKENS * WORDS)
    for distance in range(1, N_PES):
        pe = (peers.me - distance + N_PES) % N_PES
        to = there(mine, gl.load(gathered_distances + pe))
        for batch in range(gl.program_id(0), gl.cdiv(arrival.n_tokens, _ROWS), arrival.senders):
            tokens = batch * _ROWS + rows
            exist = tokens < arrival.n_tokens
            goes = gl.load(arrival.destinations + tokens, mask=exist, other=0) >> pe & 1
            _copy(to, tokens, arrival.x, tokens, exist & (goes != 0), WORDS, LAYOUT)
        gl.barrier()  # what all threads have stored comes before the release
        flag = there(peers.flags + ARRIVED_ROWS + peers.me, gl.load(peers.distances + pe))
        gl.atomic_add(flag, 1, sem="release", scope="sys")


@gluon.jit
def copy_own_rows(arrival, state, first, programs, me, L: gl.constexpr, WORDS: gl.constexpr, MAX_TOKENS: gl.constexpr):
    """Copy the rows of this PE's own tokens: as program ``first`` of so many ``programs``."""
    _copy_rows(arrival, arrival.x, me * MAX_TOKENS, state, 0, first, programs, L, WORDS)


@gluon.jit
def copy_arrived_rows(arrival, state, peers, L: gl.constexpr, WORDS: gl.constexpr, N_PES: gl.constexpr):
    """Copy the rows of the peers' tokens as they arrive, as one of ``arrival.senders`` programs."""
    for distance in range(1, N_PES):
        acquire(peers.flags + ARRIVED_ROWS + (peers.me + distance) % N_PES, arrival.senders, "sys")
        gl.barrier()  # no thread continues before the one that acquired
        _copy_rows(arrival, arrival.gathered, 0, state, distance, gl.program_id(0), arrival.senders, L, WORDS)


@gluon.jit
def _copy_rows(arrival, source, first_token, state, distance, first, programs, L: gl.constexpr, WORDS: gl.constexpr):
    """Copy the rows of one PE's tokens, expert by expert, in batches that programs take in turn.

    ``source`` has the tokens from ``first_token`` on. A part of the experts is released when a program has copied its
    batches of it.
    """
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    PARTS: gl.constexpr = parts_of(L)
    rows = gl.arange(0, _ROWS, gl.SliceLayout(1, LAYOUT))
    batch = first
    begin = 0  # the expert's first batch
    for expert in range(L):
        unit = arrival.units + (distance * L + expert) * UNIT
        count = gl.load(unit + COUNT)
        end = begin + gl.cdiv(count, _ROWS)
        while batch < end:
            inside = (batch - begin) * _ROWS + rows
            exist = inside < count
            tokens = gl.load(arrival.tokens + gl.load(unit + SOURCE) + inside, mask=exist, other=0)
            _copy(arrival.rows, gl.load(unit + TARGET) + inside, source, tokens - first_token, exist, WORDS, LAYOUT)
            batch += programs
        begin = end
        part = expert * PARTS // L
        if (expert + 1) * PARTS // L > part:
            gl.barrier()  # what all threads have stored comes before the release
            gl.atomic_add(state + COPIED + distance * PARTS + part, 1, sem="release", scope="gpu")
