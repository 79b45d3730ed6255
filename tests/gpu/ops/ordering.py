"""fence, quiet, barriers, and the order that signals give to plain remote stores. Each round would show stale data."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import check, expect_equal, random_bytes, rounds
from triton_dist import World

BLOCK = 2048
PUT_FENCE_SIGNAL, PUT_NBI_QUIET_SIGNAL, STORE_SIGNAL, STORE_FENCE_STORE, PUT_PE_FENCE, PUT_NBI_PE_QUIET = range(6)


@triton.jit
def message_rounds(box, draft, sent, taken, wrong, n_rounds, HOW: tl.constexpr, BLOCK: tl.constexpr):
    """Program 0 writes a block of round numbers to the next PE and says so; program 1 counts wrong ones and thanks."""
    me = dl.my_pe()
    n_pes = dl.n_pes()
    offsets = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        to = (me + 1) % n_pes
        for i in range(1, n_rounds + 1):
            values = i * BLOCK + offsets
            if HOW == 2:
                tl.store(dl.symm_at(box, to) + offsets, values)
                dl.signal_op(sent, i, dl.SIGNAL_SET, to)
            elif HOW == 3:
                tl.store(dl.symm_at(box, to) + offsets, values)
                dl.fence()
                dl.signal_op(sent, 1, dl.SIGNAL_ADD, to)
            else:
                tl.store(draft + offsets, values)
                if HOW == 0:
                    dl.putmem(box, draft, BLOCK * 4, to)
                    dl.fence()
                elif HOW == 4:
                    dl.putmem(box, draft, BLOCK * 4, to)
                    dl.pe_fence(to)
                else:
                    dl.putmem_nbi(box, draft, BLOCK * 4, to)
                    if HOW == 5:
                        dl.pe_quiet(to)
                    else:
                        dl.quiet()
                    tl.store(draft + offsets, -values)  # quiet: the source is free again
                dl.signal_op(sent, i, dl.SIGNAL_SET, to)
            dl.signal_wait_until(taken, dl.CMP_GE, i)
    else:
        back = (me + n_pes - 1) % n_pes
        errors = 0
        for i in range(1, n_rounds + 1):
            token = dl.signal_wait_until(sent, dl.CMP_GE, i)
            values = tl.load(dl.consume_token(box, token) + offsets)
            errors += tl.sum((values != i * BLOCK + offsets).to(tl.int32))
            dl.signal_op(taken, i, dl.SIGNAL_SET, back)
        tl.store(wrong, errors)


@triton.jit
def barrier_rounds(table, draft, wrong, n_rounds, SYNC: tl.constexpr, BLOCK: tl.constexpr):
    """Every PE writes a round number into its row on every PE; between two barriers all rows must be of this round."""
    me = dl.my_pe()
    n_pes = dl.n_pes()
    offsets = tl.arange(0, BLOCK)
    errors = 0
    for i in range(1, n_rounds + 1):
        tl.store(draft + offsets, i + offsets)
        for d in range(n_pes):
            dl.putmem_nbi(table + me * BLOCK, draft, BLOCK * 4, (me + d) % n_pes)
        if SYNC:
            dl.quiet()
            dl.sync_all()
        else:
            dl.barrier_all()
        for pe in range(n_pes):
            errors += tl.sum((tl.load(table + pe * BLOCK + offsets) != i + offsets).to(tl.int32))
        if SYNC:
            dl.sync_all()
        else:
            dl.barrier_all()
    tl.store(wrong, errors)


@triton.jit
def put_and_flag(dst, src, nbytes, flag):
    to = (dl.my_pe() + 1) % dl.n_pes()
    dl.putmem_nbi(dst, src, nbytes, to)
    dl.quiet()
    dl.signal_op(flag, 1, dl.SIGNAL_SET, to)


@triton.jit
def wait_for(flag, value):
    dl.signal_wait_until(flag, dl.CMP_GE, value)


def _check_messages(world: World, how: int) -> None:
    for warps in (1, 4, 8):
        box = triton_dist.zeros(BLOCK, dtype=torch.int32)
        draft = triton_dist.zeros(BLOCK, dtype=torch.int32)
        sent = triton_dist.zeros(1, dtype=torch.int64)
        taken = triton_dist.zeros(1, dtype=torch.int64)
        wrong = torch.full((1,), -1, dtype=torch.int32, device=world.device)
        n = rounds(1000, 5)
        message_rounds[(2,)](box, draft, sent, taken, wrong, n, HOW=how, BLOCK=BLOCK, num_warps=warps)
        triton_dist.barrier_all()
        expect_equal(wrong, torch.zeros(1, dtype=torch.int32), f"stale elements in {n} rounds with {warps} warps")
        for tensor in (box, draft, sent, taken):
            triton_dist.free(tensor)


@check
def fence_orders_put_and_signal(world: World) -> None:
    _check_messages(world, PUT_FENCE_SIGNAL)


@check
def quiet_completes_put_nbi(world: World) -> None:
    _check_messages(world, PUT_NBI_QUIET_SIGNAL)


@check
def pe_fence_orders_put_and_signal(world: World) -> None:
    _check_messages(world, PUT_PE_FENCE)


@check
def pe_quiet_completes_put_nbi(world: World) -> None:
    _check_messages(world, PUT_NBI_PE_QUIET)


@check(maps_all=True)
def signal_publishes_remote_stores(world: World) -> None:
    _check_messages(world, STORE_SIGNAL)


@check(maps_all=True)
def fence_orders_remote_stores(world: World) -> None:
    _check_messages(world, STORE_FENCE_STORE)


def _check_barrier(world: World, sync: bool) -> None:
    table = triton_dist.zeros(world.n_pes, BLOCK, dtype=torch.int32)
    draft = triton_dist.zeros(BLOCK, dtype=torch.int32)
    wrong = torch.full((1,), -1, dtype=torch.int32, device=world.device)
    n = rounds(500, 4)
    barrier_rounds[(1,)](table, draft, wrong, n, SYNC=sync, BLOCK=BLOCK)
    triton_dist.barrier_all()
    expect_equal(wrong, torch.zeros(1, dtype=torch.int32), f"elements of another round in {n} rounds")
    triton_dist.free(table)
    triton_dist.free(draft)


@check
def barrier_all_on_the_device(world: World) -> None:
    _check_barrier(world, sync=False)


@check
def sync_all_on_the_device(world: World) -> None:
    _check_barrier(world, sync=True)


@check
def a_later_kernel_sees_what_a_wait_kernel_waited_for(world: World) -> None:
    n = rounds(1 << 22, 1 << 12)
    source = triton_dist.from_tensor(random_bytes(n, world.pe))
    target = triton_dist.zeros(n, dtype=torch.uint8)
    flag = triton_dist.zeros(1, dtype=torch.int64)
    put_and_flag[(1,)](target, source, n, flag)
    wait_for[(1,)](flag, 1)
    expect_equal(target.clone(), random_bytes(n, (world.pe - 1) % world.n_pes), "what a torch kernel reads afterwards")
    triton_dist.barrier_all()
    for tensor in (source, target, flag):
        triton_dist.free(tensor)
