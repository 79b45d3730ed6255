"""The streams that host operations take, on a machine that has none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from triton_dist.gpu.host_ops import GpuHostOps
from triton_dist.gpu.world import GpuWorld


def test_a_stream_of_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", SimpleNamespace)
    ops = GpuHostOps(None, None, torch.device("cuda", 0), mapped=True)
    stream = SimpleNamespace(device=torch.device("cuda", 1), cuda_stream=7)
    with pytest.raises(ValueError, match="stream is one of cuda:1, and this PE's device is cuda:0"):
        ops.barrier(SimpleNamespace(handle=0), stream)


def test_allocating_while_a_graph_is_captured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA would end the capture with an error that names nothing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    world = object.__new__(GpuWorld)
    with pytest.raises(
        RuntimeError, match=r"a CUDA graph is being captured.* pass out= with a tensor that was allocated"
    ):
        world._allocate((8,), torch.float32)
