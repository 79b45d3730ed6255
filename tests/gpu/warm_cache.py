"""Compile the kernels that take long, in parallel, into Triton's cache, so that the PEs of a test find them there.

One of NVSHMEM's reductions takes 10 to 20 s to compile, and a PE compiles one kernel after the other.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))


def jobs() -> list[tuple[str, str, tuple[object, ...], dict[str, object]]]:
    """Module, kernel, arguments (a dtype for a tensor) and constants, as the checks launch them."""
    from ops import collectives

    found: list[tuple[str, str, tuple[object, ...], dict[str, object]]] = []
    for kernel, wanted in (
        ("reducescatter", collectives.reducescatters_to_check()),
        ("reduce", collectives.reductions_to_check()),
    ):
        for op, dtype, scope in wanted:
            found.append(("collectives", kernel, (dtype, dtype, 1000), {"OP": op, "SCOPE": scope}))
    i8, i16, i32, i64 = torch.uint8, torch.int16, torch.int32, torch.int64
    for warps in (1, 8):
        constants = {"BLOCK": 512, "num_warps": warps}
        found.append(("collectives", "many_in_a_row", (i16, i16, i16, i16, i32, 300), constants))
    found.append(("transports", "ring", (i8, i8, 100_003, i64, i32, 1), {}))
    found.append(("launches", "scatter", (i32, i32, 1000), {}))
    return found


def compile_one(module: str, kernel: str, arguments: tuple[object, ...], constants: dict[str, object]) -> float:
    """The seconds that it took."""
    begin = time.perf_counter()
    getattr(importlib.import_module(f"ops.{module}"), kernel).warmup(*arguments, grid=(1,), **constants)
    return time.perf_counter() - begin


def main() -> None:
    wanted = jobs()
    begin = time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(wanted), os.cpu_count() or 1), mp_context=spawn) as pool:
        seconds = list(pool.map(compile_one, *zip(*wanted, strict=True)))
    wall = time.perf_counter() - begin
    print(f"compiled {len(wanted)} kernels in {wall:.1f} s, up to {max(seconds):.1f} s each", flush=True)


if __name__ == "__main__":
    main()
