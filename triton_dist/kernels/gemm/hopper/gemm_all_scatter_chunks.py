"""GEMM + all-scatter, ``copy_engine``: C = A · B with B split by columns, and all of C on every PE.

A: [M, K] on every PE, B: [K, N / n_pes] this PE's columns; C: [M, N], symmetric; a PE computes its columns of it.

Overlap: the rows of C are divided into chunks. The kernel stores tiles to this PE's C, and the program that stores the
last tile of a chunk sets the chunk's flag, for which a stream waits that lets the copy engine send it
(``gemm/copy_engine.py``). No multiprocessor takes part in the transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import await_tile_block, make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, is_last_program
from triton_dist.kernels.gemm.hopper.flags import stores_complete
from triton_dist.kernels.gemm.hopper.launch import Plan, operand_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.layout import CHUNKS, PE
from triton_dist.kernels.gemm.hopper.load import load_operands
from triton_dist.kernels.gemm.hopper.memory import symmetric_flags
from triton_dist.kernels.gemm.hopper.multiply import multiply_tiles
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.hopper.store import release_block
from triton_dist.kernels.gemm.hopper.trace_events import SEND, record_event, time
from triton_dist.kernels.gemm.hopper.warps import specialize
from triton_dist.kernels.gemm.hopper.work import block_origin, field, finishes_tile, tile_of, units_of_program
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule
from triton_dist.kernels.prepared import Launch, Second, launch

__all__ = ["Chunks", "gemm_all_scatter_chunks_kernel", "make_plan", "run"]


class Chunks(NamedTuple):
    """The chunks of C.

    Attributes:
        sizes: int32, tiles of each chunk.
        flags: int32, 1 when the chunk is in C; the stream that waits for it clears it. Of the symmetric heap, though no
            peer looks at them: a stream can wait for words there, and not for those of ``cudaMallocAsync``, which
            PyTorch may have its memory from.
    """

    sizes: Any
    flags: Any


@gluon.jit
def gemm_all_scatter_chunks_kernel(
    a, b, c, a_piece, work, split, scale, epilogue, state, peers, chunks, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    if CONFIG.scales_rows:
        scale = scales_of(scale, a)
    specialize(
        multiply_tiles, (operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS),
        load_operands, (a, a_piece, b, operands, work, CONFIG, B_BY_COLUMNS),
        _store, (c, output, work, trace, state, peers, chunks, CONFIG, N_PES),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def _store(c, output, work, trace, state, peers, chunks, CONFIG: gl.constexpr, N_PES: gl.constexpr):
    """Let the peers' copies to this PE begin, store tiles to C, and count those of each chunk."""
    GROUPS: gl.constexpr = CONFIG.groups
    epoch = epoch_of(state)
    first, last = units_of_program(work)
    admit_peers(peers, 1, N_PES)
    phase = 0
    for unit in range(first, last):
        if finishes_tile(work, unit):
            row, column = tile_of(work, unit)
            chunk = field(work, unit, PE)
            began = time(trace)
            for group in gl.static_range(GROUPS):
                began = await_tile_block(output, group, phase, trace, unit, began)
                place = block_origin(row, column, group, CONFIG)
                tma.async_store(c, place, output.blocks.index(group))
                release_block(output, group)
            phase ^= 1
            stores_complete()
            _count_tile(chunk, chunks, state)
            record_event(trace, unit, SEND, began)
    stores_complete()
    if is_last_program(state):
        end_epoch(state, epoch)


@gluon.jit
def _count_tile(chunk, chunks, state):
    """Count a stored tile; the last of its chunk resets the count and sets the flag."""
    if gl.atomic_add(state + CHUNKS + chunk, 1, sem="acq_rel", scope="gpu") == gl.load(chunks.sizes + chunk) - 1:
        gl.store(state + CHUNKS + chunk, 0)
        gl.atomic_xchg(chunks.flags + chunk, 1, sem="release", scope="sys")


def make_plan(
    comm: Communicator, a: torch.Tensor, c: torch.Tensor, config: Config, chunks: Sequence[range], programs: int
) -> tuple[Plan, Chunks]:
    """The plan for GEMMs of these shapes and dtypes, and the memory of the chunks. *Collective.*

    Args:
        chunks: the rows of tiles of each.
    """
    _, columns = config.tiles(c)
    tiles = [Tile(row, column, number) for number, rows in enumerate(chunks) for row, column in grouped(rows, columns)]
    schedule = make_schedule(tiles, config.k_steps(a), programs)
    plan = Plan(comm, "GEMM + all-scatter in chunks", schedule, config, state_words=len(chunks))
    sizes = plan.upload([len(rows) * len(columns) for rows in chunks], torch.int32)
    return plan, Chunks(sizes, symmetric_flags(comm, len(chunks)))


def run(plan: Plan, chunks: Chunks, gemm: Operands) -> Launch | None:
    """c = a · b, times the scale and after the epilogue, this PE's columns of C, on the current stream; and the flags
    of its chunks."""
    config = plan.config_of(gemm)
    a_map, a_piece, b_map, b_by_columns = operand_maps(gemm.a, gemm.b, config)
    return launch(
        gemm_all_scatter_chunks_kernel, plan.grid, (a_map, b_map, tile_map(gemm.c, config), Second(0, a_piece)),
        plan.work, plan.split, scale_argument(gemm), gemm.epilogue, plan.state, plan.peers, chunks, plan.trace(),
        config, b_by_columns, plan.communicator.n_pes, **plan.options,
    )  # fmt: skip
