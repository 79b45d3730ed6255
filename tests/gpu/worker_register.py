"""Existing memory made symmetric: one PE's part. For GPUs.

torchrun --nproc-per-node 2 tests/gpu/worker_register.py
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch
import triton
from cuda.bindings import driver

import triton_dist
import triton_dist.language as dl
from triton_dist.compiler import transport
from triton_dist.world.raw_tensor import bytes_at

NBYTES = 4 << 20


@triton.jit
def put_next(dst, src, nbytes):
    dl.putmem(dst, src, nbytes, (dl.my_pe() + 1) % dl.n_pes())


def done(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    assert status == driver.CUresult.CUDA_SUCCESS, status
    return values[0] if values else None


def shareable(device: torch.device, shared: bool, nbytes: int = NBYTES) -> torch.Tensor:
    """Bytes from CUDA's virtual memory management; ``shared``: other processes can open them."""
    kinds = driver.CUmemAllocationHandleType
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device.index
    if shared:
        properties.requestedHandleTypes = kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        properties.allocFlags.gpuDirectRDMACapable = 1
    physical = done(driver.cuMemCreate(nbytes, properties, 0))
    address = done(driver.cuMemAddressReserve(nbytes, 0, 0, 0))
    done(driver.cuMemMap(address, nbytes, 0, physical, 0))
    access = driver.CUmemAccessDesc()
    access.location = properties.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    done(driver.cuMemSetAccess(address, nbytes, [access], 1))
    return bytes_at(int(address), nbytes, device)


def refused(tensor: torch.Tensor, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        triton_dist.register_tensor(tensor)


def main() -> int:
    os.environ["NVSHMEM_CUMEM_GRANULARITY"] = str(2 << 20)
    with triton_dist.init() as world:
        device = world.device
        refused(torch.zeros(NBYTES, dtype=torch.uint8, device=device), "virtual memory management")
        refused(shareable(device, shared=False), "without a handle that other processes can open")
        refused(shareable(device, shared=True)[: 2 << 20].clone(), "virtual memory management")
        refused(torch.zeros(NBYTES, dtype=torch.uint8), "on cpu")
        whole = shareable(device, shared=True, nbytes=2 * NBYTES)
        for begin in (0, NBYTES):  # NVSHMEM would take its heap down
            refused(bytes_at(whole.data_ptr() + begin, NBYTES, device), "not all of one allocation")
        os.environ["NVSHMEM_CUMEM_GRANULARITY"] = str(512 << 20)
        refused(shareable(device, shared=True), "NVSHMEM_CUMEM_GRANULARITY lower")
        os.environ["NVSHMEM_CUMEM_GRANULARITY"] = str(2 << 20)
        if world.pe == 0:
            print("register: refusals", flush=True)
        existing = shareable(device, shared=True).view(torch.int32)
        existing.fill_(-1)
        symmetric = triton_dist.register_tensor(existing)
        assert symmetric.shape == existing.shape and symmetric.data_ptr() != existing.data_ptr()
        assert (symmetric == -1).all()
        source = triton_dist.full(existing.numel(), world.pe, dtype=torch.int32)
        before = (world.pe - 1) % world.n_pes
        for name in world.transports:
            existing.fill_(-1)
            triton_dist.barrier_all()
            with transport.using(name):
                put_next[(1,)](symmetric, source, NBYTES)
            triton_dist.barrier_all()
            assert (existing == before).all(), f"{name}: {existing[:4].tolist()}"
        assert (triton_dist.peer(symmetric[7:99], before) == (before - 1) % world.n_pes).all()
        triton_dist.barrier_all()
        triton_dist.free(symmetric)
        again = triton_dist.register_tensor(existing)
        del again
        assert triton_dist.collect() == 1
        assert (existing == before).all(), "unregistered memory is still its owner's"
        if world.pe == 0:
            print("register: passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
