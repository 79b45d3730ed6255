"""The model of examples/qwen3.py, sharded: logits and gradients are those of the unsharded model."""

from __future__ import annotations

import dataclasses
from typing import Any

import qwen3
import torch
from compared import ONE_LAYER, TINY, compare, config_for, prefill_and_decode, sharded, tokens
from harness import main as run
from harness import raises
from torch import distributed
from torch.distributed.tensor import init_device_mesh


def check_training(world: Any) -> None:
    compare(world, config_for(world), torch.float32, False)
    compare(world, config_for(world), torch.bfloat16, True)


def check_training_of_sequences_in_float32(world: Any) -> None:
    compare(world, config_for(world), torch.float32, True)


@torch.no_grad()
def check_prefill_and_decode(world: Any) -> None:
    prefill_and_decode(world, config_for(world), torch.bfloat16)


@torch.no_grad()
def check_prefill_and_decode_in_float32(world: Any) -> None:
    prefill_and_decode(world, config_for(world), torch.float32)


def check_columns_that_do_not_alternate(world: Any) -> None:
    decode = sharded(world, ONE_LAYER, torch.float32, sequence=False)
    with raises(ValueError, "gate and up must alternate, got a model with block=16"):
        qwen3.FusedDecode(decode, init_device_mesh("cpu", (world.n_pes,)))


def check_mistakes(world: Any) -> None:
    n = world.n_pes
    uneven = dataclasses.replace(TINY, kv_heads=2 * n + 1, heads=4 * n + 2)
    with raises(ValueError, rf"kv_heads of the model is {2 * n + 1}, which {n} PEs cannot share equally"):
        sharded(world, uneven, torch.float32, sequence=True)
    model = sharded(world, ONE_LAYER, torch.float32, sequence=True)
    with raises(ValueError, rf"dimension 1 of the output is {n + 1}, which {n} PEs cannot share equally"):
        model(tokens(world)[:, : n + 1])
    model.layers[0].attention.qkv.half()
    with raises(ValueError, "a is of torch.float32, and b of torch.float16"):
        model(tokens(world)[:, : 2 * n])


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    run(globals())
    distributed.destroy_process_group()
