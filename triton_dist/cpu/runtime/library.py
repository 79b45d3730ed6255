"""The library, its functions with the types of their arguments, and its failures as exceptions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["PATH", "failing", "function", "waiting"]

PATH = Path(__file__).parents[2] / "_C" / "libtriton_dist_runtime.so"

if not PATH.exists():
    raise ImportError(f"the CPU world's library {PATH} is not there: build it with `make build`, or install the wheel")

_WITH_GIL = ctypes.PyDLL(str(PATH))
_WITHOUT_GIL = ctypes.CDLL(str(PATH))

_FAILURES = {1: RuntimeError, 2: IndexError, 3: MemoryError}


def function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """The library's function ``triton_dist_<name>``; the GIL is kept, since it takes less time than to let go of it."""
    return _typed(getattr(_WITH_GIL, f"triton_dist_{name}"), result, arguments)


def waiting(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """The same for one that waits or copies: other threads of Python run meanwhile."""
    return _typed(getattr(_WITHOUT_GIL, f"triton_dist_{name}"), result, arguments)


def failing(found: Callable[..., Any]) -> Callable[..., None]:
    """``found``, which returns a failure's number, as a function that raises an exception for it."""
    found.errcheck = _check  # type: ignore[attr-defined]
    return found


def _typed(found: Any, result: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    found.restype, found.argtypes = result, arguments
    return found  # type: ignore[no-any-return]


_failure = function("failure", ctypes.c_char_p)


def _check(failure: int, function: object, arguments: object) -> None:
    if failure:
        raise _FAILURES[failure](_failure().decode(errors="replace"))
