"""When a multiprocessor sends a row to a peer, for kernels that move tokens by TMA (``token_ring.py``).

All together can store more than NVLink takes, and what it takes it does not share out evenly: of programs with as much
to send some were done after 132 µs and others after 191, and these could not use what the first had left. So rows are
sent on a schedule by which the link is just not full, and by which all programs are done at the same time. A program
that is late makes up for it as fast as it can: then what is lost by a link that takes less is not lost twice.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.flags import nanoseconds
from triton_dist.kernels.moe.token_ring import part_of

__all__ = ["await_turn", "interval_of", "share_of"]


@gluon.jit
def share_of(n_tokens, lane, lanes, CONFIG: gl.constexpr):
    """How many of so many tokens are this lane's."""
    whole = n_tokens // CONFIG.batch // lanes
    return whole * CONFIG.batch + part_of(n_tokens, whole, lane, lanes)[1]


@gluon.jit
def interval_of(n_tokens, own, CONFIG: gl.constexpr):
    """Nanoseconds from row to row of a lane that sends ``own`` of so many tokens; 0 without a schedule."""
    if CONFIG.row_time == 0:
        return 0
    else:
        return (CONFIG.row_time * n_tokens.to(gl.float32) / gl.maximum(own, 1).to(gl.float32) + 0.5).to(gl.int32)


@gluon.jit
def await_turn(token, due, CONFIG: gl.constexpr):
    """Wait until the next rows may be sent, from this token of a batch on, which are or were ``due`` by
    :func:`nanoseconds`: one large row, or the small ones of several tokens, since it takes 80 ns to look at the time.
    """
    if CONFIG.row_time > 0:  # noqa: SIM102 (a constant)
        if token % CONFIG.at_once == 0:
            while nanoseconds() - due < 0:
                pass
