"""The decorator that makes a function callable from a kernel, compiled or interpreted."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from triton.language.core import TRITON_BUILTIN
from triton.runtime import interpreter

__all__ = ["builtin"]

_F = TypeVar("_F", bound=Callable[..., Any])


def builtin(function: _F) -> _F:
    """Let ``@triton.jit`` code call ``function``, which takes its semantic in the keyword ``_semantic``.

    Triton's compiler passes the semantic itself. Its interpreter runs a kernel as Python and patches only Triton's own
    functions, so there ours take the interpreter's.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        if _semantic is None:
            if not hasattr(interpreter.interpreter_builder, "shmem_op"):
                raise ValueError(
                    f"triton_dist.language.{function.__name__} was called outside of a kernel: "
                    "call it from a @triton.jit function"
                )
            _semantic = interpreter.interpreter_semantic
        return function(*args, _semantic=_semantic, **kwargs)

    setattr(wrapper, TRITON_BUILTIN, True)
    wrapper.signature = inspect.signature(function)  # type: ignore[attr-defined]  # as Triton's own builtins have it
    return cast(_F, wrapper)
