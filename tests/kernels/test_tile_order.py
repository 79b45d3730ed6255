"""The order of tiles: the model's bytes beside those of a cache that is followed tile by tile, and what is chosen."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from triton_dist.kernels.gemm.schedule import grouped
from triton_dist.kernels.tile_order import GROUP, Chip, group_rows, heads_in_step, loaded_bytes, tasks_in_step

H200 = Chip(132, 50 << 20, 2)
MIB = 1 << 20


STEPS = 16  # along K


def followed(rows: int, columns: int, a_bytes: int, b_bytes: int, group: int, chip: Chip) -> int:
    """Bytes that come from memory, if the cache keeps what was used last, and a round's programs advance in step."""
    places = list(grouped(range(rows), range(columns), group))
    cache: OrderedDict[tuple[str, int, int], int] = OrderedDict()
    loaded = kept = 0
    for first in range(0, len(places), chip.programs):
        used = {("a", row): a_bytes // STEPS for row, _ in places[first : first + chip.programs]}
        used |= {("b", column): b_bytes // STEPS for _, column in places[first : first + chip.programs]}
        for step in range(STEPS):
            for operand, size in used.items():
                key = (*operand, step)
                if key in cache:
                    cache.move_to_end(key)
                    continue
                cache[key] = size
                loaded, kept = loaded + size, kept + size
                while kept > chip.kept:
                    kept -= cache.popitem(last=False)[1]
    return loaded


@pytest.mark.parametrize("group", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize(
    "shape", [(32, 32, MIB, 2 * MIB), (64, 16, MIB, MIB), (64, 64, MIB // 4, MIB // 4), (16, 128, 2 * MIB, 4 * MIB)]
)
def test_the_model_is_near_a_cache_that_is_followed(shape: tuple[int, int, int, int], group: int) -> None:
    model, exact = loaded_bytes(*shape, group, H200), followed(*shape, group, H200)
    assert 0.55 < model / exact < 1.1, (model / MIB, exact / MIB)


@pytest.mark.parametrize(
    "shape", [(32, 32, MIB, 2 * MIB), (64, 32, MIB, 2 * MIB), (32, 64, MIB, MIB), (8, 8, MIB, MIB)]
)
def test_what_is_chosen_loads_no_more_than_groups_of_eight(shape: tuple[int, int, int, int]) -> None:
    chosen = group_rows(*shape, H200)
    assert followed(*shape, chosen, H200) <= followed(*shape, GROUP, H200)


def test_wide_tiles_of_a_large_gemm_have_larger_groups_and_small_ones_stay() -> None:
    assert group_rows(32, 32, MIB, 2 * MIB, H200) == 16
    assert group_rows(64, 16, MIB, MIB, H200) == 1  # B stays, beside the nine rows of a round
    assert group_rows(8, 8, MIB, MIB, H200) == GROUP  # all tiles in one round
    assert group_rows(64, 64, 1024, 1024, H200) == GROUP  # all operands in the cache
    assert group_rows(32, 32, MIB, 2 * MIB, None) == GROUP


def test_tasks_run_beside_each_other_as_far_as_there_are_programs() -> None:
    assert [tasks_in_step(tasks, 132) for tasks in (1, 2, 4, 5, 7)] == [1, 2, 4, 5, 7]
    assert [tasks_in_step(tasks, 4) for tasks in (4, 5, 6, 8, 16)] == [4, 1, 3, 4, 4]


def test_kv_heads_are_read_in_step_where_nearly_all_programs_can_take_part() -> None:
    assert [heads_in_step(heads, 132) for heads in (1, 2, 4, 7, 8, 32)] == [1, 2, 4, 7, 8, 32]
    assert [heads_in_step(heads, 132) for heads in (28, 40, 96)] == [14, 10, 32], "a sixteenth may be left over"
    assert [heads_in_step(heads, 4) for heads in (3, 8)] == [1, 4]
    assert heads_in_step(8, 1) == 1
    for programs in range(1, 265):
        groups = [heads_in_step(heads, programs) for heads in range(1, 129)]
        assert all(programs // each >= 1 and programs % each <= programs // 16 for each in groups), programs
