"""What the public functions do where PyTorch records gradients, traces or profiles.

No gradient is lost in silence, and none is computed of what was overwritten: kernels store past PyTorch, so autograd is
told here what they have stored to. In a profile, of ``torch.profiler`` or with NVTX ranges, each call is one range that
is named as its operator is (``triton_dist::all_reduce``). Where nothing profiles, a call asks that by one function of
C.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import torch
from torch.profiler import record_function

from triton_dist.kernels.native import NativeCalls
from triton_dist.process_state import of_process
from triton_dist.torch_api import (
    count_writes,
    has_modes,
    is_profiled,
    is_recorded,
    is_traced,
    is_transformed,
    is_wrapper,
    left_out_of_graphs,
    without_memory,
)

__all__ = [
    *("differentiable", "for_inference", "made_again", "outside_of_graphs", "recorded", "records_gradients"),
    *("refuse_gradients", "without_gradients"),
]

_TENSOR, _PARAMETER = torch.Tensor, torch.nn.Parameter
_NO_TENSORS = frozenset({type(None), bool, int, float, str, torch.dtype})
_UNTRACED = "it cannot be traced (by make_fx, torch.jit.trace, with fake tensors, by torch.func)"
_P = ParamSpec("_P")
_R = TypeVar("_R")


def differentiable(operator: Callable[..., Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Have a GEMM go through ``operator``, its functional form, where PyTorch records gradients or traces.

    That form has no ``out``: a call with one is refused if a gradient is wanted, and is left out of compiled graphs.
    """

    def decorate(plain: Callable[_P, _R]) -> Callable[_P, _R]:
        refusal = _refusal(plain.__name__, "with out=", operator)
        name, range_name, native = plain.__name__, _range_name(plain), of_process(NativeCalls)
        native.functions.add(name)

        @functools.wraps(plain)
        def function(a: Any, b: Any, out: Any = None, **options: Any) -> Any:
            compiling, opened = torch.compiler.is_compiling(), None
            traced = compiling or ((has_modes() or is_transformed() or is_recorded()) and is_traced())
            if not traced and is_profiled() and not records_gradients(a, b, out, *options.values()):
                opened = _open(range_name)  # else the operator has a range
            try:
                if not traced and native.call is not None:
                    result = native.call(name, (a, b, out), options)
                    if result is not None:
                        if out is not None:
                            count_writes((out,))
                        return result
                if (former := options.pop("pattern", None)) is not None:
                    options["algorithm"] = former
                    if not compiling:
                        message = f"{plain.__name__}: pattern= is now algorithm="
                        warnings.warn(message, DeprecationWarning, stacklevel=2)
                if traced and out is not None:
                    if compiling:
                        return outside(a, b, out, **options)
                    raise ValueError(refusal)
                if not traced:
                    tensors = a, b, out, *options.values()
                    are_plain = _are_plain(tensors)
                    if not are_plain:
                        _check_plain(plain.__name__, *tensors)
                    if are_plain or not records_gradients(*tensors):
                        result = plain(a, b, out, **options)
                        if are_plain and native.offered is not None:
                            native.take(name, (a, b, out), options, result)
                        if out is not None:
                            count_writes((out,))
                        return result
                    if out is not None:
                        raise ValueError(refusal)
            finally:
                if opened is not None:
                    opened.__exit__(None, None, None)
            return operator(a, b, **options)

        outside = left_out_of_graphs(function, refusal)
        return function  # type: ignore[return-value]

    return decorate


def without_gradients(operator: Callable[..., Any] | None) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Have a function that stores to its arguments refuse those that require gradients, and be left out of graphs.

    It returns the tensor that it has stored to. ``operator`` is its differentiable form, if there is one.
    """

    def decorate(plain: Callable[_P, _R]) -> Callable[_P, _R]:
        refusal = _refusal(plain.__name__, "that stores to its argument", operator)
        name, range_name, native = plain.__name__, _range_name(plain), of_process(NativeCalls)
        native.functions.add(name)

        @functools.wraps(plain)
        def function(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            result: _R
            if torch.compiler.is_compiling():
                result = outside(*args, **kwargs)
                return result
            if (has_modes() or is_transformed() or is_recorded()) and is_traced():
                raise ValueError(refusal)
            opened = _open(range_name) if is_profiled() else None
            try:
                if native.call is not None and (result := native.call(name, args, kwargs)) is not None:
                    count_writes((result,))  # it is where the function has stored to
                    return result
                tensors = (*args, *kwargs.values()) if kwargs else args
                if not _are_plain(tensors):
                    _check_plain(plain.__name__, *tensors)
                    if records_gradients(*tensors):
                        raise ValueError(refusal)
                result = plain(*args, **kwargs)
                if native.offered is not None:
                    native.take(name, args, kwargs, result)
                count_writes((result,))  # type: ignore[arg-type]
                return result
            finally:
                if opened is not None:
                    opened.__exit__(None, None, None)

        outside = left_out_of_graphs(function, refusal)
        return function

    return decorate


def for_inference(operator: Callable[_P, _R]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Have a function that has no gradients at all go through ``operator`` where PyTorch traces."""

    def decorate(plain: Callable[_P, _R]) -> Callable[_P, _R]:
        name, range_name, native = plain.__name__, _range_name(plain), of_process(NativeCalls)
        native.functions.add(name)

        @functools.wraps(plain)
        def function(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if torch.compiler.is_compiling() or ((has_modes() or is_transformed() or is_recorded()) and is_traced()):
                return operator(*args, **kwargs)
            result: _R
            opened = _open(range_name) if is_profiled() else None
            try:
                if native.call is not None and (result := native.call(name, args, kwargs)) is not None:
                    return result
                native.offered = None
                tensors = (*args, *kwargs.values()) if kwargs else args
                if not _are_plain(tensors):
                    _check_plain(plain.__name__, *tensors)
                    if records_gradients(*tensors):
                        message = f"{name}: a tensor requires a gradient, and {name} has none: call it under no_grad()"
                        raise ValueError(message)
                result = plain(*args, **kwargs)
                if native.offered is not None:
                    native.take(name, args, kwargs, result)
                return result
            finally:
                if opened is not None:
                    opened.__exit__(None, None, None)

        return function

    return decorate


def outside_of_graphs(instead: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Have a function be left out of compiled graphs; the error of ``fullgraph=True`` says what to do ``instead``."""

    def decorate(plain: Callable[_P, _R]) -> Callable[_P, _R]:
        range_name, refusal = _range_name(plain), f"{plain.__name__}: torch.compile cannot trace it: {instead}"
        untraced = f"{plain.__name__}: {_UNTRACED}: {instead}"

        @functools.wraps(plain)
        def function(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if torch.compiler.is_compiling():
                result: _R = outside(*args, **kwargs)
                return result
            if (has_modes() or is_transformed() or is_recorded()) and is_traced():
                raise ValueError(untraced)
            if is_profiled():
                with record_function(range_name):
                    return plain(*args, **kwargs)
            return plain(*args, **kwargs)

        outside = left_out_of_graphs(plain, refusal)
        return function

    return decorate


def made_again(
    group: Callable[..., Any] = lambda *args, **kwargs: kwargs.get("group"),
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Have calls of a function be made again by C++. It records no gradients, and is called outside of traces only. If
    it stores to a tensor of the caller's, that is ``out=``.

    Args:
        group: of the function's arguments, whose members make the call.
    """

    def decorate(plain: Callable[_P, _R]) -> Callable[_P, _R]:
        name, native = plain.__name__, of_process(NativeCalls)
        native.functions.add(name)
        refusal = (
            f"{name}: {_UNTRACED}: use what triton_dist.kernels.moe.functional has of it, or call it outside of the"
            " trace"
        )

        @functools.wraps(plain)
        def function(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            result: _R
            if (has_modes() or is_transformed() or is_recorded()) and is_traced():
                raise ValueError(refusal)
            out: Any = kwargs.get("out")
            if native.call is not None and (result := native.call(name, args, kwargs)) is not None:
                if out is not None:
                    count_writes((out,))
                return result
            native.offered = None  # what another function has left, as one that calls this one's parts
            result = plain(*args, **kwargs)
            if native.offered is not None:
                native.take(name, args, kwargs, result, conditions=lambda *args, **kwargs: (group(*args, **kwargs), ()))
            if out is not None:
                count_writes((out,))
            return result

        return function

    return decorate


def recorded(plain: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have calls of a function that torch.compile traces be ranges in profiles of what is not compiled."""
    range_name = _range_name(plain)

    @functools.wraps(plain)
    def function(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if torch.compiler.is_compiling() or not is_profiled():
            return plain(*args, **kwargs)
        with record_function(range_name):
            return plain(*args, **kwargs)

    return function


def _range_name(function: Callable[..., Any]) -> str:
    """As the operator of this function is called, if there is one."""
    of_experts = ".moe." in function.__module__ and not function.__name__.startswith("moe_")
    return f"triton_dist::{'moe_' if of_experts else ''}{function.__name__}"


def _open(range_name: str) -> Any:
    """A range that has begun, and ends with its ``__exit__``: a with-statement would need a frame for the call."""
    opened = record_function(range_name)
    opened.__enter__()
    return opened


def _are_plain(values: Iterable[Any]) -> bool:
    """Whether all tensors are of no subclass but parameters and want no gradient here and now, as nearly always."""
    for value in values:
        kind = type(value)
        if kind is _TENSOR or kind is _PARAMETER:
            if value.requires_grad and torch.is_grad_enabled():
                return False
        elif kind not in _NO_TENSORS and isinstance(value, _TENSOR):
            return False
    return True


def records_gradients(*values: Any) -> bool:
    """Whether one of the tensors among the values wants a gradient, here and now."""
    if not torch.is_grad_enabled():
        return False
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)


def refuse_gradients(function: str, *values: Any) -> None:
    """ValueError if a function of ``moe`` would record no gradient, or store to an ``out`` that wants one."""
    if records_gradients(*values):
        raise ValueError(
            f"{function}: a tensor requires a gradient, which this function does not record: use"
            " triton_dist.kernels.moe.functional, or call it under torch.no_grad()"
        )


def _check_plain(function: str, *tensors: Any) -> None:
    for tensor in tensors:
        if is_wrapper(tensor):
            raise TypeError(f"{function}: {without_memory(tensor)}")


def _refusal(name: str, form: str, operator: Callable[..., Any] | None) -> str:
    instead = "there is no differentiable form of it;"
    if operator is not None:
        instead = f"use triton_dist.kernels.functional.{name}, which returns a new tensor and is differentiable, or"
    return (
        f"{name}: the call {form} has no gradient and cannot be traced by torch.compile, and a tensor requires a"
        f" gradient or the call is traced: {instead} call it under torch.no_grad() and outside of compiled functions"
    )
