"""Bandwidth of put and get by size, and the round trip of a signal: dl.putmem, dl.getmem and dl.signal_op by each
transport, Triton's own loads, stores and atomics through dl.symm_at, torch's Triton helper for NVSHMEM, and the copy
engine.

    python benchmarks/transports.py [--gpus 2 4] [--programs 132 32] [--save FILE.json]

GB/s out of, or into, each GPU; every PE to the next, all at once; the slowest PE counts. Small copies are repeated
inside one kernel, or one graph of copies, always to the same place: rates above the link's are the caches'. A repeated
dl.getmem fetches anew, since it is ordered behind what was there before; loads and torch's gets may find in the L1
cache what the last one fetched. torch's signals order nothing, the others do. Data is random, and compared before
anything is timed. On fewer GPUs than the most that are asked for, the others idle. torch's
helper needs NVSHMEM to itself, so it runs right after the others in processes of its own, by the same rules
(measure.py).
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
OURS, TORCHS = "transports_ours.py", "transports_torch.py"
TIMEOUT = 150  # seconds of one part


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
    gpus = args.gpus or sorted({2, present})
    results: dict[str, Any] = {"signal": {}} | {str(n_pes): {"put": {}, "get": {}} for n_pes in gpus}
    failed = False
    for part in (OURS, TORCHS):
        found, complete = _run(part, gpus, programs)
        if not complete:
            failed = failed or part == OURS  # without a peer there is still something to see
            print(f"{part}: {'not all was' if found else 'nothing was'} measured, see above", flush=True)
        results["machine"] = found.get("machine", results.get("machine"))
        results["signal"] |= found.get("signal", {})
        for n_pes in filter(found.__contains__, map(str, gpus)):
            for what in ("put", "get"):
                results[n_pes][what] |= found[n_pes][what]
        if args.save:
            args.save.parent.mkdir(parents=True, exist_ok=True)
            args.save.write_text(json.dumps(results, indent=1))
    print(table(results), flush=True)
    return 1 if failed else 0


def _run(part: str, gpus: list[int], programs: list[int]) -> tuple[dict[str, Any], bool]:
    """What a part found, and whether it came to its end."""
    path = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    if bitcode := _nvshmem_bitcode():  # torch looks beside itself only
        environment.setdefault("NVSHMEM_LIB_DIR", str(bitcode.parent))
    with tempfile.TemporaryDirectory() as directory:
        save = Path(directory, "found.json")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(max(gpus))]
        arguments = ["--gpus", *map(str, gpus), "--programs", *map(str, programs), "--save", str(save)]
        process = subprocess.Popen([sys.executable, *launcher, str(HERE / part), *arguments], env=environment)
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            print(f"{part} took longer than {TIMEOUT} s", flush=True)
            process.terminate()  # torchrun then ends its PEs
            process.wait()
        return json.loads(save.read_text()) if save.exists() else {}, process.returncode == 0


def _nvshmem_bitcode() -> Path | None:
    from triton_dist.compiler import device_library

    try:
        return device_library.nvshmem_bitcode()[0]
    except FileNotFoundError:
        return None


def table(results: dict[str, Any]) -> str:
    """All figures as text."""
    machine = results.get("machine") or {}
    lines = [", ".join(f"{key} {value}" for key, value in machine.items() if value is not None)]
    for n_pes in filter(str.isdecimal, results):
        for what, sides in results[n_pes].items():
            sizes = sorted({int(size) for rates in sides.values() for size in rates})
            lines.append(f"\n{what} on {n_pes} GPUs, GB/s")
            lines.append(f"{'bytes':>10}" + "".join(f"{name:>{_width(name)}}" for name in sides))
            for size in map(str, sizes):
                cells = (
                    f"{rates[size] / 1e9:>{_width(name)}.2f}" if size in rates else f"{'':>{_width(name)}}"
                    for name, rates in sides.items()
                )
                lines.append(f"{size:>10}" + "".join(cells))
    lines.append("\nsignal there and back, µs")
    lines += [f"{name:>18} {1e6 * seconds:6.2f}" for name, seconds in results["signal"].items()]
    return "\n".join(lines) + "\n"


def _width(name: str) -> int:
    return max(10, len(name) + 2)


if __name__ == "__main__":
    sys.exit(main())
