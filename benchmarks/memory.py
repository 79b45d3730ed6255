"""How fast a GPU reads its own memory: what a kernel that is bound by memory is held against."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_dist.kernels.device import sms

__all__ = ["programs", "read_all"]

_BLOCK = 4096  # words: 64 bytes of each of 256 threads in flight


@triton.jit
def _read(source, largest, n, BLOCK: tl.constexpr):
    found = tl.zeros([BLOCK], tl.int32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        found = tl.maximum(found, tl.load(source + offsets, mask=offsets < n, other=0))
    tl.store(largest + tl.program_id(0), tl.max(found))


def read_all(source: torch.Tensor, largest: torch.Tensor) -> None:
    """Read every word of ``source``, int32, once: the largest, or 0, of those of program i is stored to ``largest[i]``.

    Args:
        largest: int32, one element for each program; eight programs for each SM read at the full rate.
    """
    _read[(largest.numel(),)](source, largest, source.numel(), _BLOCK, num_warps=8)


def programs() -> int:
    """With how many programs memory is read at the full rate."""
    return 8 * sms()
