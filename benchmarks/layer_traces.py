"""Traces of what each contender does on the GPU, by torch.profiler: tables of kernels, and one picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from harness import capture

__all__ = ["KINDS", "Kernel", "kernels_of", "kind_of", "launches", "picture", "second", "table", "trace_layers"]

CALLS = 8
REPLAYS = 5

Kernel = tuple[str, int, float, float]
"""Name, stream, begin and duration in µs."""

KINDS = {
    "communication": (
        *(
            "nccl",
            "one_shot",
            "two_shot",
            "all_gather",
            "reduce_scatter",
            "all_reduce",
            "all_to_all",
            "broadcast",
            "copies_own_part",
            "host_exchange",
            "moe_dispatch",
            "moe_combine",
            "barrier",
            "memcpy",
            "symm_mem",
        ),
    ),
    "GEMM": ("gemm", "nvjet", "cutlass", "matmul", "mm_"),
    "attention": ("flash", "fmha", "attention", "sdpa"),
}
"""What a kernel does, by parts of its name; the last that fits counts, so a fused GEMM is a GEMM. Inductor's kernels,
whose names have those of the operators around them, are none of these."""
COLOURS = {"communication": "tab:orange", "GEMM": "tab:blue", "attention": "tab:green", "other": "lightgrey"}


def trace_layers(steps: dict[str, Callable[[], Any]], folder: Path, world: Any) -> str:
    """Trace a CUDA graph of ``CALLS`` calls of each step; the tables of PE 0's kernels. *Collective.*

    PE 0 writes ``folder/<contender>.json``, which Perfetto opens, the tables as ``folder/layer.txt``, and a picture of
    the second call of each contender, ``folder/layer.svg``. A contender that cannot run here is left out. In the CPU
    world each step runs once, the traces are the CPU's, and there is no picture.
    """
    on_gpu = world.device.type == "cuda"
    kind = torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU
    found: dict[str, list[Kernel]] = {}
    for name, step in steps.items():
        try:
            step()
        except NotImplementedError:
            continue
        if on_gpu:
            graph, _ = capture(lambda i, step=step: step(), 1, CALLS)
            step = graph.replay
            for _ in range(REPLAYS):
                step()
            torch.cuda.synchronize()
        with torch.profiler.profile(activities=[kind]) as profile:
            step()
            if on_gpu:
                torch.cuda.synchronize()
        if world.pe == 0:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name.replace(', ', '-').replace(' ', '-')}.json"
            profile.export_chrome_trace(str(path))
            found[name] = kernels_of(path)
    if not on_gpu or world.pe != 0:
        return ""
    text = "\n".join(table(name, kernels, CALLS) for name, kernels in found.items())
    (folder / "layer.txt").write_text(text + "\n")
    picture({name: second(kernels, CALLS) for name, kernels in found.items()}, folder / "layer.svg")
    return text


@dataclass
class Launches:
    """One kernel of a step, in all calls: µs of each, and how long nothing ran in front of it."""

    name: str
    begins: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)


def launches(kernels: Sequence[Kernel], calls: int) -> list[Launches]:
    """The kernels of a call, in the order in which they begin, of a trace of so many calls.

    What does not belong to all calls stands in front of them. The first call is left out where there are others: it
    waits for PEs that begin later.
    """
    ordered = sorted(kernels, key=lambda kernel: kernel[2])
    ordered = ordered[len(ordered) % calls :]
    each = {name: count // calls for name, count in Counter(kernel[0] for kernel in ordered).items()}
    found: dict[tuple[str, int], Launches] = {}
    seen: Counter[str] = Counter()
    end = ordered[0][2] if ordered else 0.0
    for name, _, begin, duration in ordered:
        number = seen[name]
        seen[name] += 1
        if calls == 1 or number >= each[name]:
            of = found.setdefault((name, number % max(1, each[name])), Launches(name))
            of.begins.append(begin)
            of.durations.append(duration)
            of.gaps.append(max(0.0, begin - end))
        end = max(end, begin + duration)
    return sorted(found.values(), key=lambda of: of.begins[0])


def table(contender: str, kernels: Sequence[Kernel], calls: int) -> str:
    """The kernels of a call in their order: µs, share of the call, and µs before it in which nothing ran; medians."""
    found = launches(kernels, calls)
    rows = [(of.name, median(of.durations), median(of.gaps)) for of in found]
    total = sum(duration + gap for _, duration, gap in rows)
    lines = [f"{contender}: {len(rows)} kernels, {total:.1f} µs a call", "        µs  share    gap  kernel"]
    lines += [f"  {us:8.1f} {us / total:6.1%} {gap:6.1f}  {name[:100]}" for name, us, gap in rows]
    gaps = sum(gap for *_, gap in rows)
    return "\n".join([*lines, f"  {gaps:8.1f} {gaps / max(total, 1e-9):6.1%}         nothing runs"])


def second(kernels: Sequence[Kernel], calls: int) -> list[Kernel]:
    """The second of so many calls, from 0 on."""
    ordered = sorted(kernels, key=lambda kernel: kernel[2])
    each = len(ordered) // calls
    ordered = ordered[len(ordered) % calls :][each : 2 * each]
    return [(name, stream, begin - ordered[0][2], duration) for name, stream, begin, duration in ordered]


def kernels_of(trace: Path, *, by_the_clock: bool = False) -> list[Kernel]:
    """Name, stream, begin and duration in µs of all kernels and copies of a Chrome trace.

    The first begins at 0, or ``by_the_clock`` when the host's clock says."""
    events = json.loads(trace.read_text())["traceEvents"]
    found = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    first = 0.0 if by_the_clock else min((e["ts"] for e in found), default=0.0)
    return [(e["name"], int(e["args"]["stream"]), e["ts"] - first, e["dur"]) for e in found]


def picture(contenders: dict[str, list[Kernel]], path: Path) -> None:
    """Draw a row for each contender and stream, all on one axis of time."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    rows = [
        (contender, stream) for contender, kernels in contenders.items() for stream in sorted({k[1] for k in kernels})
    ]
    figure, axes = pyplot.subplots(figsize=(12, 0.9 + 0.4 * max(1, len(rows))))
    for y, (contender, stream) in enumerate(rows):
        for name, of, begin, duration in contenders[contender]:
            if of == stream:
                axes.barh(y, duration, left=begin, color=COLOURS[kind_of(name)], edgecolor="white", linewidth=0.3)
    axes.set_yticks(range(len(rows)), [f"{contender}, stream {stream}" for contender, stream in rows])
    axes.invert_yaxis()
    axes.set_xlabel("µs")
    patches = [pyplot.Rectangle((0, 0), 1, 1, color=c) for c in COLOURS.values()]
    axes.legend(patches, COLOURS, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def kind_of(name: str) -> str:
    """One of ``COLOURS``."""
    if name.startswith("triton_"):
        return "other"
    fitting = [kind for kind, parts in KINDS.items() if any(part in name.lower() for part in parts)]
    return fitting[-1] if fitting else "other"
