"""A barrier of a group's PEs as a kernel of its own, for streams of work that is no kernel of ours."""

from __future__ import annotations

import triton
import triton.language as tl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.workspace import barrier_state
from triton_dist.kernels.tracing.recorder import record

__all__ = ["stream_barrier"]


@triton.jit
def stream_barrier_kernel(barriers, trace, MEMBERS: tl.constexpr):
    barrier(barriers, 0, MEMBERS, trace)


def stream_barrier(communicator: Communicator) -> Launch | None:
    """Order what the current stream gets next after what every member's stream has got before. *Collective.*"""
    state, trace = barrier_state(communicator), record("stream barrier", 1, 1)
    return launch(stream_barrier_kernel, (1,), (), state, trace, communicator.members, num_warps=1)
