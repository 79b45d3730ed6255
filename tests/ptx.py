"""Machine code for GPUs that are not there: scripts compile kernels as far as PTX, and ptxas reports on it.

A script runs in a fork of a process whose kernels are compiled, since those of a test's own process may be interpreted.
As a program, this file is what the fork runs: ``ptx.py SCRIPT ARGUMENTS…``.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import triton
from triton.backends.nvidia.compiler import CUDABackend

__all__ = ["made_by", "ptxas_report"]

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"


def made_by(script: Path, *arguments: str | os.PathLike[str], cache: Path) -> str:
    """What a script prints that compiles kernels. ``cache`` is an empty folder for them: they have no machine code."""
    import forking  # not in the fork, where it is not to be found

    environment = {"TRITON_CACHE_DIR": str(cache)}
    result = forking.compiler().launch([__file__, script, *arguments], 1, env=environment, timeout=forking.HANG_SECONDS)
    assert result[0].returncode == 0, result.report
    return result[0].stdout


def ptxas_report(file: Path, architecture: str = "sm_90a") -> str:
    """What ptxas says of a file of PTX. The machine code is beside it, with the suffix ``.cubin``."""
    command = [PTXAS, "-v", f"-arch={architecture}", file, "-o", file.with_suffix(".cubin")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


if __name__ == "__main__":
    CUDABackend.make_cubin = lambda *arguments: b""
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
