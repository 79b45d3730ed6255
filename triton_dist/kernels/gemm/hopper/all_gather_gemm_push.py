"""All-gather + GEMM, ``push``: C = A · B with A split by rows over the PEs, which store them to their peers themselves.

A: [M, K], of which each PE has a shard of M / n_pes rows, rounded up, or the last PEs fewer; B: [K, N] and C: [M, N]
are each PE's own.

Overlap: programs compute their first tiles in step, from the first block along K to the last. So rows of A are not sent
one after the other, but blocks of all rows, in the order in which all tiles need them, and a GEMM of few tiles begins
when the first blocks have come. Store warps have nothing to store at first. They take this PE's blocks of A to shared
memory and store them to all PEs, this one, too, for tiles with rows of several. Tiles of this PE's rows alone are
loaded from where they are.

K is cut into parts. The last program to send a block of a part signals it to all PEs; a flag counts these. In each
program a warp waits for one part after the other. The last program clears the flags: blocks of the next launch come
when this PE has entered that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.config import K_BYTES, Config, block_k
from triton_dist.kernels.gemm.hopper import all_gather_gemm, tma
from triton_dist.kernels.gemm.hopper.buffers import await_empty, make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, is_last_program
from triton_dist.kernels.gemm.hopper.flags import (
    acquire,
    fence_async_proxy,
    nanoseconds,
    release_all,
    stores_complete,
    wait_peers,
)
from triton_dist.kernels.gemm.hopper.launch import (
    Plan,
    descriptor,
    operand_maps,
    peer_maps,
    scale_argument,
    tile_map,
)
from triton_dist.kernels.gemm.hopper.layout import CHUNKS, ENTERED, K_BEGIN, K_END, TILES
from triton_dist.kernels.gemm.hopper.load import load_b, load_step
from triton_dist.kernels.gemm.hopper.multiply import multiply_tiles
from triton_dist.kernels.gemm.hopper.store import store_tiles
from triton_dist.kernels.gemm.hopper.trace_events import ARRIVAL, record_event, time
from triton_dist.kernels.gemm.hopper.work import field, sums_origin, tile_of, units_of_program
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, Second, launch
from triton_dist.kernels.rates import NVLINK_RATE
from triton_dist.kernels.shards import shard_of

__all__ = ["all_gather_gemm_push_kernel", "make_plan", "run"]

_FLAGS = gl.constexpr(16)
"""How many parts along K have flags, at most."""
_LEAST_STEPS = 4
"""Steps along K of a part, at least: an acquire takes longer than one."""


class Shards(NamedTuple):
    """How A is split: into shards of so many ``rows``, but for the last ones, and each by blocks along K.

    Attributes:
        steps: along K, of a part that has a flag.
        senders: how many programs send this PE's blocks: the last ones, as the first compute tiles of its rows alone,
            whose loads would be in front of what they send.
        interval: nanoseconds from block to block of a PE.
    """

    rows: Any
    steps: Any
    senders: Any
    interval: Any


@gluon.jit(do_not_specialize=["rows", "senders", "interval"])
def all_gather_gemm_push_kernel(
    own_a, b, c, own_a_piece, a, a_piece, a0, a1, a2, a3, a4, a5, a6, a7,
    work, split, scale, epilogue, state, peers, rows, senders, interval, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr, STEPS: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    WORD: gl.constexpr = mbarrier.MBarrierLayout()
    blocks = gl.allocate_shared_memory(own_a.dtype, [2] + own_a.block_shape, own_a.layout)
    loaded = gl.allocate_shared_memory(gl.int64, [2, 1], WORD)
    for stage in gl.static_range(2):
        mbarrier.init(loaded.index(stage), count=1)
    arrived = gl.allocate_shared_memory(gl.int64, [_FLAGS, 1], WORD)
    for part in gl.static_range(_FLAGS):
        mbarrier.init(arrived.index(part), count=1)
    shards = Shards(rows, STEPS, senders, interval)
    of_pes = (a0, a1, a2, a3, a4, a5, a6, a7)
    # fmt: off
    gl.warp_specialize([
        (multiply_tiles, (0, operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS)),
        (multiply_tiles, (1, operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS)),
        (_load, (a, a_piece, own_a, own_a_piece, b, operands, arrived, work, trace, peers, shards, CONFIG,
                 B_BY_COLUMNS)),
        (_store, (own_a, of_pes[:N_PES], blocks, loaded, arrived, c, output, work, trace, state, peers, shards, CONFIG,
                  N_PES)),
        (_receive, (a, arrived, peers, shards, N_PES)),
    ], [4, 1, 1, 1], [232, 40, 40, 24])
    # fmt: on


@gluon.jit
def _receive(a, arrived, peers, shards, N_PES: gl.constexpr):
    """Wait for one part along K after the other, and let the load warp load it. (An acquire takes as long as two steps,
    in which that warp would load nothing.)"""
    for part in range(gl.cdiv(a.shape[1], a.block_shape[1] * shards.steps)):
        acquire(peers.flags + TILES + part, N_PES, "sys")
        mbarrier.arrive(arrived.index(part))


@gluon.jit
def _load(
    a, a_piece, own_a, own_a_piece, b, operands, arrived, work, trace, peers, shards,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
):  # fmt: skip
    """Load the blocks of every unit in order: tiles of this PE's rows of A from ``own_a``, others when all PEs' have
    come."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    B_BYTES: gl.constexpr = b.block_type.nbytes
    me, rows = peers.me, shards.rows
    first, last = units_of_program(work)
    step = 0
    for unit in range(first, last):
        row, column = sums_origin(*tile_of(work, unit), 0, CONFIG)
        first_pe, last_pe = all_gather_gemm.pes_of_tile(row, rows, a.shape[0], CONFIG)
        own = (first_pe == me) & (last_pe == me)
        begin = field(work, unit, K_BEGIN)
        for k in range(begin, field(work, unit, K_END)):
            stage, full = await_empty(operands, step, CONFIG)
            load_b(b, k * BLOCK_K, column, full, operands.b.index(stage), B_BY_COLUMNS)
            if own:
                load_step(own_a, own_a_piece, row - me * rows, k * BLOCK_K, full, operands, stage, B_BYTES, CONFIG)
            else:
                if (k == begin) | (k % shards.steps == 0):
                    began = time(trace)
                    mbarrier.wait(arrived.index(k // shards.steps), 0)
                    fence_async_proxy()
                    if k == begin:
                        record_event(trace, unit, ARRIVAL, began)
                load_step(a, a_piece, row, k * BLOCK_K, full, operands, stage, B_BYTES, CONFIG)
            step += 1


@gluon.jit
def _store(
    own_a, of_pes, blocks, loaded, arrived, c, output, work, trace, state, peers, shards,
    CONFIG: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Send this program's blocks of A, then store tiles. The last program clears the flags, which all have seen."""
    epoch = epoch_of(state)
    admit_peers(peers, epoch, N_PES)
    _push(own_a, of_pes, blocks, loaded, epoch, state, peers, shards, N_PES)
    store_tiles(c, output, work, trace, CONFIG)
    stores_complete()
    mbarrier.wait(arrived.index((own_a.shape[1] - 1) // own_a.block_shape[1] // shards.steps), 0)
    if is_last_program(state):
        end_epoch(state, epoch)
        for part in range(_FLAGS):
            gl.store(peers.flags + TILES + part, 0)


@gluon.jit
def _push(own_a, of_pes, blocks, loaded, epoch, state, peers, shards, N_PES: gl.constexpr):
    """Store blocks of ``own_a`` to the rows of this PE in A on all PEs, ``of_pes``: this one, the next, and so on.

    Senders take blocks round-robin, those of a step along K before those of the next. Each block waits until it is due:
    NVLink moves all that is stored at the same time, so the first steps would arrive with the last ones. A fence for
    all of the system waits for all that any program has in flight to peers, so there is one for a part, by the program
    whose block of it is the last to arrive.
    """
    ALL: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    steps = gl.cdiv(own_a.shape[1], own_a.block_shape[1])
    down = gl.cdiv(own_a.shape[0], own_a.block_shape[0])
    count = down * steps
    number = gl.num_programs(0) - 1 - gl.program_id(0)
    if number < shards.senders:
        _load_block(own_a, blocks, loaded, 0, number, down, count)
        pes = gl.arange(0, 32, ALL)
        distances = gl.load(peers.distances + pes, mask=pes < N_PES, other=0)
        wait_peers(peers.flags + ENTERED, epoch, peers.me, N_PES)
        begin = nanoseconds()
        round = 0
        while number < count:
            mbarrier.wait(loaded.index(round % 2), round // 2 & 1)
            while nanoseconds() - begin - number * shards.interval < 0:
                pass
            for i in gl.static_range(N_PES):
                tma.async_store(of_pes[i], _place_of(own_a, number, down), blocks.index(round % 2))
            _load_block(own_a, blocks, loaded, round + 1, number + shards.senders, down, count)
            stores_complete()
            part = number // down // shards.steps
            of_part = gl.minimum(shards.steps, steps - part * shards.steps) * down
            if gl.atomic_add(state + CHUNKS + part, 1, sem="acq_rel", scope="gpu") == of_part - 1:
                gl.store(state + CHUNKS + part, 0)
                release_all()
                flag = (peers.flags + TILES + part).to(gl.int64)
                there = (flag + distances).to(gl.pointer_type(gl.int32))
                gl.atomic_add(there, gl.full([32], 1, gl.int32, ALL), mask=pes < N_PES, sem="relaxed", scope="sys")
            number += shards.senders
            round += 1


@gluon.jit
def _place_of(own_a, number, down):
    """Row and column of a block of this PE's rows, of which ``down`` lie one below the other."""
    return [number % down * own_a.block_shape[0], number // down * own_a.block_shape[1]]


@gluon.jit
def _load_block(own_a, blocks, loaded, round, number, down, count):
    """Load a block for a sender's round, if there is one; what it stored in the round before the last has arrived."""
    stage = loaded.index(round % 2)
    mbarrier.expect(stage, own_a.block_type.nbytes, pred=number < count)
    tma.async_load(own_a, _place_of(own_a, number, down), stage, blocks.index(round % 2), pred=number < count)


def make_plan(comm: Communicator, a: torch.Tensor, c: torch.Tensor, config: Config, sm_margin: int = 0) -> Plan:
    """The plan for GEMMs of these dtypes, with as many rows of tiles and as many columns. *Collective.*"""
    parts = _FLAGS.value
    return all_gather_gemm.make_plan(
        comm, a, c, config, sm_margin, name="all-gather + GEMM, push", n_flags=TILES.value + parts, state_words=parts
    )


def run(plan: Plan, gemm: Operands, gathered: torch.Tensor) -> Launch | None:
    """c = A · b, times the scale and after the epilogue, on the current stream.

    Args:
        gemm: whose ``a`` are this PE's rows of A; every PE has some, as of more than 64 rows on up to 8 PEs.
        gathered: symmetric memory for all of A.
    """
    comm, config = plan.communicator, plan.config
    a_map, a_piece, b_map, b_by_columns = operand_maps(gathered, gemm.b, config)
    own_a_map, own_a_piece, _, _ = operand_maps(gemm.a, gemm.b, config)
    own = shard_of(gathered.shape[0], gemm.each, comm.my_rank)
    mine, block = gathered[own.start : own.stop], (config.group_m, block_k(gemm.a.dtype))
    return launch(
        all_gather_gemm_push_kernel, plan.grid,
        (own_a_map, b_map, tile_map(gemm.c, config), Second(0, own_a_piece)), a_map, a_piece,
        descriptor(mine, block), *peer_maps(comm, mine, block),
        plan.work, plan.split, scale_argument(gemm), gemm.epilogue, plan.state, plan.peers, gemm.each,
        _senders(plan, gemm, own), _interval(plan, len(own)), plan.trace(), config, b_by_columns, comm.n_pes,
        _steps_of_a_part(config.k_steps(gemm.a)), **plan.options,
    )  # fmt: skip


def _steps_of_a_part(k_steps: int) -> int:
    """Steps along K that share a flag, a power of two."""
    steps = _LEAST_STEPS
    while steps * _FLAGS.value < k_steps:
        steps *= 2
    return steps


def _interval(plan: Plan, rows: int) -> int:
    """Nanoseconds from block to block that a PE with so many rows sends."""
    nbytes = rows * K_BYTES * (plan.communicator.n_pes - 1)  # of a step along K
    return int(1e9 * nbytes / -(-rows // plan.config.group_m) / NVLINK_RATE)


def _senders(plan: Plan, gemm: Operands, own: range) -> int:
    """How many programs send blocks: those that do not begin with a tile of this PE's rows alone, if they are many."""
    (programs,), block_m = plan.grid, plan.config.block_m
    tile_rows, columns = plan.config.tiles(gemm.c)
    last = len(tile_rows) if own.stop == gemm.c.shape[0] else own.stop // block_m
    own_tiles = max(0, last - -(-own.start // block_m)) * len(columns)
    return programs - own_tiles if own_tiles <= 3 * programs // 4 else programs
