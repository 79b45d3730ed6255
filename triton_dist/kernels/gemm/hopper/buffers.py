"""Shared memory of a program: a ring of operand blocks, and the finished tile before it is stored.

Each buffer has a pair of mbarriers, as in CUTLASS's pipelines: ``full`` when it may be read, ``empty`` when it may be
written. The parity that a warp waits for follows from the number of the step or tile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper.trace_events import TILE, record_event, time

__all__ = [
    "OperandRing",
    "TileBuffer",
    "await_empty",
    "await_full",
    "await_tile_block",
    "begin_stage",
    "make_operand_ring",
    "make_tile_buffer",
]


class OperandRing(NamedTuple):
    """``CONFIG.stages`` stages; a stage holds the blocks of A and B of one step along K.

    Attributes:
        a: [stages · groups, group_m, block_k], a block for each multiply group.
        b: [stages, block_k, block_n], or [stages, block_n, block_k] if B has contiguous columns.
        full, empty: mbarriers [stages].
    """

    a: Any
    b: Any
    full: Any
    empty: Any


class TileBuffer(NamedTuple):
    """A tile of C in shared memory, between the groups that multiply and the warp that stores.

    Attributes:
        blocks: [groups, group_m, c_columns].
        full, empty: mbarriers [groups].
    """

    blocks: Any
    full: Any
    empty: Any


@gluon.jit
def make_operand_ring(a, b, CONFIG: gl.constexpr):
    """An empty ring for blocks as the descriptors ``a`` and ``b`` load them."""
    STAGES: gl.constexpr = CONFIG.stages
    WORD: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], WORD)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], WORD)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=CONFIG.groups)
    a_blocks = gl.allocate_shared_memory(a.dtype, [STAGES * CONFIG.groups] + a.block_shape, a.layout)
    b_blocks = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    return OperandRing(a_blocks, b_blocks, full, empty)


@gluon.jit
def make_tile_buffer(c, CONFIG: gl.constexpr):
    """An empty buffer for a tile, a block of the descriptor ``c`` for each group."""
    GROUPS: gl.constexpr = CONFIG.groups
    WORD: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], WORD)
    empty = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], WORD)
    for group in gl.static_range(GROUPS):
        mbarrier.init(full.index(group), count=1)
        mbarrier.init(empty.index(group), count=1)
    blocks = gl.allocate_shared_memory(c.dtype, [GROUPS] + c.block_shape, c.layout)
    return TileBuffer(blocks, full, empty)


@gluon.jit
def begin_stage(operands, step, NBYTES: gl.constexpr, CONFIG: gl.constexpr):
    """Wait until the stage of a step is empty, and let it be full when ``NBYTES`` have arrived.

    Returns its number and the barrier that counts the bytes.
    """
    stage, full = await_empty(operands, step, CONFIG)
    mbarrier.expect(full, NBYTES)
    return stage, full


@gluon.jit
def await_empty(operands, step, CONFIG: gl.constexpr):
    """Wait until the stage of a step is empty. Returns its number and the barrier that counts what arrives in it."""
    stage = step % CONFIG.stages
    mbarrier.wait(operands.empty.index(stage), (step // CONFIG.stages & 1) ^ 1)
    return stage, operands.full.index(stage)


@gluon.jit
def await_full(operands, step, CONFIG: gl.constexpr):
    """Wait until the stage of a step is full. Returns its number."""
    stage = step % CONFIG.stages
    mbarrier.wait(operands.full.index(stage), step // CONFIG.stages & 1)
    return stage


@gluon.jit
def await_tile_block(output, group: gl.constexpr, phase, trace, unit, began):
    """Wait until a group's block of a tile is full. Returns since when the store warp sends the tile, for its trace."""
    mbarrier.wait(output.full.index(group), phase)
    if group == 0:
        record_event(trace, unit, TILE, began)
        began = time(trace)
    return began
