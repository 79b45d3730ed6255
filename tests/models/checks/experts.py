"""The models of examples/qwen3_moe.py: attention sharded by styles, experts shared out; as the unsharded model."""

from __future__ import annotations

import dataclasses
from typing import Any

import qwen3
import qwen3_moe
import torch
from compared import compare, prefill_and_decode, sharded, tokens
from harness import main as run
from harness import raises
from torch import distributed
from torch.distributed.tensor import init_device_mesh

from triton_dist import tensor_parallel
from triton_dist.nn import MoE

EXPERTS = dataclasses.replace(qwen3_moe.CONFIGS["tiny-moe"], layers=1)
ALL_CHOSEN = dataclasses.replace(EXPERTS, top_k=EXPERTS.experts)
"""For bfloat16: where a token has to choose, roundings decide between experts that are nearly alike, and those depend
on the processor."""
BY_GROUPS = dataclasses.replace(
    EXPERTS, sigmoid=True, limits={"n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.5}, shared=32
)
"""Routing and shared expert as DeepSeek-V3 has them."""


def one_pe_only(model: qwen3.Transformer) -> None:
    """All tokens choose the first two experts, which are on one PE; the others have none."""
    for layer in model.layers:
        layer.mlp.bias[:2] += 100


def check_training_of_experts(world: Any) -> None:
    compare(world, EXPERTS, torch.float32, False)
    compare(world, EXPERTS, torch.float32, True)


def check_training_of_experts_in_bfloat16(world: Any) -> None:
    compare(world, ALL_CHOSEN, torch.bfloat16, True)


def check_training_with_skewed_routing(world: Any) -> None:
    compare(world, BY_GROUPS, torch.float32, False, one_pe_only)
    compare(world, BY_GROUPS, torch.float32, True, one_pe_only)


@torch.no_grad()
def check_prefill_and_decode_of_experts(world: Any) -> None:
    prefill_and_decode(world, dataclasses.replace(ALL_CHOSEN, layers=2), torch.bfloat16)


@torch.no_grad()
def check_prefill_and_decode_of_experts_in_float32(world: Any) -> None:
    prefill_and_decode(world, dataclasses.replace(EXPERTS, layers=2), torch.float32)


@torch.no_grad()
def check_prefill_and_decode_with_skewed_routing(world: Any) -> None:
    prefill_and_decode(world, BY_GROUPS, torch.float32, one_pe_only)


def check_experts_of_published_models(world: Any) -> None:
    """The sizes of the models' layers, without weights."""
    mesh = init_device_mesh("cpu", (world.n_pes,))
    for name, elements in (("qwen3-30b-a3b", 3 * 128 * 2048 * 768), ("deepseek-v3-experts", 3 * 256 * 7168 * 2048)):
        config = dataclasses.replace(qwen3_moe.CONFIGS[name], layers=1)
        model = qwen3.build(config, "meta", torch.bfloat16, mesh, tensor_parallel, sequence=True, max_tokens=4096)
        layer = model.layers[0].mlp
        assert isinstance(layer, MoE) and layer.gate.dtype == torch.bfloat16
        assert layer.w13.numel() + layer.w2.numel() == elements // world.n_pes
        assert layer.bias is None or layer.bias.dtype == torch.float32


def check_mistakes_of_experts(world: Any) -> None:
    uneven = dataclasses.replace(EXPERTS, experts=2 * world.n_pes + 1)
    with raises(ValueError, f"experts of the model is {2 * world.n_pes + 1}, which {world.n_pes} PEs cannot share"):
        sharded(world, uneven, torch.float32, sequence=True)
    mesh = init_device_mesh("cpu", (world.n_pes,))
    model = qwen3.build(EXPERTS, "cpu", torch.float32, mesh, tensor_parallel, sequence=True, max_tokens=3)
    with raises(ValueError, "has 8 tokens, and max_tokens is 3"):
        model(tokens(world)[:, :8])


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    run(globals())
    distributed.destroy_process_group()
