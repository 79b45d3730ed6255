"""Programmatic dependent launch: a kernel's programs take their places while those of the one in front of it end.

A kernel of a decode step takes some ten microseconds, of which one or two are the end of the kernel in front and its
own launch: programs end at different times, sums over PEs come back, what was written is made visible. A kernel that is
launched this way has its programs on the SMs as soon as these are free, once all programs of the one in front have
called ``let_next_begin``. They wait for that kernel's end, in ``wait_for_previous``, before they touch anything.

A kernel lets the next one begin when its own loads are done, not before. Programs of the next one would take places on
the SMs that have room then, some of them two of one SM, and stay there: they would load unevenly, and up to 18 %
longer (docs/decisions/0130). A kernel that lets the next one begin must have all of its programs on the GPU by then,
which a program's own call says of no other; the hardware counts them. What a kernel in front wrote is visible behind
``wait_for_previous``, and nothing of it before.

Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"; PTX ISA, ``griddepcontrol``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from triton_dist import environment
from triton_dist.kernels.device import gpu
from triton_dist.world import World
from triton_dist.world.current import current_world

__all__ = [
    "DependentLaunches",
    "dependent",
    "launch_options",
    "let_next_begin",
    "wait_for_previous",
]


class DependentLaunches:
    """Whether one world's kernels of few rows are launched this way."""

    def __init__(self, world: World) -> None:
        self.possible = world.kind == "gpu" and torch.version.hip is None and gpu().capability >= (9, 0)
        self.on = self.possible and bool(environment.get("TRITON_DIST_DEPENDENT_LAUNCH"))

    def close(self) -> None:
        pass

    @contextmanager
    def turned_on(self) -> Iterator[None]:
        """On where it is possible, whatever the environment says: for comparisons."""
        before, self.on = self.on, self.possible
        try:
            yield
        finally:
            self.on = before


def dependent() -> bool:
    """Whether kernels of few rows are launched this way: on NVIDIA's GPUs from Hopper on, if
    ``TRITON_DIST_DEPENDENT_LAUNCH`` was set when the world was made."""
    return current_world().own(DependentLaunches).on


def launch_options(*, dependent: bool) -> dict[str, Any]:
    """Triton's options of a launch."""
    return {"launch_pdl": True} if dependent else {}


@triton.jit
def wait_for_previous(DEPENDENT: tl.constexpr):
    """Wait until the kernel in front has ended, and what it wrote is visible."""
    if DEPENDENT:
        gdc_wait()


@triton.jit
def let_next_begin(DEPENDENT: tl.constexpr):
    """The next kernel may begin when all programs have called this."""
    if DEPENDENT:
        gdc_launch_dependents()
