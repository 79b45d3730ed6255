"""Tokens to PEs in rounds, moved by TMA through shared memory, once to each PE. For Hopper GPUs.

A first kernel (``token_batches.py``) has told all PEs which tokens go where. A program here has five warps that move
rows, and four that move what goes with them (``token_headers.py``) meanwhile:

- One warp loads the PE's own tokens into a ring, and one stores each to the slots of the PEs that it goes to, and to
  the result if it stays. When all of a batch have arrived, which that one knows while it stores the next, a third
  releases a flag on every PE: the number of the round.
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
from triton_dist.kernels.moe.token_ring import (
    BATCH,
    LATE,
    anywhere,
    comes_of,
    comes_of_others,
    done_round,
    fill_batch,
    goes_of,
    lag_of,
    let_fill,
    make_barriers,
    make_ring,
    rounds_of,
    route_of,
    signal_peers,
    slot_of,
    store_row,
    stored_round,
    wait_round,
)

__all__ = ["moe_dispatch_tokens_by_tma"]


@gluon.jit
def _load_own(x, route, ring, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Load this PE's tokens that go anywhere."""
    stage, phase = 0, 0
    ahead = goes_of(route, lane)
    for i in range(rounds):
        bits = anywhere(ahead, CONFIG)
        ahead = goes_of(route, (i + 1) * lanes + lane)
        token = (i * lanes + lane) * BATCH
        stage, phase = fill_batch(x, token, bits, ring, stage, phase, CONFIG.sent, CONFIG)


@gluon.jit
def _store_own(out, peers, route, ring, received, stored, newest, first, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Store this PE's tokens to the slots of their PEs, and to the result those that stay."""
    N: gl.constexpr = CONFIG.n_pes
    STAGES: gl.constexpr = CONFIG.sent
    UNREAD: gl.constexpr = lag_of(CONFIG.sent) * N
    GROUPS: gl.constexpr = LATE * N
    stage, phase, number = 0, 0, 0
    ahead = goes_of(route, lane)
    stay = comes_of(route, route.me, lane, CONFIG)
    for i in range(rounds):
        goes, row = ahead, stay >> 8
        bits = anywhere(ahead, CONFIG)
        ahead = goes_of(route, (i + 1) * lanes + lane)
        stay = comes_of(route, route.me, (i + 1) * lanes + lane, CONFIG)
        if i >= CONFIG.gate:
            wait_round(received, i - CONFIG.gate, CONFIG)
        slot = slot_of(first + i, route.me, lanes, lane, CONFIG)
        for j in range(BATCH):
            if (bits >> j) & 1 != 0:
                mbarrier.wait(ring.full.index(stage), phase)
                for distance in gl.static_range(1, N):
                    if (goes >> (8 * ((route.me + distance) % N) + j)) & 1 != 0:
                        tma.async_store(peers[distance - 1], [slot + j, 0, 0], ring.rows.index(stage))
                    else:
                        store_nothing()
                if (goes >> (8 * route.me + j)) & 1 != 0:
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
    stores_complete()
    stored_round(stored, newest, first, rounds - 1, CONFIG)


@gluon.jit
def _load_received(slots, route, ring, acquired, first, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Load the tokens that come, of each round in the order in which PEs send to this one.

    A flag often says that several rounds have arrived. So what was acquired once is not asked for again.
    """
    N: gl.constexpr = CONFIG.n_pes
    stage, phase = 0, 0
    newest = ()  # round that each source is known to have sent
    for _ in gl.static_range(1, N):
        newest = newest + (first - 1,)  # type: ignore[assignment]  # noqa: RUF005
    ahead = comes_of_others(route, lane, -1, CONFIG)
    for i in range(rounds):
        come, known = ahead, newest
        ahead = comes_of_others(route, (i + 1) * lanes + lane, -1, CONFIG)
        newest = ()
        for distance in gl.static_range(1, N):
            source = (route.me - distance + N) % N
            sent = known[distance - 1]  # type: ignore[var-annotated]
            if sent - (first + i) < 0:
                sent = acquire_newest(route.flags + source * lanes + lane, first + i, "sys")
                fence_async_proxy()
            newest = newest + (sent,)  # type: ignore[assignment]  # noqa: RUF005
            slot = slot_of(first + i, source, lanes, lane, CONFIG)
            bits = come[distance - 1] & 255
            stage, phase = fill_batch(slots, slot, bits, ring, stage, phase, CONFIG.received, CONFIG)
        done_round(acquired, i, CONFIG)


@gluon.jit
def _store_received(out, route, ring, acquired, received, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Store the tokens that come to the result."""
    N: gl.constexpr = CONFIG.n_pes
    stage, phase, number = 0, 0, 0
    ahead = comes_of_others(route, lane, -1, CONFIG)
    for i in range(rounds):
        come = ahead
        ahead = comes_of_others(route, (i + 1) * lanes + lane, -1, CONFIG)
        for distance in gl.static_range(1, N):
            bits, row = come[distance - 1] & 255, come[distance - 1] >> 8
            for j in range(BATCH):
                if (bits >> j) & 1 != 0:
                    stage, phase, number = store_row(out, row, ring, stage, phase, number, CONFIG.received)
                    row += 1
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
    wait_for_previous()  # also before the counters: what is in front may be the last launch of this kernel
    first, newest = gl.load(rounds + lane) + 1, rounds + lanes + lane
    call = gl.load(calls + lane) + 1
    n = rounds_of(route, lanes, CONFIG)
    gl.warp_specialize(
        [
            (move_headers, (of, route, call, lane, lanes, CONFIG)),
            (_load_own, (x, route, own, n, lane, lanes, CONFIG)),
            (_store_own, (out, peers, route, own, received, stored, newest, first, n, lane, lanes, CONFIG)),
            (_load_received, (slots, route, found, acquired, first, n, lane, lanes, CONFIG)),
            (_store_received, (out, route, found, acquired, received, n, lane, lanes, CONFIG)),
            (signal_peers, (route, stored, newest, first, n, lane, lanes, CONFIG)),
        ],
        [1, 1, 1, 1, 1],
        [64, 96, 64, 64, 64],
    )
    gl.store(rounds + lane, first + n - 1)
    gl.store(calls + lane, call)
