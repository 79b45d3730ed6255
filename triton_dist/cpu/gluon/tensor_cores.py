"""WGMMA: products of blocks in shared memory, added to sums in registers, asynchronously.

A product is computed at once, or when it is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from triton_dist.cpu.gluon.partition import but_last, constant, partition, perhaps_pause, tensor
from triton_dist.cpu.gluon.shared_memory import Blocks
from triton_dist.triton_api import interpreter

__all__ = ["Product", "Sums", "warpgroup_mma", "warpgroup_mma_init", "warpgroup_mma_wait"]


class Sums(tl.core.base_value):  # type: ignore[misc]
    """Registers that products are added to."""

    def __init__(self, elements: NDArray[Any], dtype: tl.dtype) -> None:
        self.elements, self.dtype = elements, dtype

    @property
    def type(self) -> Any:
        return tl.block_type(self.dtype, list(self.elements.shape))


class Product:
    """One that is under way."""

    def __init__(self, a: Any, b: Blocks, sums: Sums, use_acc: bool) -> None:
        self._a, self._b, self._sums, self._use_acc = a, b, sums, use_acc
        self._is_computed = False
        self._operands = [block for block in (a, b) if isinstance(block, Blocks)]
        how = "a product of tensor cores may still read: call warpgroup_mma_wait before"
        for i, block in enumerate(self._operands):
            block.begins_to_be_read((self, i), how)

    def compute(self) -> None:
        if not self._is_computed:
            product = _operand(self._a) @ _operand(self._b)
            self._sums.elements[...] = product + self._sums.elements if self._use_acc else product
            self._is_computed = True

    def is_waited_for(self) -> None:
        """It is known to be complete."""
        self.compute()
        for i, block in enumerate(self._operands):
            block.has_been_read((self, i))


def warpgroup_mma_init(value: tl.tensor) -> Sums:
    """``warpgroup_mma_init``."""
    return Sums(value.handle.data.copy(), value.dtype)


def warpgroup_mma(
    a: Any,
    b: Blocks,
    acc: Any,
    *,
    use_acc: Any = True,
    precision: Any = None,
    max_num_imprecise_acc: Any = None,
    is_async: Any = False,
) -> Any:
    """``warpgroup_mma``: acc + a · b in float32, or a · b."""
    perhaps_pause()
    if a.shape[-1] != b.shape[0] or (int(a.shape[0]), int(b.shape[1])) != tuple(int(size) for size in acc.type.shape):
        raise ValueError(f"warpgroup_mma: {list(a.shape)} · {list(b.shape)} in sums of {list(acc.type.shape)}")
    here, sums = partition(), acc if isinstance(acc, Sums) else warpgroup_mma_init(acc)
    here.products.append(Product(a, b, sums, bool(constant(use_acc))))
    if not constant(is_async):
        _complete(0)
        return tensor(sums.elements, sums.dtype)
    if here.chance.happens():
        for product in here.products:
            product.compute()
    return sums


def warpgroup_mma_wait(num_outstanding: Any = 0, deps: Sequence[Any] | None = None) -> Any:
    """``warpgroup_mma_wait``. Sums that are still in flight stay :class:`Sums`: registers that change."""
    if deps is None:
        raise ValueError("warpgroup_mma_wait deps must be given")
    _complete(int(constant(num_outstanding)))
    waits = bool(partition().products)
    results = tuple(tensor(dep.elements, dep.dtype) if isinstance(dep, Sums) and not waits else dep for dep in deps)
    return results[0] if len(results) == 1 else results


def _complete(but: int) -> None:
    products = partition().products
    done = but_last(products, but)
    for product in done:
        product.is_waited_for()
    del products[: len(done)]


def _operand(block: Any) -> NDArray[np.float32]:
    """As float32, which holds all that tensor cores multiply here."""
    data = block.read_asynchronously("warpgroup_mma") if isinstance(block, Blocks) else block.handle.data
    if block.dtype.is_bf16():
        return (np.ascontiguousarray(data).astype(np.uint32) << 16).view(np.float32)
    if block.dtype.primitive_bitwidth == 8:
        data = interpreter.widened_float8(np.ascontiguousarray(data), block.dtype)
    return data.astype(np.float32)
