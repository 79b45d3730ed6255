"""Memory that a kernel will load is asked for beforehand: it comes to the L2 cache while other things are waited for.

A GEMM of few rows loads B for nearly all of its time. What stands in front of it waits for other PEs, and memory is
idle meanwhile. So that asks for the first bytes of B: a few instructions, whose data no register or shared memory
waits for.

Source: PTX ISA, ``cp.async.bulk.prefetch``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from triton_dist.kernels.device import gpu
from triton_dist.world.current import current_world

__all__ = ["PREFETCHED", "FirstBytes", "first_bytes", "prefetch", "prefetch_lines"]

PREFETCHED = 16 << 20
"""Bytes of a weight that are asked for beforehand: what memory delivers in the few microseconds that there are, and a
third of the L2 cache, which the kernel in front still uses."""
_LINE = tl.constexpr(256)
"""Bytes that a thread asks for at a time."""


@triton.jit
def prefetch(lines, nbytes, LINES: tl.constexpr):
    """Ask for ``nbytes``, a multiple of 16, behind each of ``LINES`` addresses, multiples of 16, to come to the L2
    cache."""
    tl.inline_asm_elementwise(
        "{ cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0; }",
        "=r,l,r",
        [lines.to(tl.int64), tl.full([LINES], 0, tl.int32) + nbytes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


class FirstBytes(NamedTuple):
    """Of the rows of ``tensor`` in memory, which are ``row_bytes`` apart, the first ``per_row`` lines: ``lines`` of all
    rows."""

    tensor: torch.Tensor
    lines: int
    per_row: int
    row_bytes: int


def first_bytes(b: torch.Tensor) -> FirstBytes | None:
    """What a GEMM needs first of ``b``, [K, N], whose programs all begin with the first elements along K. None where it
    cannot be asked for: in the CPU world, before Hopper, on other GPUs than NVIDIA's, and of rows that do not begin at
    multiples of 16 bytes."""
    if current_world().kind != "gpu" or torch.version.hip is not None or gpu().capability < (9, 0):
        return None
    by_columns = b.stride(0) == 1 and b.stride(1) != 1
    rows, length, step = (b.shape[1], b.shape[0], b.stride(1)) if by_columns else (*b.shape, b.stride(0))
    row_bytes, size = step * b.element_size(), length * b.element_size()
    if b.data_ptr() % 16 or row_bytes % 16 or (not by_columns and b.stride(1) != 1):
        return None
    if by_columns:
        per_row = min(size, PREFETCHED // max(rows, 1)) // _LINE.value
    else:
        per_row = size // _LINE.value
        rows = min(rows, PREFETCHED // max(size, 1))
    return FirstBytes(b, rows * per_row, per_row, row_bytes) if rows * per_row else None


@triton.jit
def prefetch_lines(first, lines, per_row, row_bytes, THREADS: tl.constexpr):
    """Ask for the :class:`FirstBytes` that begin at ``first``; all programs of the kernel share them."""
    for line in range(tl.program_id(0) * THREADS, lines, tl.num_programs(0) * THREADS):
        mine = tl.minimum(line + tl.arange(0, THREADS), lines - 1)
        place = (mine // per_row).to(tl.int64) * row_bytes + mine % per_row * _LINE
        prefetch(first.to(tl.int64) + place, _LINE, THREADS)
