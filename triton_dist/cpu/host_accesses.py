"""What host code does to symmetric memory with torch, for a checked run: every operator's arguments are looked at.

What host code does in other ways (numpy on the same memory, say) is not seen.
"""

from __future__ import annotations

import numpy as np
import torch

from triton_dist.cpu.recorder import Recorder
from triton_dist.torch_api import Operators

__all__ = ["HostAccesses"]


class HostAccesses:
    """Tells the recorder, from :meth:`start` to :meth:`stop`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        operators = Operators(self._note)
        self.start, self.stop = operators.start, operators.stop

    def _note(self, what: str, tensor: torch.Tensor, writes: bool) -> None:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
            return
        begin, size = tensor.data_ptr(), tensor.itemsize
        if self._recorder.is_symmetric(begin):
            addresses = np.array([begin], np.int64)
            if tensor.is_contiguous():
                self._recorder.host_block(what, addresses, tensor.numel() * size, writes)
                return
            for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
                addresses = (addresses[:, None] + np.arange(extent, dtype=np.int64) * stride * size).reshape(-1)
            self._recorder.host_block(what, addresses, size, writes)
