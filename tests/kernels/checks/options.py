"""Arguments that are no tensors: wrong types and numbers out of range are one error, which names the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import main as run

from triton_dist import kernels
from triton_dist.deep_ep import Buffer
from triton_dist.kernels import functional, moe
from triton_dist.kernels.moe import functional as of_experts
from triton_dist.nn import MoE
from triton_dist.serving import CustomAllreduce
from triton_dist.tensor_parallel import ColwiseParallel, RowwiseParallel

NO_INTS = ("x", 1.5, True, [1], None, torch.tensor(1))
NO_NUMBERS = ("x", [1], None, True, torch.tensor(1.0), float("nan"), float("inf"))
NO_BOOLS = ("x", 1, 0.0, None, [True])
NO_DTYPES = ("x", 1, [torch.float32])
TENSORS = ("topk_idx", "out", "handle", "dispatched")
"""Of others than these, and what holds these, an error shows the type."""


def refused(name: str, values: tuple[Any, ...], call: Callable[..., object]) -> None:
    for value in values:
        with pytest.raises((TypeError, ValueError)) as caught:
            call(**{name: value})
        assert name in str(caught.value) and " must be " in str(caught.value), (name, value, caught.value)
        if isinstance(value, (str, float, list)) and name not in TENSORS:
            assert str(value) in str(caught.value), (name, value, caught.value)


def sizes(call: Callable[..., object], *names: str, least: int = 1, optional: tuple[str, ...] = ()) -> None:
    for name in names:
        refused(name, (*(value for value in NO_INTS if value is not None or name not in optional), least - 1), call)


def check_sizes(world: Any) -> None:
    x, ids, weights = torch.randn(4, 16), torch.zeros(4, 2, dtype=torch.int64), torch.ones(4, 2)
    w13, w2 = torch.randn(2, 8, 16), torch.randn(2, 16, 4)
    given = {"num_experts": 2, "max_tokens": 4}
    for function in (moe.dispatch, moe.dispatch_send):

        def dispatch(function: Any = function, **options: Any) -> None:
            function(x, ids, weights, **given | options)

        sizes(dispatch, "num_experts", "max_tokens", "align", "capacity", "expert_capacity",
              optional=("capacity", "expert_capacity"))  # fmt: skip
        sizes(dispatch, "buffer", "sm_margin", *(("num_sms",) if function is moe.dispatch else ()), least=0)

    def layer(**options: Any) -> None:
        moe.moe_layer(x, ids, weights, w13, w2, **given | options)

    sizes(layer, "num_experts", "max_tokens", "capacity", optional=("capacity",))
    sizes(layer, "num_sms", least=0)

    def functional_dispatch(**options: Any) -> None:
        of_experts.dispatch(x, ids, weights, **given | options)

    sizes(functional_dispatch, "num_experts", "max_tokens", "align", "capacity", optional=("capacity",))
    sizes(lambda **options: moe.gather_routing(ids, weights, **given | options), "num_experts", "max_tokens")
    sizes(lambda **options: moe.softmax_top_k(x, **options), "top_k")
    limited = {"top_k": 2, "n_group": 4, "topk_group": 2}
    sizes(lambda **options: moe.group_limited_top_k(x, **limited | options), *limited)
    experts = {"hidden": 8, "intermediate": 4, "num_experts": 2, "top_k": 1, "max_tokens": 4}
    sizes(lambda **options: MoE(**experts | options), *experts, "capacity", optional=("capacity",))
    sizes(lambda **options: MoE(**experts | options), "num_sms", "shared_intermediate", least=0)
    sizes(lambda **options: Buffer(**options), "max_tokens")
    sizes(lambda **options: CustomAllreduce(**options), "max_size")
    buffer = Buffer(max_tokens=4)
    low = {"num_max_dispatch_tokens_per_rank": 4, "num_experts": 2}
    sizes(lambda **options: buffer.low_latency_dispatch(x, ids, **low | options), *low)
    sizes(lambda **options: buffer.get_dispatch_layout(ids, **options), "num_experts")
    refused("topk_idx", (*NO_INTS, ids[0]), lambda **given: buffer.get_dispatch_layout(num_experts=2, **given))
    refused("root", (*NO_INTS, -1, world.n_pes), lambda **options: kernels.broadcast(torch.ones(4), **options))
    for name, call in (
        ("gather_dim", lambda **options: functional.all_gather(x, **options)),
        ("scatter_dim", lambda **options: functional.reduce_scatter(x, **options)),
        ("gather_dim", lambda **options: functional.all_gather_gemm(x, torch.randn(16, 4), **options)),
    ):
        refused(name, (*NO_INTS, 2, -3, 1 << 40), call)


def check_numbers_and_choices(world: Any) -> None:
    x, a, b = torch.randn(4, 128), torch.randn(4, 16), torch.randn(16, 8)
    refused("eps", (*NO_NUMBERS, -1), lambda **options: kernels.norm_gemm(a, b, torch.ones(16), **options))
    for fused in (kernels.all_reduce_norm, kernels.reduce_scatter_norm, kernels.norm_all_gather):

        def call(fused: Any = fused, **options: Any) -> None:
            fused(x, **options)

        refused("eps", (*NO_NUMBERS, -1), call)
        refused("norm", ("x", 1, [1], None), call)
        refused("quantize", ("x", 1, [1], True), call)
    scaled = {"top_k": 2, "n_group": 4, "topk_group": 2}
    refused("routed_scaling_factor", NO_NUMBERS, lambda **options: moe.group_limited_top_k(x, **scaled, **options))
    ids = torch.zeros(4, 2, dtype=torch.int64)
    received = moe.dispatch(x, ids, num_experts=2, max_tokens=4)
    refused("weighted", NO_BOOLS, lambda **options: moe.combine(received.x, received, **options))
    refused("weighted", NO_BOOLS, lambda **options: moe.combine_send(received.x, received, **options))
    refused("dispatched", ("x", None, 1), lambda dispatched: moe.combine(received.x, dispatched))
    groups = torch.zeros(3, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    matrices = torch.randn(2, 16, 8)
    refused("swiglu", NO_BOOLS, lambda **options: moe.grouped_gemm(a, matrices, *groups, **options))
    refused("out_dtype", NO_DTYPES, lambda **options: moe.grouped_gemm(a, matrices, *groups, **options))
    refused("out", ("x", 1, [1]), lambda **options: moe.grouped_gemm(a, matrices, *groups, **options))
    buffer = Buffer(max_tokens=4)
    refused("handle", ("x", 1, [1]), lambda **options: buffer.dispatch(x, **options))


def check_layouts(world: Any) -> None:
    for style, module in ((ColwiseParallel, torch.nn.Linear(2, 2)), (RowwiseParallel, torch.nn.Embedding(2, 2))):

        def apply(style: Any = style, module: Any = module, **options: Any) -> None:
            style(**options)._apply(module, None)

        for name in ("input_layouts", "output_layouts"):
            refused(name, ("x", 3, 1.5), apply)
        refused("use_local_output", NO_BOOLS, apply)


if __name__ == "__main__":
    run(globals())
