"""Which memory of a GPU NVSHMEM can take into its heap: one physical allocation of CUDA's virtual memory management."""

from __future__ import annotations

from typing import Any

import torch

from triton_dist import environment

__all__ = ["obstacle"]

_NVSHMEM_GRANULARITY = 512 << 20  # of its heap, where NVSHMEM_CUMEM_GRANULARITY does not say otherwise


def obstacle(tensor: torch.Tensor, device: torch.device) -> str:
    """Why the memory of ``tensor`` cannot be registered; nothing when it can.

    NVSHMEM maps the physical allocation at the address once more and hands it to the other processes: it has to be
    one, all of it, in whole pieces of the granularity of NVSHMEM's heap, and of a kind that other processes can open.
    When something does not fit NVSHMEM takes its whole heap down, so this has to be found out before.
    """
    from cuda.bindings import driver

    if tensor.device != device:
        return f"it is on {tensor.device}, and this PE's symmetric heap on {device}"
    storage = tensor.untyped_storage()
    address, nbytes = storage.data_ptr(), storage.nbytes()
    status, handle = driver.cuMemRetainAllocationHandle(address)
    if status != driver.CUresult.CUDA_SUCCESS:
        return (
            "it was not made with CUDA's virtual memory management (torch does with"
            " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, in allocations of 20 MiB each for large tensors)"
        )
    try:
        properties = _value(driver.cuMemGetAllocationPropertiesFromHandle(handle))
        if properties.requestedHandleTypes == driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE:
            return "it was made without a handle that other processes can open"
    finally:
        driver.cuMemRelease(handle)
    status, base, extent = driver.cuMemGetAddressRange(address)
    if status == driver.CUresult.CUDA_SUCCESS and (int(base), extent) != (address, nbytes):
        return (
            f"its {nbytes} bytes at {address:#x} are not all of one allocation ({extent} bytes at {int(base):#x}),"
            " which NVSHMEM maps as a whole"
        )
    granularity = environment.size_of("NVSHMEM_CUMEM_GRANULARITY", _NVSHMEM_GRANULARITY)
    if nbytes % granularity:
        return (
            f"its {nbytes} bytes are not whole pieces of {granularity} bytes, NVSHMEM's granularity: set"
            " NVSHMEM_CUMEM_GRANULARITY lower before init(), to 2M at least"
        )
    return ""


def _value(answer: tuple[Any, ...]) -> Any:
    status, value = answer
    if status != 0:
        raise RuntimeError(f"CUDA's virtual memory management: {status}")
    return value
