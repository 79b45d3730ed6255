"""Compiles every kernel that the CPU world launches for a GPU target, without a GPU (``TRITON_DIST_CHECK_COMPILE``).

A kernel is compiled before it is interpreted, with the types, constants, alignments and options of the launch; each
combination is compiled once. A failure is a finding in a checked run, and an error otherwise. It may end the compiler's
process, as layouts do that MLIR asserts never to see, so a fork of this one compiles.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Hashable
from typing import Any

from triton_dist import environment
from triton_dist.compiler import hooks, transport
from triton_dist.cpu.world import current
from triton_dist.testing.child import Ended, call_in_child
from triton_dist.triton_api.front_end import line_of_error, line_of_kernel
from triton_dist.triton_api.launch_compiler import LaunchCompiler, before_launches, makes_compiled_functions
from triton_dist.triton_api.mbarriers import forgotten_mbarriers
from triton_dist.triton_api.printed_errors import exit_report, first_error

__all__ = ["DoesNotCompileError", "install"]

_SHARED_MEMORY = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_90": 232448, "sm_100": 232448, "gfx942": 65536}
"""The largest shared memory of a program, in bytes; a launch that needs more is an error on the GPU."""


_FORGOTTEN = (
    "a barrier in shared memory is initialised, and no partition uses it. Triton gives its memory to something else,"
    " and the GPU may write the barrier there later: invalidate it behind its last use (mbarrier.invalidate), or leave"
    " it out"
)


_Failure = tuple[str, int, str]
"""File, line and message."""


class DoesNotCompileError(RuntimeError):
    """A kernel that runs in the CPU world does not compile. The message has the line and the compiler's error."""


def install(target: str) -> None:
    """Make later launches compile for ``target``, such as ``"sm_90"`` or ``"gfx942"``. Called once.

    Kernels must be ``JITFunction`` objects, which the CPU world interprets, too.
    """
    if not makes_compiled_functions():
        raise RuntimeError(
            "TRITON_DIST_CHECK_COMPILE cannot compile kernels under TRITON_INTERPRET: unset TRITON_INTERPRET"
        )
    hooks.install()
    before_launches(_Checker(target).check)


class _Checker:
    def __init__(self, target: str) -> None:
        self._name = target
        self._compiler = LaunchCompiler(target)
        self._compiled: set[tuple[Any, Hashable]] = set()

    def check(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            specialization, compiled = self._compiler.prepare(kernel, args, kwargs)
        except Exception as error:  # as of a name that a module has not, which Triton looks for before it compiles
            file, line, text = _explained(kernel, error)
            self._report(kernel, *((file, line) if line else line_of_kernel(kernel)), text)
            return
        key = kernel, specialization
        if key in self._compiled:
            return
        self._compiled.add(key)
        asked = environment.get("TRITON_DIST_TRANSPORT")
        with transport.using("p2p" if asked == "auto" else asked):
            ended = call_in_child(lambda: self._failures(kernel, compiled))
        sys.stderr.write(ended.errors)
        for file, line, text in _failures_of(kernel, ended):
            self._report(kernel, file, line, text)

    def _failures(self, kernel: Any, compiled: Callable[[], Any]) -> list[_Failure]:
        """Why the kernel cannot be used on the GPU."""
        try:
            binary = compiled()
        except Exception as error:
            return [_explained(kernel, error)]
        found: list[_Failure] = [(file, line, _FORGOTTEN) for file, line in forgotten_mbarriers(binary.asm["ttgir"])]
        available, shared = _SHARED_MEMORY.get(self._name), binary.metadata.shared
        if available is not None and shared > available:
            text = f"it needs {shared} bytes of shared memory, but a program has at most {available}"
            found.append((*line_of_kernel(kernel), text))
        return found

    def _report(self, kernel: Any, file: str, line: int, text: str) -> None:
        world, name = current(), kernel.fn.__name__
        if world is None or world.recorder is None:
            raise DoesNotCompileError(f"{file}:{line}: kernel {name} does not compile for {self._name}: {text}")
        world.recorder.does_not_compile(file, line, name, self._name, text)


def _explained(kernel: Any, error: Exception) -> _Failure:
    """File, line and message of a compilation error; line 0 if it says none."""
    if place := line_of_error(kernel, error):
        return place
    if found := re.match(r"(?P<file>[^\n:]+):(?P<line>\d+)(:\d+)?: (?P<text>.*)", str(error), re.DOTALL):
        return found["file"], int(found["line"]), found["text"]
    return line_of_kernel(kernel)[0], 0, f"{type(error).__name__}: {error}"


def _failures_of(kernel: Any, ended: Ended) -> list[_Failure]:
    """Those that a fork has found, or its own end. Where they name no line, what MLIR has printed may name it."""
    printed = first_error(ended.errors)
    place = (printed.file, printed.line) if printed and printed.file else line_of_kernel(kernel)
    message = " ".join(printed.text.splitlines()) if printed else ""
    if ended.status:
        cause = signal.Signals(-ended.status).name if ended.status < 0 else f"exit status {ended.status}"
        return [(*place, f"{message or exit_report(ended.errors)} (the compiler ended by {cause})")]
    found = []
    for file, line, text in ended.value:
        if message and not (line and text):
            text = message
        found.append((file, line, text) if line else (*place, text))
    return found
