"""What the tables of a dispatch say of a batch, as warps that move tokens by TMA read it: a word in each lane.

A warp loads the words of the next batch while it moves one. Of a word that is the same in all lanes the compiler makes
one of the warp, for which it waits as soon as it is loaded; then all that a batch needs was 0.2 µs late
(docs/decisions/0129). Of words that differ from lane to lane it does not, until one is asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.moe.token_ring import BATCH

__all__ = [
    *("Table", "batch_of", "first_words", "goes_of", "in_lanes", "table_of_others", "table_of_own", "table_of_sends"),
    "word_of",
]


class Table(NamedTuple):
    """Attributes:
    words: pointers to int32 [32], the words of the first batch. steps: int32 [32], from batch to batch.
    tokens: int32 [32], how many tokens the PE has whose batches these are; 0: the lane reads nothing.
    """

    words: Any
    steps: Any
    tokens: Any


@gluon.constexpr_function
def in_lanes(num_warps):
    """A layout of 32 elements, one in each lane of all warps."""
    return gl.BlockedLayout([1], [32], [int(num_warps)], [0])


@gluon.jit
def table_of_own(route, CONFIG: gl.constexpr):
    """Of this PE's tokens: where those that stay have their rows, as of ``comes``, and :func:`goes_of`."""
    lane = gl.arange(0, 32, in_lanes(gl.num_warps()))
    rows = CONFIG.tables[3] + route.me * CONFIG.batches
    words = route.memory + gl.where(lane == 0, rows, CONFIG.tables[2] + lane - 1)
    return Table(words, gl.where(lane == 0, 1, 2), gl.where(lane < 3, route.n_tokens, 0))


@gluon.jit
def table_of_others(route, STEP: gl.constexpr, CONFIG: gl.constexpr):
    """What comes from every other rank: with a ``STEP`` of 1 from the next one on, of -1 from the one before on."""
    N: gl.constexpr = CONFIG.n_pes
    lane = gl.arange(0, 32, in_lanes(gl.num_warps()))
    rank = (route.me + STEP * (lane + 1) + 33 * N) % N
    tokens = gl.load(route.tokens_of + rank, mask=lane < N - 1, other=0)
    return Table(route.comes + rank * CONFIG.batches, lane * 0 + 1, tokens)


@gluon.jit
def table_of_sends(route, CONFIG: gl.constexpr):
    """Where this PE's tokens have their rows on every PE, from the next one on, this one last; of dispatches to results
    of peers."""
    N: gl.constexpr = CONFIG.n_pes
    lane = gl.arange(0, 32, in_lanes(gl.num_warps()))
    rank = (route.me + 1 + lane) % N
    words = route.memory + CONFIG.sends + rank * CONFIG.batches
    return Table(words, lane * 0 + 1, gl.where(lane < N, route.n_tokens, 0))


@gluon.jit
def batch_of(table, batch):
    """The words of a batch, int32 [32]; 0 behind the last one."""
    return gl.load(table.words + batch * table.steps, mask=batch * BATCH < table.tokens, other=0)


@gluon.jit
def word_of(words, LANE: gl.constexpr):
    """One of them, for the warp."""
    lane = gl.arange(0, 32, in_lanes(gl.num_warps()))
    return gl.sum(gl.where(lane == LANE, words, 0), 0)


@gluon.jit
def first_words(words, COUNT: gl.constexpr):
    """So many of them."""
    found = ()
    for lane in gl.static_range(COUNT):
        found = found + (word_of(words, lane),)  # type: ignore[assignment]  # noqa: RUF005
    return found


@gluon.jit
def goes_of(words, CONFIG: gl.constexpr):
    """Of :func:`table_of_own`, where the tokens of a batch go: a byte of bits for each rank, int64."""
    goes = word_of(words, 1).to(gl.int64) & 0xFFFFFFFF
    if CONFIG.n_pes > 4:
        goes = goes | (word_of(words, 2).to(gl.int64) << 32)
    return goes
