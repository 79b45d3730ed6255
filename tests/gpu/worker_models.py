"""Layers of examples/qwen3.py and qwen3_moe.py with the sizes of published models, sharded: training, prefill and
decode are those of the unsharded model. One PE's part. For GPUs.

    torchrun --nproc-per-node 2 tests/gpu/worker_models.py [CHECK…]

PE 0 prints a line for each check.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from worker_checks import run_checks

import triton_dist

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import qwen3
import qwen3_moe
from compared import TINY, compare, prefill_and_decode

LAYER = {"layers": 1, "vocabulary": TINY.vocabulary}
DENSE = dataclasses.replace(qwen3.CONFIGS["qwen3-8b"], **LAYER)
EXPERTS = dataclasses.replace(qwen3_moe.CONFIGS["qwen3-30b-a3b"], **LAYER)
ALL_CHOSEN = dataclasses.replace(EXPERTS, experts=16, top_k=16)
"""For bfloat16: where a token has to choose, roundings decide between experts that are nearly alike."""


def training(world: Any) -> None:
    for sequence in (False, True):
        compare(world, DENSE, torch.bfloat16, sequence)


def training_of_experts(world: Any) -> None:
    for sequence in (False, True):
        compare(world, ALL_CHOSEN, torch.bfloat16, sequence)


def training_of_experts_that_are_chosen(world: Any) -> None:
    for sequence in (False, True):
        compare(world, EXPERTS, torch.float32, sequence)


@torch.no_grad()
def serving(world: Any) -> None:
    prefill_and_decode(world, DENSE, torch.bfloat16)


@torch.no_grad()
def serving_of_experts(world: Any) -> None:
    prefill_and_decode(world, ALL_CHOSEN, torch.bfloat16)


CHECKS = training, training_of_experts, training_of_experts_that_are_chosen, serving, serving_of_experts


def main() -> int:
    with triton_dist.init() as world:
        if world.shares_gpu:  # which NCCL refuses
            distributed.init_process_group("gloo")
        run_checks(world, CHECKS, sys.argv[1:], seconds=240)
    if distributed.is_initialized():
        distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
