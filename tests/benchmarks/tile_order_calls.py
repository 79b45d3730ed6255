"""Launches every order of benchmarks/tile_order.py on a GPU that is not there (``fake_gpu.py``): ``… FOLDER``.

Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

sys.path.append(str(Path(__file__).resolve().parents[1] / "kernels"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import fake_gpu
import tile_order
import torch

from triton_dist import kernels
from triton_dist.kernels.attention import flash_decode
from triton_dist.kernels.communicator import communicator_of
from triton_dist.world.gpus import Gpu

DRIVER = fake_gpu.load_driver(Path(sys.argv[1]))
fake_gpu.use_torch_without_a_gpu()
fake_gpu.use_a_driver_s_streams(DRIVER)
WORLD = fake_gpu.begin_world(2)
WORLD.gpu = Gpu("a GPU that is not there", (9, 0), 132, 227 << 10, 50 << 20)


def launched(step: tile_order.Step) -> int:
    before: int = DRIVER.fake_launches()
    step(0)
    return int(DRIVER.fake_launches()) - before


def matrices() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, b, c = (torch.zeros(*shape, dtype=torch.bfloat16) for shape in ((4096, 512), (512, 2048), (4096, 2048)))
    return a, b, c


def every_order_of_a_local_gemm_is_launched() -> None:
    steps, expected = tile_order.local(communicator_of(), *matrices())
    assert len(steps) == len(expected) == 6 and all(" MB from memory" in line for line in expected)
    assert [launched(step) for step in steps.values()] == [1] * 6


def every_order_of_gathered_rows_is_launched() -> None:
    a, b, c = matrices()
    steps = tile_order.one_after_the_other(communicator_of(), a, b, c)
    assert [launched(step) for step in steps.values()] == [1] * 6
    steps = tile_order.gathered(communicator_of(), a[:2048], b, c)
    assert [launched(step) for step in steps.values()] == [1] * 6


def both_orders_of_a_decode_are_launched() -> None:
    comms = kernels.Communicator(WORLD.team_world), kernels.Communicator(WORLD.team_world)
    steps, expected = tile_order.decodes(WORLD, comms, 1, 64)
    assert expected.shape == (1, 128, 512)
    with mock.patch.object(flash_decode, "_launch", wraps=flash_decode._launch) as made:
        assert [launched(step) for step in steps.values()] == [1] * 2
    assert [call.args[3].tile_groups for call in made.call_args_list] == [1, 4], "one order was launched twice"


CHECKS = (
    every_order_of_a_local_gemm_is_launched,
    every_order_of_gathered_rows_is_launched,
    both_orders_of_a_decode_are_launched,
)


if __name__ == "__main__":
    fake_gpu.run_checks(CHECKS)
