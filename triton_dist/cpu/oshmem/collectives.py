"""The library's own collectives, for those of hosts that fit its definition (OpenSHMEM 1.4: active sets and pSync).

An active set has a stride that is a power of two. ``dst`` and ``src`` do not overlap, and count whole elements of 4 or
8 bytes. For other calls :class:`OshmemCollectives` answers False, on all members alike, and does nothing. So it does
for reductions of floats: the library adds in an order of its own, and has its own minimum of a NaN. Sums of 16 bits are
left out as well: Open MPI 4.1.4 saturates them (its AVX operations), where others wrap around.

Collectives of kernels are not done in this way: the library's block the process, and so the grid's other programs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from triton_dist.cpu.oshmem.heap import OshmemHeap
from triton_dist.cpu.oshmem.library import Library

__all__ = ["SYNC_BYTES", "OshmemCollectives"]

_SYNC_LONGS, _WORK_BYTES = 4096, 1 << 20
_SYNC_VALUE = -1  # Open MPI's SHMEM_SYNC_VALUE
SYNC_BYTES = _SYNC_LONGS * 8 + _WORK_BYTES
"""What the collectives take of each heap."""

_TYPES = {torch.int32: "int", torch.int64: "long"}


class OshmemCollectives:
    """``members`` have all come to the same call before each of these: pSync is free then."""

    def __init__(self, library: Library, heap: OshmemHeap, pe: int, n_pes: int, offset: int) -> None:
        self._library, self._pe, self._n_pes = library, pe, n_pes
        self._sync = heap.base(pe) + offset
        self._work = self._sync + _SYNC_LONGS * 8
        (ctypes.c_long * _SYNC_LONGS).from_address(self._sync)[:] = [_SYNC_VALUE] * _SYNC_LONGS

    def barrier(self, members: range) -> bool:
        if members == range(self._n_pes):
            self._library.call(self._library.barrier_all)
            return True
        return self._called(members, self._library.barrier)

    def broadcast(self, members: range, dst: torch.Tensor, src: torch.Tensor, root: int) -> bool:
        size = _element(dst, src)
        if not size:
            return False
        done = self._called(
            members, self._library.broadcast[size], dst.data_ptr(), src.data_ptr(), _nbytes(src) // size, root
        )
        if done and members[root] == self._pe:  # whose dst the library leaves alone
            dst.copy_(src.view(dst.shape))
        return done

    def fcollect(self, members: range, dst: torch.Tensor, src: torch.Tensor) -> bool:
        size = _element(dst, src)
        arguments = dst.data_ptr(), src.data_ptr(), _nbytes(src) // (size or 1)
        return bool(size) and self._called(members, self._library.fcollect[size], *arguments)

    def alltoall(self, members: range, dst: torch.Tensor, src: torch.Tensor) -> bool:
        part = _nbytes(src) // len(members)
        size = _element(dst, src)
        if not size or part % size:
            return False
        return self._called(members, self._library.alltoall[size], dst.data_ptr(), src.data_ptr(), part // size)

    def reduce(self, members: range, dst: torch.Tensor, src: torch.Tensor, op: str) -> bool:
        name, count = _TYPES.get(src.dtype), src.numel()
        if name is None or _overlap(dst, src) or 8 * count > _WORK_BYTES:
            return False
        function = self._library.reductions[name, op]
        return self._called(members, function, dst.data_ptr(), src.data_ptr(), count, work=self._work)

    def _called(self, members: range, function: Callable[..., Any], *arguments: Any, work: int | None = None) -> bool:
        """Call a function with the active set of ``members``; False if they are none."""
        if members.step & (members.step - 1):
            return False
        active_set = members.start, members.step.bit_length() - 1, len(members)
        arrays = (self._sync,) if work is None else (work, self._sync)
        self._library.call(function, *arguments, *active_set, *arrays)
        return True


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.itemsize


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() < b.data_ptr() + _nbytes(b) and b.data_ptr() < a.data_ptr() + _nbytes(a)


def _element(dst: torch.Tensor, src: torch.Tensor) -> int:
    """8 or 4, where both tensors are whole words of so many bytes, and apart from each other; else 0."""
    numbers = dst.data_ptr(), src.data_ptr(), _nbytes(dst), _nbytes(src)
    return 0 if _overlap(dst, src) else next((size for size in (8, 4) if not any(n % size for n in numbers)), 0)
