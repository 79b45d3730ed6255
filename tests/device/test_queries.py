"""Who and where PEs are, in the device library, compiled for this machine, against OpenSHMEM.

PEs, and the threads of their programs, are threads that really run at once.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest
from host_world import HostWorld, Pe
from semantics import SIZE, U64


def test_queries(world: HostWorld) -> None:
    def program(pe: Pe) -> None:
        query = functools.partial(pe.call, result=ctypes.c_int32)
        assert (query("my_pe"), query("n_pes")) == (pe.number, pe.n_pes)
        assert (query("team_my_pe", 0), query("team_n_pes", 0)) == (pe.number, pe.n_pes)
        assert query("team_translate_pe", 0, pe.n_pes - 1, 0) == pe.n_pes - 1
        assert query("team_translate_pe", 0, pe.n_pes, 0) == -1
        for nobody in (1, 31, 32, -1):
            assert (query("team_my_pe", nobody), query("team_n_pes", nobody)) == (-1, -1)
            assert query("team_translate_pe", 0, 0, nobody) == -1
        assert [query("is_reachable", other) for other in (-1, 0, pe.n_pes)] == [0, 1, 0]
        for other in range(pe.n_pes):
            there = pe.call("ptr", pe.array(40, 1, np.uint8), other, result=U64)
            assert there == pe.array(40, 1, np.uint8, other).ctypes.data
            distance = pe.call("heap_distance", other, result=ctypes.c_int64)
            assert there - distance == pe.array(40, 1, np.uint8).ctypes.data

    world.run(program)


def test_pes_of_other_hosts(world: HostWorld) -> None:
    """They have no address, and are put to."""

    def program(pe: Pe) -> None:
        far = [other for other in range(pe.n_pes) if other % 2 != pe.number % 2]
        pe.reach_all_but(far)
        mine, theirs = pe.array(40, 1, np.uint8), (pe.number + 1) % pe.n_pes
        for other in range(pe.n_pes):
            assert pe.call("is_reachable", other, result=ctypes.c_int32) == (other not in far)
            expected = 0 if other in far else pe.array(40, 1, np.uint8, other).ctypes.data
            assert pe.call("ptr", mine, other, result=U64) == expected
            assert pe.call("nvshmem_ptr", mine, other, result=U64) == expected  # for kernels of NVSHMEM
        assert pe.call("nvshmem_ptr", mine, pe.n_pes, result=U64) == pe.call("nvshmem_ptr", mine, -1, result=U64) == 0
        pe.call("putmem", pe.array(80, 8, np.uint8), np.full(8, 7, np.uint8), SIZE(8), theirs)
        assert pe.array(80, 8, np.uint8, theirs).tolist() == [7] * 8

    world.run(program)


@pytest.mark.parametrize("invalid", [-1, 1, 32])
def test_a_collective_of_no_team_says_so_and_touches_nothing(host_library: ctypes.CDLL, invalid: int) -> None:
    """Its barrier flags would be outside of the flags of all teams."""
    pe = Pe(HostWorld(host_library, 1), 0)
    source, target = pe.array(0, 4, np.int64), pe.array(64, 4, np.int64)
    source[:] = 1
    for routine in ("sync", "barrier", "broadcast", "fcollect", "alltoall", "reduce_sum_i64", "reducescatter_sum_i64"):
        more = () if routine in ("sync", "barrier") else (target, source, 4, 0)
        assert pe.call(routine, invalid, *more, result=ctypes.c_int32) == -1, routine
        memory = pe.array(0, HostWorld.HEAP, np.uint8)
        assert not target.any() and memory.sum() == 4, routine
