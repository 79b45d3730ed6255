"""The streams that host operations take, on a machine that has none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from triton_dist.gpu.host_ops import GpuHostOps


def test_a_stream_of_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", SimpleNamespace)
    ops = GpuHostOps(None, None, torch.device("cuda", 0), mapped=True)
    stream = SimpleNamespace(device=torch.device("cuda", 1), cuda_stream=7)
    with pytest.raises(ValueError, match="stream is one of cuda:1, and this PE's device is cuda:0"):
        ops.barrier(SimpleNamespace(handle=0), stream)
