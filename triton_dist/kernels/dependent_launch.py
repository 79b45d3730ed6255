"""Programmatic dependent launch: a kernel begins while the one in front of it on the stream ends.

A kernel of a decode step takes some ten microseconds. For most of them it loads its weight. Two or three are the end of
one and the beginning of the next: programs end at different times, sums over PEs come back, a launch takes a
microsecond. The weight depends on no kernel in front. So a kernel that is launched this way begins when all programs of
the one in front have loaded what they need, asks for the first bytes of its own weight, which come to the L2 cache
meanwhile, and waits for that kernel's end before it touches anything else.

A kernel that lets the next one begin must have all of its programs on the GPU by then, which a program's own call says
of no other; the hardware counts them. What a kernel in front wrote is visible behind ``wait_for_previous``, and nothing
of it before. The next kernel's programs take their place on the SMs while they wait, so kernels of a chain leave each
other half of the shared memory.

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
    "PREFETCHED",
    "DependentLaunches",
    "dependent",
    "launch_options",
    "let_next_begin",
    "prefetch",
    "wait_for_previous",
]

PREFETCHED = 16 << 20
"""Bytes of a weight that are asked for beforehand: what memory delivers in the few microseconds that there are, and a
third of the L2 cache, which the kernel in front still uses."""


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


@triton.jit
def prefetch(lines, nbytes, LINES: tl.constexpr):
    """Ask for ``nbytes``, a multiple of 16, behind each of ``LINES`` addresses, multiples of 16, to come to the L2
    cache."""
    tl.inline_asm_elementwise(
        "{ cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0; }",
        "=r,l,r",
        [lines.to(tl.int64), tl.full([LINES], 0, tl.int32) + nbytes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
