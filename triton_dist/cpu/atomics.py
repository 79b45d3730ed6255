"""Atomics that Triton's interpreter lacks: exchanges of floats, sums of bfloat16, reductions of descriptors."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from triton_dist.cpu.bfloat16 import decode, encode
from triton_dist.cpu.runtime.atomics import WORDS, Order, Word
from triton_dist.triton_api import interpreter

__all__ = ["AtomicsBuilder"]


class AtomicsBuilder(interpreter.Builder):  # type: ignore[misc]
    """Triton's interpreter with these."""

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        kind = val.dtype.scalar
        if rmwOp.name == "XCHG" and kind.is_floating():
            change = _exchange
        elif rmwOp.name == "FADD" and kind == tl.bfloat16:
            change = _add_bfloat16
        else:
            return super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)
        return _changed(change, ptr, val, mask, Order[sem.name])

    def create_descriptor_reduce(self, kind: Any, desc: Any, value: Any, indices: Any) -> Any:
        """A reduction by TMA, which is one of the elements' atomics, relaxed, for all that it is seen by."""
        dtype, name = value.dtype.scalar, kind.name
        if dtype.is_floating() and name != "ADD":
            raise NotImplementedError(f"the CPU world has no descriptor's atomic_{name.lower()} of {dtype}")
        if name == "ADD" and dtype.is_floating():
            name = "FADD"
        elif name in ("MIN", "MAX") and dtype.is_int_unsigned():
            name = f"U{name}"
        pointers, inside = desc.materialize_pointers(indices)
        mask = inside if isinstance(inside, interpreter.TensorHandle) else interpreter.handle(inside, tl.int1)
        self.create_atomic_rmw(interpreter.atomic_op(name), pointers, value, mask, *interpreter.relaxed_everywhere())


def _changed(change: Any, ptr: Any, val: Any, mask: Any, order: Order) -> Any:
    """Each element that ``mask`` has, changed on its own; the values before, 0 of the others."""
    addresses, values = np.broadcast_arrays(ptr.data, np.ascontiguousarray(val.data))
    chosen = np.broadcast_to(mask.data.astype(bool), addresses.shape)
    bits = np.ascontiguousarray(values).view(f"u{values.itemsize}")
    before = np.zeros_like(bits)
    word = WORDS[bits.itemsize]
    for place in np.ndindex(addresses.shape):
        if chosen[place]:
            before[place] = change(word, int(addresses[place]), bits[place], order)
    return interpreter.handle(before.view(val.data.dtype), val.dtype.scalar)


def _exchange(word: Word, address: int, bits: Any, order: Order) -> int:
    return word.exchange(address, int(bits), order)


def _add_bfloat16(word: Word, address: int, bits: np.uint16, order: Order) -> int:
    before = word.load(address, Order.RELAXED)
    while True:
        sums = decode(np.array([before], np.uint16)) + decode(np.array([bits], np.uint16))
        found = word.compare_swap(address, before, int(encode(sums)[0]), order)
        if found == before:
            return found
        before = found
