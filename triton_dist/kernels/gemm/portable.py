"""GEMMs in plain Triton, for any GPU, any size and the CPU world, tile by tile; and tiles that are sent to other PEs.

The sums of a GEMM with fp8 operands are multiplied by ``scale``, one float32 in memory, or by scales of their row and
column, or those of every 128 products by scales of blocks. Then comes the epilogue.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT, has_gpu_sizes, sms
from triton_dist.kernels.gemm.epilogue import finish, fold_of
from triton_dist.kernels.gemm.fp8 import FP8, SCALE_BLOCK, BlockScales, RowScales
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.tracing.events import COMPUTE, SEND, WAIT, clock, record_event
from triton_dist.kernels.tracing.recorder import record
from triton_dist.language._poll import no_polls, poll

__all__ = ["blocks", "limit", "local", "programs", "scatter", "scatter_by_programs", "send"]

_GROUP = tl.constexpr(8)


@triton.jit
def _tile_of(tile, tiles_m, tiles_n):
    """Row and column of a tile: column by column in groups of rows, so that neighbours share what they load."""
    width = _GROUP * tiles_n
    first = tile // width * _GROUP
    rows = tl.minimum(tiles_m - first, _GROUP)
    return first + (tile % width) % rows, (tile % width) // rows


@triton.jit
def _compute(
    a, b, scale, epilogue, row, column, M, N, K, a_step, b_row, b_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE: tl.constexpr, SCALES: tl.constexpr,
):  # fmt: skip
    """The tile of C in this row and column of tiles, float32, after the epilogue."""
    FOLD: tl.constexpr = fold_of(epilogue.activation)
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * (BLOCK_N * FOLD) + tl.arange(0, BLOCK_N * FOLD)
    rows %= M  # behind the end are the first ones once more, which need no mask: what they give is not stored
    if not WHOLE:
        columns %= N * FOLD
    inner = tl.arange(0, BLOCK_K)
    a_at = a + rows.to(tl.int64)[:, None] * a_step + inner[None, :]
    b_at = b + columns.to(tl.int64)[None, :] * b_column + inner.to(tl.int64)[:, None] * b_row
    sums = tl.zeros((BLOCK_M, BLOCK_N * FOLD), tl.float32)
    if SCALES == "blocks":  # of which one along K is a block of operands
        a_scales = scale.a + rows.to(tl.int64) * (K // BLOCK_K)
        b_scales = scale.b + columns // BLOCK_K
        for k in range(K // BLOCK_K):
            factors = tl.load(a_scales + k)[:, None] * tl.load(b_scales + k * tl.cdiv(N * FOLD, BLOCK_K))[None, :]
            sums += tl.dot(tl.load(a_at), tl.load(b_at), input_precision="ieee") * factors
            a_at += BLOCK_K
            b_at += BLOCK_K * b_row
    else:
        for _ in range(K // BLOCK_K):
            sums = tl.dot(tl.load(a_at), tl.load(b_at), sums, input_precision="ieee")
            a_at += BLOCK_K
            b_at += BLOCK_K * b_row
    rest = K % BLOCK_K
    if rest != 0:
        x = tl.load(a_at, mask=(inner < rest)[None, :], other=0.0)
        y = tl.load(b_at, mask=(inner < rest)[:, None], other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")
    if SCALES == "one":
        sums *= tl.load(scale)
    elif SCALES == "rows":
        columns %= N * FOLD
        sums = sums * tl.load(scale.a + rows)[:, None] * tl.load(scale.b + columns)[None, :]
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * (BLOCK_N * FOLD) + tl.arange(0, BLOCK_N * FOLD)
    return finish(sums, epilogue, rows, M, columns)


@triton.jit
def _tile_offsets(row, column, M, N, step, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Offsets of a tile's elements in a matrix whose rows are ``step`` elements apart, and which of them exist."""
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows.to(tl.int64)[:, None] * step + columns[None, :], (rows < M)[:, None] & (columns < N)[None, :]


@triton.jit(do_not_specialize=["M"])
def gemm_portable_local(
    a, b, c, scale, epilogue, flags, trace, M, N, K, a_step, b_row, b_column, c_step,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE: tl.constexpr,
    SCALES: tl.constexpr, FLAGS: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        row, column = _tile_of(tile, tiles_m, tiles_n)
        began = clock(trace)
        sums = _compute(
            a, b, scale, epilogue, row, column, M, N, K, a_step, b_row, b_column, BLOCK_M, BLOCK_N, BLOCK_K, WHOLE,
            SCALES,
        )  # fmt: skip
        offsets, exist = _tile_offsets(row, column, M, N, c_step, BLOCK_M, BLOCK_N)
        tl.store(c + offsets, sums.to(c.dtype.element_ty), mask=exist)
        if FLAGS:
            tl.debug_barrier()
            tl.atomic_xchg(flags + tile, 1, sem="release", scope="gpu")
        record_event(trace, COMPUTE, tile, began)


@triton.jit
def _forward(
    c, flags, trace, first, step, M, N, c_step,
    MEMBERS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, FLAGS: tl.constexpr,
):  # fmt: skip
    """Send tiles of this PE's C to all others; with FLAGS, each when its flag is set."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in range(first, tiles_m * tiles_n, step):
        row, column = _tile_of(tile, tiles_m, tiles_n)
        if FLAGS:
            began = clock(trace)
            polls = no_polls()
            while tl.atomic_cas(flags + tile, 1, 0, sem="acquire", scope="gpu") == 0:
                polls = poll(polls, flags + tile, dl.CMP_EQ, 1, dl.my_pe())
            tl.debug_barrier()
            record_event(trace, WAIT, tile, began)
        began = clock(trace)
        offsets, exist = _tile_offsets(row, column, M, N, c_step, BLOCK_M, BLOCK_N)
        values = tl.load(c + offsets, mask=exist)
        for i in tl.static_range(1, N_PES):
            tl.store(at_rank(c, (me + i) % N_PES, MEMBERS) + offsets, values, mask=exist)
        record_event(trace, SEND, tile, began)


@triton.jit(do_not_specialize=["M"])
def gemm_portable_send(
    c, flags, trace, M, N, c_step,
    MEMBERS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, FLAGS: tl.constexpr,
):  # fmt: skip
    _forward(c, flags, trace, tl.program_id(0), tl.num_programs(0), M, N, c_step, MEMBERS, BLOCK_M, BLOCK_N, FLAGS)


@triton.jit(do_not_specialize=["M"])
def gemm_portable_scatter(
    a, b, c, scale, epilogue, trace, M, N, K, a_step, b_row, b_column, c_step, MEMBERS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE: tl.constexpr,
    SCALES: tl.constexpr,
):  # fmt: skip
    N_PES: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        row, column = _tile_of(tile, tiles_m, tiles_n)
        began = clock(trace)
        sums = _compute(
            a, b, scale, epilogue, row, column, M, N, K, a_step, b_row, b_column, BLOCK_M, BLOCK_N, BLOCK_K, WHOLE,
            SCALES,
        )  # fmt: skip
        offsets, exist = _tile_offsets(row, column, M, N, c_step, BLOCK_M, BLOCK_N)
        record_event(trace, COMPUTE, tile, began)
        began = clock(trace)
        for i in tl.static_range(N_PES):
            tl.store(at_rank(c, (me + i) % N_PES, MEMBERS) + offsets, sums.to(c.dtype.element_ty), mask=exist)
        record_event(trace, SEND, tile, began)


@triton.jit(do_not_specialize=["M"])
def gemm_portable_scatter_by_programs(
    a, b, c, scale, epilogue, flags, trace, comm_programs, M, N, K, a_step, b_row, b_column, c_step,
    MEMBERS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE: tl.constexpr,
    SCALES: tl.constexpr,
):  # fmt: skip
    # Programs with low numbers send: they are resident whenever those that they wait for are.
    program = tl.program_id(0)
    if program < comm_programs:
        _forward(c, flags, trace, program, comm_programs, M, N, c_step, MEMBERS, BLOCK_M, BLOCK_N, True)
    else:
        tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
        for tile in range(program - comm_programs, tiles_m * tiles_n, tl.num_programs(0) - comm_programs):
            row, column = _tile_of(tile, tiles_m, tiles_n)
            began = clock(trace)
            sums = _compute(
                a, b, scale, epilogue, row, column, M, N, K, a_step, b_row, b_column, BLOCK_M, BLOCK_N, BLOCK_K, WHOLE,
                SCALES,
            )  # fmt: skip
            offsets, exist = _tile_offsets(row, column, M, N, c_step, BLOCK_M, BLOCK_N)
            tl.store(c + offsets, sums.to(c.dtype.element_ty), mask=exist)
            tl.debug_barrier()
            tl.atomic_xchg(flags + tile, 1, sem="release", scope="gpu")
            record_event(trace, COMPUTE, tile, began)


def programs(sm_margin: int = 0) -> int:
    """How many programs of a GEMM run at the same time: one for each SM but ``sm_margin``, which others use."""
    return sms() - sm_margin


def limit(sm_margin: int) -> int:
    """How many programs of a kernel behind a GEMM may run, if it leaves ``sm_margin`` SMs to others."""
    return programs(sm_margin) if sm_margin else NO_LIMIT


def blocks(dtype: torch.dtype, fold: int = 1) -> dict[str, int]:
    """The size of a tile of a result of this type, of which each column is made of ``fold`` columns of sums."""
    if not has_gpu_sizes():
        return {"BLOCK_M": 32, "BLOCK_N": 32 // fold}
    return {"BLOCK_M": 128, "BLOCK_N": (64 if dtype.itemsize > 2 else 128) // fold}


def _given(gemm: Operands) -> tuple[list[Any], tuple[int, ...], dict[str, Any]]:
    """A kernel's first arguments, the sizes, and what is known when it is compiled."""
    _, a, b, c, scale, epilogue, *_ = gemm
    if triton_dist.kind() == "cpu" and a.dtype in FP8:
        # Triton's interpreter takes e4m3's NaN for a number, and loses the smallest of e5m2.
        a, b = a.float(), b.float()
    size = blocks(c.dtype, gemm.fold)
    block_k = 32 if not has_gpu_sizes() or a.itemsize > 2 else 64
    scales = "none" if scale is None else "one"
    if isinstance(scale, BlockScales):
        block_k, scales = SCALE_BLOCK, "blocks"
    elif isinstance(scale, RowScales):
        scales = "rows"
    whole = c.shape[1] % size["BLOCK_N"] == 0
    constants = {**size, "BLOCK_K": block_k, "WHOLE": whole, "SCALES": scales}
    sizes = (*c.shape, a.shape[1], a.stride(0), *b.stride(), c.stride(0))
    return [a, b, c, scale, epilogue], sizes, constants


def _trace(kernel: str, c: torch.Tensor, programs: int, fold: int, sharing: int = 0) -> torch.Tensor | None:
    """For the events of programs that share the tiles of ``c``, at least ``sharing`` of them: two of each tile."""
    size = blocks(c.dtype, fold)
    tiles = -(-c.shape[0] // size["BLOCK_M"]) * -(-c.shape[1] // size["BLOCK_N"])
    return record(kernel, programs, 2 * -(-tiles // (sharing or programs)))


def local(gemm: Operands, grid: int, flags: torch.Tensor | None = None) -> Launch | None:
    """c = a · b here, after the epilogue; a tile's flag, if there are any, is set when it is stored."""
    (*matrices, scale, epilogue), sizes, constants = _given(gemm)
    return launch(
        gemm_portable_local, (grid,), matrices, scale, epilogue, flags, _trace("GEMM", gemm.c, grid, gemm.fold), *sizes,
        **constants, FLAGS=flags is not None, num_warps=8, num_stages=3,
    )  # fmt: skip


def send(comm: Communicator, c: torch.Tensor, flags: torch.Tensor | None, grid: int, fold: int = 1) -> Launch | None:
    """``c``, columns of a symmetric matrix, to all others; each tile when its flag is set, which is then cleared."""
    return launch(
        gemm_portable_send, (grid,), (c,), flags, _trace("sending", c, grid, fold), *c.shape, c.stride(0), comm.members,
        **blocks(c.dtype, fold), FLAGS=flags is not None, num_warps=8,
    )  # fmt: skip


def scatter(gemm: Operands, grid: int) -> Launch | None:
    """c = a · b on all PEs, after the epilogue, each tile stored by the program that computed it."""
    (*matrices, scale, epilogue), sizes, constants = _given(gemm)
    return launch(
        gemm_portable_scatter, (grid,), matrices, scale, epilogue, _trace("GEMM, sent", gemm.c, grid, gemm.fold),
        *sizes, gemm.comm.members, **constants, num_warps=8, num_stages=3,
    )  # fmt: skip


def scatter_by_programs(gemm: Operands, flags: torch.Tensor, comm_programs: int, grid: int) -> Launch | None:
    """c = a · b on all PEs, after the epilogue; of a grid, ``comm_programs`` programs send what the others compute."""
    (*matrices, scale, epilogue), sizes, constants = _given(gemm)
    sharing = min(comm_programs, grid - comm_programs)
    trace = _trace("GEMM and communication programs", gemm.c, grid, gemm.fold, sharing)
    return launch(
        gemm_portable_scatter_by_programs, (grid,), matrices, scale, epilogue, flags, trace, comm_programs, *sizes,
        gemm.comm.members, **constants, num_warps=8, num_stages=3,
    )  # fmt: skip
