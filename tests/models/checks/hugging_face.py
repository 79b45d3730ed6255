"""Qwen3 and Llama of Hugging Face transformers, sharded by the lines of docs/frameworks.md: logits and gradients."""

from __future__ import annotations

import copy
from typing import Any

import torch
from harness import main as run
from hugging_face_plans import replicated_plan, sequence_plan
from torch import distributed, nn
from torch._dynamo.utils import counters
from torch.distributed.tensor import DTensor, init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
TOKENS = torch.arange(16).view(2, 8) * 3 + 1


def full(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def close(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    error = (found - expected).abs().max() / expected.abs().max()
    assert error < 1e-4, f"{what}: relative error {error:g}"


def models(*, tied: bool = False, layers: int = 2) -> list[nn.Module]:
    torch.manual_seed(0)
    sizes = SIZES | {"tie_word_embeddings": tied, "num_hidden_layers": layers}
    return [Qwen3ForCausalLM(Qwen3Config(**sizes)), LlamaForCausalLM(LlamaConfig(**sizes))]


def backward(logits: torch.Tensor) -> torch.Tensor:
    (logits * torch.linspace(-1, 1, logits.numel()).view(logits.shape)).sum().backward()
    return logits.detach()


def check_logits_and_gradients(world: Any) -> None:
    mesh = init_device_mesh("cpu", (world.n_pes,))
    for model in models():
        for plan in (replicated_plan(), sequence_plan()):
            sharded = parallelize_module(copy.deepcopy(model), mesh, plan)
            model.zero_grad()
            expected = backward(model(TOKENS, use_cache=False).logits)
            close(backward(sharded(TOKENS, use_cache=False).logits), expected, "logits")
            for (name, one), part in zip(model.named_parameters(), sharded.parameters(), strict=True):
                close(full(part.grad), full(one.grad), f"{type(model).__name__}, {name}")


@torch.no_grad()
def check_generation(world: Any) -> None:
    """With transformers' own generate() and its KV cache."""
    mesh = init_device_mesh("cpu", (world.n_pes,))
    for model in models(tied=True):
        sharded = parallelize_module(copy.deepcopy(model), mesh, replicated_plan())
        options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
        assert torch.equal(sharded.generate(TOKENS, **options), model.generate(TOKENS, **options))


@torch.no_grad()
def check_compile(world: Any) -> None:
    mesh = init_device_mesh("cpu", (world.n_pes,))
    for i, model in enumerate(models(layers=1)):
        sharded = parallelize_module(copy.deepcopy(model), mesh, replicated_plan())
        compiled = torch.compile(sharded, backend="aot_eager", fullgraph=True)
        close(compiled(TOKENS, use_cache=False).logits, model(TOKENS, use_cache=False).logits, "compiled")
        assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == i + 1


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    run(globals())
    distributed.destroy_process_group()
