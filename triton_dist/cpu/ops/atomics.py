"""Atomic memory operations on one element of a PE's symmetric memory.

Each is one atomic instruction, also those that only read or only write, so that it has all of the order asked for; but
floats have no instruction to be added with: their sum is stored if no other update came in between, or tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from triton_dist._C.op_table import ElementType, MemScope, Sem
from triton_dist.cpu.memory import RemoteWords
from triton_dist.cpu.ops.address_checks import the_world, there
from triton_dist.cpu.ops.elements import ELEMENTS, Element
from triton_dist.cpu.ops.late import update_now_or_late
from triton_dist.cpu.ops.progress import looked, moved
from triton_dist.cpu.program import running
from triton_dist.cpu.runtime.atomics import Order

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

_Place = tuple[int, int]
"""PE and offset in its heap."""

_Update = Callable[[Element, RemoteWords, _Place, "int | float", Order], int]
"""Updates the element at a place by an operand; the word that was there before."""

_R = TypeVar("_R")


def _exchange(element: Element, words: RemoteWords, place: _Place, value: int | float, order: Order) -> int:
    return words.exchange(*place, element.bits(value), order)


def _read(element: Element, words: RemoteWords, place: _Place, value: int | float, order: Order) -> int:
    return words.fetch_or(*place, 0, order)


def _add(element: Element, words: RemoteWords, place: _Place, value: int | float, order: Order) -> int:
    if element.is_integer:
        return words.fetch_add(*place, element.bits(value), order)
    more = element.number(element.bits(value))
    seen = words.load(*place, Order.RELAXED)
    while True:
        total = element.bits_of(element.number(seen) + more)
        before = words.compare_swap(*place, seen, total, order)
        if before == seen:
            return before
        seen = before


def _bitwise(operation: Callable[[RemoteWords], Callable[..., int]]) -> _Update:
    def update(element: Element, words: RemoteWords, place: _Place, value: int | float, order: Order) -> int:
        if not element.is_integer:
            raise ValueError(f"and, or and xor are for integers, not {element.name}")
        return operation(words)(*place, element.bits(value), order)

    return update


_and = _bitwise(lambda words: words.fetch_and)
_or = _bitwise(lambda words: words.fetch_or)
_xor = _bitwise(lambda words: words.fetch_xor)


def _op(update: _Update) -> Callable[[int, int | float, int, ElementType, Sem, MemScope], None]:
    """The op that only updates."""

    def op(dst: int, value: int | float, pe: int, type: ElementType, sem: Sem, mem_scope: MemScope) -> None:
        world, element = the_world(), ELEMENTS[type]
        place = there(world, "dst", dst, pe, element.size)
        words = world.heap.words(element.size)
        update_now_or_late(world, place, element, partial(update, element, words, place, value, _ORDERS[sem]))

    return op


def _fetching(name: str, update: _Update) -> Callable[[int, int | float, int, ElementType, Sem, MemScope], int | float]:
    """The op that updates and answers with what was there before."""

    def op(dst: int, value: int | float, pe: int, type: ElementType, sem: Sem, mem_scope: MemScope) -> int | float:
        world, element = the_world(), ELEMENTS[type]
        place = there(world, "dst", dst, pe, element.size)
        running().outstanding.before_update(pe)
        before = element.result(update(element, world.heap.words(element.size), place, value, _ORDERS[sem]))
        looked(world, name, place, before)
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
    place = there(world, "dst", dst, pe, element.size)
    expected = element.bits(cond)
    running().outstanding.before_update(pe)
    before = world.heap.words(element.size).compare_swap(*place, expected, element.bits(value), _ORDERS[sem])
    if before == expected:
        moved()  # it has what it wanted
    else:
        looked(world, "atomic_compare_swap", place, element.result(before))
    return element.result(before)
