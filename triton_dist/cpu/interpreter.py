"""How the CPU world interprets kernels, whether they were decorated before or after triton_dist was imported."""

from __future__ import annotations

from triton_dist.cpu import bfloat16
from triton_dist.cpu.builder import CpuBuilder
from triton_dist.cpu.executor import Executor
from triton_dist.cpu.kernel_source import rewritten
from triton_dist.triton_api.interpreter import Interpretation, interpret

__all__ = ["install"]


def install(*, compilable: bool = False) -> None:
    """Interpret every kernel of this process in the CPU world from now on. A second call changes nothing.

    ``compilable``: functions that ``triton.jit`` makes from now on can also be compiled.
    """
    interpret(Interpretation(CpuBuilder, Executor, rewritten, bfloat16.reducing), compilable=compilable)
