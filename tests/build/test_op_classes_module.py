"""The classes of ops for MLIR's Python bindings, which the build takes from mlir-tblgen."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LLVM = min(triton["llvm"] for triton in json.loads((ROOT / "cmake/supported_triton.json").read_text()).values())
"""The one that is installed, whichever Triton is: its clang compiles the device library."""


def test_the_module_in_use_is_that_of_the_table(tmp_path: Path) -> None:
    tablegen = shutil.which(f"mlir-tblgen-{LLVM}") or f"/usr/lib/llvm-{LLVM}/bin/mlir-tblgen"
    sources = []
    for table, kind in (("ShmemEnums", "enum"), ("ShmemOps", "op")):
        sources.append(tmp_path / f"{table}.py")
        includes = [f"-I{ROOT / 'lowering/include'}", f"-I/usr/lib/llvm-{LLVM}/include"]
        options = [f"-gen-python-{kind}-bindings", "-bind-dialect=shmem", "-o", str(sources[-1])]
        subprocess.run([tablegen, *options, *includes, str(ROOT / f"lowering/include/Shmem/{table}.td")], check=True)
    made = tmp_path / "made.py"
    generator = ROOT / "cmake/generate_mlir_bindings.py"
    subprocess.run([sys.executable, str(generator), *map(str, sources), str(made)], check=True)
    assert made.read_text() == (ROOT / "triton_dist/_C/shmem_op_classes.py").read_text(), "run `make build`"
    imported = [line for line in made.read_text().splitlines() if line.startswith("from ")]
    assert not [line for line in imported if line.startswith("from .")], "names of the bindings' own package"
