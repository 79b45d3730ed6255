"""Compiles every kernel that the CPU world launches for a GPU target, without a GPU (``TRITON_DIST_CHECK_COMPILE``).

A kernel is compiled before it is interpreted, with the types, constants, alignments and options of the launch; each
combination is compiled once. A failure is a finding in a checked run, and an error otherwise.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.compiler.errors import CompilationError
from triton.runtime.jit import (
    JITFunction,
    _triton_jit_function_registry,
    create_function_from_signature,
    get_jit_fn_file_line,
)

from triton_dist import environment
from triton_dist.compiler import hooks, transport
from triton_dist.cpu.world import current

__all__ = ["DoesNotCompileError", "install"]

_SHARED_MEMORY = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90": 232448, "sm_100": 232448, "gfx942": 65536}
"""The largest shared memory of a program, in bytes; a launch that needs more is an error on the GPU."""


class DoesNotCompileError(RuntimeError):
    """A kernel that runs in the CPU world does not compile. The message has the line and the compiler's error."""


def install(target: str) -> None:
    """Make later launches compile for ``target``, such as ``"sm_90"`` or ``"gfx942"``. Called once.

    Kernels must be ``JITFunction`` objects, which the CPU world interprets, too.
    """
    if not isinstance(triton.language.sum, JITFunction):
        raise RuntimeError(
            "TRITON_DIST_CHECK_COMPILE cannot compile kernels under TRITON_INTERPRET: unset TRITON_INTERPRET"
        )
    hooks.install()
    interpreted, compiler = JITFunction.run, _Compiler(target)

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiler.compile(self, args, dict(kwargs))
        return interpreted(self, *args, grid=grid, warmup=warmup, **kwargs)

    JITFunction.run = run


class _Compiler:
    def __init__(self, target: str) -> None:
        self._name = target
        if target.startswith("gfx"):
            self._target = GPUTarget("hip", target, 64)
        else:
            self._target = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
        self._backend = make_backend(self._target)
        self._binder = cache(
            lambda kernel: create_function_from_signature(kernel.signature, kernel.params, self._backend)
        )
        self._compiled: set[tuple[Any, str]] = set()

    def compile(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kwargs["debug"] = kwargs.get("debug", kernel.debug) or knobs.runtime.debug
        kwargs["instrumentation_mode"] = knobs.compilation.instrumentation_mode
        bound, specialization, options = self._binder(kernel)(*args, **kwargs)
        key = kernel, f"{specialization} {options}"
        if key in self._compiled:
            return
        self._compiled.add(key)
        asked = environment.get("TRITON_DIST_TRANSPORT")
        try:
            with transport.using("p2p" if asked == "auto" else asked):
                packed, signature, constants, attributes = kernel._pack_args(
                    self._backend, kwargs, bound, specialization, options
                )
                source = ASTSource(kernel, signature, constants, attributes)
                compiled = triton.compile(source, target=self._target, options=packed.__dict__)
        except Exception as error:
            self._report(kernel, *_explained(kernel, error))
            return
        available = _SHARED_MEMORY.get(self._name)
        if available is not None and compiled.metadata.shared > available:
            text = f"it needs {compiled.metadata.shared} bytes of shared memory, but a program has at most {available}"
            self._report(kernel, *_start_of(kernel), text)

    def _report(self, kernel: Any, file: str, line: int, text: str) -> None:
        world, name = current(), kernel.fn.__name__
        if world is None or world.recorder is None:
            raise DoesNotCompileError(f"{file}:{line}: kernel {name} does not compile for {self._name}: {text}")
        world.recorder.does_not_compile(file, line, name, self._name, text)


def _explained(kernel: Any, error: Exception) -> tuple[str, int, str]:
    """File, line and message of a compilation error."""
    while isinstance(error, CompilationError) and isinstance(error.__cause__, CompilationError):
        error = error.__cause__  # from the call to the error in the called function
    if isinstance(error, CompilationError) and hasattr(error.node, "lineno"):
        functions = [kernel, *_triton_jit_function_registry.values()]
        if function := next((function for function in functions if function.src == error.src), None):
            file, first = get_jit_fn_file_line(function)
            return file, first + error.node.lineno - 1, _last_words(error)
    if place := re.match(r"(?P<file>[^\n:]+):(?P<line>\d+)(:\d+)?: (?P<text>.*)", str(error), re.DOTALL):
        return place["file"], int(place["line"]), place["text"]
    return *_start_of(kernel), f"{type(error).__name__}: {error}"


def _last_words(error: CompilationError) -> str:
    """The message without the quoted source."""
    return str(error.error_message or error.__cause__ or str(error).splitlines()[-1])


def _start_of(kernel: Any) -> tuple[str, int]:
    file, line = get_jit_fn_file_line(kernel)
    return str(file), int(line)
