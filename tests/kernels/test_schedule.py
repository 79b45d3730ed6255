"""Schedules of matrix products: every tile is computed, once, and nobody waits for a sum that never comes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from triton_dist.kernels.gemm.schedule import MAX_PARTS, MIN_STEPS, Schedule, Tile, added_up, grouped, make_schedule

shapes = st.integers(1, 40)


@given(shapes, shapes, st.integers(1, 12))
def test_grouped_is_every_place_once(rows: int, columns: int, group: int) -> None:
    places = list(grouped(range(3, 3 + rows), range(columns), group))
    assert sorted(places) == [(3 + row, column) for row in range(rows) for column in range(columns)]


@settings(max_examples=200)
@given(shapes, shapes, st.integers(1, 200), st.integers(1, 140), st.booleans())
def test_every_step_of_every_tile_is_computed_once(
    rows: int, columns: int, k_steps: int, programs: int, split: bool
) -> None:
    tiles = [Tile(row, column, 5) for row, column in grouped(range(rows), range(columns))]
    schedule = make_schedule(tiles, k_steps, programs, split=split)
    assert len(schedule.starts) == programs + 1 and schedule.starts[-1] == len(schedule.units)
    parts: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for row, column, begin, end, slot, inputs, first, pe in schedule.units:
        assert pe == 5 and begin < end
        parts.setdefault((row, column), []).append((begin, end, slot, inputs, first))
    assert sorted(parts) == sorted((tile.row, tile.column) for tile in tiles)
    used: list[int] = []
    for mine in parts.values():
        mine.sort()
        assert [begin for begin, *_ in mine] == [0, *(end for _, end, *_ in mine[:-1])] and mine[-1][1] == k_steps
        assert [slot for _, _, slot, *_ in mine].index(-1) == 0
        slots = sorted(slot for _, _, slot, *_ in mine[1:])
        assert slots == sorted(slot for *_, inputs, first in mine for slot in range(first, first + inputs))
        used += slots
    assert sorted(used) == list(range(schedule.slots))
    assert split or not used


@given(st.integers(1, MAX_PARTS))
def test_all_parts_of_a_tile_are_added_once_in_few_steps(parts: int) -> None:
    """By programs that wait only for parts behind theirs. A step is that of a part that adds another one."""
    found = added_up(parts)
    in_slot = {slot: part for part, (slot, *_) in enumerate(found) if part}
    sums: dict[int, tuple[set[int], int]] = {}
    for part in reversed(range(parts)):
        _, inputs, first = found[part]
        summed, step = {part}, 0
        for slot in range(first, first + inputs):
            others, ready = sums.pop(in_slot[slot])
            assert not summed & others
            summed, step = summed | others, max(step, ready) + 1
        sums[part] = summed, step
    assert sums == {0: (set(range(parts)), (parts - 1).bit_length())}


def units_of(schedule: Schedule, program: int) -> list[tuple[int, ...]]:
    return schedule.units[schedule.starts[program] : schedule.starts[program + 1]]


def test_who_adds_up_does_so_last() -> None:
    schedule = make_schedule([Tile(i, 0, 0) for i in range(132 + 40)], 100, 132)
    assert schedule.slots == 40 * 2  # 132 programs share 40 tiles: 3 parts each
    for program in range(132):
        kinds = [("sum" if unit[5] else "part") for unit in units_of(schedule, program) if unit[2:4] != (0, 100)]
        assert kinds in ([], ["sum"], ["part"])


def test_parts_are_neither_tiny_nor_many() -> None:
    assert make_schedule([Tile(0, 0, 0)], 1000, 132).slots == MAX_PARTS - 1
    assert make_schedule([Tile(0, 0, 0)], 2 * MIN_STEPS, 132).slots == 1
    assert make_schedule([Tile(0, 0, 0)], 2 * MIN_STEPS - 1, 132).slots == 0


def test_tiles_that_are_passed_on_come_behind() -> None:
    tiles = [Tile(i, 0, i) for i in range(7)]
    schedule = make_schedule(tiles, 4, 3, forwarded=[tiles[::2], tiles[1::2]])
    assert [unit[7] for unit in units_of(schedule, 3)] == [0, 2, 4, 6]
    assert [unit[7] for unit in units_of(schedule, 4)] == [1, 3, 5]
