"""SwiGLU, silu(gate) * up: as a part of other kernels, and as a kernel for rows that are gate, then up."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_dist.kernels.gemm.portable import programs

__all__ = ["swiglu", "swiglu_of_pairs", "swiglu_of_rows"]


@triton.jit
def swiglu(gate, up):
    """Of blocks of float32."""
    return gate / (1 + tl.exp(-gate)) * up


@triton.jit
def swiglu_of_pairs(sums, DTYPE: tl.constexpr):
    """Of a block [M, 2 N] of float32 whose columns are gate and up in turn; [M, N].

    Both are rounded to ``DTYPE`` as if they had been stored, so that it is the result of GEMM and SwiGLU one after the
    other.
    """
    gate, up = tl.split(sums.reshape([sums.shape[0], sums.shape[1] // 2, 2]))
    return swiglu(gate.to(DTYPE).to(tl.float32), up.to(DTYPE).to(tl.float32))


@triton.jit
def moe_swiglu(out, gate_up, end, N, BLOCK: tl.constexpr):
    """silu(gate) * up of the rows below ``end``, in float32; a row of ``gate_up`` is gate, then up."""
    for row in range(tl.program_id(0), tl.load(end), tl.num_programs(0)):
        for first in range(0, N, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            at = gate_up + tl.cast(row, tl.int64) * 2 * N + columns
            gate = tl.load(at, mask=columns < N, other=0.0).to(tl.float32)
            up = tl.load(at + N, mask=columns < N, other=0.0).to(tl.float32)
            value = swiglu(gate, up)
            tl.store(out + tl.cast(row, tl.int64) * N + columns, value.to(out.dtype.element_ty), mask=columns < N)


def swiglu_of_rows(gate_up: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """[R, N] of [R, 2 N], for the rows in front of ``offsets[-1]``."""
    n = gate_up.shape[1] // 2
    out = gate_up.new_empty(len(gate_up), n)
    block = min(2048, int(triton.next_power_of_2(n)))
    moe_swiglu[(4 * programs(),)](out, gate_up, offsets[-1:], n, block, num_warps=max(1, min(8, block // 128)))
    return out
