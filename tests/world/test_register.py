"""Which memory NVSHMEM is not asked to register, over a driver that is not there."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from triton_dist.gpu.register import obstacle

CPU = torch.device("cpu")
SIZE = 4 << 20


@pytest.fixture
def tensor(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """All of an allocation of ``SIZE`` bytes that other processes can open, as the driver says."""
    made = torch.zeros(SIZE, dtype=torch.uint8)
    allocation = SimpleNamespace(base=made.data_ptr(), extent=SIZE, kind=1)
    driver: Any = SimpleNamespace(
        CUresult=SimpleNamespace(CUDA_SUCCESS=0),
        CUmemAllocationHandleType=SimpleNamespace(CU_MEM_HANDLE_TYPE_NONE=0),
        cuMemRetainAllocationHandle=lambda address: (0, "handle"),
        cuMemGetAllocationPropertiesFromHandle=lambda handle: (
            0,
            SimpleNamespace(requestedHandleTypes=allocation.kind),
        ),
        cuMemRelease=lambda handle: None,
        cuMemGetAddressRange=lambda address: (0, allocation.base, allocation.extent),
        allocation=allocation,
    )
    bindings: Any = ModuleType("cuda.bindings")
    bindings.driver = driver
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setenv("NVSHMEM_CUMEM_GRANULARITY", "2M")
    return made


def allocation() -> Any:
    return sys.modules["cuda.bindings"].driver.allocation


def test_all_of_an_allocation_is_taken(tensor: torch.Tensor) -> None:
    assert obstacle(tensor, CPU) == ""


@pytest.mark.parametrize(("before", "extent"), [(0, 5 * SIZE), (SIZE, 2 * SIZE), (0, SIZE // 2), (SIZE, SIZE)])
def test_a_part_of_one_or_several_are_not(tensor: torch.Tensor, before: int, extent: int) -> None:
    """A tensor of 4 MB in one of PyTorch's 20 MB: NVSHMEM's heap was lost, with an illegal access in its barrier."""
    allocation().base -= before
    allocation().extent = extent
    assert f"not all of one allocation ({extent} bytes" in obstacle(tensor, CPU)


def test_what_other_processes_cannot_open_is_not(tensor: torch.Tensor) -> None:
    allocation().kind = 0
    assert "without a handle that other processes can open" in obstacle(tensor, CPU)


def test_what_is_no_whole_piece_is_not(tensor: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVSHMEM_CUMEM_GRANULARITY", "512M")
    assert "set NVSHMEM_CUMEM_GRANULARITY lower" in obstacle(tensor, CPU)


def test_memory_of_another_device_is_not(tensor: torch.Tensor) -> None:
    assert "it is on cpu, and this PE's symmetric heap on cuda:1" in obstacle(tensor, torch.device("cuda:1"))
