"""What kernels ask about the GPU, on a machine that has none."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import triton_dist
from triton_dist import triton_api
from triton_dist.kernels import device
from triton_dist.kernels.gemm import portable, small_m, small_m_tile
from triton_dist.kernels.gemm.hopper import launch


def test_the_driver_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer took a millisecond of every gemm_reduce_scatter."""
    asked: list[int] = []

    def properties(index: int) -> dict[str, int]:
        asked.append(index)
        return {"multiprocessor_count": 132, "max_shared_mem": 227 << 10}

    def capability(index: int) -> tuple[int, int]:
        asked.append(index)
        return (9, 0)

    monkeypatch.setattr(triton_api, "device_properties", properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "H200")
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(L2_cache_size=50 << 20))
    monkeypatch.setattr(device, "_gpu", functools.cache(device._gpu.__wrapped__))
    monkeypatch.setattr(device, "current_world", lambda: SimpleNamespace(device=torch.device("cuda", 3)))
    monkeypatch.setattr(triton_dist, "kind", lambda: "gpu")
    comm: Any = SimpleNamespace(n_pes=2)
    half = torch.zeros(16, 64, dtype=torch.float16)
    for _ in range(3):
        assert portable.programs() == 132 and small_m_tile.by_tma(half) and launch.fits(comm, half, half, half)
        assert small_m._stages_here(16, small_m._cut_here(16, 64, 2, 132), 2, False) == 8
    assert asked == [3, 3], "for its properties and its capability, once each"


def test_another_current_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    current = [1]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(device, "current_world", lambda: SimpleNamespace(device=torch.device("cuda", 0)))
    with pytest.raises(RuntimeError, match=r"all_reduce: the current device is cuda:1, but this PE's is cuda:0: call"):
        device.check_current_device("all_reduce")
    current[0] = 0
    device.check_current_device("all_reduce")
    monkeypatch.setattr(device, "current_world", lambda: SimpleNamespace(device=torch.device("cpu")))
    device.check_current_device("all_reduce")
