"""Print what a benchmark saved as a table in Markdown: a row for each comparison.

python benchmarks/tables.py benchmarks/results/2026-11-21-4xh200-collectives.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["table"]


def table(saved: str | Path) -> str:
    """Microseconds of us and of every peer, the ratio to the best peer, and how much of the bound we reach."""
    data = json.loads(Path(saved).read_text())
    entries: list[dict[str, Any]] = data["entries"]
    contenders = [contender for entry in entries for contender in entry["timings"] if not contender.startswith("ours")]
    peers = list(dict.fromkeys(contenders))
    lines = [
        ", ".join(f"{key} {value}" for key, value in data["machine"].items() if value),
        "",
        f"| µs | ours | {' | '.join(peers)} | ours / best peer | of the bound |",
        f"| --- | {'--- | ' * len(peers)}--- | --- | --- |",
    ]
    for entry in entries:
        times = {name: value["median"] for name, value in entry["timings"].items()}
        ours = {name: time for name, time in times.items() if name.startswith("ours")}
        if not ours:
            continue
        mine = ours.get("ours", min(ours.values()))
        others = [times[peer] for peer in peers if peer in times]
        cells = [
            entry["title"],
            f"{mine:.1f}",
            *(f"{times[peer]:.1f}" if peer in times else "" for peer in peers),
            f"{mine / min(others):.2f}" if others else "",
            f"{entry['bound'] / mine:.2f}" if entry["bound"] else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("saved", nargs="+", help="the JSON that a benchmark wrote")
    print("\n\n".join(table(saved) for saved in parser.parse_args().saved))
