"""The second kernel of a flash decode in two: a barrier on the device, then every PE reads and combines all results."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_dist.kernels import Communicator
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.members import at_rank, group_size
from triton_dist.kernels.protocols.workspace import barrier_state
from triton_dist.kernels.tracing.events import COMPUTE, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["combine_behind_barrier"]


@triton.jit
def _combine(parts, out, barriers, trace, n_rows, DV: tl.constexpr, MEMBERS: tl.constexpr):
    program, columns = tl.program_id(0), tl.arange(0, DV)
    barrier(barriers, program, MEMBERS, trace, 0)
    began = clock(trace)
    for row in range(program, n_rows, tl.num_programs(0)):
        total = tl.zeros([DV], tl.float32)
        largest, weight = float("-inf"), 0.0
        for rank in tl.static_range(group_size(MEMBERS)):
            part = at_rank(parts, rank, MEMBERS) + row * (DV + 1)
            lse = tl.load(part + DV)
            now = tl.maximum(largest, lse)
            kept = tl.where(largest == float("-inf"), 0.0, tl.exp(largest - now))
            added = tl.where(lse == float("-inf"), 0.0, tl.exp(lse - now))
            total = total * kept + tl.load(part + columns) * added
            weight = weight * kept + added
            largest = now
        tl.store(out + row * DV + columns, (total / tl.where(weight == 0.0, 1.0, weight)).to(out.dtype.element_ty))
    record_event(trace, COMPUTE, 0, began)
    barrier(barriers, program, MEMBERS, trace, 1)  # what the peers read here may be overwritten


def combine_behind_barrier(comm: Communicator, parts: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The whole of all PEs' partial results.

    Args:
        parts: float32 [requests, heads, dim + 1], symmetric: this PE's results, divided already, and their logarithms.
            A barrier between the programs of equal number says that they are complete on all PEs.
    """
    *shape, width = parts.shape
    rows = parts.numel() // width
    out = torch.empty(*shape, width - 1, dtype=dtype, device=parts.device)
    grid = min(rows, 128 if comm.world.kind == "gpu" else 4)
    trace = record("combine", grid)
    _combine[(grid,)](parts, out, barrier_state(comm, "combine"), trace, rows, width - 1, comm.members)
    return out
