"""Compile the kernels of worker_ahead_of_time.py: ``python tests/gpu/compile_ahead_of_time.py FOLDER [cuda:90]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests/ahead_of_time/ahead_kernels.py"
COMMAND = [sys.executable, str(ROOT / "_triton_dist_compile.py")]

MLIR = """\
llvm.func @ring(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %signal: !llvm.ptr<1>, %nbytes: i64) attributes {nvvm.kernel} {
  %one = arith.constant 1 : i32
  %arrived = arith.constant 1 : i64
  %me = shmem.my_pe : i32
  %n = shmem.n_pes : i32
  %behind = arith.addi %me, %one : i32
  %next = arith.remsi %behind, %n : i32
  shmem.putmem_signal block %dst, %src, %nbytes, %signal, add %arrived, %next : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  %seen = shmem.signal_wait_until %signal, ge %arrived : !llvm.ptr<1>
  llvm.return
}
"""
"""What examples/mlir_ring.py builds."""


def compile_all(folder: Path, target: str = "cuda:90") -> None:
    ring = ["--signature=*fp32:16, *i64, i32, fp32, 256", f"--target={target}"]
    for transport in ("p2p", "nvshmem"):
        output = [f"--transport={transport}", f"--output={folder / transport}"]
        subprocess.run([*COMMAND, f"{KERNELS}:ring", *ring, *output], check=True)
    meet = [f"{KERNELS}:meet", "--signature=*i32", f"--target={target}", f"--output={folder / 'p2p'}"]
    subprocess.run([*COMMAND, *meet], check=True)
    file = folder / "mlir" / "ring.mlir"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(MLIR)
    subprocess.run([*COMMAND, str(file), f"--target={target}", f"--output={file.parent}"], check=True)


if __name__ == "__main__":
    compile_all(Path(sys.argv[1]), *sys.argv[2:3])
