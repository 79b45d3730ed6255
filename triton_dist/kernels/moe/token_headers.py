"""What goes with tokens that TMA moves (``tokens_hopper.py``): scales, ids and weights, by four warps beside the rows.

A program sends these of a part of the tokens, each to the slots of its token on the PEs that it goes to, then releases
a flag on every PE, the number of the call; and takes what the program of its number has sent on every PE. Slots are
double-buffered by call: a PE that sends call n + 2 has received the flags of call n + 1 from every peer, which each
sent in a kernel behind the one that had read those of call n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.flags import acquire, signal_all, wait_for_previous
from triton_dist.kernels.moe.rounds_hopper import padded
from triton_dist.kernels.moe.token_ring import BATCH, tokens_of

__all__ = ["Headers", "move_headers"]

AT_ONCE = gl.constexpr(32)
"""Tokens, of which all words are in flight together."""


class Headers(NamedTuple):
    """What goes with tokens, and where it arrives.

    Attributes:
        ids: [T, top_k] int32 or int64. weights: [T, top_k], scales: [T, scales], float32 as int32.
        out_ids, out_weights, out_scales: the same, of ``capacity`` rows.
        rows_of: int32 [n_pes + 1], how many rows come from each source, and all together.
        slots: symmetric int32, [2, n_pes, max_tokens] of ``CONFIG.header`` words. flags: symmetric int32
            [n_pes, lanes]. distances, flag_distances: int64 [n_pes], bytes from there to those of a peer.
    """

    ids: Any
    weights: Any
    scales: Any
    out_ids: Any
    out_weights: Any
    out_scales: Any
    rows_of: Any
    capacity: Any
    slots: Any
    flags: Any
    distances: Any
    flag_distances: Any


@gluon.constexpr_function
def _layout():
    return gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])


@gluon.constexpr_function
def _layout_of_choices():
    return gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])


@gluon.jit
def _part_of(n_tokens, lane, lanes):
    """The first and the last token, but one, of a program's part; whole batches."""
    each = gl.cdiv(gl.cdiv(n_tokens, BATCH), lanes) * BATCH
    return gl.minimum(lane * each, n_tokens), gl.minimum(lane * each + each, n_tokens)


@gluon.jit
def _column(COLUMNS: gl.constexpr, LAYOUT: gl.constexpr):
    return gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))[None, :]


@gluon.jit
def _tokens(first, LAYOUT: gl.constexpr):
    return first + gl.arange(0, AT_ONCE, gl.SliceLayout(1, LAYOUT))[:, None]


@gluon.jit
def _slots_of(of, source, half, CONFIG: gl.constexpr):
    at = (half * CONFIG.n_pes + source).to(gl.int64) * (CONFIG.max_tokens * CONFIG.header)
    return of.slots + at


@gluon.jit
def _to_peers(values, mask, places, goes, of, me, CONFIG: gl.constexpr):
    """Store a block to the peers that its tokens go to; ``goes`` as of the tables, shifted by the token's bit."""
    N: gl.constexpr = CONFIG.n_pes
    for distance in gl.static_range(1, N):
        rank = (me + distance) % N
        there = ((goes >> (8 * rank)) & 1) != 0
        # Distances are multiples of 16 bytes.
        away = gl.load(of.distances + rank) // 16 * 4
        gl.store(places + away, values, mask=mask & there)


@gluon.jit
def _send(of, route, half, begin, end, CONFIG: gl.constexpr):
    """Store what goes with the tokens from ``begin`` to ``end`` to the slots of their PEs."""
    K: gl.constexpr = CONFIG.top_k
    S: gl.constexpr = CONFIG.n_scales
    WIDE: gl.constexpr = _layout()
    NARROW: gl.constexpr = _layout_of_choices()
    slots = _slots_of(of, route.me, half, CONFIG)
    for first in range(begin, end, AT_ONCE):
        if CONFIG.n_scales > 0:
            tokens = _tokens(first, WIDE)
            columns = _column(padded(CONFIG.n_scales), WIDE)
            mask = (tokens < end) & (columns < S)
            goes = gl.load(route.goes + tokens // BATCH, mask=tokens < end, other=0) >> (tokens % BATCH).to(gl.int64)
            words = gl.load(of.scales + tokens.to(gl.int64) * S + columns, mask=mask, other=0)
            _to_peers(words, mask, slots + tokens.to(gl.int64) * CONFIG.header + columns, goes, of, route.me, CONFIG)
        if CONFIG.with_ids:
            tokens = _tokens(first, NARROW)
            columns = _column(padded(CONFIG.top_k), NARROW)
            mask = (tokens < end) & (columns < K)
            goes = gl.load(route.goes + tokens // BATCH, mask=tokens < end, other=0) >> (tokens % BATCH).to(gl.int64)
            at = tokens.to(gl.int64) * K + columns
            ids = gl.load(of.ids + at, mask=mask, other=0).to(gl.int32)
            weights = gl.load(of.weights + at, mask=mask, other=0)
            place = slots + tokens.to(gl.int64) * CONFIG.header + S + columns
            _to_peers(ids, mask, place, goes, of, route.me, CONFIG)
            _to_peers(weights, mask, place + K, goes, of, route.me, CONFIG)


@gluon.jit
def _rows(route, source, tokens, end, CONFIG: gl.constexpr):
    """The rows of tokens of a source, and whether they come."""
    place = route.comes + source * CONFIG.batches + tokens // BATCH
    word = gl.load(place, mask=tokens < end, other=0)
    bit = tokens % BATCH
    before = word & 255 & ((1 << bit) - 1)
    before = before - ((before >> 1) & 85)
    before = (before & 51) + ((before >> 2) & 51)
    before = (before + (before >> 4)) & 15
    return ((word >> 8) + before).to(gl.int64), ((word >> bit) & 1) != 0


@gluon.jit
def _take(scales, ids, weights, step_s, step_k, of, route, source, begin, end, CONFIG: gl.constexpr):  # fmt: skip
    """Store what goes with the tokens of a source to the result; steps are from token to token, in elements."""
    K: gl.constexpr = CONFIG.top_k
    S: gl.constexpr = CONFIG.n_scales
    WIDE: gl.constexpr = _layout()
    NARROW: gl.constexpr = _layout_of_choices()
    for first in range(begin, end, AT_ONCE):
        if CONFIG.n_scales > 0:
            tokens = _tokens(first, WIDE)
            columns = _column(padded(CONFIG.n_scales), WIDE)
            rows, come = _rows(route, source, tokens, end, CONFIG)
            mask = come & (columns < S)
            words = gl.load(scales + tokens.to(gl.int64) * step_s + columns, mask=mask, other=0)
            gl.store(of.out_scales + rows * S + columns, words, mask=mask)
        if CONFIG.with_ids:
            tokens = _tokens(first, NARROW)
            columns = _column(padded(CONFIG.top_k), NARROW)
            rows, come = _rows(route, source, tokens, end, CONFIG)
            mask = come & (columns < K)
            at = tokens.to(gl.int64) * step_k + columns
            local = gl.load(ids + at, mask=mask, other=-1).to(gl.int32) - route.me * CONFIG.local_experts
            factors = gl.load(weights + at, mask=mask, other=0)
            here = (local >= 0) & (local < CONFIG.local_experts)
            _store_ids(of, rows * K + columns, gl.where(here, local, -1), gl.where(here, factors, 0), mask)


@gluon.jit
def _store_ids(of, at, ids, weights, mask):
    gl.store(of.out_ids + at, ids.to(of.out_ids.dtype.element_ty), mask=mask)
    gl.store(of.out_weights + at, weights, mask=mask)


@gluon.jit
def _fill_the_rest(of, begin, lane, lanes, CONFIG: gl.constexpr):
    """Rows behind the last one are of no expert."""
    K: gl.constexpr = CONFIG.top_k
    KP: gl.constexpr = padded(CONFIG.top_k)
    LAYOUT: gl.constexpr = _layout_of_choices()
    columns = _column(KP, LAYOUT)
    for first in range(begin + lane * AT_ONCE, of.capacity, lanes * AT_ONCE):
        rows = _tokens(first, LAYOUT)
        mask = (rows < of.capacity) & (columns < K)
        none = gl.zeros([AT_ONCE, KP], gl.int32, LAYOUT)
        _store_ids(of, rows.to(gl.int64) * K + columns, none - 1, none, mask)


@gluon.jit
def move_headers(of, route, call, lane, lanes, CONFIG: gl.constexpr):
    """Send what goes with this PE's tokens, and take what goes with those that come."""
    N: gl.constexpr = CONFIG.n_pes
    wait_for_previous()
    if CONFIG.header > 0:
        half = call & 1
        begin, end = _part_of(route.n_tokens, lane, lanes)
        _send(of, route, half, begin, end, CONFIG)
        signal_all(of.flags + route.me * lanes + lane, of.flag_distances, route.me, call, N)
        _take(
            of.scales, of.ids, of.weights, CONFIG.n_scales, CONFIG.top_k, of, route, route.me, begin, end, CONFIG
        )  # fmt: skip
        if CONFIG.with_ids:
            _fill_the_rest(of, gl.load(of.rows_of + N), lane, lanes, CONFIG)
        for distance in range(1, N):  # in the order in which PEs send to this one
            source = (route.me - distance + N) % N
            begin, end = _part_of(tokens_of(route, source), lane, lanes)
            acquire(of.flags + source * lanes + lane, call, "sys")
            slots = _slots_of(of, source, half, CONFIG)
            ids = slots + CONFIG.n_scales
            _take(
                slots, ids, ids + CONFIG.top_k, CONFIG.header, CONFIG.header, of, route, source, begin, end, CONFIG
            )  # fmt: skip
