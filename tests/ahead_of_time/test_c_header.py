"""triton_dist_kernel.h and the header of a kernel: compiled by a C compiler, and run with a driver that is none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton

from triton_dist import ahead_of_time
from triton_dist.gpu import p2p

HERE = Path(__file__).parent
CUDA = Path(triton.__file__).parent / "backends/nvidia/include"
HEADER = Path(ahead_of_time.__file__).parent


def test_a_c_program_loads_and_launches(made: Any, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang-22")
    if compiler is None or not (CUDA / "cuda.h").exists():
        pytest.skip("there is no C compiler, or Triton brings no cuda.h")
    ring = made.manifest("ring").parent
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    command += [
        f"-I{HEADER}",
        f"-I{ring}",
        f"-isystem{CUDA}",
        str(HERE / "c_program.c"),
        "-o",
        str(tmp_path / "program"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = subprocess.run([str(tmp_path / "program"), str(ring / "ring.cubin")], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    state, *said = run.stdout.splitlines()
    assert state == f"state 992 {p2p.state(1, [-4096, 0], 0x7000).hex()}", "the same as in a world of Python"
    size = ahead_of_time.read(made.manifest("ring")).binary.bytes
    wrong = f"{ring}/ring.cubin is not the file of kernel ring: {size} bytes, not"
    assert said == [
        "fine",
        "launch 3 2 1 128 1 1 16: abc0 def8 -7 0.5 (nil) (nil)",
        "fine",
        "kernel ring: grid (0, 1, 1)",
        "kernel ring takes 4 arguments, not 3",
        "kernel ring has a collective and is launched with 5 programs, but the GPU runs 4 at a time",
        "PE 2 of 2",
        "kernel ring: the world has no distances or no sync",
        "kernel ring: the distance to PE 0 is 100",
        "kernel ring: p2p connects up to 72 PEs, not 73",
        "format 2, not 1",
        f"{wrong} {size + 1}, or another content",
        f"{wrong} {size}, or another content",
        "kernel ring: a wrong layout of its state",
        "kernel ring needs cumodule_init: it uses NVSHMEM",
        "kernel ring: its state has 900 bytes, not 992",
        "kernel ring is for compute capability 90, not 80",
        f"{ring}/ring.cubin: CUDA error 209 of cuModuleLoadData",
        "nothing cannot be opened",
        "no kernel is loaded",
    ]
