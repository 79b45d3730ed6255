"""What host code does to symmetric memory with torch, for a checked run: every operator's arguments are looked at.

What host code does in other ways (numpy on the same memory, say) is not seen.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

from triton_dist.cpu.recorder import Recorder
from triton_dist.torch_api import Operators

__all__ = ["HostAccesses", "note_access"]


class HostAccesses:
    """Tells the recorder, from :meth:`start` to :meth:`stop`."""

    def __init__(self, recorder: Recorder) -> None:
        operators = Operators(functools.partial(note_access, recorder))
        self.start, self.stop = operators.start, operators.stop


def note_access(recorder: Recorder, what: str, tensor: torch.Tensor, writes: bool) -> None:
    """Record what the operator ``what`` does to all of ``tensor``, if that is symmetric."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
        return
    begin, size = tensor.data_ptr(), tensor.itemsize
    if recorder.is_symmetric(begin):
        addresses = np.array([begin], np.int64)
        if tensor.is_contiguous():
            recorder.host_block(what, addresses, tensor.numel() * size, writes)
            return
        for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
            addresses = (addresses[:, None] + np.arange(extent, dtype=np.int64) * stride * size).reshape(-1)
        recorder.host_block(what, addresses, size, writes)
