"""A combine in rounds by TMA: rows come to shared memory as whole rows, and are added up there. For Hopper GPUs.

It sums what ``rounds.py`` sums, in the same order, in lanes as of ``rounds_hopper.py``. A multiprocessor has one
program, which is one lane, of five parts:

- A warp loads the rows that this PE has of peers' tokens into a ring in shared memory, by TMA. Some warps add up those
  of a token in float32, and store the sum to the token's slot on its PE. When a round is stored, another warp releases
  a flag on every PE: the round's number.
- A warp loads the rows that stay of the PE's own tokens, and, behind the flags, the sums that peers have sent. Some
  warps add them in the order of PEs, and store the result.

Slots are used again after four rounds, without credits: a lane sends round g when it has received round g - 2 of all
sources, whose flags say that they have received round g - 4. Nothing is cleared: flags only grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy, signal_peer
from triton_dist.kernels.moe.rounds_hopper import DEPTH, LINE, block_of, n_rounds, padded, slot_of

__all__ = ["CombineConfig", "Sums", "moe_combine_rounds_by_tma"]


STORED = gl.constexpr(2 * int(DEPTH.value))
"""Of how many rounds it is known whether they are stored. The warp that tells peers is at most four rounds behind: a
lane that sends round g has received round g - 2 of peers, which had received its own round g - 4."""


@dataclass(frozen=True)
class CombineConfig:
    """Constants of a launch.

    Attributes:
        n_pes: members. top_k, local_experts, max_tokens: of the routing.
        batch: tokens of a round of a lane, of which each choice, and each PE, has a bit of 64.
        lines: of a row. box: of what TMA moves at a time, a power of two; the last box of a row may end behind it.
        sent, received: pairs of boxes of the rings.
        dtype: of the rows, ``bfloat16``, ``float16`` or ``float32``.
        weighted: whether rows are multiplied by their weights.
    """

    n_pes: int
    top_k: int
    local_experts: int
    max_tokens: int
    batch: int
    lines: int
    box: int
    sent: int
    received: int
    dtype: str
    weighted: bool

    @property
    def boxes(self) -> int:
        """Of a row."""
        return -(-self.lines // self.box)

    @property
    def choices(self) -> int:
        """Bits of a token for its choices."""
        return padded(self.top_k)

    @property
    def pes(self) -> int:
        """Bits of a token for its PEs."""
        return padded(self.n_pes)


class Sums(NamedTuple):
    """What is added up, and where it goes.

    Attributes:
        me: rank of this PE. ids: [T, top_k]. n_tokens: T.
        positions, weights: int32 [n_pes, max_tokens, top_k], the row of each choice of each source's tokens, and the
            bits of its weight in float32.
        tokens_of: int32 [n_pes], how many tokens each source has.
        out: int32 [T, words of a row].
        slots: symmetric int32, [4, n_pes, lanes, batch] rows. flags: symmetric int32 [n_pes, lanes].
        slot_distances, flag_distances: int64 [n_pes], bytes from the slots, and from the flags, to those of each PE.
    """

    me: Any
    ids: Any
    n_tokens: Any
    positions: Any
    weights: Any
    tokens_of: Any
    out: Any
    slots: Any
    flags: Any
    slot_distances: Any
    flag_distances: Any


class Ring(NamedTuple):
    """Pairs of boxes in shared memory: [2 x stages, 1, lines, 32] words; the barriers of a stage say that it is full, and
    empty. The second box of a pair may be left out."""

    rows: Any
    full: Any
    empty: Any


@gluon.jit
def _make_ring(like, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    return Ring(gl.allocate_shared_memory(gl.int32, [2 * STAGES, 1, CONFIG.box, LINE], like.layout), full, empty)


@gluon.jit
def _next(stage, phase, STAGES: gl.constexpr):
    """The stage behind this one, and the parity with which it is full."""
    last = stage == STAGES - 1
    return gl.where(last, 0, stage + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def _fill(rows, first, second, pair, box: gl.constexpr, ring, stage, phase, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    """Load a box of one row, and if they are a ``pair`` that of a second one, into the ring.

    Lines behind the row are zeros, and count as loaded.
    """
    BYTES: gl.constexpr = CONFIG.box * LINE * 4
    mbarrier.wait(ring.empty.index(stage), phase ^ 1)
    full = ring.full.index(stage)
    mbarrier.expect(full, BYTES, pred=pair == 0)
    mbarrier.expect(full, 2 * BYTES, pred=pair != 0)
    tma.async_load(rows, [first, box * CONFIG.box, 0], full, ring.rows.index(2 * stage))
    tma.async_load(rows, [second, box * CONFIG.box, 0], full, ring.rows.index(2 * stage + 1), pred=pair != 0)
    return _next(stage, phase, STAGES)


@gluon.jit
def _release(ring, stage, phase, STAGES: gl.constexpr):
    """Let a stage be filled again. Its words may still be on their way to registers when all warps have asked for them:
    the fence waits for them, without which TMA overwrites some, a few rows in a million."""
    fence_async_shared()
    gl.barrier()
    mbarrier.arrive(ring.empty.index(stage))
    return _next(stage, phase, STAGES)


# ---- what words hold


@gluon.constexpr_function
def _layout(num_warps):
    """Of a box: a thread has 16 bytes of every so many lines."""
    return gl.BlockedLayout([1, 1, 4], [1, 4, 8], [1, int(num_warps), 1], [2, 1, 0])


@gluon.jit
def _zeros(CONFIG: gl.constexpr):
    BOX: gl.constexpr = CONFIG.box
    LAYOUT: gl.constexpr = _layout(gl.num_warps())
    return gl.zeros([1, BOX, LINE], gl.float32, LAYOUT)


@gluon.jit
def _lower(words, CONFIG: gl.constexpr):
    """The first element of each word, in float32."""
    if CONFIG.dtype == "float32":
        return words.to(gl.float32, bitcast=True)
    elif CONFIG.dtype == "bfloat16":
        return (words << 16).to(gl.float32, bitcast=True)
    else:
        return words.to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)


@gluon.jit
def _upper(words, CONFIG: gl.constexpr):
    """The second one; of float32 the first."""
    if CONFIG.dtype == "float32":
        return words.to(gl.float32, bitcast=True)
    elif CONFIG.dtype == "bfloat16":
        return (words & -65536).to(gl.float32, bitcast=True)
    else:
        return (words >> 16).to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)


@gluon.jit
def _words_of(lower, upper, CONFIG: gl.constexpr):
    """Words of which these are the elements, rounded to the rows' type; of float32 ``upper`` is not used."""
    if CONFIG.dtype == "float32":
        return lower.to(gl.int32, bitcast=True)
    elif CONFIG.dtype == "bfloat16":
        low = lower.to(gl.bfloat16).to(gl.int16, bitcast=True).to(gl.int32) & 65535
        return low | (upper.to(gl.bfloat16).to(gl.int16, bitcast=True).to(gl.int32) << 16)
    else:
        low = lower.to(gl.float16).to(gl.int16, bitcast=True).to(gl.int32) & 65535
        return low | (upper.to(gl.float16).to(gl.int16, bitcast=True).to(gl.int32) << 16)


# ---- which rows there are. The warps that load and those that add ask alike.


@gluon.jit
def _choices_here(block):
    """Which choices of a batch's tokens have a row here, whose positions are ``block``: a bit for each, by token."""
    CHOICES: gl.constexpr = block.shape[1]
    there = (block >= 0).to(gl.int64)
    order = gl.arange(0, CHOICES, gl.SliceLayout(0, there.type.layout))
    return _bits_of_tokens(gl.sum(there << order[None, :].to(gl.int64), axis=1), CHOICES)


@gluon.jit
def _pes_of(chosen, CONFIG: gl.constexpr):
    """Which PEs have experts of a batch's tokens, whose ids are ``chosen``: a bit for each rank, by token."""
    N: gl.constexpr = CONFIG.n_pes
    homes = gl.where(chosen >= 0, chosen // CONFIG.local_experts, -1)
    bits = gl.max((homes == 0).to(gl.int64), axis=1)
    for rank in gl.static_range(1, N):
        bits = bits | (gl.max((homes == rank).to(gl.int64), axis=1) << rank)
    return _bits_of_tokens(bits, CONFIG.pes)


@gluon.jit
def _bits_of_tokens(bits, EACH: gl.constexpr):
    order = gl.arange(0, bits.shape[0], bits.type.layout)
    return gl.sum(bits << (order * EACH).to(gl.int64), axis=0)


@gluon.jit
def _first(bits, EACH: gl.constexpr):
    """The bits of the first token."""
    return (bits & ((1 << EACH) - 1)).to(gl.int32)


@gluon.jit
def _behind(bits, EACH: gl.constexpr):
    """The bits of the tokens behind the first one."""
    return (bits >> EACH) & ((1 << (64 - EACH)) - 1)


@gluon.jit
def _lowest(bits):
    """Which bit is the lowest one that is set: the exponent of its value."""
    return ((bits & -bits).to(gl.float32).to(gl.int32, bitcast=True) >> 23) - 127


@gluon.jit
def _two_of(values, bits):
    """What a token has for the lowest two of the choices in ``bits``; 0 for those that there are not."""
    more = bits & (bits - 1)
    first = gl.load(values + _lowest(bits), mask=bits != 0, other=0)
    return first, gl.load(values + _lowest(more), mask=more != 0, other=0)


@gluon.jit
def _without_two(bits):
    more = bits & (bits - 1)
    return more & (more - 1)


@gluon.jit
def _two_weights(weights, bits, CONFIG: gl.constexpr):
    """The weights of the lowest two choices."""
    if CONFIG.weighted:
        first, second = _two_of(weights, bits)
        return first.to(gl.float32, bitcast=True), second.to(gl.float32, bitcast=True)
    else:
        return 1.0, 1.0


class Batch(NamedTuple):
    """Tokens of a source, whose rows here a program adds up at a time.

    Attributes:
        number: of the round, from 0. rank: the source. token: the first one. length: how many there are.
        at: where what tokens from the first one on have by choice begins.
    """

    number: Any
    rank: Any
    token: Any
    length: Any
    at: Any


@gluon.jit
def _batch_of(sums, number, rank, end, lane, lanes, CONFIG: gl.constexpr):
    """The batch of a source that has ``end`` tokens."""
    token = (number * lanes + lane) * CONFIG.batch
    length = gl.maximum(gl.minimum(end - token, CONFIG.batch), 0)
    at = (gl.to_tensor(rank).to(gl.int64) * CONFIG.max_tokens + token) * CONFIG.top_k
    return Batch(number, rank, token, length, at)


@gluon.jit
def _batch_to_send(sums, i, lane, lanes, CONFIG: gl.constexpr):
    """The i-th batch of peers' tokens: of each round those of the next PE, then of the one behind it, and so on."""
    OTHERS: gl.constexpr = CONFIG.n_pes - 1
    rank = (sums.me + 1 + i % OTHERS) % CONFIG.n_pes
    return _batch_of(sums, i // OTHERS, rank, gl.load(sums.tokens_of + rank), lane, lanes, CONFIG)


@gluon.jit
def _own_batch(sums, i, lane, lanes, CONFIG: gl.constexpr):
    """The i-th batch of this PE's own tokens."""
    return _batch_of(sums, i, sums.me, sums.n_tokens, lane, lanes, CONFIG)


@gluon.jit
def _positions_of(sums, batch, CONFIG: gl.constexpr):
    """Where the rows of a batch's tokens are, [tokens, choices]; -1 if not here."""
    return block_of(sums.positions + batch.at, 0, batch.length, CONFIG)


@gluon.jit
def _ids_of(sums, batch, CONFIG: gl.constexpr):
    return block_of(sums.ids, batch.token, sums.n_tokens, CONFIG)


# ---- what the parts do. What is to be known of a batch is loaded while those in front of it are added up.


@gluon.jit
def _load_rows(y, positions, here, box: gl.constexpr, ring, stage, phase, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    """Load a box of the rows of a token, at most two at a time."""
    bits = here
    while bits != 0:
        first, second = _two_of(positions, bits)
        stage, phase = _fill(y, first, second, bits & (bits - 1), box, ring, stage, phase, STAGES, CONFIG)
        bits = _without_two(bits)
    return stage, phase


@gluon.jit
def _load_rows_to_send(y, sums, ring, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Load this PE's rows of peers' tokens."""
    BOXES: gl.constexpr = CONFIG.boxes
    stage, phase = 0, 0
    for i in range(rounds * (CONFIG.n_pes - 1)):
        batch = _batch_to_send(sums, i, lane, lanes, CONFIG)
        there = _choices_here(_positions_of(sums, batch, CONFIG))
        for j in range(batch.length):
            here = _first(there, CONFIG.choices)
            there = _behind(there, CONFIG.choices)
            positions = sums.positions + batch.at + j * CONFIG.top_k
            for box in gl.static_range(BOXES):
                stage, phase = _load_rows(y, positions, here, box, ring, stage, phase, CONFIG.sent, CONFIG)


@gluon.jit
def _add(lower, upper, words, weight, CONFIG: gl.constexpr):
    """The sums and a row, which is multiplied by its weight if it has one."""
    if CONFIG.weighted:
        return lower + weight * _lower(words, CONFIG), upper + weight * _upper(words, CONFIG)
    else:
        return lower + _lower(words, CONFIG), upper + _upper(words, CONFIG)


@gluon.jit
def _add_rows(
    ring, stage, phase, here, weights, first, second, STAGES: gl.constexpr, CONFIG: gl.constexpr
):  # fmt: skip
    """The sum of a box of the rows of a token, in the order of its choices, as words.

    Args:
        here: a bit for each choice. weights: where those of the token begin. first, second: those of the first two.
    """
    LAYOUT: gl.constexpr = _layout(gl.num_warps())
    lower, upper = _zeros(CONFIG), _zeros(CONFIG)
    bits = here
    while bits != 0:
        rest = _without_two(bits)
        next_first, next_second = _two_weights(weights, rest, CONFIG)
        mbarrier.wait(ring.full.index(stage), phase)
        lower, upper = _add(lower, upper, ring.rows.index(2 * stage).load(LAYOUT), first, CONFIG)
        if bits & (bits - 1) != 0:
            lower, upper = _add(lower, upper, ring.rows.index(2 * stage + 1).load(LAYOUT), second, CONFIG)
        stage, phase = _release(ring, stage, phase, STAGES)
        bits = rest
        first = next_first
        second = next_second
    return _words_of(lower, upper, CONFIG), stage, phase


@gluon.jit
def _store_box(row, words, box: gl.constexpr, CONFIG: gl.constexpr):
    """Store a box to the row that begins at the pointer ``row``."""
    LAYOUT: gl.constexpr = _layout(gl.num_warps())
    lines = box * CONFIG.box + gl.arange(0, CONFIG.box, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :, None]
    column = gl.arange(0, LINE, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, None, :]
    gl.store(row + lines * LINE + column, words, mask=lines < CONFIG.lines)


@gluon.jit
def _send_sums(sums, ring, received, stored, begin, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Add up this PE's rows of peers' tokens, and send the sums."""
    N: gl.constexpr = CONFIG.n_pes
    BOXES: gl.constexpr = CONFIG.boxes
    stage, phase = 0, 0
    batch = _batch_to_send(sums, 0, lane, lanes, CONFIG)
    there = _choices_here(_positions_of(sums, batch, CONFIG))
    first, second = _two_weights(sums.weights + batch.at, _first(there, CONFIG.choices), CONFIG)
    block = _positions_of(sums, _batch_to_send(sums, 1, lane, lanes, CONFIG), CONFIG)
    for i in range(rounds * (N - 1)):
        # Batches are found again: Triton 3.7.1 takes a loop's end that another loop carries for that of the first time.
        batch = _batch_to_send(sums, i, lane, lanes, CONFIG)
        next_batch = _batch_to_send(sums, i + 1, lane, lanes, CONFIG)
        next_there = _choices_here(block)
        next_first, next_second = _two_weights(
            sums.weights + next_batch.at, _first(next_there, CONFIG.choices), CONFIG
        )  # fmt: skip
        block = _positions_of(sums, _batch_to_send(sums, i + 2, lane, lanes, CONFIG), CONFIG)
        round_ = batch.number
        if (round_ >= 2) & (i % (N - 1) == 0):
            mbarrier.wait(received.index((round_ - 2) & (DEPTH - 1)), (round_ - 2) // DEPTH & 1)
        # Distances are multiples of 16 bytes, which a product with a constant tells the compiler.
        slots = sums.slots + gl.load(sums.slot_distances + batch.rank) // 16 * 4
        slot = slot_of(begin + round_, sums.me, lanes, lane, CONFIG)
        for j in range(batch.length):
            here = _first(there, CONFIG.choices)
            there = _behind(there, CONFIG.choices)
            weights = sums.weights + batch.at + j * CONFIG.top_k
            w0, w1 = first, second
            first, second = _two_weights(weights + CONFIG.top_k, _first(there, CONFIG.choices), CONFIG)
            if here != 0:
                row = slots + (slot + j).to(gl.int64) * (CONFIG.lines * LINE)
                for box in gl.static_range(BOXES):
                    words, stage, phase = _add_rows(ring, stage, phase, here, weights, w0, w1, CONFIG.sent, CONFIG)
                    _store_box(row, words, box, CONFIG)
        if i % (N - 1) == N - 2:
            gl.barrier()  # all threads have stored
            mbarrier.arrive(stored.index(round_ & (STORED - 1)))
        there = next_there
        first, second = next_first, next_second


@gluon.jit
def _signal_peers(sums, stored, first, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Tell the peers of each round that is stored. A release waits for stores to arrive; other warps go on meanwhile."""
    N: gl.constexpr = CONFIG.n_pes
    for i in range(rounds):
        mbarrier.wait(stored.index(i & (STORED - 1)), i // STORED & 1)
        for distance in range(1, N):
            rank = (sums.me + distance) % N
            signal_peer(sums.flags + sums.me * lanes + lane, gl.load(sums.flag_distances + rank), first + i)


@gluon.jit
def _load_sums(y, slots, sums, ring, acquired, first, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Load the rows of this PE's own tokens that stay, and what peers have sent."""
    N: gl.constexpr = CONFIG.n_pes
    BOXES: gl.constexpr = CONFIG.boxes
    stage, phase = 0, 0
    for i in range(rounds):
        number = first + i
        batch = _own_batch(sums, i, lane, lanes, CONFIG)
        there = _choices_here(_positions_of(sums, batch, CONFIG))
        goes = _pes_of(_ids_of(sums, batch, CONFIG), CONFIG)
        for j in range(gl.maximum(batch.length, 1)):
            here = _first(there, CONFIG.choices)
            there = _behind(there, CONFIG.choices)
            positions = sums.positions + batch.at + j * CONFIG.top_k
            for box in gl.static_range(BOXES):
                stage, phase = _load_rows(y, positions, here, box, ring, stage, phase, CONFIG.received, CONFIG)
                if box == 0:
                    if j == 0:  # also of a batch without tokens: all PEs make the same rounds
                        for distance in range(1, N):  # in the order in which PEs send to this one
                            acquire(sums.flags + (sums.me - distance + N) % N * lanes + lane, number, "sys")
                        fence_async_proxy()
                        mbarrier.arrive(acquired.index(i & (DEPTH - 1)))
                for rank in gl.static_range(N):
                    if ((goes >> rank & 1) != 0) & (rank != sums.me):
                        slot = slot_of(number, rank, lanes, lane, CONFIG) + j
                        stage, phase = _fill(slots, slot, slot, 0, box, ring, stage, phase, CONFIG.received, CONFIG)
            goes = _behind(goes, CONFIG.pes)


@gluon.jit
def _receive_sums(sums, ring, acquired, received, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Add up this PE's own tokens, and store them.

    A round is received when its flags are acquired, also if there is nothing to add.
    """
    LAYOUT: gl.constexpr = _layout(gl.num_warps())
    N: gl.constexpr = CONFIG.n_pes
    BOXES: gl.constexpr = CONFIG.boxes
    stage, phase = 0, 0
    batch = _own_batch(sums, 0, lane, lanes, CONFIG)
    there = _choices_here(_positions_of(sums, batch, CONFIG))
    goes = _pes_of(_ids_of(sums, batch, CONFIG), CONFIG)
    first, second = _two_weights(sums.weights + batch.at, _first(there, CONFIG.choices), CONFIG)
    next_batch = _own_batch(sums, 1, lane, lanes, CONFIG)
    block = _positions_of(sums, next_batch, CONFIG)
    ids = _ids_of(sums, next_batch, CONFIG)
    for i in range(rounds):
        batch = _own_batch(sums, i, lane, lanes, CONFIG)
        next_batch = _own_batch(sums, i + 1, lane, lanes, CONFIG)
        next_there, next_goes = _choices_here(block), _pes_of(ids, CONFIG)
        next_first, next_second = _two_weights(
            sums.weights + next_batch.at, _first(next_there, CONFIG.choices), CONFIG
        )  # fmt: skip
        second_batch = _own_batch(sums, i + 2, lane, lanes, CONFIG)
        block = _positions_of(sums, second_batch, CONFIG)
        ids = _ids_of(sums, second_batch, CONFIG)
        for j in range(batch.length):
            here = _first(there, CONFIG.choices)
            there = _behind(there, CONFIG.choices)
            weights = sums.weights + batch.at + j * CONFIG.top_k
            w0, w1 = first, second
            first, second = _two_weights(weights + CONFIG.top_k, _first(there, CONFIG.choices), CONFIG)
            row = sums.out + gl.to_tensor(batch.token + j).to(gl.int64) * (CONFIG.lines * LINE)
            for box in gl.static_range(BOXES):
                own, stage, phase = _add_rows(ring, stage, phase, here, weights, w0, w1, CONFIG.received, CONFIG)
                lower, upper = _zeros(CONFIG), _zeros(CONFIG)
                for rank in gl.static_range(N):
                    if (goes >> rank & 1) != 0:
                        words = own
                        if rank != sums.me:
                            mbarrier.wait(ring.full.index(stage), phase)
                            words = ring.rows.index(2 * stage).load(LAYOUT)
                            stage, phase = _release(ring, stage, phase, CONFIG.received)
                        lower += _lower(words, CONFIG)
                        upper += _upper(words, CONFIG)
                _store_box(row, _words_of(lower, upper, CONFIG), box, CONFIG)
            goes = _behind(goes, CONFIG.pes)
        mbarrier.wait(acquired.index(i & (DEPTH - 1)), i // DEPTH & 1)
        gl.barrier()
        mbarrier.arrive(received.index(i & (DEPTH - 1)))
        there = next_there
        goes = next_goes
        first, second = next_first, next_second


@gluon.jit(do_not_specialize=["n_tokens", "me"])
def moe_combine_rounds_by_tma(
    y, memory, ids, out, slots_map, slots, flags, slot_distances, flag_distances, rounds, tokens_at, positions_at,
    weights_at, n_tokens, me, CONFIG: gl.constexpr,
):  # fmt: skip
    """Add up the rows of tokens.

    Args:
        y, slots_map: descriptors of [rows, lines of a row, 32] int32 words: of the experts' rows, and of this PE's
            slots.
        memory: of the dispatch's result, where ``tokens_at``, ``positions_at`` and ``weights_at`` tell how many tokens
            each source has, where their rows are, and by what these are multiplied.
        rounds: int32 for each program, the last round.
        slots, flags, slot_distances, flag_distances, out: as of :class:`Sums`.
    """
    sums = Sums(
        me, ids, n_tokens, memory + positions_at, memory + weights_at, memory + tokens_at, out, slots, flags,
        slot_distances, flag_distances,
    )  # fmt: skip
    lane, lanes = gl.program_id(0), gl.num_programs(0)
    first = gl.load(rounds + lane) + 1
    n = n_rounds(sums.tokens_of, lanes, CONFIG)
    sent = _make_ring(y, CONFIG.sent, CONFIG)
    found = _make_ring(y, CONFIG.received, CONFIG)
    stored = gl.allocate_shared_memory(gl.int64, [STORED, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STORED):
        mbarrier.init(stored.index(i), count=1)
    acquired = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    received = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(DEPTH):
        mbarrier.init(acquired.index(i), count=1)
        mbarrier.init(received.index(i), count=1)
    gl.warp_specialize(
        [
            (_send_sums, (sums, sent, received, stored, first, n, lane, lanes, CONFIG)),
            (_receive_sums, (sums, found, acquired, received, n, lane, lanes, CONFIG)),
            (_load_rows_to_send, (y, sums, sent, n, lane, lanes, CONFIG)),
            (_load_sums, (y, slots_map, sums, found, acquired, first, n, lane, lanes, CONFIG)),
            (_signal_peers, (sums, stored, first, n, lane, lanes, CONFIG)),
        ],
        [4, 1, 1, 1],
        [200, 64, 64, 64],
    )
    gl.store(rounds + lane, first + n - 1)
