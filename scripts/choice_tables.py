"""Write the tables of measured times that the package comes with, from the results of the benchmarks.

    python scripts/choice_tables.py

Of every algorithm that a result has by itself the median is taken. A file that ``kernels.tune`` has stored may be put
beside them as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triton_dist.kernels.choice.tables import BYTES, Case, Entry, Table, encoded

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLES = ROOT / "triton_dist" / "kernels" / "choice" / "tables"
SOURCES = {
    "nvidia-h100-80gb-hbm3-2.json": (
        "2026-11-23-2xh100-collectives.json",
        "2026-11-25-2xh100-norm.json",
        "2026-11-25-2xh100-norm-shards.json",
        "2026-11-23-2xh100-gemms-rows.json",
        "2026-11-25-2xh100-gemms-3584.json",
        "2026-11-25-2xh100-gemms-5120.json",
        "2026-11-27-2xh100-gemms-tiles.json",
    ),
    "nvidia-h100-80gb-hbm3-4.json": (
        "2026-11-26-4xh100-reduce-scatter.json",
        "2026-11-26-4xh100-all-reduce.json",
        "2026-11-26-4xh100-gemms-5120.json",
        "2026-11-26-4xh100-gemms-reduce.json",
        "2026-11-26-4xh100-gemms-direct.json",
        "2026-11-27-4xh100-gemms-all-reduce.json",
        "2026-11-27-4xh100-gemms.json",
        "2026-11-27-4xh100-gemms-tiles.json",
        "2026-11-28-4xh100-gemms-direct.json",
        "2026-11-28-4xh100-gemms.json",
    ),
    "nvidia-h200-2.json": (
        "2026-11-21-2xh200-collectives.json",
        "2026-11-25-2xh200-all-reduce.json",
        "2026-11-28-2xh200-all-reduce.json",
        "2026-11-21-2xh200-gemms.json",
        "2026-11-23-2xh200-gemms-rows.json",
        "2026-11-25-2xh200-gemms-all-reduce.json",
        "2026-11-26-2xh200-gemms-7168.json",
        "2026-11-26-2xh200-scatter-8192.json",
        "2026-11-26-2xh200-scatter-5120.json",
        "2026-11-27-2xh200-gemms.json",
        "2026-11-28-2xh200-gemms-5120.json",
        "2026-11-28-2xh200-gemms-7168.json",
        "2026-11-28-2xh200-gemms-3584.json",
        "2026-11-28-2xh200-gemms-8192.json",
        "2026-11-28-2xh200-gemms-bands-3584.json",
        "2026-11-28-2xh200-gemms-bands-5120.json",
        "2026-11-28-2xh200-gemms-bands-7168.json",
        "2026-11-28-2xh200-gemms-bands-8192.json",
        "2026-11-25-2xh200-norm.json",
        "2026-11-25-2xh200-norm-shards.json",
    ),
    "nvidia-h200-4.json": (
        "2026-11-21-4xh200-collectives.json",
        "2026-11-26-4xh200-all-reduce.json",
        "2026-11-21-4xh200-gemms.json",
        "2026-11-26-4xh200-scatter-5120.json",
        "2026-11-28-4xh200-all-reduce.json",
        "2026-11-28-4xh200-gemms.json",
        "2026-11-28-4xh200-gemms-3584.json",
        "2026-11-28-4xh200-gemms-7168.json",
        "2026-11-28-4xh200-gemms-8192.json",
        "2026-11-28-4xh200-gemms-bands-3584.json",
        "2026-11-28-4xh200-gemms-bands-5120.json",
        "2026-11-28-4xh200-gemms-bands-7168.json",
        "2026-11-28-4xh200-gemms-bands-8192.json",
    ),
}
_UNITS = {"KB": 1 << 10, "MB": 1 << 20}


def case_of(title: str, n_pes: int) -> Case:
    """The case of an entry's title. Titles have the sizes of all PEs together where they do not say ``/PE``."""
    operation, *_ = title.split()
    if found := re.search(r"(\d+) (KB|MB)", title):
        return Case(operation, BYTES, (int(found[1]) * _UNITS[found[2]],))
    if operation.endswith("_norm") or operation == "norm_all_gather":
        rows, columns = map(int, re.findall(r"\d+", title)[:2])
        return Case(operation, "bfloat16", (rows // n_pes if operation == "norm_all_gather" else rows, columns))
    if found := re.search(r"(\d+) × (\d+)", title):
        return Case(operation, BYTES, (int(found[1]) * int(found[2]) * 2,))
    sizes = {name: int(size) for name, size in re.findall(r"([MNK](?:/PE)?)=(\d+)", title)}
    if operation == "gemm_all_scatter":
        sizes["N"] //= n_pes
    if operation == "all_gather_gemm":
        sizes["M"] //= n_pes
    return Case(operation, "bfloat16", (sizes["M"], *(sizes.get(x) or sizes[f"{x}/PE"] for x in "NK")))


def entries_of(result: dict[str, Any], n_pes: int) -> Iterator[Entry]:
    """The entries of a benchmark's file that compare several algorithms; of norms, those that do not quantise."""
    for entry in result["entries"]:
        if "fp8 a " in entry["title"]:
            continue
        times = {
            name.removeprefix("ours").lstrip(", "): figures["median"]
            for name, figures in entry["timings"].items()
            if re.match(r"ours,? \w", name)
        }
        if len(times) > 1:
            yield Entry(case_of(entry["title"], n_pes), times)


def table_of(*files: str) -> str:
    """The table of the benchmarks' files, all of one machine."""
    results = [json.loads((RESULTS / file).read_text()) for file in files]
    (gpus,) = {result["machine"]["gpus"] for result in results}
    count, gpu = gpus.split(" × ")
    entries = [entry for result in results for entry in entries_of(result, int(count))]
    return encoded(Table(gpu, int(count), entries).in_order(), "benchmarks/results: " + ", ".join(files))


if __name__ == "__main__":
    for name, files in SOURCES.items():
        (TABLES / name).write_text(table_of(*files))
