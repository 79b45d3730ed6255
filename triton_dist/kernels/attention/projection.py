"""Flash decode of this PE's heads, then the output projection with its all-reduce: for tensor-parallel layers.

Each PE has some heads with all of their keys, and the rows of the projection's weight that belong to them.

Two kernels. The first is flash decode without peers: the parts of a head are merged in the registers of the program
that finishes last, which stores the head, divided and rounded, once: no partial result outlives the kernel, and no
logarithm is stored. The second is the small-M GEMM (``gemm/small_m.py``), which loads these few KB by TMA beside the
weight that it streams, and sends its tiles from registers. Each of its programs needs every head, so what lies between
the kernels has to pass through the L2 cache (docs/decisions/0063).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from triton_dist.kernels.attention.arguments import First, are_passed_on, check, first_arguments, signature_of
from triton_dist.kernels.attention.flash_decode import attend_locally, local_parts
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.gemm.arguments import check_epilogue, check_operands
from triton_dist.kernels.gemm.epilogue import kinds
from triton_dist.kernels.gemm.gemm_all_reduce import gemm_all_reduce
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.small_m import fits_small_m, small_m_gemm
from triton_dist.kernels.new_tensors import NewTensors, like
from triton_dist.kernels.prepared import Part, Prepared, steps
from triton_dist.kernels.protocols.workspace import symmetric_buffer

__all__ = ["flash_decode_projection"]

_NAME = "flash_decode_projection"


def flash_decode_projection(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor | None,
    lengths: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    head_dim_v: int | None = None,
    scale: float | None = None,
    window: int | None = None,
    k_scale: torch.Tensor | float | None = None,
    v_scale: torch.Tensor | float | None = None,
    group: Any = None,
) -> torch.Tensor:
    """The sum over PEs of attention · ``weight``, + bias + residual, on every PE: each PE has heads of its own.

    Attention is that of :func:`flash_decode` to a KV cache whose heads, not positions, are split over the PEs: no PE
    sends partial results of attention. (With a group ``n_pes`` is its size.)

    Args:
        q: [B, HQ, D], queries of this PE's heads; float16, bfloat16 or float32.
        k_cache, v_cache: all keys and values of this PE's KV heads, dense or in pages, as of :func:`flash_decode`.
        lengths: [B], int32, on the device: how many positions each sequence has, 0 included. A sequence of length 0
            adds nothing to the sum.
        weight: [HQ · DV, N], the rows of the projection's weight that belong to this PE's heads, in ``q``'s order; of
            ``q``'s dtype, with contiguous rows or columns (as ``linear.weight.t()``).
        bias: [N], added to the sum once; the same on every PE. float16, bfloat16 or float32, and so ``residual``.
        residual: [B, N], contiguous, added to the sum once; the same on every PE.
        block_table, head_dim_v, scale, window, k_scale, v_scale: as of :func:`flash_decode`.

    Returns:
        [B, N], of ``q``'s dtype, the same bits on every PE. Attention is rounded to that dtype before it is multiplied,
        products are accumulated in float32, and PEs exchange partial sums of that dtype.

    *Collective*, on the current stream; with equal shapes of ``q`` and ``weight``. When a call has ended on a PE, as
    far as that PE's stream is concerned, its result is complete there and its inputs may be overwritten. A call may be
    captured in a CUDA graph after it has run once for its shape; replays read ``lengths`` and ``block_table`` anew.
    Nothing need be symmetric. Up to 128 requests (of PEs whose number is a power of two) are two kernels; with more,
    the second is what :func:`gemm_all_reduce` chooses, and a copy follows.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    with calling(_NAME, group) as comm:
        prepared = comm.own(Prepared)
        options = _NAME, head_dim_v, scale, window, bias is None
        given = q, k_cache, v_cache, lengths, block_table
        also = tuple(tensor for tensor in (bias, residual) if tensor is not None)
        signature = signature_of(prepared, options, (k_scale, v_scale), *given, weight, *also)
        new: NewTensors | None = prepared.details(signature)
        if new is not None:
            attended, parts, out = new.tensors()
            first = first_arguments(*given, attended, None, parts, k_scale, v_scale)
            if prepared.repeat(signature, *first, weight, out, *also):
                return out
        call = check(
            _NAME, comm.n_pes, q, k_cache, v_cache, lengths, block_table, head_dim_v, scale, window, None, k_scale,
            v_scale, False,
        )  # fmt: skip
        attended = q.new_empty(*q.shape[:2], call.head_dim_v)
        attention = attended.flatten(1)
        check_operands(_NAME, ("attention", "weight"), attention, weight)
        parts, out = q.new_empty(local_parts(call), dtype=torch.float32), q.new_empty(q.shape[0], weight.shape[1])
        epilogue = check_epilogue(_NAME, weight, out, None, bias, residual, reduces=True)
        compared = _NAME, q.shape, q.dtype, weight.shape, *kinds(None, bias=bias, residual=residual)
        comm.compare(*compared)
        if not q.shape[0]:
            return out
        first = first_arguments(*given, attended, None, parts, call.k_scale, call.v_scale)
        attends = attend_locally(comm, call, first)
        project: Part
        if fits_small_m(q.shape[0], comm.n_pes):
            made = small_m_gemm(Operands(comm, attention, weight, out, epilogue=epilogue), to_all=True)
            project = made, lambda *call: (call[_ATTENDED], call[_WEIGHT], call[_OUT])
        else:
            again = partial(_reduce, comm, bias is not None)
            again(attended, weight, out, *also)
            project = again, lambda *call: (call[_ATTENDED], *call[_WEIGHT:])
        if are_passed_on(k_scale, v_scale):
            makers = tuple(like(tensor) for tensor in (attended, parts, out))
            new = NewTensors(makers, ((_ATTENDED,), (_PARTS,), (_OUT,)), results=(len(makers) - 1,))
            has_numbers = type(k_scale) in (int, float) or type(v_scale) in (int, float)
            prepared.keep(
                signature, steps(*attends, project), *compared, details=new, also=also,
                new=None if has_numbers else new,
            )  # fmt: skip
        return out


_ATTENDED = First._fields.index("out")
_PARTS = First._fields.index("parts")
_WEIGHT = len(First._fields)
_OUT = _WEIGHT + 1
"""Where the tensors of a call stand among all that its steps take theirs of."""


def _reduce(
    comm: Communicator, has_bias: bool, attended: torch.Tensor, weight: torch.Tensor, out: torch.Tensor,
    *also: torch.Tensor,
) -> None:  # fmt: skip
    """The projection of more requests than a small-M GEMM takes; ``also`` are the call's bias and residual."""
    bias = also[0] if has_bias else None
    residual = also[-1] if len(also) > has_bias else None
    summed = symmetric_buffer(comm, _NAME, out.nbytes).view(out.dtype).view(out.shape)
    gemm_all_reduce(attended.flatten(1), weight, summed, bias=bias, residual=residual, group=comm)
    out.copy_(summed)  # what overwrites it, the next call, begins with a barrier
