"""A bias and a residual are those of each call, which is prepared as one without them is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from unittest import mock

import torch
from prepared_calls.calls import (
    A8,
    B8,
    FEW,
    FEW_OUT,
    OF_ALL,
    OWN,
    TO_ALL,
    WIDE,
    A,
    B,
    C,
    matrix,
)
from prepared_calls.world import RECORDER, calls, columns_of_scatter, forget_plans, is_prepared, plans

from triton_dist import kernels
from triton_dist.kernels.gemm import local_gemm

WITH_EPILOGUES: dict[str, tuple[Callable[..., object], int]] = {
    # By name: what takes an epilogue, and how many rows its residual has; 0: it takes none.
    "gemm_all_reduce, fused": (partial(kernels.gemm_all_reduce, FEW, B, TO_ALL, algorithm="fused"), 16),
    "gemm_all_reduce, fused, without TMA": (
        partial(kernels.gemm_all_reduce, FEW[:3], B, TO_ALL[:3], algorithm="fused"),
        3,
    ),
    "gemm_reduce_scatter, fused": (partial(kernels.gemm_reduce_scatter, FEW, B, FEW_OUT, algorithm="fused"), 8),
    "gemm_all_reduce, direct": (partial(kernels.gemm_all_reduce, A, B, C, algorithm="direct"), 512),
    "gemm_all_reduce, ring": (partial(kernels.gemm_all_reduce, A, B, C, algorithm="ring"), 512),
    "gemm_reduce_scatter, ring": (partial(kernels.gemm_reduce_scatter, A, B, OWN, algorithm="ring"), 256),
    "gemm_reduce_scatter, ring, new": (partial(kernels.gemm_reduce_scatter, A, B, algorithm="ring"), 256),
    "gemm_all_reduce, bulk": (partial(kernels.gemm_all_reduce, A, B, C, algorithm="bulk_synchronous"), 512),
    "gemm_reduce_scatter, bulk": (partial(kernels.gemm_reduce_scatter, A, B, OWN, algorithm="bulk_synchronous"), 256),
    "all_gather_gemm, copies": (partial(kernels.all_gather_gemm, A, B, OF_ALL, algorithm="copy_engine"), 0),
    "all_gather_gemm, push": (partial(kernels.all_gather_gemm, A, B, OF_ALL, algorithm="push"), 0),
    "all_gather_gemm, bulk": (partial(kernels.all_gather_gemm, A, B, OF_ALL, algorithm="bulk_synchronous"), 0),
    "all_gather_gemm, bulk, new": (partial(kernels.all_gather_gemm, A, B, algorithm="bulk_synchronous"), 0),
    "gemm_all_scatter, warps": (partial(kernels.gemm_all_scatter, A, B, WIDE, algorithm="warp_specialized"), 0),
    "gemm_all_scatter, copies": (partial(kernels.gemm_all_scatter, A, B, WIDE, algorithm="copy_engine"), 0),
    "gemm_all_scatter, two kernels": (partial(kernels.gemm_all_scatter, A, B, WIDE, algorithm="producer_consumer"), 0),
    "gemm_all_scatter, bulk": (partial(kernels.gemm_all_scatter, A, B, WIDE, algorithm="bulk_synchronous"), 0),
}


QUICK = ("gemm_reduce_scatter, fused", "gemm_all_reduce, bulk", "all_gather_gemm, copies", "gemm_all_scatter, bulk")
"""One of each function, and of each way to add an epilogue."""


def epilogues(rows: int) -> list[dict[str, torch.Tensor]]:
    """New tensors each time."""
    found = [{"bias": torch.zeros(512)}, {"bias": torch.zeros(512).bfloat16()}]
    if rows:
        found += [{"residual": matrix(rows, 512)}, {"bias": torch.zeros(512), "residual": torch.zeros(rows, 512)}]
    return found


def calls_with_bias_and_residual_are_prepared() -> None:
    """With a bias, or with a bias and a residual."""
    _are_prepared(QUICK, slice(None, None, 3))


def all_calls_with_bias_and_residual_are_prepared() -> None:
    _are_prepared(tuple(WITH_EPILOGUES), slice(None))


def _are_prepared(names: tuple[str, ...], which: slice) -> None:
    """As many launches as an ordinary call makes, with the same arguments but for the tensors of an epilogue, which are
    the call's own; none through Triton's binder, and nothing is checked again."""
    for name, (call, rows) in ((name, WITH_EPILOGUES[name]) for name in names):
        for first, second in zip(epilogues(rows)[which], epilogues(rows)[which], strict=True):
            call()
            before = len(plans())
            call(**first)
            assert len(plans()) == before + 1, f"{name}: no plan of a call without an epilogue is taken for one"
            RECORDER.all.clear()
            found = calls(partial(call, **second))
            again = [*RECORDER.all]
            assert not found["JITFunction.run"] and not found["check_operands"] and not found["check_epilogue"], name
            assert len(again) == found.repeated, name
            forget_plans()
            RECORDER.all.clear()
            call(**second)
            assert again == RECORDER.all or name.endswith("new"), name
            if rows or not name.endswith("bulk"):  # there cuBLAS takes the bias
                given = [x for one in again for x in one[-1]]
                assert {("at", tensor.data_ptr()) for tensor in second.values()} <= {*given} or "bulk" in name, name


def a_bias_of_cublas_is_the_call_s() -> None:
    a, b = torch.randn(512, 256).bfloat16(), torch.randn(256, 512).bfloat16()
    forget_plans()
    for seed in range(3):
        bias = torch.full((512,), float(seed)).bfloat16()
        found = calls(partial(kernels.gemm_all_scatter, a, b, WIDE, algorithm="bulk_synchronous", bias=bias))
        assert (seed == 0) == bool(found["check_operands"])
        assert torch.equal(columns_of_scatter(512, 512), torch.addmm(bias, a, b))


def a_bias_is_no_scale_of_cublas() -> None:
    """Operands of fp8 have a scale of their own, one, if the call has none: what follows in the call is none."""
    bias, residual, scale = torch.randn(512), torch.randn(256, 512).bfloat16(), torch.tensor([0.5])
    product = partial(kernels.gemm_reduce_scatter, A8, B8, OWN, algorithm="bulk_synchronous")
    for options in ({"bias": bias}, {"residual": residual}, {"bias": bias, "residual": residual}):
        for scales in ({}, {"scale_b": scale}):
            forget_plans()
            taken: list[tuple[torch.Tensor, ...]] = []
            with mock.patch.object(local_gemm, "multiply_float8", lambda *given, taken=taken: taken.append(given[2:4])):
                checked = [calls(partial(product, **options, **scales))["check_operands"] for _ in range(3)]
            assert [bool(times) for times in checked] == [True, False, False]
            assert [[one.item() for one in given] for given in taken] == [[0.5 if scales else 1.0, 1.0]] * 3


def the_result_may_be_the_residual() -> None:
    call = partial(kernels.gemm_all_reduce, FEW, B, TO_ALL, algorithm="fused", residual=TO_ALL)
    call()
    assert is_prepared(call)
    assert not is_prepared(partial(call, residual=TO_ALL.clone())), "symmetric or not is a part of the signature"
