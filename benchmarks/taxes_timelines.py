"""When each PE runs the kernels of one call: timelines of taxes.py, on one clock, and their picture.

The profiler gives times by the host's clock, which PEs of one host share; CUPTI converts each GPU's clock to it, which
is exact to some µs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from layer_traces import COLOURS, Kernel, kind_of
from texts import all_gather_texts

__all__ = ["PerPe", "last_call", "of_all_pes", "picture"]

MOST = 40
"""Kernels of a call that are told, so that they fit into a text of 4096 bytes."""

PerPe = list[list[Kernel]]
"""Of each PE the kernels of one call, in µs since the first of them on any PE."""


def last_call(timeline: Sequence[Kernel], calls: int) -> list[Kernel]:
    """The kernels of the last of so many calls; what does not belong to all calls stands in front of them."""
    ordered = sorted(timeline, key=lambda kernel: kernel[2])
    return ordered[len(ordered) - len(ordered) // calls :]


def of_all_pes(mine: Sequence[Kernel], device: torch.device) -> PerPe:
    """Every PE's kernels of a call, whose begins are by one clock. *Collective.*"""
    parts = [[(str(n), int(s), float(b), float(d)) for n, s, b, d in json.loads(t)] for t in texts(mine, device)]
    first = min((begin for part in parts for _, _, begin, _ in part), default=0.0)
    return [[(name, stream, begin - first, duration) for name, stream, begin, duration in part] for part in parts]


def texts(mine: Sequence[Kernel], device: torch.device) -> list[str]:
    return all_gather_texts(json.dumps([(name[:40], *rest) for name, *rest in mine[:MOST]]), device)


def picture(title: str, variants: Mapping[str, PerPe], path: Path) -> None:
    """Draw a row for each variant and PE, all on one axis of time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot

    rows = [(name, pe, part) for name, parts in variants.items() for pe, part in enumerate(parts)]
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + 0.26 * len(rows)), constrained_layout=True)
    for y, (_, _, part) in enumerate(rows):
        for name, _, begin, duration in part:
            axes.barh(y, duration, left=begin, color=COLOURS[kind_of(name)], edgecolor="white", linewidth=0.3)
    axes.set_yticks(range(len(rows)), [f"{name}, PE {pe}" for name, pe, _ in rows], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel("µs", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(title, fontsize=8)
    patches = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    axes.legend(patches, COLOURS, ncols=4, fontsize=6)
    figure.savefig(path)
    pyplot.close(figure)
