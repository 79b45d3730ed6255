"""Schedules of matrix products: every tile is computed, once, and nobody waits for a sum that never comes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_dist.kernels.gemm.schedule import (
    MAX_PARTS,
    MIN_STEPS,
    Round,
    Schedule,
    Tile,
    added_up,
    grouped,
    make_schedule,
    rounds,
)

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
    assert schedule.slots <= programs  # as much memory there is for sums
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


@settings(max_examples=500)
@given(st.integers(1, 131), st.integers(1, 400))
def test_no_program_has_more_steps_than_its_round_says(tiles: int, k_steps: int) -> None:
    (last,) = rounds(tiles, k_steps, 132)
    schedule = make_schedule([Tile(i, 0, 0) for i in range(tiles)], k_steps, 132)
    busiest = max(sum(end - begin for _, _, begin, end, *_ in units_of(schedule, program)) for program in range(132))
    assert busiest == last.steps(k_steps) <= k_steps
    assert all(end - begin >= min(MIN_STEPS, k_steps) for _, _, begin, end, *_ in schedule.units)


def test_programs_that_are_left_compute_the_last_parts_of_two_tiles() -> None:
    """88 tiles for 132 programs: two thirds of each by 88 of them, the other thirds by the 44 that are left."""
    tiles = [Tile(i, 0, 0) for i in range(88)]
    assert rounds(88, 96, 132) == [Round(88, 2, 2)]
    schedule = make_schedule(tiles, 96, 132)
    for program in range(88):
        (unit,) = units_of(schedule, program)
        assert unit[0] == program and unit[2:4] == (0, 64) and unit[5] == 1, unit
    for program in range(44):
        first, second = units_of(schedule, 88 + program)
        assert first[0] == program and second[0] == program + 44
        assert first[2:4] == second[2:4] == (64, 96) and first[5] == second[5] == 0


@pytest.mark.parametrize(
    ("tiles", "k_steps", "expected"),
    [
        pytest.param(48, 384, Round(48, 3, 2), id="beside two parts"),
        pytest.param(48, 40, Round(48, 2), id="a third part that saves four steps of twenty"),
        pytest.param(88, 48, Round(88), id="whole tiles, as parts save sixteen steps of 48"),
        pytest.param(120, 96, Round(120), id="whole tiles, as ten last parts follow each other"),
        pytest.param(100, 400, Round(100, 2, 4), id="four last parts"),
        pytest.param(66, 96, Round(66, 2), id="two parts for all programs"),
    ],
)
def test_parts_differ_where_that_saves_more_than_it_costs(tiles: int, k_steps: int, expected: Round) -> None:
    assert rounds(tiles, k_steps, 132) == [expected]


def test_tiles_that_are_passed_on_come_behind() -> None:
    tiles = [Tile(i, 0, i) for i in range(7)]
    schedule = make_schedule(tiles, 4, 3, forwarded=[tiles[::2], tiles[1::2]])
    assert [unit[7] for unit in units_of(schedule, 3)] == [0, 2, 4, 6]
    assert [unit[7] for unit in units_of(schedule, 4)] == [1, 3, 5]
