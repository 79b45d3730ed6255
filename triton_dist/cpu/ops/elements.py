"""Element types: what a value looks like to the language, in memory, and as a number.

The language passes and takes integers, float32 and float64 as numbers, but float16 and bfloat16 as their bits: no
register of Triton's plugin ops holds a half. Memory and its atomics know words of bits only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_dist._C.op_table import ElementType
from triton_dist.cpu import bfloat16
from triton_dist.cpu.runtime.atomics import WORDS, Word

__all__ = ["ELEMENTS", "U64", "Element", "Word"]


@dataclass(frozen=True)
class Element:
    """One element type of the op table."""

    name: str
    stored: np.dtype[Any]
    """What numpy sees in memory. It has no bfloat16, which is uint16 there."""

    @property
    def size(self) -> int:
        return self.stored.itemsize

    @property
    def word(self) -> Word:
        return WORDS[self.size]

    @property
    def is_integer(self) -> bool:
        return self.name[0] in "iu"

    @property
    def is_signed(self) -> bool:
        return self.name[0] != "u"

    @property
    def is_half(self) -> bool:
        return self.size == 2 and not self.is_integer

    @property
    def _word_type(self) -> str:
        return f"u{self.size}"

    # ---- between an op's operands or result and words

    def bits(self, operand: int | float) -> int:
        """The word for an operand."""
        if self.is_integer or self.is_half:
            return int(operand) % (1 << (8 * self.size))
        return self.bits_of(operand)

    def result(self, bits: int) -> int | float:
        """A word as an op answers with it: an integer, like all of the language's, as if it were signed."""
        if self.is_integer or self.is_half:
            sign = 1 << (8 * self.size - 1)
            return (bits ^ sign) - sign
        return self.number(bits)

    # ---- between words and the numbers that they mean

    def number(self, bits: int) -> int | float:
        stored = np.array([bits], self._word_type).view(self.stored)
        number: int | float = self.widened(stored).item()
        return number

    def bits_of(self, number: int | float) -> int:
        """The word for a number, which is rounded to nearest or, if it is an integer, wraps around."""
        if self.is_integer:
            return int(number) % (1 << (8 * self.size))
        widest = np.array([number], np.float32 if self.is_half else self.stored)
        return int(self.narrowed(widest).view(self._word_type).item())

    # ---- arrays to compute with: halves are computed in float32

    def widened(self, stored: NDArray[Any]) -> NDArray[Any]:
        if self.name == "bf16":
            return bfloat16.decode(stored)
        return stored.astype(np.float32) if self.is_half else stored

    def narrowed(self, computed: NDArray[Any]) -> NDArray[Any]:
        if self.name == "bf16":
            return bfloat16.encode(computed)
        return computed.astype(self.stored, copy=False)


ELEMENTS = {
    kind: Element(kind.name.lower(), np.dtype(stored))
    for kind, stored in (
        (ElementType.I8, np.int8),
        (ElementType.U8, np.uint8),
        (ElementType.I16, np.int16),
        (ElementType.U16, np.uint16),
        (ElementType.I32, np.int32),
        (ElementType.U32, np.uint32),
        (ElementType.I64, np.int64),
        (ElementType.U64, np.uint64),
        (ElementType.F16, np.float16),
        (ElementType.BF16, np.uint16),
        (ElementType.F32, np.float32),
        (ElementType.F64, np.float64),
    )
}

U64 = ELEMENTS[ElementType.U64]
"""What a signal is."""
