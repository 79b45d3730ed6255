"""Traces of what each side of a comparison does on the GPU, by torch.profiler, and one picture of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

__all__ = ["KINDS", "kernels_of", "picture", "trace_layers"]

WARM_UP = 5

KINDS = {
    "communication": ("nccl", "all_gather", "reduce_scatter", "all_reduce", "barrier", "memcpy", "symm_mem"),
    "GEMM": ("gemm", "nvjet", "cutlass", "matmul", "mm_"),
    "attention": ("flash", "fmha", "attention", "sdpa"),
}
"""What a kernel does, by parts of its name; the last that fits counts, so a fused GEMM is a GEMM."""
COLOURS = {"communication": "tab:orange", "GEMM": "tab:blue", "attention": "tab:green", "other": "lightgrey"}


def trace_layers(steps: dict[str, Callable[[], Any]], folder: Path, world: Any) -> None:
    """Write ``folder/<side>.json`` of a second call of each step, on PE 0, and ``folder/layer.svg``. *Collective.*

    A side that cannot run here is left out. In the CPU world the traces are the CPU's, and there is no picture.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    on_gpu = world.device.type == "cuda"
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    written = {}
    for name, step in steps.items():
        try:
            for _ in range(WARM_UP if on_gpu else 1):
                step()
        except NotImplementedError:
            continue
        with torch.profiler.profile(activities=activities) as profile:
            step()
            if on_gpu:
                torch.cuda.synchronize()
        if world.pe == 0:
            folder.mkdir(parents=True, exist_ok=True)
            written[name] = folder / f"{name.replace(', ', '-').replace(' ', '-')}.json"
            profile.export_chrome_trace(str(written[name]))
    if on_gpu and world.pe == 0:
        picture({name: kernels_of(path) for name, path in written.items()}, folder / "layer.svg")


def kernels_of(trace: Path) -> list[tuple[str, int, float, float]]:
    """Name, stream, begin and duration in µs of all kernels and copies of a Chrome trace; the first begins at 0."""
    events = json.loads(trace.read_text())["traceEvents"]
    found = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    first = min((e["ts"] for e in found), default=0.0)
    return [(e["name"], int(e["args"]["stream"]), e["ts"] - first, e["dur"]) for e in found]


def picture(sides: dict[str, list[tuple[str, int, float, float]]], path: Path) -> None:
    """Draw a row for each side and stream, all on one axis of time."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    rows = [(side, stream) for side, kernels in sides.items() for stream in sorted({k[1] for k in kernels})]
    figure, axes = pyplot.subplots(figsize=(12, 0.6 + 0.4 * max(1, len(rows))))
    for y, (side, stream) in enumerate(rows):
        for name, of, begin, duration in sides[side]:
            if of == stream:
                axes.barh(y, duration, left=begin, color=COLOURS[_kind(name)], edgecolor="white", linewidth=0.3)
    axes.set_yticks(range(len(rows)), [f"{side}, stream {stream}" for side, stream in rows])
    axes.invert_yaxis()
    axes.set_xlabel("µs")
    axes.legend(
        [pyplot.Rectangle((0, 0), 1, 1, color=c) for c in COLOURS.values()], COLOURS, ncols=4, loc="upper right"
    )
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _kind(name: str) -> str:
    fitting = [kind for kind, parts in KINDS.items() if any(part in name.lower() for part in parts)]
    return fitting[-1] if fitting else "other"
