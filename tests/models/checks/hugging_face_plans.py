"""The plans of docs/frameworks.md for Hugging Face's Qwen3 and Llama: replicated activations, and sharded sequences."""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import PrepareModuleInput

from triton_dist.tensor_parallel import ColwiseParallel, RowwiseParallel, SequenceParallel


def replicated_plan() -> dict[str, Any]:
    layer = "model.layers.*"
    return {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        f"{layer}.self_attn.[qkv]_proj": ColwiseParallel(),
        f"{layer}.self_attn.[qk]_norm": SequenceParallel(sequence_dim=2, use_local_output=True),  # this PE's heads
        f"{layer}.self_attn.o_proj": RowwiseParallel(),
        f"{layer}.mlp.gate_proj": ColwiseParallel(),
        f"{layer}.mlp.up_proj": ColwiseParallel(),
        f"{layer}.mlp.down_proj": RowwiseParallel(),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }


def sequence_plan() -> dict[str, Any]:
    layer, rows, norm = "model.layers.*", Shard(1), SequenceParallel(use_local_output=True)
    gather = PrepareModuleInput(
        input_kwarg_layouts={"hidden_states": rows}, desired_input_kwarg_layouts={"hidden_states": Replicate()}
    )
    scatter = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(rows,), use_local_output=True)
    return replicated_plan() | {
        "model.layers.0": scatter,
        f"{layer}.*_layernorm": norm,
        f"{layer}.self_attn": gather,
        f"{layer}.self_attn.o_proj": RowwiseParallel(output_layouts=rows),
        f"{layer}.mlp.gate_proj": ColwiseParallel(input_layouts=rows),
        f"{layer}.mlp.up_proj": ColwiseParallel(input_layouts=rows),
        f"{layer}.mlp.down_proj": RowwiseParallel(output_layouts=rows),
        "model.norm": norm,
        "lm_head": ColwiseParallel(input_layouts=rows, output_layouts=Replicate()),
    }
