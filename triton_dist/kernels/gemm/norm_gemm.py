"""A local small-M GEMM with the norm in front of it and the activation behind it, in one kernel.

What a layer of a decoder computes between two sums over PEs is a norm, a GEMM and an activation: in three kernels of
which two move a few kilobytes and cost a launch each. Here every program normalises its operand itself: it loads all
rows of A anyway, and its time is that of its part of B. A row's divisor is known when all of the row has come, and
multiplies the sums.

All programs are resident at a time, two on an SM where that is needed, so that none begins when others end.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels import prepared
from triton_dist.kernels.arguments import check_on_device
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.dependent_launch import dependent, launch_options, let_next_begin, wait_for_previous
from triton_dist.kernels.device import check_current_device, gpu, sms
from triton_dist.kernels.gemm.arguments import check_activation, check_epilogue, check_operands
from triton_dist.kernels.gemm.epilogue import Epilogue, finish, fold_of
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.small_m_tile import Cut, multiply, store_tile, tile_operands
from triton_dist.kernels.local_launches import LocalLaunches
from triton_dist.kernels.new_tensors import NewTensors
from triton_dist.kernels.options import check_number
from triton_dist.kernels.prepared import Launch
from triton_dist.world.current import current_world

__all__ = ["MAX_ROWS", "MAX_ROWS_OF_NORM", "cut_for", "launch", "norm_gemm", "stages_for"]

MAX_ROWS = 128
MAX_ROWS_OF_NORM = 64
"""With more rows, a program's normalising of each block of A would take longer than its block of B takes to come."""

_NAME = "norm_gemm"


@triton.jit(do_not_specialize=["M"])
def norm_gemm_kernel(
    a, b, c, norm, epilogue, eps, M, N, K, a_step, b_row, b_column, c_step,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TURNED: tl.constexpr, A_TMA: tl.constexpr,
    B_TMA: tl.constexpr, B_BY_COLUMNS: tl.constexpr, WHOLE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    FOLD: tl.constexpr = fold_of(epilogue.activation)
    tile = tl.program_id(0)
    wait_for_previous(DEPENDENT)
    sums = multiply(
        a, b, norm, eps, 0, tile, M, N, K, BLOCK_M, BLOCK_M, a_step, b_row, b_column, BLOCK_M, BLOCK_M, BLOCK_N,
        BLOCK_K, TURNED, A_TMA, B_TMA, B_BY_COLUMNS, WHOLE,
    )  # fmt: skip
    let_next_begin(DEPENDENT)
    sums = finish(sums, epilogue, tl.arange(0, BLOCK_M), M, tile * BLOCK_N + tl.arange(0, BLOCK_N))
    store_tile(c, sums, 0, 0, tile * (BLOCK_N // FOLD), BLOCK_M, M, N // FOLD, c_step, 1)


def norm_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    norm_weight: torch.Tensor | None = None,
    *,
    eps: float = 1e-6,
    activation: str | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """activation(RMSNorm(``a``) · ``b`` + bias) on this PE, without communication; for few rows, as of a decode step.

    Args:
        a: [M, K], bfloat16, float16 or float32, with contiguous rows.
        b: [K, N], of ``a``'s dtype, with contiguous rows or columns (as ``linear.weight.t()``).
        norm_weight: [K], of 16-bit floats or float32, contiguous; None: ``a`` is not normalised.
        eps: as of ``torch.nn.RMSNorm``.
        activation, bias: as of :func:`~triton_dist.kernels.all_gather_gemm`; with ``swiglu`` the result has N / 2
            columns.

    Returns:
        [M, N], or [M, N / 2], of ``a``'s dtype. Products are accumulated in float32. In one kernel the normalised
        operand is rounded before its rows are divided by their root mean square.

    Up to 64 rows are one kernel. With more, and of float16, the norm is a kernel of its own; with more than 128, the
    GEMM is the local one of the fused GEMMs, and the first call is *collective*. May be captured in a CUDA graph
    after it has run once for its shape.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    known = current_world().own(LocalLaunches)
    call = _NAME, eps, activation
    signature = known.signature(call, a, b, norm_weight, bias) if type(eps) in (float, int) else None
    also = () if bias is None else (bias,)
    if plan := known.find(signature):
        columns, is_normalised = plan.details
        c = a.new_empty(a.shape[0], columns)
        if is_normalised:
            a, norm_weight = _normalised(a, norm_weight, eps), None
        known.repeat(plan, a, b, c, norm_weight, also=also)
        return c
    check_current_device(_NAME)
    check_number(_NAME, "eps", eps, 0)
    check_operands(_NAME, ("a", "b"), a, b)
    if a.dtype in FP8:
        raise ValueError(f"{_NAME}: operands of {a.dtype} are not taken: convert them, or use all_gather_gemm")
    if norm_weight is not None:
        check_on_device(_NAME, norm_weight=norm_weight)
        if norm_weight.shape != (a.shape[1],) or not norm_weight.is_contiguous() or not norm_weight.is_floating_point():
            raise ValueError(
                f"{_NAME}: norm_weight must be {a.shape[1]} contiguous floats, as many as a has columns, got shape"
                f" {tuple(norm_weight.shape)} of {norm_weight.dtype}"
            )
    check_activation(_NAME, activation, b.shape[1], reduces=False)
    c = a.new_empty(a.shape[0], b.shape[1] // int(fold_of(activation)))
    epilogue = check_epilogue(_NAME, b, c, activation, bias, None, reduces=False)
    rows = a.shape[0]
    # In the one kernel elements are multiplied by the weight before their row is divided, which float16 may not hold.
    is_normalised = norm_weight is not None and (rows > MAX_ROWS_OF_NORM or a.dtype == torch.float16)
    if is_normalised:
        a, norm_weight = _normalised(a, norm_weight, eps), None
    if rows > MAX_ROWS:
        with calling(_NAME, None) as comm:
            local_gemm(Operands(comm, a, b, c, epilogue=epilogue))
    elif rows:
        made = launch(a, b, c, norm_weight, epilogue, eps)
        if made is not None:
            new = None if is_normalised else NewTensors.of(c, at=2)
            known.keep(signature, made, (c.shape[1], is_normalised), also, new)
    return c


def _normalised(a: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    assert weight is not None
    return torch.rms_norm(a, weight.shape, weight.to(a.dtype), eps)


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    norm: torch.Tensor | None,
    epilogue: Epilogue,
    eps: float,
    cut: Cut | None = None,
) -> Launch | None:
    """c = activation(RMSNorm(a) · b + bias), of up to ``MAX_ROWS`` rows, cut as ``cut_for`` says or as it is said."""
    (m, k), n, itemsize = a.shape, b.shape[1], a.element_size()
    block_m = max(16, int(triton.next_power_of_2(m)))
    on_gpu = triton_dist.kind() == "gpu"
    if cut is None:
        cut = cut_for(block_m, n, itemsize, sms()) if on_gpu else Cut(16, 32, 4, block_m <= 16)
    of_tile = tile_operands(a, b, block_m, cut)
    tiles = triton.cdiv(n, cut.block_n)
    overlaps = dependent()
    return prepared.launch(
        norm_gemm_kernel, (tiles,), (of_tile.a, of_tile.b, c, norm), epilogue, eps, m, n, k, a.stride(0), *b.stride(),
        c.stride(0), **of_tile.constants, DEPENDENT=overlaps, num_warps=cut.warps,
        num_stages=stages_for(block_m, cut, itemsize, tiles, sms(), gpu().shared_memory) if on_gpu else 1,
        **launch_options(dependent=overlaps),
    )  # fmt: skip


def cut_for(block_m: int, n: int, itemsize: int, n_sms: int) -> Cut:
    """The cut of a GEMM with ``n`` columns: narrow tiles, so that all SMs load, but no more than two for an SM.

    A program that has an SM's shared memory for itself, and few rows, takes half as many blocks along K, of twice the
    size: what comes with a block, as the norm's weights, then costs half.
    """
    block_n = 64
    while triton.cdiv(n, block_n) > 2 * n_sms and block_n < 256:
        block_n *= 2
    nbytes = 256 if block_n == 64 and block_m <= 32 else 128
    if nbytes == 256 and itemsize == 2 and triton.cdiv(n, block_n) <= n_sms:
        nbytes = 512
    block_k = nbytes // itemsize
    return Cut(block_n, block_k, 4 if block_m * block_n * itemsize <= 32768 else 8, itemsize == 2)


def stages_for(block_m: int, cut: Cut, itemsize: int, tiles: int, n_sms: int, shared_memory: int) -> int:
    """How many blocks along K can be in flight, where each program has its part of an SM's shared memory."""
    own = shared_memory if tiles <= n_sms else shared_memory // 2 - 1024
    normalised = block_m * cut.block_k * itemsize  # a block of A, beside those in flight
    return max(1, min(8, (own - 2048 - normalised) // ((block_m + cut.block_n) * cut.block_k * itemsize)))
