"""Rows back to the PEs of their tokens in rounds, by TMA, and added up there. For Hopper GPUs.

The way back of ``tokens_hopper.py``, by the tables of its dispatch: a PE has one row of a token, and sends it to the
token's slot on its PE. A program has four warps that move rows, and eight that add:

- One warp loads the rows of peers' tokens into a ring, and one stores them to the tokens' slots. When all of a round
  have arrived, which that one knows while it stores the next one, a third releases a flag on every PE: the number of
  the round.
- One warp loads the rows of the PE's own tokens that stay, and, behind the flags, those that peers have sent.
- Two teams of four warps add these in float32, in the order of ranks, every second token each, and store the sums.

Slots are used again after ``depth`` rounds, without credits (``TokensConfig.gate``). Nothing is cleared: flags only
grow.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper.flags import (
    await_time,
    fence_async_proxy,
    nanoseconds,
    reads_complete,
    store_nothing,
    stores_complete,
    wait_peers,
)
from triton_dist.kernels.moe.combine_ring import (
    layout_of,
    lower_of,
    step_of,
    upper_of,
    words_of,
    zeros,
)
from triton_dist.kernels.moe.rounds_hopper import LINE
from triton_dist.kernels.moe.token_pacing import issue_interval
from triton_dist.kernels.moe.token_ring import (
    BATCH,
    LATE,
    done_round,
    fill,
    make_barriers,
    make_ring,
    ones,
    rounds_of,
    route_of,
    signal_peers,
    slot_of,
    store_row,
    stored_round,
    wait_round,
)
from triton_dist.kernels.moe.token_tables import batch_of, first_words, goes_of, table_of_others, table_of_own, word_of

__all__ = ["moe_combine_tokens_by_tma"]

TEAMS = gl.constexpr(2)
"""Of four warps each, which add up tokens in turn: one waits for the words of a row while another adds."""


@gluon.jit
def _load_to_send(y, route, ring, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Load the rows of peers' tokens: of each round the first token of each PE, from the next one on, then the second.

    So a lane sends to all peers in turn, row by row. Several rows to one PE at a time would meet those of others there.
    """
    N: gl.constexpr = CONFIG.n_pes
    stage, phase = 0, 0
    table = table_of_others(route, 1, CONFIG)
    ahead = batch_of(table, lane)
    for i in range(rounds):
        come = first_words(ahead, N - 1)
        ahead = batch_of(table, (i + 1) * lanes + lane)
        for j in range(BATCH):
            for distance in gl.static_range(1, N):
                bits = come[distance - 1] & 255
                if (bits >> j) & 1 != 0:
                    row = (come[distance - 1] >> 8) + ones(bits & ((1 << j) - 1))
                    stage, phase = fill(y, row, ring, stage, phase, CONFIG.sent, CONFIG)


@gluon.jit
def _store_sent(peers, route, ring, received, stored, newest, first, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Store the rows of peers' tokens to the slots of these, throttled (``token_pacing.py``) if rows have a time."""
    N: gl.constexpr = CONFIG.n_pes
    GROUPS: gl.constexpr = LATE * (N - 1)
    stage, phase, number = 0, 0, 0
    interval, due = 0, 0
    if CONFIG.row_time > 0:
        interval, due = issue_interval(route, lane, lanes, CONFIG), nanoseconds()
    table = table_of_others(route, 1, CONFIG)
    ahead = batch_of(table, lane)
    for i in range(rounds):
        come = first_words(ahead, N - 1)
        ahead = batch_of(table, (i + 1) * lanes + lane)
        if i >= CONFIG.gate:
            wait_round(received, i - CONFIG.gate, CONFIG)
        slot = slot_of(first + i, route.me, lanes, lane, CONFIG)
        for j in range(BATCH):
            if CONFIG.row_time > 0:
                await_time(due)
            for distance in gl.static_range(1, N):
                if (come[distance - 1] >> j) & 1 != 0:
                    stage, phase, number = store_row(
                        peers[distance - 1], slot + j, ring, stage, phase, number, CONFIG.sent
                    )  # fmt: skip
                    due += interval
                else:  # every round has as many groups
                    store_nothing()
            if (j == LATE - 1) & (i >= 1):  # by now the round in front has arrived, or soon will have
                stores_complete(GROUPS)
                stored_round(stored, newest, first, i - 1, CONFIG)
    stores_complete()
    stored_round(stored, newest, first, rounds - 1, CONFIG)


@gluon.jit
def _acquire_sources(route, number, newest, lane, lanes, CONFIG: gl.constexpr):
    """Wait until all peers have sent round ``number``, so that TMA may load it.

    A flag often says that several rounds have arrived. So what was acquired once is not asked for again.

    Returns:
        the newest round that all have sent, of which ``newest`` is what the call before returned.
    """
    if newest - number < 0:
        newest = number + wait_peers(route.flags + lane, number, route.me, CONFIG.n_pes, lanes)
        fence_async_proxy()
    return newest


@gluon.jit
def _load_received(y, slots, route, ring, acquired, first, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Load what is added up of each token: the row that stays, then those that peers have sent, by rank."""
    N: gl.constexpr = CONFIG.n_pes
    stage, phase, newest = 0, 0, first - 1
    table = table_of_own(route, CONFIG)
    ahead = batch_of(table, lane)
    for i in range(rounds):
        goes, row = goes_of(ahead, CONFIG), word_of(ahead, 0) >> 8
        ahead = batch_of(table, (i + 1) * lanes + lane)
        for j in range(BATCH):
            of = goes >> j
            if (of >> (8 * route.me)) & 1 != 0:
                stage, phase = fill(y, row, ring, stage, phase, CONFIG.received, CONFIG)
                row += 1
            if j == 0:  # also of a batch without tokens: all PEs make the same rounds
                newest = _acquire_sources(route, first + i, newest, lane, lanes, CONFIG)
                done_round(acquired, i, CONFIG)
            for rank in gl.static_range(N):
                if ((of >> (8 * rank)) & 1 != 0) & (rank != route.me):
                    slot = slot_of(first + i, rank, lanes, lane, CONFIG) + j
                    stage, phase = fill(slots, slot, ring, stage, phase, CONFIG.received, CONFIG)


@gluon.jit
def _take(ring, stage, phase, CONFIG: gl.constexpr):
    """The words of the next row of the ring, which is released with all rows of its token."""
    LAYOUT: gl.constexpr = layout_of(gl.num_warps())
    mbarrier.wait(ring.full.index(stage), phase)
    words = ring.rows.index(stage).load(LAYOUT)
    stage, phase = step_of(stage, phase, CONFIG.received)
    return words, stage, phase


@gluon.jit
def _release_rows(of, ring, stage, CONFIG: gl.constexpr):
    """Let the rows of a token be filled again, from this stage on; it goes where the lowest bits of the bytes of ``of``
    say.

    A row is released by both teams. Else one could be a lap behind or ahead of the other, where a phase of a barrier
    looks like the one after the next.
    """
    N: gl.constexpr = CONFIG.n_pes
    for rank in gl.static_range(N):
        if (of >> (8 * rank)) & 1 != 0:
            mbarrier.arrive(ring.empty.index(stage))
            stage = gl.where(stage == CONFIG.received - 1, 0, stage + 1)


@gluon.jit
def _pass_over(of, ring, stage, phase, CONFIG: gl.constexpr):
    """Leave the rows of a token to the other team."""
    N: gl.constexpr = CONFIG.n_pes
    first = stage
    for rank in gl.static_range(N):
        if (of >> (8 * rank)) & 1 != 0:
            mbarrier.wait(ring.full.index(stage), phase)
            stage, phase = step_of(stage, phase, CONFIG.received)
    gl.barrier()  # all threads have seen them
    _release_rows(of, ring, first, CONFIG)
    return stage, phase


@gluon.jit
def _add(out, route, ring, acquired, received, rounds, lane, lanes, TEAM: gl.constexpr, CONFIG: gl.constexpr):
    """Add up every second one of this PE's own tokens, from token ``TEAM`` of a batch on, and store them."""
    N: gl.constexpr = CONFIG.n_pes
    LAYOUT: gl.constexpr = layout_of(gl.num_warps())
    LINES: gl.constexpr = CONFIG.lines
    lines = gl.arange(0, LINES, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :, None]
    column = gl.arange(0, LINE, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, None, :]
    stage, phase = 0, 0
    table = table_of_own(route, CONFIG)
    ahead = batch_of(table, lane)
    for i in range(rounds):
        goes = goes_of(ahead, CONFIG)
        ahead = batch_of(table, (i + 1) * lanes + lane)
        token = (i * lanes + lane) * BATCH
        length = gl.maximum(gl.minimum(route.n_tokens - token, BATCH), 0)
        for pair in range(gl.cdiv(length, TEAMS)):
            j = pair * TEAMS + TEAM
            for before in gl.static_range(TEAM):
                stage, phase = _pass_over(goes >> (j - TEAM + before), ring, stage, phase, CONFIG)
            of = goes >> j
            if j < length:
                first = stage
                own = gl.zeros([1, LINES, LINE], gl.int32, LAYOUT)
                if (of >> (8 * route.me)) & 1 != 0:
                    own, stage, phase = _take(ring, stage, phase, CONFIG)
                lower, upper = zeros(CONFIG), zeros(CONFIG)
                for rank in gl.static_range(N):
                    if (of >> (8 * rank)) & 1 != 0:
                        words = own
                        if rank != route.me:
                            words, stage, phase = _take(ring, stage, phase, CONFIG)
                        lower += lower_of(words, CONFIG)
                        upper += upper_of(words, CONFIG)
                reads_complete()
                _release_rows(of, ring, first, CONFIG)
                row = out + gl.to_tensor(token + j).to(gl.int64) * (CONFIG.row_lines * LINE)
                gl.store(row + lines * LINE + column, words_of(lower, upper, CONFIG), mask=lines < CONFIG.row_lines)
            for behind in gl.static_range(TEAM + 1, TEAMS):
                if j - TEAM + behind < length:
                    stage, phase = _pass_over(goes >> (j - TEAM + behind), ring, stage, phase, CONFIG)
        # All that came in this round has been in the ring, and its flags are acquired, also if nothing came.
        wait_round(acquired, i, CONFIG)
        done_round(received, i, CONFIG)


@gluon.jit(do_not_specialize=["n_tokens", "me"])
def moe_combine_tokens_by_tma(
    y, out, memory, slots, a, b, c, d, e, f, g, n_tokens, flags, distances, rounds, me, CONFIG: gl.constexpr
):  # fmt: skip
    """Add up the rows of tokens.

    Args:
        y, slots, a, b, …: descriptors of [rows, lines of a row, 32] int32 words: of this PE's rows, of its slots, and
            of the slots of the next PE (a), the one after it (b), and so on.
        out: int32 [T, words of a row]. memory: of the dispatch's result, with its tables.
        rounds: as of :func:`moe_dispatch_tokens_by_tma`.
    """
    OTHERS: gl.constexpr = CONFIG.n_pes - 1
    all_peers = (a, b, c, d, e, f, g)
    peers = all_peers[:OTHERS]
    route = route_of(me, n_tokens, memory, flags, distances, CONFIG)
    lane, lanes = gl.program_id(0), gl.num_programs(0)
    first, newest = gl.load(rounds + lane) + 1, rounds + lanes + lane
    n = rounds_of(route, lanes, CONFIG)
    sent = make_ring(y, CONFIG.sent, CONFIG)
    found = make_ring(y, CONFIG.received, CONFIG, TEAMS)
    acquired = make_barriers(CONFIG.depth)
    received = make_barriers(CONFIG.depth, TEAMS)
    stored = make_barriers(CONFIG.depth)
    gl.warp_specialize(
        [
            (_add, (out, route, found, acquired, received, n, lane, lanes, 0, CONFIG)),
            (_add, (out, route, found, acquired, received, n, lane, lanes, 1, CONFIG)),
            (_load_to_send, (y, route, sent, n, lane, lanes, CONFIG)),
            (_store_sent, (peers, route, sent, received, stored, newest, first, n, lane, lanes, CONFIG)),
            (_load_received, (y, slots, route, found, acquired, first, n, lane, lanes, CONFIG)),
            (signal_peers, (route, stored, newest, first, n, lane, lanes, CONFIG)),
        ],
        [4, 1, 1, 1, 1],
        [200, 64, 96, 64, 64],
    )
    gl.store(rounds + lane, first + n - 1)
