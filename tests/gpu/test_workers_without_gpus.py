"""What is checked between GPUs is checked in the CPU world, too: the same programs, and here they run everywhere."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from forking import COMPILER, launch

from triton_dist._C.op_table import OPS
from triton_dist.testing import Result

HERE = Path(__file__).resolve().parent

CPU = {"TRITON_DIST_WORLD": "cpu"}
OF_KERNELS = ("--without", "kernels_", "gemm", "fp8_", "sums_with_", "fused_norms", "flash_decode", "wrap_around")
"""Leaves out checks of ``triton_dist.kernels``, of which there are others in ``tests/kernels/checks``."""


@pytest.mark.parametrize(
    ("n_pes", "without"),
    [pytest.param(3, (), marks=pytest.mark.slow), (2, OF_KERNELS)],
    ids=["3-all", "2-language"],
)
def test_ops(n_pes: int, without: tuple[str, ...], tmp_path: Path) -> None:
    report = tmp_path / "results.json"
    launch(
        [HERE / "worker_ops.py", *without, "--limit", "600", "--results", report], n_pes, env=CPU, modules=COMPILER
    ).check()
    run = json.loads(report.read_text())
    listed = (
        launch([HERE / "worker_ops.py", *without, "--list"], 1, env=CPU, modules=COMPILER).check()[0].stdout.split()
    )
    assert sorted([*(check["check"] for check in run["checks"] if check["passed"]), *run["skipped"]]) == sorted(listed)
    used = {op for check in run["checks"] for op in check["ops"]}
    assert set(OPS) - used == {"always", "poll"}, "ops that no check between PEs uses"


@pytest.mark.slow
def test_ops_between_pretended_hosts(tmp_path: Path) -> None:
    """Without loads and stores between PEs: checks that need them are left out, and so these say what does."""
    report = tmp_path / "results.json"
    env = {**CPU, "TRITON_DIST_TOPOLOGY": "3x1"}
    launch([HERE / "worker_ops.py", "--limit", "600", "--results", report], 3, env=env).check()
    run = json.loads(report.read_text())
    assert all(check["passed"] for check in run["checks"]) and len(run["checks"]) > 50


def test_heap_teams_and_host_operations() -> None:
    result = launch([HERE / "worker_heap.py"], 4, env=CPU).check()
    assert result[0].stdout.count("PASS") == 5, "checks are missing"


@pytest.mark.slow
def test_operators_and_parallel_styles_of_pytorch() -> None:
    result = launch([HERE / "worker_torch_ops.py"], 2, env=CPU, modules=COMPILER).check()
    assert result[0].stdout.count("PASS") == 8, result.report


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("transformers"), reason="Hugging Face transformers is not installed (extra models)")
def test_hugging_face() -> None:
    result = launch([HERE / "worker_hf.py"], 2, env=CPU, timeout=300, modules=COMPILER).check()
    assert result[0].stdout.count("PASS") == 4, result.report


@pytest.mark.slow
def test_groups() -> None:
    result = launch([HERE / "worker_groups.py"], 4, env=CPU, modules=COMPILER).check()
    assert result[0].stdout.count("PASS") == 2, result.report


@pytest.mark.slow
def test_mixture_of_experts() -> None:
    result = launch([HERE / "worker_moe.py"], 2, env=CPU, timeout=200, modules=COMPILER).check()
    assert result[0].stdout.count("PASS") == 36, result.report


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["2x1", "2x2"])
def test_mixture_of_experts_between_pretended_hosts(topology: str) -> None:
    env, n_pes = CPU | {"TRITON_DIST_TOPOLOGY": topology}, 2 * int(topology[-1])
    result = launch([HERE / "worker_moe.py"], n_pes, env=env, timeout=200, modules=COMPILER).check()
    assert result[0].stdout.count("PASS") == 23, result.report


def test_lifecycle() -> None:
    result = launch([HERE / "worker_lifecycle.py"], 2, env=CPU).check()
    assert "lifecycle: passed" in result[0].stdout


def test_a_wrong_result_is_found() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})"
        + """
from ops import copies
from ops.harness import main
class Nothing:
    def __getitem__(self, grid):
        return lambda *arguments, **constants: None
copies.copy = Nothing()  # a kernel that does nothing
sys.argv = ["worker", "--only", "getmem"]
sys.exit(main())
"""
    )
    result = launch(["-c", program], 2, env=CPU)
    assert [pe.returncode for pe in result] == [1, 1], result.report
    assert "FAIL getmem on PEs [0, 1] AssertionError: 1 bytes to +0 from +0" in result[0].stdout, result.report


def test_a_check_that_fails_while_the_others_wait_ends_the_run() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})"
        + """
import time
from ops import harness
harness.LEFT_ALONE_SECONDS = 1
@harness.check
def one_alone(world):
    assert world.pe != 1, "not here"
    time.sleep(1000)  # as in a kernel that waits for PE 1
sys.argv = ["worker"]
sys.exit(harness.main())
"""
    )
    result = launch(["-c", program], 3, env=CPU)
    assert not result.timed_out and all(pe.returncode for pe in result), result.report
    assert "AssertionError: not here" in result[1].stdout and "Timeout" in result[1].stderr, result.report
    assert "PE 1 is lost" in result[0].stderr, result.report


@pytest.mark.parametrize(("n_pes", "seed"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_stress(n_pes: int, seed: int) -> None:
    arguments = ["--steps", "60", "--seed", str(seed), "--variety", "1", "--hang", "600", "--cold", "600"]
    result = launch([HERE / "stress.py", *arguments], n_pes, env=CPU).check()
    assert f"PASS seed {seed}: " in result[0].stdout


def stressed(change: str, *arguments: str) -> Result:
    """The stress test with something broken."""
    program = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import time, torch, triton_dist, stress, stress_cases
{change}
sys.argv = ["stress", "--seed", "7", "--steps", "100", *{list(arguments)!r}]
sys.exit(stress.main())
"""
    return launch(["-c", program], 2, env=CPU)


def test_stress_sees_one_wrong_bit() -> None:
    result = stressed(
        """
whole = stress_cases.Case.run
def run(case, variant, wrong):
    right = case.call
    def call():
        right()
        if triton_dist.my_pe() == 1 and case.out.numel():
            case.out.view(-1).view(torch.uint8)[-1] ^= 1
    case.call = call
    whole(case, variant, wrong)
    case.call = right
stress_cases.Case.run = run
"""
    )
    assert result[1].returncode == 1, result.report
    assert re.search(r"FAIL seed 7, in step \d+: .*: 1 elements are wrong on PE 1\n", result[1].stdout), result.report


def test_stress_says_what_hangs() -> None:
    result = stressed(
        "stress_cases.Case.run = lambda case, variant, wrong: time.sleep(1000)", "--hang", "1", "--cold", "1"
    )
    assert any(pe.returncode == 3 for pe in result) and not result.timed_out, result.report
    assert any(re.search(r"HANG seed 7, step \d+: ", pe.stdout) and "Thread" in pe.stderr for pe in result), (
        result.report
    )
