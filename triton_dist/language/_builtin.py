"""The decorator that makes a function callable from a kernel, compiled or interpreted."""

from __future__ import annotations

import functools
import inspect
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

    @functools.wraps(function)
    def wrapper(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        if _semantic is not None:
            return function(*args, _semantic=_semantic, **kwargs)
        if not triton_api.is_interpreting():
            raise ValueError(
                f"triton_dist.language.{function.__name__} was called outside of a kernel: "
                "call it from a @triton.jit function"
            )
        return interpreted(*args, **kwargs)

    triton_api.mark_as_builtin(wrapper)
    wrapper.signature = inspect.signature(function)  # type: ignore[attr-defined]  # as Triton's own builtins have it
    return cast(_F, wrapper)
