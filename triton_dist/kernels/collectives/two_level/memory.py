"""What the two-level collectives share: memory by program and round, cutting into blocks, the exchange inside a host.

Each program has, in symmetric memory of fixed size:

- *staging*, where the programs of its number on the host's PEs store blocks for it: a row for each member of the group,
  twice. A barrier of the host follows the stores. The halves take turns by the barrier's epoch: a PE stores to a half
  again after the next barrier, at which this program arrives after it has read the half.
- *slots* for messages of the other hosts (``protocols/messages.py``), and one row for each host, from which it sends.

Nothing of a caller's is put or stored to, so no tensor need be symmetric.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT, has_gpu_sizes
from triton_dist.kernels.protocols.barrier import ROW as BARRIER_ROW
from triton_dist.kernels.protocols.members import at_rank, my_rank
from triton_dist.kernels.protocols.messages import SLOTS, message_signals, send_message
from triton_dist.kernels.protocols.workspace import barrier_state, symmetric_workspace

__all__ = [
    "Cut",
    "Memory",
    "block_index",
    "cut",
    "epoch_of",
    "memory",
    "outbox",
    "own_slot",
    "rank_at",
    "send_block",
    "slot",
    "staged",
    "store_to_host",
    "used",
]

PROGRAMS = 64
_BARRIER_ROW = tl.constexpr(BARRIER_ROW)
_LARGEST = 16 << 10  # bytes of a block: more would not fit into the registers
_SMALLEST = 2 << 10  # bytes of a block that is cut no further for the sake of more programs


def _room(communicator: Communicator) -> int:
    """Bytes of a half of a program's staging memory."""
    if not has_gpu_sizes():  # so that small tensors take many rounds
        return max(2 << 10, 64 * int(triton.next_power_of_2(communicator.n_pes)))
    return 128 << 10


class Memory(NamedTuple):
    """What kernels are given, besides the caller's tensors."""

    data: torch.Tensor
    signals: torch.Tensor
    barriers: torch.Tensor


def memory(communicator: Communicator, dtype: torch.dtype) -> Memory:
    """The communicator's memory, as elements of ``dtype``. *Collective* the first time."""
    words = PROGRAMS * 9 * _room(communicator) // 8
    data = symmetric_workspace(communicator, "two-level collectives", words, torch.int32)
    signals = message_signals(communicator, PROGRAMS)
    return Memory(data.view(dtype), signals, barrier_state(communicator, "two-level collectives"))


class Cut(NamedTuple):
    """How elements are cut: ``programs``, which do a block of ``block`` elements in each of ``rounds``."""

    programs: int
    rounds: int
    block: int
    room: int
    """Elements of a half of a program's staging memory."""


def cut(communicator: Communicator, numel: int, itemsize: int, limit: int = NO_LIMIT, *, rows: int = 1) -> Cut:
    """How to cut ``numel`` elements, for at most ``limit`` programs.

    Args:
        rows: how many blocks a message has.
    """
    room = _room(communicator)
    members, hosts = (int(triton.next_power_of_2(n)) for n in (communicator.n_pes, communicator.grid.hosts))
    # A half of staging has a row for each member; slots, and what is sent, take half as much for all hosts.
    block = min(_LARGEST, room // members, room // 2 // (hosts * int(triton.next_power_of_2(rows)))) // itemsize
    most = min(PROGRAMS if has_gpu_sizes() else 4, limit)
    while block * itemsize > _SMALLEST and -(-numel // block) < most:
        block //= 2
    blocks = max(1, -(-numel // block))
    programs = min(most, blocks)
    return Cut(programs, -(-blocks // programs), block, room // itemsize)


# ---- device code


@triton.constexpr_function
def _steps(row, column):
    """How far apart, by rank, neighbours of a row and of a column are."""
    unit = min(row[1], column[1])
    return row[1] // unit, column[1] // unit


@triton.jit
def rank_at(host, local, ROW: tl.constexpr, COLUMN: tl.constexpr):
    """The rank of the member with number ``local`` on ``host``, an int64."""
    STEPS: tl.constexpr = _steps(ROW, COLUMN)
    return (host * STEPS[1] + local * STEPS[0]).to(tl.int64)


@triton.jit
def block_index(round):
    """Which block this program does in a round."""
    return round * tl.num_programs(0) + tl.program_id(0)


@triton.jit
def used(block, start, part, total, BLOCK: tl.constexpr):
    """How many elements a block has of a part, which begins at element ``start`` of ``total``: at most BLOCK."""
    rest = tl.minimum(total - start, part) - block.to(tl.int64) * BLOCK
    return tl.maximum(tl.minimum(rest, BLOCK), 0)


@triton.jit
def epoch_of(barriers):
    """The epoch of this program's barrier inside the host: of the half of staging that is next."""
    return tl.load(barriers + tl.program_id(0) * _BARRIER_ROW + (_BARRIER_ROW - 1))


@triton.jit
def _area(data, ROOM: tl.constexpr):
    return data + tl.program_id(0) * (9 * ROOM // 2)


@triton.jit
def staged(data, epoch, row, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """Row ``row`` of the half of this program's staging memory that ``epoch`` names."""
    return _area(data, ROOM) + (epoch & 1) * ROOM + row * BLOCK


@triton.jit
def store_to_host(data, epoch, row, local, elements, mask, ROW: tl.constexpr, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """Store a block to a row of staging of this program on the PE with number ``local`` of this host."""
    there = at_rank(staged(data, epoch, row, BLOCK, ROOM), local, ROW)
    tl.store(there + tl.arange(0, BLOCK), elements, mask=mask)


@triton.jit
def slot(data, number, sender, MESSAGE: tl.constexpr, ROOM: tl.constexpr):
    """The slot for message ``number`` of the host ``sender``; messages have at most MESSAGE elements."""
    index = (number & (SLOTS - 1)).to(tl.int32)
    return _area(data, ROOM) + 2 * ROOM + index * (ROOM // 2) + sender * MESSAGE


@triton.jit
def own_slot(data, number, COLUMN: tl.constexpr, MESSAGE: tl.constexpr, ROOM: tl.constexpr):
    """This host's slot, in which a PE keeps what it would send to itself."""
    return slot(data, number, my_rank(COLUMN), MESSAGE, ROOM)


@triton.jit
def outbox(data, host, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """The row from which a block is sent to ``host``."""
    return _area(data, ROOM) + 4 * ROOM + host * BLOCK


@triton.jit
def send_block(data, signals, number, src, count, host, COLUMN: tl.constexpr, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """Send ``count`` elements from ``src`` as message ``number`` to ``host``."""
    SIZE: tl.constexpr = data.dtype.element_ty.primitive_bitwidth // 8
    there = own_slot(data, number, COLUMN, BLOCK, ROOM)
    send_message(signals, number, there, src, count * SIZE, host, COLUMN)
