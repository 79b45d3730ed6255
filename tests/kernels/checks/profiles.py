"""In a profile of PyTorch each public call is one range, named as its operator is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from harness import main as run
from harness import raises

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional, moe


def ranges(call: Callable[[], object]) -> list[str]:
    """Of the package, in the order in which they begin."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    found = sorted((event.time_range.start, event.name) for event in profile.events())
    return [name.removeprefix("triton_dist::") for _, name in found if name.startswith("triton_dist::")]


def check_profiled_calls(world: Any) -> None:
    n_pes = world.n_pes
    x, to = triton_dist.full((4, 8), 1.0), triton_dist.zeros((n_pes * 4, 8))
    a, b, weight = torch.ones(4, 8), torch.ones(8, 6), torch.ones(8)
    whole = a.repeat(n_pes, 1)
    ids, weights = torch.zeros(4, 1, dtype=torch.int64), torch.ones(4, 1)
    sizes: dict[str, Any] = {"num_experts": n_pes, "max_tokens": 4}
    for name, call in {
        "all_gather": lambda: kernels.all_gather(to, x),
        "all_reduce": lambda: kernels.all_reduce(x),
        "broadcast": lambda: kernels.broadcast(x, 0),
        "reduce_scatter": lambda: kernels.reduce_scatter(x, to),
        "all_gather_gemm": lambda: kernels.all_gather_gemm(a, b),
        "gemm_reduce_scatter": lambda: kernels.gemm_reduce_scatter(whole, b),
        "norm_gemm": lambda: kernels.norm_gemm(a, b, weight),
        "all_reduce_norm": lambda: kernels.all_reduce_norm(a, weight),
        "moe_dispatch": lambda: moe.dispatch(a, ids, weights, **sizes),
        "moe_layer": lambda: moe.moe_layer(a, ids, weights, torch.ones(1, 4, 8), torch.ones(1, 8, 2), **sizes),
    }.items():
        assert ranges(call) == [name], (name, ranges(call))


def check_profiled_operators(world: Any) -> None:
    """Operators have ranges of PyTorch's dispatcher, so calls that go through them have no second one."""
    a, b = torch.ones(4, 8, requires_grad=True), torch.ones(8, 6)
    assert ranges(lambda: functional.all_reduce(a.detach())) == ["all_reduce"]
    assert ranges(lambda: kernels.all_gather_gemm(a, b)) == ["all_gather_gemm"]
    assert ranges(lambda: kernels.all_gather_gemm(a, b).sum().backward())[:2] == [
        "all_gather_gemm", "gemm_reduce_scatter",
    ]  # fmt: skip


def check_ranges_end_with_errors(world: Any) -> None:
    def call() -> None:
        with raises(TypeError):
            kernels.all_reduce("x")  # type: ignore[arg-type]
        kernels.all_reduce(x)

    x = triton_dist.full(4, 1.0)
    assert ranges(call) == ["all_reduce", "all_reduce"]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    first, second = (event for event in profile.events() if event.name == "triton_dist::all_reduce")
    assert first.time_range.end <= second.time_range.start


if __name__ == "__main__":
    run(globals())
