"""The end of a GPU world whose NVSHMEM a script has ended itself, over an NVSHMEM that is not there."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from triton_dist.bootstrap.launch import Launch
from triton_dist.gpu.world import GpuWorld
from triton_dist.world.base import World


class FinalizedNvshmem:
    """``nvshmem.bindings`` and ``nvshmem.core`` behind ``finalize()``: all else ends the process with status 255."""

    def __init__(self, status: int) -> None:
        self.status = status

    def init_status(self) -> int:
        return self.status

    def __getattr__(self, name: str) -> object:
        def end_process(*arguments: object) -> None:
            raise SystemExit(255)

        return end_process


@pytest.fixture(params=[0, 1], ids=["not initialized", "bootstrapped"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GpuWorld:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    world = GpuWorld.__new__(GpuWorld)
    World.__init__(world, Launch(0, 1, 0, 1, None))
    world._rounds = Counter()
    monkeypatch.setattr(world, "_wait_reports", SimpleNamespace(end=lambda: None), raising=False)
    monkeypatch.setattr(world, "_calls", SimpleNamespace(close=lambda: None), raising=False)
    world.device = torch.device("cuda", 0)
    world._bindings = world._nvshmem = world._heap = FinalizedNvshmem(request.param)
    return world


def test_finalize_is_nothing_more_to_do(world: GpuWorld) -> None:
    world.finalize()
    assert world.finalized


def test_other_calls_say_what_has_happened(world: GpuWorld) -> None:
    for call in (world.barrier_all, lambda: world.empty((4,), torch.float32), world.collect, world.team_world.barrier):
        with pytest.raises(RuntimeError, match=r"NVSHMEM has been finalized .*call triton_dist\.finalize\(\) instead"):
            call()


def test_a_live_nvshmem_is_ended(world: GpuWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FinalizedNvshmem, "init_status", lambda self: 4)
    with pytest.raises(SystemExit):
        world.finalize()
