"""Which program computes which tile of C, and in which order: a list for each program, computed on the host.

The order is the policy of an operation: tiles that other PEs need first come first, tiles whose operands arrive last
come last. Tiles that are computed together share rows of A and columns of B, which then come from the L2 cache.

Tiles that do not fill the last round of all programs may be split along K, so that no program idles while others
compute a whole tile. Parts of a tile are of equal length and run at the same time, in step with those of its
neighbours, so that they share operands in the cache. Their sums are added as in a binomial tree: eight take three steps
one after the other, where one program that adds them all takes seven.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Schedule", "Tile", "added_up", "grouped", "groups_of", "make_schedule", "rounds"]

MIN_STEPS = 8  # of a part of a tile: reducing shorter ones costs more than they save
MAX_PARTS = 8


@dataclass(frozen=True)
class Tile:
    """A tile of C: its row and column, in tiles, and a number whose meaning is the operation's (``layout.PE``)."""

    row: int
    column: int
    pe: int


@dataclass(frozen=True)
class Schedule:
    """Units of work, eight integers each (``hopper/layout.py``), program after program.

    Program p has units ``starts[p]`` to ``starts[p + 1]``; ``slots`` partial sums are exchanged.
    """

    units: list[tuple[int, ...]]
    starts: list[int]
    slots: int


def groups_of(rows: range, most: int) -> list[range]:
    """Groups of up to ``most`` rows, as few as can be, and alike: a row by itself would load all of B for no other, in
    a round that waits for memory."""
    count = -(-len(rows) // most)
    return [rows[len(rows) * i // count : len(rows) * (i + 1) // count] for i in range(count)]


def grouped(rows: range, columns: range, group: int = 8) -> Iterator[tuple[int, int]]:
    """All places, column by column in groups of up to ``group`` rows (:func:`groups_of`): a round of programs works on
    something nearly square."""
    for of_group in groups_of(rows, group):
        for column in columns:
            for row in of_group:
                yield row, column


def rounds(tiles: int, k_steps: int, programs: int, *, split: bool = True) -> list[tuple[int, int]]:
    """How many tiles are computed at a time, round after round, and in how many parts.

    Args:
        k_steps: how many blocks along K a tile has.
        split: whether the last round's tiles may be split along K.
    """
    whole, rest = divmod(tiles, programs)
    found = [(programs, 1)] * whole
    if rest:
        parts = min(programs // rest, k_steps // MIN_STEPS, MAX_PARTS) if split else 1
        found.append((rest, max(1, parts)))
    return found


def added_up(parts: int) -> list[tuple[int, int, int]]:
    """How so many partial sums become one, that of part 0: of each part the slot of its sum, how many others' it adds
    before, and the first one's slot. Those that a part adds follow each other. (The slot of part 0 is not used.)

    Part p adds that of p + 1, then of p + 2, p + 4 and so on, as far as p is a multiple of twice the distance.
    """
    slots, added, used = [0] * parts, [], 0
    for part in range(parts):
        first = used
        distance = 1
        while part % (2 * distance) == 0 and part + distance < parts:
            slots[part + distance] = used
            used += 1
            distance *= 2
        added.append((used - first, first))
    return [(slot, *of_part) for slot, of_part in zip(slots, added, strict=True)]


def make_schedule(
    tiles: Sequence[Tile],
    k_steps: int,
    programs: int,
    *,
    split: bool = True,
    forwarded: Sequence[Sequence[Tile]] = (),
) -> Schedule:
    """Deal ``tiles`` out to ``programs`` in rounds.

    Args:
        k_steps, split: see ``rounds``.
        forwarded: for each communication program, which follow and compute nothing, the tiles that it sends.
    """
    lists: list[list[tuple[int, ...]]] = [[] for _ in range(programs)]
    slots, left = 0, tiles
    for count, parts in rounds(len(tiles), k_steps, programs, split=split):
        now, left = left[:count], left[count:]
        for i, tile in enumerate(now):
            for part, (slot, inputs, first) in enumerate(added_up(parts)):
                begin, stop = k_steps * part // parts, k_steps * (part + 1) // parts
                place = (slots + slot if part else -1, inputs, slots + first)
                # Neighbours get the same part of neighbouring tiles.
                lists[part * count + i].append((tile.row, tile.column, begin, stop, *place, tile.pe))
            slots += parts - 1
    for sent in forwarded:
        lists.append([(tile.row, tile.column, 0, 0, -1, 0, 0, tile.pe) for tile in sent])
    starts = [0]
    for units in lists:
        starts.append(starts[-1] + len(units))
    return Schedule([unit for units in lists for unit in units], starts, slots)
