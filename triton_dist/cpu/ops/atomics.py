"""Atomic memory operations on one element of a PE's symmetric memory.

Each is one atomic instruction, also those that only read or only write, so that it has all of the order asked for; but
floats have no instruction to be added with: their sum is put there if nobody has been in between, or tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from triton_dist._C.op_table import ElementType, MemScope, Sem
from triton_dist.cpu.ops.address_checks import the_world, there
from triton_dist.cpu.ops.elements import ELEMENTS, Element
from triton_dist.cpu.ops.progress import looked, moved
from triton_dist.cpu.program import running
from triton_dist.cpu.runtime.atomics import Order, Word

__all__ = [
    "atomic_add",
    "atomic_and",
    "atomic_compare_swap",
    "atomic_fetch",
    "atomic_fetch_add",
    "atomic_fetch_and",
    "atomic_fetch_inc",
    "atomic_fetch_or",
    "atomic_fetch_xor",
    "atomic_inc",
    "atomic_or",
    "atomic_set",
    "atomic_swap",
    "atomic_xor",
]

_ORDERS = {
    Sem.RELAXED: Order.RELAXED,
    Sem.ACQUIRE: Order.ACQUIRE,
    Sem.RELEASE: Order.RELEASE,
    Sem.ACQ_REL: Order.ACQUIRE_RELEASE,
}

_Update = Callable[[Element, int, "int | float", Order], int]
"""Updates the element at an address by an operand; the word that was there before."""

_R = TypeVar("_R")


def _exchange(element: Element, address: int, value: int | float, order: Order) -> int:
    return element.word.exchange(address, element.bits(value), order)


def _read(element: Element, address: int, value: int | float, order: Order) -> int:
    return element.word.fetch_or(address, 0, order)


def _add(element: Element, address: int, value: int | float, order: Order) -> int:
    if element.is_integer:
        return element.word.fetch_add(address, element.bits(value), order)
    more = element.number(element.bits(value))
    seen = element.word.load(address, Order.RELAXED)
    while True:
        total = element.bits_of(element.number(seen) + more)
        before = element.word.compare_swap(address, seen, total, order)
        if before == seen:
            return before
        seen = before


def _bitwise(instruction: Callable[[Word], Callable[..., int]]) -> _Update:
    def update(element: Element, address: int, value: int | float, order: Order) -> int:
        if not element.is_integer:
            raise ValueError(f"and, or and xor are for integers, not {element.name}")
        return instruction(element.word)(address, element.bits(value), order)

    return update


_and = _bitwise(lambda word: word.fetch_and)
_or = _bitwise(lambda word: word.fetch_or)
_xor = _bitwise(lambda word: word.fetch_xor)


def _op(update: _Update) -> Callable[[int, int | float, int, ElementType, Sem, MemScope], None]:
    """The op that only updates."""

    def op(dst: int, value: int | float, pe: int, type: ElementType, sem: Sem, mem_scope: MemScope) -> None:
        element = ELEMENTS[type]
        running().outstanding.before_update(pe)
        update(element, there(the_world(), "dst", dst, pe, element.size), value, _ORDERS[sem])
        moved()

    return op


def _fetching(name: str, update: _Update) -> Callable[[int, int | float, int, ElementType, Sem, MemScope], int | float]:
    """The op that updates and answers with what was there before."""

    def op(dst: int, value: int | float, pe: int, type: ElementType, sem: Sem, mem_scope: MemScope) -> int | float:
        world, element = the_world(), ELEMENTS[type]
        address = there(world, "dst", dst, pe, element.size)
        running().outstanding.before_update(pe)
        before = element.result(update(element, address, value, _ORDERS[sem]))
        looked(world, name, address, before)
        return before

    return op


def _by(value: int, op: Callable[..., _R]) -> Callable[[int, int, ElementType, Sem, MemScope], _R]:
    """``op`` with its operand ``value`` given."""

    def fixed(dst: int, pe: int, type: ElementType, sem: Sem, mem_scope: MemScope) -> _R:
        return op(dst, value, pe, type, sem, mem_scope)

    return fixed


atomic_set = _op(_exchange)
atomic_add = _op(_add)
atomic_inc = _by(1, atomic_add)
atomic_and = _op(_and)
atomic_or = _op(_or)
atomic_xor = _op(_xor)

atomic_fetch = _by(0, _fetching("atomic_fetch", _read))
atomic_fetch_add = _fetching("atomic_fetch_add", _add)
atomic_fetch_inc = _by(1, _fetching("atomic_fetch_inc", _add))
atomic_fetch_and = _fetching("atomic_fetch_and", _and)
atomic_fetch_or = _fetching("atomic_fetch_or", _or)
atomic_fetch_xor = _fetching("atomic_fetch_xor", _xor)
atomic_swap = _fetching("atomic_swap", _exchange)


def atomic_compare_swap(
    dst: int, cond: int | float, value: int | float, pe: int, type: ElementType, sem: Sem, mem_scope: MemScope
) -> int | float:
    world, element = the_world(), ELEMENTS[type]
    address = there(world, "dst", dst, pe, element.size)
    expected = element.bits(cond)
    running().outstanding.before_update(pe)
    before = element.word.compare_swap(address, expected, element.bits(value), _ORDERS[sem])
    if before == expected:
        moved()  # it has what it wanted
    else:
        looked(world, "atomic_compare_swap", address, element.result(before))
    return element.result(before)
