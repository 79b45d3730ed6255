"""``@triton_dist.jit``: ``@triton.jit`` for kernels that speak of threads.

A kernel that uses our operations needs no other decorator than Triton's. Triton-distributed's kernels carry this one,
and some of them call ``tid``; those are compiled and interpreted from a syntax tree in which threads are loops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import triton

from triton_dist.compat import threads
from triton_dist.triton_api import front_end

__all__ = ["jit"]


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    version: Any = None,
    repr: Callable[..., Any] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Iterable[int | str] | None = None,
    do_not_specialize_on_alignment: Iterable[int | str] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> Any:
    """``triton.jit``, by the name that Triton-distributed gives it. Arguments are Triton's, and so is the result."""
    options = {
        "version": version,
        "repr": repr,
        "launch_metadata": launch_metadata,
        "do_not_specialize": do_not_specialize,
        "do_not_specialize_on_alignment": do_not_specialize_on_alignment,
        "debug": debug,
        "noinline": noinline,
    }
    if fn is None:
        return functools.partial(_decorated, options=options)
    return _decorated(fn, options)


def _decorated(fn: Callable[..., Any], options: dict[str, Any]) -> Any:
    if not threads.mentioned(fn):
        return triton.jit(fn, **options)
    return front_end.jit_transformed(fn, functools.partial(threads.as_loops, fn=fn), options)
