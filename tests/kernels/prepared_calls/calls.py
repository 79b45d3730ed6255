"""The calls that are repeated, by what they compute and how."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from prepared_calls.world import WORLD, symmetric

from triton_dist import kernels
from triton_dist.kernels import moe

X, Y = symmetric(1024), symmetric(1024)
LARGE, OUT = symmetric(1 << 20), symmetric(1 << 20)
GATHERED, GATHERED_LARGE = symmetric(2048), symmetric(1 << 21)
PLAIN = torch.zeros(1024, dtype=torch.bfloat16)


def matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns, dtype=torch.bfloat16)


A, B, BT = matrix(512, 256), matrix(256, 512), matrix(512, 256).t()
A8, B8 = A.to(torch.float8_e4m3fn), B.t().contiguous().to(torch.float8_e4m3fn).t()
ONE, OF_BLOCKS = torch.ones(1), {"scale_a": torch.ones(512, 2), "scale_b": torch.ones(2, 4)}
FEW, FEW_OUT, OWN = matrix(16, 256), matrix(8, 512), matrix(256, 512)
BIAS, RESIDUAL, FEW_RESIDUAL = torch.zeros(512), matrix(16, 512), matrix(16, 512)
OF_ALL = matrix(1024, 512)
TO_ALL, C, WIDE = (WORLD.empty(shape, torch.bfloat16) for shape in ((16, 512), (512, 512), (512, 1024)))
COMPLEX = torch.zeros(64, dtype=torch.complex64), torch.zeros(128, dtype=torch.complex64)

CALLS: dict[str, Callable[[], object]] = {
    "all_reduce in place": lambda: kernels.all_reduce(X),
    "all_reduce, out=": lambda: kernels.all_reduce(X, out=Y),
    "all_reduce, two_shot": lambda: kernels.all_reduce(X, out=Y, algorithm="two_shot"),
    "all_reduce, direct": lambda: kernels.all_reduce(LARGE, out=OUT, algorithm="direct"),
    "all_reduce, push": lambda: kernels.all_reduce(LARGE, out=OUT, algorithm="push"),
    "all_gather": lambda: kernels.all_gather(GATHERED, X),
    "all_gather, push": lambda: kernels.all_gather(GATHERED_LARGE, LARGE, algorithm="push"),
    "reduce_scatter": lambda: kernels.reduce_scatter(X, GATHERED),
    "reduce_scatter, push": lambda: kernels.reduce_scatter(LARGE, GATHERED_LARGE, algorithm="push"),
    "all_to_all": lambda: kernels.all_to_all(Y, X),
    "all_to_all, push": lambda: kernels.all_to_all(OUT, LARGE, algorithm="push"),
    "broadcast": lambda: kernels.broadcast(X, 1),
    "broadcast, push": lambda: kernels.broadcast(LARGE, 1, algorithm="push"),
    "gemm_all_reduce, fused": lambda: kernels.gemm_all_reduce(FEW, B, TO_ALL, algorithm="fused"),
    "gemm_all_reduce, fused, by columns": lambda: kernels.gemm_all_reduce(FEW, BT, TO_ALL, algorithm="fused"),
    "gemm_all_reduce, fused, without TMA": lambda: kernels.gemm_all_reduce(FEW[:3], B, TO_ALL[:3], algorithm="fused"),
    "gemm_reduce_scatter, fused": lambda: kernels.gemm_reduce_scatter(FEW, B, FEW_OUT, algorithm="fused"),
    "gemm_all_reduce, fused, bands": lambda: kernels.gemm_all_reduce(A, B, C, algorithm="fused"),
    "gemm_reduce_scatter, fused, bands": lambda: kernels.gemm_reduce_scatter(A, B, OWN, algorithm="fused"),
    "gemm_all_reduce, ring": lambda: kernels.gemm_all_reduce(A, B, C, algorithm="ring"),
    "gemm_all_reduce, ring, fp8": lambda: kernels.gemm_all_reduce(A8, B8, C, algorithm="ring"),
    "gemm_all_reduce, ring, scale": lambda: kernels.gemm_all_reduce(A8, B8, C, algorithm="ring", scale_b=ONE),
    "gemm_all_reduce, ring, blocks": lambda: kernels.gemm_all_reduce(A8, B8, C, algorithm="ring", **OF_BLOCKS),
    "all_gather_gemm, copies, blocks": lambda: kernels.all_gather_gemm(
        A8, B8, OF_ALL, algorithm="copy_engine", **OF_BLOCKS
    ),
    "gemm_all_scatter, warps, blocks": lambda: kernels.gemm_all_scatter(
        A8, B8, WIDE, algorithm="warp_specialized", **OF_BLOCKS
    ),
    "gemm_reduce_scatter, ring": lambda: kernels.gemm_reduce_scatter(A, B, OWN, algorithm="ring"),
    "gemm_reduce_scatter, ring, new": lambda: kernels.gemm_reduce_scatter(A, B, algorithm="ring"),
    "all_gather_gemm, copies": lambda: kernels.all_gather_gemm(A, B, OF_ALL, algorithm="copy_engine"),
    "gemm_reduce_scatter, direct": lambda: kernels.gemm_reduce_scatter(A, B, OWN, algorithm="direct"),
    "gemm_all_reduce, direct": lambda: kernels.gemm_all_reduce(A, B, C, algorithm="direct"),
    "gemm_all_reduce, direct, blocks": lambda: kernels.gemm_all_reduce(A8, B8, C, algorithm="direct", **OF_BLOCKS),
    "gemm_all_reduce, direct, ragged": lambda: kernels.gemm_all_reduce(A[:333], B, C[:333], algorithm="direct"),
    "gemm_all_reduce, ring, ragged": lambda: kernels.gemm_all_reduce(A[:333], B, C[:333], algorithm="ring"),
    "gemm_reduce_scatter, ring, ragged": lambda: kernels.gemm_reduce_scatter(A[:334], B, OWN[:167], algorithm="ring"),
    "all_gather_gemm, copies, ragged": lambda: kernels.all_gather_gemm(
        A[:200], B, OF_ALL[:400], algorithm="copy_engine"
    ),
    "all_gather_gemm, push": lambda: kernels.all_gather_gemm(A, B, OF_ALL, algorithm="push"),
    "all_gather_gemm, push, ragged": lambda: kernels.all_gather_gemm(A[:200], B, OF_ALL[:400], algorithm="push"),
    "all_gather_gemm, copies, new": lambda: kernels.all_gather_gemm(A, BT, algorithm="copy_engine"),
    "gemm_all_scatter, warps": lambda: kernels.gemm_all_scatter(A, B, WIDE, algorithm="warp_specialized"),
    "gemm_all_reduce, fused, silu": lambda: kernels.gemm_all_reduce(
        FEW, B, TO_ALL, algorithm="fused", activation="silu"
    ),
    "gemm_all_reduce, ring, gelu": lambda: kernels.gemm_all_reduce(A, B, C, algorithm="ring", activation="gelu"),
    "gemm_all_scatter, swiglu": lambda: kernels.gemm_all_scatter(
        A, B, C, algorithm="warp_specialized", activation="swiglu"
    ),
    "gemm_all_scatter, programs": lambda: kernels.gemm_all_scatter(A, B, WIDE, algorithm="fused_producer_consumer"),
    "gemm_all_reduce, fused, residual": lambda: kernels.gemm_all_reduce(
        FEW, B, TO_ALL, algorithm="fused", bias=BIAS, residual=RESIDUAL
    ),
}

IN_STEPS: dict[str, Callable[[], object]] = {
    f"{function.__name__}, {margin} SMs left": partial(
        function, A, B, out, algorithm="bulk_synchronous", sm_margin=margin, activation=activation
    )
    for margin, activation in ((0, None), (1, None), (1, "silu"))  # by cuBLAS, and by our kernel
    for function, out in (
        (kernels.all_gather_gemm, OF_ALL),
        (kernels.all_gather_gemm, None),
        (kernels.gemm_reduce_scatter, OWN),
        (kernels.gemm_all_reduce, C),
        (kernels.gemm_all_scatter, WIDE),
    )
}
IN_STEPS |= {
    f"gemm_all_scatter, {algorithm}": partial(kernels.gemm_all_scatter, A, B, WIDE, algorithm=algorithm)
    for algorithm in ("copy_engine", "producer_consumer", "fused_sequential")
}
"""Calls of several launches and functions of PyTorch."""

TOKENS, IDS, WEIGHTS = matrix(8, 64), torch.zeros(8, 2, dtype=torch.int64), torch.ones(8, 2)
TOKENS8, SCALES = TOKENS.to(torch.float8_e4m3fn), torch.ones(8, 4)
EXPERTS: dict[str, Any] = {"num_experts": 4, "max_tokens": 8}
WIDE_TOKENS = matrix(8, 512)  # of which TMA moves rows
WIDE_TOKENS8 = matrix(8, 1024).to(torch.float8_e4m3fn)
RECEIVED = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS)
IN_ROUNDS = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24)
WIDE_ROWS = matrix(len(IN_ROUNDS.x), 512)
ONCE = moe.dispatch_tokens(WIDE_TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24)
OF_MANY: dict[str, Any] = EXPERTS | {"max_tokens": 4 * 132}
RECEIVED_MANY = moe.dispatch(TOKENS, IDS, WEIGHTS, **OF_MANY)
ROUTED = moe.gather_routing(IDS, WEIGHTS, **EXPERTS)
SLICE, SLICE8 = torch.zeros(4, 64, 32).bfloat16(), torch.zeros(4, 64, 32).to(torch.float8_e4m3fn)
OWN_EXPERTS = SLICE[:2]  # of 2 PEs
OF_SLICES: dict[str, Any] = {"a_scales": torch.ones(8, 1), "b_scales": torch.ones(4, 32)}
OF_ROWS = {"out": torch.zeros(ROUTED.rows, 32).bfloat16()}
ROWS = torch.zeros(ROUTED.rows, 64).bfloat16()

Q, CACHE, LENGTHS = torch.zeros(4, 8, 64).bfloat16(), torch.zeros(4, 64, 2, 64).bfloat16(), torch.ones(4).int()
CACHE8, PAGES, OF_HEADS = CACHE.to(torch.float8_e4m3fn), torch.zeros(4, 2, dtype=torch.int32), torch.ones(2)
PROJECTION, OF_REQUESTS = matrix(8 * 64, 512), {"bias": BIAS, "residual": RESIDUAL[:4]}
MANY_Q, MANY_LENGTHS = torch.zeros(300, 8, 64).bfloat16(), torch.ones(300).int()
MANY_PAGES = torch.zeros(300, 2, dtype=torch.int32)
NORM_WEIGHT = RESIDUAL[0].clone()

NEW_RESULTS: dict[str, Callable[[], object]] = {
    "all_reduce_norm, one_shot": lambda: kernels.all_reduce_norm(
        RESIDUAL, NORM_WEIGHT, FEW_RESIDUAL, bias=BIAS, algorithm="one_shot"
    ),
    "all_reduce_norm, two_shot": lambda: kernels.all_reduce_norm(
        RESIDUAL, norm="layer", norm_bias=BIAS, quantize="token", algorithm="two_shot"
    ),
    "reduce_scatter_norm, fused": lambda: kernels.reduce_scatter_norm(
        RESIDUAL, RESIDUAL[0], RESIDUAL[:8], quantize="block", algorithm="fused"
    ),
    "norm_all_gather, fused": lambda: kernels.norm_all_gather(RESIDUAL, RESIDUAL[0], algorithm="fused"),
    "flash_decode": lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS),
    "flash_decode, pages, fp8": lambda: kernels.flash_decode(
        Q, CACHE8, CACHE8, LENGTHS, block_table=PAGES, k_scale=ONE, v_scale=OF_HEADS, window=32
    ),
    "dispatch": lambda: moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS),
    "dispatch, fp8": lambda: moe.dispatch(TOKENS8, IDS, WEIGHTS, scales=SCALES, **EXPERTS),
    "dispatch, rounds": lambda: moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24),
    "dispatch, many": lambda: moe.dispatch(TOKENS, IDS, WEIGHTS, **OF_MANY),
    "dispatch, many, 32 SMs left": lambda: moe.dispatch(TOKENS, IDS, WEIGHTS, **OF_MANY, sm_margin=32),
    "combine": lambda: moe.combine(RECEIVED.x, RECEIVED),
    "combine, many": lambda: moe.combine(RECEIVED_MANY.x, RECEIVED_MANY),
    "combine, rounds": lambda: moe.combine(IN_ROUNDS.x, IN_ROUNDS),
    "combine, rounds by TMA": lambda: moe.combine(WIDE_ROWS, IN_ROUNDS),
    "combine, rounds by TMA, no weights, buffer 1": lambda: moe.combine(WIDE_ROWS, IN_ROUNDS, weighted=False, buffer=1),
    "combine_tokens by TMA": lambda: moe.combine_tokens(ONCE.x, ONCE),
    "all_gather_grouped_gemm": lambda: moe.all_gather_grouped_gemm(TOKENS, SLICE, ROUTED),
    "all_gather_grouped_gemm, out=": lambda: moe.all_gather_grouped_gemm(TOKENS, SLICE, ROUTED, **OF_ROWS),
    "all_gather_grouped_gemm, fp8": lambda: moe.all_gather_grouped_gemm(TOKENS8, SLICE8, ROUTED, **OF_SLICES),
    "grouped_gemm_reduce_scatter": lambda: moe.grouped_gemm_reduce_scatter(ROWS, SLICE, ROUTED),
    "dispatch_grouped_gemm": lambda: moe.dispatch_grouped_gemm(TOKENS, OWN_EXPERTS, ROUTED, swiglu=True),
    "grouped_gemm_combine": lambda: moe.grouped_gemm_combine(ROWS, OWN_EXPERTS, ROUTED),
}
"""Calls whose results are new tensors each time."""

NEW_IN_STEPS: dict[str, Callable[[], object]] = {
    "flash_decode, 300 requests": lambda: kernels.flash_decode(
        MANY_Q, CACHE, CACHE, MANY_LENGTHS, block_table=MANY_PAGES
    ),
    "flash_decode_projection": lambda: kernels.flash_decode_projection(
        Q, CACHE, CACHE, LENGTHS, PROJECTION, **OF_REQUESTS
    ),
    "flash_decode_projection, 300 requests": lambda: kernels.flash_decode_projection(
        MANY_Q, CACHE, CACHE, MANY_LENGTHS, PROJECTION, block_table=MANY_PAGES, bias=BIAS
    ),
    "gather_routing": lambda: moe.gather_routing(IDS, WEIGHTS, **EXPERTS),
    "dispatch, rounds by TMA": lambda: moe.dispatch(WIDE_TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24),
    "dispatch, rounds by TMA, fp8, buffer 1": lambda: moe.dispatch(
        WIDE_TOKENS8, IDS, WEIGHTS, scales=SCALES, **EXPERTS, num_sms=64, buffer=1
    ),
    "dispatch, rounds by TMA, no tokens": lambda: moe.dispatch(
        WIDE_TOKENS[:0], IDS[:0], WEIGHTS[:0], **EXPERTS, num_sms=24
    ),
    "dispatch_tokens by TMA": lambda: moe.dispatch_tokens(WIDE_TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24),
    "dispatch_tokens by TMA, fp8, buffer 1": lambda: moe.dispatch_tokens(
        WIDE_TOKENS8, IDS, WEIGHTS, scales=SCALES, **EXPERTS, num_sms=64, buffer=1
    ),
    "dispatch in halves": lambda: moe.dispatch_receive(moe.dispatch_send(TOKENS, IDS, WEIGHTS, **EXPERTS)),
    "dispatch in halves, fp8": lambda: moe.dispatch_receive(
        moe.dispatch_send(TOKENS8, IDS, WEIGHTS, scales=SCALES, **EXPERTS)
    ),
    "combine in halves": lambda: moe.combine_receive(moe.combine_send(RECEIVED.x, RECEIVED)),
    "combine in halves, many": lambda: moe.combine_receive(moe.combine_send(RECEIVED_MANY.x, RECEIVED_MANY)),
    "all_gather, copy_engine": lambda: kernels.all_gather(GATHERED_LARGE, LARGE, algorithm="copy_engine"),
    "all_to_all, copy_engine": lambda: kernels.all_to_all(OUT, LARGE, algorithm="copy_engine"),
    "all_gather, copy_engine, a program": lambda: kernels.all_gather(
        GATHERED_LARGE, LARGE, algorithm="copy_engine", sm_margin=131
    ),
    "all_reduce_norm, unfused": lambda: kernels.all_reduce_norm(
        RESIDUAL, NORM_WEIGHT, FEW_RESIDUAL, bias=BIAS, algorithm="unfused"
    ),
}
"""Calls of several launches, of which some tensors are new each time."""

OPERATORS: dict[str, Callable[[], object]] = {
    "functional.all_reduce": lambda: kernels.functional.all_reduce(PLAIN),
    "functional.norm_gemm": lambda: kernels.functional.norm_gemm(FEW, B, FEW[0]),
}
"""Operators of PyTorch."""

REPEATS = {
    *("gemm_all_reduce, fused, by columns", "gemm_all_reduce, fused, without TMA", "gemm_all_reduce, fused, silu"),
    *("gemm_all_reduce, ring, fp8", "gemm_all_reduce, ring, gelu", "gemm_all_scatter, swiglu"),
    *("dispatch, fp8", "all_gather_grouped_gemm, fp8", "flash_decode, pages, fp8"),
    *("dispatch_tokens by TMA, fp8, buffer 1", "dispatch, rounds by TMA, fp8, buffer 1"),
    *("dispatch in halves, fp8", "flash_decode_projection, 300 requests"),
}
"""Those whose kernels are another call's with another dtype, layout or activation; compiling them takes long."""
