"""What Triton-distributed's tutorials import from its ``triton_dist.profiler_utils``: taking times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

import triton_dist
from triton_dist.torch_api import occupy_stream

__all__ = ["perf_func", "sleep_async"]

_T = TypeVar("_T")


def perf_func(func: Callable[[], _T], iters: int, warmup_iters: int) -> tuple[_T, float]:
    """What ``func`` returns, and how many milliseconds a call takes on average."""
    if iters < 1:
        raise ValueError(f"iters must be at least 1, got {iters}")
    for _ in range(warmup_iters):
        func()
    elapsed = _clock()
    for _ in range(iters):
        output = func()
    return output, elapsed() / iters


def _clock() -> Callable[[], float]:
    """Starts a clock: that of the GPU's stream, or that of the process where kernels are interpreted."""
    if triton_dist.kind() == "cpu":
        begin = time.perf_counter()
        return lambda: (time.perf_counter() - begin) * 1e3
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()

    def elapsed() -> float:
        stop.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(stop))

    return elapsed


def sleep_async(duration_ms: float) -> None:
    """Keep the GPU's stream busy for a while, so that launches queue up behind; nothing in the CPU world."""
    if triton_dist.kind() == "gpu":
        properties: Any = torch.cuda.get_device_properties()
        occupy_stream(int(properties.clock_rate * duration_ms))
