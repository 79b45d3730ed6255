"""What a fused layer for Hopper GPUs does in which order: a table of this PE's rows, made on the GPU from the routing.

An expert's rows are numbered from this PE's own on, then those of the PE at distance 1, and so on, as in
``all_gather_grouped_gemm.py``. A pair of a distance and an expert is a unit of ``UNIT`` int32 words: where the rows of
that PE come from and go to, and which tiles end with one of them. Units are in the order in which rows arrive: by
distance, then expert. A second table says for each of this PE's tokens to which PEs it goes.

The kernels that use both are in ``gemm/hopper/``. They walk the units with a few loads each; all that takes sums over
experts is here.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.hopper.expert_layout import UNIT
from triton_dist.kernels.moe.all_gather_grouped_gemm import options_of, rows_up_to, tiles_up_to
from triton_dist.kernels.moe.gathered_routing import GatheredRouting, have_rows
from triton_dist.kernels.protocols.members import group_size, my_rank

__all__ = ["arrival_plan", "refuse_more_rows"]

_UNIT = tl.constexpr(int(UNIT.value))
_TOKENS = 128
"""Of a program."""


@triton.jit(do_not_specialize=["n_tokens", "capacity"])
def moe_arrival_plan(
    units, destinations, memory, n_tokens, capacity, MEMBERS: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
    MAX_TOKENS: tl.constexpr, PARTS: tl.constexpr, BLOCK_M: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    L: tl.constexpr = E // N
    NP: tl.constexpr = triton.next_power_of_2(N)
    LP: tl.constexpr = triton.next_power_of_2(L)
    me = my_rank(MEMBERS)
    first_row = tl.load(memory + PARTS[1] + me * L)
    if tl.program_id(0) == 0:
        assert tl.load(memory + PARTS[1] + (me + 1) * L) - first_row <= capacity, (
            "dispatch_grouped_gemm: more rows arrive than capacity"
        )
        distance, expert = tl.arange(0, NP)[:, None], tl.arange(0, LP)[None, :]
        mask = (distance < N) & (expert < L)
        counts, begins = memory + PARTS[0] + me * L, memory + PARTS[3] + me * L
        # Of one expert; broadcast over distances.
        rows = tl.load(counts + expert, mask=mask, other=0)
        begin = tl.load(memory + PARTS[1] + me * L + expert, mask=mask, other=0) - first_row
        own = tl.load(begins + me * E + expert, mask=mask, other=0)
        source = tl.load(begins + (me + distance) % N * E + expert, mask=mask, other=0)
        before = rows_up_to(begins, counts, me, distance, expert, mask, N, E)
        until = rows_up_to(begins, counts, me, distance + 1, expert, mask, N, E)
        first = tiles_up_to(begins, counts, me, distance, expert, mask, N, E, BLOCK_M)
        last = tiles_up_to(begins, counts, me, distance + 1, expert, mask, N, E, BLOCK_M)
        ends = tl.cumsum(tl.where(mask, last - first, 0).reshape([NP * LP]), axis=0).reshape([NP, LP])
        unit = units + (distance * L + expert) * _UNIT
        tl.store(unit, ends, mask=mask)
        tl.store(unit + 1, first, mask=mask)
        tl.store(unit + 2, rows, mask=mask)
        tl.store(unit + 3, begin, mask=mask)
        tl.store(unit + 4, own, mask=mask)
        tl.store(unit + 5, first_row + begin + source, mask=mask)
        tl.store(unit + 6, begin + before, mask=mask)
        tl.store(unit + 7, until - before, mask=mask)
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    positions = memory + PARTS[6] + me * (MAX_TOKENS * K)
    found = tl.zeros([TOKENS], tl.int32)
    for rank in tl.static_range(N):
        begin_row = tl.load(memory + PARTS[1] + rank * L)
        end_row = tl.load(memory + PARTS[1] + (rank + 1) * L)
        goes = have_rows(positions, tokens, n_tokens, begin_row, end_row, K)
        found |= goes.to(tl.int32) << rank
    tl.store(destinations + tokens, found, mask=tokens < MAX_TOKENS)


def arrival_plan(
    comm: Communicator, routing: GatheredRouting, capacity: int, block_m: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The units [n_pes * L * UNIT], and the PEs that each token goes to, a bit for each [max_tokens]; int32.

    Args:
        capacity: it is an error of the kernel if more rows come.
        block_m: rows of a tile.
    """
    memory = routing.memory
    units = memory.new_empty(routing.num_experts * int(UNIT.value))
    destinations = memory.new_empty(routing.max_tokens)
    moe_arrival_plan[(triton.cdiv(routing.max_tokens, _TOKENS),)](
        units, destinations, memory, routing.n_tokens, capacity, MEMBERS=comm.members, E=routing.num_experts,
        K=routing.top_k, MAX_TOKENS=routing.max_tokens, PARTS=routing.parts, BLOCK_M=block_m, TOKENS=_TOKENS,
        **options_of(routing, capacity),
    )  # fmt: skip
    return units, destinations


@triton.jit(do_not_specialize=["capacity"])
def moe_arrival_plan_check(memory, capacity, MEMBERS: tl.constexpr, E: tl.constexpr, PARTS: tl.constexpr):
    L: tl.constexpr = E // group_size(MEMBERS)
    begins = memory + PARTS[1] + my_rank(MEMBERS) * L
    assert tl.load(begins + L) - tl.load(begins) <= capacity, "grouped_gemm_combine: a has fewer rows than have come"


def refuse_more_rows(comm: Communicator, routing: GatheredRouting, capacity: int) -> None:
    """An error of the kernel if this PE's experts have more rows, where they may have."""
    if options := options_of(routing, capacity):
        moe_arrival_plan_check[(1,)](
            routing.memory, capacity, MEMBERS=comm.members, E=routing.num_experts, PARTS=routing.parts, **options
        )
