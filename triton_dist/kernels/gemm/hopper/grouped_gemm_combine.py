"""Grouped GEMM and combine: this PE's experts, and the weighted sums of their rows to the tokens' PEs meanwhile.

A: [R, K], the rows of this PE's experts, B: a matrix for each of them, 16-bit floats; out: [T, N] on every PE, for each
of its tokens the sum over all PEs' experts.

One persistent kernel with the protocol of ``moe/grouped_gemm_reduce_scatter.py``: the result goes in chunks of columns.
The first ``reducers`` programs add up the rows of tokens, send the sums to the tokens' PEs and add what comes from all.
The others are warp-specialised programs of a grouped GEMM (``grouped_gemm.py``), which go through the chunks in step
and count, for each, the groups that have finished it.

In programs that add, both multiply groups do, each as a reducer of its own: reducer q of every PE adds up the same
tokens, and has a barrier with reducer q of the others, one a chunk. Sums are in one order, and rounded as combine does.
Products are stored by TMA or by threads. Both are complete in memory before a group counts itself, so that ordinary
loads behind the acquire see them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper.buffers import await_full, make_operand_ring
from triton_dist.kernels.gemm.hopper.epochs import end_epoch
from triton_dist.kernels.gemm.hopper.expert_layout import FINISHED
from triton_dist.kernels.gemm.hopper.expert_rows import there
from triton_dist.kernels.gemm.hopper.flags import acquire, signal_all, stores_complete, wait_peers
from triton_dist.kernels.gemm.hopper.grouped_gemm import (
    Groups,
    load_stages,
    operand_descriptors,
    place_of,
    seek,
    seek_first,
    store_rows,
)
from triton_dist.kernels.gemm.hopper.launch import tile_map
from triton_dist.kernels.gemm.hopper.layout import ARRIVED
from triton_dist.kernels.gemm.hopper.multiply import accumulate_steps
from triton_dist.kernels.gemm.hopper.warps import REGISTERS, specialize_without_store
from triton_dist.kernels.prepared import Launch, launch

__all__ = ["Exchange", "moe_grouped_gemm_combine_kernel", "run_combine"]

_TOKENS = gl.constexpr(4)
_COLUMNS = gl.constexpr(512)
"""Of a block that a group adds up at a time: 32 bytes of a row are a thread's."""

_BARRIER = gl.constexpr(128)
"""Words of a reducer's barrier: a flag of each PE, and its epoch as the last."""


class Exchange(NamedTuple):
    """What reducers add up, and where.

    Attributes:
        products: [R, N]. out: [n_tokens, N].
        begins: int32 [n_pes * local + 1], where each expert's rows begin in the order of all PEs' rows, and the end.
        tokens: int32 [n_pes], how many tokens each PE has.
        positions: int32 [n_pes, max_tokens, top_k], the row of each choice, -1 for none.
        weights: float32, of each row of all PEs.
        slots: symmetric, two halves of [n_pes, max_tokens, chunk].
        barriers: symmetric int32, ``_BARRIER`` words of each reducer.
        slot_distances, barrier_distances: int64, bytes from this PE's memory to each PE's.
        me: number of this PE. reducers: programs that add. local: experts of a PE.
    """

    products: Any
    out: Any
    begins: Any
    tokens: Any
    positions: Any
    weights: Any
    slots: Any
    barriers: Any
    slot_distances: Any
    barrier_distances: Any
    me: Any
    reducers: Any
    local: Any


@gluon.jit(do_not_specialize=["me", "reducers"])
def moe_grouped_gemm_combine_kernel(
    a, a_piece, b, c_map, products, out, counts, begins, tokens, positions, weights, slots, barriers,
    slot_distances, barrier_distances, state, me, reducers, N, K, b_step,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr, L: gl.constexpr, TOP_K: gl.constexpr,
    MAX_TOKENS: gl.constexpr, CHUNK: gl.constexpr, WEIGHTED: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    tiles = gl.allocate_shared_memory(c_map.dtype, [CONFIG.groups] + c_map.block_shape, c_map.layout)
    most, columns, k_steps = c_map.shape[0].to(gl.int32), gl.cdiv(N, CONFIG.block_n), gl.cdiv(K, a.block_shape[1])
    groups = Groups(begins + me * L, counts, most, L, columns, k_steps, b_step)
    exchange = Exchange(
        products, out, begins, tokens, positions, weights, slots, barriers, slot_distances, barrier_distances, me,
        reducers, L,
    )  # fmt: skip
    specialize_without_store(
        _multiply, (
            operands, tiles, c_map, exchange, groups, state, N, CONFIG, B_BY_COLUMNS, N_PES, TOP_K, MAX_TOKENS, CHUNK,
            WEIGHTED,
        ),
        _load, (a, a_piece, b, operands, groups, reducers, N, CONFIG, B_BY_COLUMNS, CHUNK),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def _of_chunk(groups, chunk, CONFIG: gl.constexpr, CHUNK: gl.constexpr):
    """The groups with the columns of tiles of one chunk only."""
    WIDTH: gl.constexpr = CHUNK // CONFIG.block_n
    columns = gl.minimum(groups.columns - chunk * WIDTH, WIDTH)
    return Groups(groups.offsets, groups.counts, groups.most, groups.experts, columns, groups.k_steps, groups.b_step)


@gluon.jit
def _load(
    a, a_piece, b, operands, groups, reducers, N, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, CHUNK: gl.constexpr
):
    """Load the blocks of this program's tiles, chunk by chunk; programs that add have none."""
    WIDTH: gl.constexpr = CHUNK // CONFIG.block_n
    step = 0
    tile = gl.program_id(0) - reducers
    n_chunks = gl.cdiv(N, CHUNK)
    if tile < 0:
        n_chunks = 0
    for chunk in range(n_chunks):
        part = _of_chunk(groups, chunk, CONFIG, CHUNK)
        expert, first, rows = seek_first(part, tile, CONFIG)
        while expert < groups.experts:
            row, column = place_of(part, tile, first, rows, CONFIG)
            place = gl.load(groups.offsets + expert) - gl.load(groups.offsets) + row
            step = load_stages(
                a, a_piece, b, None, operands, groups, N, expert, place, rows - row, chunk * WIDTH + column, step,
                CONFIG, B_BY_COLUMNS,
            )  # fmt: skip
            tile += gl.num_programs(0) - reducers
            expert, first, rows = seek(part, tile, expert, first, rows, CONFIG)
        tile -= first  # all of the chunk's: numbers go on in the next one


@gluon.jit
def _multiply(
    GROUP: gl.constexpr, operands, tiles, c_map, exchange, groups, state, N,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr, TOP_K: gl.constexpr,
    MAX_TOKENS: gl.constexpr, CHUNK: gl.constexpr, WEIGHTED: gl.constexpr,
):  # fmt: skip
    if gl.program_id(0) < exchange.reducers:
        for chunk in range(gl.cdiv(N, CHUNK)):
            finished = (gl.num_programs(0) - exchange.reducers) * CONFIG.groups
            acquire(state + FINISHED + chunk, finished, "gpu")
            gl.barrier()  # no thread continues before the one that acquired
            _reduce_chunk(GROUP, exchange, chunk, N, CONFIG, N_PES, TOP_K, MAX_TOKENS, CHUNK, WEIGHTED)
    else:
        _multiply_chunks(GROUP, operands, tiles, c_map, exchange, groups, state, N, CONFIG, B_BY_COLUMNS, CHUNK)
    gl.barrier()
    if gl.atomic_add(state + ARRIVED, 1, sem="acq_rel", scope="gpu") == gl.num_programs(0) * CONFIG.groups - 1:
        for chunk in range(gl.cdiv(N, CHUNK)):
            gl.store(state + FINISHED + chunk, 0)
        end_epoch(state, 0)


@gluon.jit
def _multiply_chunks(
    GROUP: gl.constexpr, operands, tiles, c_map, exchange, groups, state, N,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, CHUNK: gl.constexpr,
):  # fmt: skip
    """Compute and store this group's rows of this program's tiles, and count the group for each chunk.

    A group without rows multiplies all the same where the expert has other tiles, as in ``grouped_gemm.py``.
    """
    WIDTH: gl.constexpr = CHUNK // CONFIG.block_n
    step = 0
    tile = gl.program_id(0) - exchange.reducers
    for chunk in range(gl.cdiv(N, CHUNK)):
        part = _of_chunk(groups, chunk, CONFIG, CHUNK)
        expert, first, rows = seek_first(part, tile, CONFIG)
        while expert < groups.experts:
            row, column = place_of(part, tile, first, rows, CONFIG)
            row += GROUP * CONFIG.group_m
            if (rows - row > 0) | (rows > CONFIG.block_m):
                sums, step = accumulate_steps(GROUP, operands, 0, groups.k_steps, step, CONFIG, B_BY_COLUMNS)
                if rows - row > 0:
                    begin = gl.load(groups.offsets + expert) - gl.load(groups.offsets)
                    at = (chunk * WIDTH + column) * CONFIG.block_n
                    store_rows(GROUP, sums, tiles, c_map, exchange.products, begin, row, None, rows - row, at, N)
            else:
                for _ in range(groups.k_steps):
                    mbarrier.arrive(operands.empty.index(await_full(operands, step, CONFIG)))
                    step += 1
            tile += gl.num_programs(0) - exchange.reducers
            expert, first, rows = seek(part, tile, expert, first, rows, CONFIG)
        tile -= first
        stores_complete()
        gl.barrier()  # what all threads have stored comes before the release
        gl.atomic_add(state + FINISHED + chunk, 1, sem="release", scope="gpu")


@gluon.jit
def _reduce_chunk(
    GROUP: gl.constexpr, exchange, chunk, N, CONFIG: gl.constexpr, N_PES: gl.constexpr, TOP_K: gl.constexpr,
    MAX_TOKENS: gl.constexpr, CHUNK: gl.constexpr, WEIGHTED: gl.constexpr,
):  # fmt: skip
    """Add up a chunk of the rows here for this reducer's tokens of all PEs, exchange sums, and add those of all PEs.

    Slots have two halves, used in turn. Behind the barrier of a chunk all have read what they had of the one before.
    """
    me = exchange.me
    reducer = gl.program_id(0) * CONFIG.groups + GROUP
    step = exchange.reducers * CONFIG.groups
    barrier = exchange.barriers + reducer * _BARRIER
    number = gl.load(barrier + (_BARRIER - 1)) + 1
    half = exchange.slots + (number & 1).to(gl.int64) * (N_PES * MAX_TOKENS * CHUNK)
    mine = half + me.to(gl.int64) * (MAX_TOKENS * CHUNK)
    for i in range(1, N_PES + 1):  # this PE's own last
        pe = (me + i) % N_PES
        to = there(mine, gl.load(exchange.slot_distances + pe))
        _send_sums(exchange, to, pe, reducer, step, chunk, N, TOP_K, MAX_TOKENS, CHUNK, WEIGHTED)
    gl.barrier()  # what all threads have stored comes before the release, and all have read the number
    gl.store(barrier + (_BARRIER - 1), number)
    signal_all(barrier + me, exchange.barrier_distances, me, number, N_PES)
    wait_peers(barrier, number, me, N_PES)
    _receive_sums(exchange, half, reducer, step, chunk, N, N_PES, TOP_K, MAX_TOKENS, CHUNK)


@gluon.jit
def _send_sums(
    exchange, to, pe, reducer, step, chunk, N, TOP_K: gl.constexpr, MAX_TOKENS: gl.constexpr, CHUNK: gl.constexpr,
    WEIGHTED: gl.constexpr,
):  # fmt: skip
    """Store the sums of one PE's tokens that have rows here."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [gl.num_warps(), 1], [1, 0])
    begin = gl.load(exchange.begins + exchange.me * exchange.local)
    end = gl.load(exchange.begins + (exchange.me + 1) * exchange.local)
    n_tokens = gl.load(exchange.tokens + pe)
    for batch in range(reducer, gl.cdiv(n_tokens, _TOKENS), step):
        tokens = batch * _TOKENS + gl.arange(0, _TOKENS, gl.SliceLayout(1, LAYOUT))
        choices = exchange.positions + (pe * MAX_TOKENS + tokens) * TOP_K
        sends = _have_rows(choices, tokens < n_tokens, begin, end, TOP_K)
        for first in range(0, CHUNK, _COLUMNS):
            inside = first + gl.arange(0, _COLUMNS, gl.SliceLayout(0, LAYOUT))
            columns = chunk * CHUNK + inside
            exist = ((columns < N) & (inside < CHUNK))[None, :]
            sums = gl.zeros([_TOKENS, _COLUMNS], gl.float32, LAYOUT)
            for k in gl.static_range(TOP_K):
                row = gl.load(choices + k, mask=tokens < n_tokens, other=-1)
                made = (row >= begin) & (row < end)
                at = exchange.products + (row - begin).to(gl.int64)[:, None] * N + columns[None, :]
                value = gl.load(at, mask=made[:, None] & exist, other=0.0).to(gl.float32)
                if WEIGHTED:
                    value *= gl.load(exchange.weights + row, mask=made, other=0.0)[:, None]
                sums += value
            at = to + tokens[:, None] * CHUNK + inside[None, :]
            gl.store(at, sums.to(exchange.slots.dtype.element_ty), mask=sends[:, None] & exist)


@gluon.jit
def _receive_sums(
    exchange, half, reducer, step, chunk, N, N_PES: gl.constexpr, TOP_K: gl.constexpr, MAX_TOKENS: gl.constexpr,
    CHUNK: gl.constexpr,
):  # fmt: skip
    """Add what all PEs have sent for this PE's tokens, in the order of PEs."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [gl.num_warps(), 1], [1, 0])
    n_tokens = gl.load(exchange.tokens + exchange.me)
    for batch in range(reducer, gl.cdiv(n_tokens, _TOKENS), step):
        tokens = batch * _TOKENS + gl.arange(0, _TOKENS, gl.SliceLayout(1, LAYOUT))
        choices = exchange.positions + (exchange.me * MAX_TOKENS + tokens) * TOP_K
        for first in range(0, CHUNK, _COLUMNS):
            inside = first + gl.arange(0, _COLUMNS, gl.SliceLayout(0, LAYOUT))
            columns = chunk * CHUNK + inside
            exist = ((columns < N) & (inside < CHUNK))[None, :]
            sums = gl.zeros([_TOKENS, _COLUMNS], gl.float32, LAYOUT)
            for pe in gl.static_range(N_PES):
                begin = gl.load(exchange.begins + pe * exchange.local)
                end = gl.load(exchange.begins + (pe + 1) * exchange.local)
                sent = _have_rows(choices, tokens < n_tokens, begin, end, TOP_K)[:, None] & exist
                at = half + (pe * MAX_TOKENS + tokens).to(gl.int64)[:, None] * CHUNK + inside[None, :]
                sums += gl.load(at, mask=sent, other=0.0).to(gl.float32)
            at = exchange.out + tokens.to(gl.int64)[:, None] * N + columns[None, :]
            gl.store(at, sums.to(exchange.out.dtype.element_ty), mask=(tokens < n_tokens)[:, None] & exist)


@gluon.jit
def _have_rows(choices, exist, begin, end, TOP_K: gl.constexpr):
    """Which tokens have rows from ``begin`` to ``end``."""
    found = exist & False
    for k in gl.static_range(TOP_K):
        row = gl.load(choices + k, mask=exist, other=-1)
        found = found | ((row >= begin) & (row < end))
    return found


def run_combine(
    a: torch.Tensor,
    b: torch.Tensor,
    counts: torch.Tensor,
    exchange: Exchange,
    state: torch.Tensor,
    chunk: int,
    weighted: bool,
    config: Config,
    programs: int,
) -> Launch | None:
    """The sums of this PE's tokens, on the current stream, by so many programs.

    Args:
        a: [R, K]. b: [L, K, N].
        counts: int32 [L], how many rows each of this PE's experts has.
        state: int32, zeros at first: ``FINISHED`` words, and one for each chunk.
        chunk: columns of a chunk, whole tiles.
    """
    a_map, a_piece, b_map, _, by_columns, b_step = operand_descriptors(a, b, config)
    n_pes, max_tokens, top_k = exchange.positions.shape
    *arguments, me, reducers, local = exchange
    products, out, *rest = arguments
    return launch(
        moe_grouped_gemm_combine_kernel, (programs,),
        (a_map, a_piece, b_map, tile_map(products, config), products, out),
        counts, *rest, state, me, reducers, out.shape[1], a.shape[1], b_step, config, by_columns, n_pes, local,
        top_k, max_tokens, chunk, weighted, num_warps=4, maxnreg=REGISTERS[config.groups],
    )  # fmt: skip
