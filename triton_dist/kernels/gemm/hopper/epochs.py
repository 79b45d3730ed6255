"""The launches of an operation: their number, which flags carry, and what each does with peers when it begins and ends.

A launch has an epoch, the number of launches before it plus one. Flags are set to it, so nothing is reset between
launches. Epochs are int32 and wrap around (``flags.acquire`` compares their difference).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.flags import signal_all, wait_peers
from triton_dist.kernels.gemm.hopper.layout import ARRIVED, DONE, ENTERED, EPOCH
from triton_dist.kernels.gemm.hopper.trace_events import PEERS, record_event, time

__all__ = ["Peers", "admit_peers", "end_epoch", "epoch_of", "exchange_done", "is_last_program"]


class Peers(NamedTuple):
    """How a PE signals its peers.

    Attributes:
        me: number of this PE.
        flags: symmetric int32 words (``layout.py``).
        distances: int64; bytes from a symmetric address of this PE to the same object of each PE.
    """

    me: Any
    flags: Any
    distances: Any


@gluon.jit
def epoch_of(state):
    """The epoch of this launch."""
    return gl.load(state + EPOCH) + 1


@gluon.jit
def admit_peers(peers, value, N_PES: gl.constexpr):
    """Signal all peers that they may store to this PE: what it did with the memory before has ended."""
    if gl.program_id(0) == 0:
        signal_all(peers.flags + ENTERED + peers.me, peers.distances, peers.me, value, N_PES)


@gluon.jit
def is_last_program(state):
    """Whether all other programs of the launch have come here; what they stored before is visible then."""
    return gl.atomic_add(state + ARRIVED, 1, sem="acq_rel", scope="gpu") == gl.num_programs(0) - 1


@gluon.jit
def end_epoch(state, epoch):
    """End the launch. For its last program."""
    gl.store(state + ARRIVED, 0)
    gl.store(state + EPOCH, epoch)


@gluon.jit
def exchange_done(peers, epoch, work, trace, N_PES: gl.constexpr):
    """Signal all peers that what this PE stored to them has arrived, and wait until they have signalled the same."""
    signal_all(peers.flags + DONE + peers.me, peers.distances, peers.me, epoch, N_PES)
    began = time(trace)
    wait_peers(peers.flags + DONE, epoch, peers.me, N_PES)
    if trace is not None:  # behind all units
        record_event(trace, gl.load(work.starts + gl.num_programs(0)), PEERS, began)
