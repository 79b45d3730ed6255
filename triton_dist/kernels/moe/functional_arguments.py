"""What functional dispatches refuse before they ask anything of their arguments; their operators check the rest."""

from __future__ import annotations

from collections.abc import Callable

import torch

from triton_dist.kernels.arguments import check_dense
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.torch_api import is_traced

__all__ = ["check_dispatched", "check_weights", "refuse_gradients_of"]


def check_dispatched(
    function: str, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor | None, scales: torch.Tensor | None
) -> None:
    """TypeError or ValueError if something is no dense tensor."""
    given = {"topk_weights": weights, "scales": scales}
    others = {name: tensor for name, tensor in given.items() if tensor is not None}
    check_dense(function, x=x, topk_ids=ids, **others)


def check_weights(
    function: str, weights: torch.Tensor, shape: tuple[int, int], done: str, used: Callable[[], torch.Tensor]
) -> None:
    """``weights`` are those that were ``done``, dispatched or gathered, by which rows are multiplied: those ``used``.

    Only the CPU world compares their values: a GPU would have to wait for them.
    """
    check_dense(function, topk_weights=weights)
    n, top_k = shape
    if weights.dim() != 2 or weights.shape[0] != n or weights.shape[1] != top_k or weights.dtype != torch.float32:
        raise ValueError(
            f"{function}: topk_weights must be those that were {done}, {(n, top_k)} of torch.float32, got"
            f" {tuple(weights.shape)} of {weights.dtype}"
        )
    if torch.compiler.is_compiling() or is_traced() or weights.device.type != "cpu":
        return
    given, expected = (each.detach().contiguous().view(torch.int32) for each in (weights, used()))
    if not torch.equal(given, expected):  # a NaN is itself
        raise ValueError(f"{function}: topk_weights are not those that were {done}, by which rows are multiplied")


def refuse_gradients_of(function: str, x: torch.Tensor, of_x: bool, of_scales: bool) -> None:
    """ValueError if gradients are wanted that no dispatch has."""
    if x.dtype in FP8 and of_x:
        raise ValueError(f"{function}: rows of {x.dtype} have no gradient here: pass a detached tensor")
    if of_scales:
        raise ValueError(f"{function}: scales have no gradient: pass a detached tensor")
