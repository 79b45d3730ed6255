"""Copies between a tensor of this process and a symmetric one on a PE, by hosts.

Where the PE's memory is mapped, torch copies. Elsewhere the transport does, one contiguous run, or one row of elements
at a stride, at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch

from triton_dist.cpu.memory import SymmetricMemory
from triton_dist.cpu.recorder import Recorder
from triton_dist.world.teams import Team

__all__ = ["CopyingWorld", "read_from", "write_to"]


class CopyingWorld(Protocol):
    """What copies use of their world."""

    pe: int
    heap: SymmetricMemory
    recorder: Recorder | None

    def is_reachable(self, pe: int) -> bool: ...

    def peer(self, tensor: torch.Tensor, pe: int) -> torch.Tensor: ...

    def together(self, team: Team, call: str, value: str = "") -> list[str]: ...


def write_to(world: CopyingWorld, dst: torch.Tensor, src: torch.Tensor, pe: int) -> None:
    """Copy ``src`` to the symmetric ``dst`` on ``pe``: the same shape and dtype, any strides."""
    if world.is_reachable(pe):
        world.peer(dst, pe).copy_(src)
        return
    size = dst.itemsize
    for there, stride, here, here_stride, count in _rows(dst, src):
        offset = there - world.heap.base(world.pe)
        _record(world, "put", pe, offset, stride, size, count, writes=True)
        if stride == here_stride == size:
            world.heap.write(pe, offset, here, count * size)
        else:
            world.heap.write_strided(pe, offset, stride, here, here_stride, size, count)
    world.heap.quiet()


def read_from(world: CopyingWorld, dst: torch.Tensor, src: torch.Tensor, pe: int) -> None:
    """Copy the symmetric ``src`` on ``pe`` to ``dst``: the same shape and dtype, any strides."""
    if world.is_reachable(pe):
        dst.copy_(world.peer(src, pe))
        return
    size = src.itemsize
    for there, stride, here, here_stride, count in _rows(src, dst):
        offset = there - world.heap.base(world.pe)
        _record(world, "get", pe, offset, stride, size, count, writes=False)
        if stride == here_stride == size:
            world.heap.read(pe, offset, here, count * size)
        else:
            world.heap.read_strided(pe, offset, stride, here, here_stride, size, count)


def _rows(symmetric: torch.Tensor, local: torch.Tensor) -> Iterator[tuple[int, int, int, int, int]]:
    """Address and stride in bytes in both tensors, and the number of elements, of runs that are both whole."""
    size = symmetric.itemsize
    if symmetric.is_contiguous() and local.is_contiguous():
        yield symmetric.data_ptr(), size, local.data_ptr(), size, symmetric.numel()
        return
    if symmetric.dim() == 0:
        symmetric, local = symmetric.view(1), local.view(1)
    *outer, count = symmetric.shape
    for index in np.ndindex(*outer):
        there, here = symmetric[index], local[index]
        yield there.data_ptr(), there.stride(0) * size, here.data_ptr(), here.stride(0) * size, count


def _record(
    world: CopyingWorld, what: str, pe: int, offset: int, stride: int, size: int, count: int, *, writes: bool
) -> None:
    if world.recorder is not None:
        addresses = world.heap.base(pe) + offset + stride * np.arange(count, dtype=np.int64)
        world.recorder.host_block(what, addresses, size, writes)
