"""Reductions through staging memory: chunks are pushed to the PE that reduces them, a round of blocks at a time.

In a round every program stores a few blocks of chunk i of its input to PE i's staging memory, for all i, passes a
barrier with its partners, and adds what they have stored to its PE to its own. Stores are faster than loads over
NVLink. Staging memory is a slice for each program and double-buffered by round, so no barrier precedes the stores: a
program that stores in round r has passed the barrier of round r - 1, before which its partners had finished with round
r - 2. That holds over launches, too: the barrier's epoch tells which half is next.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from triton_dist.kernels.collectives.parts import widened
from triton_dist.kernels.collectives.reductions import combine, finish, widen
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT, has_gpu_sizes
from triton_dist.kernels.protocols.barrier import ROW
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.workspace import barrier_state, symmetric_workspace

__all__ = [
    "STAGING_PROGRAMS",
    "Plan",
    "barrier_epoch",
    "plan",
    "push_round",
    "reduce_block",
    "staging",
    "staging_barriers",
]

STAGING_PROGRAMS = 128
_ROW = tl.constexpr(ROW)


def _slot_bytes(n_pes: int) -> int:
    """What a program can receive from one PE in a round."""
    whole = 128 << 10 if has_gpu_sizes() else 1 << 10
    return whole // int(triton.next_power_of_2(n_pes))


def staging(communicator: Communicator, dtype: torch.dtype) -> torch.Tensor:
    """The communicator's staging memory. *Collective* the first time."""
    n_pes = communicator.n_pes
    nbytes = STAGING_PROGRAMS * 2 * n_pes * _slot_bytes(n_pes)
    return symmetric_workspace(communicator, "staging", nbytes // 4, torch.int32).view(dtype)


def staging_barriers(communicator: Communicator) -> torch.Tensor:
    """Barrier state of the programs that use the staging memory."""
    return barrier_state(communicator, "staging")


class Plan(NamedTuple):
    """How a part is cut: ``programs``, which do ``per_round`` blocks of ``block`` elements in each of ``rounds``."""

    programs: int
    rounds: int
    block: int
    per_round: int
    slot: int
    """Elements that a program can receive from one PE in a round."""

    @property
    def all_elements(self) -> int:
        """Of all blocks of a round, of which the last ones may lie behind the part."""
        return self.programs * self.per_round * self.block


def plan(
    part: int, n_pes: int, itemsize: int, programs: int = 0, block_bytes: int = 4096, limit: int = NO_LIMIT
) -> Plan:
    """How to cut parts of so many elements, for at most ``limit`` programs.

    Kernels are compiled for ``per_round``, which therefore is a power of two.
    """
    slot = _slot_bytes(n_pes)
    block = min(block_bytes, slot) // itemsize
    blocks = -(-part // block)
    programs = min(programs or STAGING_PROGRAMS, STAGING_PROGRAMS, blocks, limit)
    per_round = min(slot // (block * itemsize), 1 << (-(-blocks // programs) - 1).bit_length())
    return Plan(programs, -(-blocks // (programs * per_round)), block, per_round, slot // itemsize)


@triton.jit
def barrier_epoch(barriers, program):
    """The epoch of this program's barrier; with the number of a round added it tells which half is next."""
    return tl.load(barriers + program * _ROW + (_ROW - 1))


@triton.jit
def _slot(memory, half, pe, MEMBERS: tl.constexpr, SLOT: tl.constexpr):
    N_PES: tl.constexpr = group_size(MEMBERS)
    return memory + ((tl.program_id(0) * 2 + (half & 1)) * N_PES + pe) * SLOT


@triton.jit
def push_round(
    memory,
    half,
    input,
    n,
    part,
    round,
    MEMBERS: tl.constexpr,
    BLOCK: tl.constexpr,
    PER_ROUND: tl.constexpr,
    SLOT: tl.constexpr,
    WIDE: tl.constexpr = False,
):
    """Store this program's blocks of a round, of all parts but this PE's own, to the PEs that reduce them."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    mine = _slot(memory, half, me, MEMBERS, SLOT)
    of_last = n - (N_PES - 1) * tl.cast(part, tl.int64)  # elements of the last part
    for j in range(PER_ROUND):
        block = widened((round * PER_ROUND + j) * tl.num_programs(0) + tl.program_id(0), WIDE)
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        places = j * BLOCK + tl.arange(0, BLOCK)
        if (block + 1) * BLOCK <= of_last:  # a whole block, even of the last part
            elements = ()
            for i in tl.static_range(1, N_PES):  # all loads are in flight before the first store
                start = ((me + i) % N_PES).to(tl.int64) * part
                elements = elements + (tl.load(input + start + offsets),)  # type: ignore[assignment]  # noqa: RUF005
            for i in tl.static_range(1, N_PES):
                tl.store(at_rank(mine, (me + i) % N_PES, MEMBERS) + places, elements[i - 1])
        else:
            for i in tl.static_range(1, N_PES):
                start = ((me + i) % N_PES).to(tl.int64) * part
                there = (offsets < part) & (start + offsets < n)
                few = tl.load(input + start + offsets, mask=there)
                tl.store(at_rank(mine, (me + i) % N_PES, MEMBERS) + places, few, mask=there)


@triton.jit
def reduce_block(
    memory,
    half,
    input,
    j,
    offsets,
    mask,
    MEMBERS: tl.constexpr,
    OP: tl.constexpr,
    BLOCK: tl.constexpr,
    SLOT: tl.constexpr,
):
    """The reduction of block ``j`` of a round: of what the others have stored here, and of ``input`` at ``offsets``."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    places = j * BLOCK + tl.arange(0, BLOCK)
    total = widen(tl.load(input + offsets, mask=mask))
    for i in tl.static_range(1, N_PES):
        there = _slot(memory, half, (me + i) % N_PES, MEMBERS, SLOT)
        total = combine(total, widen(tl.load(there + places, mask=mask)), OP)
    return finish(total, OP, N_PES)
