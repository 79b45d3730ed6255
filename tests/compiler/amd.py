"""AMD GPUs for tests of the compiler, and a ROCSHMEM to link with: see ``tests/rocshmem_stub``."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from triton.backends.compiler import GPUTarget

ARCHITECTURES = ("gfx942", "gfx950")
STUB = Path(__file__).parents[1] / "rocshmem_stub/rocshmem_stub.cpp"


def target(architecture: str) -> GPUTarget:
    return GPUTarget("hip", architecture, 64)


def tool(name: str) -> str:
    """Clang and what belongs to it; of the LLVM that Triton reads the bitcode of."""
    found = shutil.which(f"{name}-22") or shutil.which(f"/usr/lib/llvm-22/bin/{name}")
    if not found:
        pytest.skip(f"{name}-22 is missing: apt-get install clang-22 llvm-22")
    return found


def build_rocshmem(home: Path, rocm: int = 7) -> Path:
    """An installation of the stub in ``home``; the folder, as ROCSHMEM_HOME wants it."""
    (home / "lib").mkdir(parents=True)
    for architecture in ARCHITECTURES:
        bitcode = home / "lib" / f"librocshmem_device_{architecture}.bc"
        machine = [
            "--target=amdgcn-amd-amdhsa",
            f"-mcpu={architecture}",
            "-nogpulib",
            "-Xclang",
            "-mcode-object-version=none",
        ]
        language = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", f"-DROCSHMEM_STUB_ROCM={rocm}"]
        command = [tool("clang++"), *machine, *language, "-emit-llvm", "-c", str(STUB), "-o", str(bitcode)]
        subprocess.run(command, check=True)
    return home


def defined_symbols(binary: Path) -> set[str]:
    run = subprocess.run([tool("llvm-nm"), "--defined-only", str(binary)], check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in run.stdout.splitlines()}


def assert_complete(hsaco: bytes, architecture: str, directory: Path) -> None:
    """``hsaco`` is code for that GPU and needs nothing from elsewhere."""
    file = directory / "kernel.hsaco"
    file.write_bytes(hsaco)
    command = [tool("llvm-readelf"), "-h", "--dyn-syms", str(file)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert re.search(rf"Flags:.*\b{architecture}\b", text), text
    undefined = [line for line in text.splitlines() if " UND " in line and not line.rstrip().endswith("UND")]
    assert undefined == []
