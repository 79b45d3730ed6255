"""From a router's logits to experts and weights, as published models do it. Plain PyTorch, without communication."""

from __future__ import annotations

import torch

from triton_dist.kernels.arguments import check_dense
from triton_dist.kernels.options import check_int, check_number

__all__ = ["group_limited_top_k", "softmax_top_k"]


def softmax_top_k(
    logits: torch.Tensor, top_k: int, *, norm_topk_prob: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The most probable experts, and their probabilities, as in Mixtral ("Mixtral of Experts", arXiv 2401.04088) and
    Qwen3-MoE.

    Args:
        logits: [T, num_experts], of any floating dtype; computed in float32.
        norm_topk_prob: divide the weights of a token by their sum.

    Returns:
        ids [T, top_k] int64, and weights [T, top_k] float32.

    Raises:
        TypeError: ``logits`` is no tensor, ``top_k`` no int. ValueError: it is not between 1 and num_experts.
    """
    check_dense("softmax_top_k", logits=logits)
    check_int("softmax_top_k", "top_k", top_k, 1, logits.shape[-1] + 1)
    weights, ids = torch.softmax(logits.float(), dim=-1).topk(top_k, dim=-1)
    if norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return ids, weights


def group_limited_top_k(
    logits: torch.Tensor,
    top_k: int,
    *,
    bias: torch.Tensor | None = None,
    n_group: int = 1,
    topk_group: int = 1,
    norm_topk_prob: bool = True,
    routed_scaling_factor: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The best experts of the best groups of experts, by sigmoid scores ("DeepSeek-V3 Technical Report", arXiv
    2412.19437, sections 2.1.2 and 3.4).

    The score of a group is the sum of its two highest. ``bias`` balances the load: it counts where experts are chosen,
    not in their weights.

    Args:
        logits: [T, num_experts], of any floating dtype; computed in float32.
        bias: [num_experts] float32.
        n_group, topk_group: how many groups there are, and of how many experts may be chosen.
        norm_topk_prob, routed_scaling_factor: divide the weights of a token by their sum, then multiply them.

    Returns:
        ids [T, top_k] int64, and weights [T, top_k] float32.

    Raises:
        TypeError: a number or a tensor is of another type. ValueError: ``n_group`` does not divide the experts,
        ``topk_group`` is more than that, or ``top_k`` more than the experts of as many groups; ``bias`` has another
        number of experts.
    """
    name = "group_limited_top_k"
    check_dense(name, logits=logits)
    experts = logits.shape[-1]
    check_int(name, "n_group", n_group, 1)
    check_int(name, "topk_group", topk_group, 1, n_group + 1)
    if experts % n_group:
        raise ValueError(f"{name}: n_group must divide the {experts} experts of logits, got {n_group}")
    check_int(name, "top_k", top_k, 1, experts // n_group * topk_group + 1)
    check_number(name, "routed_scaling_factor", routed_scaling_factor)
    if bias is not None:
        check_dense(name, bias=bias)
        if bias.dim() != 1 or bias.shape[0] != experts:
            raise ValueError(f"{name}: bias must be [{experts}], as logits have experts, got {tuple(bias.shape)}")
    scores = torch.sigmoid(logits.float())
    chosen_by = scores if bias is None else scores + bias
    if n_group > 1:
        grouped = chosen_by.unflatten(-1, (n_group, -1))
        of_groups = grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.sum(dim=-1)
        best = torch.zeros_like(of_groups, dtype=torch.bool).scatter_(-1, of_groups.topk(topk_group, dim=-1).indices, 1)
        chosen_by = grouped.masked_fill(~best.unsqueeze(-1), float("-inf")).flatten(-2)
    ids = chosen_by.topk(top_k, dim=-1).indices
    weights = scores.gather(-1, ids)
    if norm_topk_prob:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    return ids, weights * routed_scaling_factor
