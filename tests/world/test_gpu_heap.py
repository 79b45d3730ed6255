"""The heap and the teams of a GPU world, over an NVSHMEM that is not there: two PEs' memory in one process."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
import torch

from triton_dist.gpu import p2p
from triton_dist.gpu.heap import ALIGNMENT, GpuHeap
from triton_dist.gpu.teams import GpuTeams
from triton_dist.world.allocations import AllocationRegistry
from triton_dist.world.teams import Team

CPU = torch.device("cpu")
SIZE = 64 << 10


class FakeNvshmem:
    """The heaps of PE 0, which this is, and of PE 1, side by side; of PE 2 nothing is mapped."""

    def __init__(self) -> None:
        self.memory = (ctypes.c_char * (2 * SIZE))()
        self.begin = ctypes.addressof(self.memory)
        self.used: dict[int, int] = {}
        self.registered: dict[int, int] = {}

    def malloc(self, size: int) -> int:
        begin = max((address + used for address, used in self.used.items()), default=self.begin)
        if begin + size > self.begin + SIZE:
            return 0
        self.used[begin] = size
        return begin

    def free(self, address: int) -> None:
        del self.used[address]

    def ptr(self, address: int, pe: int) -> int:
        inside = self.begin <= address < self.begin + SIZE
        return address + pe * SIZE if inside and pe < 2 else 0

    def buffer_register_symmetric(self, address: int, size: int, flags: int) -> int:
        alias = self.begin + SIZE // 2
        self.registered[alias] = size
        return alias

    def buffer_unregister_symmetric(self, address: int, size: int) -> None:
        assert self.registered.pop(address) == size


@pytest.fixture
def nvshmem() -> FakeNvshmem:
    return FakeNvshmem()


@pytest.fixture
def registry() -> AllocationRegistry:
    return AllocationRegistry()


@pytest.fixture
def heap(nvshmem: FakeNvshmem, registry: AllocationRegistry) -> GpuHeap:
    return GpuHeap(nvshmem, CPU, 0, SIZE, registry)


def test_tensors_and_their_peers(heap: GpuHeap, nvshmem: FakeNvshmem, registry: AllocationRegistry) -> None:
    x = heap.allocate((3, 4), torch.int32)
    y = heap.allocate((0,), torch.float64)
    assert x is not None and y is not None and y.numel() == 0
    assert heap.free_bytes == SIZE - 2 * ALIGNMENT
    there = heap.peer(x[1:, ::2], 1)
    assert there is not None and there.shape == (2, 2) and there.stride() == (4, 2)
    there.fill_(7)
    assert int.from_bytes(nvshmem.memory[SIZE + 16 : SIZE + 20], "little") == 7
    assert not x.any()
    assert heap.peer(x, 0).data_ptr() == x.data_ptr()  # type: ignore[union-attr]
    assert heap.peer(x, 2) is None
    assert registry.started_by(x.data_ptr()) is not None and registry.started_by(x[1:].data_ptr()) is None


def test_what_is_not_symmetric(heap: GpuHeap, registry: AllocationRegistry) -> None:
    x = heap.allocate((4,), torch.int32)
    assert x is not None
    theirs = heap.peer(x, 1)
    for other in (torch.zeros(4), theirs):
        with pytest.raises(ValueError, match=r"put: dst, of shape \(4,\) on cpu, is not in the symmetric heap"):
            heap.owner(other, "put: dst")
    allocation = registry.started_by(x.data_ptr())
    assert allocation is not None
    heap.give_back(allocation)
    with pytest.raises(ValueError, match="was freed"):
        heap.peer(x, 1)


def test_somebody_else_s_memory_on_the_same_heap(
    heap: GpuHeap, nvshmem: FakeNvshmem, registry: AllocationRegistry
) -> None:
    theirs = torch.frombuffer(nvshmem.memory, dtype=torch.int32, count=8, offset=4096)  # as torch's symmetric memory is
    mirrored = heap.peer(theirs, 1)
    assert mirrored is not None and mirrored.data_ptr() == nvshmem.begin + SIZE + 4096
    assert registry.started_by(theirs.data_ptr()) is None


def test_torch_s_symmetric_memory_of_another_backend(heap: GpuHeap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its default on GPUs is CUDA's: other PEs map such memory, but not NVSHMEM. PyTorch knows it by its beginning."""
    theirs = torch.zeros(8)

    class SymmetricMemory:
        @staticmethod
        def is_symm_mem_tensor(tensor: torch.Tensor) -> bool:
            return tensor.data_ptr() == theirs.data_ptr()

        @staticmethod
        def get_backend(device: torch.device) -> str:
            return "CUDA"

    monkeypatch.setattr(torch._C._distributed_c10d, "_SymmetricMemory", SymmetricMemory)
    for tensor in (theirs, theirs[3:]):
        with pytest.raises(ValueError, match=r"is not in the symmetric heap: it is of torch's .* CUDA, .*set_backend"):
            heap.owner(tensor, "put: dst")
    with pytest.raises(ValueError, match=r"is not in the symmetric heap: allocate it with triton_dist.empty"):
        heap.owner(torch.zeros(8), "put: dst")
    monkeypatch.delattr(SymmetricMemory, "is_symm_mem_tensor")
    with pytest.raises(ValueError, match=r"is not in the symmetric heap: allocate it with triton_dist.empty"):
        heap.owner(theirs, "put: dst")


def test_a_full_heap_says_so(heap: GpuHeap) -> None:
    assert heap.allocate((SIZE,), torch.uint8) is not None
    assert heap.allocate((1,), torch.uint8) is None
    assert "needs 512 bytes, and 0 of 65536 are free; set TRITON_DIST_SYMMETRIC_SIZE" in heap.full((1,), torch.uint8)


def test_registered_memory(heap: GpuHeap, nvshmem: FakeNvshmem) -> None:
    existing = torch.arange(1024, dtype=torch.int64)
    symmetric = heap.register(existing[:8])
    assert symmetric.shape == (8,) and symmetric.data_ptr() == nvshmem.begin + SIZE // 2
    assert heap.free_bytes == SIZE, "it takes nothing of what users may allocate"
    heap.close()
    assert not nvshmem.registered


def test_teams_by_agreement_where_nvshmem_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    said: list[list[str]] = []
    world = SimpleNamespace(pe=1, together=lambda team, call, value: said.pop(), check_live=lambda: None, teams={})
    everybody = Team(world, "world", 0, range(4))  # type: ignore[arg-type]
    sync = torch.ones(p2p.sync_bytes(), dtype=torch.uint8)
    teams = GpuTeams(None, sync)
    said.append([f"{mask:x}" for mask in (0b1000, 0b1110, 0b1100, 0b0110)])
    assert teams.make(everybody, Team(world, "", -1, range(1, 4))) == 2  # type: ignore[arg-type]
    assert teams.table == {2: range(1, 4)}
    places = sync.view(p2p.max_teams(), -1)
    assert not places[2].any() and places[1].all() and places[3].all()
    said.append(["8", "e", "c", "6"])
    assert teams.make(everybody, Team(world, "", -1, range(1))) == -1  # type: ignore[arg-type]
    said.append(["8", "2", "c", "6"])
    with pytest.raises(RuntimeError, match="no more are to be had"):
        teams.make(everybody, Team(world, "", -1, range(2)))  # type: ignore[arg-type]
