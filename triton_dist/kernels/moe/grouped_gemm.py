"""Grouped GEMM: rows that are grouped by expert, each group times its expert's matrix.

The kernel here is plain Triton, for any GPU, any size and the CPU world. What Hopper's TMA and tensor cores take goes
to the warp-specialised kernel of ``gemm/hopper/grouped_gemm.py``, whose ``fits_grouped`` says what that is.

``c[r] = a[r] · b[e]`` for the rows r of expert e, which begin at ``offsets[e]``; there are ``counts[e]`` of them. Both
are read on the GPU, so the number of tiles is not known to the host: the kernel is persistent. Its programs take tiles
round-robin, expert by expert, and within an expert column by column of tiles, so that programs that run at the same
time share columns of one expert's matrix. Rows behind a group's last are not computed.

Operands of fp8 have scales: of rows and columns, which multiply the result, or of blocks of 128 along K (1 x 128 of a,
128 x 128 of b), by which the partial sum of every 128 products is multiplied. Sums are float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.arguments import check_contiguous, check_on_device
from triton_dist.kernels.device import gpu, is_hopper
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.fp8 import FP8, SCALE_BLOCK, check_capability
from triton_dist.kernels.gemm.portable import blocks, programs
from triton_dist.kernels.gemm.small_m import stages_for
from triton_dist.kernels.gemm.small_m_tile import Cut
from triton_dist.kernels.gradients import made_again, refuse_gradients
from triton_dist.kernels.local_launches import LocalLaunches
from triton_dist.kernels.moe.swiglu import swiglu_of_pairs
from triton_dist.kernels.new_tensors import NewTensors, like
from triton_dist.kernels.options import check_bool, check_dtype
from triton_dist.kernels.overlaps import refuse_overlap, sharing_of
from triton_dist.world.current import current_world

__all__ = [
    "SCALE_BLOCK",
    "as_multiplied",
    "check_group_scales",
    "check_groups",
    "check_result",
    "check_swiglu",
    "grouped_gemm",
    "grouped_weight_grad",
    "product_of_rows",
    "tile_of",
]

_FLOATS = (torch.bfloat16, torch.float16, torch.float32)

_FEW, _FEW_OF_BLOCKS = 128, 40
"""Rows of an expert on average: up to so many take small tiles, of the portable kernel and of those that exchange rows
meanwhile, and of Hopper's with scales of blocks.

With these the one group of a small tile scales its sums while no other multiplies: with 64 rows on average, of which
some experts have more, small tiles took 326 µs on an H200, and twice as many large ones, for 256 rows, 453.
"""


@triton.jit
def product_of_rows(
    a, b, a_scales, b_scales, expert, a_rows, column, N, K, a_step, b_step, b_row, b_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SCALES: tl.constexpr,
    PAIRS: tl.constexpr = False,
):  # fmt: skip
    """Rows ``a_rows`` of ``a``, which all exist, times tile ``column`` of the expert's matrix: float32.

    With ``PAIRS`` columns of the tile are those of the matrix's first half and of its second, in turn. What the tile's
    columns behind the last hold is not to be stored.
    """
    # Behind the last column are the first ones once more, which need no mask.
    b_columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    b_columns = b_columns // 2 % (N // 2) + b_columns % 2 * (N // 2) if PAIRS else b_columns % N
    inner = tl.arange(0, BLOCK_K)
    a_at = a + a_rows.to(tl.int64)[:, None] * a_step + inner[None, :]
    b_at = b + expert.to(tl.int64) * b_step + b_columns.to(tl.int64)[None, :] * b_column
    b_at += inner.to(tl.int64)[:, None] * b_row
    k_blocks = tl.cdiv(K, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(k_blocks):
        there = inner < K - k * BLOCK_K
        x = tl.load(a_at, mask=there[None, :], other=0.0)
        y = tl.load(b_at, mask=there[:, None], other=0.0)
        if SCALES == "blocks":
            # Blocks along K are those of the scales.
            scale_a = tl.load(a_scales + a_rows.to(tl.int64) * k_blocks + k)
            n_blocks = tl.cdiv(N, BLOCK_K)
            scale_b = tl.load(b_scales + (expert.to(tl.int64) * n_blocks + b_columns // BLOCK_K) * k_blocks + k)
            sums += tl.dot(x, y, input_precision="ieee") * scale_a[:, None] * scale_b[None, :]
        else:
            sums = tl.dot(x, y, sums, input_precision="ieee")
        a_at += BLOCK_K
        b_at += BLOCK_K * b_row
    if SCALES == "rows":
        scale_a = tl.load(a_scales + a_rows)
        scale_b = tl.load(b_scales + expert.to(tl.int64) * N + b_columns)
        sums *= scale_a[:, None] * scale_b[None, :]
    return sums


@triton.jit(do_not_specialize=["n_rows"])
def moe_grouped_gemm_portable(
    a, b, c, a_scales, b_scales, offsets, counts, n_rows, n_experts, N, K, a_step, b_step, b_row, b_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SCALES: tl.constexpr, SWIGLU: tl.constexpr,
):  # fmt: skip
    """Of rows that an expert has by its count, but ``a`` has not, nothing is read or stored."""
    FOLD: tl.constexpr = 2 if SWIGLU else 1  # columns of sums that make one of C
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0)
    first = 0  # of the expert's tiles
    for expert in range(n_experts):
        rows_here = tl.maximum(tl.minimum(tl.load(counts + expert), n_rows), 0)
        tiles_m = tl.cdiv(rows_here, BLOCK_M)
        behind = first + tiles_m * tiles_n
        while tile < behind:
            row, column = (tile - first) % tiles_m, (tile - first) // tiles_m
            begin = tl.load(offsets + expert)
            rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
            # Behind the last row are the first ones once more, too.
            of_a = tl.minimum(tl.maximum(begin + rows % rows_here, 0), n_rows - 1)
            sums = product_of_rows(
                a, b, a_scales, b_scales, expert, of_a, column, N, K, a_step, b_step, b_row,
                b_column, BLOCK_M, BLOCK_N, BLOCK_K, SCALES, SWIGLU,
            )  # fmt: skip
            if SWIGLU:
                sums = swiglu_of_pairs(sums, c.dtype.element_ty)
            columns = column * (BLOCK_N // FOLD) + tl.arange(0, BLOCK_N // FOLD)
            at = c + (begin + rows).to(tl.int64)[:, None] * (N // FOLD) + columns[None, :]
            exist = (rows < rows_here) & (begin + rows >= 0) & (begin + rows < n_rows)
            there = exist[:, None] & (columns < N // FOLD)[None, :]
            tl.store(at, sums.to(c.dtype.element_ty), mask=there)
            tile += tl.num_programs(0)
        first = behind


@triton.jit(do_not_specialize=["n_rows"])
def moe_grouped_gemm_weight_grad(
    a, g, out, offsets, counts, n_rows, n_experts, K, N, a_step, g_step,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Tiles of aᵀ · g, [K, N] for each expert; the sum is over the expert's rows."""
    tiles_k, tiles_n = tl.cdiv(K, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), n_experts * tiles_k * tiles_n, tl.num_programs(0)):
        expert = tile // (tiles_k * tiles_n)
        rows = tile // tiles_n % tiles_k * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
        begin, rows_here = tl.load(offsets + expert), tl.minimum(tl.load(counts + expert), n_rows)
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(tl.cdiv(rows_here, BLOCK_K)):
            inner = k * BLOCK_K + tl.arange(0, BLOCK_K)
            at = (begin + inner).to(tl.int64)
            there = (inner < rows_here) & (begin + inner >= 0) & (begin + inner < n_rows)
            x = tl.load(a + at[None, :] * a_step + rows[:, None], mask=(rows < K)[:, None] & there[None, :], other=0.0)
            y = tl.load(
                g + at[:, None] * g_step + columns[None, :], mask=there[:, None] & (columns < N)[None, :], other=0.0
            )
            sums = tl.dot(x, y, sums, input_precision="ieee")
        place = out + expert.to(tl.int64) * K * N + rows.to(tl.int64)[:, None] * N + columns[None, :]
        tl.store(place, sums.to(out.dtype.element_ty), mask=(rows < K)[:, None] & (columns < N)[None, :])


@made_again()
def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    counts: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    a_scales: torch.Tensor | None = None,
    b_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    swiglu: bool = False,
    expected_rows: int | None = None,
) -> torch.Tensor:
    """Each expert's rows of ``a`` times its matrix of ``b``, on this PE, on the current stream.

    Args:
        a: [R, K] with contiguous rows: bfloat16, float16, float32, float8_e4m3fn or float8_e5m2.
        b: [L, K, N], of the same dtype (of either, if fp8); its rows or columns are contiguous.
        offsets, counts: [L + 1] or [L] and [L] int32, as of :class:`~triton_dist.kernels.moe.Dispatched`: the rows of
            expert e are ``offsets[e]`` to ``offsets[e] + counts[e]``, within ``a``. (Rows that ``a`` has not are left
            out. Their numbers are on the GPU, so no error says so.)
        out: [R, N], contiguous; by default a new tensor. It may not overlap another tensor of the call. Rows of no
            expert are left as they are.
        a_scales, b_scales: for fp8, both or none, contiguous float32. Of rows and columns: [R, 1] and [L, N]; or of
            blocks of 128: [R, ceil(K / 128)] and [L, ceil(N / 128), ceil(K / 128)].
        out_dtype: bfloat16 (the default for fp8), float16 or float32; by default ``out``'s or ``a``'s.
        swiglu: ``b``'s first N / 2 columns are gates: the result is silu(gate) * up, [R, N / 2], of products that are
            rounded to its dtype, as if they had been stored.
        expected_rows: about how many rows an expert has on average, by default R / L. Tiles are chosen by it, results
            do not depend on it.

    Returns:
        ``out``. Sums are float32, in the same order every time.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    refuse_gradients("grouped_gemm", a, b, out, a_scales, b_scales)
    if expected_rows is not None and (type(expected_rows) is not int or expected_rows < 0):
        raise ValueError(f"grouped_gemm: expected_rows must be an int, and at least 0, got {expected_rows!r}")
    known = current_world().own(LocalLaunches)
    given = a, b, offsets, counts, out, a_scales, b_scales
    shared = None if out is None else sharing_of(*given)
    tiles = None if expected_rows is None else (expected_rows <= _FEW_OF_BLOCKS, expected_rows <= _FEW)
    call = "grouped_gemm", out_dtype, swiglu, tiles, shared
    signature = known.signature(call, *given)
    if plan := known.find(signature):
        from triton_dist.kernels.gemm.hopper import grouped_gemm as hopper

        shape, dtype = plan.details
        out = a.new_empty(shape, dtype=dtype) if out is None else out
        known.repeat(plan, *hopper.launched_tensors(a, b, out, a_scales, b_scales, offsets, counts, swiglu))
        return out
    rows, _, columns = check_groups("grouped_gemm", a, b, offsets, counts)
    if expected_rows is None:
        # Counts are on the GPU. That is the average if all rows have come that there is room for.
        expected_rows = -(-rows // max(1, counts.numel()))
    check_swiglu("grouped_gemm", swiglu, b)
    result = check_result("grouped_gemm", a, (rows, columns // 2 if swiglu else columns), out, out_dtype)
    scales = check_group_scales("grouped_gemm", a, b, a_scales, b_scales)
    operands = {"a": a, "b": b, "offsets": offsets, "counts": counts, "a_scales": a_scales, "b_scales": b_scales}
    refuse_overlap("grouped_gemm", {"out": out}, operands)
    out, is_new = result, out is None
    if is_hopper():
        from triton_dist.kernels.gemm.hopper import grouped_gemm as hopper

        if hopper.fits_grouped(a, b, out, scales, swiglu):
            config = config_for(expected_rows, swiglu, of_blocks=scales == "blocks")
            made = hopper.run_grouped(a, b, out, a_scales, b_scales, offsets, counts, config, programs())
            new = NewTensors((like(out),), ((4, 5),)) if is_new else NewTensors.besides(4)  # as of launched_tensors
            known.keep(signature, made, (out.shape, out.dtype), new=new)
            return out
    tile = _tile_here(a, out, scales, expected_rows)
    multiply_tiles(a, b, out, a_scales, b_scales, offsets, counts, scales, tile, swiglu)
    return out


class Tile(NamedTuple):
    """How the portable kernel is launched: a tile and a block along K, warps, stages, and programs of an SM."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    programs: int


def multiply_tiles(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
    offsets: torch.Tensor,
    counts: torch.Tensor,
    scales: str,
    tile: Tile,
    swiglu: bool = False,
) -> None:
    """:func:`grouped_gemm` by the portable kernel with this tile; arguments have been checked."""
    (inner, columns), n_experts = b.shape[1:], counts.numel()
    if not len(a):
        return
    a, b = as_multiplied(a, b)
    moe_grouped_gemm_portable[(tile.programs * programs(),)](
        a, b, out, out if a_scales is None else a_scales, out if b_scales is None else b_scales, offsets, counts,
        len(a), n_experts, columns, inner, a.stride(0), *b.stride(), BLOCK_M=tile.block_m, BLOCK_N=tile.block_n,
        BLOCK_K=tile.block_k, SCALES=scales, SWIGLU=swiglu, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def config_for(average: int, swiglu: bool = False, of_blocks: bool = False, exchanges: bool = False) -> Config:
    """The tile of the Hopper kernel for so many rows an expert, from measurements (docs/decisions/0073, 0137), or of
    one that also ``exchanges`` rows.

    Narrow tiles are many, so that all programs end at about the same time. They leave room for the sums of a block,
    which with scales ``of_blocks`` take registers beside those of a tile.
    """
    few = average <= (_FEW if exchanges else _FEW_OF_BLOCKS if of_blocks else 0)
    block_m, stages, groups = (64, 8, 1) if few else (128, 6, 2)
    return Config(block_m, 128, stages, groups, fold=1 + swiglu, of_blocks=of_blocks)


def portable_tile(operand: torch.dtype, result: torch.dtype, scales: str, average: int, shared_memory: int) -> Tile:
    """The tile of the portable kernel for so many rows an expert, on a GPU with so much shared memory.

    With few rows the time is that of loading the matrices. Two programs of an SM load, so that one of them does while
    the other one begins or ends a tile; or one, if there is no room for two.
    """
    size = tile_of(operand, result, scales)
    block_n, block_k = size["BLOCK_N"], size["BLOCK_K"]
    if average > _FEW:
        return Tile(size["BLOCK_M"], block_n, block_k, 8, 3, 1)
    block_m = next(rows for rows in (16, 32, 64) if rows >= min(average, 64))
    longer = 2 * block_k if block_m == 16 and scales != "blocks" else block_k
    for length, resident, least in ((longer, 2, 3), (block_k, 2, 2), (block_k, 1, 1)):
        stages = stages_for(block_m, Cut(block_n, length, 4, False), operand.itemsize, shared_memory // resident)
        if stages >= least:
            break
    return Tile(block_m, block_n, length, 4, stages, resident)


def _tile_here(a: torch.Tensor, out: torch.Tensor, scales: str, average: int) -> Tile:
    if triton_dist.kind() == "cpu":
        size = tile_of(a.dtype, out.dtype, scales)
        return Tile(size["BLOCK_M"], size["BLOCK_N"], size["BLOCK_K"], 8, 3, 1)
    return portable_tile(a.dtype, out.dtype, scales, average, gpu().shared_memory)


def grouped_weight_grad(
    a: torch.Tensor, grad: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The gradient of ``b`` of :func:`grouped_gemm`: aᵀ · grad over each expert's rows, [L, K, N] of ``a``'s dtype.

    Operands, and ``out``, if it is given, have contiguous rows. The kernel has a program for each tile: experts have
    different numbers of rows, and another kernel may have some of the multiprocessors, so each takes a tile when it is
    free.
    """
    if out is None:
        out = a.new_empty(counts.numel(), a.shape[1], grad.shape[1])
    tile = blocks(a.dtype)
    n_tiles = counts.numel() * -(-a.shape[1] // tile["BLOCK_M"]) * -(-grad.shape[1] // tile["BLOCK_N"])
    moe_grouped_gemm_weight_grad[(n_tiles,)](
        a, grad, out, offsets, counts, len(a), counts.numel(), a.shape[1], grad.shape[1], a.stride(0), grad.stride(0),
        **tile, BLOCK_K=32, num_warps=8, num_stages=3,
    )  # fmt: skip
    return out


def check_swiglu(function: str, swiglu: bool, b: torch.Tensor) -> None:
    """Check that, with ``swiglu``, half of the columns of ``b`` can be gates."""
    check_bool(function, "swiglu", swiglu)
    if swiglu and isinstance(b, torch.Tensor) and b.dim() == 3 and b.shape[2] % 2:
        raise ValueError(f"{function}: with swiglu half of b's columns are gates, got {b.shape[2]} columns")


def check_groups(
    function: str, a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor
) -> tuple[int, int, int]:
    """Check operands and groups, and return R, K and N."""
    check_contiguous(function, offsets=offsets, counts=counts)
    for name, operand, dims in (("a", a, 2), ("b", b, 3)):
        if not isinstance(operand, torch.Tensor) or operand.dim() != dims:
            raise ValueError(f"{function}: {name} must be a tensor of {dims} dimensions, got {_shape(operand)}")
        check_on_device(function, **{name: operand})
        if operand.dtype not in (*_FLOATS, *FP8):
            raise ValueError(
                f"{function}: {name} is of {operand.dtype}, which is none of the types that are multiplied"
            )
    if a.shape[1] != b.shape[1] or (a.dtype != b.dtype and not (a.dtype in FP8 and b.dtype in FP8)):
        raise ValueError(
            f"{function}: a is {tuple(a.shape)} of {a.dtype}, and the matrices of b are {tuple(b.shape[1:])} of"
            f" {b.dtype}"
        )
    if a.stride(1) != 1 or 1 not in (b.stride(1), b.stride(2)):
        raise ValueError(
            f"{function}: a must have contiguous rows, and b contiguous rows or columns, got strides {a.stride()} and"
            f" {b.stride()}"
        )
    local = b.shape[0]
    if counts.dtype != torch.int32 or offsets.dtype != torch.int32 or counts.shape != (local,):
        raise ValueError(
            f"{function}: counts must be [{local}] of torch.int32, as b has {local} matrices, got {_shape(counts)}"
            f" of {counts.dtype}; offsets are of {offsets.dtype}"
        )
    if offsets.shape not in ((local,), (local + 1,)):
        raise ValueError(f"{function}: offsets must be [{local + 1}] or [{local}], got {_shape(offsets)}")
    if a.dtype in FP8 and triton_dist.kind() == "gpu":
        check_capability(function, a.dtype, gpu().name, gpu().capability)
    return a.shape[0], a.shape[1], b.shape[2]


def check_result(
    function: str,
    a: torch.Tensor,
    shape: tuple[int, int],
    out: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    """``out``, or a new tensor, for products of ``a``."""
    check_dtype(function, "out_dtype", out_dtype)
    if out is not None:
        check_on_device(function, out=out)
    dtype = out_dtype or (out.dtype if out is not None else torch.bfloat16 if a.dtype in FP8 else a.dtype)
    if dtype not in _FLOATS or (a.dtype not in FP8 and dtype != a.dtype):
        name = "out_dtype" if out_dtype else "out"
        raise ValueError(f"{function}: operands of {a.dtype} cannot give a result of {dtype}, as of {name}")
    if out is None:
        out = a.new_empty(shape, dtype=dtype)
    check_contiguous(function, out=out)
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"{function}: out must be {shape} of {dtype}, got shape {tuple(out.shape)} and {out.dtype}")
    return out


def tile_of(operand: torch.dtype, result: torch.dtype, scales: str) -> dict[str, int]:
    """The size of a tile, of rows of ``operand`` and results of ``result``."""
    tile = blocks(result)
    if scales == "blocks":  # whose partial sums take registers, too
        tile["BLOCK_N"] = min(tile["BLOCK_N"], 64)
    block_k = SCALE_BLOCK if scales == "blocks" else 32 if operand.itemsize > 2 else 128 // operand.itemsize
    return tile | {"BLOCK_K": block_k}


def as_multiplied(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The operands as kernels take them: in the CPU world those of fp8 as float32, as in gemm/portable.py."""
    if triton_dist.kind() == "cpu":
        return tuple(operand.float() if operand.dtype in FP8 else operand for operand in operands)
    return operands


def check_group_scales(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
) -> str:
    """What the scales are of: ``none``, ``rows`` or ``blocks``."""
    if a_scales is None and b_scales is None:
        return "none"
    if a_scales is None or b_scales is None or a.dtype not in FP8:
        raise ValueError(f"{function}: a_scales and b_scales are for operands of fp8, and go together")
    check_contiguous(function, a_scales=a_scales, b_scales=b_scales)
    (rows, inner), (local, _, columns) = a.shape, b.shape
    k_blocks, n_blocks = (-(-size // SCALE_BLOCK) for size in (inner, columns))
    shapes = tuple(a_scales.shape), tuple(b_scales.shape)
    if a_scales.dtype == torch.float32 and b_scales.dtype == torch.float32:
        if shapes == ((rows, 1), (local, columns)):
            return "rows"
        if shapes == ((rows, k_blocks), (local, n_blocks, k_blocks)):
            return "blocks"
    raise ValueError(
        f"{function}: scales must be [{rows}, 1] and [{local}, {columns}], or [{rows}, {k_blocks}] and"
        f" [{local}, {n_blocks}, {k_blocks}], of torch.float32; got {shapes[0]} and {shapes[1]} of {a_scales.dtype} and"
        f" {b_scales.dtype}"
    )


def _shape(value: object) -> str:
    return str(tuple(value.shape)) if isinstance(value, torch.Tensor) else type(value).__name__
