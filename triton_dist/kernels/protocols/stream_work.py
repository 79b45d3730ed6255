"""Operations on memory in CUDA streams, which order the copy engine and kernels without the host.

Flags are 32-bit words that are 1 or 0. A stream that waits for a 1 writes the 0 back, so a captured graph can be
replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from triton_dist import stream_operations
from triton_dist.kernels.cuda import succeed
from triton_dist.stream_operations import COPY, COPY_ROWS, GIVE, TAKE, Operation
from triton_dist.world.current import find_world

__all__ = ["PlacedWork", "StreamWork", "copy", "copy_rows", "give", "take"]

_ABSOLUTE = -1


def take(flag: int) -> Operation:
    """Wait until the word at address ``flag`` is 1, and write 0 to it."""
    return Operation(TAKE, _ABSOLUTE, flag)


def give(flag: int) -> Operation:
    """Write 1 to the word at address ``flag``, of this PE or a peer, after all earlier work of the stream."""
    return Operation(GIVE, _ABSOLUTE, flag)


def copy(to: int, offset: int, nbytes: int) -> Operation:
    """Copy so many bytes to the address ``to``, from ``offset`` bytes behind the call's first address."""
    return Operation(COPY, 0, to, offset, nbytes)


def copy_rows(to: torch.Tensor, source: torch.Tensor, like: torch.Tensor | None = None, number: int = 0) -> Operation:
    """Copy by the copy engine to the memory of ``to``, from a matrix of the same shape and dtype with contiguous rows.

    (``Tensor.copy_`` may launch a kernel, which cannot become resident on a GPU that a persistent kernel fills.)

    Args:
        like: what ``source`` is a part of. Calls copy this part of the tensor whose address they bring, which has the
            same shape, strides and dtype; the address is the call's first or, with ``number`` 1, the second. None:
            ``source`` always lies where it does now.
    """
    assert to.shape == source.shape and to.dtype == source.dtype
    assert to.shape[1] == 1 or to.stride(1) == source.stride(1) == 1
    size, base, place = source.element_size(), _ABSOLUTE, source.data_ptr()
    if like is not None:
        base, place = number, place - like.data_ptr()
    height, width = source.shape
    return Operation(
        COPY_ROWS, base, to.data_ptr(), place, width * size, height, to.stride(0) * size, source.stride(0) * size
    )


class StreamWork:
    """Operations that a stream gets in this order, by one call of C++. It may be called any number of times."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        world = find_world()
        streams = None if world is None else world.host_streams
        self._put = stream_operations.library().put if streams is None else streams.put
        self._length = len(operations)
        self._operations = (Operation * self._length)(*operations)

    @property
    def data(self) -> bytes:
        """The operations, as they lie in memory."""
        return bytes(self._operations)

    def __call__(self, stream: int, first: int = 0, second: int = 0) -> None:
        """Put them on the stream of this handle.

        Args:
            first, second: addresses of the call's tensors, for operations that are relative to them.

        Raises:
            RuntimeError: the driver refuses one; the later ones are left out.
        """
        status = self._put(self._operations, self._length, stream, first, second)
        if status:
            succeed(status)


class PlacedWork(ABC):
    """Operations that are others where a symmetric tensor lies elsewhere, on this PE or on others."""

    @abstractmethod
    def at(self, tensor: torch.Tensor) -> StreamWork:
        """Those for where ``tensor`` lies, as long as nothing is allocated or freed."""

    def __call__(self, stream: int, tensor: torch.Tensor, first: int = 0, second: int = 0) -> None:
        """As of :class:`StreamWork`."""
        self.at(tensor)(stream, first, second)
