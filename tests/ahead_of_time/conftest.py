"""What triton-dist-compile makes of the kernels here and of mistakes, from one process for all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from requests_to_compile import GOOD, HERE, SOURCE, WRONG


class Made:
    def __init__(self, folder: Path, answers: dict[str, tuple[int, str]]) -> None:
        self.folder = folder
        self.answers = answers

    def manifest(self, case: str) -> Path:
        (path,) = (self.folder / case).glob("*.json")
        return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    (folder / "k.mlir").write_text("llvm.func @f() {\n  llvm.return\n}\n")
    kernel = "llvm.func @f(%signal: !llvm.ptr<1>, %n: i64) attributes {nvvm.kernel} {\n  %pe = shmem.my_pe : i32\n"
    kernel += (
        '  "shmem.signal_op"(%signal, %n, %pe) {sig_op = 1 : i32} : (!llvm.ptr<1>, i64, i32) -> ()\n  llvm.return\n}\n'
    )
    changed = {
        "two": kernel + kernel.replace("@f", "@g"),
        "structure": kernel.replace("%n: i64", "%n: i64, %s: !llvm.struct<(i32, i64)>"),
        "result": kernel.replace("i64) attr", "i64) -> i64 attr").replace("llvm.return", "llvm.return %n : i64"),
        "name": kernel.replace("@f", '@"a b"'),
        "clusters": 'module attributes {"ttg.num-ctas" = 4 : i32} {' + kernel + "}",
        "type": kernel.replace("i32\n", "i64\n"),
    }
    for name, text in changed.items():
        (folder / f"{name}.mlir").write_text(text)
    (folder / "syntax.py").write_text("x = 1\nx = = 2\n")
    (folder / "fails.py").write_text("import os\n\n{}['x']\n")
    letters = "import triton\nimport triton_dist.language as dl\n\n\n@triton.jit\ndef f(größe):\n    dl.barrier_all()\n"
    (folder / "letters.py").write_text(letters)
    (folder / "copy").mkdir()
    shutil.copy(SOURCE, folder / "copy")
    asked = {name: [*arguments, f"--output={folder / name}"] for name, arguments in GOOD.items()}
    asked |= {name: arguments for name, (arguments, _) in WRONG.items()}
    cases = {name: [text.replace("FOLDER", str(folder)) for text in arguments] for name, arguments in asked.items()}
    command = [sys.executable, str(HERE / "compile_cases.py")]
    done = subprocess.run(command, input=json.dumps(list(cases.values())), capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    return Made(folder, dict(zip(cases, map(tuple, answers), strict=True)))
