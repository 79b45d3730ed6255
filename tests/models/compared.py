"""A sharded model of examples/qwen3.py beside the unsharded one: logits and gradients, in worlds of both kinds."""

from __future__ import annotations

import dataclasses
from typing import Any

import qwen3
import torch
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

import triton_dist
from triton_dist import tensor_parallel
from triton_dist.kernels import functional

TINY = qwen3.CONFIGS["tiny"]
ONE_LAYER = dataclasses.replace(TINY, layers=1)
BATCH = 2
PROMPT, TOKENS = (8, 10) if triton_dist.kind() == "cpu" else (256, 258)
ALIKE = "mlp.gate", "mlp.shared_up.weight", "mlp.shared_down.weight"
"""Weights of experts' layers that all PEs have as ordinary tensors."""


def config_for(world: Any) -> qwen3.Config:
    """What a layer hands to the next one is seen with two PEs; four need longer for each."""
    return TINY if world.n_pes == 2 else ONE_LAYER


def tokens(world: Any) -> torch.Tensor:
    drawn = torch.randint(TINY.vocabulary, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    return drawn.to(world.device)


def sharded(world: Any, config: qwen3.Config, dtype: torch.dtype, **options: bool) -> qwen3.Transformer:
    mesh = init_device_mesh(world.device.type, (world.n_pes,))
    return qwen3.build(config, world.device, dtype, mesh, tensor_parallel, **options, max_tokens=BATCH * PROMPT)


def fused(world: Any, source: qwen3.Transformer, sequence: bool) -> Any:
    """A prefill or a step of decode of fused operations, with the weights of ``source``."""
    mesh = init_device_mesh(world.device.type, (world.n_pes,))
    config = dataclasses.replace(source.config, block=1)
    options = {"sequence": sequence, "max_tokens": BATCH * PROMPT}
    model = qwen3.build(config, "meta", source.head.weight.dtype, mesh, tensor_parallel, **options)
    qwen3.share_weights(source, model)
    return (qwen3.FusedPrefill if sequence else qwen3.FusedDecode)(model, mesh)


def mine(world: Any, logits: torch.Tensor) -> torch.Tensor:
    """This PE's part of the vocabulary."""
    return logits.chunk(world.n_pes, -1)[world.pe]


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The root mean square of the error as a part of that of what is expected."""
    # Zeros, as gradients of experts without tokens, are to be zeros.
    return float((found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-30))


def close(found: torch.Tensor, expected: torch.Tensor, what: str, rounded: torch.Tensor | None = None) -> None:
    """In bfloat16 as exact, but for a factor, as ``rounded``: what the unsharded model computes in that dtype."""
    limit = 1e-5 if rounded is None else 2**-8 + 3 * error_of(rounded, expected)
    error = error_of(found, expected)
    assert error < limit, f"{what}: relative error {error:g}, limit {limit:g}"


def step(model: Any, world: Any, whole: bool) -> torch.Tensor:
    """Forward and backward of a loss in which every logit has a weight of its own."""
    logits = model(tokens(world)[:, :PROMPT])
    shape = *logits.shape[:2], TINY.vocabulary
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(logits)
    (logits * (weights if whole else mine(world, weights))).sum().backward()
    return logits.detach()


def gradient(parameter: torch.Tensor) -> torch.Tensor:
    """The whole one. PyTorch's own ``full_tensor`` ends in a segmentation fault where PEs share a GPU, by gloo."""
    grad = parameter.grad
    assert grad is not None
    if not isinstance(grad, DTensor):
        return grad
    (placement,) = grad.placements
    if isinstance(placement, Shard):
        return functional.all_gather(grad.to_local(), placement.dim)
    return functional.all_reduce(grad.to_local()) if placement.is_partial() else grad.to_local()


def unchanged(model: qwen3.Transformer) -> None:
    """What :func:`compare` changes in its models by default."""


def compare(
    world: Any, config: qwen3.Config, dtype: torch.dtype, sequence: bool, change: Any = unchanged, **compiled: Any
) -> None:
    rounded = None if dtype == torch.float32 else qwen3.build(config, world.device, dtype)
    whole = qwen3.build(config, world.device, dtype).float()
    model = sharded(world, config, dtype, sequence=sequence)
    for each in (whole, model, *filter(None, [rounded])):
        change(each)
    expected = mine(world, step(whole, world, True))
    found = step(torch.compile(model, **compiled) if compiled else model, world, False)
    assert found.dtype == dtype
    close(found, expected, "logits", rounded and mine(world, step(rounded, world, True)))
    for name, parameter in model.named_parameters():
        found = gradient(parameter)
        if sequence and name.endswith(ALIKE):
            found = functional.all_reduce(found)  # of this PE's tokens
        experts = slice(None) if parameter.dim() < 3 else slice(world.pe * len(found), (world.pe + 1) * len(found))
        own = rounded and gradient(rounded.get_parameter(name))[experts]
        close(found, gradient(whole.get_parameter(name))[experts], name, own)


def generate(world: Any, prefill: Any, decode: Any) -> torch.Tensor:
    """Logits of the prompt's last token and of those that follow, of the whole vocabulary."""
    text = tokens(world)
    cache = qwen3.empty_cache(getattr(prefill, "model", prefill), BATCH, TOKENS + 2, world.n_pes)
    found = [prefill(text[:, :PROMPT], cache)]
    for i in range(PROMPT, TOKENS):
        found.append(decode(text[:, i : i + 1], cache, torch.tensor([i], device=world.device)))
    return functional.all_gather(torch.cat(found, 1), -1)


def prefill_and_decode(world: Any, config: qwen3.Config, dtype: torch.dtype, change: Any = unchanged) -> None:
    prefill = sharded(world, config, dtype, sequence=True)
    models = [qwen3.build(config, world.device, dtype), qwen3.build(config, world.device, dtype).float()]
    for model in (prefill, *models):
        change(model)
    rounded, expected = (model(tokens(world))[:, PROMPT - 1 :] for model in models)
    decode = sharded(world, config, dtype, sequence=False)
    qwen3.share_weights(prefill, decode)
    own = None if dtype == torch.float32 else rounded
    close(generate(world, prefill, decode), expected, "logits", own)
    steps = fused(world, prefill, True), fused(world, prefill, False)
    close(generate(world, *steps), expected, "fused logits", own)
    weights = dict(prefill.named_parameters())
    for name, weight in decode.named_parameters():
        shared = weights[name].to_local() if isinstance(weights[name], DTensor) else weights[name]
        mine = weight.to_local() if isinstance(weight, DTensor) else weight
        assert mine.data_ptr() == shared.data_ptr(), f"{name} is not shared"
