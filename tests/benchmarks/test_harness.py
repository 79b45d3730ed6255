"""What a comparison says of its contenders, and what benchmarks do where there is nothing to measure."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from limits import HANG_SECONDS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import harness

    return harness


@pytest.fixture
def entry(harness: object) -> object:
    times = {"ours": 5.0, "ours push": 4.0, "NCCL": 10.0, "torch": 8.0}
    timings = {name: harness.Timing(time, time - 1, time + 1) for name, time in times.items()}  # type: ignore[attr-defined]
    absent = {"copy engine": "RuntimeError: no"}
    return harness.Entry("all_gather 8 KB a PE", 2.0, timings, absent)  # type: ignore[attr-defined]


def test_the_contender_called_ours_is_held_against_the_best_peer(entry: object) -> None:
    assert (entry.best(ours=True), entry.best(ours=False)) == ("ours push", "torch")
    assert entry.ratio == 5 / 8
    assert entry.efficiency("NCCL") == 0.2
    del entry.timings["ours"]
    assert entry.ratio == 4 / 8
    del entry.timings["ours push"]
    assert entry.ratio is None


def test_a_comparison_prints_every_contender_and_why_one_is_missing(entry: object) -> None:
    text = str(entry)
    assert "bound 2.0 µs ours/best peer 0.62" in text
    assert "torch                                      8.0 µs           (7.0 to 9.0)  efficiency 0.25" in text
    assert "copy engine                          RuntimeError: no" in text


def test_collectives_are_not_measured_in_the_cpu_world() -> None:
    run = subprocess.run(
        [sys.executable, str(BENCHMARKS / "collectives.py")],
        env=os.environ | {"TRITON_DIST_WORLD": "cpu", "PYTHONPATH": str(BENCHMARKS.parent)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("collectives: not measured. The CPU world interprets kernels")


def test_what_kernels_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from layer_traces import kind_of

    kinds = {
        "all_gather_gemm_kernel": "GEMM",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "communication",
        "flash_decode_kernel": "attention",
        "triton_poi_fused_gemm_all_reduce_mul_silu_t_unbind_view_6": "other",
    }
    assert {name: kind_of(name) for name in kinds} == kinds


def test_the_table_of_a_call_s_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three calls of a GEMM, another kernel and the same GEMM again, behind a kernel that belongs to no call."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from layer_traces import Kernel, second, table

    def call(at: float, first: float = 4.0) -> list[Kernel]:
        return [("mm", 7, at, first), ("norm", 7, at + first + 1, 2.0), ("mm", 7, at + first + 3, 6.0)]

    kernels = [("barrier", 9, 0.0, 1.0), *call(2.0, 90.0), *call(102.0), *call(116.0)]
    assert table("ours", kernels, 3).splitlines() == [
        "ours: 3 kernels, 14.0 µs a call",
        "        µs  share    gap  kernel",
        "       4.0  28.6%    1.0  mm",  # the first call does not count
        "       2.0  14.3%    1.0  norm",
        "       6.0  42.9%    0.0  mm",
        "       2.0  14.3%         nothing runs",
    ]
    assert second(kernels, 3) == [("mm", 7, 0.0, 4.0), ("norm", 7, 5.0, 2.0), ("mm", 7, 7.0, 6.0)]


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib draws the plots (extra bench)")
def test_plots_are_drawn_of_what_was_saved(entry: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from plots import draw

    machine = {"gpus": "4 × none", "driver": None, "torch": "2", "nccl": "2", "date": "today"}
    saved = tmp_path / "run.json"
    saved.write_text(json.dumps({"machine": machine, "entries": [asdict(entry)]}))  # type: ignore[call-overload]
    (plot,) = draw(saved, tmp_path / "images")
    assert plot.name == "run-all_gather.svg" and "8 KB a PE" in plot.read_text()


def test_a_table_is_made_of_what_was_saved(entry: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from tables import table

    saved = tmp_path / "run.json"
    saved.write_text(json.dumps({"machine": {"gpus": "none"}, "entries": [asdict(entry)]}))  # type: ignore[call-overload]
    assert table(saved).splitlines() == [
        "gpus none",
        "",
        "| µs | ours | NCCL | torch | ours / best peer | of the bound |",
        "| --- | --- | --- | --- | --- | --- |",
        "| all_gather 8 KB a PE | 5.0 | 10.0 | 8.0 | 0.62 | 0.40 |",
    ]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A Chrome trace of a GEMM and a copy on two streams, with an event of the host that does not count."""
    kernel = {"ph": "X", "cat": "kernel", "name": "nvjet_gemm", "ts": 105.0, "dur": 7.0, "args": {"stream": 7}}
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy PtoP", "ts": 100.0, "dur": 3.0, "args": {"stream": 9}}
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 2.0, "args": {}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [host, kernel, copy]}))
    return path


def test_kernels_are_read_from_a_trace(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from layer_traces import kernels_of

    assert kernels_of(trace) == [("nvjet_gemm", 7, 5.0, 7.0), ("Memcpy PtoP", 9, 0.0, 3.0)]


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib draws the plots (extra bench)")
def test_traces_are_drawn(trace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from layer_traces import kernels_of, picture

    picture({"ours": kernels_of(trace), "none": []}, tmp_path / "layer.svg")
    text = (tmp_path / "layer.svg").read_text()
    assert "ours, stream 7" in text and "ours, stream 9" in text and "GEMM" in text


def test_what_is_compiled_for_a_comparison_is_compiled_whatever_was_compiled_before(harness: object) -> None:
    import torch

    made: list[object] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        made.append(inputs)
        return graph.forward

    for size in range(2, 22):  # more than torch's limit for one function
        function = harness.compiled(torch.nn.functional.softplus, backend=backend)  # type: ignore[attr-defined]
        function(torch.zeros(size))
    assert len(made) == 20


def test_logs_get_plain_lines(
    harness: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = harness._progress("a benchmark", 3)  # type: ignore[attr-defined]
    shown.write("a comparison")
    shown.update()
    shown.close()
    assert capsys.readouterr() == ("a comparison\n", "")


def test_all_words_of_memory_are_read() -> None:
    """In a process of its own, since the kernels of this one may be compiled."""
    program = (
        "import torch; from memory import read_all; x = torch.arange(10001, dtype=torch.int32);"
        " largest = torch.zeros(2, dtype=torch.int32); read_all(x, largest); print(largest.tolist())"
    )
    paths = os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent)])
    environment = os.environ | {"TRITON_DIST_WORLD": "cpu", "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert run.stdout == "[10000, 8191]\n", run.stderr


def test_figures_are_saved_after_each_comparison(
    harness: object, entry: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is cut off keeps them, in a file that is whole at any time."""
    monkeypatch.setattr(harness, "machine", lambda world: {"gpus": "none"})
    file = tmp_path / "folder" / "figures.json"
    world = SimpleNamespace(pe=0, device=torch.device("cpu"))
    bench = harness.Bench(world, "a benchmark", None, file)  # type: ignore[attr-defined]
    bench.entries.append(entry)
    for count in (2, 3):
        bench.compare("without contenders", {}, check=lambda result, i: None)
        assert len(json.loads(file.read_text())["entries"]) == count
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_sweep_has_every_number_of_rows_for_every_operation(
    harness: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_DIST_SYMMETRIC_SIZE", "64M")  # which the file sets otherwise
    monkeypatch.setenv("WORLD_SIZE", "4")
    import gemms

    cases = list(gemms.swept("8192x28672", gemms.BENCHMARKS))
    assert len(cases) == 4 * 19
    assert [name for name, _ in cases[:4]] == list(gemms.BENCHMARKS), "all operations of one number of rows first"
    assert cases[1] == ("all_gather_gemm", (4, 28672, 8192)), "rows that each PE has as many of"
    assert cases[3] == ("gemm_all_reduce", (1, 8192, 28672))
    assert [shape[0] for name, shape in cases if name == "gemm_all_scatter"] == list(gemms.SWEEP)
