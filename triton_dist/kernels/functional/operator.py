"""Operators of PyTorch, ``torch.ops.triton_dist``, defined so that a call costs the host little.

``torch.library.custom_op`` looks in Python, in every call, for results that share memory with arguments, and imports
the compiler with the first one. Our operators mutate nothing and return new tensors, which tests check for all of them
(``torch.library.opcheck``), so they are defined by ``torch.library.Library``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["Operator", "operator"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAMESPACE = "triton_dist"


class Operator:
    """An operator that returns new tensors. It takes a function that says what it returns to the compiler, and has a
    gradient, or refuses one.

    Args:
        function: what it computes, on every kind of device.
        name: what ``torch.ops.triton_dist`` calls it.
        schema: its arguments and results, as PyTorch writes them.
    """

    def __init__(self, function: Callable[..., Any], name: str, schema: str) -> None:
        self.name = f"{_NAMESPACE}::{name}"
        self._library = torch.library.Library(_NAMESPACE, "FRAGMENT")
        self._library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
        self._library.impl(name, _left_alone_by_the_compiler(function), "CompositeExplicitAutograd")

    def register_fake(self, fake: _Function) -> _Function:
        """``fake`` returns tensors like the operator's, without data, and raises what the operator would raise."""
        torch.library.register_fake(self.name, fake, lib=self._library)
        return fake

    def register_autograd(
        self, backward: Callable[..., Any], *, setup_context: Callable[[Any, tuple[Any, ...], Any], None] | None = None
    ) -> None:
        """As ``torch.library.register_autograd``."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context, lib=self._library)

    def refuse_gradients(self) -> None:
        """A backward through the operator is an error. (Without this word PyTorch would warn, and give zeros.)"""

        def refuse(ctx: Any, *grads: Any) -> Any:
            raise RuntimeError(f"{self.name} has no gradient: call it with detached tensors, or under torch.no_grad()")

        self.register_autograd(refuse)


def operator(name: str, *, schema: str) -> Callable[[Callable[..., Any]], Operator]:
    """Decorate what an operator computes."""

    def made(function: Callable[..., Any]) -> Operator:
        return Operator(function, name, schema)

    return made


def _left_alone_by_the_compiler(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, into which torch.compile does not look when it runs what it has not compiled."""
    outside: Callable[..., Any] | None = None

    def kernel(*arguments: Any) -> Any:
        nonlocal outside
        if outside is None:
            if "torch._dynamo" not in sys.modules:  # nothing has been compiled in this process
                return function(*arguments)
            outside = torch.compiler.disable(function)
        return outside(*arguments)

    return kernel
