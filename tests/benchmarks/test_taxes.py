"""What is lost between kernels: read from timelines and traces, and shown."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from forking import launch
from ptx import made_by, ptxas_report

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def taxes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import taxes

    return taxes


@pytest.mark.slow
def test_the_variants_compute_the_right_thing_and_their_traces_are_read() -> None:
    environment = {"TRITON_DIST_WORLD": "cpu", "PYTHONPATH": str(BENCHMARKS)}
    result = launch([BENCHMARKS / "taxes.py"], 2, env=environment)
    assert result[0].stdout.endswith("taxes: checked, not measured. The CPU world interprets kernels.\n"), result.report


@pytest.mark.parametrize(("name", "instruction"), [("gemm", "wgmma.mma_async"), ("combine", "st.global.v2.b64")])
def test_the_kernels_between_compile_for_a_gpu(tmp_path: Path, name: str, instruction: str) -> None:
    file = tmp_path / "kernel.ptx"
    shared = made_by(Path(__file__).with_name("taxes_ptx.py"), name, file)
    assert " 0 bytes spill stores" in ptxas_report(file) and int(shared) <= 227 << 10
    assert instruction in file.read_text()


def test_idle_time_is_that_in_which_no_kernel_runs(taxes: Any) -> None:
    timeline = [("a", 1, 0.0, 4.0), ("c", 2, 9.0, 1.0), ("b", 2, 3.0, 3.0), ("d", 1, 9.5, 0.1), ("e", 1, 12.0, 1.0)]
    assert taxes.idle(timeline, 0.0) == (9 - 6) + (12 - 10)
    assert taxes.idle(timeline, -2.0) == 2 + (9 - 6) + (12 - 10)
    assert taxes.idle([], 7.0) == 0


@pytest.mark.parametrize("barriers", [0, 1])
def test_of_a_timeline_the_first_call_and_what_stands_in_front_of_it_are_left_out(taxes: Any, barriers: int) -> None:
    """The first call ends at 100; the second and the third have gaps of 2 and 1 in front."""
    calls = [("a", 1, 60.0, 40.0), ("a", 1, 102.0, 5.0), ("a", 1, 108.0, 5.0)]
    behind, since = taxes.behind_the_first([("barrier", 1, 0.0, 10.0)] * barriers + calls, 3)
    assert (behind, since) == (calls[1:], 100.0)
    assert taxes.idle(behind, since) == 3
    assert taxes.behind_the_first([], 3) == ([], 0.0)


def event(pe: int, program: int, launch: int, kind: str, microseconds: float) -> dict[str, Any]:
    arguments = {"kernel": "k", "launch": launch}
    return {"ph": "X", "pid": pe, "tid": program, "cat": kind, "ts": 0.0, "dur": microseconds, "args": arguments}


def test_waits_are_means_of_computing_programs_and_pes_of_the_last_calls(taxes: Any) -> None:
    """A direct call and two of a graph, each of two launches."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {}}]
    for pe in range(2):
        events += [event(pe, 1, launch, "wait", 1000.0) for launch in (0, 1)]
        for number in (2, 4):
            events += [event(pe, 1, number, "wait", 3.0 + pe), event(pe, 1, number, "wait", 1.0)]
            events += [event(pe, 1, number, "compute", 50.0), event(pe, 2, number, "compute", 50.0)]
            events += [event(pe, 3, number, "wait", 70.0)]  # it only loads
        for number in (3, 5):
            events += [event(pe, 1, number, "wait", 6.0), event(pe, 2, number, "wait", 8.0)]
    assert taxes.waits({"traceEvents": events}, 2) == ((4 + 0) / 2 + (5 + 0) / 2) / 2 + 7
    assert taxes.waits({"traceEvents": []}, 2) == 0


@pytest.fixture
def found(taxes: Any) -> Any:
    measured = {"NCCL": taxes.Taxes(40.0, 6.0, 4.0, 3.0, 4096), "ours, fused": taxes.Taxes(30.0, 0.0, 5.0, 1.0, 0)}
    return taxes.Found("flash decode", measured, {"ours, more": "needs another GPU"}, {})


def test_a_table_has_every_variant(taxes: Any, found: Any) -> None:
    assert taxes.table(found).splitlines()[2:] == [
        "| NCCL | 40.0 | 30.0 | 4.0 | 6.0 | 3 | 4 |",
        "| ours, fused | 30.0 | 25.0 | 5.0 | 0.0 | 1 | 0 |",
        "| ours, more | needs another GPU | | | | | |",
    ]
    assert json.loads(json.dumps(asdict(found)))["taxes"]["NCCL"]["traffic"] == 4096


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib draws the plots (extra bench)")
def test_a_bar_is_drawn_for_every_variant(taxes: Any, found: Any, tmp_path: Path) -> None:
    taxes.picture([found, taxes.Found("nothing", {}, {}, {})], tmp_path / "taxes.svg")
    text = (tmp_path / "taxes.svg").read_text()
    assert "ours, fused" in text and "waiting" in text and "nothing" not in text


def test_a_timeline_is_of_the_last_call() -> None:
    timelines = importlib.import_module("taxes_timelines")
    calls = [("a", 7, 60.0, 40.0), ("b", 7, 102.0, 5.0), ("a", 7, 108.0, 5.0), ("b", 7, 115.0, 5.0)]
    assert timelines.last_call([*calls[::-1], ("barrier", 7, 0.0, 10.0)], 2) == calls[2:]
    assert timelines.last_call([], 2) == []


def test_timelines_of_all_pes_begin_with_the_first_kernel_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    timelines = importlib.import_module("taxes_timelines")
    other = json.dumps([("k", 1, 90.0, 5.0)])
    monkeypatch.setattr(timelines, "all_gather_texts", lambda text, device: [text, other])
    mine = [("a" * 100, 1, 100.0 + i, 1.0) for i in range(100)]
    first, second = timelines.of_all_pes(mine, "cpu")
    assert second == [("k", 1, 0.0, 5.0)] and first[0] == ("a" * 40, 1, 10.0, 1.0) and len(first) == timelines.MOST


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib draws the plots (extra bench)")
def test_a_row_is_drawn_for_every_variant_and_pe(tmp_path: Path) -> None:
    timelines = importlib.import_module("taxes_timelines")
    timelines.picture("decode", {"NCCL": [[("nccl", 1, 0.0, 5.0)], []]}, tmp_path / "t.svg")
    text = (tmp_path / "t.svg").read_text()
    assert "NCCL, PE 0" in text and "NCCL, PE 1" in text
