"""The allocator: pieces never overlap, nothing gets lost, and the same calls give the same places."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from triton_dist.cpu import allocator
from triton_dist.cpu.allocator import ALIGNMENT, FirstFit

SIZE = 64 * ALIGNMENT
# A size to allocate, or a number that picks which of the live pieces to release.
calls = st.lists(st.tuples(st.booleans(), st.integers(0, 12 * ALIGNMENT)), max_size=60)


def padded(nbytes: int) -> int:
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


@given(calls)
def test_pieces_and_books(calls: list[tuple[bool, int]]) -> None:
    heap, twin = FirstFit(SIZE), FirstFit(SIZE)
    live: dict[int, int] = {}
    for allocates, number in calls:
        if allocates:
            offset = heap.allocate(number)
            assert offset == twin.allocate(number)
            if offset is None:
                assert padded(number) > heap.largest
            else:
                end = offset + padded(number)
                assert offset % ALIGNMENT == 0 and end <= SIZE
                assert all(end <= begin or begin + padded(size) <= offset for begin, size in live.items())
                live[offset] = number
        elif live:
            offset = sorted(live)[number % len(live)]
            del live[offset]
            heap.release(offset)
            twin.release(offset)
        assert heap.free == SIZE - sum(map(padded, live.values()))
    for offset in live:
        heap.release(offset)
    assert heap.free == heap.largest == SIZE


def test_examples_of_the_docstring() -> None:
    assert doctest.testmod(allocator).failed == 0
