"""The symmetric heap of a GPU world: NVSHMEM's, in the GPUs' memory.

Tensors are bytes of it with a torch dtype and shape on top; a peer's tensor is the same offset in the peer's bytes,
mapped into this process.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch

__all__ = ["GpuHeap", "rounded"]

ALIGNMENT = 512  # what NVSHMEM aligns allocations to; sizes are counted in the same steps


@dataclass(frozen=True)
class Allocation:
    """One allocation: its number, the same on every PE, and NVSHMEM's buffer, which outlives the tensors on it."""

    number: int
    buffer: Any
    address: int
    nbytes: int


class GpuHeap:
    """What users have of NVSHMEM's heap. All calls that allocate or free are collective; the caller sees to that."""

    def __init__(self, nvshmem: Any, device: torch.device, pe: int, capacity: int) -> None:
        self._nvshmem = nvshmem
        self._device = device
        self._pe = pe
        self._capacity = capacity
        self._allocations: dict[int, Allocation] = {}

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, number: int) -> torch.Tensor:
        nbytes = prod(shape) * dtype.itemsize
        size = max(rounded(nbytes), ALIGNMENT)
        free = self._capacity - sum(allocation.nbytes for allocation in self._allocations.values())
        if size > free:
            raise MemoryError(self._full(shape, dtype, size, free))
        try:
            buffer = self._nvshmem.buffer(size)
        except self._nvshmem.NvshmemError as error:
            raise MemoryError(self._full(shape, dtype, size, free)) from error
        storage = torch.utils.dlpack.from_dlpack(buffer)
        allocation = Allocation(number, buffer, storage.data_ptr(), size)
        self._allocations[allocation.address] = allocation
        return storage[:nbytes].view(dtype).view(shape)

    def peer(self, tensor: torch.Tensor, pe: int) -> torch.Tensor:
        allocation, offset = self._find(tensor)
        if pe == self._pe:
            return tensor
        try:
            buffer = self._nvshmem.get_peer_buffer(allocation.buffer, pe)
        except self._nvshmem.NvshmemError as error:
            raise RuntimeError(
                f"PE {self._pe} cannot reach the memory of PE {pe} by load and store: it can be put to and got from"
                " only"
            ) from error
        storage = torch.utils.dlpack.from_dlpack(buffer).untyped_storage()
        view = torch.empty(0, dtype=tensor.dtype, device=self._device)
        return view.set_(storage, offset // tensor.element_size(), tensor.shape, tensor.stride())

    def starting_at(self, tensor: torch.Tensor) -> Allocation | None:
        """The allocation that a tensor starts, if it starts one."""
        return self._allocations.get(_address(tensor))

    def free(self, allocation: Allocation) -> None:
        del self._allocations[allocation.address]
        self._nvshmem.free(allocation.buffer)

    def close(self) -> None:
        """Give everything back."""
        for allocation in tuple(self._allocations.values()):
            self.free(allocation)

    def abandon(self) -> None:
        """Give nothing back, since that is collective."""
        _keep_until_exit.append(self._allocations)

    def _find(self, tensor: torch.Tensor) -> tuple[Allocation, int]:
        """The allocation that a tensor lies in, and how many bytes into it the tensor starts."""
        address = _address(tensor)
        for allocation in self._allocations.values():
            if allocation.address <= address < allocation.address + allocation.nbytes:
                return allocation, address - allocation.address
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} on {tensor.device} is not in the symmetric heap: allocate it with"
            " triton_dist.empty, zeros, full or from_tensor"
        )

    def _full(self, shape: tuple[int, ...], dtype: torch.dtype, size: int, free: int) -> str:
        return (
            f"the symmetric heap is full: a tensor of shape {shape} and {dtype} needs {size} bytes, and {free} of"
            f" {self._capacity} are free; set TRITON_DIST_SYMMETRIC_SIZE to a larger size, such as 4G"
        )


def rounded(nbytes: int) -> int:
    """``nbytes`` as NVSHMEM's heap counts them."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _address(tensor: torch.Tensor) -> int:
    """Where a tensor starts, also when it has no elements (``data_ptr`` is 0 then)."""
    return tensor.untyped_storage().data_ptr() + int(tensor.storage_offset()) * tensor.element_size()


_keep_until_exit: list[Any] = []  # nvshmem4py objects to the loss of a buffer that was not freed
