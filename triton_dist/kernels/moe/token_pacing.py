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

__all__ = ["await_turn", "interval_of", "share_of"]


@gluon.jit
def share_of(n_tokens, lane, lanes, CONFIG: gl.constexpr):
    """How many batches so many tokens are, and how many of them are this lane's."""
    batches = gl.cdiv(n_tokens, CONFIG.batch)
    return batches, gl.cdiv(gl.maximum(batches - lane, 0), lanes)


@gluon.jit
def interval_of(batches, own, CONFIG: gl.constexpr):
    """Nanoseconds from row to row of a lane that sends ``own`` of so many batches; 0 without a schedule."""
    if CONFIG.row_time == 0:
        return 0
    else:
        return (CONFIG.row_time * batches.to(gl.float32) / gl.maximum(own, 1).to(gl.float32) + 0.5).to(gl.int32)


@gluon.jit
def await_turn(due, CONFIG: gl.constexpr):
    """Wait until the next row may be sent, which is or was ``due`` by :func:`nanoseconds`."""
    if CONFIG.row_time > 0:
        while nanoseconds() - due < 0:
            pass
