"""The batches of tokens that a combine in rounds by TMA adds up (``combine_hopper.py``), and which rows they have.

The warps that load rows and those that add them ask alike, so that none has to tell the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.flags import uniform
from triton_dist.kernels.moe.rounds_hopper import block_of, padded

__all__ = [
    "Batch",
    "CombineConfig",
    "Sums",
    "batch_to_send",
    "behind",
    "choices_here",
    "first_of",
    "first_weights",
    "ids_of_batch",
    "own_batch",
    "pes_of",
    "positions_of",
    "two_of",
    "two_weights",
    "without_two",
]


@dataclass(frozen=True)
class CombineConfig:
    """Constants of a launch.

    Attributes:
        n_pes: members. top_k, local_experts, max_tokens: of the routing.
        batch: tokens of a round of a lane, of which each choice, and each PE, has a bit of 64.
        lines: of a row. box: of what TMA moves at a time, a power of two; the last box of a row may end behind it.
        sent, received: pairs of boxes of the rings.
        dtype: of the rows, ``bfloat16``, ``float16`` or ``float32``.
        weighted: whether rows are multiplied by their weights.
    """

    n_pes: int
    top_k: int
    local_experts: int
    max_tokens: int
    batch: int
    lines: int
    box: int
    sent: int
    received: int
    dtype: str
    weighted: bool

    @property
    def boxes(self) -> int:
        """Of a row."""
        return -(-self.lines // self.box)

    @property
    def choices(self) -> int:
        """Bits of a token for its choices."""
        return int(padded(self.top_k))

    @property
    def pes(self) -> int:
        """Bits of a token for its PEs."""
        return int(padded(self.n_pes))


class Sums(NamedTuple):
    """What is added up, and where it goes.

    Attributes:
        me: rank of this PE. ids: [T, top_k]. n_tokens: T.
        positions, weights: int32 [n_pes, max_tokens, top_k], the row of each choice of each source's tokens, and the
            bits of its weight in float32.
        tokens_of: int32 [n_pes], how many tokens each source has.
        out: int32 [T, words of a row].
        slots: symmetric int32, [4, n_pes, lanes, batch] rows. flags: symmetric int32 [n_pes, lanes].
        slot_distances, flag_distances: int64 [n_pes], bytes from the slots, and from the flags, to those of each PE.
    """

    me: Any
    ids: Any
    n_tokens: Any
    positions: Any
    weights: Any
    tokens_of: Any
    out: Any
    slots: Any
    flags: Any
    slot_distances: Any
    flag_distances: Any


@gluon.jit
def choices_here(block):
    """Which choices of a batch's tokens have a row here, whose positions are ``block``: a bit for each, by token."""
    CHOICES: gl.constexpr = block.shape[1]
    there = (block >= 0).to(gl.int64)
    order = gl.arange(0, CHOICES, gl.SliceLayout(0, there.type.layout))
    return _bits_of_tokens(gl.sum(there << order[None, :].to(gl.int64), axis=1), CHOICES)


@gluon.jit
def pes_of(chosen, CONFIG: gl.constexpr):
    """Which PEs have experts of a batch's tokens, whose ids are ``chosen``: a bit for each rank, by token."""
    N: gl.constexpr = CONFIG.n_pes
    homes = gl.where(chosen >= 0, chosen // CONFIG.local_experts, -1)
    bits = gl.max((homes == 0).to(gl.int64), axis=1)
    for rank in gl.static_range(1, N):
        bits = bits | (gl.max((homes == rank).to(gl.int64), axis=1) << rank)
    return _bits_of_tokens(bits, CONFIG.pes)


@gluon.jit
def _bits_of_tokens(bits, EACH: gl.constexpr):
    order = gl.arange(0, bits.shape[0], bits.type.layout)
    return uniform(gl.sum(bits << (order * EACH).to(gl.int64), axis=0))


@gluon.jit
def first_of(bits, EACH: gl.constexpr):
    """The bits of the first token."""
    return (bits & ((1 << EACH) - 1)).to(gl.int32)


@gluon.jit
def behind(bits, EACH: gl.constexpr):
    """The bits of the tokens behind the first one."""
    return (bits >> EACH) & ((1 << (64 - EACH)) - 1)


@gluon.jit
def _lowest(bits):
    """Which bit is the lowest one that is set: the exponent of its value."""
    return ((bits & -bits).to(gl.float32).to(gl.int32, bitcast=True) >> 23) - 127


@gluon.jit
def two_of(values, bits):
    """What a token has for the lowest two of the choices in ``bits``; 0 for those that there are not."""
    more = bits & (bits - 1)
    first = gl.load(values + _lowest(bits), mask=bits != 0, other=0)
    return first, gl.load(values + _lowest(more), mask=more != 0, other=0)


@gluon.jit
def without_two(bits):
    more = bits & (bits - 1)
    return more & (more - 1)


@gluon.jit
def two_weights(weights, bits, CONFIG: gl.constexpr):
    """The weights of the lowest two choices."""
    if CONFIG.weighted:
        first, second = two_of(weights, bits)
        return first.to(gl.float32, bitcast=True), second.to(gl.float32, bitcast=True)
    else:
        return 1.0, 1.0


@gluon.jit
def first_weights(weights, there, CONFIG: gl.constexpr):
    """Those of the first of the tokens whose choices here are ``there``."""
    return two_weights(weights, first_of(there, CONFIG.choices), CONFIG)


class Batch(NamedTuple):
    """Tokens of a source, whose rows here a program adds up at a time.

    Attributes:
        number: of the round, from 0. rank: the source. token: the first one. length: how many there are.
        at: where what tokens from the first one on have by choice begins.
    """

    number: Any
    rank: Any
    token: Any
    length: Any
    at: Any


@gluon.jit
def _batch_of(sums, number, rank, end, lane, lanes, CONFIG: gl.constexpr):
    """The batch of a source that has ``end`` tokens."""
    token = (number * lanes + lane) * CONFIG.batch
    length = gl.maximum(gl.minimum(end - token, CONFIG.batch), 0)
    at = (gl.to_tensor(rank).to(gl.int64) * CONFIG.max_tokens + token) * CONFIG.top_k
    return Batch(number, rank, token, length, at)


@gluon.jit
def batch_to_send(sums, i, lane, lanes, CONFIG: gl.constexpr):
    """The i-th batch of peers' tokens: of each round those of the next PE, then of the one behind it, and so on."""
    OTHERS: gl.constexpr = CONFIG.n_pes - 1
    rank = (sums.me + 1 + i % OTHERS) % CONFIG.n_pes
    return _batch_of(sums, i // OTHERS, rank, gl.load(sums.tokens_of + rank), lane, lanes, CONFIG)


@gluon.jit
def own_batch(sums, i, lane, lanes, CONFIG: gl.constexpr):
    """The i-th batch of this PE's own tokens."""
    return _batch_of(sums, i, sums.me, sums.n_tokens, lane, lanes, CONFIG)


@gluon.jit
def positions_of(sums, batch, CONFIG: gl.constexpr):
    """Where the rows of a batch's tokens are, [tokens, choices]; -1 if not here."""
    return block_of(sums.positions + batch.at, 0, batch.length, CONFIG)


@gluon.jit
def ids_of_batch(sums, batch, CONFIG: gl.constexpr):
    return block_of(sums.ids, batch.token, sums.n_tokens, CONFIG)
