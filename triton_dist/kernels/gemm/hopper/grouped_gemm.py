"""Grouped GEMM: rows that are grouped by expert, each group times its expert's matrix.

A: [R, K], B: a matrix for each of L experts, both 16-bit floats or both fp8; C: [R, N], 16-bit floats. Sums are
float32.

A persistent, warp-specialised kernel. Counts and offsets of rows are read on the GPU, so there is no list of work
units: each group of warps walks the experts' counts for itself, and programs take tiles in rounds, expert by expert.
The load warp runs ahead of the multiply groups across tiles and experts. With few rows an expert the time is that of
loading B, and the bytes in flight never drain between tiles.

The tensor cores take 64 rows at a time, but only rows that exist, rounded up to 16, are loaded. What lies behind them
in shared memory gives sums that are not stored.

A group without rows in its half of a tile multiplies all the same where the expert has other tiles. A tile that took
half of their time would bring its program out of step with those that load the same blocks of B, which are faster
together (docs/decisions/0137).

Operands of fp8 may have scales of rows, by which the sums of a tile are multiplied; or of blocks, by which those of
each block along K are (``block_scales.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from triton_dist.kernels.device import is_hopper
from triton_dist.kernels.gemm.config import Config, block_k
from triton_dist.kernels.gemm.fp8 import FP8, SCALE_BLOCK
from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.block_scales import accumulate_scaled
from triton_dist.kernels.gemm.hopper.buffers import await_empty, await_full, make_operand_ring
from triton_dist.kernels.gemm.hopper.launch import RESULTS, addressable, descriptor, operand_maps, tile_map
from triton_dist.kernels.gemm.hopper.load import PIECE, load_b, pieces_of
from triton_dist.kernels.gemm.hopper.multiply import accumulate_steps
from triton_dist.kernels.gemm.hopper.reinterpret import reinterpret
from triton_dist.kernels.gemm.hopper.warps import REGISTERS, specialize_without_store
from triton_dist.kernels.prepared import Launch, launch

__all__ = [
    "PIECE",
    "Groups",
    "fits_grouped",
    "launched_tensors",
    "load_stages",
    "moe_grouped_gemm_kernel",
    "next_tile",
    "operand_descriptors",
    "place_of",
    "run_grouped",
    "seek",
    "seek_first",
    "store_rows",
    "swiglu",
]


_BLOCK = gl.constexpr(SCALE_BLOCK)


class Groups(NamedTuple):
    """Which rows are whose, and how many tiles they make.

    Attributes:
        offsets, counts: int32, the first row of each expert, and how many it has.
        most: how many rows an expert can have; what a count says beyond that makes no tiles.
        experts: how many there are.
        columns: of tiles.
        k_steps: blocks along K.
        b_step: rows of B's descriptor from expert to expert.
    """

    offsets: Any
    counts: Any
    most: Any
    experts: Any
    columns: Any
    k_steps: Any
    b_step: Any


@gluon.jit
def moe_grouped_gemm_kernel(
    a, a_piece, b, b_half, c_map, c, a_scales, b_scales, offsets, counts, experts, N, K, b_step,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    tiles = gl.allocate_shared_memory(c_map.dtype, [CONFIG.groups] + c_map.block_shape, c_map.layout)
    columns, k_steps = gl.cdiv(N, CONFIG.c_columns), gl.cdiv(K, a.block_shape[1])
    groups = Groups(offsets, counts, c_map.shape[0].to(gl.int32), experts, columns, k_steps, b_step)
    specialize_without_store(
        _multiply, (operands, tiles, c_map, c, a_scales, b_scales, groups, N, CONFIG, B_BY_COLUMNS),
        _load, (a, a_piece, b, b_half, operands, groups, N, CONFIG, B_BY_COLUMNS),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def _rows_of(groups, expert):
    """How many rows an expert has; 0 behind the last one."""
    return gl.minimum(gl.load(groups.counts + expert, mask=expert < groups.experts, other=0), groups.most)


@gluon.jit
def seek(groups, tile, expert, first, rows, CONFIG: gl.constexpr):
    """The expert of a tile, that expert's first tile and its rows; from those of an earlier tile on.

    Behind the last tile the expert is ``groups.experts``.
    """
    n_tiles = gl.cdiv(rows, CONFIG.block_m) * groups.columns
    while (expert < groups.experts) & (tile >= first + n_tiles):
        first += n_tiles
        expert += 1
        rows = _rows_of(groups, expert)
        n_tiles = gl.cdiv(rows, CONFIG.block_m) * groups.columns
    return expert, first, rows


@gluon.jit
def seek_first(groups, tile, CONFIG: gl.constexpr):
    """The same from the first expert on."""
    zero = gl.to_tensor(0)
    return seek(groups, tile, zero, zero, _rows_of(groups, zero), CONFIG)


@gluon.jit
def next_tile(tile):
    """The tile that this program computes in the next round, which begins one program later than this one.

    The last tile of an expert's column may have few rows. If all rounds began with the same program, those of an expert
    with three tiles a column would always go to the same third of 132 programs, which would idle.
    """
    programs = gl.num_programs(0)
    return tile + 1 + gl.where(tile % programs == programs - 1, 0, programs)


@gluon.jit
def place_of(groups, tile, first, rows, CONFIG: gl.constexpr):
    """A tile's first row among those of its expert, and its column of tiles.

    Tiles go column by column, so that programs that run at the same time share columns of B.
    """
    tiles_m = gl.cdiv(rows, CONFIG.block_m)
    return (tile - first) % tiles_m * CONFIG.block_m, (tile - first) // tiles_m


@gluon.jit
def _load(a, a_piece, b, b_half, operands, groups, N, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr):
    """Load the blocks of every tile in order; a stage is filled when all groups have released it."""
    step = 0
    tile = gl.program_id(0)
    expert, first, rows = seek_first(groups, tile, CONFIG)
    while expert < groups.experts:
        row, column = place_of(groups, tile, first, rows, CONFIG)
        place = gl.load(groups.offsets + expert) + row
        step = load_stages(
            a, a_piece, b, b_half, operands, groups, N, expert, place, rows - row, column, step, CONFIG, B_BY_COLUMNS
        )  # fmt: skip
        tile = next_tile(tile)
        expert, first, rows = seek(groups, tile, expert, first, rows, CONFIG)


@gluon.jit
def load_stages(
    a, a_piece, b, b_half, operands, groups, N, expert, place, left, column, step,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
):  # fmt: skip
    """Load the blocks of a tile whose rows begin at ``place``, with ``left`` of the expert; the step after it."""
    PIECES: gl.constexpr = a.block_shape[0] // PIECE
    BLOCK_K: gl.constexpr = a.block_shape[1]
    pieces = pieces_of(operands, a_piece, CONFIG)
    if b_half is not None:
        halves = reinterpret(operands.b, b.dtype, [2 * CONFIG.stages, CONFIG.c_columns, BLOCK_K], b_half.layout)
    b_begin = expert * groups.b_step
    for k in range(groups.k_steps):
        stage, full = await_empty(operands, step, CONFIG)
        block = stage * CONFIG.groups
        if left <= PIECE:
            _load_pieces(a_piece, b, place, k * BLOCK_K, full, pieces, block * PIECES, 1)
        elif left <= 2 * PIECE:
            _load_pieces(a_piece, b, place, k * BLOCK_K, full, pieces, block * PIECES, 2)
        elif left <= CONFIG.group_m:
            _load_blocks(a, b, place, k * BLOCK_K, full, operands.a, block, 1)
        else:
            _load_blocks(a, b, place, k * BLOCK_K, full, operands.a, block, CONFIG.groups)
        if b_half is not None:
            gate = b_begin + column * CONFIG.c_columns
            tma.async_load(b_half, [gate, k * BLOCK_K], full, halves.index(2 * stage))
            tma.async_load(b_half, [gate + N, k * BLOCK_K], full, halves.index(2 * stage + 1))
        elif B_BY_COLUMNS:
            load_b(b, k * BLOCK_K, b_begin + column * CONFIG.block_n, full, operands.b.index(stage), True)
        else:
            load_b(b, b_begin + k * BLOCK_K, column * CONFIG.block_n, full, operands.b.index(stage), False)
        step += 1
    return step


@gluon.jit
def _load_pieces(a_piece, b, row, k, full, pieces, first, COUNT: gl.constexpr):
    """Load so many pieces of A, and let the stage be full when these and a block of B have arrived."""
    mbarrier.expect(full, COUNT * a_piece.block_type.nbytes + b.block_type.nbytes)
    for i in gl.static_range(COUNT):
        tma.async_load(a_piece, [row + i * PIECE, k], full, pieces.index(first + i))


@gluon.jit
def _load_blocks(a, b, row, k, full, blocks, first, COUNT: gl.constexpr):
    """The same with blocks of whole groups."""
    mbarrier.expect(full, COUNT * a.block_type.nbytes + b.block_type.nbytes)
    for i in gl.static_range(COUNT):
        tma.async_load(a, [row + i * a.block_shape[0], k], full, blocks.index(first + i))


@gluon.jit
def _multiply(
    GROUP: gl.constexpr, operands, tiles, c_map, c, a_scales, b_scales, groups, N,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
):  # fmt: skip
    """Compute and store this group's rows of every tile in order."""
    step = 0
    tile = gl.program_id(0)
    expert, first, rows = seek_first(groups, tile, CONFIG)
    while expert < groups.experts:
        row, column = place_of(groups, tile, first, rows, CONFIG)
        row += GROUP * CONFIG.group_m
        begin = gl.load(groups.offsets + expert)
        # Where an expert has more rows by its count than C has, those are not stored.
        left = gl.minimum(rows, c_map.shape[0] - begin) - row
        multiplies = left > 0
        if not CONFIG.of_blocks:
            multiplies |= rows > CONFIG.block_m
        if multiplies & (begin >= 0):
            if CONFIG.of_blocks:
                sums, step = _accumulate_blocks(
                    GROUP, operands, a_scales, b_scales, groups, expert, begin + row, left, column, N, step, CONFIG,
                    B_BY_COLUMNS,
                )  # fmt: skip
            else:
                sums, step = accumulate_steps(GROUP, operands, 0, groups.k_steps, step, CONFIG, B_BY_COLUMNS)
                if a_scales is not None:
                    of_columns = b_scales + expert.to(gl.int64) * (CONFIG.fold * N)
                    sums = _scaled(sums, a_scales + begin + row, of_columns, left, column, N, CONFIG)
            if CONFIG.fold == 2:
                sums = swiglu(sums, c_map.dtype)
            if left > 0:
                store_rows(GROUP, sums, tiles, c_map, c, begin, row, None, left, column * CONFIG.c_columns, N)
        else:
            for _ in range(groups.k_steps):
                mbarrier.arrive(operands.empty.index(await_full(operands, step, CONFIG)))
                step += 1
        tile = next_tile(tile)
        expert, first, rows = seek(groups, tile, expert, first, rows, CONFIG)
    tma.store_wait(0)


@gluon.jit
def _accumulate_blocks(
    GROUP: gl.constexpr, operands, a_scales, b_scales, groups, expert, row, left, column, N, step,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
):  # fmt: skip
    """The sums of a group's rows of a tile, of which ``left`` from ``row`` on are the expert's, each block's times its
    scales; and the step after them.

    Columns of a tile, and those of gates and of up in it, begin at a multiple of their number, so that each lie in one
    block of scales. What an expert has not is not read, as it may be behind the last row.
    """
    of_expert = b_scales + (expert * gl.cdiv(CONFIG.fold * N, _BLOCK)).to(gl.int64) * groups.k_steps
    at = column * CONFIG.c_columns
    of_b = of_expert + at // _BLOCK * groups.k_steps
    of_half = None
    if CONFIG.fold == 2:
        of_half = of_expert + (N + at) // _BLOCK * groups.k_steps
    return accumulate_scaled(
        GROUP, operands, a_scales, row, row + left - 1, groups.k_steps, of_b, of_half, 1, 0, groups.k_steps, step,
        CONFIG, B_BY_COLUMNS,
    )  # fmt: skip


@gluon.jit
def _scaled(sums, a_scales, b_scales, left, column, N, CONFIG: gl.constexpr):
    """The sums times the scales of their rows and columns, of those that exist."""
    LAYOUT: gl.constexpr = sums.type.layout
    rows = gl.arange(0, CONFIG.group_m, gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, CONFIG.block_n, gl.SliceLayout(0, LAYOUT))
    halves = columns // CONFIG.c_columns * N
    columns = column * CONFIG.c_columns + columns % CONFIG.c_columns
    of_a = gl.load(a_scales + rows, mask=rows < left, other=0.0)
    of_b = gl.load(b_scales + halves + columns, mask=columns < N, other=0.0)
    return sums * (of_a[:, None] * of_b[None, :])


@gluon.jit
def swiglu(sums, DTYPE: gl.constexpr):
    """silu(gate) * up of sums that are gate, then up, both rounded as if they had been stored.

    An element of gate and the one of up beside it are the same thread's.
    """
    pairs = sums.to(DTYPE).to(gl.float32).reshape([sums.shape[0], 2, sums.shape[1] // 2])
    gate, up = gl.split(gl.permute(pairs, (0, 2, 1)))
    return gate / (1.0 + gl.exp(-gate)) * up


@gluon.jit
def store_rows(GROUP: gl.constexpr, sums, tiles, c_map, c, begin, row, rows, left, column, N):
    """Round the sums and store them to ``left`` rows from ``begin + row`` on.

    With ``rows`` those from the last of so many on are the first ones, from ``begin`` on. A block whose rows all exist
    and follow each other goes by TMA. It is in shared memory on the way; TMA has read the one before when it is
    written.
    """
    HEIGHT: gl.constexpr = tiles.shape[1]
    WIDTH: gl.constexpr = tiles.shape[2]
    ACROSS: gl.constexpr = min(32, WIDTH // 8)
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [32 // ACROSS, ACROSS], [4, 1], [1, 0])
    block = tiles.index(GROUP)
    tma.store_wait(0)
    block.store(sums.to(tiles.dtype))
    straight = left >= HEIGHT
    if rows is not None:
        straight = straight & (row + HEIGHT <= rows)
    if straight:
        fence_async_shared()
        tma.async_store(c_map, [begin + row, column], block)
    else:
        inside = gl.arange(0, HEIGHT, gl.SliceLayout(1, LAYOUT))
        columns = column + gl.arange(0, WIDTH, gl.SliceLayout(0, LAYOUT))
        places = row + inside
        if rows is not None:
            places = places % rows
        at = c + (begin + places).to(gl.int64)[:, None] * N + columns[None, :]
        gl.store(at, block.load(LAYOUT), mask=(inside < left)[:, None] & (columns < N)[None, :])


def _flat(b: torch.Tensor) -> torch.Tensor | None:
    """The experts' matrices below each other, with contiguous rows or columns as they are; None if they have gaps.

    Contiguous rows: [L · K, N], where a block along K must not reach into the next matrix. Contiguous columns: the
    transpose of [L · N, K].
    """
    experts, inner, columns = b.shape
    by_columns = b.stride(1) == 1
    lines, length, step = (columns, inner, b.stride(2)) if by_columns else (inner, columns, b.stride(1))
    if experts > 1 and b.stride(0) != lines * step:
        return None
    if not by_columns and inner % block_k(b.dtype):
        return None
    flat = b.as_strided((experts * lines, length), (step, 1))
    return flat.t() if by_columns else flat


def fits_grouped(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: str, swiglu: bool = False) -> bool:
    """Whether this kernel computes it: on a Hopper GPU, results of 16-bit floats, operands of these or of fp8, in rows
    that TMA can address. fp8 and SwiGLU take contiguous columns of B. With both and scales of blocks, gates and up have
    a multiple of 64 columns each: the 64 of up in a tile have one scale then."""
    if not is_hopper():
        return False
    if scales == "blocks" and swiglu and b.shape[2] % SCALE_BLOCK:
        return False
    if c.dtype not in RESULTS or ((a.dtype in FP8 or swiglu) and b.stride(1) != 1):
        return False
    flat = _flat(b)
    if flat is None or not addressable(a) or not addressable(c):
        return False
    return addressable(flat.t() if b.stride(1) == 1 else flat)


def operand_descriptors(a: torch.Tensor, b: torch.Tensor, config: Config) -> tuple[Any, Any, Any, Any, bool, int]:
    """The TMA descriptors of blocks and pieces of A, of blocks of B, and of halves of them if the config folds; whether
    B has contiguous columns, and rows of its descriptor from expert to expert."""
    flat = _flat(b)
    assert flat is not None
    a_map, a_piece, b_map, b_by_columns = operand_maps(a, flat, config)
    assert b_by_columns or config.fold == 1
    b_half = descriptor(flat.t(), (config.c_columns, block_k(b.dtype))) if config.fold == 2 else None
    return a_map, a_piece, b_map, b_half, b_by_columns, b.shape[2] if b_by_columns else b.shape[1]


def run_grouped(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
    offsets: torch.Tensor,
    counts: torch.Tensor,
    config: Config,
    programs: int,
) -> Launch | None:
    """C of each expert's rows on the current stream, by so many programs. ``fits_grouped`` says for which operands."""
    a_map, a_piece, b_map, b_half, b_by_columns, b_step = operand_descriptors(a, b, config)
    tensors = a_map, a_piece, b_map, b_half, tile_map(c, config), c, a_scales, b_scales, offsets, counts
    return launch(
        moe_grouped_gemm_kernel, (programs,), tensors, counts.numel(), c.shape[1], b.shape[1], b_step, config,
        b_by_columns, num_warps=4, maxnreg=REGISTERS[config.groups],
    )  # fmt: skip


def launched_tensors(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
    offsets: torch.Tensor,
    counts: torch.Tensor,
    swiglu: bool,
) -> Sequence[torch.Tensor | None]:
    """The tensors of a launch like that of :func:`run_grouped`, or those that its descriptors are of."""
    return a, a, b, b if swiglu else None, c, c, a_scales, b_scales, offsets, counts
