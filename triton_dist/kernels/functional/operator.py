"""Operators of PyTorch, ``torch.ops.triton_dist``, defined so that a call costs the host little.

``torch.library.custom_op`` looks in Python, in every call, for results that share memory with arguments, and imports
the compiler with the first one. Our operators mutate nothing and return new tensors, which tests check for all of them
(``torch.library.opcheck``), so they are defined by ``torch.library.Library``.

PyTorch's dispatcher takes longer than a prepared call. Where it would do nothing but call an operator's function,
calling an :class:`Operator` calls this function itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch.utils.flop_counter import register_flop_formula

from triton_dist import torch_api

__all__ = ["Operator", "operator"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAMESPACE = "triton_dist"
_ops: Any = torch.ops.triton_dist
_TENSOR, _PARAMETER = torch.Tensor, torch.nn.Parameter
_KINDS: dict[str, tuple[type, ...]] = {
    "Tensor": (_TENSOR, _PARAMETER),
    "int": (int,),
    "SymInt": (int,),
    "float": (float,),
    "bool": (bool,),
    "str": (str,),
    "ScalarType": (torch.dtype,),
}
"""By type of a schema, the types of Python that PyTorch passes on to an operator's function as they are."""


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
        self.opname = name
        """Without the namespace."""
        self._library = _Library(_NAMESPACE, "FRAGMENT")
        self._library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
        self.kernel = _left_alone_by_the_compiler(function)
        """What the dispatcher calls in the end."""
        self._library.impl(name, self.kernel, "CompositeExplicitAutograd")
        self._kinds = _kinds_of(schema)
        self._tensors = _tensors_of(schema)

    def __call__(self, *arguments: Any) -> Any:
        """``torch.ops.triton_dist.<name>(*arguments)``, of all arguments without a default. Not for compiled functions.

        Without PyTorch's dispatcher, if it would do nothing but call the operator's function: nothing is traced,
        profiled, transformed or recorded, no mode is on, and the arguments are as the function takes them.
        """
        if self._takes_as_they_are(arguments) and torch_api.operators_are_unobserved():
            return self.kernel(*arguments)
        self._refuse(arguments)
        return getattr(_ops, self.opname)(*arguments)

    def _refuse(self, arguments: Sequence[Any]) -> None:
        """Raise what is wrong with arguments that must be dense tensors: the dispatcher passes on None, and sparse
        and nested ones, and says of others which schema they do not fit."""
        for place, name in self._tensors:
            value = arguments[place] if place < len(arguments) else None
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"{self.opname}: {name} must be a torch.Tensor, got {type(value).__name__}")
            if value.layout is not torch.strided or value.is_nested:
                what = "nested" if value.is_nested else f"of layout {value.layout}"
                raise ValueError(f"{self.opname}: {name} is {what}, not dense")

    def _takes_as_they_are(self, arguments: Sequence[Any]) -> bool:
        """Whether the dispatcher would call :attr:`kernel` with these very arguments, as nearly always in inference:
        they are of the types of the schema, of tensors no subclass but parameters, and no gradient is recorded.

        All other arguments are the dispatcher's, which converts or refuses them.
        """
        if len(arguments) > len(self._kinds):
            return False
        for kinds, value in zip(self._kinds, arguments, strict=False):
            kind = type(value)
            if kind not in kinds:
                return False
            if (kind is _TENSOR or kind is _PARAMETER) and (
                (value.requires_grad and torch.is_grad_enabled())
                or value.is_conj()
                or value.is_neg()
                or value.is_meta
                or value.layout is not torch.strided
                or value.is_nested
            ):
                return False
        return True

    def register_fake(self, fake: _Function) -> _Function:
        """``fake`` returns tensors like the operator's, without data, and raises what the operator would raise."""
        torch.library.register_fake(self.name, fake, lib=self._library)
        return fake

    def register_flops(self, count: Callable[..., int]) -> None:
        """``count`` is what ``FlopCounterMode`` counts, of shapes in place of tensors."""
        register_flop_formula(getattr(_ops, self.opname))(count)

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


class _Library(torch.library.Library):
    """Registers operators that have no derivative in forward mode, and say so.

    ``torch.library.register_autograd`` registers a backward. The kernel that it makes drops a tangent of an argument in
    silence: the derivative would be zero.
    """

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> Any:
        if dispatch_key != "Autograd":
            return super().impl(op_name, fn, dispatch_key, **options)

        def without_tangents(keyset: Any, *arguments: Any, **keywords: Any) -> Any:
            if torch_api.have_tangent(arguments):
                raise NotImplementedError(
                    f"{_NAMESPACE}::{op_name} has no derivative in forward mode (torch.func.jvp, jacfwd,"
                    " torch.autograd.forward_ad): take a backward, or detach the tensor"
                )
            return fn(keyset, *arguments, **keywords)

        return super().impl(op_name, without_tangents, dispatch_key, **options)


def operator(name: str, *, schema: str) -> Callable[[Callable[..., Any]], Operator]:
    """Decorate what an operator computes."""

    def made(function: Callable[..., Any]) -> Operator:
        return Operator(function, name, schema)

    return made


def _arguments_of(schema: str) -> list[str]:
    return schema[1 : schema.index(") ->")].split(", ")


def _kinds_of(schema: str) -> tuple[frozenset[type], ...]:
    """The types of the arguments, in order, that the dispatcher passes on as they are; none of an unknown type."""
    found = []
    for argument in _arguments_of(schema):
        kind, optional = re.match(r"([\w\[\]]+)(\??) ", argument).groups()  # type: ignore[union-attr]
        kinds = _KINDS.get(kind, ())
        found.append(frozenset((*kinds, type(None)) if optional and kinds else kinds))
    return tuple(found)


def _tensors_of(schema: str) -> tuple[tuple[int, str], ...]:
    """The places and names of the arguments that must be tensors."""
    arguments = [argument.split()[:2] for argument in _arguments_of(schema)]
    return tuple((place, name) for place, (kind, name) in enumerate(arguments) if kind == "Tensor")


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
