"""Rows of tokens stored to the results of other PEs by TMA, where these are symmetric. For Hopper GPUs.

``tokens_hopper.py`` stores rows to slots, from which the receiver moves them to its result, as only the receiver knows
where they go. Here the kernel in front (``token_batches.py``) has found for each batch of this PE its rows in the
result of every PE. So a row is loaded once and stored once for each PE, and a receiver moves none, but of the first
rounds, which go to slots by their ids while tables are exchanged. A program has five warps for rows:

- One loads all of the PE's tokens into a ring, beginning while the kernel in front exchanges tables.
- One stores early tokens to the slots of their PEs; then a token to the results of its PEs, the next PE first, this one
  last. Behind all of its rows it releases a flag on every PE, the number of the call, and waits for those of the
  programs of its number on every PE. A third has released one when early tokens had arrived, since a fence takes long.
- One loads early tokens, this PE's own and, behind the flags of their sources, those that have come, into another ring,
  from which the last stores them to the result.

A PE stores to a result when that PE has sent its tables, which is behind all that read the result in front of the call.
Slots are double-buffered by call, of a number of their own: a PE that sends call n + 2 has received the last flags of
call n + 1 from every peer, which each sent in a kernel behind the one that had read the slots of call n. Four more
warps move scales, ids and weights (``token_headers.py``).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.flags import (
    acquire,
    fence_async_proxy,
    signal_all,
    store_nothing,
    stores_complete,
    wait_for_previous,
    wait_peers,
)
from triton_dist.kernels.moe.combine_ring import step_of
from triton_dist.kernels.moe.token_claims import claim, claimed, close_claims, make_claims, tell, told
from triton_dist.kernels.moe.token_headers import Headers, move_headers
from triton_dist.kernels.moe.token_ids import goes_to_others, ids_of
from triton_dist.kernels.moe.token_ring import (
    BATCH,
    LATE,
    comes_of,
    done_round,
    fill,
    fill_batch,
    lag_of,
    let_fill,
    make_barriers,
    make_ring,
    ones,
    rounds_for,
    route_of,
    store_rows,
    tokens_of,
    wait_round,
)
from triton_dist.kernels.moe.token_tables import batch_of, first_words, table_of_sends

__all__ = ["moe_dispatch_tokens_directly"]


@gluon.jit
def _load(x, n_tokens, ring, claims, lane, lanes, CONFIG: gl.constexpr):
    """Load this PE's tokens, also those that go nowhere, so this waits for no table: early ones, then what is claimed,
    the next unit while one is loaded."""
    stage, phase = 0, 0
    next = claim(claims)
    for i in range(_early(n_tokens, lanes, CONFIG)):
        first = (i * lanes + lane) * BATCH
        stage, phase = _load_tokens(x, first, gl.minimum(first + BATCH, n_tokens), ring, stage, phase, CONFIG)
    shared = _shared(n_tokens, lanes, CONFIG)
    token, number = shared + claimed(claims, next, CONFIG), 0
    tell(claims, 0, token)
    next = claim(claims)
    while token < n_tokens:
        number += 1
        following = shared + claimed(claims, next, CONFIG)
        tell(claims, number, following)
        next = claim(claims)
        stage, phase = _load_tokens(x, token, gl.minimum(token + CONFIG.unit, n_tokens), ring, stage, phase, CONFIG)
        token = following


@gluon.jit
def _load_tokens(x, begin, end, ring, stage, phase, CONFIG: gl.constexpr):
    for token in range(begin, end):
        stage, phase = fill(x, token, ring, stage, phase, CONFIG.sent, CONFIG)
    return stage, phase


@gluon.jit
def _early(n_tokens, lanes, CONFIG: gl.constexpr):
    """How many rounds a PE with so many tokens sends by their ids."""
    return gl.minimum(rounds_for(n_tokens, lanes), CONFIG.early)


@gluon.jit
def _shared(n_tokens, lanes, CONFIG: gl.constexpr):
    """The first token behind early ones, from which on programs claim them."""
    return _early(n_tokens, lanes, CONFIG) * lanes * BATCH


@gluon.jit
def _slot_of(call, source, lane, lanes, CONFIG: gl.constexpr):
    """The slot of a source's first early token in a lane."""
    return (((call & 1) * CONFIG.n_pes + source) * lanes + lane) * (CONFIG.early * BATCH)


@gluon.jit
def _store_early(slots, ids, route, ring, call, lane, lanes, CONFIG: gl.constexpr):
    """Store early tokens to the slots of the other PEs that they go to. Returns the ring's stage, phase and number."""
    N: gl.constexpr = CONFIG.n_pes
    UNREAD: gl.constexpr = lag_of(CONFIG.sent) * N
    stage, phase, number = 0, 0, 0
    slot = _slot_of(call, route.me, lane, lanes, CONFIG)
    for i in range(_early(route.n_tokens, lanes, CONFIG)):
        batch = i * lanes + lane
        goes = goes_to_others(ids_of(ids, route, batch, CONFIG), route.me, CONFIG)
        for j in range(gl.minimum(route.n_tokens - batch * BATCH, BATCH)):
            mbarrier.wait(ring.full.index(stage), phase)
            for distance in gl.static_range(1, N):
                if (goes >> (8 * ((route.me + distance) % N) + j)) & 1 != 0:
                    tma.async_store(slots[distance - 1], [slot + i * BATCH + j, 0, 0], ring.rows.index(stage))
                else:
                    store_nothing()
            store_nothing()  # as many groups as of other tokens
            tma.store_wait(UNREAD)
            let_fill(ring, stage, number, CONFIG.sent)
            number += 1
            stage, phase = step_of(stage, phase, CONFIG.sent)
    return stage, phase, number


@gluon.jit
def _store(
    results, slots, ids, route, ring, claims, stored, call, early_call, lane, lanes, CONFIG: gl.constexpr
):  # fmt: skip
    """Store this PE's tokens: early ones to ``slots`` of the other PEs, others to ``results`` of the next PE first, and
    of this one last. Then wait until all that come to the result have arrived."""
    N: gl.constexpr = CONFIG.n_pes
    UNREAD: gl.constexpr = lag_of(CONFIG.sent) * N
    stage, phase, number = _store_early(slots, ids, route, ring, early_call, lane, lanes, CONFIG)
    early, unit, token = number, 0, told(claims, 0)
    wait_for_previous()
    table = table_of_sends(route, CONFIG)
    ahead = batch_of(table, token // BATCH)
    while token < route.n_tokens:
        unit += 1
        following = told(claims, unit)
        goes = first_words(ahead, N)
        ahead = batch_of(table, following // BATCH)
        first = token % BATCH
        for j in range(first, first + gl.minimum(route.n_tokens - token, CONFIG.unit)):
            mbarrier.wait(ring.full.index(stage), phase)
            for distance in gl.static_range(1, N + 1):
                bits = goes[distance - 1] & 255
                if (bits >> j) & 1 != 0:
                    row = (goes[distance - 1] >> 8) + ones(bits & ((1 << j) - 1))
                    tma.async_store(results[distance - 1], [row, 0, 0], ring.rows.index(stage))
                else:  # every token has as many groups
                    store_nothing()
            tma.store_wait(UNREAD)
            let_fill(ring, stage, number, CONFIG.sent)
            number += 1
            stage, phase = step_of(stage, phase, CONFIG.sent)
            if number - early == LATE:  # by now early tokens have arrived, or soon will have
                stores_complete(LATE * N)
                done_round(stored, 0, CONFIG)
        token = following
    stores_complete()
    if number - early < LATE:
        done_round(stored, 0, CONFIG)
    signal_all(route.flags + route.me * lanes + lane, route.distances, route.me, call, N)
    wait_peers(route.flags + lane, call, route.me, N, lanes)


@gluon.jit
def _signal(flags, distances, me, stored, call, lane, lanes, CONFIG: gl.constexpr):
    """Tell all peers that early tokens have arrived."""
    wait_round(stored, 0, CONFIG)
    signal_all(flags + me * lanes + lane, distances, me, call, CONFIG.n_pes)


@gluon.jit
def _load_early(x, slots, flags, route, ring, call, lane, lanes, CONFIG: gl.constexpr):
    """Load the early tokens of this PE that stay, then those that come, in the order in which PEs send to this one."""
    N: gl.constexpr = CONFIG.n_pes
    stage, phase = 0, 0
    wait_for_previous()
    for i in range(_early(route.n_tokens, lanes, CONFIG)):
        batch = i * lanes + lane
        bits = comes_of(route, route.me, batch, CONFIG) & 255
        stage, phase = fill_batch(x, batch * BATCH, bits, ring, stage, phase, CONFIG.received, CONFIG)
    for distance in range(1, N):
        source = (route.me - distance + N) % N
        acquire(flags + source * lanes + lane, call, "sys")
        fence_async_proxy()
        slot = _slot_of(call, source, lane, lanes, CONFIG)
        for i in range(_early(tokens_of(route, source), lanes, CONFIG)):
            bits = comes_of(route, source, i * lanes + lane, CONFIG) & 255
            stage, phase = fill_batch(slots, slot + i * BATCH, bits, ring, stage, phase, CONFIG.received, CONFIG)


@gluon.jit
def _take_early(out, route, ring, lane, lanes, CONFIG: gl.constexpr):
    """Store these to the result, in the same order."""
    N: gl.constexpr = CONFIG.n_pes
    stage, phase, number = 0, 0, 0
    wait_for_previous()
    for distance in range(N):
        source = (route.me - distance + N) % N
        for i in range(_early(tokens_of(route, source), lanes, CONFIG)):
            come = comes_of(route, source, i * lanes + lane, CONFIG)
            stage, phase, number = store_rows(out, come, ring, stage, phase, number, CONFIG)
    stores_complete()


@gluon.jit(do_not_specialize=["n_tokens", "me", "capacity"])
def moe_dispatch_tokens_directly(
    x, out, ids, weights, scales, out_ids, out_weights, out_scales, memory, a, b, c, d, e, f, g, slots, of_a, of_b,
    of_c, of_d, of_e, of_f, of_g, n_tokens, flags, distances, early_flags, early_distances, early_calls,
    claim_words, calls, headers, header_flags, header_distances, header_flag_distances, capacity, me,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Move the tokens of a dispatch.

    Args:
        x, out, a, b, …: descriptors of [rows, lines of a row, 32] int32 words: of this PE's tokens, of its result, and
            of the results of the next PE (a), the one after it (b), and so on.
        slots, of_a, of_b, …: the same of slots for early tokens.
        memory: of the result, with its tables. flags, early_flags: symmetric int32 [n_pes, programs].
        distances, early_distances: int64 [n_pes], bytes from there to those of a peer.
        early_calls: int32 for each program, the last call with such slots; calls: the last one with such headers.
        claim_words: of :class:`Claims`.
        ids, weights, …, headers, …: of :class:`Headers`.

    ``x``, ``ids``, and the numbers of claims and calls are read while the kernel in front runs, which must be the one
    that makes the tables, launched behind what wrote these.
    """
    OTHERS: gl.constexpr = CONFIG.n_pes - 1
    all_peers = (a, b, c, d, e, f, g)
    results = all_peers[:OTHERS] + (out,)  # noqa: RUF005
    all_slots = (of_a, of_b, of_c, of_d, of_e, of_f, of_g)
    to_slots = all_slots[:OTHERS]
    route = route_of(me, n_tokens, memory, flags, distances, CONFIG)
    lane, lanes = gl.program_id(0), gl.num_programs(0)
    of = Headers(
        ids, weights, scales, out_ids, out_weights, out_scales, memory + CONFIG.tables[1], capacity, headers,
        header_flags, header_distances, header_flag_distances,
    )  # fmt: skip
    ring = make_ring(x, CONFIG.sent, CONFIG)
    found = make_ring(x, CONFIG.received, CONFIG)
    stored = make_barriers(1)
    claims = make_claims(claim_words, lane, CONFIG)
    call, early = gl.load(calls + lane) + 1, gl.load(early_calls + lane) + 1
    gl.warp_specialize(
        [
            (move_headers, (of, route, call, lane, lanes, CONFIG)),
            (_load, (x, n_tokens, ring, claims, lane, lanes, CONFIG)),
            (
                _store,
                (results, to_slots, ids, route, ring, claims, stored, call, early, lane, lanes, CONFIG),
            ),
            (_signal, (early_flags, early_distances, me, stored, early, lane, lanes, CONFIG)),
            (_load_early, (x, slots, early_flags, route, found, early, lane, lanes, CONFIG)),
            (_take_early, (out, route, found, lane, lanes, CONFIG)),
        ],
        [1, 1, 1, 1, 1],
        [64, 128, 64, 64, 64],
    )
    gl.store(calls + lane, call)
    gl.store(early_calls + lane, early)
    close_claims(claims, n_tokens - _shared(n_tokens, lanes, CONFIG), lane, lanes, CONFIG)
