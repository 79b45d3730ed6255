"""GEMM + all-scatter, ``fused_producer_consumer``: C = A · B with B split by columns, and all of C on every PE.

A: [M, K] on every PE, B: [K, N / n_pes] this PE's columns; C: [M, N], symmetric; a PE computes its columns of it.

Overlap: most programs compute and store tiles to this PE's C. The last ``COMM_PROGRAMS`` ones send them: their load
warps wait for a tile's flag and load it into the operand ring, whose blocks of B are no smaller than those of
C, and their store warps store it to all peers. The tiles of the last round have no flag. Their programs send them
themselves, unthrottled, since no computation is left that this could disturb.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import LARGE
from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import (
    await_full,
    await_tile_block,
    begin_stage,
    make_operand_ring,
    make_tile_buffer,
)
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, exchange_done, is_last_program
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy, stores_complete, wait_peers
from triton_dist.kernels.gemm.hopper.launch import Plan, operand_maps, peer_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.layout import CHUNKS, ENTERED, PE
from triton_dist.kernels.gemm.hopper.load import load_operands
from triton_dist.kernels.gemm.hopper.multiply import multiply_tiles
from triton_dist.kernels.gemm.hopper.reinterpret import reinterpret
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.hopper.store import release_block
from triton_dist.kernels.gemm.hopper.trace_events import ARRIVAL, PEERS, SEND, TILE, record_event, time
from triton_dist.kernels.gemm.hopper.warps import specialize
from triton_dist.kernels.gemm.hopper.work import block_origin, field, finishes_tile, tile_of, units_of_program
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule
from triton_dist.kernels.prepared import Launch, Second, launch

__all__ = ["gemm_all_scatter_comm_programs_kernel", "make_plan", "run"]

_IN_FLIGHT = gl.constexpr(3)  # blocks of a sending program
_LAST_IN_FLIGHT = gl.constexpr(16)  # stores of a computing program in the last round


@gluon.jit
def gemm_all_scatter_comm_programs_kernel(
    a, b, a_piece, c, c1, c2, c3, c4, c5, c6, c7, work, split, scale, epilogue, state, peers, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr, COMM_PROGRAMS: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    peers_c = (c1, c2, c3, c4, c5, c6, c7)
    if CONFIG.scales_rows:
        scale = scales_of(scale, a)
    specialize(
        _multiply, (operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS, COMM_PROGRAMS),
        _load, (a, a_piece, b, c, operands, work, trace, state, CONFIG, B_BY_COLUMNS, COMM_PROGRAMS),
        _store, (c, peers_c[: N_PES - 1], operands, output, work, trace, state, peers, CONFIG, N_PES, COMM_PROGRAMS),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def _sends(COMM_PROGRAMS: gl.constexpr):
    """Whether this program sends what others compute."""
    return gl.program_id(0) >= gl.num_programs(0) - COMM_PROGRAMS


@gluon.jit
def _multiply(
    GROUP: gl.constexpr, operands, output, work, trace, state, split, scale, epilogue,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, COMM_PROGRAMS: gl.constexpr,
):  # fmt: skip
    if not _sends(COMM_PROGRAMS):
        multiply_tiles(GROUP, operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS)


@gluon.jit
def _load(
    a, a_piece, b, c, operands, work, trace, state,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, COMM_PROGRAMS: gl.constexpr,
):  # fmt: skip
    if _sends(COMM_PROGRAMS):
        _load_finished_tiles(c, operands, work, trace, state, CONFIG)
    else:
        load_operands(a, a_piece, b, operands, work, CONFIG, B_BY_COLUMNS)


@gluon.jit
def _blocks_of_c(c, operands, CONFIG: gl.constexpr):
    """The ring's blocks of B as blocks of C, ``CONFIG.fold`` of them in each stage, of which the first is used."""
    return reinterpret(operands.b, c.dtype, [CONFIG.stages * CONFIG.fold] + c.block_shape, c.layout)


@gluon.jit
def _load_finished_tiles(c, operands, work, trace, state, CONFIG: gl.constexpr):
    """Load every tile of this program's list, when its flag says that it is in C."""
    GROUPS: gl.constexpr = CONFIG.groups
    blocks = _blocks_of_c(c, operands, CONFIG)
    epoch = epoch_of(state)
    first, last = units_of_program(work)
    step = 0
    for unit in range(first, last):
        row, column = tile_of(work, unit)
        began = time(trace)
        acquire(state + field(work, unit, PE), epoch, "gpu")
        record_event(trace, unit, ARRIVAL, began)
        fence_async_proxy()
        for group in gl.static_range(GROUPS):
            stage, full = begin_stage(operands, step, c.block_type.nbytes, CONFIG)
            place = block_origin(row, column, group, CONFIG)
            tma.async_load(c, place, full, blocks.index(stage * CONFIG.fold))
            step += 1


@gluon.jit
def _store(
    c, peers_c, operands, output, work, trace, state, peers,
    CONFIG: gl.constexpr, N_PES: gl.constexpr, COMM_PROGRAMS: gl.constexpr,
):  # fmt: skip
    epoch = epoch_of(state)
    first, last = units_of_program(work)
    admit_peers(peers, epoch, N_PES)
    if _sends(COMM_PROGRAMS):
        _send_loaded_tiles(c, peers_c, operands, work, first, last, trace, peers, epoch, CONFIG, N_PES)
    else:
        _store_tiles(c, peers_c, output, work, first, last, trace, state, peers, epoch, CONFIG, N_PES)
    stores_complete()
    if is_last_program(state):
        end_epoch(state, epoch)
        exchange_done(peers, epoch, work, trace, N_PES)


@gluon.jit
def _send_loaded_tiles(
    c, peers_c, operands, work, first, last, trace, peers, epoch, CONFIG: gl.constexpr, N_PES: gl.constexpr
):
    """Store every tile that the load warp has loaded to all peers, ``_IN_FLIGHT`` blocks at a time."""
    GROUPS: gl.constexpr = CONFIG.groups
    blocks = _blocks_of_c(c, operands, CONFIG)
    step = 0
    if first < last:
        began = time(trace)
        wait_peers(peers.flags + ENTERED, epoch, peers.me, N_PES)
        record_event(trace, first, PEERS, began)
    for unit in range(first, last):
        row, column = tile_of(work, unit)
        began = time(trace)
        for group in gl.static_range(GROUPS):
            stage = await_full(operands, step, CONFIG)
            if group == 0:
                record_event(trace, unit, TILE, began)
                began = time(trace)
            place = block_origin(row, column, group, CONFIG)
            for i in gl.static_range(N_PES - 1):
                tma.async_store(peers_c[i], place, blocks.index(stage * CONFIG.fold))
            tma.store_wait((_IN_FLIGHT - 1) * (N_PES - 1))
            done = (step + CONFIG.stages - (_IN_FLIGHT - 1)) % CONFIG.stages
            mbarrier.arrive(operands.empty.index(done), count=GROUPS, pred=step >= _IN_FLIGHT - 1)
            step += 1
        record_event(trace, unit, SEND, began)


@gluon.jit
def _store_tiles(
    c, peers_c, output, work, first, last, trace, state, peers, epoch, CONFIG: gl.constexpr, N_PES: gl.constexpr
):
    """Store tiles to this PE's C and set their flags; those without a flag go to all peers as well."""
    GROUPS: gl.constexpr = CONFIG.groups
    phase = 0
    peers_ready = False
    for unit in range(first, last):
        if finishes_tile(work, unit):
            row, column = tile_of(work, unit)
            flag = field(work, unit, PE)
            if not peers_ready and flag < 0:
                began = time(trace)
                wait_peers(peers.flags + ENTERED, epoch, peers.me, N_PES)
                record_event(trace, unit, PEERS, began)
                peers_ready = True
            began = time(trace)
            for group in gl.static_range(GROUPS):
                began = await_tile_block(output, group, phase, trace, unit, began)
                place = block_origin(row, column, group, CONFIG)
                tma.async_store(c, place, output.blocks.index(group))
                if flag < 0:
                    for i in gl.static_range(N_PES - 1):
                        tma.async_store(peers_c[i], place, output.blocks.index(group))
                        stores_complete(_LAST_IN_FLIGHT - 1)
                release_block(output, group)
            phase ^= 1
            if flag >= 0:
                stores_complete()
                gl.atomic_xchg(state + flag, epoch, sem="release", scope="gpu")
            record_event(trace, unit, SEND, began)


def make_plan(
    comm: Communicator, a: torch.Tensor, c: torch.Tensor, comm_programs: int, sm_margin: int = 0, fold: int = 1,
    of_blocks: bool = False,
) -> Plan:  # fmt: skip
    """The plan for GEMMs of these shapes and dtypes, with scales of blocks or others. *Collective.*"""
    config, programs = replace(LARGE, fold=fold, of_blocks=of_blocks), portable.programs(sm_margin) - comm_programs
    places = list(grouped(*config.tiles(c)))
    # Tiles before the last round have a flag, a word of state, and are sent by programs that compute nothing.
    last = len(places) - programs
    tiles = [Tile(row, column, CHUNKS.value + i if i < last else -1) for i, (row, column) in enumerate(places)]
    sent = [tile for tile in tiles if tile.pe >= 0]
    schedule = make_schedule(
        tiles, config.k_steps(a), programs, forwarded=[sent[i::comm_programs] for i in range(comm_programs)]
    )
    return Plan(comm, "GEMM + all-scatter, communication programs", schedule, config, state_words=len(tiles))


def run(plan: Plan, comm_programs: int, gemm: Operands) -> Launch | None:
    """c = a · b, times the scale and after the epilogue, on every PE, on the current stream.

    Args:
        gemm: whose ``c`` are this PE's columns of a symmetric matrix.
    """
    comm, config = plan.communicator, plan.config_of(gemm)
    a_map, a_piece, b_map, b_by_columns = operand_maps(gemm.a, gemm.b, config)
    return launch(
        gemm_all_scatter_comm_programs_kernel, plan.grid, (a_map, b_map, Second(0, a_piece)),
        tile_map(gemm.c, config), *peer_maps(comm, gemm.c, (config.group_m, config.c_columns)),
        plan.work, plan.split, scale_argument(gemm), gemm.epilogue, plan.state, plan.peers, plan.trace(),
        config, b_by_columns, comm.n_pes, comm_programs, **plan.options,
    )  # fmt: skip
