"""Functional calls that C++ makes again: a new result, and the one call of a kernel that stores to it.

An operator's function looks at its arguments, makes a result, and calls a kernel's function, as
:func:`triton_dist.kernels.all_reduce`. Where that call is one launch of the caller's tensors and of the result, and
PyTorch's dispatcher would do nothing (``operator.py``), C++ makes the whole of it, as it does without an operator
(``kernels/native.py``).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from triton_dist import torch_api
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.native import NativeCalls
from triton_dist.native_calls import Guard
from triton_dist.process_state import of_process
from triton_dist.world.teams import Team

__all__ = ["repeated"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def repeated(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have calls of ``function`` made again by C++, where they are a call of the kernels' function of its name and
    nothing else that is seen: an operator that calls several, or stores to its result afterwards, must not be."""
    kernel, native = function.__name__, of_process(NativeCalls)
    name = sys.intern(f"functional.{kernel}")  # C++ tells names by their identity
    signature = inspect.signature(function)
    native.functions.add(kernel)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        result: _R
        if native.call is not None and (result := native.call(name, args, kwargs)) is not None:
            return result
        native.offered = None
        result = function(*args, **kwargs)
        if native.offered is not None:
            native.take(name, args, kwargs, result, kernel, conditions)
        return result

    def conditions(*args: Any, **kwargs: Any) -> tuple[Any, tuple[Guard, ...]] | None:
        group = signature.bind(*args, **kwargs).arguments.get("group")
        guards = _guards(group)
        return (group, guards) if guards and torch_api.operators_are_unobserved() else None

    return call


def _guards(group: Any) -> tuple[Guard, ...]:
    """What must hold for an operator of ``group`` to be called without the dispatcher, as data. Empty if it is not
    known of this group which communicator it will mean."""
    resolves: tuple[Guard, ...] = ()
    if torch_api.is_process_group(group):  # which may have been destroyed
        find = functools.partial(torch_api.process_groups(), group.group_name)
        resolves = (Guard(find, "call", (), "is", group),)
    elif group is not None and not isinstance(group, (Communicator, Team)):
        return ()
    level = Guard(torch_api.forward_mode(), "attributes", ("_current_level",), "equal", -1)
    return (*resolves, level, *(Guard(sees, "call", (), "empty") for sees in torch_api.observers()))
