"""A copy within a PE, concurrent with those that the copy engine sends to peers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import triton
import triton.language as tl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.protocols.side_stream import side_stream

__all__ = ["concurrent_copy"]


@triton.jit
def _copy(to, source, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(to + offsets, tl.load(source + offsets, mask=offsets < n), mask=offsets < n)


@contextmanager
def concurrent_copy(communicator: Communicator, to: torch.Tensor, source: torch.Tensor, limit: int) -> Iterator[None]:
    """Copy ``source`` to ``to`` concurrently with the block; what follows on the current stream waits for both.

    A kernel does it, with few programs: the copy engine has one queue for a GPU's own copies and those to peers. With
    the one program of a stream barrier there are at most ``limit``; if that is 1, the copy comes first.
    """
    grid = (max(1, min(32, triton.cdiv(to.numel(), 4096), limit - 1)),)
    if not to.is_cuda or limit == 1:
        _copy[grid](to, source, to.numel(), 4096)
        yield
        return
    with side_stream(communicator) as side:
        with torch.cuda.stream(side):
            _copy[grid](to, source, to.numel(), 4096, num_warps=8)
        yield
