"""Copies within a PE, beside what goes to others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["beside", "copy_blocks"]


@triton.jit
def copy_blocks(to, source, n, BLOCK: tl.constexpr):
    """Copy ``n`` elements, every program of the grid its blocks."""
    whole = n // BLOCK
    for block in range(tl.program_id(0), whole, tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(to + offsets, tl.load(source + offsets))
    if tl.program_id(0) == whole % tl.num_programs(0):  # the rest, less than a block
        offsets = whole * BLOCK + tl.arange(0, BLOCK)
        tl.store(to + offsets, tl.load(source + offsets, mask=offsets < n), mask=offsets < n)


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[None]:
    """Do ``work`` on a stream of its own, at the same time as the block; what follows on the current stream waits."""
    if not torch.cuda.is_available():
        work()
        yield
        return
    current = torch.cuda.current_stream()
    other = _stream(current.device_index)
    other.wait_stream(current)
    with torch.cuda.stream(other):
        work()
    yield
    current.wait_stream(other)


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
