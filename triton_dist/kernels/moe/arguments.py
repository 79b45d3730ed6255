"""What the operations on experts check of their arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from triton_dist.kernels.arguments import check_contiguous
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import check_sm_margin, sms
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.gradients import refuse_gradients
from triton_dist.kernels.moe.dispatch_counts import ONE_SOURCE, TokenSources
from triton_dist.kernels.moe.rounds_plan import Plan, TokensPlan, plan_of
from triton_dist.kernels.options import check_int, check_one_of
from triton_dist.kernels.protocols.members import Members

__all__ = [
    "ALGORITHMS",
    "CHUNK",
    "ROWS",
    "Routing",
    "check_offsets",
    "check_routing",
    "check_rows",
    "check_scales",
    "check_sizes",
    "compared_of",
    "has_many_tokens",
    "most_rows",
    "plan_of_rounds",
    "refuse_halves_of_rounds",
    "routing_of",
]

CHUNK = 8
"""Tokens of which the rows cross between two hosts as one message."""

ALGORITHMS = "auto", "portable"
"""Of a dispatch."""

ROWS = (torch.bfloat16, torch.float16, torch.float32, *FP8)
"""What rows can be of."""


class Routing(NamedTuple):
    """Which experts tokens go to, and the sizes of an exchange.

    Attributes:
        ids: [T, top_k] int32 or int64. weights: [T, top_k] float32.
        members: the PEs, each of which has ``local_experts`` experts. comm: their communicator; None while PyTorch
            traces.
        max_tokens: how many tokens a PE may have.
        align: of the rows of an expert. capacity: how many rows a PE has room for.
        fixed: whether ``align`` is the room for the rows of each expert.
        num_sms: how many programs exchange tokens in rounds (``rounds.py``); 0 for low latency.
        hosts: how many hosts the members are on. sources: whose tokens a PE has, in the part of an exchange that is
            inside a host (``between_hosts.py``).
        halves: whether the rows come by the halves of a dispatch.
        plan: of rounds whose rows TMA moves (``rounds_by_tma.py``, or ``tokens_by_tma.py`` if each goes once to a PE);
            None: load and store move them.
        group: of functional forms: the size and the name of the group.
    """

    ids: torch.Tensor
    weights: torch.Tensor
    members: Members
    local_experts: int
    max_tokens: int
    align: int
    capacity: int
    fixed: bool = False
    comm: Communicator | None = None
    num_sms: int = 0
    hosts: int = 1
    sources: TokenSources = ONE_SOURCE
    halves: bool = False
    plan: Plan | TokensPlan | None = None
    group: tuple[int, str] | None = None

    @property
    def by_tokens(self) -> bool:
        """Whether a result says where rows are by source and token; else by source and message.

        So do rounds, and a dispatch of many tokens on one host; a combine reads what its dispatch wrote.
        """
        whole = not self.halves and self.hosts == 1 and self.sources.number == 1
        return self.num_sms > 0 or (whole and has_many_tokens(self.max_tokens))

    @property
    def n_tokens(self) -> int:
        return self.ids.shape[0]

    @property
    def top_k(self) -> int:
        return self.ids.shape[1]

    @property
    def chunks(self) -> int:
        """How many chunks a PE's tokens make, at most."""
        return -(-self.max_tokens // CHUNK)

    @property
    def tokens_of_hosts(self) -> int:
        """How many tokens of its column, of all hosts, a PE has room for."""
        return self.hosts * self.chunks * CHUNK


def has_many_tokens(max_tokens: int) -> bool:
    """Whether a PE may have several tokens for each multiprocessor."""
    return max_tokens >= 4 * sms()


def check_rows(function: str, name: str, rows: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    """``rows`` is a matrix of one of ``dtypes`` whose rows are multiples of 16 bytes, and begins at one."""
    check_contiguous(function, **{name: rows})
    if rows.dim() != 2 or rows.dtype not in dtypes:
        raise ValueError(
            f"{function}: {name} must be [rows, hidden] of {', '.join(map(str, dtypes))}, got shape"
            f" {tuple(rows.shape)} and {rows.dtype}"
        )
    nbytes = rows.shape[1] * rows.element_size()
    if nbytes == 0 or nbytes % 16:
        raise ValueError(
            f"{function}: a row of {name} must be a multiple of 16 bytes, got hidden = {rows.shape[1]} of {rows.dtype},"
            f" {nbytes} bytes"
        )
    if rows.data_ptr() % 16:
        raise ValueError(f"{function}: {name} begins at {rows.data_ptr():#x}, which is not a multiple of 16 bytes")


def check_routing(
    comm: Communicator,
    function: str,
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor | None,
    num_experts: int,
    max_tokens: int,
    align: int,
    capacity: int | None,
    expert_capacity: int | None = None,
    num_sms: int = 0,
    algorithm: str = "auto",
    *,
    scales: torch.Tensor | None,
    buffer: int,
    sm_margin: int,
) -> tuple[Routing, tuple[Any, ...]]:
    """Check the arguments of a dispatch, all but the values of ``ids``, which the kernel checks, and compare them with
    those of the other members. All that this PE alone refuses comes before the comparison, which counts as a call.

    Returns:
        the routing, and what was compared.
    """
    routing = routing_of(
        comm, function, x, ids, weights, num_experts, max_tokens, align, capacity, expert_capacity, num_sms, algorithm,
        scales,
    )  # fmt: skip
    n_scales = check_scales(function, x, scales)
    check_int(function, "buffer", buffer, 0)
    check_sm_margin(function, sm_margin)
    if num_sms and sm_margin:
        raise ValueError(f"{function}: num_sms says how many SMs work, and sm_margin how many do not: give one")
    if algorithm == "auto":
        routing = routing._replace(plan=plan_of_rounds(comm, x, routing.top_k, num_sms))
    compared = function, *compared_of(x, routing, n_scales, buffer, sm_margin)
    comm.compare(*compared)
    return routing, compared


def routing_of(
    comm: Communicator,
    function: str,
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor | None,
    num_experts: int,
    max_tokens: int,
    align: int,
    capacity: int | None,
    expert_capacity: int | None,
    num_sms: int,
    algorithm: str,
    scales: torch.Tensor | None,
) -> Routing:
    """Check the arguments of a dispatch by themselves, but for what ``scales`` are. The routing has no plan yet."""
    refuse_gradients(function, x, weights, scales)
    check_rows(function, "x", x, ROWS)
    check_contiguous(function, topk_ids=ids)
    if ids.dim() != 2 or ids.shape[0] != x.shape[0] or ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"{function}: topk_ids must be [{x.shape[0]}, top_k] of torch.int32 or torch.int64, as x has"
            f" {x.shape[0]} rows; got shape {tuple(ids.shape)} and {ids.dtype}"
        )
    if not 1 <= ids.shape[1] <= 64:
        raise ValueError(f"{function}: top_k must be in [1, 64], got topk_ids of shape {tuple(ids.shape)}")
    if weights is None:
        weights = torch.ones(ids.shape, dtype=torch.float32, device=ids.device)
    check_contiguous(function, topk_weights=weights)
    if weights.shape != ids.shape or weights.dtype != torch.float32:
        raise ValueError(
            f"{function}: topk_weights must be {tuple(ids.shape)} of torch.float32, as topk_ids is, got shape"
            f" {tuple(weights.shape)} and {weights.dtype}"
        )
    members = comm.members
    check_sizes(function, num_experts, max_tokens, align, capacity, num_sms)
    if expert_capacity is not None:
        check_int(function, "expert_capacity", expert_capacity, 1)
    if num_experts % members.size:
        raise ValueError(
            f"{function}: num_experts must be a multiple of the {members.size} PEs, each of which has as many, got"
            f" {num_experts}"
        )
    if x.shape[0] > max_tokens:
        raise ValueError(f"{function}: x has {x.shape[0]} tokens, and max_tokens is {max_tokens}")
    if expert_capacity is not None:
        if align != 1 or capacity is not None:
            raise ValueError(f"{function}: expert_capacity stands for align and capacity: give no other of them")
        align = expert_capacity
    if not 0 <= num_sms <= sms():
        raise ValueError(f"{function}: num_sms must be in [0, {sms()}], where 0 is for low latency, got {num_sms}")
    check_one_of(function, "algorithm", algorithm, ALGORITHMS)
    check_offsets(function, "the choices of all PEs' max_tokens", members.size * max_tokens * ids.shape[1])
    local = num_experts // members.size
    most = most_rows(members.size, max_tokens, ids.shape[1], local, align)
    if expert_capacity is not None:
        most = capacity = local * expert_capacity
    if capacity is None:
        capacity = most
    if max(most, capacity) >= 1 << 31:
        raise ValueError(
            f"{function}: the {most} rows that can come, by max_tokens, top_k, align and expert_capacity, and capacity"
            f" must be fewer than 2**31, got max_tokens {max_tokens}, align {align}, capacity {capacity}"
        )
    return Routing(
        ids, weights, members, local, max_tokens, align, capacity, expert_capacity is not None, comm, num_sms,
        comm.grid.hosts,
    )  # fmt: skip


def plan_of_rounds(comm: Communicator, x: torch.Tensor, top_k: int, num_sms: int) -> Plan | None:
    """How TMA moves the rows of a dispatch by ``num_sms`` programs, if it does."""
    if comm.grid.hosts > 1:
        return None
    return plan_of(comm.n_pes, top_k, x.shape[1] * x.element_size(), num_sms)


def check_sizes(
    function: str, num_experts: int, max_tokens: int, align: int = 1, capacity: int | None = None, num_sms: int = 0
) -> None:
    """These sizes of an exchange are ints in their ranges."""
    check_int(function, "num_experts", num_experts, 1)
    check_int(function, "max_tokens", max_tokens, 1)
    check_int(function, "align", align, 1)
    check_int(function, "num_sms", num_sms, 0)
    if capacity is not None:
        check_int(function, "capacity", capacity, 1)


def check_offsets(function: str, what: str, number: int) -> None:
    """Check that offsets of so many elements, which kernels count in 32 bits, do not overflow."""
    if number >= 1 << 31:
        raise ValueError(f"{function}: {what} are {number} words, and must be fewer than 2**31")


def compared_of(x: torch.Tensor, routing: Routing, n_scales: int, buffer: int, sm_margin: int = 0) -> tuple[Any, ...]:
    """What is the same on all members, by name: all but the number of tokens and the room for rows."""
    return (
        f"hidden={x.shape[1]}",
        x.dtype,
        f"top_k={routing.top_k}",
        f"num_experts={routing.local_experts * routing.members.size}",
        f"max_tokens={routing.max_tokens}",
        f"scales of a row={n_scales}",
        f"buffer={buffer}",
        f"sm_margin={sm_margin}",
        f"num_sms={routing.num_sms}",
        routing.plan,
    )


def most_rows(n_pes: int, max_tokens: int, top_k: int, local_experts: int, align: int) -> int:
    """How many rows a PE may receive: every choice of every token."""
    return n_pes * max_tokens * top_k + local_experts * (align - 1)


def refuse_halves_of_rounds(function: str) -> None:
    """A send half that does not wait needs a slot for each token, and rounds use theirs again."""
    raise ValueError(
        f"{function}: a dispatch with num_sms goes in rounds and has no halves, and nor has its combine: slots hold"
        " fewer tokens than are sent, so that sending ends when peers receive. Leave out num_sms in dispatch_send,"
        " where sm_margin leaves SMs to other kernels"
    )


def check_scales(function: str, x: torch.Tensor, scales: torch.Tensor | None) -> int:
    """How many scales a row has."""
    if scales is None:
        return 0
    check_contiguous(function, scales=scales)
    if scales.dim() != 2 or scales.shape[0] != x.shape[0] or scales.dtype != torch.float32 or not scales.shape[1]:
        raise ValueError(
            f"{function}: scales must be [{x.shape[0]}, scales of a row] of torch.float32, got shape"
            f" {tuple(scales.shape)} and {scales.dtype}"
        )
    return int(scales.shape[1])
