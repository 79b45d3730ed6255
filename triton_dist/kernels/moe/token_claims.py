"""Tokens shared out among programs as these have sent others: one warp of a program claims the next ones, from which it
loads rows, and tells another warp, which stores them.

The link is not shared out evenly: with as many rows each, programs of 24 multiprocessors ended 78 to 89 µs after they
began (docs/decisions/0128). Claims are units of a few tokens, counted by a number that only grows: what all programs
claim in a launch is as many units as there are, and two for each program, which it finds out to be behind the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper.flags import uniform
from triton_dist.kernels.moe.token_ring import lag_of, make_barriers
from triton_dist.kernels.moe.token_tables import in_lanes, word_of

__all__ = ["Claims", "claim", "claimed", "close_claims", "make_claims", "tell", "told"]

_DEPTH = gl.constexpr(16)
"""Claims that are told and not read yet, at most, a power of two. The warp that stores has read those of all rows that
have left the ring."""


class Claims(NamedTuple):
    """The claims of a launch.

    Attributes:
        words: int32 [1 + programs]: how many units have been claimed in all launches, and for each program how many
            had been in front of this launch.
        base: that one of this program.
        tokens: int32 [depth, 1], in shared memory: the first token of a unit. known: a barrier for each.
    """

    words: Any
    base: Any
    tokens: Any
    known: Any


@gluon.jit
def make_claims(words, lane, CONFIG: gl.constexpr):
    in_ring: gl.constexpr = CONFIG.sent + lag_of(CONFIG.sent)
    gl.static_assert((_DEPTH - 2) * CONFIG.unit >= in_ring, "a claim may be told before its place is read")
    tokens = gl.allocate_shared_memory(gl.int32, [_DEPTH, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    return Claims(words, gl.load(words + 1 + lane), tokens, make_barriers(_DEPTH))


@gluon.jit
def close_claims(claims, n_tokens, lane, lanes, CONFIG: gl.constexpr):
    """Behind the last claim of a launch for so many tokens."""
    units = gl.cdiv(gl.maximum(n_tokens, 0), CONFIG.unit)
    gl.store(claims.words + 1 + lane, claims.base + units + 2 * lanes)


@gluon.jit
def claim(claims):
    """Claim a unit. The calling warp goes on until it asks which one it is: :func:`claimed`."""
    lanes = gl.arange(0, 32, in_lanes(gl.num_warps()))
    one = gl.zeros([32], gl.int32, lanes.type.layout) + 1
    # Of one address for all lanes the compiler would hand the sum out to all of them at once, and wait for it.
    return gl.atomic_add(claims.words + lanes, one, mask=lanes == 0, sem="relaxed", scope="gpu")


@gluon.jit
def claimed(claims, unit, CONFIG: gl.constexpr):
    """The first token of a unit, of those that are shared out."""
    return (word_of(unit, 0) - claims.base) * CONFIG.unit


@gluon.jit
def tell(claims, number, token):
    """Tell the first token of this program's next unit, the one with this ``number``, or one behind the last token."""
    place = gl.to_tensor(number) & (_DEPTH - 1)
    one: gl.constexpr = in_lanes(gl.num_warps())
    claims.tokens.index(place).store(gl.zeros([1], gl.int32, one) + token)
    gl.barrier()
    mbarrier.arrive(claims.known.index(place))


@gluon.jit
def told(claims, number):
    """What is told of the unit with this ``number``."""
    place = gl.to_tensor(number) & (_DEPTH - 1)
    mbarrier.wait(claims.known.index(place), gl.to_tensor(number) // _DEPTH & 1)
    one: gl.constexpr = in_lanes(gl.num_warps())
    return uniform(gl.sum(claims.tokens.index(place).load(one), 0))
