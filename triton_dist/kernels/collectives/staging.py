"""Sums of what all PEs push: parts travel through memory that is there for it, a round of blocks at a time.

In a round every program stores a few blocks of part i of its input to PE i's staging memory, for all i, and meets its
partners; then it adds up, with its own, what they have stored to its PE. Stores go over the links faster than loads,
and nobody has to wait before storing: staging memory is a slice for each program, with two halves that rounds use in
turn. Who stores in round r has met, in round r - 1, partners that had finished with round r - 2. That holds over
launches, too: the meetings' counter says which half it is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.protocols.barrier import ROW
from triton_dist.kernels.protocols.workspace import room, scratch

__all__ = [
    "STAGING_PROGRAMS",
    "Plan",
    "meetings_so_far",
    "plan",
    "push_round",
    "staging",
    "staging_room",
    "sum_of_block",
]

STAGING_PROGRAMS = 128
_ROW = tl.constexpr(ROW)


def _slot_bytes(n_pes: int) -> int:
    """What a program can receive from one PE in a round."""
    whole = 128 << 10 if triton_dist.kind() == "gpu" else 1 << 10
    return whole // int(triton.next_power_of_2(n_pes))


def staging(n_pes: int, dtype: torch.dtype) -> torch.Tensor:
    """The world's staging memory. *Collective* the first time."""
    nbytes = STAGING_PROGRAMS * 2 * n_pes * _slot_bytes(n_pes)
    return scratch("staging", nbytes // 4, torch.int32).view(dtype)


def staging_room() -> torch.Tensor:
    """Where programs that use the staging memory meet."""
    return room("staging")


class Plan(NamedTuple):
    """How a part is cut: ``programs``, which do ``per_round`` blocks of ``block`` elements in each of ``rounds``."""

    programs: int
    rounds: int
    block: int
    per_round: int
    slot: int
    """Elements that a program can receive from one PE in a round."""


def plan(part: int, n_pes: int, itemsize: int, programs: int = 0, block_bytes: int = 4096) -> Plan:
    """How to cut parts of so many elements."""
    slot = _slot_bytes(n_pes)
    block = min(block_bytes, slot) // itemsize
    blocks = -(-part // block)
    programs = min(programs or STAGING_PROGRAMS, STAGING_PROGRAMS, blocks)
    per_round = min(slot // (block * itemsize), -(-blocks // programs))
    return Plan(programs, -(-blocks // (programs * per_round)), block, per_round, slot // itemsize)


@triton.jit
def meetings_so_far(meeting_room, program):
    """How often this program has met: who adds the number of a round to it knows which half of the memory is next."""
    return tl.load(meeting_room + program * _ROW + (_ROW - 1))


@triton.jit
def _slot(memory, half, pe, N_PES: tl.constexpr, SLOT: tl.constexpr):
    return memory + ((tl.program_id(0) * 2 + (half & 1)) * N_PES + pe) * SLOT


@triton.jit
def push_round(
    memory,
    half,
    input,
    n,
    part,
    round,
    N_PES: tl.constexpr,
    BLOCK: tl.constexpr,
    PER_ROUND: tl.constexpr,
    SLOT: tl.constexpr,
):
    """Store this program's blocks of a round, of all parts but this PE's own, to the PEs whose parts they are."""
    me = dl.my_pe()
    mine = _slot(memory, half, me, N_PES, SLOT)
    for j in range(PER_ROUND):
        block = (round * PER_ROUND + j) * tl.num_programs(0) + tl.program_id(0)
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        places = j * BLOCK + tl.arange(0, BLOCK)
        if (block + 1) * BLOCK <= n - (N_PES - 1) * part:  # a whole block, even of the last part
            elements = ()
            for i in tl.static_range(1, N_PES):  # all loads are under way before the first store
                start = ((me + i) % N_PES).to(tl.int64) * part
                elements = elements + (tl.load(input + start + offsets),)  # type: ignore[assignment]  # noqa: RUF005
            for i in tl.static_range(1, N_PES):
                tl.store(dl.symm_at(mine, (me + i) % N_PES) + places, elements[i - 1])
        else:
            for i in tl.static_range(1, N_PES):
                start = ((me + i) % N_PES).to(tl.int64) * part
                there = (offsets < part) & (start + offsets < n)
                few = tl.load(input + start + offsets, mask=there)
                tl.store(dl.symm_at(mine, (me + i) % N_PES) + places, few, mask=there)


@triton.jit
def sum_of_block(memory, half, input, j, offsets, mask, N_PES: tl.constexpr, BLOCK: tl.constexpr, SLOT: tl.constexpr):
    """The sum in float32 of block ``j`` of a round: what the others have stored here, and ``input`` at ``offsets``."""
    me = dl.my_pe()
    places = j * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(input + offsets, mask=mask).to(tl.float32)
    for i in tl.static_range(1, N_PES):
        total += tl.load(_slot(memory, half, (me + i) % N_PES, N_PES, SLOT) + places, mask=mask).to(tl.float32)
    return total
