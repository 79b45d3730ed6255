"""Compiles a module of MLIR to machine code, by ``triton-dist-compile`` in a process of its own."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _triton_dist_compile
from triton_dist.ahead_of_time.manifest import Manifest, read, read_file
from triton_dist.mlir.engine import IRError, as_text, file_name, first_error, run

__all__ = ["CompiledKernel", "compile"]


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's code, and what its loader must know."""

    ptx: str
    cubin: bytes
    manifest: Manifest


def compile(
    module: Any,
    target: str = "cuda:90",
    *,
    num_warps: int = 4,
    transport: str = "p2p",
    output: str | Path | None = None,
    name: str = "module.mlir",
) -> CompiledKernel:
    """Compile the kernel of a module.

    Args:
        module: as for :func:`triton_dist.mlir.verify`. One function of the LLVM dialect has the attribute
            ``nvvm.kernel``; bodies are of llvm, nvvm, arith, cf, scf, index and shmem.
        target: ``"cuda:90"``, ``"cuda:100"``, …
        num_warps: of a program: it is launched with 32 times as many threads, which execute each shmem op together.
        transport: whose routines are linked: ``"p2p"`` or ``"nvshmem"``.
        output: a folder that receives the files of ``triton-dist-compile``, for
            :func:`triton_dist.ahead_of_time.load`; None: no files are kept.
        name: the file that errors name, where the module has no other locations.

    Raises:
        IRError: the module does not verify or compile.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, file_name(name))
        file.write_text(as_text(module), encoding="utf-8")
        folder = Path(output) if output is not None else Path(directory)
        options = [f"--target={target}", f"--num-warps={num_warps}", f"--transport={transport}", f"--output={folder}"]
        done = run([sys.executable, _triton_dist_compile.__file__, str(file), *options])
        if done.returncode != 0:
            raise IRError(first_error(done).removeprefix("triton-dist-compile: ").replace(f"{directory}/", ""))
        manifest = Path(next(line for line in done.stdout.splitlines() if line.endswith(".json")))
        read_manifest = read(manifest)
        return CompiledKernel(
            ptx=read_file(manifest, read_manifest.files["ptx"]).decode(),
            cubin=read_file(manifest, read_manifest.files["cubin"]),
            manifest=read_manifest,
        )
