"""Bandwidth of put and get by size, and the round trip of a signal: dl.putmem, dl.getmem and dl.signal_op by each
transport, Triton's own loads, stores and atomics through dl.symm_at, torch's Triton helper for NVSHMEM, and the copy
engine.

    python benchmarks/transports.py [--gpus 2 4] [--programs 132 32] [--save FILE.json]

GB/s out of, or into, each GPU; every PE to the next, all at once; the slowest PE counts. Small copies are repeated
inside one kernel, or one graph of copies, always to the same place: rates above the link's are the caches'. Data is
random, and compared before anything is timed. torch's helper needs NVSHMEM to itself, so it runs right after the others
in processes of its own, by the same rules (see measure.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PARTS = ("transports_ours.py", "transports_torch.py")
TIMEOUT = 300  # seconds of one part


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0].replace("\n", " "))
    parser.add_argument("--gpus", type=int, nargs="+", help="how many PEs; default: 2, and all that there are")
    parser.add_argument("--programs", type=int, nargs="+", help="how many share a copy; default: one per SM, and 32")
    parser.add_argument("--save", type=Path, help="where to write all figures, as JSON")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    import torch

    present = torch.cuda.device_count() if os.environ.get("TRITON_DIST_WORLD") != "cpu" else 0
    if present < 2:
        print(f"transports: not measured. It needs two GPUs, and there are {present}.")
        return 0
    programs = args.programs or [torch.cuda.get_device_properties(0).multi_processor_count, 32]
    results, failed = [], False
    for n_pes in args.gpus or sorted({2, present}):
        result: dict[str, Any] = {"put": {}, "get": {}, "signal": {}}
        for part in PARTS:
            found = _run(part, n_pes, programs)
            if found is None:
                failed = failed or part == PARTS[0]
                print(f"{part} on {n_pes} GPUs: failed, see above", flush=True)
                continue
            result["machine"] = found.get("machine", result.get("machine"))
            for what in ("put", "get", "signal"):
                result[what] |= found[what]
        results.append(result)
        print(table(result), flush=True)
    if args.save:
        args.save.parent.mkdir(parents=True, exist_ok=True)
        args.save.write_text(json.dumps(results, indent=1))
    return 1 if failed else 0


def _run(part: str, n_pes: int, programs: list[int]) -> dict[str, Any] | None:
    """What a part found on so many GPUs; None when it failed."""
    path = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    if bitcode := _nvshmem_bitcode():  # torch looks beside itself only
        environment.setdefault("NVSHMEM_LIB_DIR", str(bitcode.parent))
    with tempfile.TemporaryDirectory() as directory:
        save = Path(directory, "found.json")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_pes)]
        arguments = ["--programs", *map(str, programs), "--save", str(save)]
        command = [sys.executable, *launcher, str(HERE / part), *arguments]
        try:
            subprocess.run(command, env=environment, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            print(f"{part} took longer than {TIMEOUT} s", flush=True)
        return json.loads(save.read_text()) if save.exists() else None


def _nvshmem_bitcode() -> Path | None:
    from triton_dist.compiler import device_library

    try:
        return device_library.nvshmem_bitcode()[0]
    except FileNotFoundError:
        return None


def table(result: dict[str, Any]) -> str:
    """All figures of one number of GPUs, as text."""
    machine = result["machine"] or {}
    lines = [", ".join(f"{key} {value}" for key, value in machine.items() if value is not None)]
    for what in ("put", "get"):
        sides = result[what]
        sizes = sorted({int(size) for rates in sides.values() for size in rates})
        lines.append(f"\n{what}, GB/s\n{'bytes':>10}" + "".join(f"{name:>{_width(name)}}" for name in sides))
        for size in sizes:
            rates = ((name, by_size.get(str(size))) for name, by_size in sides.items())
            cells = (f"{'-' if rate is None else f'{rate / 1e9:.2f}':>{_width(name)}}" for name, rate in rates)
            lines.append(f"{size:>10}" + "".join(cells))
    lines.append("\nsignal there and back, µs")
    lines += [f"{name:>18} {1e6 * seconds:6.2f}" for name, seconds in result["signal"].items()]
    return "\n".join(lines) + "\n"


def _width(name: str) -> int:
    return max(10, len(name) + 2)


if __name__ == "__main__":
    sys.exit(main())
