"""Dispatch and grouped GEMM, grouped GEMM and combine, each in one kernel: a PE's experts while tokens come and go.

Every PE has an equal part of the experts, with their whole matrices (expert parallelism). Both are the kernels for
slices of experts (``all_gather_grouped_gemm.py``, ``grouped_gemm_reduce_scatter.py``) with their protocols, for the
experts of this PE only. A token is sent once to each PE that has one of its experts. Tiles are taken in the order in
which PEs' tokens arrive, this PE's own first. On the way back a token's rows are weighted and added up as soon as their
columns are computed, and one row of partial sums returns to the token's PE.

The routing of all tokens is gathered before, so that every PE knows the place of each row: no program waits for counts
inside of the kernels, and tokens lie by PE and number where they arrive; GEMMs read them from there.
"""

from __future__ import annotations

from types import ModuleType

import torch

from triton_dist.kernels.gradients import made_again
from triton_dist.kernels.moe.all_gather_grouped_gemm import gather_and_multiply
from triton_dist.kernels.moe.gathered_routing import GatheredRouting
from triton_dist.kernels.moe.grouped_gemm import check_swiglu
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import multiply_and_scatter

__all__ = ["dispatch_grouped_gemm", "grouped_gemm_combine"]


@made_again(lambda a, b, routing, *args, **kwargs: routing.comm)
def dispatch_grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    routing: GatheredRouting,
    *,
    swiglu: bool = False,
    capacity: int | None = None,
    out: torch.Tensor | None = None,
    a_scales: torch.Tensor | None = None,
    b_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    num_sms: int = 0,
    sm_margin: int = 0,
    algorithm: str = "portable",
) -> torch.Tensor:
    """Send tokens to the PEs of their experts, and multiply the rows of this PE's experts while tokens arrive.

    *Collective* over the group of ``routing``, on the current stream. A call may be captured in a CUDA graph after it
    has run once for its sizes.

    Args:
        a: [T, K], this PE's tokens, contiguous: bfloat16, float16, float32, float8_e4m3fn or float8_e5m2. A row is a
            multiple of 16 bytes.
        b: [L, K, N], the matrices of this PE's L = num_experts / n_pes experts, of the same dtype (of either, if fp8);
            its rows or columns are contiguous.
        routing: what :func:`~triton_dist.kernels.moe.gather_routing` has returned on this PE.
        swiglu: ``b``'s first N / 2 columns are gates: the result is silu(gate) * up, [R, N / 2], of products that are
            rounded to its dtype, as if they had been stored.
        capacity: R, for how many rows there is room; by default for ``routing.rows``, as many as can come. With fewer,
            it is an error of the kernel (a device-side assertion on a GPU) if more come.
        out: [R, N] or [R, N / 2], contiguous; by default a new tensor. It may not overlap another tensor of the call.
            Rows behind the last are left as they are.
        a_scales, b_scales, out_dtype, num_sms, sm_margin: as of
            :func:`~triton_dist.kernels.moe.all_gather_grouped_gemm`.
        algorithm: ``portable``, a kernel for any GPU; or ``hopper``, a warp-specialised one with TMA loads, where it
            takes the operands: Hopper GPUs, up to 8 PEs, 16-bit floats, ``b`` with contiguous columns. Sums and
            roundings are the same.

    Returns:
        ``out``, the rows of this PE's experts, in the order of :func:`~triton_dist.kernels.moe.dispatch`: those of
        expert e begin at ``routing.offsets[e] - routing.offsets[first]``, where ``first`` is this PE's first expert.
        Sums are float32, in the same order every time.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how. RuntimeError: a CUDA
            graph is captured before a first run of the same sizes.
    """
    function = "dispatch_grouped_gemm"
    check_swiglu(function, swiglu, b)
    if capacity is not None and (type(capacity) is not int or capacity < 1):
        raise ValueError(f"{function}: capacity must be an int, and at least 1, got {capacity!r}")
    return gather_and_multiply(
        function, a, b, routing, out=out, a_scales=a_scales, b_scales=b_scales, out_dtype=out_dtype, num_sms=num_sms,
        sm_margin=sm_margin, whole=True, swiglu=swiglu, capacity=capacity, hopper=_hopper(function, algorithm),
    )  # fmt: skip


@made_again(lambda a, b, routing, *args, **kwargs: routing.comm)
def grouped_gemm_combine(
    a: torch.Tensor,
    b: torch.Tensor,
    routing: GatheredRouting,
    *,
    weighted: bool = True,
    out: torch.Tensor | None = None,
    a_scales: torch.Tensor | None = None,
    b_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    num_sms: int = 0,
    sm_margin: int = 0,
    algorithm: str = "portable",
) -> torch.Tensor:
    """Multiply the rows of this PE's experts, and return the sums of tokens' rows to their PEs while others are made.

    *Collective* over the group of ``routing``, on the current stream. A call may be captured in a CUDA graph after it
    has run once for its sizes.

    Args:
        a: [R, K], with contiguous rows, the rows of this PE's experts as :func:`dispatch_grouped_gemm` returns them:
            bfloat16, float16, float32, float8_e4m3fn or float8_e5m2. It is an error of the kernel if more have come.
        b: [L, K, N], the matrices of this PE's experts, of the same dtype (of either, if fp8); its rows or columns are
            contiguous.
        routing: what :func:`~triton_dist.kernels.moe.gather_routing` has returned on this PE.
        weighted: multiply each row by its weight.
        out: [T, N], contiguous; by default a new tensor. It may not overlap another tensor of the call.
        a_scales, b_scales, out_dtype, num_sms, sm_margin: as of
            :func:`~triton_dist.kernels.moe.grouped_gemm_reduce_scatter`.
        algorithm: as of :func:`dispatch_grouped_gemm`.

    Returns:
        ``out``: for each of this PE's tokens the sum over its choices. The order and the roundings are those of
        :func:`~triton_dist.kernels.moe.combine`: a row's product is rounded to ``out``'s dtype, rows of a PE are added
        in the order of choices, in float32, and rounded, and these in the order of PEs. Tokens without an expert are 0.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how. RuntimeError: a CUDA
            graph is captured before a first run of the same sizes.
    """
    function = "grouped_gemm_combine"
    return multiply_and_scatter(
        function, a, b, routing, weighted=weighted, out=out, a_scales=a_scales, b_scales=b_scales, out_dtype=out_dtype,
        num_sms=num_sms, sm_margin=sm_margin, whole=True, hopper=_hopper(function, algorithm),
    )  # fmt: skip


def _hopper(function: str, algorithm: str) -> ModuleType | None:
    """The module of the Hopper kernels, if they are asked for. (It imports Gluon.)"""
    if algorithm not in ("portable", "hopper"):
        raise ValueError(f"{function}: algorithm must be portable or hopper, got {algorithm!r}")
    if algorithm == "portable":
        return None
    from triton_dist.kernels.moe import whole_experts_hopper

    return whole_experts_hopper
