"""Waits inside a loop that Triton pipelines: a load must not run ahead of the wait that protects it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import check, random_floats
from triton_dist import World

M, N, K, STEP = 64, 64, 512, 64


@triton.jit
def send_slowly(inbox, outbox, arrived, turn, scratch, SIZE: tl.constexpr, CHUNKS: tl.constexpr):
    to = (dl.my_pe() + 1) % dl.n_pes()
    for i in range(CHUNKS):
        for _ in range(30):  # some ten microseconds, so that a load that runs ahead finds the chunk missing
            tl.atomic_add(scratch, 1)
        dl.putmem_signal(inbox + i * SIZE, outbox + i * SIZE, SIZE * 2, arrived + i, turn, dl.SIGNAL_SET, to)


@triton.jit
def multiply_arriving(
    inbox, b, c, arrived, turn, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, CHUNKS: tl.constexpr
):
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    inner = tl.arange(0, STEP)
    a_pointers = inbox + rows[:, None] * STEP + inner[None, :]
    b_pointers = b + inner[:, None] * N + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in range(CHUNKS):
        token = dl.signal_wait_until(arrived + i, dl.CMP_GE, turn)
        a_tile = tl.load(dl.consume_token(a_pointers + i * M * STEP, token))
        b_tile = tl.load(b_pointers + i * STEP * N)
        total = tl.dot(a_tile, b_tile, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def arriving_gemm(
    inbox,
    outbox,
    b,
    c,
    arrived,
    turn,
    scratch,
    M: tl.constexpr,
    N: tl.constexpr,
    STEP: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    if tl.program_id(0) == 0:
        send_slowly(inbox, outbox, arrived, turn, scratch, M * STEP, CHUNKS)
    else:
        multiply_arriving(inbox, b, c, arrived, turn, M, N, STEP, CHUNKS)


def _check_stages(world: World, stages: int) -> None:
    """A [M, K] arrives from the previous PE in chunks of columns, while it is multiplied with B [K, N]."""
    chunks = K // STEP
    inbox = triton_dist.full((chunks, M, STEP), float("nan"), dtype=torch.float16)
    outbox = triton_dist.zeros(chunks, M, STEP, dtype=torch.float16)
    arrived = triton_dist.zeros(chunks, dtype=torch.int64)
    scratch = torch.zeros(1, dtype=torch.int32, device=world.device)
    b = random_floats(K, N, seed=99).half()
    b_here = b.to(world.device)
    previous = (world.pe - 1) % world.n_pes
    for turn in range(1, 4):
        outbox.copy_(random_floats(chunks, M, STEP, seed=turn + 1000 * world.pe).half())
        c = torch.zeros(M, N, device=world.device)
        triton_dist.barrier_all()
        arriving_gemm[(2,)](
            inbox, outbox, b_here, c, arrived, turn, scratch, M=M, N=N, STEP=STEP, CHUNKS=chunks, num_stages=stages
        )
        triton_dist.barrier_all()
        a = random_floats(chunks, M, STEP, seed=turn + 1000 * previous).half().transpose(0, 1).reshape(M, K)
        error = (c.cpu().double() - a.double() @ b.double()).abs().max().item()
        assert error < 1e-2, f"turn {turn} with {stages} stages: error {error}"  # NaN fails, too
    for tensor in (inbox, outbox, arrived):
        triton_dist.free(tensor)


@check
def wait_in_a_loop_of_1_stage(world: World) -> None:
    _check_stages(world, 1)


@check
def wait_in_a_loop_of_3_stages(world: World) -> None:
    _check_stages(world, 3)


@check
def wait_in_a_loop_of_4_stages(world: World) -> None:
    _check_stages(world, 4)
