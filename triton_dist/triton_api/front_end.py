"""Triton's compiler before it makes IR: which Python it accepts in a kernel, its errors, and kernels as it keeps them.

All of this is the same in the version lines of Triton that are known, but for ``CHAINS_COMPARISONS``
and ``WHILE_TAKES_NUMBERS``.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import triton
import triton.language as tl
from triton._utils import _tuple_create
from triton.compiler.code_generator import CodeGenerator, _condition_types
from triton.compiler.errors import CompilationError, UnsupportedLanguageConstruct
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITCallable, JITFunction, _triton_jit_function_registry

__all__ = [
    "BUILTIN_NAMES",
    "CHAINS_COMPARISONS",
    "CONDITION_TYPES",
    "WHILE_TAKES_NUMBERS",
    "CompilationError",
    "accepts",
    "is_known_global",
    "jit_transformed",
    "line_of_error",
    "line_of_kernel",
    "refuse_construct",
    "tuple_like",
]

BUILTIN_NAMES = frozenset(CodeGenerator.builtin_namespace)
"""Python's names that mean something in kernels."""

CHAINS_COMPARISONS = hasattr(CodeGenerator, "_apply_boolean_values")
"""Whether kernels may say ``a < b < c``: since Triton 3.9."""

WHILE_TAKES_NUMBERS = CHAINS_COMPARISONS
"""Whether ``while n:`` means ``while n != 0:``, as ``if n:`` does: since the same version."""

CONDITION_TYPES = tuple(_condition_types)
"""The types of constants that may stand in the condition of an ``if``."""


def accepts(node: ast.stmt | ast.expr) -> bool:
    """Whether the compiler knows syntax of this kind."""
    return hasattr(CodeGenerator, f"visit_{type(node).__name__}")


def refuse_construct(message: str) -> NoReturn:
    """Raise the compiler's error for what it does not support, without a line."""
    error = UnsupportedLanguageConstruct(None, None, message)
    error.message = message
    raise error


def tuple_like(given: tuple[Any, ...], values: Iterable[Any]) -> Any:
    """A tuple of ``values`` of the type of ``given``, which may be a named tuple."""
    return _tuple_create(given, values)


def is_known_global(name: str, value: Any) -> bool:
    """Whether kernels may use a global variable: the rule of ``CodeGenerator._define_name_lookup``."""
    module = getattr(value, "__module__", "") or ""
    return (
        value is None
        or name in BUILTIN_NAMES
        or isinstance(value, (types.ModuleType, JITCallable, InterpretedFunction, tl.dtype, tl.constexpr))
        or getattr(value, "__triton_builtin__", False)
        or getattr(value, "__triton_aggregate__", False)
        or module.startswith(("triton.language", "triton.experimental.gluon.language"))
        or (isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"))
        or bool(triton.knobs.compilation.allow_non_constexpr_globals)
    )


# ---- kernels that are compiled from another syntax tree than they are written as


def jit_transformed(
    fn: Callable[..., Any], transform: Callable[[ast.Module], ast.Module], options: dict[str, Any]
) -> Any:
    """``triton.jit(fn, **options)``, for a kernel that is compiled and interpreted as ``transform`` makes its tree.

    Errors still show the lines as they were written.
    """
    kernel = (InterpretedFunction if triton.knobs.runtime.interpret else _Transformed)(fn, **options)
    kernel.transform = transform  # which our interpreter asks for
    return kernel


class _Transformed(JITFunction[Any]):  # type: ignore[misc]
    transform: Callable[[ast.Module], ast.Module]

    def parse(self) -> ast.Module:
        return self.transform(super().parse())


# ---- places


def line_of_kernel(kernel: Any) -> tuple[str, int]:
    """File and line where a kernel begins."""
    while not isinstance(kernel, JITCallable):
        kernel = kernel.fn
    decorators = next((n for n, line in enumerate(kernel.raw_src) if line.strip().startswith("def ")), 0)
    return str(kernel.fn.__code__.co_filename), int(kernel.starting_line_number) + decorators


def line_of_error(kernel: Any, error: Exception) -> tuple[str, int, str] | None:
    """File, line and message of an error of the compilation of ``kernel``; None if it names no line of source. The
    message may be empty, as that of an assertion.

    Of calls of functions it is the line of the innermost one that is not Triton's own.
    """
    places = []
    while isinstance(error, CompilationError):
        # The message without the quoted source.
        message = str(error.error_message or error.__cause__ or str(error).splitlines()[-1])
        if hasattr(error.node, "lineno") and (function := _function_of(kernel, error)):
            file, first = line_of_kernel(function)
            places.append((file, first + error.node.lineno - 1))
        if not isinstance(error.__cause__, CompilationError):
            break
        error = error.__cause__  # from the call to the error in the called function
    if not places:
        return None
    users = [place for place in places if not place[0].startswith(_TRITON)]
    return *(users or places)[-1], message


_TRITON = str(Path(triton.__file__).parent)


def _function_of(kernel: Any, error: CompilationError) -> Any:
    """The function that an error is in; None if it is none that Triton knows."""
    functions = [kernel, *_triton_jit_function_registry.values()]
    return next((function for function in functions if function.src == error.src), None)
