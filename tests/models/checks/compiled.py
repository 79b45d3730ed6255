"""The model of examples/qwen3.py under torch.compile: one graph for each, and the same logits and gradients."""

from __future__ import annotations

from typing import Any

import qwen3
import torch
from compared import ONE_LAYER, PROMPT, close, compare, fused, generate, sharded, tokens
from experts import EXPERTS
from harness import main as run
from torch import distributed
from torch._dynamo.utils import counters

AS_ONE_GRAPH = {"backend": "aot_eager", "fullgraph": True}


def check_no_graph_breaks(world: Any) -> None:
    """In training, prefill and decode: each is one graph, also where the place of the token changes."""
    compare_compiled(world, ONE_LAYER)


def check_no_graph_breaks_with_experts(world: Any) -> None:
    compare_compiled(world, EXPERTS)


def compare_compiled(world: Any, config: qwen3.Config) -> None:
    torch._dynamo.reset()
    counters.clear()
    compare(world, config, torch.float32, True, **AS_ONE_GRAPH)
    with torch.no_grad():
        expected = qwen3.build(config, "cpu", torch.float32)(tokens(world))[:, PROMPT - 1 :]
        prefill = sharded(world, config, torch.float32, sequence=True)
        decode = sharded(world, config, torch.float32, sequence=False)
        qwen3.share_weights(prefill, decode)
        compiled = torch.compile(prefill, **AS_ONE_GRAPH)
        for step in (decode, fused(world, prefill, False)):
            close(generate(world, compiled, torch.compile(step, **AS_ONE_GRAPH)), expected, "logits")
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 4


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    run(globals())
    distributed.destroy_process_group()
