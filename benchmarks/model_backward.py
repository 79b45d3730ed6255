"""A training step of a layer of Qwen3's shape, and how long torch.compile takes: our parallel styles against PyTorch's.

    torchrun --nproc-per-node 2 benchmarks/model_backward.py [--config qwen3-8b qwen3-32b] [--only step compile]
        [--contenders ours torch] [--tokens 8192] [--save FILE]

The layer is that of examples/qwen3.py with a sharded sequence: by our styles, by torch's own (NCCL), and by these and
torch's async tensor parallelism. Each has its own copy of the same weights.

- step: forward, and backward to the input and to all weights, compiled and eager, as a CUDA graph. The gradients of the
  input and of all weights are compared with those of the unsharded layer.
- compile: seconds from torch.compile to the end of the first step, of a training step and of a forward without
  gradients, of the slowest PE; graphs and graph breaks, which are counted without `fullgraph=True`. Kernels are
  compiled before that, by an eager step, and inductor's caches are off.

Each configuration, part and contender can be run alone. In the CPU world nothing is timed: a tiny layer runs through
the same code.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from harness import Entry, Timing, session
from model import LIMIT, SMALL, STYLES, Checks, async_tensor_parallel, checks, differs, qwen3
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

TOKENS = 8 if SMALL else 8192
CONTENDERS = "ours", "ours, eager", "torch, NCCL", "torch, NCCL, eager", "torch, async TP"
PARTS = "step", "compile"

Forward = Callable[..., torch.Tensor]


class Layer:
    """The first layer as both styles shard it, its input and the gradient of its result, and what is expected."""

    def __init__(self, world: Any, config: qwen3.Config, tokens: int) -> None:
        self.world = world
        n_pes, dtype = world.n_pes, torch.float32 if SMALL else torch.bfloat16
        if tokens % n_pes:
            raise SystemExit(f"{n_pes} PEs cannot share {tokens} tokens equally")
        one = dataclasses.replace(config, layers=1, vocabulary=128 * n_pes)  # what is around the layer is not run
        self.mesh = init_device_mesh(world.device.type, (n_pes,))
        self.layers: dict[str, Any] = {
            name: qwen3.build(one, world.device, dtype, mesh=self.mesh, styles=styles, sequence=True).layers[0]
            for name, styles in STYLES.items()
        }
        self.rope = qwen3.angles(torch.arange(tokens, device=world.device), one)
        generator = torch.Generator(world.device).manual_seed(2)
        shape = 1, tokens, one.hidden
        x, grad = (torch.randn(shape, generator=generator, device=world.device).to(dtype) for _ in range(2))
        self.x, self.grad = (t.chunk(n_pes, 1)[world.pe].clone() for t in (x, grad))
        self.x.requires_grad_()
        whole = qwen3.build(one, world.device, dtype).layers[0]
        x.requires_grad_()
        expected = torch.autograd.grad(whole(x, self.rope, None, None), (x, *whole.parameters()), grad)
        self.of_x = expected[0].chunk(n_pes, 1)[world.pe].clone()
        self.of_weights = {name: g for (name, _), g in zip(whole.named_parameters(), expected[1:], strict=True)}

    def forward(self, contender: str) -> Forward:
        """A contender's layer: compiled, or as it is."""
        layer = self.layers[contender.partition(",")[0]]
        if contender == "torch, async TP":
            return async_tensor_parallel(layer, self.mesh)
        return layer if SMALL or contender.endswith("eager") else torch.compile(layer, fullgraph=True, dynamic=False)

    def gradients(self, contender: str, forward: Forward) -> tuple[torch.Tensor, ...]:
        """Of the input's rows of this PE, and of the weights."""
        weights = self.layers[contender.partition(",")[0]].parameters()
        return torch.autograd.grad(forward(self.x, self.rope, None, None), (self.x, *weights), self.grad)

    def wrong_weights(self, contender: str, forward: Forward) -> str:
        """Which gradient of a weight is wrong, if one is. *Collective.*"""
        found = self.gradients(contender, forward)[1:]
        for (name, expected), gradient in zip(self.of_weights.items(), found, strict=True):
            full = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
            if problem := differs(full, expected, LIMIT):
                return f"the gradient of {name} has {problem}"
        return ""


def time_steps(bench: Any, layer: Layer, title: str, contenders: list[str]) -> None:
    made = {contender: layer.forward(contender) for contender in contenders}
    wrong: dict[str, str] = {}

    def step(contender: str) -> torch.Tensor:
        if contender not in wrong:
            wrong[contender] = ""  # the gradients of weights are looked at in the first call
            wrong[contender] = layer.wrong_weights(contender, made[contender])
        if wrong[contender]:
            raise AssertionError(wrong[contender])
        return layer.gradients(contender, made[contender])[0]

    steps = {contender: lambda i, contender=contender: step(contender) for contender in contenders}
    bench.compare(title, steps, check=lambda found, i: differs(found, layer.of_x, LIMIT), calls=1)
    for contender, problem in wrong.items():
        if problem and hasattr(bench, "wrong"):
            bench.wrong.append(f"{title}, {contender}: {problem}")


def time_compilations(bench: Any, layer: Layer, title: str, contenders: list[str], *, training: bool) -> None:
    """One contender after the other, each from nothing."""
    entry, told = Entry(title, None), []
    for contender in contenders:
        if contender.endswith("eager"):
            continue
        seconds, graphs, breaks, reason = compilation(layer, contender, training=training)
        slowest = torch.tensor([seconds, breaks], dtype=torch.float64, device=layer.world.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if reason:
            entry.absent[contender] = reason
        else:
            entry.timings[contender] = Timing(*[slowest[0].item() * 1e6] * 3)
            took = "" if SMALL else f" {slowest[0].item():.1f} s,"
            told.append(f"{contender}:{took} {graphs} graphs, {int(slowest[1].item())} graph breaks")
    entry.title += f" ({'; '.join(told)})" if told else ""
    bench.entries.append(entry)
    bench.say("\n    ".join([title, *told, *(f"{contender}: {reason}" for contender, reason in entry.absent.items())]))


def compilation(layer: Layer, contender: str, *, training: bool) -> tuple[float, int, int, str]:
    """Seconds of the first call, graphs, graph breaks; and why there are none."""
    module = layer.layers[contender.partition(",")[0]]

    def call(forward: Forward) -> None:
        if training:
            layer.gradients(contender, forward)
        else:
            with torch.no_grad():
                forward(layer.x, layer.rope, None, None)

    if SMALL and contender == "torch, async TP":
        return 0.0, 0, 0, "torch's fused operators need CUDA"
    torch._dynamo.reset()
    counters.clear()
    call(module)  # compiles kernels, and makes workspaces
    finish(layer)
    try:
        began = time.perf_counter()
        with torch._inductor.config.patch(force_disable_caches=True):
            call(compiled(layer, contender, module))
        finish(layer)
    except Exception as error:
        return 0.0, 0, 0, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
    return time.perf_counter() - began, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()), ""


def compiled(layer: Layer, contender: str, module: Forward) -> Forward:
    """Where a graph break is no error."""
    if SMALL:
        return torch.compile(module, backend="aot_eager", dynamic=False)
    options = {}
    if contender == "torch, async TP":
        import torch.distributed._symmetric_memory as symm_mem

        symm_mem.enable_symm_mem_for_group(layer.mesh.get_group().group_name)
        options = {"_micro_pipeline_tp": True}
    return torch.compile(module, dynamic=False, options=options)


def finish(layer: Layer) -> None:
    if layer.world.kind == "gpu":
        torch.cuda.synchronize()
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = ["tiny"] if SMALL else ["qwen3-8b", "qwen3-32b"]
    parser.add_argument("--config", nargs="+", choices=tuple(qwen3.CONFIGS), default=known)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--contenders", nargs="+", default=[""], help=f"what the names of contenders begin with, of: {CONTENDERS}"
    )
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--save", help="write JSON to this file")
    args = parser.parse_args()
    contenders = [contender for contender in CONTENDERS if contender.startswith(tuple(args.contenders))]
    if not contenders:
        parser.error(f"--contenders {' '.join(args.contenders)} are none of {', '.join(CONTENDERS)}")
    opened: Any = checks() if SMALL else session("model, backward", total=len(args.config) * ("step" in args.only))
    with opened as bench:
        for name in args.config:
            layer = Layer(bench.world, qwen3.CONFIGS[name], args.tokens)
            title = f"{name}, {args.tokens} tokens"
            if "step" in args.only:
                time_steps(bench, layer, f"a layer's training step, {title}", contenders)
            if "compile" in args.only:
                for what, training in (("training step", True), ("forward", False)):
                    time_compilations(
                        bench, layer, f"first {what} of a compiled layer, {title}", contenders, training=training
                    )
            del layer
        if args.save and not isinstance(bench, Checks):
            bench.save(args.save)


if __name__ == "__main__":
    main()
