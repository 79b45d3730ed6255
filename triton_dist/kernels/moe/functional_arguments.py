"""What functional dispatches refuse before they ask anything of their arguments; their operators check the rest."""

from __future__ import annotations

import torch

from triton_dist.kernels.arguments import check_dense
from triton_dist.kernels.gemm.fp8 import FP8

__all__ = ["check_dispatched", "refuse_gradients_of"]


def check_dispatched(
    function: str, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor | None, scales: torch.Tensor | None
) -> None:
    """TypeError or ValueError if something is no dense tensor."""
    given = {"topk_weights": weights, "scales": scales}
    others = {name: tensor for name, tensor in given.items() if tensor is not None}
    check_dense(function, x=x, topk_ids=ids, **others)


def refuse_gradients_of(function: str, x: torch.Tensor, of_x: bool, of_scales: bool) -> None:
    """ValueError if gradients are wanted that no dispatch has."""
    if x.dtype in FP8 and of_x:
        raise ValueError(f"{function}: rows of {x.dtype} have no gradient here: pass a detached tensor")
    if of_scales:
        raise ValueError(f"{function}: scales have no gradient: pass a detached tensor")
