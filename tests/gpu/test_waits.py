"""Waits on GPUs that last too long say what they wait for, go on, and end rightly; or end every PE, when asked to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torchrun import ROOT

from triton_dist.testing import launch

pytestmark = pytest.mark.gpu(2)

WORKER = ROOT / "tests/gpu/worker_waits.py"
GPU = {"TRITON_DIST_WORLD": "gpu", "TRITON_DIST_WAIT_TIMEOUT": "2"}


def line(text: str) -> int:
    """Of the worker, the number of the line that holds ``text``."""
    return next(i for i, found in enumerate(Path(WORKER).read_text().splitlines(), 1) if text in found)


CASES = {
    "signal": (
        rf"kernel await_signal.*\n    program \(0, 0, 0\) at \S*worker_waits.py:{line('dl.signal_wait_until(')}"
        r" waits in signal_wait_until: 0x\w+ \(element 3 of the symmetric tensor \(\(8,\), torch.int64\)\) >= 7,"
        rf" seen 5; last launched at \S*worker_waits.py:{line('kernel[(1,)]')}"
    ),
    "all": (
        rf"kernel await_all.*\n    program \(0, 0, 0\) at \S*worker_waits.py:{line('dl.wait_until_all(')} waits in"
        r" wait_until_all: 0x\w+ \(element 0 of the symmetric tensor \(\(8,\), torch.int64\)\) == 7, seen 5"
    ),
    "barrier": (
        rf"kernel meet.*\n    program \(0, 0, 0\) at \S*worker_waits.py:{line('dl.barrier_all(')} waits in barrier_all:"
        r" the barrier flags of team 0 >= 2 from PE 1, seen 1"
    ),
    "all_reduce": (
        r"kernel all_reduce_one_shot.*\n    program .* at \S*ll.py:\d+ \(called at \S*all_reduce.py:\d+\)"
        r" waits in a loop: 0x\w+ \(element \d+ of the symmetric tensor .*torch.int64\)\) == 2 from PE 1, seen 0"
        rf"; last launched at \S*worker_waits.py:{line('kernels.all_reduce(')}"
    ),
    "all_gather": (
        r"kernel all_gather_push.*\n    program .* at \S*barrier.py:\d+ \(called at .*\) waits in a loop:"
        r" 0x\w+ \(element \d+ of the symmetric tensor .*torch.int32\)\) >= \d+ from PE 1, seen \d+"
        rf"; last launched at \S*worker_waits.py:{line('kernels.all_gather(')}"
    ),
    "gemm": (
        r"kernel gemm_all_scatter_kernel.*\n    program .* at \S*flags.py:\d+ \(called at .*\) waits in a loop:"
        r" 0x\w+ \(element \d+ of the symmetric tensor .*torch.int32\)\) >= \d+, seen \d+"
        rf"; last launched at \S*worker_waits.py:{line('kernels.gemm_all_scatter(')}"
    ),
}


@pytest.mark.parametrize(
    ("case", "transport"),
    [*((case, "p2p") for case in CASES), ("signal", "nvshmem"), ("all", "nvshmem"), ("all_gather", "nvshmem")],
)
def test_a_long_wait_is_told_and_goes_on(case: str, transport: str) -> None:
    result = launch([WORKER, case], 2, env=GPU | {"TRITON_DIST_TRANSPORT": transport}, timeout=120)
    assert result.ok, result.report
    assert all("right" in pe.stdout for pe in result), result.report
    assert re.search(f"PE 0, {CASES[case]}", result[0].stderr), result.report
    assert "PE 0: other PEs: no report from PE 1" in result[0].stderr
    assert result[1].stderr.count("TRITON_DIST_WAIT_TIMEOUT") == 0, "it waited for no other PE"


@pytest.mark.parametrize("case", ["signal", "barrier", "all_reduce", "gemm"])
def test_abort_ends_every_pe(case: str) -> None:
    result = launch([WORKER, case, "never"], 2, env=GPU | {"TRITON_DIST_WAIT_ACTION": "abort"}, timeout=90)
    assert not result.timed_out and all(pe.returncode != 0 for pe in result), result.report
    assert all("waited for 2 s" in pe.stderr for pe in result), result.report
