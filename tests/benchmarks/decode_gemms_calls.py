"""Launches every contender of benchmarks/decode_gemms.py on a GPU that is not there (``fake_gpu.py``): ``… FOLDER``.

Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "kernels"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import decode_gemms
import fake_gpu
import torch

DRIVER = fake_gpu.load_driver(Path(sys.argv[1]))
fake_gpu.use_torch_without_a_gpu()
WORLD = fake_gpu.begin_world(1)
SHAPE = decode_gemms.Shape("tiny", 256, 512, True, True)


def every_cut_is_one_launch() -> None:
    weights = [torch.zeros(SHAPE.n, SHAPE.k, dtype=torch.bfloat16) for _ in range(2)]
    contenders = decode_gemms.contenders_of(decode_gemms.Case(SHAPE, 16, weights), True)
    ours = [step for name, step in contenders.items() if name.startswith("ours")]
    assert len(ours) == len(decode_gemms.CUTS), list(contenders)  # the choice is one of them
    for step in ours:
        before = DRIVER.fake_launches()
        results = step(0), step(1)
        assert DRIVER.fake_launches() == before + 2
        assert results[0].shape == (16, 256)
        assert results[0].data_ptr() != results[1].data_ptr()  # both are looked at when both have been computed


CHECKS = (every_cut_is_one_launch,)


if __name__ == "__main__":
    fake_gpu.run_checks(CHECKS)
