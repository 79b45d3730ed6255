"""Which program computes which tile of C, and in which order: a list for each program, computed on the host.

The order is the policy of an operation: tiles that other PEs need first come first, tiles whose operands arrive last
come last. Tiles that are computed together share rows of A and columns of B, which then come from the L2 cache.

Tiles that do not fill the last round of all programs may be split along K, so that no program idles while others
compute a whole tile. Parts of a tile run at the same time, in step with those of its neighbours, so that they share
operands in the cache. They are of equal length, or the last ones are shorter, and the programs that are left compute
those of several tiles one after the other (docs/decisions/0143). Their sums are added as in a binomial tree: eight take
three steps one after the other, where one program that adds them all takes seven.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Round", "Schedule", "Tile", "added_up", "grouped", "groups_of", "make_schedule", "rounds"]

MIN_STEPS = 8  # of a part of a tile: reducing shorter ones costs more than they save
MAX_PARTS = 8
_SPLIT_STEPS, _TURN_STEPS = 12, 4
"""Steps along K that take as long as splitting whole tiles does, and what each turn of shorter parts adds (0143)."""


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


class Round(NamedTuple):
    """Tiles that are computed at the same time.

    Attributes:
        tiles: how many.
        parts: of each tile, along K.
        turns: of how many tiles a program computes the last parts, one after the other. These are as much shorter.
    """

    tiles: int
    parts: int = 1
    turns: int = 1

    def cuts(self, k_steps: int) -> list[int]:
        """Where the parts of so many steps begin, and where the last one ends."""
        whole = self.turns * (self.parts - 1) + 1  # in lengths of the last part
        return [-(-k_steps * self.turns * part // whole) for part in range(self.parts)] + [k_steps]

    def steps(self, k_steps: int) -> int:
        """How many steps the program has that has most of them."""
        cuts = self.cuts(k_steps)
        return max(cuts[1], self.turns * (k_steps - cuts[-2]))


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


def rounds(tiles: int, k_steps: int, programs: int, *, split: bool = True, equal: bool = False) -> list[Round]:
    """Which tiles are computed at a time, round after round.

    Args:
        k_steps: how many blocks along K a tile has.
        split: whether the last round's tiles may be split along K.
        equal: whether into parts of equal length only.
    """
    whole, rest = divmod(tiles, programs)
    found = [Round(programs)] * whole
    if rest:
        last = _equal_parts if equal else _last_round
        found.append(last(rest, k_steps, programs) if split else Round(rest))
    return found


def _equal_parts(tiles: int, k_steps: int, programs: int) -> Round:
    """The round of fewer tiles than programs, in parts of equal length."""
    return Round(tiles, max(1, min(programs // tiles, k_steps // MIN_STEPS, MAX_PARTS)))


def _last_round(tiles: int, k_steps: int, programs: int) -> Round:
    """The same, or one part more of each tile, if that saves more steps than it costs."""
    equal = _equal_parts(tiles, k_steps, programs)
    left = programs - tiles * equal.parts
    if not left or equal.parts == MAX_PARTS:
        return equal
    uneven = Round(tiles, equal.parts + 1, -(-tiles // left))
    shortest = k_steps - uneven.cuts(k_steps)[-2]
    saved = equal.steps(k_steps) - uneven.steps(k_steps)
    costs = _TURN_STEPS * uneven.turns + (_SPLIT_STEPS if equal.parts == 1 else 0)
    return uneven if shortest >= MIN_STEPS and saved > costs else equal


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
    for now in rounds(len(tiles), k_steps, programs, split=split):
        count, parts, cuts = now.tiles, now.parts, now.cuts(k_steps)
        for i, tile in enumerate(left[:count]):
            for part, (slot, inputs, first) in enumerate(added_up(parts)):
                place = (slots + slot if part else -1, inputs, slots + first)
                # Neighbours get the same part of neighbouring tiles; some more tiles' last parts come behind those.
                before = part * count
                program = before + i % (programs - before)
                lists[program].append((tile.row, tile.column, cuts[part], cuts[part + 1], *place, tile.pe))
            slots += parts - 1
        left = left[count:]
    for sent in forwarded:
        lists.append([(tile.row, tile.column, 0, 0, -1, 0, 0, tile.pe) for tile in sent])
    starts = [0]
    for units in lists:
        starts.append(starts[-1] + len(units))
    return Schedule([unit for units in lists for unit in units], starts, slots)
