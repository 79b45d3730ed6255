"""Litmus tests of tensor descriptors: TMA's accesses, and what the ops promise about them.

On GPUs without TMA Triton makes ordinary loads and stores of these, in the CPU world its interpreter does.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import GPU, check, expect_equal, rounds
from triton_dist import World

ROUNDS = rounds(100_000, 8)
LANES = rounds(8, 2)
ROWS, COLUMNS = 8, 32
RING = 4
STORE, STORE_TO_LOAD, PLAIN_TO_LOAD, PUT_OF_STORED, PUT_SIGNAL_OF_STORED, REDUCE, GET_TO_LOAD = range(7)


@triton.jit
def tile_at(address, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return tl.make_tensor_descriptor(address, [ROWS, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])


@triton.jit
def pass_tiles(
    slots, drafts, sent, taken, wrong, first_row, n_rounds, HOW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Message passing in many lanes: even programs write a tile and then say so, odd ones see it said and then read.

    No reader may find elements of an earlier round than the one that it was told of.
    """
    lane = tl.program_id(0) // 2
    me = dl.my_pe()
    n_pes = dl.n_pes()
    slot = slots + lane * ROWS * COLUMNS
    draft = drafts + lane * ROWS * COLUMNS
    flag = sent + lane
    thanks = taken + lane
    offsets = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    here = tile_at(slot, ROWS, COLUMNS)
    staged = tile_at(draft, ROWS, COLUMNS)
    to = (me + 1) % n_pes
    back = (me + n_pes - 1) % n_pes
    if tl.program_id(0) % 2 == 0:
        there = tile_at(dl.symm_at(slot, to), ROWS, COLUMNS)
        for i in range(1, n_rounds + 1):
            if HOW == 0 or HOW == 1:
                there.store([0, 0], i + offsets)
                dl.signal_op(flag, i, dl.SIGNAL_SET, to)
            elif HOW == 2:
                tl.store(dl.symm_at(slot, to) + offsets, i + offsets)
                dl.signal_op(flag, i, dl.SIGNAL_SET, to)
            elif HOW == 3:
                staged.store([0, 0], i + offsets)
                dl.putmem(slot, draft, ROWS * COLUMNS * 4, to)
                dl.fence()
                dl.signal_op(flag, i, dl.SIGNAL_SET, to)
            elif HOW == 4:
                staged.store([0, 0], i + offsets)
                dl.putmem_signal(slot, draft, ROWS * COLUMNS * 4, flag, i, dl.SIGNAL_SET, to)
            elif HOW == 5:
                there.atomic_add([0, 0], tl.full((ROWS, COLUMNS), 1, tl.int32))
                dl.atomic_set(flag, i, to, sem="release")
            else:
                staged.store([0, 0], i + offsets)
                dl.signal_op(flag, i, dl.SIGNAL_SET, to)
            dl.signal_wait_until(thanks, dl.CMP_GE, i)
    else:
        errors = 0
        for i in range(1, n_rounds + 1):
            token = dl.signal_wait_until(flag, dl.CMP_GE, i)
            row = dl.consume_token(first_row, token)
            if HOW == 1 or HOW == 2:
                found = here.load([row, 0])
            elif HOW == 6:
                dl.getmem(slot, draft, ROWS * COLUMNS * 4, back)
                found = here.load([row, 0])
            else:
                found = tl.load(dl.consume_token(slot, token) + offsets)
            expected = i + offsets
            if HOW == 5:
                expected = tl.full((ROWS, COLUMNS), 1, tl.int32) * i
            errors += tl.sum((found != expected).to(tl.int32))
            dl.signal_op(thanks, i, dl.SIGNAL_SET, back)
        tl.store(wrong + lane, errors)


@triton.jit
def stream_tiles(
    slots, sent, taken, wrong, first_row, n_rounds, STAGES: tl.constexpr, RING: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """The same through a ring of tiles: its reader is pipelined, and returns a tile before it uses what it loaded."""
    lane = tl.program_id(0) // 2
    me = dl.my_pe()
    n_pes = dl.n_pes()
    slot = slots + lane * RING * ROWS * COLUMNS
    flag = sent + lane
    thanks = taken + lane
    if tl.program_id(0) % 2 == 0:
        to = (me + 1) % n_pes
        there = tl.make_tensor_descriptor(dl.symm_at(slot, to), [RING * ROWS, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])
        for i in range(n_rounds):
            if i >= RING:
                dl.signal_wait_until(thanks, dl.CMP_GE, i - RING + 1)
            there.store([i % RING * ROWS, 0], tl.full((ROWS, COLUMNS), 1, tl.int32) * i)
            dl.signal_op(flag, i + 1, dl.SIGNAL_SET, to)
    else:
        back = (me + n_pes - 1) % n_pes
        here = tl.make_tensor_descriptor(slot, [RING * ROWS, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])
        errors = tl.zeros((ROWS, COLUMNS), tl.int32)
        for i in tl.range(0, n_rounds, num_stages=STAGES):
            token = dl.signal_wait_until(flag, dl.CMP_GE, i + 1)
            found = here.load([dl.consume_token(first_row + i % RING * ROWS, token), 0])
            dl.signal_op(thanks, i + 1, dl.SIGNAL_SET, back)
            errors += (found != i).to(tl.int32)
        tl.store(wrong + lane, tl.sum(errors))


def _check_tiles(world: World, how: int) -> None:
    _provide_scratch(world)
    slots, drafts = (triton_dist.zeros(LANES * ROWS * COLUMNS, dtype=torch.int32) for _ in range(2))
    sent, taken = (triton_dist.zeros(LANES, dtype=torch.int64) for _ in range(2))
    wrong = torch.full((LANES,), -1, dtype=torch.int32, device=world.device)
    pass_tiles[(2 * LANES,)](slots, drafts, sent, taken, wrong, 0, ROUNDS, how, ROWS, COLUMNS, num_warps=4)
    triton_dist.barrier_all()
    expect_equal(wrong, torch.zeros(LANES, dtype=torch.int32), f"stale elements in {ROUNDS} rounds, by lane")
    for tensor in (slots, drafts, sent, taken):
        triton_dist.free(tensor)


def _provide_scratch(world: World) -> None:
    """Descriptors that a kernel makes lie in memory that Triton asks for."""
    if GPU:
        triton.set_allocator(lambda size, _alignment, _stream: torch.empty(size, dtype=torch.int8, device=world.device))


@check(maps_all=True)
def tma_store_signal_load(world: World) -> None:
    _check_tiles(world, STORE)


@check(maps_all=True)
def tma_store_signal_tma_load(world: World) -> None:
    _check_tiles(world, STORE_TO_LOAD)


@check(maps_all=True)
def store_signal_tma_load(world: World) -> None:
    _check_tiles(world, PLAIN_TO_LOAD)


@check(maps_all=True)
def tma_store_put_fence_signal(world: World) -> None:
    _check_tiles(world, PUT_OF_STORED)


@check(maps_all=True)
def tma_store_putmem_signal(world: World) -> None:
    _check_tiles(world, PUT_SIGNAL_OF_STORED)


@check(gpu_only=True)  # Triton's interpreter has no reductions of descriptors
def tma_reduction_atomic_load(world: World) -> None:
    _check_tiles(world, REDUCE)


@check(maps_all=True)
def tma_store_signal_get_tma_load(world: World) -> None:
    _check_tiles(world, GET_TO_LOAD)


@check(maps_all=True)
def tma_loads_in_a_pipelined_loop(world: World) -> None:
    _provide_scratch(world)
    for stages in (1, 3, 4):
        slots = triton_dist.zeros(LANES * RING * ROWS * COLUMNS, dtype=torch.int32)
        sent, taken = (triton_dist.zeros(LANES, dtype=torch.int64) for _ in range(2))
        wrong = torch.full((LANES,), -1, dtype=torch.int32, device=world.device)
        stream_tiles[(2 * LANES,)](slots, sent, taken, wrong, 0, ROUNDS, stages, RING, ROWS, COLUMNS, num_warps=4)
        triton_dist.barrier_all()
        expect_equal(wrong, torch.zeros(LANES, dtype=torch.int32), f"stale elements, {stages} stages, by lane")
        for tensor in (slots, sent, taken):
            triton_dist.free(tensor)
