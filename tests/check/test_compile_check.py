"""triton-dist-check --compile: what only the compiler can refuse, with the kernel's line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG_SECONDS

PROGRAM = """
import torch, triton, triton.language as tl, triton_dist, triton_dist.language as dl
BROKEN = {broken}
@triton.jit
def choose(n):
    y = 1
    if n > 3:
        y = {value}  # changes its type
    return y
@triton.jit
def stores(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, choose(n) + dl.my_pe() + tl.sum(i.to(tl.float32)), mask=i < n)
@triton.jit
def multiplies(x, BLOCK: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :])
    tl.store(x + i[:, None] * 16 + i[None, :], tl.dot(a, tl.trans(a)))
with triton_dist.init():
    x = triton_dist.zeros(64)
    for n in (5, 6, 7):
        stores[(1,)](x, n, BLOCK=16, num_warps=n - 3 if n != 6 else 2)
    size = 8192 if BROKEN else 64
    multiplies[(1,)](torch.ones(16 * size, dtype=torch.float16), BLOCK=size)
    print("ran to its end")
"""


def run(file: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {"TRITON_DIST_WORLD": "cpu", "TRITON_CACHE_DIR": str(file.parent / "cache")} | environ
    return subprocess.run(
        [sys.executable, *command, str(file)],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


@pytest.fixture(params=["sm_90", "gfx942"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_compiles_is_no_finding(tmp_path: Path, target: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=False, value=2))
    result = run(file, "-m", "triton_dist.check", "--pes", "2", "--compile", "--target", target)
    assert result.returncode == 0 and "nothing found" in result.stderr, result.stderr
    assert result.stdout.count("ran to its end") == 2


def test_what_does_not_compile_is_a_finding(tmp_path: Path, target: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=True, value=2.5))
    result = run(file, "-m", "triton_dist.check", "--pes", "2", "--compile", "--target", target)
    assert result.returncode == 1 and result.stdout.count("ran to its end") == 2, result.stderr
    lines = file.read_text().splitlines()
    branch, kernel = lines.index("    if n > 3:") + 1, lines.index("def multiplies(x, BLOCK: tl.constexpr):") + 1
    assert result.stderr.count("[compile]") == 2, result.stderr
    assert re.search(rf"program.py:{branch}: PE \d, kernel stores: does not compile for {target}", result.stderr)
    assert "initial value for `y` is of type int32[], but the then block redefines it as fp32[]" in result.stderr
    assert re.search(rf"program.py:{kernel}: PE \d, kernel multiplies: does not compile for {target}", result.stderr)
    assert "bytes of shared memory" in result.stderr


def test_without_a_check_it_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=True, value=2.5))
    result = run(file, TRITON_DIST_CHECK_COMPILE="1")
    assert result.returncode == 1 and "ran to its end" not in result.stdout
    assert "DoesNotCompileError: " in result.stderr and "kernel stores does not compile for sm_90" in result.stderr


def test_a_target_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=False, value=2))
    result = run(file, TRITON_DIST_CHECK_COMPILE="hopper")
    assert result.returncode == 1 and "TRITON_DIST_CHECK_COMPILE='hopper': expected 1" in result.stderr
