"""Flash decode as operators of PyTorch, for inference: they are traced by torch.compile and have no gradient."""

from __future__ import annotations

import torch

from triton_dist.kernels.attention.flash_decode import flash_decode
from triton_dist.kernels.attention.projection import flash_decode_projection
from triton_dist.kernels.functional import group
from triton_dist.kernels.functional.operator import operator

__all__: list[str] = []


@operator(
    "flash_decode",
    schema="(Tensor q, Tensor k_cache, Tensor? v_cache, Tensor lengths, Tensor? block_table, int head_dim_v,"
    " float? scale, int? window, int? interleave, Tensor? k_scale, Tensor? v_scale, bool scatter_heads, int group_size,"
    " str group_name) -> (Tensor, Tensor)",
)
def _flash_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor | None,
    lengths: torch.Tensor,
    block_table: torch.Tensor | None,
    head_dim_v: int,
    scale: float | None,
    window: int | None,
    interleave: int | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    scatter_heads: bool,
    group_size: int,
    group_name: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    return flash_decode(
        q, k_cache, v_cache, lengths, block_table=block_table, head_dim_v=head_dim_v, scale=scale, window=window,
        interleave=interleave, k_scale=k_scale, v_scale=v_scale, scatter_heads=scatter_heads,
        group=group.communicator("flash_decode", group_size, group_name),
    )  # fmt: skip


@_flash_decode.register_fake
def _flash_decode_fake(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor | None,
    lengths: torch.Tensor,
    block_table: torch.Tensor | None,
    head_dim_v: int,
    scale: float | None,
    window: int | None,
    interleave: int | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    scatter_heads: bool,
    group_size: int,
    group_name: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    group.check("flash_decode", group_size, group_name)
    heads = q.shape[1] // group_size if scatter_heads else q.shape[1]
    out = q.new_empty(q.shape[0], heads, head_dim_v)
    return out, q.new_empty(q.shape[0], heads, dtype=torch.float32)


_flash_decode.refuse_gradients()


@operator(
    "flash_decode_projection",
    schema="(Tensor q, Tensor k_cache, Tensor? v_cache, Tensor lengths, Tensor weight, Tensor? bias, Tensor? residual,"
    " Tensor? block_table, int head_dim_v, float? scale, int? window, Tensor? k_scale, Tensor? v_scale, int group_size,"
    " str group_name) -> Tensor",
)
def _flash_decode_projection(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor | None,
    lengths: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    block_table: torch.Tensor | None,
    head_dim_v: int,
    scale: float | None,
    window: int | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    group_size: int,
    group_name: str,
) -> torch.Tensor:
    return flash_decode_projection(
        q, k_cache, v_cache, lengths, weight, bias=bias, residual=residual, block_table=block_table,
        head_dim_v=head_dim_v, scale=scale, window=window, k_scale=k_scale, v_scale=v_scale,
        group=group.communicator("flash_decode_projection", group_size, group_name),
    )  # fmt: skip


@_flash_decode_projection.register_fake
def _flash_decode_projection_fake(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor | None,
    lengths: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    block_table: torch.Tensor | None,
    head_dim_v: int,
    scale: float | None,
    window: int | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    group_size: int,
    group_name: str,
) -> torch.Tensor:
    group.check("flash_decode_projection", group_size, group_name)
    return q.new_empty(q.shape[0], weight.shape[1])


_flash_decode_projection.refuse_gradients()
