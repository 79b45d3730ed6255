"""Which algorithm ``auto`` takes for the GEMMs of models: asked of the functions, on 4 H200s that are not there.

    python tests/kernels/gemm_choices.py FOLDER  # prints the table of docs/kernels.md, and what is available, as JSON

Nothing is launched: a call ends where it has chosen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import fake_gpu
import torch

N_PES, GPU = 4, "NVIDIA H200"
ROWS = (1, 7, 16, 33, 64, 100, 128, 200, 256, 333, 512, 777, 1024, 2000, 2048, 4000, 4096, 8192, 16384)
SHAPES = ((8192, 4096), (14336, 8192), (5120, 13824), (3584, 18944))  # hidden and intermediate size


class Chosen(Exception):  # noqa: N818
    """What ``auto`` takes, and what else there is."""


def operands(operation: str, rows: int, hidden: int, inner: int, *, of_blocks: bool) -> dict[str, torch.Tensor]:
    """``a`` and ``b`` of a PE, whose memory is never touched: bfloat16, or fp8 with scales of blocks."""
    m, k, n = {
        "all_gather_gemm": (rows // N_PES, hidden, inner // N_PES),
        "gemm_all_scatter": (rows, hidden, inner // N_PES),
    }.get(operation, (rows, inner // N_PES, hidden))
    if not of_blocks:
        return {"a": torch.empty(m, k, dtype=torch.bfloat16), "b": torch.empty(k, n, dtype=torch.bfloat16)}
    fp8 = torch.float8_e4m3fn
    scales = {"scale_a": torch.empty(m, k // 128), "scale_b": torch.empty(k // 128, -(-n // 128))}
    return {"a": torch.empty(m, k, dtype=fp8), "b": torch.empty(n, k, dtype=fp8).t(), **scales}


Choices = dict[str, dict[int, dict[tuple[int, int], tuple[str, tuple[str, ...]]]]]


def choices(*, of_blocks: bool, launches_return: bool = True) -> Choices:
    """By operation, M and shape: what ``auto`` takes, and all that is available. An M that PEs cannot share lacks."""
    from triton_dist import kernels
    from triton_dist.kernels.choice import files
    from triton_dist.kernels.choice.choose import Choices
    from triton_dist.kernels.communicator import communicator_of
    from triton_dist.kernels.gemm import operation as gemms
    from triton_dist.process_state import of_process
    from triton_dist.world.current import Current

    if of_process(Current).world is None:
        fake_gpu.begin_world(N_PES)
    comm = communicator_of()
    comm.world.gpu = replace(comm.world.gpu, launches_return=launches_return)
    comm.tables = comm.tables[0], files.shipped(GPU, N_PES)
    comm.own(Choices)
    asked = gemms._chosen

    def chosen(call: Any, algorithm: str, computation: Any) -> Any:
        def choose(*given: Any, **options: Any) -> str:
            found.append(plain(*given, **options))
            return found[0]

        gemms.choose_gemm, plain = choose, gemms.choose_gemm
        found: list[str] = []
        try:
            asked(call, algorithm, computation)
        finally:
            gemms.choose_gemm = plain
        raise Chosen(found[0], tuple(name for name, how in computation.algorithms.items() if not isinstance(how, str)))

    gemms._chosen = chosen
    gemms.result = lambda comm, function, out, shape, dtype, **options: torch.empty(shape, dtype=torch.bfloat16)
    table: dict[str, Any] = {}
    for name in ("all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_scatter"):
        for rows in ROWS:
            if rows % N_PES and name in ("all_gather_gemm", "gemm_reduce_scatter"):
                continue
            for shape in SHAPES:
                try:
                    getattr(kernels, name)(**operands(name, rows, *shape, of_blocks=of_blocks))
                except Chosen as found:
                    table.setdefault(name, {}).setdefault(rows, {})[shape] = found.args
    return table


def ranges(of_rows: Mapping[int, str]) -> Iterator[str]:
    for name, group in groupby(of_rows.items(), key=lambda item: item[1]):
        rows = [number for number, _ in group]
        yield f"{rows[0]} to {rows[-1]}: `{name}`" if len(rows) > 1 else f"{rows[0]}: `{name}`"


def table_lines(found: Mapping[str, Mapping[int, Mapping[tuple[int, int], tuple[str, Iterable[str]]]]]) -> list[str]:
    """The table in Markdown."""
    lines = ["| function | hidden × intermediate | M: what `auto` takes |", "| --- | --- | --- |"]
    for name, of_rows in found.items():
        for hidden, inner in SHAPES:
            taken = {rows: of_shapes[hidden, inner][0] for rows, of_shapes in of_rows.items()}
            lines.append(f"| `{name}` | {hidden} × {inner} | {'; '.join(ranges(taken))} |")
    return lines


if __name__ == "__main__":
    fake_gpu.load_driver(Path(sys.argv[1]))
    fake_gpu.use_torch_without_a_gpu()
    asked = choices(of_blocks=False)
    available = {
        name: [[rows, *how] for rows, of_shapes in of_rows.items() for _, how in of_shapes.values()]
        for name, of_rows in asked.items()
    }
    blocking = {
        name: [[rows, *found] for rows, of_shapes in of_rows.items() for found in of_shapes.values()]
        for name, of_rows in choices(of_blocks=False, launches_return=False).items()
    }
    of_blocks = {
        name: [[rows, *found] for rows, of_shapes in of_rows.items() for found in of_shapes.values()]
        for name, of_rows in choices(of_blocks=True).items()
    }
    print(json.dumps({"table": table_lines(asked), "available": available, "blocks": of_blocks, "blocking": blocking}))
