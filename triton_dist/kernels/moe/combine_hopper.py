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

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper.flags import fence_async_proxy, signal_all, wait_peers
from triton_dist.kernels.moe.combine_batches import (
    Sums,
    batch_to_send,
    behind,
    choices_here,
    first_of,
    first_weights,
    ids_of_batch,
    own_batch,
    pes_of,
    positions_of,
    two_of,
    two_weights,
    without_two,
)
from triton_dist.kernels.moe.combine_ring import (
    fill,
    layout_of,
    lower_of,
    make_ring,
    release,
    upper_of,
    words_of,
    zeros,
)
from triton_dist.kernels.moe.rounds_hopper import DEPTH, LINE, n_rounds, slot_of

__all__ = ["moe_combine_rounds_by_tma"]

STORED = gl.constexpr(2 * int(DEPTH.value))
"""Of how many rounds it is known whether they are stored. The warp that tells peers is at most four rounds behind: a
lane that sends round g has received round g - 2 of peers, which had received its own round g - 4."""


@gluon.jit
def _load_rows(y, positions, here, box: gl.constexpr, ring, stage, phase, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    """Load a box of the rows of a token, at most two at a time."""
    bits = here
    while bits != 0:
        first, second = two_of(positions, bits)
        stage, phase = fill(y, first, second, bits & (bits - 1), box, ring, stage, phase, STAGES, CONFIG)
        bits = without_two(bits)
    return stage, phase


@gluon.jit
def _load_rows_to_send(y, sums, ring, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Load this PE's rows of peers' tokens."""
    BOXES: gl.constexpr = CONFIG.boxes
    stage, phase = 0, 0
    for i in range(rounds * (CONFIG.n_pes - 1)):
        batch = batch_to_send(sums, i, lane, lanes, CONFIG)
        there = choices_here(positions_of(sums, batch, CONFIG))
        for j in range(batch.length):
            here = first_of(there, CONFIG.choices)
            there = behind(there, CONFIG.choices)
            positions = sums.positions + batch.at + j * CONFIG.top_k
            for box in gl.static_range(BOXES):
                stage, phase = _load_rows(y, positions, here, box, ring, stage, phase, CONFIG.sent, CONFIG)


@gluon.jit
def _add(lower, upper, words, weight, CONFIG: gl.constexpr):
    """The sums and a row, which is multiplied by its weight if it has one."""
    if CONFIG.weighted:
        return lower + weight * lower_of(words, CONFIG), upper + weight * upper_of(words, CONFIG)
    else:
        return lower + lower_of(words, CONFIG), upper + upper_of(words, CONFIG)


@gluon.jit
def _add_rows(
    ring, stage, phase, here, weights, first, second, STAGES: gl.constexpr, CONFIG: gl.constexpr
):  # fmt: skip
    """The sum of a box of the rows of a token, in the order of its choices, as words.

    Args:
        here: a bit for each choice. weights: where those of the token begin. first, second: those of the first two.
    """
    LAYOUT: gl.constexpr = layout_of(gl.num_warps())
    lower, upper = zeros(CONFIG), zeros(CONFIG)
    bits = here
    while bits != 0:
        rest = without_two(bits)
        next_first, next_second = two_weights(weights, rest, CONFIG)
        mbarrier.wait(ring.full.index(stage), phase)
        lower, upper = _add(lower, upper, ring.rows.index(2 * stage).load(LAYOUT), first, CONFIG)
        if bits & (bits - 1) != 0:
            lower, upper = _add(lower, upper, ring.rows.index(2 * stage + 1).load(LAYOUT), second, CONFIG)
        stage, phase = release(ring, stage, phase, STAGES)
        bits = rest
        first = next_first
        second = next_second
    return words_of(lower, upper, CONFIG), stage, phase


@gluon.jit
def _store_box(row, words, box: gl.constexpr, CONFIG: gl.constexpr):
    """Store a box to the row that begins at the pointer ``row``."""
    LAYOUT: gl.constexpr = layout_of(gl.num_warps())
    lines = box * CONFIG.box + gl.arange(0, CONFIG.box, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :, None]
    column = gl.arange(0, LINE, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, None, :]
    gl.store(row + lines * LINE + column, words, mask=lines < CONFIG.lines)


@gluon.jit
def _send_sums(sums, ring, received, stored, begin, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Add up this PE's rows of peers' tokens, and send the sums."""
    N: gl.constexpr = CONFIG.n_pes
    BOXES: gl.constexpr = CONFIG.boxes
    stage, phase = 0, 0
    batch = batch_to_send(sums, 0, lane, lanes, CONFIG)
    there = choices_here(positions_of(sums, batch, CONFIG))
    first, second = first_weights(sums.weights + batch.at, there, CONFIG)
    block = positions_of(sums, batch_to_send(sums, 1, lane, lanes, CONFIG), CONFIG)
    for i in range(rounds * (N - 1)):
        # Batches are found again, not carried: Triton 3.7.1 forgets ends of loops that loops around them carry
        # (triton_api/v3_7.py).
        batch = batch_to_send(sums, i, lane, lanes, CONFIG)
        next_batch = batch_to_send(sums, i + 1, lane, lanes, CONFIG)
        next_there = choices_here(block)
        next_first, next_second = first_weights(sums.weights + next_batch.at, next_there, CONFIG)
        block = positions_of(sums, batch_to_send(sums, i + 2, lane, lanes, CONFIG), CONFIG)
        round_ = batch.number
        if (round_ >= 2) & (i % (N - 1) == 0):
            mbarrier.wait(received.index((round_ - 2) & (DEPTH - 1)), (round_ - 2) // DEPTH & 1)
        # Distances are multiples of 16 bytes, which a product with a constant tells the compiler.
        slots = sums.slots + gl.load(sums.slot_distances + batch.rank) // 16 * 4
        slot = slot_of(begin + round_, sums.me, lanes, lane, CONFIG)
        for j in range(batch.length):
            here = first_of(there, CONFIG.choices)
            there = behind(there, CONFIG.choices)
            weights = sums.weights + batch.at + j * CONFIG.top_k
            w0, w1 = first, second
            first, second = first_weights(weights + CONFIG.top_k, there, CONFIG)
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
    """Tell the peers of each round that is stored. A release waits for the stores; the other warps go on meanwhile."""
    for i in range(rounds):
        mbarrier.wait(stored.index(i & (STORED - 1)), i // STORED & 1)
        signal_all(sums.flags + sums.me * lanes + lane, sums.flag_distances, sums.me, first + i, CONFIG.n_pes)


@gluon.jit
def _load_sums(y, slots, sums, ring, acquired, first, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Load the rows of this PE's own tokens that stay, and what peers have sent."""
    N: gl.constexpr = CONFIG.n_pes
    BOXES: gl.constexpr = CONFIG.boxes
    stage, phase = 0, 0
    for i in range(rounds):
        number = first + i
        batch = own_batch(sums, i, lane, lanes, CONFIG)
        there = choices_here(positions_of(sums, batch, CONFIG))
        goes = pes_of(ids_of_batch(sums, batch, CONFIG), CONFIG)
        for j in range(gl.maximum(batch.length, 1)):
            here = first_of(there, CONFIG.choices)
            there = behind(there, CONFIG.choices)
            positions = sums.positions + batch.at + j * CONFIG.top_k
            for box in gl.static_range(BOXES):
                stage, phase = _load_rows(y, positions, here, box, ring, stage, phase, CONFIG.received, CONFIG)
                if (j == 0) & (box == 0):  # also of a batch without tokens: all PEs make the same rounds
                    wait_peers(sums.flags + lane, number, sums.me, N, lanes)
                    fence_async_proxy()
                    mbarrier.arrive(acquired.index(i & (DEPTH - 1)))
                for rank in gl.static_range(N):
                    if ((goes >> rank & 1) != 0) & (rank != sums.me):
                        slot = slot_of(number, rank, lanes, lane, CONFIG) + j
                        stage, phase = fill(slots, slot, slot, 0, box, ring, stage, phase, CONFIG.received, CONFIG)
            goes = behind(goes, CONFIG.pes)


@gluon.jit
def _receive_sums(sums, ring, acquired, received, rounds, lane, lanes, CONFIG: gl.constexpr):
    """Add up this PE's own tokens, and store them.

    A round is received when its flags are acquired, also if there is nothing to add.
    """
    LAYOUT: gl.constexpr = layout_of(gl.num_warps())
    N: gl.constexpr = CONFIG.n_pes
    BOXES: gl.constexpr = CONFIG.boxes
    stage, phase = 0, 0
    batch = own_batch(sums, 0, lane, lanes, CONFIG)
    there = choices_here(positions_of(sums, batch, CONFIG))
    goes = pes_of(ids_of_batch(sums, batch, CONFIG), CONFIG)
    first, second = first_weights(sums.weights + batch.at, there, CONFIG)
    next_batch = own_batch(sums, 1, lane, lanes, CONFIG)
    block = positions_of(sums, next_batch, CONFIG)
    ids = ids_of_batch(sums, next_batch, CONFIG)
    for i in range(rounds):
        batch = own_batch(sums, i, lane, lanes, CONFIG)
        next_batch = own_batch(sums, i + 1, lane, lanes, CONFIG)
        next_there, next_goes = choices_here(block), pes_of(ids, CONFIG)
        next_first, next_second = first_weights(sums.weights + next_batch.at, next_there, CONFIG)
        second_batch = own_batch(sums, i + 2, lane, lanes, CONFIG)
        block = positions_of(sums, second_batch, CONFIG)
        ids = ids_of_batch(sums, second_batch, CONFIG)
        for j in range(batch.length):
            here = first_of(there, CONFIG.choices)
            there = behind(there, CONFIG.choices)
            weights = sums.weights + batch.at + j * CONFIG.top_k
            w0, w1 = first, second
            first, second = first_weights(weights + CONFIG.top_k, there, CONFIG)
            row = sums.out + gl.to_tensor(batch.token + j).to(gl.int64) * (CONFIG.lines * LINE)
            for box in gl.static_range(BOXES):
                own, stage, phase = _add_rows(ring, stage, phase, here, weights, w0, w1, CONFIG.received, CONFIG)
                lower, upper = zeros(CONFIG), zeros(CONFIG)
                for rank in gl.static_range(N):
                    if (goes >> rank & 1) != 0:
                        words = own
                        if rank != sums.me:
                            mbarrier.wait(ring.full.index(stage), phase)
                            words = ring.rows.index(2 * stage).load(LAYOUT)
                            stage, phase = release(ring, stage, phase, CONFIG.received)
                        lower += lower_of(words, CONFIG)
                        upper += upper_of(words, CONFIG)
                _store_box(row, words_of(lower, upper, CONFIG), box, CONFIG)
            goes = behind(goes, CONFIG.pes)
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
    sent = make_ring(y, CONFIG.sent, CONFIG)
    found = make_ring(y, CONFIG.received, CONFIG)
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
