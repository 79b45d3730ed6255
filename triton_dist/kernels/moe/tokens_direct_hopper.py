"""Rows of tokens stored to the results of other PEs by TMA, where these are symmetric. For Hopper GPUs.

``tokens_hopper.py`` stores rows to slots, from which the receiver moves them to its result, as only the receiver knows
where they go. Here the kernel in front (``token_batches.py``) has found for each batch of this PE its rows in the
result of every PE. So a row is loaded once and stored once for each PE, and a receiver moves none. A program has two
warps for rows:

- One loads all of the PE's tokens into a ring, while the kernel in front exchanges tables.
- One stores a token to the results of its PEs, the next PE first, this one last. Behind all of its rows it releases a
  flag on every PE, the number of the call, and waits for those of the programs of its number on every PE.

No slots are used again. A PE stores to a result when that PE has sent its tables, which is behind all that read the
result in front of the call. Four more warps move scales, ids and weights (``token_headers.py``).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.flags import (
    signal_all,
    store_nothing,
    stores_complete,
    wait_for_previous,
    wait_peers,
)
from triton_dist.kernels.moe.combine_ring import step_of
from triton_dist.kernels.moe.token_headers import Headers, move_headers
from triton_dist.kernels.moe.token_ring import BATCH, fill, lag_of, let_fill, make_ring, ones, rounds_for, route_of

__all__ = ["moe_dispatch_tokens_directly"]


@gluon.jit
def _load(x, n_tokens, ring, lane, lanes, CONFIG: gl.constexpr):
    """Load this PE's tokens, also those that go nowhere: so this waits for no table."""
    stage, phase = 0, 0
    for i in range(rounds_for(n_tokens, lanes)):
        first = (i * lanes + lane) * BATCH
        for token in range(first, gl.minimum(first + BATCH, n_tokens)):
            stage, phase = fill(x, token, ring, stage, phase, CONFIG.sent, CONFIG)


@gluon.jit
def _rows_of(sends, me, batch, n_tokens, CONFIG: gl.constexpr):
    """Where a batch of this PE goes on every PE, from the next one on, this one last: its first row there, times 256,
    plus the bits of the tokens that go there; 0 behind the last batch."""
    N: gl.constexpr = CONFIG.n_pes
    found = ()
    for distance in gl.static_range(1, N + 1):
        rank = (me + distance) % N
        word = gl.load(sends + rank * CONFIG.batches + batch, mask=batch * BATCH < n_tokens, other=0)
        found = found + (word,)  # type: ignore[assignment]  # noqa: RUF005
    return found


@gluon.jit
def _store(results, sends, route, ring, call, lane, lanes, CONFIG: gl.constexpr):
    """Store this PE's tokens to ``results`` of the PEs, of the next one first, of this one last. Then wait until all
    that come here have arrived."""
    N: gl.constexpr = CONFIG.n_pes
    UNREAD: gl.constexpr = lag_of(CONFIG.sent) * N
    stage, phase, number = 0, 0, 0
    wait_for_previous()
    ahead = _rows_of(sends, route.me, lane, route.n_tokens, CONFIG)
    for i in range(rounds_for(route.n_tokens, lanes)):
        here = ahead
        ahead = _rows_of(sends, route.me, (i + 1) * lanes + lane, route.n_tokens, CONFIG)
        for j in range(gl.minimum(route.n_tokens - (i * lanes + lane) * BATCH, BATCH)):
            mbarrier.wait(ring.full.index(stage), phase)
            for distance in gl.static_range(1, N + 1):
                bits = here[distance - 1] & 255
                if (bits >> j) & 1 != 0:
                    row = (here[distance - 1] >> 8) + ones(bits & ((1 << j) - 1))
                    tma.async_store(results[distance - 1], [row, 0, 0], ring.rows.index(stage))
                else:  # every token has as many groups
                    store_nothing()
            tma.store_wait(UNREAD)
            let_fill(ring, stage, number, CONFIG.sent)
            number += 1
            stage, phase = step_of(stage, phase, CONFIG.sent)
    stores_complete()
    signal_all(route.flags + route.me * lanes + lane, route.distances, route.me, call, N)
    wait_peers(route.flags + lane, call, route.me, N, lanes)


@gluon.jit(do_not_specialize=["n_tokens", "me", "capacity"])
def moe_dispatch_tokens_directly(
    x, out, ids, weights, scales, out_ids, out_weights, out_scales, memory, a, b, c, d, e, f, g, n_tokens, flags,
    distances, calls, headers, header_flags, header_distances, header_flag_distances, capacity, me,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Move the tokens of a dispatch.

    Args:
        x, out, a, b, …: descriptors of [rows, lines of a row, 32] int32 words: of this PE's tokens, of its result, and
            of the results of the next PE (a), the one after it (b), and so on.
        memory: of the result, with its tables. flags: symmetric int32 [n_pes, programs].
        distances: int64 [n_pes], bytes from there to those of a peer.
        calls: int32 for each program, the last call.
        ids, weights, …, headers, …: of :class:`Headers`.

    ``x`` and the numbers of calls are read while the kernel in front runs, which must be the one that makes the tables,
    launched behind what wrote these.
    """
    OTHERS: gl.constexpr = CONFIG.n_pes - 1
    all_peers = (a, b, c, d, e, f, g)
    results = all_peers[:OTHERS] + (out,)  # noqa: RUF005
    route = route_of(me, n_tokens, memory, flags, distances, CONFIG)
    lane, lanes = gl.program_id(0), gl.num_programs(0)
    of = Headers(
        ids, weights, scales, out_ids, out_weights, out_scales, memory + CONFIG.tables[1], capacity, headers,
        header_flags, header_distances, header_flag_distances,
    )  # fmt: skip
    ring = make_ring(x, CONFIG.sent, CONFIG)
    call = gl.load(calls + lane) + 1
    gl.warp_specialize(
        [
            (move_headers, (of, route, call, lane, lanes, CONFIG)),
            (_load, (x, n_tokens, ring, lane, lanes, CONFIG)),
            (_store, (results, memory + CONFIG.sends, route, ring, call, lane, lanes, CONFIG)),
        ],
        [1, 1],
        [64, 128],
    )
    gl.store(calls + lane, call)
