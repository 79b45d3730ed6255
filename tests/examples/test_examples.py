"""Every example passes in the CPU world, with one PE and with several."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from forking import COMPILER, launch

from triton_dist import demo

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, n_pes: int) -> None:
    result = launch([example], n_pes, env={"TRITON_DIST_WORLD": "cpu"}, modules=COMPILER).check()
    assert result[0].stdout.startswith(f"PASS {example.stem}: cpu world, {n_pes} PE")
    assert all(not pe.stdout for pe in list(result)[1:]), "only PE 0 reports"


def test_transformer_of_experts() -> None:
    arguments = [EXAMPLES[-1], "--config", "tiny-moe", "--layers", "1"]
    result = launch(arguments, 2, env={"TRITON_DIST_WORLD": "cpu"}, modules=COMPILER).check()
    assert result[0].stdout.startswith("PASS 05_transformer: cpu world, 2 PE")


@pytest.mark.parametrize("slots", [1, 3])
def test_queue_of_any_length(slots: int) -> None:
    queue = EXAMPLES[1]
    launch([queue, "--slots", str(slots), "--items", "7"], 2, env={"TRITON_DIST_WORLD": "cpu"}).check()


@pytest.mark.parametrize(
    ("world", "pes", "said"),
    [("cpu", "0", "--pes 0: at least one is needed"), ("gpu", "1", "TRITON_DIST_WORLD=gpu, but PyTorch sees no GPU")],
)
def test_a_demo_that_cannot_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], world: str, pes: str, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--pes", pes])
    monkeypatch.setattr(demo, "kind", lambda: world)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(SystemExit) as end:
        demo.main()
    assert end.value.code == 2 and said in capsys.readouterr().err


def test_examples_fit_one_page() -> None:
    for example in EXAMPLES:
        assert len(example.read_text().splitlines()) <= 90, f"{example.name} has outgrown its page"
