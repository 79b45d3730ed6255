"""What kernels ask about the GPU, on a machine that has none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import triton_dist
from triton_dist.kernels import device
from triton_dist.kernels.gemm import portable, small_m, small_m_tile
from triton_dist.kernels.gemm.hopper import launch
from triton_dist.world.gpus import Gpu


def test_kernels_are_cut_for_what_all_gpus_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing asks the driver: its answer took a millisecond of every gemm_reduce_scatter."""
    gpu = Gpu("H200", (9, 0), 132, 227 << 10)
    monkeypatch.setattr(device, "current_world", lambda: SimpleNamespace(gpu=gpu))
    monkeypatch.setattr(triton_dist, "kind", lambda: "gpu")
    comm: Any = SimpleNamespace(n_pes=2)
    half = torch.zeros(16, 64, dtype=torch.float16)
    assert portable.programs() == 132 and small_m_tile.by_tma(half) and launch.fits(comm, half, half, half)
    assert small_m._stages_here(16, small_m._cut_here(16, 64, 2, 132), 2) == 8


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
