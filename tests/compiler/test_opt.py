"""triton-dist-opt, the command: installed under that name, it parses, runs passes and prints."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from triton_dist.triton_api import opt

PYPROJECT = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
MODULE = "module {\n  tt.func @f() {\n    %me = shmem.my_pe : i32\n    tt.return\n  }\n}\n"


def test_commands_of_the_package_exist() -> None:
    table = re.search(r"^\[project\.scripts\]\n((?:[\w-]+ = .*\n)+)", PYPROJECT, re.MULTILINE)
    assert table
    for module, function in re.findall(r'"([\w.]+):(\w+)"', table.group(1)):
        assert callable(getattr(importlib.import_module(module), function))


def test_passes_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "module.mlir"
    file.write_text(MODULE)
    assert opt.main([str(file)]) == 0
    assert "shmem.my_pe" in capsys.readouterr().out
    assert opt.main([str(file), "--pass", "canonicalize"]) == 0
    assert "shmem.my_pe" not in capsys.readouterr().out  # its result is not used


def test_a_mistake_is_an_exit_status(tmp_path: Path) -> None:
    file = tmp_path / "module.mlir"
    file.write_text(MODULE.replace("i32", "i64x"))
    assert opt.main([str(file)]) == 1


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), ("", "Is a directory"), (b"\xff\x00", "can't decode byte 0xff")]
)
def test_what_is_no_text_is_one_error(
    content: str | bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "module.mlir"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        file.mkdir()
    with pytest.raises(SystemExit) as end:
        opt.main([str(file)])
    assert end.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [["--target", "bogus"], ["--target", "sm_90"], ["--num-warps", "3"], ["--num-warps", "-1"], ["--n-pes", "x"]],
)
def test_impossible_values(wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "module.mlir"
    file.write_text(MODULE)
    with pytest.raises(SystemExit) as end:
        opt.main([str(file), *wrong])
    assert end.value.code == 2 and f"argument {wrong[0]}: '{wrong[1]}' is no" in capsys.readouterr().err


@pytest.mark.parametrize("parts", [1, 2])
def test_errors_name_the_file(parts: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "module.mlir"
    file.write_text("// -----\n".join([MODULE] * (parts - 1) + ["\nmodule {\n  foo.bar\n}\n"]))
    assert opt.main([str(file), *["--split-input-file"][: parts - 1]]) == 1
    line = 3 if parts == 1 else MODULE.count("\n") + 4
    named = str(file) if parts == 1 else file.name
    assert f'loc("{named}":{line}:3): error' in capfd.readouterr().err


def test_the_file_as_a_program_imports_no_torch(tmp_path: Path) -> None:
    """Every line of the lit tests starts it."""
    file = tmp_path / "module.mlir"
    file.write_text(MODULE)
    command = [sys.executable, "-X", "importtime", opt.__file__, str(file)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "shmem.my_pe" in run.stdout
    imported = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    assert "triton._C.libtriton" in imported
    assert not {"torch", "triton_dist"} & imported
