"""Launches every contender of benchmarks/grouped_gemm.py on a GPU that is not there (``fake_gpu.py``): ``… FOLDER``.

Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "kernels"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import fake_gpu
import grouped_gemm
import torch

DRIVER = fake_gpu.load_driver(Path(sys.argv[1]))
fake_gpu.use_torch_without_a_gpu()
WORLD = fake_gpu.begin_world(1)
SHAPE = grouped_gemm.Shape("tiny", 4, 128, 256, True)


def case_of(rows: int, form: str = "none") -> grouped_gemm.Case:
    counts = torch.full((SHAPE.experts,), rows)
    return grouped_gemm.Case(SHAPE, counts, grouped_gemm.matrices(SHAPE, WORLD.device, form))


def launches(contenders: dict[str, Any]) -> dict[str, int]:
    """How many launches each contender is that is ours."""
    found = {}
    for name, step in contenders.items():
        if name.startswith("ours"):
            before = DRIVER.fake_launches()
            step(0)
            found[name] = DRIVER.fake_launches() - before
    return found


def every_candidate_is_launched() -> None:
    found = launches(grouped_gemm.contenders_of(case_of(8), True))
    assert len(found) == 1 + len(grouped_gemm.CONFIGS) + len(grouped_gemm.TILES), found
    assert set(found.values()) == {1}, found


def small_tiles_are_left_out_with_many_rows() -> None:
    found = launches(grouped_gemm.contenders_of(case_of(1024), True))
    assert set(found) == {"ours", "ours, 128 x 256, 3 stages", "ours, 128 x 128, 6 stages"}


def swiglu_is_one_launch() -> None:
    for rows in (8, 256):
        case = case_of(rows)
        before = DRIVER.fake_launches()
        assert case.with_swiglu(0).shape == (4 * rows, 128)
        assert DRIVER.fake_launches() == before + 1


def fp8_stands_beside_the_portable_kernel() -> None:
    for form, configs in (("rows", 4), ("blocks", 2)):  # tiles of 256 columns leave no registers for a block's sums
        case = case_of(8, form)
        found = launches(grouped_gemm.contenders_of(case, True))
        assert {"ours", "ours, portable"} <= set(found) and set(found.values()) == {1}, found
        assert sum(" stages" in name for name in found) == configs, found
        of_swiglu = launches(grouped_gemm.swiglu_contenders_of(case))
        assert of_swiglu == {"ours": 1, "ours, two kernels": 2, "ours, portable": 1}, of_swiglu


def dense_gemms_have_the_same_scales() -> None:
    for form in ("rows", "blocks"):
        case = case_of(48, form)
        b = case.b[0].t(), case.matrices.of_expert(0)
        contenders = grouped_gemm.dense_contenders((case.a, case.a_scales), b, form, case.out)
        assert launches(contenders) == {"ours, one matrix": 1}
        assert next(iter(contenders)).startswith("torch._scaled_mm")


def expected_results_have_their_scales() -> None:
    """Quantised operands differ from those of bfloat16 by their rounding."""
    exact = case_of(5).expected().float()
    for form in ("rows", "blocks"):
        error = (case_of(5, form).expected().float() - exact).abs().max().item()
        assert 0 < error < 0.1 * exact.abs().max().item(), (form, error)


CHECKS = (
    every_candidate_is_launched,
    small_tiles_are_left_out_with_many_rows,
    swiglu_is_one_launch,
    fp8_stands_beside_the_portable_kernel,
    dense_gemms_have_the_same_scales,
    expected_results_have_their_scales,
)


if __name__ == "__main__":
    fake_gpu.run_checks(CHECKS)
