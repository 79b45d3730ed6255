"""triton-dist-check --compile: what only the compiler can refuse, with the kernel's line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forking import Forker, Outcome
from limits import HANG_SECONDS

from triton_dist.triton_api.launch_compiler import LaunchCompiler

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

IN_GLUON = """
import torch, triton_dist
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
@gluon.jit
def waits(x, n, INVALIDATES: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(bars.index(0), count=1)
    mbarrier.arrive(bars.index(0))
    mbarrier.wait(bars.index(0), 0)
    last = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(last.index(0), count=1)
    if INVALIDATES:
        mbarrier.invalidate(last.index(0))
    gl.store(x + gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0])), n)
with triton_dist.init():
    x = triton_dist.zeros(128, dtype=torch.int32)
    waits[(1,)](x, 5, {invalidates})
    print("ran to its end", int(x[3]))
"""

WITH_LAYOUTS = """
import torch, triton_dist
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma
@gluon.jit
def bad(x):
{body}
with triton_dist.init():
    bad[(1,)](triton_dist.zeros(1024, dtype=torch.float16))
    print("ran to its end")
"""

LAYOUTS = {
    "a verifier's message of two lines": (
        """
    L: gl.constexpr = gl.BlockedLayout([4], [16], [4], [0])
    o = gl.arange(0, 1024, L)  # here
    gl.store(x + o, o.to(gl.float16))
        """,
        "Layout has 16 threads per warp, but the module specifies 32 threads per warp",
    ),
    "an error in a function of Triton's": (
        """
    M: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[8, 1], instr_shape=[16, 64, 16])
    acc = gl.zeros([64, 64], gl.float32, M)
    gl.store(x + gl.arange(0, 64, gl.SliceLayout(1, M)), gl.sum(acc, 1).to(gl.float16))  # here
        """,
        "Layout has 8 warps per CTA",
    ),
    "an error that ends the compiler": (
        """
    M: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    s = gl.allocate_shared_memory(gl.float16, [64, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    acc = warpgroup_mma(s, s, gl.zeros([64, 64], gl.float32, M))  # here
    gl.store(x + gl.arange(0, 64, gl.SliceLayout(1, M)), gl.sum(acc, 1).to(gl.float16))
        """,
        "unexpected operand layout for NvidiaMmaEncodingAttr v3 (the compiler ended by SIGABRT)",
    ),
    "an assertion that names no line": (
        """
    L: gl.constexpr = gl.DistributedLinearLayout([[1]], [[2], [4], [8], [16], [32]], [[64], [64]], [], [256])
    gl.store(x + gl.arange(0, 256, L), gl.full([256], 1.0, gl.float16, L))
        """,
        "(the compiler ended by SIGABRT)",
    ),
}
"""By what happens: a kernel's lines, of which the one with ``# here`` is to blame, or else the kernel's first line; and
what the finding says."""


def run(file: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {"TRITON_DIST_WORLD": "cpu", "TRITON_CACHE_DIR": str(file.parent / "cache")} | environ
    return subprocess.run(
        [sys.executable, *command, str(file)],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


@pytest.fixture(params=["sm_90", pytest.param("gfx942", marks=pytest.mark.slow)], scope="module")
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def compiling(target: str) -> Iterator[Forker]:
    """Starts PEs that compile as the command has them: it is chosen when triton_dist is imported."""
    with Forker({"OMP_NUM_THREADS": "1", "TRITON_DIST_CHECK_COMPILE": target}, ["triton_dist.compile_check"]) as forker:
        yield forker


def checked(compiling: Forker, file: Path, n_pes: int) -> Outcome:
    return compiling.run(file, n_pes=n_pes, TRITON_DIST_CHECK="1", TRITON_CACHE_DIR=str(file.parent / "cache"))


def test_what_compiles_is_no_finding(tmp_path: Path, compiling: Forker) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=False, value=2))
    result = checked(compiling, file, n_pes=1)
    assert result.statuses == [0] and "nothing found" in result.output, result.output
    assert "ran to its end" in result.output


def test_what_does_not_compile_is_a_finding(tmp_path: Path, compiling: Forker, target: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=True, value=2.5))
    result = checked(compiling, file, n_pes=2)
    assert any(result.statuses) and result.output.count("ran to its end") == 2, result.output
    assert_both_found(file, target, result.output)


def assert_both_found(file: Path, target: str, text: str) -> None:
    lines = file.read_text().splitlines()
    branch, kernel = lines.index("    if n > 3:") + 1, lines.index("def multiplies(x, BLOCK: tl.constexpr):") + 1
    assert text.count("[compile]") == 2, text
    assert re.search(rf"program.py:{branch}: PE \d, kernel stores: does not compile for {target}", text)
    assert "initial value for `y` is of type int32[], but the then block redefines it as fp32[]" in text
    assert re.search(rf"program.py:{kernel}: PE \d, kernel multiplies: does not compile for {target}", text)
    assert "bytes of shared memory" in text


def test_a_name_that_is_not_there(tmp_path: Path, compiling: Forker, target: str) -> None:
    """Triton finds it when it looks for what the kernel depends on, before it compiles."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=False, value=2).replace("dl.my_pe()", "dl.my_number()"))
    result = checked(compiling, file, n_pes=1)
    line = file.read_text().splitlines().index("def stores(x, n, BLOCK: tl.constexpr):") + 1
    assert f"program.py:{line}: PE 0, kernel stores: does not compile for {target}" in result.output, result.output
    assert "has no attribute 'my_number'" in result.output


@pytest.mark.parametrize("invalidates", [True, False])
def test_a_barrier_whose_memory_may_be_something_else(
    tmp_path: Path, compiling: Forker, target: str, invalidates: bool
) -> None:
    if target != "sm_90":
        pytest.skip("mbarriers are of NVIDIA's GPUs")
    file = tmp_path / "program.py"
    file.write_text(IN_GLUON.format(invalidates=invalidates))
    result = checked(compiling, file, n_pes=1)
    assert "ran to its end 5" in result.output, result.output
    if invalidates:
        assert result.statuses == [0] and "nothing found" in result.output
    else:
        line = next(i for i, text in enumerate(IN_GLUON.splitlines(), 1) if "last = " in text)
        assert f"program.py:{line}: PE 0, kernel waits: does not compile for sm_90" in result.output
        assert result.output.count("[compile]") == 1 and "invalidate it behind its last use" in result.output


@pytest.mark.parametrize("what", LAYOUTS)
def test_layouts_that_the_compiler_takes_badly(tmp_path: Path, compiling: Forker, target: str, what: str) -> None:
    """It may print its errors, or abort; the run goes on, and the finding has the user's line."""
    if target != "sm_90":
        pytest.skip("the layouts are those of NVIDIA's GPUs")
    body, message = LAYOUTS[what]
    file = tmp_path / "program.py"
    file.write_text(WITH_LAYOUTS.format(body=body))
    result = checked(compiling, file, n_pes=1)
    assert "ran to its end" in result.output and result.output.count("[compile]") == 1, result.output
    lines = file.read_text().splitlines()
    line = next((i for i, text in enumerate(lines, 1) if text.endswith("# here")), lines.index("def bad(x):") + 1)
    assert f"program.py:{line}: PE 0, kernel bad: does not compile for sm_90" in result.output, result.output
    assert message in result.output, result.output


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=True, value=2.5))
    result = run(file, "-m", "triton_dist.check", "--pes", "2", "--compile", "--target", "gfx942")
    assert result.returncode == 1 and result.stdout.count("ran to its end") == 2, result.stderr
    assert_both_found(file, "gfx942", result.stderr)


def test_without_a_check_it_is_an_error(tmp_path: Path, compiling: Forker, target: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=True, value=2.5))
    result = compiling.run(file, n_pes=1, TRITON_CACHE_DIR=str(file.parent / "cache"))
    assert result.statuses == [1] and "ran to its end" not in result.output
    assert f"DoesNotCompileError: {file}" in result.output
    assert f"kernel stores does not compile for {target}" in result.output


def test_a_target_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(broken=False, value=2))
    result = run(file, TRITON_DIST_CHECK_COMPILE="hopper")
    assert result.returncode == 1 and "TRITON_DIST_CHECK_COMPILE='hopper': expected 1" in result.stderr
    with pytest.raises(ValueError, match="compiles for no compute capability 900; it does for") as refused:
        LaunchCompiler("sm_900")
    offered = re.findall(r"\d+", str(refused.value).split("it does for")[1])
    assert {"75", "90", "100"} <= set(offered)
    for number in offered:
        LaunchCompiler(f"sm_{number}")
