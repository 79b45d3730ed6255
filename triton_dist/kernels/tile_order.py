"""In which order tiles of a GEMM and splits of a KV cache are computed: a model of what the L2 cache keeps.

A GPU computes as many tiles at a time as it has SMs: a round, whose programs advance along K in step. So what several
tiles of a round need is loaded from memory once. What a later round needs again is still in the L2 cache if all that is
loaded between the two uses fits in there. From A100 on the cache has two partitions, and an SM reads through the one on
its side (NVIDIA's white papers of A100 and H100): what SMs on both sides read takes room in both, so that half of the
bytes count. On which side a program runs is not known before it runs, and the model does not place tiles by it.

- **GEMM.** Tiles of C are computed in groups of rows of tiles, column by column in each. A round then covers ``group``
  rows and some columns. Larger groups load B fewer times, and A more often: :func:`group_rows` takes the one that loads
  the least.
- **Decode.** Tasks that read the same keys (tiles of the query heads of one KV head) load them once where they are in
  step, and else once each, since a long cache does not fit. :func:`tasks_in_step` says how many run beside each other.
  Where each key has one task, no order loads less.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton_dist
from triton_dist.kernels.device import gpu

__all__ = ["GROUP", "Chip", "chip", "group_rows", "loaded_bytes", "tasks_in_step"]

GROUP = 8
"""Rows of tiles of a group where nothing is known of the cache, or no other number loads much less."""

_GROUPS = (1, 2, 4, 8, 16, 32, 64)
_WORTH = 0.95
"""Of the bytes that groups of ``GROUP`` rows load: a group must load less than so many to be taken."""

_PARTITIONS = {(8, 0): 2, (9, 0): 2, (10, 0): 2}
"""Of the L2 cache, by compute capability; 1 for others."""


@dataclass(frozen=True)
class Chip:
    """What the model knows of a GPU: tiles that are computed at a time, bytes of L2 cache, and its partitions."""

    programs: int
    l2_bytes: int
    partitions: int

    @property
    def kept(self) -> int:
        """Bytes that the cache keeps of what all SMs read."""
        return self.l2_bytes // self.partitions


def chip(programs: int) -> Chip | None:
    """This PE's GPU, for kernels of so many programs; None where the size of its cache is not known."""
    if triton_dist.kind() != "gpu" or not gpu().l2_bytes:
        return None
    return Chip(programs, gpu().l2_bytes, _PARTITIONS.get(gpu().capability, 1))


def loaded_bytes(rows: int, columns: int, a_bytes: int, b_bytes: int, group: int, chip: Chip) -> int:
    """About how many bytes of A and B come from memory if tiles are computed in groups of so many rows.

    Args:
        rows, columns: of tiles that C has.
        a_bytes, b_bytes: of A for a row of tiles, and of B for a column.
    """
    group = min(group, rows)
    if group * columns <= chip.programs:  # a round has whole groups; it ends within one, and uses all of its rows
        used = min(rows, group * -(-chip.programs // (group * columns)))
        stays = used * a_bytes + columns * b_bytes <= chip.kept
        return rows * a_bytes + columns * b_bytes * (1 if stays else -(-rows * columns // chip.programs))
    wide = min(columns, max(1, chip.programs // group))  # columns of a round
    # A is used again by the next round, and B by the next group.
    a_stays = group * a_bytes + wide * b_bytes <= chip.kept
    b_stays = group * a_bytes + columns * b_bytes <= chip.kept
    a_times = 1 if a_stays else -(-columns // wide)
    b_times = 1 if b_stays else -(-rows // group)
    return rows * a_bytes * a_times + columns * b_bytes * b_times


def group_rows(rows: int, columns: int, a_bytes: int, b_bytes: int, chip: Chip | None) -> int:
    """How many rows of tiles a group has; arguments as of :func:`loaded_bytes`."""
    if chip is None:
        return GROUP
    loaded = {group: loaded_bytes(rows, columns, a_bytes, b_bytes, group, chip) for group in _GROUPS}
    best = min(_GROUPS, key=lambda group: loaded[group])
    return best if loaded[best] < _WORTH * loaded[GROUP] else GROUP


def tasks_in_step(tasks: int, programs: int) -> int:
    """How many of the ``tasks`` that read the same keys run beside each other: all, if there are programs for them."""
    return max(n for n in range(1, tasks + 1) if tasks % n == 0 and n <= max(1, programs))


def heads_in_step(heads: int, programs: int) -> int:
    """Into how many groups ``programs`` are split, each of which has some of the KV ``heads``.

    A position's keys of all heads lie side by side in memory. Groups read them at the same time, and so from rows of
    memory that are open. A sixteenth of the programs may be left over.
    """
    fits = (n for n in range(1, heads + 1) if heads % n == 0 and n <= programs and programs % n <= programs // 16)
    return max(fits, default=1)
