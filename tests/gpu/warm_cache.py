"""Compile the kernels of the checks, in parallel, into Triton's cache, so that the PEs of a test find them there.

    python tests/gpu/warm_cache.py p2p nvshmem

A PE compiles one kernel after the other, and one of NVSHMEM's reductions takes 10 to 30 s. Here each GPU runs its part
of the checks alone, and the reductions are compiled by as many processes as there are cores.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


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


def compile_reductions() -> None:
    """For the transport that ``TRITON_DIST_TRANSPORT`` names."""
    wanted = jobs()
    begin = time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(wanted), os.cpu_count() or 1), mp_context=spawn) as pool:
        seconds = list(pool.map(compile_one, *zip(*wanted, strict=True)))
    wall = time.perf_counter() - begin
    print(f"compiled {len(wanted)} kernels in {wall:.1f} s, up to {max(seconds):.1f} s each", flush=True)


def run_alone(transport: str, gpu: str, part: int, parts: int) -> subprocess.Popen[bytes]:
    """One part of the checks in a world of one PE on a GPU: what they launch is compiled, whatever comes out."""
    here = {"CUDA_VISIBLE_DEVICES": gpu, "TRITON_DIST_TRANSPORT": transport, "TRITON_DIST_WORLD": "gpu"}
    command = [sys.executable, str(HERE / "worker_ops.py"), "--part", f"{part}/{parts}", "--without", "reduc"]
    return subprocess.Popen(command, env=os.environ | here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    begin = time.perf_counter()
    parts = torch.cuda.device_count()
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(parts)))).split(",")[:parts]
    alone = [run_alone(transport, gpu, i, parts) for transport in sys.argv[1:] for i, gpu in enumerate(gpus)]
    if "nvshmem" in sys.argv[1:]:
        os.environ["TRITON_DIST_TRANSPORT"] = "nvshmem"
        compile_reductions()
    for process in alone:
        try:
            process.wait(max(1.0, begin + 100 - time.perf_counter()))
        except subprocess.TimeoutExpired:
            process.kill()
    print(f"warm after {time.perf_counter() - begin:.1f} s: {[process.poll() for process in alone]}", flush=True)


if __name__ == "__main__":
    main()
