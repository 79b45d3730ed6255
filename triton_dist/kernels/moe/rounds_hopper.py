"""Rows of a dispatch in rounds, moved by TMA through shared memory, on Hopper GPUs.

A multiprocessor that loads and stores by threads has as many bytes in flight as its registers hold, some 30 KB. By TMA
it has as many as its shared memory holds, 200 KB, and a request moves a whole row.

Two kernels follow each other. The first (``rounds_headers.py``) exchanges counts, headers and scales, and leaves the
result's tables. The second, which is here, moves the rows. A multiprocessor has one program
of several lanes, each of which is a program as ``rounds.py`` numbers them, with two warps: one sends, the other
receives. A lane exchanges with the same lane of the same program of every PE.

- A warp that sends loads the rows of its batch into its ring, stores each to the slots of the PEs that have experts of
  it, waits until the stores have arrived, and releases a flag on every PE: the round's number.
- A warp that receives stores the rows of its own batch that stay, from ``x``. Then it acquires the flag of each source,
  loads the rows from the slots into its ring, and stores a row once for each choice of an expert of this PE.

Slots are used again after four rounds, without credits, as in ``rounds.py``: a lane sends round g when it has received
round g - 2 of all sources, whose flags say that they have received round g - 4. Nothing is cleared: flags only grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

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
    uniform,
)

__all__ = [
    "DEPTH",
    "LINE",
    "MoveConfig",
    "Route",
    "bits_of",
    "block_of",
    "moe_dispatch_rounds_by_tma",
    "n_rounds",
    "padded",
    "slot_of",
]

DEPTH = gl.constexpr(4)
"""Of the slots, in rounds."""
LINE = gl.constexpr(32)
"""Words of a line: rows are of lines, as TMA moves boxes of them."""


@dataclass(frozen=True)
class MoveConfig:
    """Constants of a launch.

    Attributes:
        n_pes: members. top_k, local_experts, max_tokens: of the routing.
        batch: tokens of a round of a lane.
        lanes: of a program, 1 or 2.
        lines: of a row in shared memory and of the box that TMA moves, a power of two; it may end behind the row.
        sent, received: rows of a lane's rings. sent_ahead, received_ahead: of which so many are loaded before one is
            stored.
        split: whether some programs do nothing but send, each by 2 · ``lanes`` warps, and as many warps of the others
            receive, each for a lane. Else every program does both.
    """

    n_pes: int
    top_k: int
    local_experts: int
    max_tokens: int
    batch: int
    lanes: int
    lines: int
    sent: int
    received: int
    sent_ahead: int
    received_ahead: int
    split: bool


class Route(NamedTuple):
    """Where rows go.

    Attributes:
        me: rank of this PE. ids: [T, top_k]. n_tokens: T.
        positions: int32 [n_pes, max_tokens, top_k], the row of the result for each choice of each source's tokens.
        tokens_of: int32 [n_pes], how many tokens each source has.
        flags: symmetric int32 [n_pes, lanes of all programs]. distances: int64 [n_pes], bytes from there to a peer's.
        senders: how many programs do nothing but send, the first ones.
        done: int32 for each lane, the last round that it has received, where other programs send.
    """

    me: Any
    ids: Any
    n_tokens: Any
    positions: Any
    tokens_of: Any
    flags: Any
    distances: Any
    senders: Any
    done: Any


@gluon.constexpr_function
def padded(number):
    return 1 << max(int(number) - 1, 0).bit_length()


class Ring(NamedTuple):
    """Rows in shared memory: [stages, 1, lines, 32] words, and for each an mbarrier that counts what arrives."""

    rows: Any
    full: Any


@gluon.jit
def _make_ring(like, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    return Ring(gl.allocate_shared_memory(gl.int32, [STAGES, 1, CONFIG.lines, LINE], like.layout), full)


@gluon.jit
def _make_rings(like, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    """A ring for each lane."""
    LANES: gl.constexpr = CONFIG.lanes
    rings = ()
    for _ in gl.static_range(LANES):
        rings = rings + (_make_ring(like, STAGES, CONFIG),)  # type: ignore[assignment]  # noqa: RUF005
    return rings


@gluon.jit
def _make_received(CONFIG: gl.constexpr):
    """Barriers at which a lane that sends waits until its rounds are received, where one program does both.

    Elsewhere there are none: Triton reuses the memory of barriers that no warp waits at, and the GPU may still write it
    (docs/decisions/0125).
    """
    if CONFIG.split:
        return ()
    else:
        BARRIERS: gl.constexpr = CONFIG.lanes * DEPTH
        received = gl.allocate_shared_memory(gl.int64, [BARRIERS, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(BARRIERS):
            mbarrier.init(received.index(i), count=1)
        return received


@gluon.jit
def _load(rows, row, ring, stage, CONFIG: gl.constexpr):
    """Load a row into a stage of the ring. Lines behind the row are zeros, and count as loaded."""
    full = ring.full.index(stage)
    mbarrier.expect(full, CONFIG.lines * (LINE * 4))
    tma.async_load(rows, [row, 0, 0], full, ring.rows.index(stage))


@gluon.jit
def _store(rows, row, ring, stage):
    """Store a stage of the ring to a row. Lines behind the row are outside of the tensor, and left out."""
    tma.async_store(rows, [row, 0, 0], ring.rows.index(stage))


@gluon.jit
def bits_of(block):
    """The rows of a block [batch, choices] of which an element is set, as bits of a number."""
    rows = gl.max(block, axis=1)
    order = gl.arange(0, block.shape[0], gl.SliceLayout(1, block.type.layout))
    return uniform(gl.sum(rows << order, axis=0))


@gluon.jit
def block_of(values, first, end, CONFIG: gl.constexpr):
    """What tokens from ``first`` on have by choice, [batch, choices]; -1 of those from ``end`` on."""
    KP: gl.constexpr = padded(CONFIG.top_k)
    BATCH: gl.constexpr = CONFIG.batch
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [gl.num_warps(), 1], [1, 0])
    tokens = first + gl.arange(0, BATCH, gl.SliceLayout(1, LAYOUT))[:, None]
    choices = gl.arange(0, KP, gl.SliceLayout(0, LAYOUT))[None, :]
    mask = (tokens < end) & (choices < CONFIG.top_k)
    return gl.load(values + tokens.to(gl.int64) * CONFIG.top_k + choices, mask=mask, other=-1).to(gl.int32)


@gluon.jit
def n_rounds(tokens_of, programs, CONFIG: gl.constexpr):
    """How many rounds all PEs make: as many as the one with the most tokens needs."""
    N: gl.constexpr = CONFIG.n_pes
    most = gl.load(tokens_of)
    for pe in gl.static_range(1, N):
        most = gl.maximum(most, gl.load(tokens_of + pe))
    return gl.maximum(gl.cdiv(gl.cdiv(most, CONFIG.batch), programs), 1)


@gluon.jit
def slot_of(number, sender, programs, program, CONFIG: gl.constexpr):
    """The slot of the first token of a lane's batch, in round ``number``, from the rank ``sender``."""
    return (((number & (DEPTH - 1)) * CONFIG.n_pes + sender) * programs + program) * CONFIG.batch


@gluon.jit
def _all_lanes(route, CONFIG: gl.constexpr):
    """How many lanes all programs have."""
    if CONFIG.split:
        return (gl.num_programs(0) - route.senders) * (2 * CONFIG.lanes)
    else:
        return gl.num_programs(0) * CONFIG.lanes


@gluon.jit
def _signal(route, lane, programs, number, CONFIG: gl.constexpr):
    """Tell all peers that a round of a lane has arrived."""
    signal_all(route.flags + route.me * programs + lane, route.distances, route.me, number, CONFIG.n_pes)


@gluon.jit
def _send(
    x, peers, route, ring, received, first, rounds, begin, end, step, STAGES: gl.constexpr, AHEAD: gl.constexpr,
    WORKER: gl.constexpr, CONFIG: gl.constexpr,
):  # fmt: skip
    """Send every round of the lanes from ``begin`` to ``end``, every ``step``-th.

    Where a warp sends for several lanes, it signals that a batch has arrived when it has issued the next one.
    """
    N: gl.constexpr = CONFIG.n_pes
    GROUPS: gl.constexpr = N - 1
    UNREAD: gl.constexpr = (STAGES - AHEAD - 1) * GROUPS
    BATCH_GROUPS: gl.constexpr = CONFIG.batch * GROUPS
    programs = _all_lanes(route, CONFIG)
    loading, filled, phase = 0, 0, 0  # stages that are loaded and stored next, and the latter's parity
    issued, issued_number = -1, 0  # the lane and round that is not signalled yet
    for i in range(rounds):
        number = first + i
        for lane in range(begin, end, step):
            token = (i * programs + lane) * CONFIG.batch
            ids = block_of(route.ids, token, route.n_tokens, CONFIG)
            homes = gl.where(ids >= 0, ids // CONFIG.local_experts, -1)
            goes = ()
            leaves = 0
            for distance in gl.static_range(1, N):
                goes = goes + (bits_of((homes == (route.me + distance) % N).to(gl.int32)),)  # type: ignore[assignment]  # noqa: RUF005
                leaves = leaves | goes[distance - 1]
            if i >= 2:
                if CONFIG.split:
                    acquire(route.done + lane, number - 2, "gpu")
                    fence_async_proxy()
                else:
                    BARRIER: gl.constexpr = WORKER // 2 * DEPTH
                    mbarrier.wait(received.index(BARRIER + ((i - 2) & (DEPTH - 1))), (i - 2) // DEPTH & 1)
            slot = slot_of(number, route.me, programs, lane, CONFIG)
            for j in range(CONFIG.batch + AHEAD):
                if leaves >> j & 1 != 0:
                    tma.store_wait(UNREAD)
                    _load(x, token + j, ring, loading, CONFIG)
                    loading = gl.where(loading == STAGES - 1, 0, loading + 1)
                if j >= AHEAD:
                    if leaves >> (j - AHEAD) & 1 != 0:
                        mbarrier.wait(ring.full.index(filled), phase)
                        for distance in gl.static_range(1, N):
                            if goes[distance - 1] >> (j - AHEAD) & 1 != 0:
                                _store(peers[distance - 1], slot + j - AHEAD, ring, filled)
                            else:
                                store_nothing()
                        filled += 1
                        if filled == STAGES:
                            filled = 0
                            phase ^= 1
                    elif CONFIG.split:  # every batch has as many groups
                        for _ in gl.static_range(1, N):
                            store_nothing()
            if CONFIG.split:
                if issued >= 0:
                    stores_complete(BATCH_GROUPS)
                    _signal(route, issued, programs, issued_number, CONFIG)
                issued = lane
                issued_number = number
            else:
                stores_complete()
                _signal(route, lane, programs, number, CONFIG)
    if CONFIG.split:
        stores_complete()
        if issued >= 0:
            _signal(route, issued, programs, issued_number, CONFIG)


@gluon.jit
def _copy(
    rows, row, out, positions, token, end, ring, loading, filled, phase, STAGES: gl.constexpr, AHEAD: gl.constexpr,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Store ``rows`` from ``row`` on wherever the choices of the tokens from ``token`` on say."""
    K: gl.constexpr = CONFIG.top_k
    UNREAD: gl.constexpr = (STAGES - AHEAD - 1) * K
    arrives = bits_of((block_of(positions, token, end, CONFIG) >= 0).to(gl.int32))
    here = positions + gl.to_tensor(token).to(gl.int64) * K
    for j in range(CONFIG.batch + AHEAD):
        if arrives >> j & 1 != 0:
            tma.store_wait(UNREAD)
            _load(rows, row + j, ring, loading, CONFIG)
            loading = gl.where(loading == STAGES - 1, 0, loading + 1)
        if (j >= AHEAD) & (arrives >> gl.maximum(j - AHEAD, 0) & 1 != 0):
            to = ()
            for k in gl.static_range(K):
                to = to + (gl.load(here + (j - AHEAD) * K + k),)  # type: ignore[assignment]  # noqa: RUF005
            mbarrier.wait(ring.full.index(filled), phase)
            for k in gl.static_range(K):
                if to[k] >= 0:
                    _store(out, to[k], ring, filled)
                else:
                    store_nothing()
            filled += 1
            if filled == STAGES:
                filled = 0
                phase ^= 1
    return loading, filled, phase


@gluon.jit
def _receive(
    x, slots, out, route, ring, received, first, rounds, lane, STAGES: gl.constexpr, AHEAD: gl.constexpr,
    WORKER: gl.constexpr, CONFIG: gl.constexpr,
):  # fmt: skip
    """Receive every round of a lane."""
    N: gl.constexpr = CONFIG.n_pes
    programs = _all_lanes(route, CONFIG)
    loading, filled, phase = 0, 0, 0
    for i in range(rounds):
        number = first + i
        token = (i * programs + lane) * CONFIG.batch
        own = route.positions + gl.to_tensor(route.me).to(gl.int64) * (CONFIG.max_tokens * CONFIG.top_k)
        loading, filled, phase = _copy(
            x, token, out, own, token, route.n_tokens, ring, loading, filled, phase, STAGES, AHEAD, CONFIG
        )
        for distance in range(1, N):  # in the order in which PEs send to this one
            source = (route.me - distance + N) % N
            acquire(route.flags + source * programs + lane, number, "sys")
            fence_async_proxy()
            slot = slot_of(number, source, programs, lane, CONFIG)
            theirs = route.positions + gl.to_tensor(source).to(gl.int64) * (CONFIG.max_tokens * CONFIG.top_k)
            loading, filled, phase = _copy(
                slots, slot, out, theirs, token, gl.load(route.tokens_of + source), ring, loading, filled, phase,
                STAGES, AHEAD, CONFIG,
            )  # fmt: skip
        if CONFIG.split:
            gl.barrier()
            gl.atomic_xchg(route.done + lane, number, sem="release", scope="gpu")
        else:
            BARRIER: gl.constexpr = WORKER // 2 * DEPTH
            mbarrier.arrive(received.index(BARRIER + (i & (DEPTH - 1))))
    stores_complete()


@gluon.jit
def _work(
    WORKER: gl.constexpr, x, slots, out, peers, route, ring, received, first, rounds, CONFIG: gl.constexpr
):  # fmt: skip
    """What a warp of a program does. Even ones have rings to send, odd ones to receive."""
    STAGES: gl.constexpr = CONFIG.sent if WORKER % 2 == 0 else CONFIG.received
    AHEAD: gl.constexpr = CONFIG.sent_ahead if WORKER % 2 == 0 else CONFIG.received_ahead
    program = gl.program_id(0)
    if CONFIG.split:
        WARPS: gl.constexpr = 2 * CONFIG.lanes
        if program < route.senders:
            begin = program * WARPS + WORKER
            _send(
                x, peers, route, ring, received, first, rounds, begin, _all_lanes(route, CONFIG), route.senders * WARPS,
                STAGES, AHEAD, WORKER, CONFIG,
            )  # fmt: skip
        else:
            lane = (program - route.senders) * WARPS + WORKER
            _receive(x, slots, out, route, ring, received, first, rounds, lane, STAGES, AHEAD, WORKER, CONFIG)
    else:
        lane = program * CONFIG.lanes + WORKER // 2
        if WORKER % 2 == 0:
            _send(x, peers, route, ring, received, first, rounds, lane, lane + 1, 1, STAGES, AHEAD, WORKER, CONFIG)
        else:
            _receive(x, slots, out, route, ring, received, first, rounds, lane, STAGES, AHEAD, WORKER, CONFIG)


@gluon.jit
def _nothing():
    pass


@gluon.jit(do_not_specialize=["n_tokens", "senders", "me"])
def moe_dispatch_rounds_by_tma(
    x, out, ids, memory, slots, a, b, c, d, e, f, g, tokens_at, positions_at, n_tokens, flags, distances, rounds,
    senders, done, me, CONFIG: gl.constexpr,
):  # fmt: skip
    """Move the rows of a dispatch.

    Args:
        x, out, slots, a, b, …: descriptors of [rows, lines of a row, 32] int32 words: of this PE's tokens, of the
            result, of its slots, and of the slots of the next PE (a), the one after it (b), and so on.
        memory: of the result, where ``tokens_at`` and ``positions_at`` tell how many tokens each source has and where
            rows go.
    """
    OTHERS: gl.constexpr = CONFIG.n_pes - 1
    all_peers = (a, b, c, d, e, f, g)
    peers = all_peers[:OTHERS]
    route = Route(me, ids, n_tokens, memory + positions_at, memory + tokens_at, flags, distances, senders, done)
    program = gl.program_id(0)
    first = gl.load(rounds + program) + 1
    n = n_rounds(route.tokens_of, _all_lanes(route, CONFIG), CONFIG)
    sent = _make_rings(x, CONFIG.sent, CONFIG)
    found = _make_rings(x, CONFIG.received, CONFIG)
    received = _make_received(CONFIG)
    if CONFIG.lanes == 1:
        gl.warp_specialize(
            [
                (_nothing, ()),
                (_work, (0, x, slots, out, peers, route, sent[0], received, first, n, CONFIG)),
                (_work, (1, x, slots, out, peers, route, found[0], received, first, n, CONFIG)),
            ],
            [1, 1],
            [96, 96],
        )
    else:
        gl.warp_specialize(
            [
                (_nothing, ()),
                (_work, (0, x, slots, out, peers, route, sent[0], received, first, n, CONFIG)),
                (_work, (1, x, slots, out, peers, route, found[0], received, first, n, CONFIG)),
                (_work, (2, x, slots, out, peers, route, sent[1], received, first, n, CONFIG)),
                (_work, (3, x, slots, out, peers, route, found[1], received, first, n, CONFIG)),
            ],
            [1, 1, 1, 1],
            [96, 96, 96, 96],
        )
    gl.store(rounds + program, first + n - 1)
