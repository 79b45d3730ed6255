"""What the two-level collectives share: memory by program and round, cutting into blocks, the exchange inside a host.

Each program has, in symmetric memory of fixed size:

- *staging*, where the programs of its number on the host's PEs store blocks for it: a row for each member of the group,
  twice. A barrier of the host follows the stores. The halves take turns by the barrier's epoch: a PE stores to a half
  again after the next barrier, at which this program arrives after it has read the half.
- *slots* for messages of the other hosts (``protocols/messages.py``), and one row for each host, from which it sends.

Nothing of a caller's is put or stored to, so no tensor need be symmetric.

Where a program moves the blocks of many PEs, it loads as many of them as its registers hold before it stores the first.
A store needs what its load has brought, and a load behind it may not be moved in front of it; so the blocks of one PE
after the other would cost a load's latency each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from triton_dist.kernels.collectives.parts import is_wide, widened
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT, has_gpu_sizes
from triton_dist.kernels.protocols.barrier import ROW as BARRIER_ROW
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.messages import SLOTS, message_signals, send_message
from triton_dist.kernels.protocols.workspace import barrier_state, symmetric_workspace

__all__ = [
    "Cut",
    "Memory",
    "Staging",
    "are_elements",
    "block_index",
    "blocks_at_once",
    "copy_blocks",
    "cut",
    "epoch_of",
    "memory",
    "outbox",
    "own_slot",
    "rank_at",
    "send_block",
    "share_in_host",
    "slot",
    "staged",
    "staging_of",
    "store_to_host",
    "used",
]

_MOST, _FEWEST = 64, 8  # programs: of the smallest and of large groups
_STAGING = 8 << 20  # bytes of a half of staging memory of all programs
_BARRIER_ROW = tl.constexpr(BARRIER_ROW)
_LARGEST = 16 << 10  # bytes of a block: more would not fit into the registers
_WIDE = 8 << 10  # bytes of a block for which a group has fewer programs: a message costs as much as some thousand bytes
_SMALLEST = 2 << 10  # bytes of a block that is cut no further for the sake of more programs, or of less memory
_LOADED = 64 << 10  # bytes that a program has loaded and not stored yet: 32 registers of each of its 256 threads


class Staging(NamedTuple):
    """How a half of staging memory is divided."""

    programs: int
    room: int
    """Bytes of a program's part of it."""


def staging_of(n_pes: int, *, gpu: bool) -> Staging:
    """The programs of a group of ``n_pes`` PEs, and their memory; ``gpu``: cut for one.

    A block has ``room`` divided by the number of PEs. So that messages stay large, large groups have fewer programs
    with more room each, and the same memory; from 512 PEs on memory grows with their number.
    """
    members = int(triton.next_power_of_2(n_pes))
    if not gpu:  # so that small tensors take many rounds
        return Staging(_MOST, max(2 << 10, 64 * members))
    programs = max(_FEWEST, min(_MOST, _STAGING // (_WIDE * members)))
    return Staging(programs, max(_STAGING // programs, _SMALLEST * members))


class Memory(NamedTuple):
    """What kernels are given, besides the caller's tensors."""

    data: torch.Tensor
    signals: torch.Tensor
    barriers: torch.Tensor


def memory(communicator: Communicator, dtype: torch.dtype) -> Memory:
    """The communicator's memory, as elements of ``dtype``. *Collective* the first time."""
    programs, room = staging_of(communicator.n_pes, gpu=has_gpu_sizes())
    data = symmetric_workspace(communicator, "two-level collectives", programs * 9 * room // 8, torch.int32)
    signals = message_signals(communicator, programs)
    return Memory(data.view(dtype), signals, barrier_state(communicator, "two-level collectives"))


class Cut(NamedTuple):
    """How elements are cut: ``programs``, which do a block of ``block`` elements in each of ``rounds``."""

    programs: int
    rounds: int
    block: int
    room: int
    """Elements of a half of a program's staging memory."""
    wide: bool
    """Whether offsets of elements need 64 bits (``parts.py``)."""


def cut(
    communicator: Communicator, numel: int, itemsize: int, limit: int = NO_LIMIT, *, rows: int = 1, parts: int = 1
) -> Cut:
    """How to cut ``numel`` elements, for at most ``limit`` programs.

    Args:
        rows: how many blocks a message has.
        parts: how many such pieces there are, one after the other, of all of which offsets are made.
    """
    programs, room = staging_of(communicator.n_pes, gpu=has_gpu_sizes())
    members, hosts = (int(triton.next_power_of_2(n)) for n in (communicator.n_pes, communicator.grid.hosts))
    # A half of staging has a row for each member; slots, and what is sent, take half as much for all hosts.
    largest = min(_LARGEST, _LOADED // int(triton.next_power_of_2(communicator.grid.per_host)))
    block = min(largest, room // members, room // 2 // (hosts * int(triton.next_power_of_2(rows)))) // itemsize
    # No larger than what there is: rows of whole blocks are one message, and others a message each.
    block = min(block, max(16 // itemsize, int(triton.next_power_of_2(numel))))
    most = min(programs if has_gpu_sizes() else 4, limit)
    while block * itemsize > _SMALLEST and -(-numel // block) < most:
        block //= 2
    blocks = max(1, -(-numel // block))
    programs = min(most, blocks)
    wide = is_wide(numel * parts, programs * block * parts)
    return Cut(programs, -(-blocks // programs), block, room // itemsize, wide)


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
def block_index(round, WIDE: tl.constexpr):
    """Which block this program does in a round; an int64 where offsets are ``WIDE`` (``parts.py``)."""
    return widened(round * tl.num_programs(0) + tl.program_id(0), WIDE)


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


@triton.constexpr_function
def _at_most(number, most):
    return min(number, most)


@triton.constexpr_function
def blocks_at_once(blocks, size, dtype, most=1 << 10):
    """How many of ``blocks`` blocks with ``size`` elements are loaded before one is stored: a power of two, at most
    ``most``."""
    held = _LOADED // (size * dtype.primitive_bitwidth // 8)
    return max(1, min(triton.next_power_of_2(blocks), held, most))


@triton.jit
def are_elements(exist, begin, offsets, part, total):
    """Which elements of blocks there are, a row for each block.

    Args:
        exist: which of the blocks there are.
        begin: where each one's part of a tensor begins.
        offsets: of a block's elements in a part, which has ``part`` elements.
        total: elements of the tensor, in which the last parts may be shorter; None if they are not.
    """
    if total is None:
        return exist[:, None] & (offsets < part)[None, :]
    else:
        return exist[:, None] & (offsets < part)[None, :] & (begin[:, None] + offsets[None, :] < total)


@triton.jit
def copy_blocks(output, found, ranks, exist, offsets, part, total):
    """Copy a block from each of ``found``, a vector of pointers, to the parts ``ranks`` of ``output``.

    For the other arguments see :func:`are_elements`.
    """
    mask = are_elements(exist, ranks * part, offsets, part, total)
    begin = ranks[:, None] * part
    blocks = tl.load(found[:, None] + tl.arange(0, offsets.shape[0])[None, :], mask=mask)
    tl.store(output + begin + offsets[None, :], blocks, mask=mask)


@triton.jit
def share_in_host(
    input, data, epoch, offsets, part, total, ROW: tl.constexpr, COLUMN: tl.constexpr, BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):  # fmt: skip
    """Store a block of each part of ``input`` to the PE of this host in whose column the part ends.

    For ``offsets``, ``part`` and ``total`` see :func:`are_elements`.
    """
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    PER_HOST: tl.constexpr = group_size(ROW)
    # Half of the registers: loads and stores have an address for each PE, too.
    LOCALS: tl.constexpr = blocks_at_once(PER_HOST, 2 * BLOCK, data.dtype.element_ty)
    AT_ONCE: tl.constexpr = blocks_at_once(N_HOSTS, 2 * LOCALS * BLOCK, data.dtype.element_ty)
    me = my_rank(ROW)
    for first in range(0, N_HOSTS, AT_ONCE):
        hosts = first + tl.arange(0, AT_ONCE)
        for group in tl.static_range(0, PER_HOST, LOCALS):
            blocks = ()
            for j in tl.static_range(group, _at_most(group + LOCALS, PER_HOST)):
                begin = rank_at(hosts, (me + j) % PER_HOST, ROW, COLUMN) * part
                mask = are_elements(hosts < N_HOSTS, begin, offsets, part, total)
                block = tl.load(input + begin[:, None] + offsets[None, :], mask=mask)
                blocks = blocks + (block,)  # type: ignore[assignment]  # noqa: RUF005
            for j in tl.static_range(group, _at_most(group + LOCALS, PER_HOST)):
                local = (me + j) % PER_HOST
                mask = are_elements(hosts < N_HOSTS, rank_at(hosts, local, ROW, COLUMN) * part, offsets, part, total)
                to = at_rank(staged(data, epoch, me, BLOCK, ROOM), local, ROW)
                rows = (hosts * (PER_HOST * BLOCK))[:, None] + tl.arange(0, BLOCK)[None, :]
                tl.store(to + rows, blocks[j - group], mask=mask)


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
