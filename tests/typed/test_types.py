"""Programs pass a strict type checker, and what they must not pass is found by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from forking import launch

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")

MISTAKES = {
    "split_strided(0, 1, 1)": 'split_strided("0", 1, 1)',
    "x.clone(), world.pe)": "x.clone(), 1.5)",
}
"""Of the host's. What kernels pass is for pyright, which reads Triton's sources: to mypy, Triton has no types."""


def mypy(file: Path, cache: Path) -> str:
    options = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache)]
    allowed = ["--allow-untyped-decorators", "--follow-imports", "silent"]  # Triton has no types
    command = [sys.executable, "-m", "mypy", *options, *allowed, str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_a_program_has_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    cache = ROOT / ".mypy_cache"
    found = mypy(PROGRAM, cache)
    assert "Success: no issues found" in found, found
    text = PROGRAM.read_text()
    for right, wrong in MISTAKES.items():
        assert right in text
        text = text.replace(right, wrong)
    mistaken = tmp_path / "mistaken.py"
    mistaken.write_text(text)
    found = mypy(mistaken, cache)
    for wrong in MISTAKES.values():
        number = next(number for number, line in enumerate(text.splitlines(), 1) if wrong in line)
        assert f"mistaken.py:{number}: error:" in found, found


@pytest.mark.parametrize("n_pes", [1, 2])
def test_the_program_runs(n_pes: int) -> None:
    launch([PROGRAM], n_pes, env={"TRITON_DIST_WORLD": "cpu"}).check()
