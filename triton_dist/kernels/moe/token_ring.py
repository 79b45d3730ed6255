"""Rings of rows in shared memory between a warp that loads and what takes them, for kernels that move tokens by TMA.

``tokens_hopper.py`` and ``token_sums_hopper.py`` use them. A multiprocessor has one program, which is a lane: it
exchanges with the program of its number on every PE, batches of 8 tokens in turn with the other programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.flags import signal_all
from triton_dist.kernels.moe.combine_ring import Ring, step_of
from triton_dist.kernels.moe.rounds_hopper import LINE
from triton_dist.kernels.moe.token_batches import header_words

__all__ = [
    "BATCH",
    "LATE",
    "Route",
    "TokensConfig",
    "anywhere",
    "comes_of",
    "done_round",
    "fill",
    "fill_batch",
    "lag_of",
    "let_fill",
    "make_barriers",
    "make_ring",
    "ones",
    "rounds_for",
    "rounds_of",
    "route_of",
    "signal_peers",
    "signal_rounds",
    "slot_of",
    "store_row",
    "store_rows",
    "stored_round",
    "tokens_of",
    "wait_round",
]

BATCH = gl.constexpr(8)
"""Tokens of a lane in a round."""
LATE = gl.constexpr(2)
"""How many tokens of the next round are stored when it is asked whether those of a round have arrived."""


@dataclass(frozen=True)
class TokensConfig:
    """Constants of a launch.

    Attributes:
        n_pes: members. batches: of the tables, for each PE.
        lines: of a row in shared memory and of the box that TMA moves, a power of two; it may end behind the row.
        sent, received: rows of the rings, of what this PE has and of what comes.
        tables: where the tables of ``token_batches.py`` are in the memory: tokens_of, rows_of, goes, comes.
        depth: of the slots, in rounds, a power of two.
        top_k, local_experts, max_tokens, n_scales, with_ids: of what goes beside rows (``token_headers.py``).
        early: how many rounds a PE sends by its ids, while the tables are exchanged.
        row_time: nanoseconds in which the link takes a row of a combine, to which its stores are throttled
            (``token_pacing.py``); 0: they are not.
        row_lines, dtype: of a combine's rows.
        sends: where the table is of a dispatch that stores to results of peers.
        unit: tokens that a program claims at a time, of a batch (``token_claims.py``).
    """

    n_pes: int
    batches: int
    lines: int
    sent: int
    received: int
    tables: tuple[int, int, int, int]
    depth: int
    top_k: int = 1
    local_experts: int = 1
    max_tokens: int = 1
    n_scales: int = 0
    with_ids: bool = False
    early: int = 0
    row_time: float = 0.0
    row_lines: int = 0
    dtype: str = ""
    sends: int = 0
    unit: int = 0

    @property
    def box(self) -> int:
        """As ``combine_ring.py`` calls ``lines``."""
        return self.lines

    @property
    def batch(self) -> int:
        """Tokens of a lane in a round, as ``rounds_hopper.py`` asks for them."""
        return int(BATCH.value)

    @property
    def gate(self) -> int:
        """A lane sends round g when it has received round g - ``gate`` of all sources. Their flags say that they had
        received the round as many in front of that one by then, so its slots are free."""
        return self.depth // 2

    @property
    def header(self) -> int:
        """Words of what goes beside a row: scales, ids and weights."""
        return header_words(self.top_k, self.n_scales, self.with_ids)


class Route(NamedTuple):
    """Where rows go.

    Attributes:
        me: rank of this PE. n_tokens: of this PE.
        memory: int32, of a dispatch's result. tokens_of, comes: int32, goes: int64, its tables (``token_batches.py``).
        flags: symmetric int32 [n_pes, lanes]. distances: int64 [n_pes], bytes from there to a peer's.
    """

    me: Any
    n_tokens: Any
    memory: Any
    tokens_of: Any
    goes: Any
    comes: Any
    flags: Any
    distances: Any


@gluon.jit
def make_barriers(NUMBER: gl.constexpr, COUNT: gl.constexpr = 1):
    """So many mbarriers, at each of which ``COUNT`` arrive."""
    found = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUMBER):
        mbarrier.init(found.index(i), count=COUNT)
    return found


@gluon.jit
def make_ring(like, STAGES: gl.constexpr, CONFIG: gl.constexpr, TAKEN: gl.constexpr = 1):
    """A ring of rows, [stages, 1, lines, 32] words, each of which is released ``TAKEN`` times."""
    rows = gl.allocate_shared_memory(gl.int32, [STAGES, 1, CONFIG.lines, LINE], like.layout)
    return Ring(rows, make_barriers(STAGES), make_barriers(STAGES, TAKEN))


@gluon.jit
def fill(rows, row, ring, stage, phase, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    """Load a row into the ring. Lines behind the row are zeros, and count as loaded."""
    mbarrier.wait(ring.empty.index(stage), phase ^ 1)
    full = ring.full.index(stage)
    mbarrier.expect(full, CONFIG.lines * (LINE * 4))
    tma.async_load(rows, [row, 0, 0], full, ring.rows.index(stage))
    return step_of(stage, phase, STAGES)


@gluon.jit
def fill_batch(rows, row, bits, ring, stage, phase, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    """Load those of the rows from ``row`` on whose bit is set."""
    while bits != 0:  # the compiler unrolls a loop over eight rows, which is eight times the code
        if bits & 1 != 0:
            stage, phase = fill(rows, row, ring, stage, phase, STAGES, CONFIG)
        bits, row = bits >> 1, row + 1
    return stage, phase


@gluon.constexpr_function
def lag_of(stages):
    """How many rows a warp has stored further when it lets the stage of one be filled again: more of small rows, of
    which TMA takes as long to read one."""
    return stages // 4 if stages > 16 else 2 if stages > 4 else 1


@gluon.jit
def let_fill(ring, stage, stored, STAGES: gl.constexpr):
    """Let the stage be filled again that was stored some rows ago, of ``stored`` in all; TMA has read it."""
    LAG: gl.constexpr = lag_of(STAGES)
    gl.barrier()
    old = gl.where(stage >= LAG, stage - LAG, stage - LAG + STAGES)
    mbarrier.arrive(ring.empty.index(old), pred=stored >= LAG)


@gluon.jit
def store_row(to, row, ring, stage, phase, number, STAGES: gl.constexpr):
    """Store the next row of the ring, the one with this ``number``, and let an earlier stage be filled again."""
    mbarrier.wait(ring.full.index(stage), phase)
    tma.async_store(to, [row, 0, 0], ring.rows.index(stage))
    tma.store_wait(lag_of(STAGES))
    let_fill(ring, stage, number, STAGES)
    stage, phase = step_of(stage, phase, STAGES)
    return stage, phase, number + 1


@gluon.jit
def store_rows(out, come, ring, stage, phase, number, CONFIG: gl.constexpr):
    """Store the next rows of the ring, as many as a word of the tables says, to the result."""
    bits, row = come & 255, come >> 8
    while bits != 0:
        if bits & 1 != 0:
            stage, phase, number = store_row(out, row, ring, stage, phase, number, CONFIG.received)
            row += 1
        bits = bits >> 1
    return stage, phase, number


@gluon.jit
def signal_peers(route, stored, newest, first, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Tell all peers of the rounds that have arrived."""
    signal_rounds(route, stored, newest, first, 0, rounds, lane, lanes, CONFIG)


@gluon.jit
def signal_rounds(route, stored, newest, first, begin, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Tell all peers of the rounds from ``begin`` on that have arrived; return the first that they are not told of.

    A fence waits for what the multiprocessor has stored, 3 µs, so a warp does nothing else; and one fence is for all
    rounds that have arrived by then, which are more than one where rows are small.

    The warp that stores is less than ``CONFIG.depth`` rounds ahead: it sends round g when peers have sent round
    g - ``CONFIG.gate``, which they do when they have received the round as many in front of that one of this PE.
    """
    i = gl.to_tensor(begin)
    while i < rounds:
        wait_round(stored, i, CONFIG)
        # What it says may be old, or of the launch before. The round that it names is waited for, too.
        ahead = gl.atomic_add(newest, 0, sem="relaxed", scope="gpu") - first
        last = gl.minimum(gl.maximum(ahead, i), i + CONFIG.depth - 1)
        wait_round(stored, last, CONFIG)
        signal_all(route.flags + route.me * lanes + lane, route.distances, route.me, first + last, CONFIG.n_pes)
        i = last + 1
    return i


@gluon.jit
def stored_round(stored, newest, first, i, CONFIG: gl.constexpr):
    """A round of a launch, counted from 0, has arrived at the peers; ``newest`` is its number of all launches."""
    gl.store(newest, first + i)
    done_round(stored, i, CONFIG)


@gluon.jit
def wait_round(done, i, CONFIG: gl.constexpr):
    """Wait for what is :func:`done_round`."""
    mbarrier.wait(done.index(i & (CONFIG.depth - 1)), i // CONFIG.depth & 1)


@gluon.jit
def done_round(done, i, CONFIG: gl.constexpr):
    """A round of a launch, counted from 0, is done. There is a barrier for each of the last ``CONFIG.depth``."""
    gl.barrier()
    mbarrier.arrive(done.index(i & (CONFIG.depth - 1)))


# ---- what the tables say


@gluon.jit
def route_of(me, n_tokens, memory, flags, distances, CONFIG: gl.constexpr):
    """The route by the tables in the memory of a dispatch."""
    goes = (memory + CONFIG.tables[2]).to(gl.int64).to(gl.pointer_type(gl.int64))
    return Route(me, n_tokens, memory, memory + CONFIG.tables[0], goes, memory + CONFIG.tables[3], flags, distances)


@gluon.jit
def tokens_of(route, rank):
    return gl.load(route.tokens_of + rank)


@gluon.jit
def rounds_of(route, lanes, CONFIG: gl.constexpr):
    """How many rounds all PEs make: as many as the one with the most tokens needs."""
    N: gl.constexpr = CONFIG.n_pes
    most = tokens_of(route, 0)
    for rank in gl.static_range(1, N):
        most = gl.maximum(most, tokens_of(route, rank))
    return rounds_for(most, lanes)


@gluon.jit
def rounds_for(n_tokens, lanes):
    """How many rounds a PE with so many tokens makes for itself."""
    return gl.maximum(gl.cdiv(gl.cdiv(n_tokens, BATCH), lanes), 1)


@gluon.jit
def anywhere(goes, CONFIG: gl.constexpr):
    """The bits of the tokens of a batch that go to any PE. Bytes of ranks that there are not hold anything."""
    bits = goes & 255
    N: gl.constexpr = CONFIG.n_pes
    for rank in gl.static_range(1, N):
        bits = bits | ((goes >> (8 * rank)) & 255)
    return bits.to(gl.int32)


@gluon.jit
def ones(bits):
    """How many of 8 bits are set."""
    pairs = bits - ((bits >> 1) & 0x55)
    fours = (pairs & 0x33) + ((pairs >> 2) & 0x33)
    return (fours + (fours >> 4)) & 15


@gluon.jit
def comes_of(route, source, batch, CONFIG: gl.constexpr):
    """The row and the bits of a batch of a source; 0 behind the last one."""
    there = batch * BATCH < tokens_of(route, source)
    return gl.load(route.comes + source * CONFIG.batches + batch, mask=there, other=0)


@gluon.jit
def slot_of(number, sender, lanes, lane, CONFIG: gl.constexpr):
    """The slot of the first token of a lane's batch, in round ``number``, from the rank ``sender``."""
    return (((number & (CONFIG.depth - 1)) * CONFIG.n_pes + sender) * lanes + lane) * BATCH
