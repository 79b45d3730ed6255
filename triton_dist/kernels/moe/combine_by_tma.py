"""The host's side of a combine in rounds by TMA (``combine_hopper.py``): its launch, and the memory of its lanes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.results import Dispatched, begin_of
from triton_dist.kernels.moe.rounds_by_tma import RoundsMemory, map_of, slots_of_lanes
from triton_dist.kernels.moe.rounds_plan import LINE_BYTES, CombinePlan, combine_plan_of
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.workspace import peer_distances

__all__ = ["combine_by_tma", "configuration", "make_slots", "plan_of_combine"]


class _Lanes(NamedTuple):
    """The memory of all lanes, one for each program.

    Attributes:
        slots: symmetric int32, [4, n_pes, lanes, batch] rows. flags: symmetric int32 [n_pes, lanes].
        slot_distances, flag_distances: int64 [n_pes], bytes from there to those of each PE.
        rounds: int32 [lanes], of the last round.
    """

    slots: torch.Tensor
    flags: torch.Tensor
    slot_distances: torch.Tensor
    flag_distances: torch.Tensor
    rounds: torch.Tensor


def plan_of_combine(routing: Routing, row_bytes: int) -> CombinePlan | None:
    """How TMA combines rows of so many bytes after a dispatch in rounds, if it does. The same on all PEs."""
    if not routing.num_sms or routing.hosts > 1 or routing.sources.number > 1:
        return None
    return combine_plan_of(routing.members.size, routing.top_k, row_bytes)


def _lanes(plan: CombinePlan, routing: Routing, lines: int, lanes: int, buffer: int) -> _Lanes:
    """*Collective* the first time."""
    from triton_dist.kernels.moe.rounds_hopper import DEPTH

    comm = routing.comm
    assert comm is not None
    name = f"moe combine by TMA: {lines} lines, {lanes} lanes, {plan.batch} tokens, buffer {buffer}"
    slots, flags = slots_of_lanes(comm, name, lanes, plan.batch * lines, int(DEPTH.value))
    memory = comm.own(RoundsMemory)
    return _Lanes(slots, flags, peer_distances(comm, slots), peer_distances(comm, flags), memory.rounds(name, lanes))


def make_slots(plan: CombinePlan, routing: Routing, row_bytes: int) -> None:
    """Make the memory of combines by ``plan``. *Collective.*"""
    _lanes(plan, routing, row_bytes // LINE_BYTES, routing.num_sms, 0)


def configuration(plan: CombinePlan, routing: Routing, lines: int, dtype: torch.dtype, weighted: bool) -> Any:
    """The constants of a launch for rows of so many lines."""
    from triton_dist.kernels.moe.combine_batches import CombineConfig

    return CombineConfig(
        routing.members.size, routing.top_k, routing.local_experts, routing.max_tokens, plan.batch, lines, plan.box,
        plan.sent, plan.received, str(dtype).removeprefix("torch."), weighted,
    )  # fmt: skip


def combine_by_tma(
    plan: CombinePlan, y: torch.Tensor, dispatched: Dispatched, out: torch.Tensor, weighted: bool, buffer: int
) -> Launch | None:
    """Combine into ``out``."""
    from triton_dist.kernels.moe.combine_hopper import moe_combine_rounds_by_tma

    routing = dispatched.routing
    comm, lanes = routing.comm, routing.num_sms
    assert comm is not None
    lines = y.shape[1] * y.element_size() // LINE_BYTES
    of = _lanes(plan, routing, lines, lanes, buffer)
    given = y if len(y) else of.slots  # nothing is loaded of a PE without rows, but TMA needs an address
    begins = (begin_of(routing, part) for part in ("rows", "positions", "row_weights"))
    return launch(
        moe_combine_rounds_by_tma, (lanes,),
        (map_of(given, lines, plan.box), dispatched.memory, routing.ids, in_int32(out)),
        map_of(of.slots, lines, plan.box), of.slots, of.flags, of.slot_distances, of.flag_distances, of.rounds,
        *begins, routing.n_tokens, comm.my_rank, configuration(plan, routing, lines, y.dtype, weighted), num_warps=4,
    )  # fmt: skip
