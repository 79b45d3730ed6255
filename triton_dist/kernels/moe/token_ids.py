"""Where tokens go by the ids of their experts alone, as a warp finds it before there are tables
(``tokens_hopper.py``)."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.flags import uniform
from triton_dist.kernels.moe.rounds_hopper import padded
from triton_dist.kernels.moe.token_ring import BATCH

__all__ = ["goes_to_others", "ids_of"]


@gluon.constexpr_function
def _layout():
    return gl.BlockedLayout([1, 1], [4, 8], [1, 1], [1, 0])


@gluon.jit
def ids_of(ids, route, batch, CONFIG: gl.constexpr):
    """The ids of a batch of this PE's tokens, [tokens, choices], -1 for none, of one warp."""
    LAYOUT: gl.constexpr = _layout()
    K: gl.constexpr = CONFIG.top_k
    tokens = batch * BATCH + gl.arange(0, BATCH, gl.SliceLayout(1, LAYOUT))[:, None]
    choices = gl.arange(0, padded(CONFIG.top_k), gl.SliceLayout(0, LAYOUT))[None, :]
    there = (tokens < route.n_tokens) & (choices < K)
    return gl.load(ids + tokens.to(gl.int64) * K + choices, mask=there, other=-1).to(gl.int32)


@gluon.jit
def goes_to_others(chosen, me, CONFIG: gl.constexpr):
    """To which other PEs the tokens of a batch with these ids go: a byte of bits for each rank."""
    N: gl.constexpr = CONFIG.n_pes
    ranks = gl.where(chosen >= 0, chosen // CONFIG.local_experts, me)
    order = gl.arange(0, BATCH, gl.SliceLayout(1, _layout()))
    goes = gl.to_tensor(0).to(gl.int64)
    for rank in gl.static_range(N):
        bits = uniform(gl.sum(gl.max(((ranks == rank) & (rank != me)).to(gl.int32), axis=1) << order, axis=0))
        goes = goes | (bits.to(gl.int64) << (8 * rank))
    return goes
