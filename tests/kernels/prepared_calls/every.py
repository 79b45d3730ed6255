"""Every public function that launches, with each of its algorithms: prepared, or named here with the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from prepared_calls import calls as tensors
from prepared_calls.between_hosts import two_hosts
from prepared_calls.calls import A, B
from prepared_calls.world import calls

from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.gemm.operation import IN_SLICES

NO_CALLS = {
    *("Communicator", "Normed", "functional", "interleave_gate_up", "reserve", "tracing", "tune"),
    *("Combining", "Dispatched", "DispatchedTokens", "GatheredRouting", "GroupedTokens", "Sent"),
    *("group_limited_top_k", "softmax_top_k"),
}
"""What launches nothing of ours, or once for many calls."""

OF_SEVERAL = {"moe_layer", "dispatch_grouped_gemm", "grouped_gemm_combine"}
"""Functions whose launches are those of others here. (Two of them are among ``NEW_RESULTS``.)"""

ROWS = torch.zeros(16, 512).bfloat16()

TAKE_ALGORITHMS: dict[str, Callable[..., object]] = {
    "all_reduce": partial(kernels.all_reduce, tensors.LARGE, out=tensors.OUT),
    "all_gather": partial(kernels.all_gather, tensors.GATHERED_LARGE, tensors.LARGE),
    "reduce_scatter": partial(kernels.reduce_scatter, tensors.LARGE, tensors.GATHERED_LARGE),
    "all_to_all": partial(kernels.all_to_all, tensors.OUT, tensors.LARGE),
    "broadcast": partial(kernels.broadcast, tensors.LARGE, 1),
    "all_gather_gemm": partial(kernels.all_gather_gemm, A, B, tensors.OF_ALL),
    "gemm_reduce_scatter": partial(kernels.gemm_reduce_scatter, A, B, tensors.OWN),
    "gemm_all_reduce": partial(kernels.gemm_all_reduce, A, B, tensors.C),
    "gemm_all_scatter": partial(kernels.gemm_all_scatter, A, B, tensors.WIDE),
    "all_reduce_norm": partial(kernels.all_reduce_norm, ROWS, ROWS[0], ROWS),
    "reduce_scatter_norm": partial(kernels.reduce_scatter_norm, ROWS, ROWS[0], ROWS[:8]),
    "norm_all_gather": partial(kernels.norm_all_gather, ROWS, ROWS[0], ROWS),
}
SMALL: dict[tuple[str, str], Callable[[], object]] = {
    # Of algorithms that take no more.
    ("all_reduce", "one_shot"): lambda: kernels.all_reduce(tensors.X, out=tensors.Y, algorithm="one_shot"),
    ("all_reduce", "two_shot"): lambda: kernels.all_reduce(tensors.X, out=tensors.Y, algorithm="two_shot"),
    ("all_gather", "low_latency"): lambda: kernels.all_gather(tensors.GATHERED, tensors.X, algorithm="low_latency"),
    ("reduce_scatter", "low_latency"): lambda: kernels.reduce_scatter(
        tensors.X, tensors.GATHERED, algorithm="low_latency"
    ),
    ("all_to_all", "low_latency"): lambda: kernels.all_to_all(tensors.Y, tensors.X, algorithm="low_latency"),
    ("broadcast", "low_latency"): lambda: kernels.broadcast(tensors.X, 1, algorithm="low_latency"),
    ("gemm_reduce_scatter", "fused"): lambda: kernels.gemm_reduce_scatter(
        tensors.FEW, B, tensors.FEW_OUT, algorithm="fused"
    ),
    ("gemm_all_reduce", "fused"): lambda: kernels.gemm_all_reduce(tensors.FEW, B, tensors.TO_ALL, algorithm="fused"),
}
OTHERS: dict[str, Callable[[], object]] = {
    "norm_gemm": lambda: kernels.norm_gemm(ROWS[:, :256], B, ROWS[0, :256]),
    "flash_decode": tensors.NEW_RESULTS["flash_decode"],
    "flash_decode_projection": tensors.NEW_IN_STEPS["flash_decode_projection"],
    "gather_routing": tensors.NEW_IN_STEPS["gather_routing"],
    "grouped_gemm": lambda: moe.grouped_gemm(
        tensors.ROWS, tensors.SLICE, torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    ),
    "dispatch_send": lambda: moe.dispatch_receive(
        moe.dispatch_send(tensors.TOKENS, tensors.IDS, tensors.WEIGHTS, **tensors.EXPERTS)
    ),
    "dispatch_tokens": tensors.NEW_IN_STEPS["dispatch_tokens by TMA"],
    "combine_tokens": tensors.NEW_RESULTS["combine_tokens by TMA"],
    "group_by_expert": lambda: moe.group_by_expert(_tokens()),
    "sum_over_experts": lambda: _sum(moe.group_by_expert(_tokens())),
    "combine_send": lambda: moe.combine_receive(moe.combine_send(tensors.RECEIVED.x, tensors.RECEIVED)),
}

NOT_PREPARED = {
    ("reduce_scatter_norm", "unfused"): "a collective that is, and a norm",
    ("norm_all_gather", "unfused"): "the same",
}


def _tokens() -> Any:
    return tensors.NEW_IN_STEPS["dispatch_tokens by TMA"]()


def _sum(grouped: Any) -> torch.Tensor:
    return moe.sum_over_experts(torch.zeros(grouped.x.shape).bfloat16(), grouped)


def public() -> dict[str, tuple[str, ...]]:
    """The algorithms of every public function that launches; one without a name if it has no choice."""
    found = {}
    for package in (kernels, moe):
        for name in package.__all__:
            if name not in NO_CALLS | OF_SEVERAL and not name.endswith("_receive"):  # halves are called together
                module = sys.modules[getattr(package, name).__module__]
                of_hosts = ("two_level",) if name in IN_SLICES else ()
                found[name] = (*getattr(module, "ALGORITHMS", ("",)), *of_hosts)
    return found


def every_function_and_algorithm_is_prepared_or_says_why_not() -> None:
    every = [(name, algorithm) for name, algorithms in public().items() for algorithm in algorithms]
    found = {what: _is_prepared(*what) for what in every if what[1] != "two_level"}
    with two_hosts() as comm:
        found |= {what: _is_prepared(*what, group=comm) for what in every if what[1] == "two_level"}
    not_prepared = {what for what, prepared in found.items() if not prepared}
    assert not_prepared == NOT_PREPARED.keys(), not_prepared ^ NOT_PREPARED.keys()


def _is_prepared(name: str, algorithm: str, group: Any = None) -> bool:
    """Whether a call like one before launches, and nothing through Triton's binder."""
    call: Any = SMALL.get((name, algorithm)) or OTHERS.get(name) or tensors.NEW_RESULTS.get(name)
    if call is None:
        call = partial(TAKE_ALGORITHMS[name], algorithm=algorithm, group=group)
    call()
    found = calls(call)
    assert found["JITFunction.run"] or found.repeated, (name, algorithm)
    return not found["JITFunction.run"]
