"""When a multiprocessor of a combine sends a row to a peer (``token_sums_hopper.py``).

All together can store more than NVLink takes, and what it takes it does not share out evenly: of programs with as much
to send some were done after 132 µs and others after 191, and these could not use what the first had left. So rows are
sent on a schedule by which the link is just not full, and by which all programs are done at the same time. A program
that is late makes up for it as fast as it can: then what is lost by a link that takes less is not lost twice.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.flags import nanoseconds
from triton_dist.kernels.moe.token_ring import BATCH, tokens_of

__all__ = ["await_turn", "interval_of"]


@gluon.jit
def interval_of(route, lane, lanes, CONFIG: gl.constexpr):
    """Nanoseconds from row to row that this lane sends, to any peer: all rows' time, shared out among its own."""
    N: gl.constexpr = CONFIG.n_pes
    every, own = gl.to_tensor(0), gl.to_tensor(0)
    for distance in gl.static_range(1, N):
        batches = gl.cdiv(tokens_of(route, (route.me + distance) % N), BATCH)
        every, own = every + batches, own + gl.cdiv(gl.maximum(batches - lane, 0), lanes)
    return (CONFIG.row_time * every.to(gl.float32) / gl.maximum(own, 1).to(gl.float32) + 0.5).to(gl.int32)


@gluon.jit
def await_turn(due, CONFIG: gl.constexpr):
    """Wait until the next row may be sent, which is or was ``due`` by :func:`nanoseconds`."""
    if CONFIG.row_time > 0:
        while nanoseconds() - due < 0:
            pass
