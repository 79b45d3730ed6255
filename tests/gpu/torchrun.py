"""Start a program on several GPUs as users do, with torchrun, and never wait for it forever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def torchrun(
    n_pes: int, script: str, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run ``script`` (a path from the repository's root) with ``n_pes`` PEs; its output is stdout and stderr together.

    After ``timeout`` seconds all of its processes are killed, and the return code is that of a killed process.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_pes)]
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [*command, str(ROOT / script), *arguments],
        env={"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": os.pathsep.join(path)} | dict(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # torchrun puts its PEs into sessions of their own and ends them itself
        try:
            output, _ = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        output += f"\n(killed after {timeout} s)"
    return subprocess.CompletedProcess(command, process.returncode, output)
