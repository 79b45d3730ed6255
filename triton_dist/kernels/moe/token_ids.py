"""Where tokens go by the ids of their experts alone, as a warp finds it before there are tables
(``tokens_hopper.py``)."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.moe.rounds_hopper import bits_of, block_of
from triton_dist.kernels.moe.token_ring import BATCH

__all__ = ["goes_to_others", "ids_of"]


@gluon.jit
def ids_of(ids, route, batch, CONFIG: gl.constexpr):
    """The ids of a batch of this PE's tokens, [tokens, choices], -1 for none."""
    return block_of(ids, batch * BATCH, route.n_tokens, CONFIG)


@gluon.jit
def goes_to_others(chosen, me, CONFIG: gl.constexpr):
    """To which other PEs the tokens of a batch with these ids go: a byte of bits for each rank."""
    N: gl.constexpr = CONFIG.n_pes
    ranks = gl.where(chosen >= 0, chosen // CONFIG.local_experts, me)
    goes = gl.to_tensor(0).to(gl.int64)
    for rank in gl.static_range(N):
        bits = bits_of(((ranks == rank) & (rank != me)).to(gl.int32))
        goes = goes | (bits.to(gl.int64) << (8 * rank))
    return goes
