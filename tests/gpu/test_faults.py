"""PEs that end while others wait for them, in kernels and in libraries, where Python cannot raise: nobody hangs."""

from __future__ import annotations

import re

import pytest
import torch
from torchrun import ROOT

from triton_dist.testing import launch

pytestmark = pytest.mark.gpu(2)

GPU = {"TRITON_DIST_WORLD": "gpu"}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("kill", r"PE 1 is lost: its process \d+"),
        ("exit", r"PE 1 is lost: its process \d+"),
        ("raise", "PE 1 raised ValueError: no good"),
        ("interrupt", r"PE 1 was interrupted \(Ctrl-C\)"),
    ],
)
@pytest.mark.parametrize(
    "ways", ["kernel barrier empty", "barrier finalize exit", "tokens", "all_reduce", "gemm_all_reduce"]
)
def test_lost(how: str, said: str, ways: str) -> None:
    n_pes = min(4, torch.cuda.device_count())
    result = launch([ROOT / "tests/gpu/worker_lost.py", how, "1", *ways.split()], n_pes, env=GPU, timeout=90)
    print(result.report)
    assert not result.timed_out, result.report
    end = result[1].seconds
    for pe in result:
        assert pe.returncode != 0 or (how == "exit" and pe.pe == 1), result.report
        assert pe.seconds - end < 10, result.report
        if pe.pe != 1:
            assert re.search(said, pe.stderr), result.report


def test_pes_that_share_a_gpu_without_leave() -> None:
    env = GPU | {"CUDA_VISIBLE_DEVICES": "0"}
    result = launch([ROOT / "examples/01_ring_put.py"], 2, env=env, timeout=60)
    assert not result.timed_out and not result.ok, result.report
    assert "TRITON_DIST_ALLOW_SHARED_GPU=1" in result[0].stderr, result.report


@pytest.mark.parametrize("n_pes", [2, 4])
def test_ops_on_a_shared_gpu(n_pes: int) -> None:
    env = GPU | {"CUDA_VISIBLE_DEVICES": "0", "TRITON_DIST_ALLOW_SHARED_GPU": "1", "TRITON_DIST_SYMMETRIC_SIZE": "8G"}
    result = launch([ROOT / "tests/gpu/worker_ops.py"], n_pes, env=env, timeout=400)
    print(result.report)
    assert result.ok, result.report
    assert result[0].stdout.count("PASS") > 65, result.report
