"""The host's side of rounds by TMA (``rounds_hopper.py``): two launches, and the memory that lanes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.results import Dispatched, begin_of
from triton_dist.kernels.moe.rounds_headers import exchange_headers, header_slots
from triton_dist.kernels.moe.rounds_plan import LINE_BYTES, Plan, lanes_of, lines_in_memory, stages_of
from triton_dist.kernels.prepared import Launch, Step, launch, steps
from triton_dist.kernels.protocols.workspace import peer_distances, refuse_in_capture, symmetric_workspace
from triton_dist.world.current import current_world

__all__ = ["RoundsMemory", "configuration", "dispatch_by_tma", "make_slots", "map_of", "move_rows", "slots_of_lanes"]

_PEERS = 7
"""Of which the kernel takes slots."""


class RoundsMemory:
    """What launches of one communicator keep on this GPU."""

    def __init__(self, communicator: Communicator) -> None:
        self._rounds: dict[str, torch.Tensor] = {}

    def close(self) -> None:
        self._rounds.clear()

    def rounds(self, name: str, words: int) -> torch.Tensor:
        """int32, numbers of the last rounds, zero at first."""
        if name not in self._rounds:
            refuse_in_capture("the numbers of rounds do not exist yet")
            self._rounds[name] = torch.zeros(words, dtype=torch.int32, device=current_world().device)
        return self._rounds[name]


class _Lanes(NamedTuple):
    """The memory of all lanes.

    Attributes:
        slots: symmetric int32, [4, n_pes, lanes, batch] rows. flags: symmetric int32 [n_pes, lanes].
        distances: int64 [n_pes], bytes from the flags to those of a peer.
        rounds: int32 [programs], of the last round. done: int32 [lanes], the last round that has been received.
    """

    slots: torch.Tensor
    flags: torch.Tensor
    distances: torch.Tensor
    rounds: torch.Tensor
    done: torch.Tensor


def slots_of_lanes(
    communicator: Communicator, name: str, lanes: int, lines: int, depth: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric int32: slots of so many lines for each of the last ``depth`` rounds, PE and lane, and their flags
    [n_pes, lanes].

    *Collective* the first time. ``name`` says all that their layout depends on.
    """
    n_pes = communicator.n_pes
    n_words = depth * n_pes * lanes * lines * LINE_BYTES // 4
    slots = symmetric_workspace(communicator, name, n_words)[:n_words]
    return slots, symmetric_workspace(communicator, f"{name}, flags", n_pes * lanes)


def _lanes(plan: Plan, routing: Routing, lines: int, programs: int, buffer: int) -> _Lanes:
    """*Collective* the first time."""
    from triton_dist.kernels.moe.rounds_hopper import DEPTH

    comm, lanes = routing.comm, lanes_of(plan, programs)
    assert comm is not None
    name = f"moe rounds by TMA: {lines} lines, {lanes} lanes, {plan.batch} tokens, {plan.senders}, buffer {buffer}"
    slots, flags = slots_of_lanes(comm, name, lanes, plan.batch * lines, int(DEPTH.value))
    memory = comm.own(RoundsMemory)
    numbers = memory.rounds(name, programs + lanes)
    return _Lanes(slots, flags, peer_distances(comm, flags), numbers[:programs], numbers[programs:])


def configuration(plan: Plan, routing: Routing, lines: int) -> Any:
    """The constants of a launch for rows of so many lines."""
    from triton_dist.kernels.moe.rounds_hopper import MoveConfig

    stages = stages_of(lines, plan.lanes)
    sent = max(2, stages // 2 if plan.senders else stages * 2 // 5)
    received = stages - sent
    return MoveConfig(
        routing.members.size, routing.top_k, routing.local_experts, routing.max_tokens, plan.batch, plan.lanes,
        lines_in_memory(lines), sent, received, min(sent // 2, 4), min(received // 2, 4), plan.senders > 0,
    )  # fmt: skip


def map_of(rows: torch.Tensor, lines: int, box: int = 0) -> Any:
    """The TMA descriptor of rows of so many lines, as an argument of a kernel; ``box`` lines make a box, or all."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    words = in_int32(rows).view(-1, lines, LINE_BYTES // 4)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=3)
    return TensorDescriptor.from_tensor(words, [1, box or lines_in_memory(lines), LINE_BYTES // 4], layout)


def move_rows(
    plan: Plan, x: torch.Tensor, routing: Routing, result: Dispatched, programs: int, buffer: int = 0
) -> Launch | None:
    """Move the rows of a dispatch whose tables are in ``result``. *Collective* the first time."""
    from triton_dist.kernels.moe.rounds_hopper import moe_dispatch_rounds_by_tma

    comm, n_pes = routing.comm, routing.members.size
    assert comm is not None
    lines = x.shape[1] * x.element_size() // LINE_BYTES
    of = _lanes(plan, routing, lines, programs, buffer)
    peers = [map_of(comm.peer(of.slots, (comm.my_rank + i) % n_pes), lines) for i in range(1, n_pes)]
    given = x if len(x) else result.x  # nothing is loaded of a PE without tokens, but TMA needs an address
    tensors = map_of(given, lines), map_of(result.x, lines), routing.ids, result.memory
    return launch(
        moe_dispatch_rounds_by_tma, (programs,), tensors, map_of(of.slots, lines), *peers,
        *[None] * (_PEERS - len(peers)), begin_of(routing, "rows"), begin_of(routing, "positions"),
        routing.n_tokens, of.flags, of.distances, of.rounds, plan.senders, of.done, comm.my_rank,
        configuration(plan, routing, lines), num_warps=4,
    )  # fmt: skip


def dispatch_by_tma(
    x: torch.Tensor, scales: torch.Tensor | None, routing: Routing, result: Dispatched, buffer: int
) -> Sequence[Step] | None:
    """Dispatch into ``result`` by the plan of ``routing``: headers and scales by one kernel, then rows by another.

    The steps take the tensors of ``dispatch.py``: rows, scales, ids, weights, and those of the result. In place of
    scales that there are none of, they take whatever stands there.
    """
    plan, programs, has_tokens, has_scales = routing.plan, routing.num_sms, len(x) > 0, scales is not None
    assert isinstance(plan, Plan)

    def of_headers(x: Any, scales: Any, ids: Any, weights: Any, out: Any, out_scales: Any, memory: Any) -> Any:
        return (scales if has_scales else weights), ids, weights, (out_scales if has_scales else memory), memory

    def of_rows(x: Any, scales: Any, ids: Any, weights: Any, out: Any, out_scales: Any, memory: Any) -> Any:
        return (x if has_tokens else out), out, ids, memory

    headers = exchange_headers(scales, routing, result, programs, plan.headers, buffer)
    return steps((headers, of_headers), (move_rows(plan, x, routing, result, programs, buffer), of_rows))


def make_slots(routing: Routing, row_bytes: int, n_scales: int) -> None:
    """Make the memory of dispatches by the plan of ``routing``. *Collective.*"""
    assert isinstance(routing.plan, Plan)
    header_slots(routing, n_scales, routing.num_sms, routing.plan.headers, 0)
    _lanes(routing.plan, routing, row_bytes // LINE_BYTES, routing.num_sms, 0)
