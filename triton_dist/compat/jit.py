"""``@triton_dist.jit``: ``@triton.jit`` for kernels that speak of threads.

A kernel that uses our operations needs no other decorator than Triton's. Triton-distributed's kernels carry this one,
and some of them call ``tid``; those are compiled and interpreted from a syntax tree in which threads are loops.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from typing import Any

import triton
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from triton_dist.compat import threads

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
    return (_Interpreted if triton.knobs.runtime.interpret else _Compiled)(fn, **options)


class _WithThreads:
    fn: Callable[..., Any]

    def transform(self, tree: ast.Module) -> ast.Module:
        """The kernel's syntax tree as it is compiled and interpreted."""
        return threads.as_loops(tree, self.fn)


class _Compiled(_WithThreads, JITFunction[Any]):  # type: ignore[misc]
    """What Triton compiles is what :meth:`parse` returns; errors still show the lines as they were written."""

    def parse(self) -> ast.Module:
        return self.transform(super().parse())


class _Interpreted(_WithThreads, InterpretedFunction):  # type: ignore[misc]
    """The CPU world's interpreter asks for :meth:`transform`."""
