"""Any number of rows: what the schedules of the overlapped GEMMs store to C, followed on the host for all PEs.

Each test does what the warps of a kernel do with a unit of work, with the same formulas, on whole tiles. TMA's part is
that rows that do not exist are neither loaded nor stored.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import LARGE, ring_rows
from triton_dist.kernels.gemm.hopper import (
    all_gather_gemm,
    gemm_all_reduce,
    gemm_all_reduce_direct,
    gemm_reduce_scatter,
    gemm_reduce_scatter_direct,
    launch,
    memory,
)
from triton_dist.kernels.gemm.hopper.direct import (
    DirectPlan,
    by_rows,
    by_turns,
    computed_in_order,
    direct_schedule,
    each_by_rows,
    each_by_turns,
    most_staged,
    numbered,
)
from triton_dist.kernels.gemm.hopper.layout import FIRST_INPUT, INPUTS, PE, SLOT, TILE_COLUMN, TILE_ROW, TILES
from triton_dist.kernels.gemm.plan_cache import in_bucket
from triton_dist.kernels.gemm.schedule import Schedule, grouped
from triton_dist.kernels.gemm.tile_sizes import choose
from triton_dist.kernels.shards import each_of, shard_of

ROWS = (
    *(1, 7, 100, 128, 333, 1024),
    *(pytest.param(rows, marks=pytest.mark.slow) for rows in (33, 64, 200, 777)),
)
COLUMNS, K, PROGRAMS = 208, 64, 16


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SimpleNamespace(device=torch.device("cpu"))
    for module in (launch, memory):
        monkeypatch.setattr(module, "current_world", lambda: world)
    monkeypatch.setattr(portable, "programs", lambda sm_margin=0: PROGRAMS)


def plans(n_pes: int, make: Callable[[Any], Any]) -> list[Any]:
    """Each PE's plan."""
    found = []
    for pe in range(n_pes):
        comm: Any = SimpleNamespace(n_pes=n_pes, my_rank=pe, peer=lambda tensor, rank: tensor, zeros=torch.zeros)
        comm.own = functools.cache(lambda kind, comm=comm: kind(comm))
        found.append(make(comm))
    return found


def tiles(schedule: Schedule) -> list[tuple[int, int, int]]:
    """Row, column and PE of each tile, in the order of programs and their units, once."""
    return list(
        dict.fromkeys((unit[TILE_ROW.value], unit[TILE_COLUMN.value], unit[PE.value]) for unit in schedule.units)
    )


def rows_of(matrix: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """As TMA loads them: zeros for those that do not exist."""
    found = torch.zeros(count, matrix.shape[1])
    there = range(max(0, first), max(0, min(first + count, matrix.shape[0])))
    if there:
        found[there.start - first : there.stop - first] = matrix[there.start : there.stop]
    return found


def store(c: torch.Tensor, first: int, column: int, block: torch.Tensor, written: torch.Tensor) -> None:
    """As TMA stores a block; counts in ``written``."""
    assert first >= 0
    target = c[first : first + block.shape[0], column : column + block.shape[1]]
    target.copy_(block[: target.shape[0], : target.shape[1]])
    written[first : first + block.shape[0], column : column + block.shape[1]] += 1


def matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randint(-3, 4, (rows, columns), generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize(
    "n_pes", [1, pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(8, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("to_all", [True, False])
def test_a_ring_gives_every_row_of_every_pe_once(m: int, n_pes: int, to_all: bool) -> None:
    operands = [(matrix(m, 8, pe), matrix(8, COLUMNS, 50 + pe)) for pe in range(n_pes)]
    expected = sum(a @ b for a, b in operands)
    each = m if to_all else each_of(m, n_pes)
    own = [range(m) if to_all else shard_of(m, each, pe) for pe in range(n_pes)]
    like = torch.empty(m, K, dtype=torch.bfloat16)
    staging = torch.empty(ring_rows(m, 1 if to_all else n_pes), COLUMNS, dtype=torch.bfloat16)
    hopper = gemm_all_reduce if to_all else gemm_reduce_scatter
    of_pes = plans(n_pes, lambda comm: hopper.make_plan(comm, like, staging))
    shard = staging.shape[0] // n_pes
    padding = 0 if to_all else shard - each  # as run() passes it
    config = of_pes[0].config
    assert config.groups == 2, "as many as the kernels of the ring have"
    found = [torch.full((len(rows), COLUMNS), 77.0) for rows in own]
    written = [torch.zeros(len(rows), COLUMNS) for rows in own]
    owner = {(row, column): pe for row, column, pe in tiles(of_pes[0].schedule)}
    for plan in of_pes:
        assert {(row, column): pe for row, column, pe in tiles(plan.schedule)} == owner, "all agree who owns a tile"
        assert plan.n_flags >= 24 + (staging.shape[0] // config.block_m) * plan.tile_columns
    for (tile_row, tile_column), pe in owner.items():
        row = tile_row * config.block_m
        columns = slice(tile_column * config.block_n, (tile_column + 1) * config.block_n)
        total = sum(rows_of(a, row - pe * padding, config.block_m) @ b[:, columns] for a, b in operands)
        assert torch.is_tensor(total) and row + config.block_m <= staging.shape[0]
        if to_all:
            for one, count in zip(found, written, strict=True):
                store(one, row, columns.start, total, count)
        else:
            store(found[pe], row % shard, columns.start, total, written[pe])
    assert torch.is_tensor(expected)
    for pe, one in enumerate(found):
        assert torch.equal(one, expected[own[pe].start : own[pe].stop])
        assert torch.equal(written[pe], torch.ones_like(written[pe]))


@pytest.mark.parametrize("n_pes", [2, 3, 7, 8])
@pytest.mark.parametrize("m", ROWS)
def test_a_ring_for_all_deals_tiles_out_equally(m: int, n_pes: int) -> None:
    like, staging = torch.empty(m, K, dtype=torch.bfloat16), torch.empty(ring_rows(m, 1), 4096, dtype=torch.bfloat16)
    (plan,) = plans(n_pes, lambda comm: gemm_all_reduce.make_plan(comm, like, staging))[:1]
    counts = [sum(tile[2] == pe for tile in tiles(plan.schedule)) for pe in range(n_pes)]
    assert max(counts) - min(counts) <= 1


def direct_plans(m: int, columns: int, n_pes: int, *, to_all: bool) -> list[DirectPlan]:
    like = torch.empty(m, K, dtype=torch.bfloat16)
    padded = torch.empty(ring_rows(m, 1 if to_all else n_pes), columns, dtype=torch.bfloat16, device="meta")
    hopper = gemm_all_reduce_direct if to_all else gemm_reduce_scatter_direct
    return plans(n_pes, lambda comm: hopper.make_plan(comm, like, padded))


@pytest.mark.parametrize("to_all", [True, False])
@pytest.mark.parametrize("n_pes", [1, 2, 3, 8])
@pytest.mark.parametrize("m", ROWS)
def test_owners_add_up_every_row_once(m: int, n_pes: int, to_all: bool) -> None:
    """What PEs send to owners' staging memory, who add it up and store it to all, or to their rows, as the warps do."""
    operands = [(matrix(m, 8, pe), matrix(8, COLUMNS, 50 + pe)) for pe in range(n_pes)]
    made = direct_plans(m, COLUMNS, n_pes, to_all=to_all)
    each, config = made[0].shares
    height, width = made[0].shares.staging_shape(n_pes)
    staging = [torch.full((height, width), torch.nan) for _ in range(n_pes)]
    signalled = [torch.zeros(made[0].plan.n_flags, dtype=torch.int32) for _ in range(n_pes)]
    own = [range(m) if to_all else shard_of(m, each_of(m, n_pes), pe) for pe in range(n_pes)]
    shard = ring_rows(m, n_pes) // n_pes
    padding = 0 if to_all else shard - each_of(m, n_pes)  # as run() passes it
    found = [torch.full((len(rows), COLUMNS), 77.0) for rows in own]
    written = [torch.zeros(len(rows), COLUMNS) for rows in own]

    def owner_and_place(row: int, column: int, number: int) -> tuple[int, int]:
        """As ``_owner_of`` and ``_place_of`` of source 0."""
        if to_all:
            return number % n_pes, number // n_pes
        return number, -number * each + row * made[0].plan.tile_columns + column

    def partial_sum(pe: int, row: int, column: int, number: int) -> torch.Tensor:
        a, b = operands[pe]
        first = row * config.block_m - number * padding
        part = rows_of(a, first, config.block_m) @ b[:, column * width : (column + 1) * width]
        return torch.nn.functional.pad(part, (0, width - part.shape[1]))

    of_all = [tiles(one.plan.schedule) for one in made]
    assert all(sorted(one) == sorted(of_all[0]) for one in of_all), "all compute all tiles"
    for me, units in enumerate(of_all):
        for unit in units:
            owner, place = owner_and_place(*unit)
            if (ahead := (owner - me) % n_pes) != 0:
                place += (n_pes - 1 - ahead) * each
                signalled[owner][TILES.value + place] += 1
                staging[owner][place * config.block_m : (place + 1) * config.block_m] = partial_sum(me, *unit)
    for me, units in enumerate(of_all):
        for row, column, number in units:
            owner, place = owner_and_place(row, column, number)
            if owner == me:
                total = partial_sum(me, row, column, number)
                for source in range(n_pes - 1):
                    block = source * each + place
                    assert signalled[me][TILES.value + block] == 1, "each place has one tile"
                    total += staging[me][block * config.block_m : (block + 1) * config.block_m]
                for pe in range(n_pes) if to_all else (me,):
                    first = row * config.block_m if to_all else row * config.block_m % shard
                    store(found[pe], first, column * width, total, written[pe])
    expected: Any = sum(a @ b for a, b in operands)
    for rows, one, count in zip(own, found, written, strict=True):
        assert torch.equal(one, expected[rows.start : rows.stop]) and torch.equal(count, torch.ones_like(count))
    counts = [sum(owner_and_place(*unit)[0] == me for unit in units) for me, units in enumerate(of_all)]
    assert max(counts) - min(counts) <= (8 if to_all else 0) and max(counts) <= each, "but for a column of a group"


@given(st.integers(1, 70), st.integers(1, 45), st.integers(1, 8), st.booleans())
def test_there_is_memory_for_the_tiles_of_every_owner(rows: int, columns: int, n_pes: int, to_all: bool) -> None:
    step = 1 if to_all else n_pes
    height, width = rows * step * LARGE.block_m, columns * LARGE.block_n
    c = torch.empty(height, width, dtype=torch.bfloat16, device="meta")
    dealt, each = (by_turns, each_by_turns) if to_all else (by_rows, each_by_rows)
    schedule, shares = direct_schedule(torch.empty(1, K, device="meta"), c, dealt, PROGRAMS, n_pes, 0)
    if to_all:
        assert max(unit[PE.value] // n_pes for unit in schedule.units) < shares.each
    staged = math.prod(most_staged(height, width, n_pes, each))
    assert math.prod(shares.staging_shape(n_pes)) <= staged
    assert staged <= math.prod(most_staged(height + step * LARGE.block_m, width, n_pes, each))


@pytest.mark.parametrize("to_all", [True, False])
@pytest.mark.parametrize("n_pes", [2, 3, 4, 8])
@pytest.mark.parametrize("columns", [208, 2048, 5120])
@pytest.mark.parametrize("m", [256, 777, 2048])
def test_owners_never_wait_in_a_circle(m: int, columns: int, n_pes: int, to_all: bool) -> None:
    """A unit that finishes a PE's own tile waits until the others have sent theirs; one that adds up parts waits for
    these; and a program has one unit after the other."""
    schedules = [made.plan.schedule for made in direct_plans(m, columns, n_pes, to_all=to_all)]
    lists = [
        (pe, schedule.units[first:last])
        for pe, schedule in enumerate(schedules)
        for first, last in pairwise(schedule.starts)
    ]
    sent: set[tuple[int, ...]] = set()  # the PE and the tile
    parts: set[tuple[int, int]] = set()  # the PE and the slot
    places = [0] * len(lists)

    def step(pe: int, unit: tuple[int, ...]) -> bool:
        """Do a unit, if what it waits for is there."""
        slot, tile = unit[SLOT.value], (unit[TILE_ROW.value], unit[TILE_COLUMN.value])
        owner = unit[PE.value] % n_pes
        inputs = range(unit[FIRST_INPUT.value], unit[FIRST_INPUT.value] + unit[INPUTS.value])
        if any((pe, other) not in parts for other in inputs):
            return False
        if slot >= 0:
            parts.add((pe, slot))
            return True
        if owner == pe:
            return all((other, *tile) in sent for other in range(n_pes) if other != pe)
        sent.add((pe, *tile))
        return True

    moved = True
    while moved:
        moved = False
        for i, (pe, units) in enumerate(lists):
            while places[i] < len(units) and step(pe, units[places[i]]):
                places[i] += 1
                moved = True
    assert [len(units) for _, units in lists] == places


@pytest.mark.parametrize("n_pes", [2, 3, 4, 8])
def test_own_tiles_come_a_round_after_the_others_computed_them(n_pes: int) -> None:
    """Most of one, and less for the last ones, behind which there is less to compute."""
    programs, rows, columns = 132, 8, 125
    numbers = numbered(rows, list(grouped(range(rows), range(columns))), n_pes)
    owners = [number % n_pes for number in numbers]
    orders = [computed_in_order([owner == pe for owner in owners], programs, programs) for pe in range(n_pes)]
    places = [{tile: place for place, tile in enumerate(order)} for order in orders]
    assert all(sorted(order) == list(range(rows * columns)) for order in orders)
    for pe in range(n_pes):
        own = [tile for tile, owner in enumerate(owners) if owner == pe]
        assert min(places[pe][tile] for tile in own) >= programs
        for tile in own:
            others = max(places[other][tile] for other in range(n_pes) if other != pe)
            assert places[pe][tile] - others >= 0.75 * programs or tile > rows * columns - 2 * programs, (pe, tile)


@pytest.mark.parametrize(
    "n_pes", [1, pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(8, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_a_gathered_tile_is_loaded_when_and_from_where_its_rows_are(rows: int, lacking: int, n_pes: int) -> None:
    """Of the rows of whole shards some are lacking: the last PE has fewer, or none."""
    if lacking >= n_pes:
        return
    m = rows * n_pes - lacking
    shards = [shard_of(m, rows, pe) for pe in range(n_pes)]
    assert each_of(m, n_pes) == rows and sum(map(len, shards)) == m
    parts = [matrix(len(shard), 8, pe) for pe, shard in enumerate(shards)]
    a, b = torch.cat(parts), matrix(8, COLUMNS, 99)
    like, c_like = torch.empty(rows, K, dtype=torch.bfloat16), torch.empty(m, COLUMNS, dtype=torch.bfloat16)
    nominal = in_bucket(c_like)
    config = choose(like, nominal, PROGRAMS)
    for me, plan in enumerate(plans(n_pes, lambda comm: all_gather_gemm.make_plan(comm, like, nominal, config))):
        gathered = a.clone()
        gathered[shards[me].start : shards[me].stop] = float("nan")  # unless a copy brings this PE's own rows
        gemm: Any = SimpleNamespace(a=parts[me], each=rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(all_gather_gemm, "copy_rows", lambda to, source, like: (to, source))
            copied: Any = all_gather_gemm._copies_in_front(plan, gemm, gathered, None)
        for to, source in copied:
            to.copy_(source)
        if rows % config.block_m == 0:
            assert not copied
        found, written = torch.full((m, COLUMNS), 77.0), torch.zeros(m, COLUMNS)
        awaited = set()
        for tile_row, tile_column, _ in tiles(plan.schedule):
            row = tile_row * config.block_m
            first, last = row // rows, (min(row + config.block_m, m) - 1) // rows
            awaited |= set(range(first, last + 1))
            from_own = first == last == me
            x = (
                rows_of(parts[me], row - me * rows, config.block_m)
                if from_own
                else rows_of(gathered, row, config.block_m)
            )
            columns = slice(tile_column * config.block_n, (tile_column + 1) * config.block_n)
            store(found, row, columns.start, x @ b[:, columns], written)
        assert torch.equal(found, a @ b)
        assert written.min() == written.max() == 1
        senders = {pe for pe, shard in enumerate(shards) if shard}
        assert awaited == senders, "no flag is cleared before its copy has set it, and none is awaited that is not set"


@given(st.integers(64, 5000), st.integers(1, 8), st.sampled_from((64, 128)), st.data())
def test_rows_of_tiles_come_as_they_arrive(m: int, n_pes: int, block_m: int, data: st.DataObject) -> None:
    me, tile_rows = data.draw(st.integers(0, n_pes - 1)), -(-m // block_m)
    found = all_gather_gemm.rows_as_they_arrive(tile_rows, block_m, m, n_pes, me)
    assert sorted(row for _, rows in found for row in rows) == list(range(tile_rows))
    distances = [(pe - me) % n_pes for pe, _ in found]
    assert distances == sorted(distances)
    for pe, rows in found:
        for row in rows:
            pes = {place * n_pes // m for place in range(row * block_m, min(m, (row + 1) * block_m))}
            assert max((one - me) % n_pes for one in pes) == (pe - me) % n_pes
