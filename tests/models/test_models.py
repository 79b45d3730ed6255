"""Models on the kernels, in the CPU world: a test for each check of ``checks/``, one launch a file."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from check_files import CheckFiles
from forking import COMPILER, launch

from triton_dist.testing import Result

HERE = Path(__file__).parent
CHECKS = HERE / "checks"
ROOT = Path(__file__).parents[2]
HARNESS = ROOT / "tests/world/checks"  # whose harness.py runs the checks of a file on one PE
FILES_OF_TWO = "transformer.py", "experts.py", "compiled.py", "hugging_face.py", "serving.py"
RUNS = dict.fromkeys(FILES_OF_TWO, (2,))
SLOW = (
    *("compiled-2", "hugging_face-2-compile"),
    *("experts-2-training_of_experts_in_bfloat16", "experts-2-training_with_skewed_routing"),
    "experts-2-prefill_and_decode_with_skewed_routing",
    *(f"transformer-2-{name}_in_float32" for name in ("training_of_sequences", "prefill_and_decode")),
)
ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_WAIT_TIMEOUT": "600", "TRITON_DIST_SYMMETRIC_SIZE": "64M"}
HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None
IMPORTED = (
    *COMPILER,
    *(("transformers.models.llama.modeling_llama",) if HAS_TRANSFORMERS else ()),
    *(("transformers.models.qwen3.modeling_qwen3",) if HAS_TRANSFORMERS else ()),
)
"""What the process has imported that PEs are forked from: all of it together takes longer than the checks."""


def launched(args: Sequence[str | Path], n_pes: int) -> Result:
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(map(str, (HARNESS, HERE, ROOT / "examples")))}
    return launch(args, n_pes, env=environment, modules=IMPORTED)


FILES = CheckFiles(CHECKS, launched, RUNS, SLOW)


@pytest.mark.parametrize(("file", "n_pes", "check"), FILES.parameters())
def test_check(file: str, n_pes: int, check: str) -> None:
    if file == "hugging_face.py" and not HAS_TRANSFORMERS:
        pytest.skip("Hugging Face transformers is not installed (extra models)")
    FILES.assert_passed(file, n_pes, check)


def test_compiled_without_a_world() -> None:
    """A sharded model that outlives its world says so, compiled and in its backward, too."""
    result = launch([CHECKS.parent / "no_world.py"], 1, env=ENVIRONMENT, modules=IMPORTED).check()
    assert result[0].stdout.splitlines() == [f"passed: {what}" for what in ("forward", "backward", "compiled")]


@pytest.mark.parametrize("config", [pytest.param("tiny", marks=pytest.mark.slow), "tiny-moe"])
def test_the_benchmark_s_contenders_compute_alike(config: str) -> None:
    """All that run in the CPU world, against the unsharded model; the others say why they do not."""
    arguments = [ROOT / "benchmarks/model.py", "--layers", "1", "--config", config]
    text = launch(arguments, 2, env=ENVIRONMENT, modules=IMPORTED).check()[0].stdout
    cases = ["a layer's prefill", "a layer's decode", "a layer's decode", "prefill", "decode", "decode"]
    assert re.findall(r"^(\S[^,]+), \d+ tokens:$", text, re.MULTILINE) == cases, text
    right = re.findall(r"^    (\S.*?)  +right; not timed in the CPU world$", text, re.MULTILINE)
    assert {right.count(name) for name in ("ours", "ours, eager", "torch, NCCL", "torch, NCCL, eager")} == {len(cases)}
    assert right.count("ours, fused") == len(cases) and right.count("ours, fused, dependent launches") == 4
    assert text.count("torch's fused operators need CUDA") == 2
    if config == "tiny-moe":
        assert right.count("ours, fused, 2 SMs") == 2
        assert text.count("Hugging Face's models of experts are not compared") == 3
    elif HAS_TRANSFORMERS and importlib.util.find_spec("accelerate") is not None:
        assert right.count("Hugging Face") == 3, text


@pytest.mark.slow
def test_the_benchmark_of_training_steps() -> None:
    """Gradients of all contenders are right, and none has a graph break."""
    text = launch([ROOT / "benchmarks/model_backward.py"], 2, env=ENVIRONMENT, modules=IMPORTED).check()[0].stdout
    assert text.count("right; not timed in the CPU world") == 4, text
    assert len(re.findall(r"^    (ours|torch, NCCL): 1 graphs, 0 graph breaks$", text, re.MULTILINE)) == 4, text


def test_parts_of_the_benchmark_run_alone() -> None:
    arguments = ["--layers", "1", "--kind", "decode", "--batch", "3", "--contenders", "torch", "--only", "layer"]
    text = launch([ROOT / "benchmarks/model.py", *arguments], 2, env=ENVIRONMENT, modules=IMPORTED).check()[0].stdout
    right = [f"    {name:<36} right; not timed in the CPU world" for name in ("torch, NCCL", "torch, NCCL, eager")]
    assert text.splitlines() == ["a layer's decode, 3 tokens:", *right]


def test_a_wrong_gradient_of_a_weight_is_found() -> None:
    arguments = [ROOT / "benchmarks/model_backward.py", "--only", "step", "--contenders", "ours,"]
    program = f"""
import sys; sys.argv = {[*map(str, arguments)]!r}
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import model_backward
right = model_backward.Layer.gradients
model_backward.Layer.gradients = lambda *given: (*(found := right(*given))[:-1], found[-1] * 2)
model_backward.main()
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, modules=IMPORTED)
    assert "the gradient of mlp.down.weight has a relative error of" in result[0].stderr, result.report


def test_contenders_that_there_are_not() -> None:
    result = launch(
        [ROOT / "benchmarks/model_backward.py", "--contenders", "theirs"], 1, env=ENVIRONMENT, modules=IMPORTED
    )
    assert "--contenders theirs are none of ours, ours, eager, torch, NCCL" in result[0].stderr, result.report
