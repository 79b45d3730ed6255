"""Kernels that were compiled ahead of time, launched in a world: one PE's part. For GPUs.

python tests/gpu/compile_ahead_of_time.py FOLDER    # on any machine; needs no GPU
torchrun --nproc-per-node 2 tests/gpu/worker_ahead_of_time.py FOLDER
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import triton_dist
from triton_dist import ahead_of_time

HERE = Path(__file__).resolve().parent
CUDA = Path(triton.__file__).parent / "backends/nvidia/include"


def told(pe: int, text: str) -> None:
    if pe == 0:
        print(f"PASS {text}", flush=True)


def rings(world: Any, folder: Path) -> None:
    """ring(out, signal, n, scale): out[:n] = the signal's value times scale, and the next PE's signal is increased."""
    for transport in world.transports:
        kernel = ahead_of_time.load(folder / transport / "ring.json")
        out, signal = triton_dist.zeros(256, dtype=torch.float32), triton_dist.zeros(1, dtype=torch.int64)
        triton_dist.barrier_all()
        kernel[1](out, signal, 100, 0.5)
        triton_dist.barrier_all()
        assert signal.item() == 1 and (out[:100] == 0.5).all() and (out[100:] == 0).all(), out
        with pytest.raises(ValueError, match="is not in the symmetric heap"):
            kernel[1](out, torch.zeros(1, dtype=torch.int64, device=world.device), 100, 0.5)
        triton_dist.barrier_all()
        told(world.pe, f"ring over {transport}")


def barrier(world: Any, folder: Path) -> None:
    """meet(out): a barrier of all PEs, then out = the PE's number."""
    kernel = ahead_of_time.load(folder / "p2p" / "meet.json")
    out = triton_dist.full(1, -1, dtype=torch.int32)
    for _ in range(10):
        kernel[1](out)
    torch.cuda.synchronize()
    assert out.item() == world.pe
    told(world.pe, "ten barriers")


def from_mlir(world: Any, folder: Path) -> None:
    """The ring of examples/mlir_ring.py: dst on the next PE becomes this PE's src."""
    kernel = ahead_of_time.load(folder / "mlir" / "ring.json")
    dst, src = triton_dist.zeros(1000, dtype=torch.int32), triton_dist.full(1000, world.pe + 1, dtype=torch.int32)
    signal = triton_dist.zeros(1, dtype=torch.int64)
    triton_dist.barrier_all()
    kernel[1](dst, src, signal, src.nbytes)
    triton_dist.barrier_all()
    assert (dst == (world.pe - 1) % world.n_pes + 1).all(), dst
    told(world.pe, "a ring from MLIR")


def from_c(world: Any, folder: Path) -> None:
    """The ring, loaded and launched by triton_dist_kernel.h."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        told(world.pe, "no C compiler: the header was not tried")
        return
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory, "library.so")
        header = Path(ahead_of_time.__file__).parent
        command = [compiler, "-std=c99", "-shared", "-fPIC", f"-I{header}", f"-I{folder / 'p2p'}", f"-I{CUDA}"]
        command += [str(HERE / "ahead_of_time_library.c"), "-l:libcuda.so.1", "-o", str(library)]
        subprocess.run(command, check=True)
        c = ctypes.CDLL(str(library))
    error = ctypes.create_string_buffer(500)
    distances = (ctypes.c_int64 * world.n_pes)(*world._distances)
    sync = ctypes.c_uint64(world._sync.data_ptr())
    path = str(folder / "p2p" / "ring.cubin").encode()
    size = ctypes.c_size_t(len(error))
    assert c.load(path, world.pe, world.n_pes, distances, sync, error, size) == 0, error.value
    out, signal = triton_dist.zeros(256, dtype=torch.float32), triton_dist.zeros(1, dtype=torch.int64)
    triton_dist.barrier_all()
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_uint64(out.data_ptr()), ctypes.c_uint64(signal.data_ptr())
    assert c.launch(*pointers, 100, ctypes.c_float(0.5), stream, error, size) == 0, error.value
    triton_dist.barrier_all()
    assert signal.item() == 1 and (out[:100] == 0.5).all() and (out[100:] == 0).all(), out
    told(world.pe, "ring from C")


def main(folder: Path) -> int:
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    early = ahead_of_time.load(folder / "p2p" / "meet.json")  # before there is a world
    with triton_dist.init() as world:
        rings(world, folder)
        if "p2p" in world.transports:
            barrier(world, folder)
            early[1](triton_dist.zeros(1, dtype=torch.int32))
            torch.cuda.synchronize()
            told(world.pe, "a kernel that was loaded before init()")
            from_mlir(world, folder)
            from_c(world, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
