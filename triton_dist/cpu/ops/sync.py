"""Waiting for elements of this PE's symmetric memory, and testing them.

The ops of many elements come in pairs: one compares all with one ``cmp_value``, the ``_vector`` form compares element i
with ``cmp_values[i]``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from triton_dist._C.op_table import Cmp, ElementType
from triton_dist.cpu.ops.address_checks import local_array
from triton_dist.cpu.ops.elements import ELEMENTS, Element
from triton_dist.cpu.ops.progress import looked
from triton_dist.cpu.ops.wait_set import Watched
from triton_dist.cpu.program import running

__all__ = [
    "test",
    "test_all",
    "test_all_vector",
    "test_any",
    "test_any_vector",
    "test_some",
    "test_some_vector",
    "wait_for",
    "wait_until",
    "wait_until_all",
    "wait_until_all_vector",
    "wait_until_any",
    "wait_until_any_vector",
    "wait_until_some",
    "wait_until_some_vector",
]

_NO_ELEMENT = -1
"""SIZE_MAX, as the bits of an int64."""


# ---- one element


def wait_for(op: str, name: str, address: int, cmp_value: int | float, cmp: Cmp, element: Element) -> int:
    """Wait for the element at ``address``, which is the op's argument ``name``; the word that ended the wait."""
    watched = Watched.one(op, name, address, cmp_value, cmp, element)
    seen = 0

    def ready() -> bool:
        nonlocal seen
        seen = watched.word(0)
        return watched.accepts(0, seen)

    running().wait_until(ready, lambda: watched.describe((0,)), watched.places())
    return seen


def wait_until(ivar: int, cmp_value: int | float, cmp: Cmp, type: ElementType) -> int:
    wait_for("wait_until", "ivar", ivar, cmp_value, cmp, ELEMENTS[type])
    return 0


def test(ivar: int, cmp_value: int | float, cmp: Cmp, type: ElementType) -> int:
    watched = Watched.one("test", "ivar", ivar, cmp_value, cmp, ELEMENTS[type])
    return _tested(watched, len(watched.accepted()))


# ---- many elements


def _wait_for_all(watched: Watched) -> int:
    """Until each has compared true once: it may have changed again by the time the last one does."""
    missing = list(watched.indices)

    def ready() -> bool:
        accepted = set(watched.accepted(missing))
        missing[:] = [index for index in missing if index not in accepted]
        return not missing

    running().wait_until(ready, lambda: watched.describe(missing), watched.places())
    return 0


def _wait_for_some(watched: Watched) -> list[int]:
    """All that compare true once any does; none, at once, if there are none to wait for."""
    accepted: list[int] = []

    def ready() -> bool:
        accepted[:] = watched.accepted()
        return bool(accepted)

    if watched.indices:
        running().wait_until(ready, lambda: watched.describe(watched.indices), watched.places())
    return accepted


def _first(accepted: list[int]) -> int:
    return accepted[0] if accepted else _NO_ELEMENT


def _tested(watched: Watched, answer: int) -> int:
    looked(watched.world, watched.op, (watched.world.pe, watched.first), answer)
    return answer


_Op = Callable[[int, int, int, "int | float", Cmp, ElementType], int]
_SomeOp = Callable[[int, int, int, int, "int | float", Cmp, ElementType], int]


def _pair(name: str, act: Callable[[Watched], int]) -> tuple[_Op, _Op]:
    """The op that answers with ``act``'s result, and its vector form."""

    def form(op: str, vector: bool) -> _Op:
        def call(ivars: int, nelems: int, status: int, cmp_value: int | float, cmp: Cmp, type: ElementType) -> int:
            return act(Watched.many(op, ivars, nelems, status, cmp_value, cmp, type, vector))

        return call

    return form(name, False), form(f"{name}_vector", True)


def _pair_of_some(name: str, act: Callable[[Watched], list[int]]) -> tuple[_SomeOp, _SomeOp]:
    """The op that writes ``act``'s result to ``indices`` and answers with its length, and its vector form."""

    def form(op: str, vector: bool) -> _SomeOp:
        def call(
            ivars: int, nelems: int, indices: int, status: int, cmp_value: int | float, cmp: Cmp, type: ElementType
        ) -> int:
            accepted = act(Watched.many(op, ivars, nelems, status, cmp_value, cmp, type, vector))
            local_array("indices", indices, len(accepted), np.uint64)[:] = accepted
            return len(accepted)

        return call

    return form(name, False), form(f"{name}_vector", True)


def _test_some(watched: Watched) -> list[int]:
    accepted = watched.accepted()
    _tested(watched, len(accepted))
    return accepted


wait_until_all, wait_until_all_vector = _pair("wait_until_all", _wait_for_all)
wait_until_any, wait_until_any_vector = _pair("wait_until_any", lambda watched: _first(_wait_for_some(watched)))
wait_until_some, wait_until_some_vector = _pair_of_some("wait_until_some", _wait_for_some)
test_all, test_all_vector = _pair(
    "test_all", lambda watched: _tested(watched, int(len(watched.accepted()) == len(watched.indices)))
)
test_any, test_any_vector = _pair("test_any", lambda watched: _tested(watched, _first(watched.accepted())))
test_some, test_some_vector = _pair_of_some("test_some", _test_some)
