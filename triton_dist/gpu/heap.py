"""The symmetric heap of a GPU world: NVSHMEM's, in the GPUs' memory.

A tensor lies at an address of this process; NVSHMEM tells where a peer's copy of an address is mapped. That is so for
everything on NVSHMEM's heap, also for what torch's symmetric memory or another user of the same library put there.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from triton_dist.world.allocations import Allocation, AllocationRegistry
from triton_dist.world.raw_tensor import elsewhere, of_another_backend, storage_address, tensor_at

__all__ = ["GpuHeap", "rounded"]

ALIGNMENT = 512  # what NVSHMEM aligns allocations to; sizes are counted in the same steps


class GpuHeap:
    """What users have of NVSHMEM's heap. All calls that allocate or free are collective; the caller sees to that.

    ``bindings`` are nvshmem4py's; ``registry`` holds addresses.
    """

    def __init__(
        self, bindings: Any, device: torch.device, pe: int, capacity: int, registry: AllocationRegistry
    ) -> None:
        self._bindings = bindings
        self._device = device
        self._pe = pe
        self._capacity = capacity
        self._used = 0
        self._registry = registry
        self._registered: set[int] = set()  # numbers of allocations that are another library's memory

    @property
    def free_bytes(self) -> int:
        return self._capacity - self._used

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        size = _size(shape, dtype)
        address = self._bindings.malloc(size) if size <= self.free_bytes else 0
        if not address:
            return None
        self._used += size
        _, use = self._registry.enter(address, size, shape, dtype)
        return tensor_at(address, shape, dtype, self._device, use)

    def give_back(self, allocation: Allocation) -> None:
        """No device may work on it any more, on this PE; for the others NVSHMEM waits."""
        self._registry.remove(allocation)
        if allocation.number in self._registered:
            self._registered.remove(allocation.number)
            self._bindings.buffer_unregister_symmetric(allocation.begin, allocation.size)
        else:
            self._used -= allocation.size
            self._bindings.free(allocation.begin)

    def close(self) -> None:
        """Give everything back."""
        for allocation in self._registry.all():
            self.give_back(allocation)

    def register(self, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor`` in the heap, on its memory, which has no :func:`~triton_dist.gpu.register.obstacle`."""
        storage = tensor.untyped_storage()
        address = self._bindings.buffer_register_symmetric(storage.data_ptr(), storage.nbytes(), 0)
        if not address:
            raise RuntimeError(f"NVSHMEM could not register {storage.nbytes()} bytes at {storage.data_ptr():#x}")
        allocation, use = self._registry.enter(address, storage.nbytes(), (storage.nbytes(),), torch.uint8)
        self._registered.add(allocation.number)
        return elsewhere(tensor.detach(), address - storage.data_ptr(), self._device, use, tensor)

    def peer(self, tensor: torch.Tensor, pe: int, name: str = "the tensor") -> torch.Tensor | None:
        """``tensor`` as it lies on ``pe``; None if that is not mapped into this process."""
        keep = self.owner(tensor, name)
        if pe == self._pe:
            return tensor.detach()
        address = storage_address(tensor)
        there = self._bindings.ptr(address, pe)
        return elsewhere(tensor, there - address, self._device, keep) if there else None

    def owner(self, tensor: torch.Tensor, name: str) -> object:
        """What keeps the memory of a symmetric tensor. ValueError if it is none, or was freed."""
        what = f"{name}, of shape {tuple(tensor.shape)} on {tensor.device},"
        address = storage_address(tensor)
        if allocation := self._registry.find(address):
            return allocation.use()
        if self._registry.was_freed(address):
            raise ValueError(f"{what} is a symmetric tensor that was freed")
        if tensor.device == self._device and self._bindings.ptr(address, self._pe):
            return tensor  # another library's on the same heap
        if theirs := of_another_backend(tensor):
            raise ValueError(f"{what} is not in the symmetric heap: {theirs}")
        raise ValueError(
            f"{what} is not in the symmetric heap: allocate it with triton_dist.empty, zeros, full or from_tensor (and"
            " pass this PE's own one, not a peer's)"
        )

    def is_freed(self, address: int) -> bool:
        """Whether a tensor at ``address`` is on memory that was freed, and that no other tensor has got."""
        return self._registry.was_freed(address) and self._registry.find(address) is None

    def full(self, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        return (
            f"the symmetric heap is full: a tensor of shape {shape} and {dtype} needs {_size(shape, dtype)} bytes, and"
            f" {self.free_bytes} of {self._capacity} are free; set TRITON_DIST_SYMMETRIC_SIZE to a larger size, such as"
            " 4G"
        )


def rounded(nbytes: int) -> int:
    """``nbytes`` as NVSHMEM's heap counts them."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _size(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return max(rounded(prod(shape) * dtype.itemsize), ALIGNMENT)
