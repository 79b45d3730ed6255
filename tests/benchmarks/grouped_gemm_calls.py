"""Launches every side of benchmarks/grouped_gemm.py on a GPU that is not there (``fake_gpu.py``): ``… FOLDER``.

Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "kernels"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import fake_gpu
import grouped_gemm
import torch

DRIVER = fake_gpu.load_driver(Path(sys.argv[1]))
fake_gpu.use_torch_without_a_gpu()
WORLD = fake_gpu.begin_world(1)
SHAPE = grouped_gemm.Shape("tiny", 4, 128, 256, True)


def case_of(rows: int) -> grouped_gemm.Case:
    counts = torch.full((SHAPE.experts,), rows)
    return grouped_gemm.Case(SHAPE, counts, grouped_gemm.matrices(SHAPE, WORLD.device))


def launches(rows: int) -> dict[str, int]:
    """How many launches each side is that is ours."""
    found = {}
    for name, step in grouped_gemm.sides_of(case_of(rows), True).items():
        if name.startswith("ours"):
            before = DRIVER.fake_launches()
            step(0)
            found[name] = DRIVER.fake_launches() - before
    return found


def every_candidate_is_launched() -> None:
    found = launches(8)
    assert len(found) == 1 + len(grouped_gemm.CONFIGS) + len(grouped_gemm.TILES), found
    assert set(found.values()) == {1}, found


def small_tiles_are_left_out_with_many_rows() -> None:
    assert set(launches(1024)) == {"ours", "ours, 128 x 256, 3 stages", "ours, 128 x 128, 6 stages"}


def swiglu_is_one_launch() -> None:
    for rows in (8, 256):
        case = case_of(rows)
        before = DRIVER.fake_launches()
        assert case.with_swiglu(0).shape == (4 * rows, 128)
        assert DRIVER.fake_launches() == before + 1


CHECKS = (every_candidate_is_launched, small_tiles_are_left_out_with_many_rows, swiglu_is_one_launch)


if __name__ == "__main__":
    fake_gpu.run_checks(CHECKS)
