"""The host's side of a fused layer on Hopper GPUs: what it computes, and the memory that its launches share.

The kernels are in ``gemm/hopper``: ``dispatch_grouped_gemm.py`` and ``grouped_gemm_combine.py``.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import is_hopper
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.moe.arrival_plan import arrival_plan, refuse_more_rows
from triton_dist.kernels.moe.gathered_routing import GatheredRouting
from triton_dist.kernels.moe.grouped_gemm import config_for
from triton_dist.kernels.protocols.workspace import peer_distances, refuse_in_capture, symmetric_workspace
from triton_dist.world.current import current_world

__all__ = ["dispatch", "fits", "multiply_and_combine"]

_BARRIER = 128
"""Words of a reducer's barrier."""


class _Memory:
    """What launches of one communicator share on this GPU, beside symmetric memory."""

    def __init__(self, communicator: Communicator) -> None:
        self._state: dict[tuple[str, int], torch.Tensor] = {}

    def close(self) -> None:
        self._state.clear()

    def state(self, kernel: str, words: int) -> torch.Tensor:
        """int32 words of a kernel's launches, zeros at first."""
        if (kernel, words) not in self._state:
            refuse_in_capture(f"the state of {kernel} does not exist yet")
            self._state[kernel, words] = torch.zeros(words, dtype=torch.int32, device=current_world().device)
        return self._state[kernel, words]


def fits(comm: Communicator, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scales: str) -> bool:
    """Whether the kernels compute it: on a Hopper GPU, up to 8 PEs, 16-bit floats without scales, ``b`` with contiguous
    columns, rows that TMA can address."""
    if not is_hopper() or comm.n_pes > 8:
        return False
    from triton_dist.kernels.gemm.hopper.grouped_gemm import fits_grouped

    wide = a.new_empty(1, a.shape[1])  # a PE may have no tokens
    made = out.new_empty(1, out.shape[1])
    return scales == "none" and b.stride(1) == 1 and out.dtype == a.dtype and fits_grouped(wide, b, made, scales, True)


def _config(routing: GatheredRouting, fold: bool) -> Config:
    """The same on all PEs: for the rows of an expert, if all PEs have as many tokens as they may."""
    rows = routing.members.size * routing.max_tokens * routing.top_k
    return config_for(-(-rows // routing.num_experts), fold, exchanges=True)


def dispatch(
    comm: Communicator,
    x: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    routing: GatheredRouting,
    swiglu: bool,
    programs: int,
    senders: int,
) -> None:
    """``out`` of the rows of this PE's experts; see :func:`~triton_dist.kernels.moe.dispatch_grouped_gemm`."""
    from triton_dist.kernels.gemm.hopper import dispatch_grouped_gemm as hopper
    from triton_dist.kernels.gemm.hopper.epochs import Peers
    from triton_dist.kernels.gemm.hopper.expert_layout import ARRIVED_ROWS, COPIED, MOST_PARTS

    inner, tokens = x.shape[1], comm.n_pes * routing.max_tokens
    words = inner * x.element_size() // 4
    gathered = symmetric_workspace(comm, "moe: gathered tokens", tokens * words)
    flags = symmetric_workspace(comm, "moe: flags of the fused layer", int(ARRIVED_ROWS.value) + comm.n_pes)
    memory = comm.own(_Memory)
    state = memory.state("dispatch_grouped_gemm", int(COPIED.value) + int(MOST_PARTS.value) * comm.n_pes)
    peers = Peers(comm.my_rank, flags, peer_distances(comm, flags))
    config = _config(routing, swiglu)
    hopper.run_dispatch(
        x, b, out, gathered[: tokens * words].view(x.dtype).view(comm.n_pes, routing.max_tokens, inner),
        routing.tokens, arrival_plan(comm, routing, out.shape[0], config.block_m), state, peers,
        peer_distances(comm, gathered), senders, config, programs,
    )  # fmt: skip


def multiply_and_combine(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    routing: GatheredRouting,
    weighted: bool,
    chunk: int,
    programs: int,
    reducers: int,
) -> None:
    """``out`` of this PE's tokens; see :func:`~triton_dist.kernels.moe.grouped_gemm_combine`.

    Args:
        chunk: columns of a chunk, a multiple of 128.
    """
    from triton_dist.kernels.gemm.hopper import grouped_gemm_combine as hopper
    from triton_dist.kernels.gemm.hopper.expert_layout import FINISHED

    refuse_more_rows(comm, routing, a.shape[0])
    config = _config(routing, False)
    groups, columns = reducers * config.groups, b.shape[2]
    name = f"moe: sums of {routing.max_tokens} tokens, chunks of {chunk} {out.dtype} by {groups} groups of warps"
    slots = symmetric_workspace(comm, name, 2 * comm.n_pes * routing.max_tokens * chunk, out.dtype)
    barriers = symmetric_workspace(comm, f"barrier moe: scattering by {groups} groups of warps", groups * _BARRIER)
    memory = comm.own(_Memory)
    state = memory.state("grouped_gemm_combine", int(FINISHED.value) + -(-columns // chunk))
    local = routing.num_experts // comm.n_pes
    exchange = hopper.Exchange(
        out.new_empty(a.shape[0], columns), out, routing.offsets, routing.tokens_of_pes, routing.positions,
        routing.weights, slots, barriers, peer_distances(comm, slots), peer_distances(comm, barriers), comm.my_rank,
        reducers, local,
    )  # fmt: skip
    counts = routing.counts.narrow(0, comm.my_rank * local, local)
    hopper.run_combine(a, b, counts, exchange, state, chunk, weighted, config, programs)
