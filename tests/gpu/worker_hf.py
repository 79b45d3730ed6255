"""Hugging Face's Qwen3 and Llama, sharded by the lines of docs/frameworks.md, as one PE of some: on GPUs, or in the
CPU world.

    torchrun --nproc-per-node 2 tests/gpu/worker_hf.py [CHECK…]

PE 0 prints a line for each check, or that transformers is not installed. Weights are random. Logits are right if they
are as near to those of float32 as the unsharded model's of the same dtype. On GPUs that is bfloat16, shapes are such
that the overlapping algorithms can be had, inductor generates code, and decode is captured in CUDA graphs as well.
"""

from __future__ import annotations

import copy
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch._dynamo.utils import counters
from torch.distributed.tensor import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module
from worker_checks import run_checks

import triton_dist

sys.path.insert(0, str(Path(__file__).parents[1] / "models" / "checks"))
from hugging_face_plans import replicated_plan, sequence_plan

ON_GPU = triton_dist.kind() == "gpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
VOCABULARY, BATCH, LENGTH, NEW = (2048, 2, 512, 8) if ON_GPU else (64, 2, 8, 3)
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = (1024, 3072, 16, 8, 64) if ON_GPU else (32, 48, 4, 2, 8)
PLANS = {"replicated": replicated_plan, "sequence": sequence_plan}
NAMES = "Qwen3", "Llama"


class Models:
    """One class: in float32 and in ``DTYPE``, and in ``DTYPE`` sharded by each plan."""

    def __init__(self, world: Any, name: str) -> None:
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, num_hidden_layers=2, tie_word_embeddings=False,
        )  # fmt: skip
        self.name, self.config, self.world = name, config, world
        self.exact = getattr(transformers, f"{name}ForCausalLM")(config).to(world.device).eval()
        self.plain = copy.deepcopy(self.exact).to(DTYPE)
        self.mesh = init_device_mesh(world.device.type, (world.n_pes,))
        self.tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + NEW), device=world.device)
        distributed.broadcast(self.tokens, 0)  # generators of two devices may differ

    def sharded(self, plan: str) -> Any:
        return parallelize_module(copy.deepcopy(self.plain), self.mesh, PLANS[plan]())

    def check(self, found: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor, what: str) -> None:
        """``found`` has twice the plain model's error of rounding at most."""
        size = exact.float().square().mean().sqrt()
        ours, theirs = ((x.float() - exact.float()).square().mean().sqrt() / size for x in (found, plain))
        assert ours <= 2 * theirs + 1e-5, (
            f"{self.name}, {what}: an error of {ours:g}, where the plain model's is {theirs:g}"
        )

    def cache(self) -> Any:
        import transformers

        return transformers.StaticCache(config=self.config, max_cache_len=LENGTH + NEW)


def logits_of(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(tokens, use_cache=False).logits
    return found


def logits(world: Any) -> None:
    for name in NAMES:
        models = Models(world, name)
        tokens = models.tokens[:, :LENGTH]
        expected = [logits_of(model, tokens) for model in (models.plain, models.exact)]
        for plan in PLANS:
            models.check(logits_of(models.sharded(plan), tokens), *expected, plan)


def compiled(world: Any) -> None:
    """As one graph."""
    for name in NAMES:
        models = Models(world, name)
        tokens = models.tokens[:, :LENGTH]
        expected = [logits_of(model, tokens) for model in (models.plain, models.exact)]
        for plan in PLANS:
            torch._dynamo.reset()
            counters.clear()
            step = torch.compile(models.sharded(plan), backend="inductor" if ON_GPU else "aot_eager", fullgraph=True)
            models.check(logits_of(step, tokens), *expected, f"{plan}, compiled")
            assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1, dict(counters["stats"])


def generation(world: Any) -> None:
    """``generate()``: of the unsharded model's logits, each generated token has the largest, or nearly so."""
    for name in NAMES:
        models = Models(world, name)
        prompt = models.tokens[:, :LENGTH]
        found = models.sharded("replicated").generate(prompt, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
        assert found.shape == (BATCH, LENGTH + NEW) and torch.equal(found[:, :LENGTH], prompt)
        exact, plain = (logits_of(model, found)[:, LENGTH - 1 : -1].float() for model in (models.exact, models.plain))
        chosen = exact.gather(-1, found[:, LENGTH:, None])[..., 0]
        rounding = 4 * (plain - exact).abs().max() + 1e-5
        assert (exact.amax(-1) - chosen <= rounding).all(), f"{name}: another token was generated"
        everywhere = [torch.empty_like(found) for _ in range(world.n_pes)]
        distributed.all_gather(everywhere, found)
        assert all(torch.equal(found, other) for other in everywhere), f"{name}: PEs have generated different tokens"


def decoder(models: Models, model: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """The logits of the next token, behind a prompt in a static cache, which each call extends."""
    cache = models.cache()
    given = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"  # before 5.24

    def step(tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(tokens, use_cache=True, logits_to_keep=1, **{given: cache}).logits
        return found

    step(models.tokens[:, :LENGTH])
    step.cache = cache  # type: ignore[attr-defined]
    return step


def decode(world: Any) -> None:
    """Token by token with a static cache; on GPUs also in a CUDA graph, whose replays write position after position."""
    for name in NAMES:
        models = Models(world, name)
        plain, exact, step = (decoder(models, x) for x in (models.plain, models.exact, models.sharded("replicated")))
        tokens = models.tokens[:, LENGTH:]
        expected = [(plain(tokens[:, i : i + 1]), exact(tokens[:, i : i + 1])) for i in range(NEW)]
        for i in range(NEW):
            models.check(step(tokens[:, i : i + 1]), *expected[i], f"decode of token {i}")
        if not ON_GPU:
            continue
        layers = step.cache.layers  # type: ignore[attr-defined]
        token = tokens[:, :1].clone()
        for layer in layers:
            layer.cumulative_length.fill_(LENGTH)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step(token)
        for layer in layers:
            layer.cumulative_length.fill_(LENGTH)
        for i in range(NEW):
            token.copy_(tokens[:, i : i + 1])
            graph.replay()
            models.check(captured, *expected[i], f"captured decode of token {i}")


def main() -> int:
    checks: tuple[Callable[[Any], None], ...] = logits, compiled, generation, decode
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"SKIP: Hugging Face transformers (extra models): {error}")
        return 0
    if ON_GPU:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        distributed.init_process_group("nccl", device_id=device)
    else:
        distributed.init_process_group("gloo")
    with triton_dist.init() as world, torch.no_grad():
        run_checks(world, checks, sys.argv[1:])
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
