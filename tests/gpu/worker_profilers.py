"""What profilers show of calls that C++ repeats: ranges, and kernels by their names. One PE's part. For GPUs.

    torchrun --nproc-per-node 2 tests/gpu/worker_profilers.py

PE 0 prints a line for each check.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from worker_checks import run_checks

import triton_dist
from triton_dist import kernels

CALLS = 5
KERNELS = {"all_reduce": "all_reduce_one_shot", "gemm_all_reduce": "gemm_small_m"}
"""What a call of each function launches here."""


def learnt_calls(world: Any) -> Callable[[], None]:
    """Some calls of each function, which were made often enough before that C++ makes them."""
    x = torch.ones(1024, device=world.device)
    a = torch.ones(8, 512, dtype=torch.bfloat16, device=world.device)
    b = torch.ones(512, 512, dtype=torch.bfloat16, device=world.device)
    out = torch.empty(8, 512, dtype=torch.bfloat16, device=world.device)

    def call() -> None:
        for _ in range(CALLS):
            kernels.all_reduce(x, algorithm="one_shot")
            kernels.gemm_all_reduce(a, b, out, algorithm="fused")
        torch.cuda.synchronize()

    call()
    return call


def torch_s_profiler(world: Any) -> None:
    call = learnt_calls(world)
    with torch.profiler.profile() as profile:
        call()
    # PyTorch shows a range a second time among the GPU's events, around the kernels that were launched in it.
    host, gpu = (
        Counter(event.name for event in profile.events() if event.device_type == device)
        for device in (torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA)
    )
    for function, kernel in KERNELS.items():
        assert host[f"triton_dist::{function}"] == CALLS, (function, host)
        assert sum(count for name, count in gpu.items() if kernel in name) == CALLS, (kernel, gpu)


def nvtx_ranges(world: Any) -> None:
    """Without a tool that collects them, they must cost no result; what they are called is what the profiler shows."""
    call = learnt_calls(world)
    with torch.autograd.profiler.emit_nvtx():
        call()


def proton_s_session(world: Any) -> None:
    from triton import profiler as proton  # here, since not every build of Triton has it

    call = learnt_calls(world)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"pe{world.pe}"
        session = proton.start(str(path), hook="triton")
        call()
        proton.finalize(session)
        (file,) = Path(folder).glob(f"pe{world.pe}*.hatchet")
        found = counts(json.loads(file.read_text()))
    for kernel in KERNELS.values():
        assert sum(count for name, count in found.items() if kernel in name) == CALLS, (kernel, found)
    call()


def counts(trees: Any) -> Counter[str]:
    """How often each frame without frames inside was entered."""
    found: Counter[str] = Counter()
    for tree in trees:
        if "frame" in tree:
            if not tree["children"]:
                found[tree["frame"]["name"]] += tree["metrics"].get("count", 0)
            found += counts(tree["children"])
    return found


CHECKS = torch_s_profiler, nvtx_ranges, proton_s_session


def main() -> int:
    with triton_dist.init() as world:
        run_checks(world, CHECKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
