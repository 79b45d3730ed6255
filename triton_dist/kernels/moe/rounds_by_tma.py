"""The host's side of rounds by TMA (``rounds_hopper.py``): what it takes, its plan, and the memory of lanes.

An experiment: :func:`triton_dist.kernels.moe.dispatch` does not take it yet, for the reasons of decision 0103. The
benchmark and the checks call :func:`dispatch` here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

import triton_dist
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import gpu
from triton_dist.kernels.moe.arguments import Routing, check_routing, check_scales
from triton_dist.kernels.moe.results import Dispatched, begin_of, result_of
from triton_dist.kernels.moe.rounds_headers import exchange_headers
from triton_dist.kernels.prepared import launch
from triton_dist.kernels.protocols.workspace import refuse_in_capture, symmetric_workspace
from triton_dist.world.current import current_world

__all__ = ["Plan", "boxes_of", "configuration", "dispatch", "fits", "lanes_of", "maps_of", "move_rows"]

_SHARED = 232448 - 4096
"""Bytes of a multiprocessor's shared memory for rows; the rest is for barriers and what Triton needs."""
_LINE_BYTES = 128
_MOST_LINES = 256
"""Of a box."""
_MOST_PES = 8
_MOST_BOXES = 3


class Plan(NamedTuple):
    """How a multiprocessor works.

    Attributes:
        lanes: 1 or 2, each with a warp that sends and one that receives. batch: tokens of a lane in a round.
        whole_loads, whole_stores: whether a row is one request, whose box may end behind the row; else boxes that
            together are the row.
        senders: how many multiprocessors do nothing but send, by 2 · ``lanes`` warps, so that what NVLink does not take
            at once is not in front of local copies; 0: all do both.
        headers: tokens of a round of the kernel in front, which exchanges headers and scales.
    """

    lanes: int = 2
    batch: int = 8
    whole_loads: bool = True
    whole_stores: bool = True
    senders: int = 0
    headers: int = 32


class _Memory:
    """What launches of one communicator keep on this GPU."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._distances: dict[int, torch.Tensor] = {}
        self._rounds: dict[str, torch.Tensor] = {}

    def close(self) -> None:
        self._distances.clear()
        self._rounds.clear()

    def distances(self, tensor: torch.Tensor) -> torch.Tensor:
        """int64, bytes from a symmetric tensor of this PE to that of each PE."""
        here, comm = tensor.data_ptr(), self._communicator
        if here not in self._distances:
            refuse_in_capture("the addresses of the flags of rounds are not on the GPU yet")
            away = [comm.peer(tensor, rank).data_ptr() - here for rank in range(comm.n_pes)]
            self._distances[here] = torch.tensor(away, dtype=torch.int64, device=tensor.device)
        return self._distances[here]

    def rounds(self, name: str, words: int) -> torch.Tensor:
        """int32, numbers of the last rounds, zero at first."""
        if name not in self._rounds:
            refuse_in_capture("the numbers of rounds do not exist yet")
            self._rounds[name] = torch.zeros(words, dtype=torch.int32, device=current_world().device)
        return self._rounds[name]


def boxes_of(lines: int, whole: bool) -> tuple[int, ...]:
    """The heights of the boxes of which a row of so many lines is moved."""
    if whole or lines % 8 or lines.bit_count() > _MOST_BOXES:
        return (_padded(lines),)
    return tuple(1 << bit for bit in reversed(range(lines.bit_length())) if lines >> bit & 1)


def _padded(lines: int) -> int:
    return 1 << max(lines - 1, 0).bit_length()


def _stages(lines: int, lanes: int) -> int:
    """How many rows the rings of a lane hold."""
    return _SHARED // (_padded(lines) * _LINE_BYTES) // lanes


def lanes_of(plan: Plan, programs: int) -> int:
    """How many lanes all programs have."""
    return (programs - plan.senders) * 2 * plan.lanes if plan.senders else programs * plan.lanes


def configuration(plan: Plan, routing: Routing, lines: int) -> Any:
    """The constants of a launch for rows of so many lines."""
    from triton_dist.kernels.moe.rounds_hopper import MoveConfig

    stages = min(_stages(lines, plan.lanes), 24)
    sent = max(2, stages // 2 if plan.senders else stages * 2 // 5)
    received = stages - sent
    return MoveConfig(
        routing.members.size, routing.top_k, routing.local_experts, routing.max_tokens, plan.batch, plan.lanes,
        _padded(lines), boxes_of(lines, plan.whole_loads), boxes_of(lines, plan.whole_stores), sent, received,
        min(sent // 2, 4), min(received // 2, 4),
        plan.senders > 0,
    )  # fmt: skip


def fits(routing: Routing, x: torch.Tensor, plan: Plan) -> bool:
    """Whether the kernels take it, the same on all PEs: a Hopper GPU, up to 8 PEs, rows of whole lines of 128 bytes of
    which the rings hold some."""
    comm, nbytes = routing.comm, x.shape[1] * x.element_size()
    return (
        triton_dist.kind() == "gpu"
        and gpu().capability == (9, 0)
        and comm is not None
        and routing.sources.number == 1
        and comm.n_pes == routing.members.size <= _MOST_PES
        and nbytes % _LINE_BYTES == 0
        and nbytes <= _MOST_LINES * _LINE_BYTES
        and (plan.senders == 0 or plan.senders < routing.num_sms)
        and _stages(nbytes // _LINE_BYTES, plan.lanes) >= 5
    )


def maps_of(rows: torch.Tensor, lines: int, heights: tuple[int, ...]) -> list[Any]:
    """The TMA descriptors of rows of so many lines, one for each box, as arguments of the kernel."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    words = rows.view(torch.int32).view(-1, lines, _LINE_BYTES // 4)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=3)
    found = [TensorDescriptor.from_tensor(words, [1, height, _LINE_BYTES // 4], layout) for height in heights]
    return found + [None] * (_MOST_BOXES - len(heights))


def move_rows(plan: Plan, x: torch.Tensor, routing: Routing, result: Dispatched, programs: int, buffer: int = 0) -> Any:
    """Move the rows of a dispatch whose tables are in ``result``. *Collective* the first time."""
    from triton_dist.kernels.moe.rounds_hopper import DEPTH, moe_dispatch_rounds_by_tma

    comm, n_pes = routing.comm, routing.members.size
    assert comm is not None
    lines = x.shape[1] * x.element_size() // _LINE_BYTES
    config = configuration(plan, routing, lines)
    lanes = lanes_of(plan, programs)
    name = f"moe rounds by TMA: {lines} lines, {lanes} lanes, {plan.batch} tokens, {plan.senders}, buffer {buffer}"
    of_slots = int(DEPTH.value) * n_pes * lanes * plan.batch * lines * _LINE_BYTES // 4
    slots = symmetric_workspace(comm, name, of_slots)[:of_slots]
    flags = symmetric_workspace(comm, f"{name}, flags", n_pes * lanes)
    memory = comm.own(_Memory)
    numbers = memory.rounds(name, programs + lanes)
    loads, stores = config.load_heights, config.store_heights
    peers: list[Any] = []
    for i in range(1, n_pes):
        peers += maps_of(comm.peer(slots, (comm.my_rank + i) % n_pes), lines, stores)
    peers += [None] * ((_MOST_PES - 1) * _MOST_BOXES - len(peers))
    return launch(
        moe_dispatch_rounds_by_tma, (programs,), (),
        *maps_of(x if len(x) else result.x, lines, loads), *maps_of(slots, lines, loads),
        *maps_of(result.x, lines, stores), *peers, routing.ids, result.memory, begin_of(routing, "rows"),
        begin_of(routing, "positions"), routing.n_tokens, flags, memory.distances(flags),
        numbers[:programs], plan.senders, numbers[programs:], comm.my_rank, config, num_warps=4,
    )  # fmt: skip


def dispatch(
    plan: Plan,
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    *,
    num_experts: int,
    max_tokens: int,
    num_sms: int,
    scales: torch.Tensor | None = None,
    align: int = 1,
    capacity: int | None = None,
    expert_capacity: int | None = None,
    group: Any = None,
) -> Dispatched:
    """As :func:`triton_dist.kernels.moe.dispatch` with ``num_sms``, by TMA; a result for its ``combine``."""
    with calling("dispatch", group) as comm:
        routing = check_routing(
            comm, "dispatch", x, ids, weights, num_experts, max_tokens, align, capacity, expert_capacity, num_sms
        )
        n_scales = check_scales("dispatch", x, scales)
        if not fits(routing, x, plan):
            raise ValueError(f"dispatch by TMA: {routing.members}, {x.shape[1]} of {x.dtype} with {plan}")
        result = result_of(routing, x.dtype, x.shape[1], n_scales, torch.empty)
        exchange_headers(scales, routing, result, num_sms, plan.headers)
        move_rows(plan, x, routing, result, num_sms)
        return result
