"""Run every benchmark that this machine can run: `python benchmarks`, or `make bench`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ALONE = ["compile_time.py", "transports.py"]
ON_ALL_GPUS = ["collectives.py", "gemms.py", "host_time.py", "model.py"]
BETWEEN_GPUS = [  # of two or more; the last two are of one GPU, started likewise
    *(
        "model_backward.py",
        "norm.py",
        "scales.py",
        "decode.py",
        "moe.py",
        "taxes.py",
        "waits.py",
        "nonblocking.py",
        "grouped_gemm.py",
        "decode_gemms.py",
    ),
]


def main() -> int:
    sys.path.insert(0, str(HERE.parent))
    import torch

    gpus = torch.cuda.device_count() if os.environ.get("TRITON_DIST_WORLD") != "cpu" else 0
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)]
    failed = []
    for name in ALONE + ON_ALL_GPUS + (BETWEEN_GPUS if gpus > 1 else []):
        launcher = torchrun if name not in ALONE and gpus > 1 else []
        print(f"== {name}", flush=True)
        path = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        if subprocess.run([sys.executable, *launcher, str(HERE / name)], env=environment).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
