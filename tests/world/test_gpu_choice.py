"""Who gets which GPU, who may share one, what kernels are cut for, which NVSHMEM is refused: without any GPU here."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from triton_dist import triton_api
from triton_dist.bootstrap.launch import Launch
from triton_dist.gpu import world as gpu
from triton_dist.gpu.device_choice import choose_device, gpu_at
from triton_dist.world.gpus import Gpu, agree


class FakeLaunch(Launch):
    """PE 1 of two on a host; PE 0 says what ``other`` is."""

    other = ""

    def exchange(self, key: str, value: str, pes: Sequence[int] | None = None) -> list[str]:
        return [self.other, value]


def launch(other: str) -> Launch:
    made = FakeLaunch(1, 2, 1, 2, torch.distributed.HashStore())
    object.__setattr__(made, "other", other)
    return made


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As many as ``count`` says, whose UUIDs are their numbers."""
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=f"GPU-{device.index}"))
    monkeypatch.delenv("TRITON_DIST_ALLOW_SHARED_GPU", raising=False)
    return monkeypatch


def test_each_its_own(gpus: pytest.MonkeyPatch) -> None:
    gpus.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device(launch("GPU-0 0")) == (torch.device("cuda", 1), False)


def test_the_only_one_that_the_launcher_shows(gpus: pytest.MonkeyPatch) -> None:
    assert choose_device(launch("GPU-elsewhere 0")) == (torch.device("cuda", 0), False)


def test_two_on_one_are_refused(gpus: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"PEs 0, 1 would share one.* TRITON_DIST_ALLOW_SHARED_GPU=1 to share it"):
        choose_device(launch("GPU-0 0"))


@pytest.mark.parametrize(("shared", "expected"), [(False, 66), (True, 58)])
def test_an_eighth_of_a_shared_one_is_left_out(gpus: pytest.MonkeyPatch, shared: bool, expected: int) -> None:
    """Of the 66 multiprocessors that MPS tells of a half, programs of both PEs do not fit into all at the same time."""
    gpus.setattr(triton_api, "device_properties", lambda index: {"multiprocessor_count": 66, "max_shared_mem": 232448})
    gpus.setattr(torch.cuda, "get_device_name", lambda index: "an H200")
    gpus.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    gpus.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(L2_cache_size=0))
    assert gpu_at(0, shared).multiprocessors == expected


def test_two_on_one_with_leave(gpus: pytest.MonkeyPatch) -> None:
    gpus.setenv("TRITON_DIST_ALLOW_SHARED_GPU", "1")
    assert choose_device(launch("GPU-0 1")) == (torch.device("cuda", 0), True)


def test_leave_that_only_one_has(gpus: pytest.MonkeyPatch) -> None:
    gpus.setenv("TRITON_DIST_ALLOW_SHARED_GPU", "1")
    with pytest.raises(RuntimeError, match="TRITON_DIST_ALLOW_SHARED_GPU is not set on PE 0: set it alike on all PEs"):
        choose_device(launch("GPU-0 0"))


def test_no_gpu(gpus: pytest.MonkeyPatch) -> None:
    gpus.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(RuntimeError, match="PyTorch sees no GPU: set TRITON_DIST_WORLD=cpu"):
        choose_device(launch("GPU-0 0"))


def test_gpus_that_differ_are_cut_for_alike() -> None:
    """A PE with 132 programs would wait for programs that one with 114 does not have."""
    mine = Gpu("H100 SXM", (9, 0), 132, 227 << 10, 50 << 20)
    theirs = '["H100 PCIe", [9, 0], 114, 232448, 52428800, true]'
    assert agree(launch(theirs), mine) == Gpu("H100 SXM", (9, 0), 114, 227 << 10, 50 << 20)
    older = '["A100", [8, 0], 108, 166912, 41943040, true]'
    assert agree(launch(older), mine) == Gpu("H100 SXM", (8, 0), 108, 163 << 10, 40 << 20)
    blocking = '["H100", [9, 0], 132, 232448, 52428800, false]'
    assert agree(launch(blocking), mine) == dataclasses.replace(mine, launches_return=False)
    newer = '["B200", [10, 0], 148, 232448, 0, true]'
    assert agree(launch(newer), mine) == Gpu("H100 SXM", (9, 0), 132, 227 << 10, 0)


@pytest.mark.parametrize(
    "said",
    [
        "[]",
        '["H100", [9], 132, 1, 1, true]',
        '["H100", [9, 0], -1, 1, 1, true]',
        '["H100", [9, 0], 1, 1, 1, 1]',
        "no JSON",
    ],
)
def test_what_is_no_gpu_is_refused(said: str) -> None:
    with pytest.raises(RuntimeError, match="the GPU of PE 0 is invalid"):
        agree(launch(said), Gpu("H100", (9, 0), 132, 227 << 10))


def test_two_versions_of_nvshmem() -> None:
    pytest.importorskip("nvidia.nvshmem")
    host = SimpleNamespace(get_version=lambda: SimpleNamespace(libnvshmem_version="3.99.0"))
    with pytest.raises(
        RuntimeError, match=r"host library has version 3\.99\.0, but its device library \S+ has version 3"
    ):
        gpu._check_versions(host)
