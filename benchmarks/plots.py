"""Draw what a benchmark saved: one plot for each kind of comparison, the contenders by size.

python benchmarks/plots.py benchmarks/results/collectives.json docs/images
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["draw"]


def draw(saved: str | Path, folder: str | Path) -> list[Path]:
    """One SVG for each first word of the titles ("all_gather 8 KB a PE") that has peers: our time and that of each.

    Each contender's bar is its time divided by the best peer's, so that all sizes fit; below 1 is faster than that.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    import matplotlib.pyplot as plt

    data = json.loads(Path(saved).read_text())
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in data["entries"]:
        if len({contender.startswith("ours") for contender in entry["timings"]}) == 2:  # there is something to compare
            groups.setdefault(entry["title"].split()[0], []).append(entry)
    written = []
    for name, entries in groups.items():
        peers = [contender for entry in entries for contender in entry["timings"] if not contender.startswith("ours")]
        contenders = ["ours", *dict.fromkeys(peers)]
        figure, axes = plt.subplots(figsize=(max(9.0, 0.9 * len(entries)), 3.6), constrained_layout=True)
        width = 0.8 / len(contenders)
        for i, contender in enumerate(contenders):
            axes.bar(0, 0, color=f"C{i}", label=contender)
            for at, entry in enumerate(entries):
                times = {key: value["median"] for key, value in entry["timings"].items()}
                mine = [value for key, value in times.items() if key.startswith("ours")]
                if mine:  # where no contender is simply called so, the fastest variant
                    times.setdefault("ours", min(mine))
                others = [value for key, value in times.items() if not key.startswith("ours")]
                if contender not in times or not others:
                    continue
                place, height = at + (i - (len(contenders) - 1) / 2) * width, times[contender] / min(others)
                bar = axes.bar(place, height, width, color=f"C{i}")
                axes.bar_label(bar, [_short(times[contender])], fontsize=7, rotation=90, padding=2)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(entries)), [_label(entry["title"], name) for entry in entries], fontsize=8)
        axes.set_ylabel("time / best peer's")
        axes.margins(y=0.2)
        machine = data["machine"]
        axes.set_title(
            f"{name}, µs on the bars; {machine['gpus']}, driver {machine['driver']}, torch {machine['torch']}, NCCL"
            f" {machine['nccl']}, {machine['date']}",
            fontsize=8,
        )
        axes.legend(fontsize=7, ncols=len(contenders))
        file = Path(folder) / f"{Path(saved).stem}-{name}.svg"
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)
        plt.close(figure)
        written.append(file)
    return written


def _short(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"


def _label(title: str, name: str) -> str:
    """What is behind the name: a size stays on one line, the sizes of matrices come below each other."""
    size = title.removeprefix(f"{name} ")
    return size.replace(" ", "\n") if "=" in size else size


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("saved", help="the JSON that a benchmark wrote")
    parser.add_argument("folder", help="where the plots go")
    args = parser.parse_args()
    for file in draw(args.saved, args.folder):
        print(file)
