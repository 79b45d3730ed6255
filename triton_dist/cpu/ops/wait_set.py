"""Elements of this PE's symmetric memory that others update, and what each is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from triton_dist._C.op_table import Cmp, ElementType
from triton_dist.comparisons import COMPARE, SIGNS
from triton_dist.cpu.ops.address_checks import count_of, here, local_array, the_world
from triton_dist.cpu.ops.elements import ELEMENTS, Element
from triton_dist.cpu.runtime.atomics import Order
from triton_dist.cpu.world import CpuWorld

__all__ = ["Watched"]


@dataclass(frozen=True)
class Watched:
    """What an op waits for, or tests."""

    world: CpuWorld
    op: str
    element: Element
    begin: int
    """The address of element 0."""
    indices: Sequence[int]
    """Which elements."""
    cmp: Cmp
    expected: Sequence[int | float]
    """For each element, also those not looked at."""

    @staticmethod
    def one(op: str, name: str, address: int, cmp_value: int | float, cmp: Cmp, element: Element) -> Watched:
        """The element at ``address``, which is the op's argument ``name``."""
        world = the_world()
        begin = here(world, name, address, 1, element.size)
        return Watched(world, op, element, begin, (0,), cmp, (element.number(element.bits(cmp_value)),))

    @staticmethod
    def many(
        op: str, ivars: int, nelems: int, status: int, cmp_value: int | float, cmp: Cmp, type: ElementType, vector: bool
    ) -> Watched:
        """Those of ``nelems`` elements whose status is zero, or all of them where ``status`` is null.

        They are compared with ``cmp_value``; if ``vector``, that is the address of a value for each.
        """
        world, element = the_world(), ELEMENTS[type]
        begin = here(world, "ivars", ivars, nelems, element.size) if count_of("nelems", nelems) else 0
        indices: Sequence[int] = range(nelems)
        if status:
            indices = np.flatnonzero(local_array("status", status, nelems, np.int32) == 0).tolist()
        if vector:
            expected = element.widened(local_array("cmp_values", int(cmp_value), nelems, element.stored)).tolist()
        else:
            expected = [element.number(element.bits(cmp_value))] * nelems
        return Watched(world, op, element, begin, indices, cmp, expected)

    def word(self, index: int) -> int:
        """What is there now."""
        return self.element.word.load(self.begin + index * self.element.size, Order.ACQUIRE)

    @property
    def first(self) -> int:
        """The offset of element 0 in this PE's heap."""
        return self.begin - self.world.heap.base(self.world.pe)

    def places(self) -> tuple[tuple[int, int], ...]:
        """PE and offset of each."""
        first = self.first
        return tuple((self.world.pe, first + index * self.element.size) for index in self.indices)

    def accepts(self, index: int, word: int) -> bool:
        return COMPARE[self.cmp](self.element.number(word), self.expected[index])

    def accepted(self, among: Sequence[int] | None = None) -> list[int]:
        """Those that compare true now."""
        return [i for i in (self.indices if among is None else among) if self.accepts(i, self.word(i))]

    def describe(self, missing: Sequence[int]) -> str:
        """What the first of the elements ``missing`` is and should be, and how many more there are."""
        first, sign = missing[0], SIGNS[self.cmp]
        place = self.world.describe(self.begin + first * self.element.size)
        more = f" (and {len(missing) - 1} elements more)" if len(missing) > 1 else ""
        seen = self.element.number(self.word(first))
        return f"{self.op}: {place} {sign} {self.expected[first]}, seen {seen}{more}"
