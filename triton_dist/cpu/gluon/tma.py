"""TMA: blocks of tensors between memory and shared memory, asynchronously.

A load arrives at once or when its mbarrier is waited for. A store reads shared memory at once, or when it is waited
for that it has, and is in memory then or when it is waited for that it has completed.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray

from triton_dist.cpu import location
from triton_dist.cpu.builder import copied, is_watched
from triton_dist.cpu.gluon.barriers import barrier_of
from triton_dist.cpu.gluon.partition import but_last, constant, partition, perhaps_pause, tensor
from triton_dist.cpu.gluon.shared_memory import Blocks
from triton_dist.cpu.program import running
from triton_dist.triton_api import interpreter

__all__ = ["Descriptor", "Store", "async_load", "async_store", "commit", "completed", "store_wait"]

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Descriptor(tl.core.base_value):  # type: ignore[misc]
    """What kernels have of a ``TensorDescriptor``."""

    def __init__(self, of: Any) -> None:
        if of.padding != "zero":
            raise NotImplementedError("the CPU world's TMA fills with zeros only")
        if of.base.device.type != "cpu":
            raise NotImplementedError(f"the CPU world's TMA takes tensors on the CPU, got one on {of.base.device}")
        words = torch.as_strided(
            of.base.detach().view(_WORDS[of.base.element_size()]), list(of.shape), list(of.strides)
        )
        self.dtype = interpreter.as_tensor(of.base).dtype.element_ty
        self.elements = words.numpy().view(interpreter.numpy_dtype(self.dtype))
        self.shape = tuple(tensor(np.int32(size), tl.int32) for size in of.shape)
        self.strides = tuple(tensor(np.int64(step), tl.int64) for step in of.strides)
        self.block_shape, self.layout = tuple(int(size) for size in of.block_shape), of.layout
        self.block_type = tl.block_type(self.dtype, list(self.block_shape))

    @property
    def type(self) -> Any:
        return self

    @property
    def nbytes_per_cta(self) -> int:
        return math.prod(self.block_shape) * self.elements.itemsize

    def overlap(self, place: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """What a block at this place has of the tensor, as slices of both."""
        of_tensor, of_block = [], []
        for begin, length, size in zip(place, self.block_shape, self.elements.shape, strict=True):
            first, last = min(max(begin, 0), size), min(max(begin + length, 0), size)
            of_tensor.append(slice(first, last))
            of_block.append(slice(first - begin, last - begin) if first < last else slice(0))
        return tuple(of_tensor), tuple(of_block)

    def touched(self, what: str, place: Sequence[int], *, writes: bool) -> None:
        """Tell the world of a copy to or from the block at this place, if it watches."""
        if not is_watched():
            return
        of_tensor, _ = self.overlap(place)
        part = self.elements[of_tensor]
        addresses = np.array(part.ctypes.data, np.int64)
        for length, step in zip(part.shape, part.strides, strict=True):
            addresses = addresses[..., None] + np.arange(length, dtype=np.int64) * step
        copied(what, addresses.reshape(-1), self.elements.itemsize, writes=writes)

    def check(self, what: str, coord: Sequence[Any], block: Blocks) -> list[int]:
        """The place of a copy as integers.

        Raises:
            ValueError: the block in shared memory is not as the descriptor has it; the place is none of TMA's.
        """
        if block.shape != self.block_shape or block.dtype.primitive_bitwidth != self.dtype.primitive_bitwidth:
            raise ValueError(
                f"{what}: the descriptor has blocks of {self.dtype} {list(self.block_shape)}, shared memory one of"
                f" {block.dtype} {list(block.shape)}"
            )
        if getattr(block.layout, "swizzle_byte_width", None) != self.layout.swizzle_byte_width:
            raise ValueError(f"{what}: shared memory has the layout {block.layout}, the descriptor {self.layout}")
        place = [int(constant(one)) for one in coord]
        if len(place) != len(self.block_shape):
            raise ValueError(f"{what}: {len(place)} coordinates for blocks of {list(self.block_shape)}")
        return place


def async_load(
    tensor_desc: Descriptor,
    coord: Sequence[Any],
    barrier: Blocks,
    result: Blocks,
    pred: Any = True,
    multicast: Any = False,
) -> None:
    """``tma.async_load``."""
    if constant(multicast):
        raise NotImplementedError("the CPU world has no clusters of programs that a TMA load could be for")
    if not constant(pred):
        return
    perhaps_pause()
    place, awaited = tensor_desc.check("a TMA load", coord, result), barrier_of(barrier)
    tensor_desc.touched("tma.async_load", place, writes=False)
    result.written_asynchronously("a TMA load")

    def arrive() -> None:
        block: NDArray[Any] = np.zeros(result.shape, tensor_desc.elements.dtype)
        of_tensor, of_block = tensor_desc.overlap(place)
        block[of_block] = tensor_desc.elements[of_tensor]
        result.fill(block)
        awaited.receive(block.nbytes)

    if partition().chance.happens():
        arrive()
    else:
        awaited.loads.append(arrive)


class Store:
    """One store of a block."""

    def __init__(self, to: Descriptor, place: list[int], block: Blocks) -> None:
        self._to, self._place, self._block = to, place, block
        self.where = location.of_frame(sys._getframe())
        """The line that issues it."""
        self._read: NDArray[Any] | None = None
        self._is_complete = False
        block.begins_to_be_read(self, f"the TMA store at {self.where} may still read: call tma.store_wait before")

    @property
    def is_read(self) -> bool:
        return self._read is not None

    def read(self) -> NDArray[Any]:
        if self._read is None:
            self._read = self._block.read_asynchronously("a TMA store").copy()
        return self._read

    def has_read(self) -> None:
        """It is known to have."""
        self.read()
        self._block.has_been_read(self)

    def complete(self) -> None:
        if not self._is_complete:
            of_tensor, of_block = self._to.overlap(self._place)
            self._to.elements[of_tensor] = self.read()[of_block]
            self._is_complete = True

    def retire(self) -> None:
        """It is known to be complete. What is recorded happens here: a flag that was set before does not cover it."""
        self.has_read()
        self._to.touched(f"tma.async_store of {Path(self.where).name}", self._place, writes=True)
        self.complete()


def async_store(tensor_desc: Descriptor, coord: Sequence[Any], src: Blocks) -> None:
    """``tma.async_store``: a group of one store."""
    perhaps_pause()
    here = partition()
    here.has_fenced = False
    store = Store(tensor_desc, tensor_desc.check("a TMA store", coord, src), src)
    here.groups.append([store])
    if here.chance.happens():
        store.read()
        if here.chance.happens():
            store.complete()


def commit() -> None:
    """``cp.async.bulk.commit_group`` behind nothing: an empty group."""
    partition().groups.append([])


def store_wait(pendings: Any = 0) -> None:
    """``tma.store_wait``: all groups but the last few have read shared memory."""
    for store in itertools.chain(*but_last(partition().groups, int(constant(pendings)))):
        store.has_read()
    running().steps += 1


def completed(pendings: int) -> None:
    """``cp.async.bulk.wait_group``: all groups but the last few are in memory."""
    groups = partition().groups
    done = but_last(groups, pendings)
    for store in itertools.chain(*done):
        store.retire()
    del groups[: len(done)]
    perhaps_pause()
