"""A barrier of all PEs as a kernel of its own, for streams of work that is no kernel of ours."""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.workspace import barrier_state
from triton_dist.kernels.tracing.recorder import record

__all__ = ["stream_barrier"]


@triton.jit
def _stream_barrier(barriers, trace, N_PES: tl.constexpr):
    barrier(barriers, 0, N_PES, trace)


def stream_barrier() -> None:
    """Order the work that the current stream gets next after what every PE's stream has got before. *Collective.*"""
    _stream_barrier[(1,)](barrier_state(), record("stream barrier", 1, 1), triton_dist.n_pes(), num_warps=1)
