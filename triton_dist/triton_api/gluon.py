"""Gluon's functions, for the CPU world, which has its own in their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.runtime.jit import JITFunction

__all__ = ["Function", "functions", "give_blocks_a_layout"]


class Function(NamedTuple):
    """A function that Gluon kernels call.

    Attributes:
        module: ``language``, or ``hopper``, ``tma`` or ``mbarrier`` for those of Hopper GPUs.
        is_tritons: whether ``triton.language`` has it, too.
    """

    module: str
    name: str
    itself: Any
    is_tritons: bool


def functions() -> Iterator[Function]:
    """All of them; methods of shared memory that kernels call as functions are of the module ``shared_memory``."""
    for label, module in (("language", gl), ("tma", hopper.tma), ("mbarrier", hopper.mbarrier), ("hopper", hopper)):
        for name, function in vars(module).items():
            if isinstance(function, JITFunction) or getattr(function, "__triton_builtin__", False):
                is_tritons = module is gl and (hasattr(tl, name) or hasattr(tl.core, name))
                yield Function(label, name, function, is_tritons)
    for name, method in vars(gl.shared_memory_descriptor).items():
        if callable(method) and not name.startswith("__"):
            yield Function("shared_memory", name, method, False)


def give_blocks_a_layout() -> None:
    """Let kernels ask a block of the interpreter, ``x.type.layout``, which has none."""
    tl.block_type.layout = gl.AutoLayout()
