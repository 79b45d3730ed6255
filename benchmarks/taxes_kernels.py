"""Kernels that the library has no use for, between bulk-synchronous and fused ones.

- The second kernel of a flash decode in two: with a barrier, behind which every PE reads and combines all results; and
  without, each result with a flag beside each word.
- An all-gather + GEMM in one kernel that loads A from its peers: nothing is stored in between, and a peer's rows come
  over NVLink once for each column of tiles.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_dist.kernels import Communicator
from triton_dist.kernels.attention.exchange import (
    HEADER,
    combined,
    half_of,
    launch_number,
    look_at_columns,
    look_at_ends,
    send_rows,
    sum_of_rows,
    weights_of,
)
from triton_dist.kernels.device import sms
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.workspace import barrier_state, symmetric_workspace
from triton_dist.kernels.tracing.events import COMPUTE, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["combine_behind_barrier", "combine_on_arrival", "gemm_from_peers"]

_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _combine(parts, out, barriers, trace, n_rows, DV: tl.constexpr, MEMBERS: tl.constexpr):
    program, columns = tl.program_id(0), tl.arange(0, DV)
    barrier(barriers, program, MEMBERS, trace, 0)
    began = clock(trace)
    for row in range(program, n_rows, tl.num_programs(0)):
        total = tl.zeros([DV], tl.float32)
        largest, weight = float("-inf"), 0.0
        for rank in tl.static_range(group_size(MEMBERS)):
            part = at_rank(parts, rank, MEMBERS) + row * (DV + 1)
            lse = tl.load(part + DV)
            now = tl.maximum(largest, lse)
            kept = tl.where(largest == float("-inf"), 0.0, tl.exp(largest - now))
            added = tl.where(lse == float("-inf"), 0.0, tl.exp(lse - now))
            total = total * kept + tl.load(part + columns) * added
            weight = weight * kept + added
            largest = now
        tl.store(out + row * DV + columns, (total / tl.where(weight == 0.0, 1.0, weight)).to(out.dtype.element_ty))
    record_event(trace, COMPUTE, 0, began)
    barrier(barriers, program, MEMBERS, trace, 1)  # what the peers read here may be overwritten


def combine_behind_barrier(comm: Communicator, parts: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The whole of all PEs' partial results.

    Args:
        parts: float32 [requests, heads, dim + 1], symmetric: this PE's results, divided already, and their logarithms.
            A barrier between the programs of equal number says that they are complete on all PEs.
    """
    *shape, width = parts.shape
    rows = parts.numel() // width
    out = torch.empty(*shape, width - 1, dtype=dtype, device=parts.device)
    grid = min(rows, 128 if comm.world.kind == "gpu" else 4)
    trace = record("combine", grid)
    _combine[(grid,)](parts, out, barrier_state(comm, "combine"), trace, rows, width - 1, comm.members)
    return out


@triton.jit(do_not_specialize=["n_rows"])
def _combine_on_arrival(
    parts, logarithms, out, slots, half, trace, n_rows, DV: tl.constexpr, PES: tl.constexpr, MEMBERS: tl.constexpr
):
    program, columns = tl.program_id(0), tl.arange(0, DV)
    number = launch_number(slots)
    here = half_of(slots, number, half)
    began = clock(trace)
    for row in range(program, n_rows, tl.num_programs(0)):
        rows = row + tl.arange(0, 1)
        largest = tl.load(logarithms + rows) * _LOG2_E  # of one divided result: its logit, with a weight of 1
        weight = tl.where(largest == float("-inf"), 0.0, 1.0)
        total = tl.load(parts + rows[:, None] * DV + columns[None, :]).to(tl.float32)
        send_rows(here, rows, rows, rows < n_rows, n_rows, total, largest, weight, number, False, MEMBERS)
    record_event(trace, COMPUTE, 0, began)
    count = 0
    for row in range(program, n_rows, tl.num_programs(0)):
        rows = row + tl.arange(0, 1)
        there = rows < n_rows
        found = look_at_columns(here, rows, there, n_rows, 0, DV, DV, PES, MEMBERS)
        ends = look_at_ends(here, rows, there, n_rows, DV, PES, MEMBERS)
        factors, _, weight = weights_of(ends, here, row, rows, there, n_rows, number, trace, row, DV, PES, MEMBERS)
        total = sum_of_rows(found, here, row, rows, there, n_rows, factors, 0, number, trace, row, DV, DV, MEMBERS)
        total /= tl.where(weight == 0.0, 1.0, weight)[:, None]
        tl.store(out + rows[:, None] * DV + columns[None, :], total.to(out.dtype.element_ty))
        count += 1
    combined(slots, number, count, n_rows)


def combine_on_arrival(comm: Communicator, parts: torch.Tensor, logarithms: torch.Tensor) -> torch.Tensor:
    """The whole of all PEs' partial results, which are sent with a flag beside each word, and awaited one by one.

    Args:
        parts: [requests, heads, dim], this PE's results, divided already. logarithms: float32 [requests, heads].
    """
    rows, dim = logarithms.numel(), parts.shape[-1]
    out = torch.empty_like(parts)
    words = comm.n_pes * rows * (dim + 2)
    slots = symmetric_workspace(comm, "combine on arrival", HEADER.value + 2 * words, torch.int64)
    grid = min(rows, 128 if comm.world.kind == "gpu" else 4)
    _combine_on_arrival[(grid,)](
        parts, logarithms, out, slots, (slots.numel() - HEADER.value) // 2, record("combine on arrival", grid), rows,
        dim, triton.next_power_of_2(comm.n_pes), comm.members, num_warps=1,
    )  # fmt: skip
    return out


@triton.jit
def _gemm_from_peers(
    a, b, c, barriers, trace, each, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = group_size(MEMBERS)
    NBYTES: tl.constexpr = a.dtype.element_ty.primitive_bitwidth // 8
    program, inner = tl.program_id(0), tl.arange(0, BLOCK_K)
    tiles_m = tl.cdiv(each, BLOCK_M)
    of_a_pe = tiles_m * tl.cdiv(N, BLOCK_N)
    barrier(barriers, program, MEMBERS, trace, 0)  # rows are complete on all PEs
    for tile in range(program, SIZE * of_a_pe, tl.num_programs(0)):
        began = clock(trace)
        rank = (my_rank(MEMBERS) + tile // of_a_pe) % SIZE  # this PE's own rows first
        rows = tile % of_a_pe % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile % of_a_pe // tiles_m * BLOCK_N + tl.arange(0, BLOCK_N)
        distance = (at_rank(a, rank, MEMBERS).to(tl.int64) - a.to(tl.int64)) // NBYTES
        a_at = a + tl.multiple_of(distance, 16) + (rows % each).to(tl.int64)[:, None] * K + inner[None, :]
        b_at = b + inner.to(tl.int64)[:, None] * N + (columns % N)[None, :]
        sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for _ in range(0, K, BLOCK_K):
            sums = tl.dot(tl.load(a_at), tl.load(b_at), sums, input_precision="ieee")
            a_at += BLOCK_K
            b_at += BLOCK_K * N
        places = c + (rank * each + rows).to(tl.int64)[:, None] * N + columns[None, :]
        tl.store(places, sums.to(c.dtype.element_ty), mask=(rows < each)[:, None] & (columns < N)[None, :])
        record_event(trace, COMPUTE, tile, began)
    barrier(barriers, program, MEMBERS, trace, 1)  # what the peers read here may be overwritten


def gemm_from_peers(comm: Communicator, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``out`` = A · ``b``, of every PE's rows ``a``: tiles of A are loaded from where they lie.

    Args:
        a: [M / n_pes, K], contiguous and symmetric; K is a multiple of 64.
        b: [K, N], contiguous. out: [M, N], contiguous.
    """
    block_m, block_n, block_k = (128, 256, 64) if comm.world.kind == "gpu" else (16, 16, 16)
    (each, k), n = a.shape, b.shape[1]
    tiles = comm.n_pes * triton.cdiv(each, block_m) * triton.cdiv(n, block_n)
    grid = min(tiles, sms())  # they synchronise, and so run at one time
    _gemm_from_peers[(grid,)](
        a, b, out, barrier_state(comm, "GEMM from peers"), record("GEMM from peers", grid, 4 + tiles // grid),
        each, n, k, block_m, block_n, block_k, comm.members, num_warps=8, num_stages=3,
    )  # fmt: skip
    return out
