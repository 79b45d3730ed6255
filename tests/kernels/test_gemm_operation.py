"""The fused GEMMs have one signature, which editors and help() show."""

from __future__ import annotations

import inspect

import pytest

from triton_dist import kernels
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
