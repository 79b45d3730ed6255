"""A copy within a PE, beside those that the copy engine sends to others."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import triton
import triton.language as tl

__all__ = ["copied_beside"]


@triton.jit
def _copy(to, source, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(to + offsets, tl.load(source + offsets, mask=offsets < n), mask=offsets < n)


@contextmanager
def copied_beside(to: torch.Tensor, source: torch.Tensor) -> Iterator[None]:
    """Copy ``source`` to ``to`` while the block goes on; what follows on the current stream waits for both.

    A kernel does it, with few programs: the copy engine has one queue for a GPU's own copies and those to peers.
    """
    grid = (min(32, triton.cdiv(to.numel(), 4096)),)
    if not to.is_cuda:
        _copy[grid](to, source, to.numel(), 4096)
        yield
        return
    current = torch.cuda.current_stream()
    other = _stream(current.device_index)
    other.wait_stream(current)
    with torch.cuda.stream(other):
        _copy[grid](to, source, to.numel(), 4096, num_warps=8)
    yield
    current.wait_stream(other)


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
