"""Shared memory of a program: allocations, and blocks in them as kernels see them.

Rows of more bytes than TMA's swizzle spans lie as it stores them: the first so many bytes of all rows, then the next.
So views of blocks as others of the same swizzle hold what they do on a GPU. (Where the swizzle puts 16 bytes within
such a span is the same for both, and is left out.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from triton_dist.cpu.gluon.accesses import Accesses
from triton_dist.cpu.gluon.partition import constant, partition, tensor
from triton_dist.triton_api import interpreter

__all__ = ["Blocks", "allocate_shared_memory", "fence_async_shared"]


class Allocation:
    """Bytes of shared memory. What nobody has written is garbage: NaN as floats, -1 as integers."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.full(nbytes, 0xFF, np.uint8)
        self.barriers: dict[int, Any] = {}
        """mbarriers by their place."""
        self.accesses = Accesses()


class Blocks(tl.core.base_value):  # type: ignore[misc]
    """What kernels have as ``gl.shared_memory_descriptor``."""

    def __init__(
        self, of: Allocation, offset: int, dtype: tl.dtype, shape: Sequence[int], layout: Any, order: Sequence[int] = ()
    ) -> None:
        self.of, self.offset = of, offset
        self.dtype, self.stored, self.layout = dtype, tuple(shape), layout
        self.order = tuple(order) or tuple(range(len(shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.stored[axis] for axis in self.order)

    @property
    def rank(self) -> int:
        return len(self.stored)

    @property
    def numel(self) -> int:
        return math.prod(self.stored)

    @property
    def type(self) -> Any:
        return self

    @property
    def element_ty(self) -> tl.dtype:
        return self.dtype

    @property
    def nbytes(self) -> int:
        return self.numel * interpreter.numpy_dtype(self.dtype).itemsize

    # ---- views

    def index(self, index: Any) -> Blocks:
        number, rest = int(constant(index)), self.stored[1:]
        self._check_whole("index")
        if not 0 <= number < self.stored[0]:
            raise IndexError(f"block {number} of shared memory with {self.stored[0]}")
        step = self.nbytes // self.stored[0]
        return Blocks(self.of, self.offset + number * step, self.dtype, rest, self.layout)

    def permute(self, order: Sequence[Any]) -> Blocks:
        axes = [self.order[int(constant(axis))] for axis in order]
        return Blocks(self.of, self.offset, self.dtype, self.stored, self.layout, axes)

    def reinterpret(self, dtype: Any, shape: Sequence[Any], layout: Any) -> Blocks:
        self._check_whole("reinterpret")
        kind, made = constant(dtype), constant(layout)
        found = Blocks(self.of, self.offset, kind, [int(constant(size)) for size in shape], made)
        if found.nbytes > self.nbytes:
            raise ValueError(f"shared memory of {self.nbytes} bytes seen as blocks of {found.nbytes}")
        if _swizzle(made) != _swizzle(self.layout):
            raise NotImplementedError("the CPU world has no views of shared memory with another swizzle")
        return found

    _reinterpret = reinterpret

    def _check_whole(self, what: str) -> None:
        if self.order != tuple(range(self.rank)):
            raise NotImplementedError(f"the CPU world has no {what} of permuted shared memory")

    # ---- contents

    def load(self, layout: Any = None) -> tl.tensor:
        self.of.accesses.load(*self._range)
        return tensor(self.contents().copy(), self.dtype)

    def store(self, value: tl.tensor) -> None:
        if tuple(value.shape) != self.shape or value.dtype != self.dtype:
            raise ValueError(
                f"a block of {self.dtype} {list(self.shape)} in shared memory cannot hold one of {value.dtype}"
                f" {[int(size) for size in value.shape]}"
            )
        self.of.accesses.store(*self._range)
        self.fill(value.handle.data)

    def contents(self) -> NDArray[Any]:
        return self._spans().reshape(self.stored).transpose(self.order)

    def fill(self, values: NDArray[Any]) -> None:
        spans = self._spans()
        spans[...] = values.transpose(np.argsort(self.order)).reshape(spans.shape)

    def read_asynchronously(self, what: str) -> NDArray[Any]:
        """What TMA or tensor cores find."""
        self.of.accesses.read_asynchronously(what, *self._range)
        return self.contents()

    def begins_to_be_read(self, reader: object, how: str) -> None:
        """By TMA or tensor cores, until :meth:`has_been_read`; ``how`` says what reads and what waits for it."""
        self.of.accesses.begins_to_read(reader, *self._range, how)

    def has_been_read(self, reader: object) -> None:
        self.of.accesses.has_read(reader)

    def written_asynchronously(self, what: str) -> None:
        """TMA is told to fill it."""
        self.of.accesses.write_asynchronously(what, *self._range)

    @property
    def _range(self) -> tuple[int, int]:
        return self.offset, self.offset + self.nbytes

    def _spans(self) -> NDArray[Any]:
        """The elements where they lie, the last axis of ``stored`` cut into spans of the swizzle."""
        kind = interpreter.numpy_dtype(self.dtype)
        flat = self.of.bytes[self.offset : self.offset + self.nbytes].view(kind)
        columns, swizzle = self.stored[-1], _swizzle(self.layout)
        if not swizzle or columns * kind.itemsize <= swizzle:
            return flat.reshape(*self.stored, 1)
        width = swizzle // kind.itemsize
        leading = self.rank - self.layout.rank
        rows = self.stored[leading:-1]
        spans = flat.reshape(*self.stored[:leading], columns // width, *rows, width)
        return np.moveaxis(spans, leading, -2)


def _swizzle(layout: Any) -> int:
    """Bytes that a layout's swizzle spans; 0 without one."""
    if getattr(layout, "transposed", False):
        raise NotImplementedError("the CPU world has no transposed layouts of shared memory")
    return int(getattr(layout, "swizzle_byte_width", 0))


def allocate_shared_memory(element_ty: Any, shape: Any, layout: Any, value: Any = None) -> Blocks:
    """``gl.allocate_shared_memory``."""
    kind, sizes = constant(element_ty), [int(constant(size)) for size in constant(shape)]
    nbytes = math.prod(sizes) * interpreter.numpy_dtype(kind).itemsize
    made = Allocation(nbytes)
    partition().shared.append(made)
    blocks = Blocks(made, 0, kind, sizes, constant(layout))
    if value is not None:
        blocks.store(value)
    return blocks


def fence_async_shared(cluster: Any = False) -> None:
    """``fence_async_shared``: what has been stored is there for TMA and tensor cores, and what has been loaded they may
    overwrite: of this partition, and of others for what this one issues."""
    for allocation in partition().shared:
        allocation.accesses.fence()
