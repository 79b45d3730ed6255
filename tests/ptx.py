"""Machine code for GPUs that are not there: scripts compile kernels as far as PTX, and ptxas reports on it.

A script runs in a fork of a process whose kernels are compiled, since those of a test's own process may be interpreted.
As a program, this file is what the fork runs: ``ptx.py SCRIPT ARGUMENTS…``.
"""

from __future__ import annotations

import gc
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import triton
from triton.backends.nvidia.compiler import CUDABackend, get_ptxas

__all__ = ["made_by", "ptxas_report", "wide_accesses", "without_machine_code"]


def without_machine_code() -> dict[str, str]:
    """The environment of programs that leave out ptxas: their kernels are cached apart, where no others look."""
    return {"TRITON_CACHE_DIR": str(Path(os.environ["TRITON_CACHE_DIR"]).with_name("triton-without-machine-code"))}


def made_by(script: Path, *arguments: str | os.PathLike[str]) -> str:
    """What a script prints that compiles kernels."""
    import forking  # not in the fork, where it is not to be found

    environment = without_machine_code()
    result = forking.compiler().launch([__file__, script, *arguments], 1, env=environment, timeout=forking.HANG_SECONDS)
    assert result[0].returncode == 0, result.report
    return result[0].stdout


def ptxas_report(file: Path, architecture: str = "sm_90a") -> str:
    """What Triton's ptxas for an architecture says of a file of PTX. The machine code is beside it, ``.cubin``."""
    ptxas = get_ptxas(int(architecture.strip("sm_a"))).path
    command = [ptxas, "-v", f"-arch={architecture}", file, "-o", file.with_suffix(".cubin")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def wide_accesses(cubin: Path) -> str:
    """The loads of 16 bytes (``L``) and all stores (``S``) of global memory in machine code, in its order."""
    nvdisasm = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    listing = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    return "".join("L" if load else "S" for load in re.findall(r"\s(?:(LDG\.E\.128)|STG?\.E)", listing))


if __name__ == "__main__":
    gc.disable()  # it ends soon
    CUDABackend.make_cubin = lambda *arguments: b""
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
