"""A meeting of all PEs as a kernel of its own: a barrier between streams, for work that is no kernel of ours."""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.protocols.barrier import meet
from triton_dist.kernels.protocols.workspace import room
from triton_dist.kernels.tracing.recorder import record

__all__ = ["meeting"]


@triton.jit
def _meeting(meeting_room, trace, N_PES: tl.constexpr):
    meet(meeting_room, 0, N_PES, trace)


def meeting() -> None:
    """What the current stream does next comes after what every PE's stream has done up to here. *Collective.*"""
    _meeting[(1,)](room(), record("meeting", 1, 1), triton_dist.n_pes(), num_warps=1)
