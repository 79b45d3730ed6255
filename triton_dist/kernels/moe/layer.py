"""A layer of experts: dispatch, grouped GEMM, SwiGLU, grouped GEMM, combine, one after the other, or in two kernels.

Or, if every PE has a slice of every expert: routing, all-gather and grouped GEMM, SwiGLU, grouped GEMM and
reduce-scatter.

The steps are in ``layer_steps.py``. Here is which tokens they are for: this PE's own; those of all PEs that have slices
of its experts; or copies that all PEs have (``shared_tokens.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from triton_dist.kernels import functional
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.gradients import records_gradients
from triton_dist.kernels.moe.arguments import check_sizes
from triton_dist.kernels.moe.layer_steps import Steps, differentiable_steps, steps_of
from triton_dist.kernels.moe.shared_tokens import check_grid, gather_tokens, own_choices, sum_gradients
from triton_dist.kernels.options import check_bool
from triton_dist.torch_api import is_traced

__all__ = ["ALGORITHMS", "ONE_OF", "check_replicated", "moe_layer"]

ALGORITHMS = "auto", "separate", "tokens", "fused", "fused_hopper"
ONE_OF = f"{', '.join(ALGORITHMS[:-1])} or {ALGORITHMS[-1]}"
_ops: Any = torch.ops.triton_dist


def moe_layer(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    *,
    num_experts: int,
    max_tokens: int,
    capacity: int | None = None,
    num_sms: int = 0,
    parallel: str = "expert",
    algorithm: str = "auto",
    group: Any = None,
    tp_group: Any = None,
    replicated: bool = False,
) -> torch.Tensor:
    """The weighted sum, over a token's experts, of ``w2 · (silu(w1 · x) * (w3 · x))``.

    *Collective*, on the current stream, and differentiable. Nothing waits for the host. Intermediate results have room
    for ``capacity`` rows.

    Args:
        x: [T, hidden]: bfloat16, float16 or float32. T may differ between PEs, up to ``max_tokens``.
        topk_ids, topk_weights: [T, top_k], as of :func:`~triton_dist.kernels.moe.dispatch`.
        w13: [L, 2 * intermediate, hidden], of this PE's experts: w1, the gate, and then w3.
        w2: [L, hidden, intermediate].
        num_experts, max_tokens, capacity, num_sms: as of :func:`~triton_dist.kernels.moe.dispatch`.
        parallel: ``expert``, where every PE has an equal part of the experts; or ``tensor``, where every PE has a part
            of each expert: w13 is [num_experts, 2 * intermediate / n_pes, hidden], of which w1 and w3 have the same
            rows of the whole ones, and w2 [num_experts, hidden, intermediate / n_pes]. ``num_sms`` is then as of
            :func:`~triton_dist.kernels.moe.all_gather_grouped_gemm`, and there is no ``capacity``.
        algorithm: for ``expert``. ``separate``: every step is a kernel of its own. ``tokens``: the same, with
            :func:`~triton_dist.kernels.moe.dispatch_tokens`, so that a token crosses once to each PE, and its rows of a
            PE are added up there, and rounded, before they return. ``fused``: the routing is gathered; then dispatch,
            GEMM and SwiGLU are one kernel, and GEMM and combine another one, in which ``num_sms`` programs move rows
            while the others multiply. Sums and roundings are those of ``separate``. ``fused_hopper``: the same with the
            warp-specialised kernels of Hopper GPUs, where they take the operands. Where gradients are recorded, both
            are ``separate``. ``auto`` is ``separate`` without ``num_sms``, and where gradients are recorded. With
            ``num_sms`` it is ``tokens``, where TMA moves them (see
            :func:`~triton_dist.kernels.moe.dispatch_tokens`); else ``fused_hopper`` if ``max_tokens`` is 4096 or more
            and there are up to 256 experts, or ``separate``.
        group: as of :mod:`triton_dist.kernels.functional`: the PEs that share the experts.
        tp_group: for ``expert``: the PEs that share each expert of a PE, each with a slice: w13 is
            [L, 2 * intermediate / n, hidden], of which w1 and w3 have the same rows of the whole ones, and w2
            [L, hidden, intermediate / n]. Both groups are as a column and a row of a mesh. ``max_tokens`` tokens of
            each PE of ``tp_group`` are gathered by them first, and in the end their sums over slices are scattered.
        replicated: the PEs of ``tp_group``, or without one those of ``group``, have the same tokens, as behind a
            row-parallel layer, and all get the result: what a PE's experts or slices add is summed by an all-reduce. T
            is the same on them. Without ``tp_group`` no token is sent; ``num_sms`` and ``algorithm`` are not for that.

    Returns:
        [T, hidden], of ``x``'s dtype.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    check_sizes("moe_layer", num_experts, max_tokens, 1, capacity, num_sms)
    for name, tensor in (("x", x), ("topk_ids", topk_ids), ("topk_weights", topk_weights), ("w13", w13), ("w2", w2)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"moe_layer: {name} must be a torch.Tensor, got {type(tensor).__name__}")
    if w13.dim() != 3 or w2.dim() != 3 or w13.shape[1] != 2 * w2.shape[2] or w13.shape[2] != w2.shape[1]:
        raise ValueError(
            "moe_layer: w13 must be [L, 2 * intermediate, hidden] and w2 [L, hidden, intermediate], got shapes"
            f" {tuple(w13.shape)} and {tuple(w2.shape)}"
        )
    if w13.shape[0] != w2.shape[0] or x.shape[-1:] != w13.shape[2:]:
        raise ValueError(
            "moe_layer: w13 and w2 must have the matrices of as many experts, and x as many columns as w13's; got x"
            f" {tuple(x.shape)}, w13 {tuple(w13.shape)} and w2 {tuple(w2.shape)}"
        )
    if not x.dtype == w13.dtype == w2.dtype:
        raise ValueError(
            f"moe_layer: x, w13 and w2 must be of one dtype, got {x.dtype}, {w13.dtype} and {w2.dtype}. Parameters that"
            " fully_shard ignores are not of its mixed precision: convert them, or use torch.autocast"
        )
    if parallel not in ("expert", "tensor"):
        raise ValueError(f"moe_layer: parallel must be expert or tensor, got {parallel!r}")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"moe_layer: algorithm must be {ONE_OF}, got {algorithm!r}")
    check_bool("moe_layer", "replicated", replicated)
    if parallel == "tensor":
        _check_tensor_parallel(algorithm, capacity, tp_group)
    if replicated and tp_group is None:
        check_replicated("moe_layer", algorithm, num_sms)
    if x.dim() != 2 or topk_ids.dim() != 2:
        raise ValueError(
            "moe_layer: x must be [T, hidden] and topk_ids [T, top_k], got shapes"
            f" {tuple(x.shape)} and {tuple(topk_ids.shape)}"
        )
    _check_experts(num_experts, w13, parallel, group)
    steps = Steps(num_experts, max_tokens, capacity, num_sms, parallel, algorithm)
    tensors = x, topk_ids, topk_weights, w13, w2
    if records_gradients(x, topk_weights, w13, w2):
        return _layer(differentiable_steps, *tensors, steps, group, tp_group, replicated)
    if not torch.compiler.is_compiling() and not is_traced():
        return _infer(*tensors, steps, group, tp_group, replicated)
    of_slices = (0, "") if tp_group is None else groups.resolve(tp_group)
    result: torch.Tensor = _ops.moe_layer(*tensors, *steps[:-1], replicated, *of_slices, *groups.resolve(group))
    return result


def _check_experts(num_experts: int, w13: torch.Tensor, parallel: str, group: Any) -> None:
    """As many matrices as this PE has experts, before a PE that is wrong has sent tokens."""
    n_pes = groups.resolve(group)[0] if parallel == "expert" else 1
    if n_pes and (num_experts % n_pes or w13.shape[0] != num_experts // n_pes):
        raise ValueError(
            f"moe_layer: w13 must have the matrices of num_experts / {n_pes} experts, got {w13.shape[0]}, and"
            f" num_experts {num_experts}"
        )


def _check_tensor_parallel(algorithm: str, capacity: int | None, tp_group: Any) -> None:
    if algorithm != "auto":
        raise ValueError(
            f"moe_layer: algorithm is for parallel='expert', got {algorithm!r}: slices of experts overlap always"
        )
    if capacity is not None:
        raise ValueError("moe_layer: capacity is for parallel='expert': slices of experts have room for all rows")
    if tp_group is not None:
        raise ValueError("moe_layer: tp_group is for parallel='expert': with parallel='tensor' group has the slices")


def check_replicated(function: str, algorithm: str, num_sms: int) -> None:
    """ValueError for options of tokens that are sent, with tokens that all PEs have."""
    if algorithm != "auto" or num_sms:
        raise ValueError(
            f"{function}: replicated tokens are not sent, so there is nothing for algorithm and num_sms to say; got"
            f" algorithm {algorithm!r}, num_sms {num_sms}"
        )


def _infer(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    steps: Steps,
    group: Any,
    tp_group: Any,
    replicated: bool,
) -> torch.Tensor:
    """Without gradients, by the shortest way: only rows that tokens fill are read and written."""
    if tp_group is not None:
        check_grid("moe_layer", communicator_of(group), communicator_of(tp_group))
    return _layer(steps_of, x, ids, weights.float(), w13, w2, steps, group, tp_group, replicated)


@operator(
    "moe_layer",
    schema="(Tensor x, Tensor topk_ids, Tensor topk_weights, Tensor w13, Tensor w2, int num_experts, int max_tokens,"
    " int? capacity, int num_sms, str parallel, str algorithm, bool replicated, int tp_size, str tp_name,"
    " int group_size, str group_name) -> Tensor",
)
def _moe_layer(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor, *options: Any
) -> torch.Tensor:
    """What compiled functions call where no gradient is recorded."""
    *of_steps, replicated, tp_size, tp_name, size, name = options
    slices = groups.communicator("moe_layer", tp_size, tp_name) if tp_size else None
    group = groups.communicator("moe_layer", size, name)
    return _infer(x, ids, weights, w13, w2, Steps(*of_steps), group, slices, replicated)


@_moe_layer.register_fake
def _moe_layer_fake(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    groups.check("moe_layer", *rest[-2:])
    if rest[-4]:
        groups.check("moe_layer", *rest[-4:-2])
    return x.new_empty(x.shape)


_moe_layer.refuse_gradients()


def _layer(
    compute: Callable[..., torch.Tensor],
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    steps: Steps,
    group: Any,
    tp_group: Any,
    replicated: bool,
) -> torch.Tensor:
    """``compute`` is one of the functions of ``layer_steps.py``."""
    if not replicated:
        if tp_group is None:
            return compute(x, ids, weights, w13, w2, steps, group)
        n_tokens, tokens = x.shape[0], steps.max_tokens * groups.resolve(tp_group)[0]
        x, ids, weights = gather_tokens(x, ids, weights, steps.max_tokens, tp_group)
        part = compute(x, ids, weights, w13, w2, steps._replace(max_tokens=tokens), group)
        return functional.reduce_scatter(part, "sum", 0, tp_group)[:n_tokens]
    summing = group if tp_group is None else tp_group
    x, weights = sum_gradients(x, summing), sum_gradients(weights, summing)
    if tp_group is None:
        ids, steps = _local(ids, w13, steps, group)
        group = groups.this_pe()
    part = compute(x, ids, weights, w13, w2, steps, group)
    return functional.all_reduce(part, "sum", summing, reduce_grad=False)


def _local(ids: torch.Tensor, w13: torch.Tensor, steps: Steps, group: Any) -> tuple[torch.Tensor, Steps]:
    """Choices, and sizes, of a layer of this PE's matrices alone, in a group of this PE."""
    if steps.parallel == "expert":
        ids = own_choices(ids, steps.num_experts, group)
    local = w13.shape[0]
    copies = max(steps.num_experts // max(local, 1), 1)
    return ids, steps._replace(num_experts=local, parallel="expert", algorithm="separate", copies=copies)
