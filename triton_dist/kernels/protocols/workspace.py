"""The workspace: symmetric memory that kernels keep between their launches, such as barrier state, slots and staging.

It belongs to the world: allocated by all PEs when a kernel of this package first needs it, and freed with the world. An
allocation has a name and is zeroed once. No launch resets it; each leaves it as the next one expects it, without the
host. So kernels may be captured in CUDA graphs and replayed in any order, the same on every PE.
"""

from __future__ import annotations

import torch

import triton_dist
from triton_dist.kernels.protocols.barrier import PROGRAMS, ROW
from triton_dist.world import World
from triton_dist.world.current import current_world

__all__ = ["Workspace", "barrier_state", "is_symmetric", "refuse_in_capture", "symmetric_workspace"]


class Workspace:
    """The symmetric memory of one world's kernels, by name."""

    def __init__(self, world: World) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def close(self) -> None:
        self.tensors.clear()


def symmetric_workspace(name: str, numel: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """The symmetric tensor ``name``, of at least ``numel`` elements, which were zero when it was made.

    *Collective* when it is made, or made anew because more elements are wanted than it has; graphs that were captured
    with the smaller one go on using that.

    Raises:
        RuntimeError: it would have to be made while a CUDA graph is captured: run the kernel once before.
        MemoryError: the symmetric heap is full.
    """
    tensors = current_world().own(Workspace).tensors
    found = tensors.get(name)
    if found is None or found.numel() < numel:
        refuse_in_capture(f"the kernels' symmetric workspace {name!r} does not exist yet")
        if found is not None:
            tensors.setdefault(f"{name}, {found.numel()} elements", found)
        found = tensors[name] = triton_dist.zeros(numel, dtype=dtype)
    assert found.dtype == dtype, f"{name} is of {found.dtype}, and {dtype} is asked for"
    return found


def refuse_in_capture(what: str) -> None:
    """RuntimeError, beginning with ``what``, if a CUDA graph is being captured: memory cannot be made then."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{what}, and cannot be made while a CUDA graph is captured: run the same call once before")


def barrier_state(name: str = "") -> torch.Tensor:
    """State for :func:`~triton_dist.kernels.protocols.barrier.barrier`. Kernels that may run at the same time on one PE
    need states of different names. *Collective* the first time."""
    return symmetric_workspace(f"barrier {name}", PROGRAMS * ROW)


def is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in this PE's part of the symmetric heap."""
    world = current_world()
    try:
        world.peer(tensor, world.pe)
    except ValueError:
        return False
    return True
