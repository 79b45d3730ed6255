"""The decorator that makes a function callable from a kernel, compiled or interpreted."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

from triton_dist import triton_api

__all__ = ["builtin"]

_F = TypeVar("_F", bound=Callable[..., Any])


def builtin(function: _F) -> _F:
    """Let ``@triton.jit`` code call ``function``, which takes its semantic in the keyword ``_semantic``.

    Triton's compiler passes the semantic itself. Its interpreter runs a kernel as Python and patches only Triton's own
    functions, so there ours take the interpreter's.
    """

    interpreted = triton_api.replayed(function)
    signature = inspect.signature(function)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    most = math.inf if inspect.Parameter.VAR_POSITIONAL in kinds else _positional(signature)

    @functools.wraps(function)
    def wrapper(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        if len(args) > most:  # else one would be taken for the semantic
            raise TypeError(f"{function.__name__}() takes {most} positional arguments, and {len(args)} were given")
        if _semantic is not None:
            return function(*args, _semantic=_semantic, **kwargs)
        if not triton_api.is_interpreting():
            raise ValueError(
                f"triton_dist.language.{function.__name__} was called outside of a kernel: "
                "call it from a @triton.jit function"
            )
        return interpreted(*args, **kwargs)

    triton_api.mark_as_builtin(wrapper)
    wrapper.signature = signature  # type: ignore[attr-defined]  # as Triton's own builtins have it
    return cast(_F, wrapper)


def _positional(signature: inspect.Signature) -> int:
    """How many arguments may be given by position; the semantic may not."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in by_position for name, parameter in signature.parameters.items() if name != "_semantic")
