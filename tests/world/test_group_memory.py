"""The memory of groups: what members take, agree on and give back, with threads for PEs."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from forking import launch
from limits import HANG_SECONDS

from triton_dist.world.groups import ALIGNMENT, GroupMemory, HostGroup


class Pes:
    """PEs of one process, and how their hosts meet."""

    def __init__(self, n_pes: int, size: int) -> None:
        self.memories = [torch.zeros(size, dtype=torch.uint8) for _ in range(n_pes)]
        places = [memory.data_ptr() for memory in self.memories]
        self.of = [GroupMemory(place, place, size, torch.device("cpu"), self) for place in places]
        self._barriers: dict[str, tuple[threading.Barrier, dict[int, str]]] = {}
        self._rounds: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._lock = threading.Lock()

    def together(self, pe: int) -> Any:
        def exchange(group: HostGroup, call: str, value: str = "") -> list[str]:
            with self._lock:
                self._rounds[group.name, pe] += 1
                key = f"{group.name}/{self._rounds[group.name, pe]}"
                barrier = self._barriers.setdefault(key, (threading.Barrier(len(group.pes)), {}))
            barrier[1][pe] = value
            barrier[0].wait(HANG_SECONDS)
            return [barrier[1][member] for member in group.pes]

        return exchange

    def allocate(self, pe: int, group: HostGroup, *shape: int) -> torch.Tensor:
        return self.of[pe].allocate(self.together(pe), lambda: None, group, shape, torch.uint8)


def run(*functions: Callable[[], object]) -> list[Any]:
    """The results of functions that run at the same time, or what they raised."""
    found: list[Any] = [None] * len(functions)

    def one(i: int) -> None:
        try:
            found[i] = functions[i]()
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=one, args=[i], daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()
    return found


def test_overlapping_groups_get_disjoint_ranges_at_equal_offsets() -> None:
    pes = Pes(4, 64 * ALIGNMENT)
    shapes = [range(2), range(0, 4, 2), range(1, 4), range(2, 4), range(4), range(3, 4)]
    groups = [{pe: HostGroup(f"group {i}", span) for pe in span} for i, span in enumerate(shapes)]
    taken: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    kept = []
    for i, members in enumerate(groups * 2):
        size = 1 + 700 * (i % 3)
        tensors = run(
            *(lambda pe=pe, group=group, size=size: pes.allocate(pe, group, size) for pe, group in members.items())
        )
        offsets = {t.data_ptr() - pes.memories[pe].data_ptr() for pe, t in zip(members, tensors, strict=True)}
        assert len(offsets) == 1, "the members agree"
        kept.append(tensors)
        for pe in members:
            taken[pe].append((min(offsets), min(offsets) + size))
            assert pes.of[pe].find(tensors[list(members).index(pe)].data_ptr())[1] is members[pe]
    for spans in taken.values():
        spans.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_groups_may_allocate_at_the_same_time() -> None:
    """Of one PE, in several threads: what one is about to take is not free for another."""
    pes = Pes(2, 256 * ALIGNMENT)

    def many(pe: int, name: str) -> list[torch.Tensor]:
        group = HostGroup(name, range(2))
        return [pes.allocate(pe, group, 600) for _ in range(20)]

    found = run(*(lambda pe=pe, name=name: many(pe, name) for pe in range(2) for name in ("group one", "group two")))
    for pe in range(2):
        starts = [t.data_ptr() for tensors in found[2 * pe : 2 * pe + 2] for t in tensors]
        assert len(set(starts)) == 40 and all(start % ALIGNMENT == starts[0] % ALIGNMENT for start in starts)


def test_what_all_have_dropped_is_used_again_and_full_is_an_error_for_all() -> None:
    pes = Pes(2, 4 * ALIGNMENT)
    groups = [HostGroup("group of all", range(2)) for _ in range(2)]

    def allocate(size: int) -> list[Any]:
        return run(*(lambda pe=pe: pes.allocate(pe, groups[pe], size) for pe in range(2)))

    first = allocate(3 * ALIGNMENT)
    held = first[1]
    del first
    full = allocate(2 * ALIGNMENT)
    assert all(isinstance(error, MemoryError) and "TRITON_DIST_GROUP_MEMORY" in str(error) for error in full)
    del held
    again = allocate(4 * ALIGNMENT)
    assert all(isinstance(t, torch.Tensor) for t in again)
    for pe in range(2):
        pes.of[pe].release(groups[pe])
        assert pes.of[pe].free_bytes == 4 * ALIGNMENT


def test_sizes_that_differ_between_pes_are_an_error() -> None:
    program = "import os; os.environ['TRITON_DIST_GROUP_MEMORY'] = f'{1 + int(os.environ[\"RANK\"])}M'\n"
    program += "import triton_dist; triton_dist.init()"
    result = launch(["-c", program], 2, env={"TRITON_DIST_WORLD": "cpu"}, timeout=HANG_SECONDS)
    expected = "TRITON_DIST_GROUP_MEMORY is 1048576 bytes on PE 0 and 2097152 on PE 1: set it alike on all PEs"
    assert all(expected in pe.stderr for pe in result), result.report


@pytest.mark.parametrize("size", ["0", "1M"])
def test_groups_have_as_much_as_the_variable_says(size: str) -> None:
    program = """
import torch, triton_dist
from triton_dist.kernels import Communicator
with triton_dist.init() as world:
    row, _ = world.team_world.split_2d(1)
    comm = Communicator(row)
    try:
        comm.empty(1 << 18, dtype=torch.uint8)
        print("made")
    except MemoryError as error:
        print(error)
"""
    env = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_GROUP_MEMORY": size}
    result = launch(["-c", program], 2, env=env, timeout=HANG_SECONDS).check()
    for pe in result:
        assert ("made" in pe.stdout) == (size == "1M"), pe.stdout
        assert ("TRITON_DIST_GROUP_MEMORY" in pe.stdout) == (size == "0"), pe.stdout
