"""Tokens to PEs in rounds, moved by TMA through shared memory, once to each PE. For Hopper GPUs.

A first kernel (``token_batches.py``) tells all PEs which tokens go where. A program here has five warps that move
rows, and four that move what goes with them (``token_headers.py``) meanwhile:

- One warp loads the PE's own tokens into a ring, and one stores each to the slots of the PEs that it goes to, and to
  the result if it stays. When all of a batch have arrived, which that one knows while it stores the next, a third
  releases a flag on every PE: the number of the round. The slots of a round are the same wherever tokens go, so the
  first rounds are sent by the ids while the first kernel runs. Where a token's row is, it tells in the end; so those of
  these rounds that stay are stored by the warps of what comes, for which nothing has come then.
- One warp loads, behind the flag of each source, the tokens that have come to the slots, and one stores them to the
  result, where they lie in the order of sources and tokens.

Rings let a warp that loads be ahead of the one that stores across batches, so nothing drains between them. Slots are
used again after ``depth`` rounds, without credits (``TokensConfig.gate``). Nothing is cleared: flags only grow.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.flags import (
    acquire_newest,
    fence_async_proxy,
    store_nothing,
    stores_complete,
    wait_for_previous,
)
from triton_dist.kernels.moe.combine_ring import step_of
from triton_dist.kernels.moe.token_headers import Headers, move_headers
from triton_dist.kernels.moe.token_ids import goes_to_others, ids_of
from triton_dist.kernels.moe.token_ring import (
    BATCH,
    LATE,
    anywhere,
    comes_of,
    done_round,
    fill_batch,
    lag_of,
    let_fill,
    make_barriers,
    make_ring,
    rounds_for,
    rounds_of,
    route_of,
    signal_rounds,
    slot_of,
    store_rows,
    stored_round,
    wait_round,
)
from triton_dist.kernels.moe.token_tables import (
    batch_of,
    goes_of,
    in_lanes,
    table_of_others,
    table_of_own,
    word_of,
)

__all__ = ["moe_dispatch_tokens_by_tma"]


@gluon.jit
def _early(route, lanes, CONFIG: gl.constexpr):
    """How many rounds this PE sends by its ids."""
    return gl.minimum(rounds_for(route.n_tokens, lanes), CONFIG.early)


@gluon.jit
def _load_own(x, ids, route, ring, lane, lanes, CONFIG: gl.constexpr):
    """Load this PE's tokens that go anywhere; in early rounds, to other PEs."""
    stage, phase = 0, 0
    early = _early(route, lanes, CONFIG)
    if CONFIG.early > 0:
        next_ids = ids_of(ids, route, lane, CONFIG)
        for i in range(early):
            bits = anywhere(goes_to_others(next_ids, route.me, CONFIG), CONFIG)
            next_ids = ids_of(ids, route, (i + 1) * lanes + lane, CONFIG)
            stage, phase = fill_batch(x, (i * lanes + lane) * BATCH, bits, ring, stage, phase, CONFIG.sent, CONFIG)
    wait_for_previous()
    table = table_of_own(route, CONFIG)
    ahead = batch_of(table, early * lanes + lane)
    for i in range(early, rounds_for(route.n_tokens, lanes)):
        bits = anywhere(goes_of(ahead, CONFIG), CONFIG)
        ahead = batch_of(table, (i + 1) * lanes + lane)
        stage, phase = fill_batch(x, (i * lanes + lane) * BATCH, bits, ring, stage, phase, CONFIG.sent, CONFIG)


@gluon.jit
def _store_own(out, peers, ids, route, ring, received, stored, newest, first, lane, lanes, CONFIG: gl.constexpr):
    """Store this PE's tokens to the slots of their PEs, and to the result those that stay, but of early rounds. Then
    other PEs may have rounds, in which this one sends nothing."""
    N: gl.constexpr = CONFIG.n_pes
    STAGES: gl.constexpr = CONFIG.sent
    UNREAD: gl.constexpr = lag_of(CONFIG.sent) * N
    GROUPS: gl.constexpr = LATE * N
    stage, phase, number = 0, 0, 0
    me, early, own = route.me, _early(route, lanes, CONFIG), rounds_for(route.n_tokens, lanes)
    table, ahead = table_of_own(route, CONFIG), gl.zeros([32], gl.int32, in_lanes(gl.num_warps()))
    if CONFIG.early == 0:
        ahead = batch_of(table, lane)
    else:
        next_ids = ids_of(ids, route, lane, CONFIG)
    for i in range(own):
        goes, row = goes_of(ahead, CONFIG), word_of(ahead, 0) >> 8
        batch = (i + 1) * lanes + lane
        if CONFIG.early > 0:
            if i < early:
                goes = goes_to_others(next_ids, me, CONFIG)
            next_ids = ids_of(ids, route, gl.where(i + 1 < early, batch, CONFIG.max_tokens), CONFIG)
        if i >= early:
            ahead = batch_of(table, batch)
        bits = anywhere(goes, CONFIG)
        if i >= CONFIG.gate:
            wait_round(received, i - CONFIG.gate, CONFIG)
        slot = slot_of(first + i, me, lanes, lane, CONFIG)
        for j in range(BATCH):
            if (bits >> j) & 1 != 0:
                mbarrier.wait(ring.full.index(stage), phase)
                for distance in gl.static_range(1, N):
                    if (goes >> (8 * ((me + distance) % N) + j)) & 1 != 0:
                        tma.async_store(peers[distance - 1], [slot + j, 0, 0], ring.rows.index(stage))
                    else:
                        store_nothing()
                if (goes >> (8 * me + j)) & 1 != 0:
                    tma.async_store(out, [row, 0, 0], ring.rows.index(stage))
                    row += 1
                else:
                    store_nothing()
                tma.store_wait(UNREAD)
                let_fill(ring, stage, number, STAGES)
                number += 1
                stage, phase = step_of(stage, phase, STAGES)
            else:  # every batch has as many groups
                for _ in gl.static_range(N):
                    store_nothing()
            if (j == LATE - 1) & (i >= 1):  # by now the batch in front has arrived, or soon will have
                stores_complete(GROUPS)
                stored_round(stored, newest, first, i - 1, CONFIG)
        if i + 1 == early:
            wait_for_previous()
            ahead = batch_of(table, batch)
    stores_complete()
    stored_round(stored, newest, first, own - 1, CONFIG)
    for i in range(own, rounds_of(route, lanes, CONFIG)):
        if i >= CONFIG.gate:
            wait_round(received, i - CONFIG.gate, CONFIG)
        stored_round(stored, newest, first, i, CONFIG)


@gluon.jit
def _signal(route, stored, newest, first, lane, lanes, CONFIG: gl.constexpr):
    """Tell all peers of the rounds that have arrived: of this PE's own before it knows of others'."""
    i = signal_rounds(route, stored, newest, first, 0, _early(route, lanes, CONFIG), lane, lanes, CONFIG)
    wait_for_previous()
    signal_rounds(route, stored, newest, first, i, rounds_of(route, lanes, CONFIG), lane, lanes, CONFIG)


@gluon.jit
def _load_received(x, slots, route, ring, acquired, first, lane, lanes, CONFIG: gl.constexpr):
    """Load the tokens of early rounds that stay, then those that come, of each round in the order in which PEs send to
    this one.

    A flag often says that several rounds have arrived. So what was acquired once is not asked for again.
    """
    N: gl.constexpr = CONFIG.n_pes
    stage, phase = 0, 0
    wait_for_previous()
    for i in range(_early(route, lanes, CONFIG)):
        batch = i * lanes + lane
        bits = comes_of(route, route.me, batch, CONFIG) & 255
        stage, phase = fill_batch(x, batch * BATCH, bits, ring, stage, phase, CONFIG.received, CONFIG)
    newest = ()  # round that each source is known to have sent
    for _ in gl.static_range(1, N):
        newest = newest + (first - 1,)  # type: ignore[assignment]  # noqa: RUF005
    table = table_of_others(route, -1, CONFIG)
    ahead = batch_of(table, lane)
    for i in range(rounds_of(route, lanes, CONFIG)):
        come, known = ahead, newest
        ahead = batch_of(table, (i + 1) * lanes + lane)
        newest = ()
        for distance in gl.static_range(1, N):
            source = (route.me - distance + N) % N
            sent = known[distance - 1]  # type: ignore[var-annotated]
            if sent - (first + i) < 0:
                sent = acquire_newest(route.flags + source * lanes + lane, first + i, "sys")
                fence_async_proxy()
            newest = newest + (sent,)  # type: ignore[assignment]  # noqa: RUF005
            slot = slot_of(first + i, source, lanes, lane, CONFIG)
            bits = word_of(come, distance - 1) & 255
            stage, phase = fill_batch(slots, slot, bits, ring, stage, phase, CONFIG.received, CONFIG)
        done_round(acquired, i, CONFIG)


@gluon.jit
def _store_received(out, route, ring, acquired, received, lane, lanes, CONFIG: gl.constexpr):
    """Store the tokens of early rounds that stay, and those that come, to the result."""
    N: gl.constexpr = CONFIG.n_pes
    stage, phase, number = 0, 0, 0
    wait_for_previous()
    for i in range(_early(route, lanes, CONFIG)):
        stay = comes_of(route, route.me, i * lanes + lane, CONFIG)
        stage, phase, number = store_rows(out, stay, ring, stage, phase, number, CONFIG)
    table = table_of_others(route, -1, CONFIG)
    ahead = batch_of(table, lane)
    for i in range(rounds_of(route, lanes, CONFIG)):
        come = ahead
        ahead = batch_of(table, (i + 1) * lanes + lane)
        for distance in gl.static_range(1, N):
            stage, phase, number = store_rows(out, word_of(come, distance - 1), ring, stage, phase, number, CONFIG)
        # All that came in this round is in the ring, and its flags are acquired, also if nothing came.
        wait_round(acquired, i, CONFIG)
        done_round(received, i, CONFIG)
    stores_complete()


@gluon.jit(do_not_specialize=["n_tokens", "me", "capacity"])
def moe_dispatch_tokens_by_tma(
    x, out, ids, weights, scales, out_ids, out_weights, out_scales, memory, slots, a, b, c, d, e, f, g, n_tokens,
    flags, distances, rounds, calls, headers, header_flags, header_distances, header_flag_distances, capacity, me,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Move the tokens of a dispatch.

    Args:
        x, out, slots, a, b, …: descriptors of [rows, lines of a row, 32] int32 words: of this PE's tokens, of the
            result, of its slots, and of the slots of the next PE (a), the one after it (b), and so on.
        memory: of the result, with its tables.
        rounds: int32 for each program, the last round of all launches, and behind these the newest that has arrived.
        calls: int32 for each program, the last call.
        ids: also what early rounds are sent by. They, ``x`` and the numbers of rounds and calls are read while the
            kernel in front runs, which must be the one that makes the tables, launched behind what wrote these.
        ids, weights, …, headers, …: of :class:`Headers`.
    """
    OTHERS: gl.constexpr = CONFIG.n_pes - 1
    all_peers = (a, b, c, d, e, f, g)
    peers = all_peers[:OTHERS]
    route = route_of(me, n_tokens, memory, flags, distances, CONFIG)
    lane, lanes = gl.program_id(0), gl.num_programs(0)
    of = Headers(
        ids, weights, scales, out_ids, out_weights, out_scales, memory + CONFIG.tables[1], capacity, headers,
        header_flags, header_distances, header_flag_distances,
    )  # fmt: skip
    own = make_ring(x, CONFIG.sent, CONFIG)
    found = make_ring(x, CONFIG.received, CONFIG)
    acquired = make_barriers(CONFIG.depth)
    received = make_barriers(CONFIG.depth)
    stored = make_barriers(CONFIG.depth)
    if CONFIG.early == 0:
        wait_for_previous()  # also before the counters: what is in front may be the last launch of this kernel
    first, newest = gl.load(rounds + lane) + 1, rounds + lanes + lane
    call = gl.load(calls + lane) + 1
    gl.warp_specialize(
        [
            (move_headers, (of, route, call, lane, lanes, CONFIG)),
            (_load_own, (x, ids, route, own, lane, lanes, CONFIG)),
            (_store_own, (out, peers, ids, route, own, received, stored, newest, first, lane, lanes, CONFIG)),
            (_load_received, (x, slots, route, found, acquired, first, lane, lanes, CONFIG)),
            (_store_received, (out, route, found, acquired, received, lane, lanes, CONFIG)),
            (_signal, (route, stored, newest, first, lane, lanes, CONFIG)),
        ],
        [1, 1, 1, 1, 1],
        [64, 96, 96, 64, 64],
    )
    gl.store(rounds + lane, first + rounds_of(route, lanes, CONFIG) - 1)
    gl.store(calls + lane, call)
