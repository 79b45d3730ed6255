"""The Python module that the build makes of the op table."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LLVM = min(triton["llvm"] for triton in json.loads((ROOT / "cmake/supported_triton.json").read_text()).values())
"""The one that is installed, whichever Triton is: its clang compiles the device library."""


def generated(folder: Path, table: str) -> str:
    """The module of a table."""
    (folder / "ShmemOps.td").write_text(table)
    tablegen = shutil.which(f"llvm-tblgen-{LLVM}") or f"/usr/lib/llvm-{LLVM}/bin/llvm-tblgen"
    includes = [f"-I{ROOT / 'lowering/include'}", f"-I/usr/lib/llvm-{LLVM}/include"]
    dump = [tablegen, "--dump-json", *includes, str(folder / "ShmemOps.td"), "-o", str(folder / "ShmemOps.json")]
    subprocess.run(dump, check=True)
    command = [sys.executable, str(ROOT / "cmake/generate_op_table.py"), str(folder / "ShmemOps.json")]
    subprocess.run([*command, str(folder / "op_table.py")], check=True)
    return (folder / "op_table.py").read_text()


@pytest.fixture(scope="module")
def table() -> str:
    return (ROOT / "lowering/include/Shmem/ShmemOps.td").read_text()


def test_the_module_in_use_is_that_of_the_table(table: str, tmp_path: Path) -> None:
    assert generated(tmp_path, table) == (ROOT / "triton_dist/_C/op_table.py").read_text(), "run `make build`"


def test_a_new_entry_is_in_the_module(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = """
let section = "Queries" in
def Shmem_NewOp : Shmem_ElectedOp<"new"> {
  let summary = "something new";
  let arguments = (ins Shmem_SymmetricPtr:$dst, Shmem_Sem:$sem, I64:$nbytes, Shmem_ElementType:$type);
  let results = (outs I32:$result);
  let effect = Shmem_Fence;
  let elements = Shmem_AtomicIntegers;
  let release = 1;
}
#endif"""
    source = generated(tmp_path, entry.join(table.rsplit("#endif", 1)))
    (tmp_path / "new_op_table.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    new = importlib.import_module("new_op_table").OPS["new"]
    assert list(new.operands) == ["dst", "nbytes"] and list(new.attributes) == ["sem", "type"]
    assert (new.section, new.result.value, new.routines["p2p"]) == ("Queries", "i32", "triton_dist_new")
    assert [element.name for element in new.elements] == ["I32", "U32", "I64", "U64"]
    assert new.release and not new.acquire and new.effect.name == "FENCE" and new.caller.name == "ELECTED"
