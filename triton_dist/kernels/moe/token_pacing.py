"""The issue interval of a combine's rows (``token_sums_hopper.py``): how fast a program may store them to peers.

All programs together can store more than NVLink takes, and NVLink does not share its rate out evenly among them: of
programs with equally many rows some end after 132 µs, others after 191, and these cannot use what the first leave. So
stores are throttled to a rate at which the link is just not full, and so that all programs end at the same time. A
program that is late issues its rows at once until it has caught up: where the link takes less than that rate, waiting
would add to the loss.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.moe.token_ring import BATCH, tokens_of

__all__ = ["issue_interval"]


@gluon.jit
def issue_interval(route, lane, lanes, CONFIG: gl.constexpr):
    """Nanoseconds from one row that this lane sends, to any peer, to the next: the time of the rows of all lanes,
    divided among its own."""
    N: gl.constexpr = CONFIG.n_pes
    every, own = gl.to_tensor(0), gl.to_tensor(0)
    for distance in gl.static_range(1, N):
        batches = gl.cdiv(tokens_of(route, (route.me + distance) % N), BATCH)
        every, own = every + batches, own + gl.cdiv(gl.maximum(batches - lane, 0), lanes)
    return (CONFIG.row_time * every.to(gl.float32) / gl.maximum(own, 1).to(gl.float32) + 0.5).to(gl.int32)
