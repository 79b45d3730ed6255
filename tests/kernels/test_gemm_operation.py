"""The fused GEMMs have one signature, which editors and help() show."""

from __future__ import annotations

import inspect
from itertools import product

import pytest
import torch

from triton_dist import kernels
from triton_dist.kernels.gemm.fp8 import BlockScales
from triton_dist.kernels.gemm.operands import Tensors
from triton_dist.kernels.gemm.operation import FusedGemm

OPERATIONS = [
    kernels.all_gather_gemm,
    kernels.gemm_all_reduce,
    kernels.gemm_all_scatter,
    kernels.gemm_reduce_scatter,
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_the_signature_is_that_of_the_protocol(operation: FusedGemm) -> None:
    _, *public = inspect.signature(FusedGemm.__call__).parameters.values()
    assert list(inspect.signature(operation).parameters.values()) == public
    documentation = inspect.getdoc(operation) or ""
    for name in inspect.signature(operation).parameters:
        assert f"{name}: " in documentation or f"{name}, " in documentation, name


@pytest.mark.parametrize(
    "function",
    [kernels.all_gather, kernels.all_reduce, kernels.all_to_all, kernels.broadcast, kernels.reduce_scatter],
    ids=lambda function: function.__name__,
)
def test_a_collective_tells_what_holds_for_all(function: object) -> None:
    documentation = inspect.getdoc(function) or ""
    assert "Args:" in documentation and "captured in a CUDA graph" in documentation and "Raises:" in documentation


@pytest.mark.parametrize("form", [None, torch.Tensor, BlockScales])
def test_the_tensors_of_a_call_are_known_by_name(form: type | None) -> None:
    """Also where a call has one kind and not the other: a bias is never taken for a scale."""
    a, b, out, bias, residual, *scales = (torch.tensor(float(i)) for i in range(7))
    given = [] if form is None else scales if form is BlockScales else scales[:1]
    for has_bias, has_residual in product((False, True), repeat=2):
        found = Tensors.of(
            form, has_bias, has_residual, a, b, out, *given, *[bias] * has_bias, *[residual] * has_residual
        )
        assert (found.a, found.b, found.out) == (a, b, out)
        assert found.scale == (None if form is None else BlockScales(*scales) if form is BlockScales else scales[0])
        assert found.bias is (bias if has_bias else None) and found.residual is (residual if has_residual else None)
