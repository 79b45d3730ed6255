"""Compiles what a launch would, for a GPU that need not be there. The same in the version lines that are known."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Container, Hashable
from functools import cache
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource, make_backend
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.cache import triton_key
from triton.runtime.jit import JITFunction, create_function_from_signature

__all__ = [
    "LaunchCompiler",
    "before_launches",
    "compile_function",
    "gpu_target",
    "kernel_arguments",
    "makes_compiled_functions",
]


def gpu_target(name: str) -> Any:
    """Triton's target of that name: ``"sm_90"``, ``"gfx942"``.

    Raises:
        ValueError: that is no name of a GPU, or Triton's assembler compiles for no such GPU of NVIDIA's. LLVM would end
            the process.
    """
    if not re.fullmatch(r"(sm_)?\d+|gfx[0-9a-f]+", name):
        raise ValueError(f"{name!r} is no GPU: say sm_90, gfx942, …")
    if name.startswith("gfx"):
        return GPUTarget("hip", name, 64)
    number = int(name.removeprefix("sm_"))
    if number not in _compute_capabilities(get_ptxas(number).path):
        paths = {get_ptxas(arch).path for arch in (number, 70, 999)}  # Triton has an assembler for newer ones
        known = {one for path in paths for one in _compute_capabilities(path) if get_ptxas(one).path == path}
        numbers = ", ".join(map(str, sorted(known)))
        raise ValueError(
            f"Triton {triton.__version__} compiles for no compute capability {number}; it does for {numbers}"
        )
    return GPUTarget("cuda", number, 32)


@cache
def _compute_capabilities(ptxas: str) -> frozenset[int]:
    """What an assembler compiles for, from 70 on: the first that has a memory model."""
    told = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
    return frozenset(number for text in re.findall(r"'sm_(\d+)'", told) if (number := int(text)) >= 70)


def kernel_arguments(kernel: Any) -> tuple[list[str], frozenset[str]]:
    """The names of a kernel's arguments, and those of them that are ``tl.constexpr``."""
    return list(kernel.arg_names), frozenset(p.name for p in kernel.params if p.is_constexpr)


def compile_function(
    kernel: Any,
    target: str,
    types: dict[str, str],
    constants: dict[str, Any],
    aligned: Container[str],
    options: dict[str, Any],
) -> Any:
    """Compile a ``triton.jit`` function for arguments of given types, whatever Triton's cache holds.

    Triton finds compiled kernels by the text of their source, so its cache may hold this function as compiled from a
    file of another path, which the IR's locations then name.

    Args:
        target: ``"sm_90"``, ``"gfx942"``.
        types: of all arguments, in their order; ``"constexpr"`` of those in ``constants``.
        aligned: those that are multiples of 16.
        options: of the backend, such as ``num_warps``.
    """
    attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(types) if name in aligned}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=attributes)
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        return triton.compile(source, target=gpu_target(target), options=options)


def makes_compiled_functions() -> bool:
    """Whether ``triton.jit`` made functions for the compiler when Triton was imported."""
    return isinstance(triton.language.sum, JITFunction)


def before_launches(hook: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]) -> None:
    """Have ``hook(kernel, args, kwargs)`` called before each launch of a kernel that is made for the compiler."""
    plain = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        hook(self, args, dict(kwargs))
        return plain(self, *args, grid=grid, warmup=warmup, **kwargs)

    JITFunction.run = run


class LaunchCompiler:
    """For one GPU: ``"sm_90"``, ``"gfx942"``."""

    def __init__(self, target: str) -> None:
        self._target = gpu_target(target)
        self._backend = make_backend(self._target)
        self._binder = cache(
            lambda kernel: create_function_from_signature(kernel.signature, kernel.params, self._backend)
        )
        triton_key()  # reads all of Triton, once in a process: not in each fork that compiles

    def prepare(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Hashable, Callable[[], Any]]:
        """What tells this launch's binary from others of the kernel, and a function that compiles and returns it."""
        kwargs["debug"] = kwargs.get("debug", kernel.debug) or knobs.runtime.debug
        kwargs["instrumentation_mode"] = knobs.compilation.instrumentation_mode
        bound, specialization, options = self._binder(kernel)(*args, **kwargs)

        def compiled() -> Any:
            packed, signature, constants, attributes = kernel._pack_args(
                self._backend, kwargs, bound, specialization, options
            )
            source = (GluonASTSource if kernel.is_gluon() else ASTSource)(kernel, signature, constants, attributes)
            return triton.compile(source, target=self._target, options=packed.__dict__)

        return f"{specialization} {options}", compiled
