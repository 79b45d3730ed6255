"""triton_dist.autotune: all PEs choose the configuration that is the fastest on the slowest PE, or none does."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from harness import main as run
from harness import raises
from triton.runtime.autotuner import Autotuner

import triton_dist
import triton_dist.language as dl

CONFIGS = [triton.Config({"B": size}, num_warps=2) for size in (4, 8, 16)]


@triton.jit
def send(out, n, B: tl.constexpr):
    for i in range(0, n, B):
        offsets = i + tl.arange(0, B)
        peer = dl.symm_at(out, (dl.my_pe() + 1) % dl.n_pes())
        tl.store(peer + offsets, B, mask=offsets < n)


def measured(monkeypatch: pytest.MonkeyPatch, times: dict[int, float]) -> None:
    """Let configurations take these times on this PE."""
    monkeypatch.setattr(Autotuner, "_bench", lambda self, *_, config, **__: [times[config.kwargs["B"]]] * 3)


def chosen(kernel: Any, n: int) -> int:
    out = triton_dist.zeros(n, dtype=torch.int32)
    kernel[(1,)](out, n)
    triton_dist.barrier_all()
    assert len(set(out.tolist())) == 1
    return int(out[0])


def check_the_first_in_the_cpu_world(world: Any) -> None:
    assert chosen(triton_dist.autotune(CONFIGS, key=["n"])(send), 20) == 4


def check_the_slowest_pe_counts(world: Any) -> None:
    """8 is the fastest on PE 0, 4 on the others, and 16 the fastest of all for the slowest."""
    with pytest.MonkeyPatch.context() as patch:
        slow = {4: 9.0, 8: 1.0, 16: 3.0} if world.pe == 0 else {4: 1.0, 8: 9.0, 16: 3.0}
        measured(patch, slow)
        kernel = triton_dist.autotune(CONFIGS, key=["n"])(send)
        assert chosen(kernel, 20) == 16
        measured(patch, {4: float("inf") if world.pe == 0 else 1.0, 8: 2.0, 16: 3.0})
        assert chosen(kernel, 20) == 16  # as before for this key
        assert chosen(kernel, 24) == 8  # what one PE cannot run is left out


def check_what_is_said(world: Any) -> None:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("triton_dist")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    chosen(triton_dist.autotune(CONFIGS, key=["n"])(send), 20)
    log.removeHandler(handler)
    assert len(records) == (world.pe == 0) and all("send runs with B: 4" in record for record in records)


def check_a_file_of_pe_0_decides(world: Any) -> None:
    """Whether times are on disk may differ between PEs."""
    with pytest.MonkeyPatch.context() as patch:

        def cached(self: Any, key: Any, configs: Any, bench: Any) -> bool:
            assert world.pe == 0
            if hit:
                self.cache[key] = triton.Config({"B": 16}, num_warps=2)
            else:
                bench()
            return hit

        patch.setattr(Autotuner, "check_disk_cache", cached)
        for hit in (True, False):
            kernel = triton_dist.autotune(CONFIGS, key=["n"])(send)
            kernel.cache_results = True
            assert chosen(kernel, 20) == (16 if hit else 4)


def check_mistakes(world: Any) -> None:
    with raises(ValueError, "use_cuda_graph must be False"):
        triton_dist.autotune(CONFIGS, key=[], use_cuda_graph=True)
    mine = CONFIGS if world.pe == 0 else CONFIGS[1:]
    kernel = triton_dist.autotune(mine, key=["n"])(send)
    out = triton_dist.zeros(20, dtype=torch.int32)
    if world.n_pes > 1:
        with raises(RuntimeError, "the PEs call different collectives: PE 0: autotune.send, B: 4"):
            kernel[(1,)](out, 20)


if __name__ == "__main__":
    run(globals())
