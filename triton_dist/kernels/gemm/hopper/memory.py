"""Memory of plans that does not grow with their number, or by little: symmetric flags, and sums of parts of tiles.

Each plan has flags of its own. They are compared with the number of its launch, which wraps around, so none may be
older than the launch before: plans cannot share them. They are cut from one allocation, so that a new plan needs none,
and no barrier with other PEs. Sums of parts of tiles carry no number: all plans of a communicator share them.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import WIDE
from triton_dist.world.current import current_world

__all__ = ["GemmMemory", "sums_of_parts", "symmetric_flags"]

_CHUNK = 1 << 18
_ALIGNED = 32
"""Words; flags of different plans share no cache line."""


class GemmMemory:
    """The memory of one communicator's Hopper GEMMs."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._chunks: list[torch.Tensor] = []
        self._used: list[int] = []  # words of each
        self._sums: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Of symmetric memory."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def close(self) -> None:
        self._chunks.clear()
        self._used.clear()
        self._sums = None

    def reserve(self, words: int) -> None:
        """Have memory for so many words of flags, with those that are in use. *Collective* if there is less."""
        lacking = words - sum(chunk.numel() for chunk in self._chunks)
        if lacking > 0:
            self._chunks.append(self._communicator.zeros(max(_CHUNK, lacking), dtype=torch.int32))
            self._used.append(0)

    def flags(self, words: int) -> torch.Tensor:
        aligned = -(-words // _ALIGNED) * _ALIGNED
        for i, (chunk, used) in enumerate(zip(self._chunks, self._used, strict=True)):
            if chunk.numel() - used >= aligned:
                self._used[i] += aligned
                return chunk[used : used + words]
        self.reserve(sum(chunk.numel() for chunk in self._chunks) + aligned)
        return self.flags(words)

    def sums(self) -> torch.Tensor:
        if self._sums is None:
            size = portable.programs() * WIDE.block_m * WIDE.block_n
            self._sums = torch.empty(size, dtype=torch.float32, device=current_world().device)
        return self._sums


def symmetric_flags(comm: Communicator, words: int) -> torch.Tensor:
    """So many symmetric int32 words, which are zero and belong to the caller. *Collective* where memory is made."""
    return comm.own(GemmMemory).flags(words)


def sums_of_parts(comm: Communicator) -> torch.Tensor:
    """Float32 memory for the parts of tiles of one launch, of which there are no more than programs."""
    return comm.own(GemmMemory).sums()
