"""Tensors that the package makes do not depend on torch.set_default_device, which a program may have called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import triton_dist

PACKAGE = Path(triton_dist.__file__).parent
MAKE = frozenset(
    [
        "arange",
        "as_tensor",
        "asarray",
        "empty",
        "empty_permuted",
        "empty_strided",
        "eye",
        "full",
        "linspace",
        "logspace",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "scalar_tensor",
        "tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
    ]
)
"""What PyTorch gives the default device (the common ones of ``torch.utils._device._device_constructors``)."""


def without_a_device(text: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(ast.Attribute(ast.Name("torch"), name)) if name in MAKE:
                if not {"device", None} & {keyword.arg for keyword in node.keywords}:
                    yield node


@pytest.mark.parametrize("call", ["torch.zeros(3)", "f(torch.tensor([1], dtype=torch.int8))"])
def test_the_search_finds(call: str) -> None:
    assert len(list(without_a_device(call))) == 1
    assert not list(without_a_device("torch.zeros(3, device=d), torch.ones(1, **like), x.new_zeros(3), np.zeros(3)"))


def test_every_tensor_names_its_device() -> None:
    found = {
        f"{file.relative_to(PACKAGE)}:{call.lineno}: {ast.unparse(call)}"
        for file in PACKAGE.rglob("*.py")
        for call in without_a_device(file.read_text())
    }
    assert not found
