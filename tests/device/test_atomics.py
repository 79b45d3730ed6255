"""Signals and atomics of the device library, compiled for this machine, against OpenSHMEM.

PEs, and the threads of their programs, are threads that really run at once.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import pytest
from host_world import HostWorld, Pe
from semantics import ADD, EQ, FLOATS, GE, INTEGERS, SCOPES, SET, U64, only_pe_0


@pytest.mark.parametrize(
    "routine",
    [
        *("putmem_signal", "putmem_signal_nbi", "putmem_signal_aligned", "putmem_signal_nbi_aligned"),
        "putmem_signal_between_aligned",
    ],
)
@pytest.mark.parametrize("scope", SCOPES)
def test_who_sees_the_signal_sees_the_data(world: HostWorld, routine: str, scope: str) -> None:
    rounds, count = 50 if scope else 200, 100  # other scopes start two threads for each call

    def program(pe: Pe) -> None:
        """A ring: everybody sends to the next, and hears from the one before that it was taken."""
        following, before = (pe.number + 1) % pe.n_pes, (pe.number - 1) % pe.n_pes
        arrived, taken = pe.array(0, 1, np.uint64), pe.array(8, 1, np.uint64)
        for i in range(1, rounds + 1):
            pe.array(1024, count, np.uint32)[:] = 1000 * i + pe.number
            pe.call(
                routine + scope,
                pe.array(2048, 1, np.uint8),
                pe.array(1024, 1, np.uint8),
                4 * count,
                arrived,
                i,
                SET,
                following,
            )
            assert pe.call("signal_wait_until", arrived, GE, i, result=U64) == i
            assert (pe.array(2048, count, np.uint32) == 1000 * i + before).all()
            pe.call("signal_op", taken, 1, ADD, before)
            pe.call("signal_wait_until", taken, EQ, i, result=U64)
        assert pe.call("signal_fetch", taken, result=U64) == rounds

    world.run(program)


def test_adds_of_all_pes_are_counted(world: HostWorld) -> None:
    times = 2000

    def program(pe: Pe) -> None:
        for _ in range(times):
            pe.call("signal_op", pe.array(0, 1, np.uint64), 3, ADD, 0)
            pe.call("atomic_inc_u32", pe.array(8, 1, np.uint32), 0)
        pe.call("barrier_all")
        assert pe.array(0, 1, np.uint64, 0)[0] == 3 * times * pe.n_pes
        assert pe.array(8, 1, np.uint32, 0)[0] == times * pe.n_pes

    world.run(program)


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64"])
def test_integer_atomics(host_library: ctypes.CDLL, name: str) -> None:
    dtype = INTEGERS[name]
    kind = getattr(ctypes, f"c_{dtype.name}")
    world = HostWorld(host_library, 2)

    def program(pe: Pe) -> None:
        there, at = pe.array(64, 1, dtype, 1), pe.array(64, 1, dtype)
        largest = int(np.iinfo(dtype).max)

        def fetch(routine: str, *arguments: int) -> int:
            return pe.call(f"atomic_{routine}_{name}", at, *arguments, 1, result=kind)

        pe.call(f"atomic_set_{name}", at, largest, 1)
        assert (there[0], fetch("fetch")) == (largest, largest)
        assert fetch("fetch_inc") == largest
        assert there[0] == np.iinfo(dtype).min  # it wraps
        assert fetch("swap", 12) == np.iinfo(dtype).min
        assert fetch("compare_swap", 11, 5) == 12
        assert fetch("compare_swap", 12, 5) == 12
        for routine, value, expected in (("add", 7, 12), ("and", 10, 8), ("or", 3, 11), ("xor", 6, 13)):
            before = int(there[0])
            assert fetch(f"fetch_{routine}", value) == before
            assert there[0] == expected
            there[0] = before
            pe.call(f"atomic_{routine}_{name}", at, value, 1)
            assert there[0] == expected
        pe.call(f"atomic_inc_{name}", at, 1)
        assert there[0] == 14

    world.run(functools.partial(only_pe_0, program))


@pytest.mark.parametrize(("name", "kind"), [("f32", ctypes.c_float), ("f64", ctypes.c_double)])
def test_float_atomics(world: HostWorld, name: str, kind: Any) -> None:
    def program(pe: Pe) -> None:
        at = pe.array(64, 1, FLOATS[name])
        for _ in range(500):
            pe.call(f"atomic_add_{name}", at, kind(0.5), 0)
            pe.call(f"atomic_fetch_add_{name}", at, kind(0.25), 0, result=kind)
        pe.call("barrier_all")
        assert pe.call(f"atomic_fetch_{name}", at, 0, result=kind) == 375 * pe.n_pes
        pe.call("barrier_all")
        if pe.number == 0:
            assert pe.call(f"atomic_swap_{name}", at, kind(-2.5), 0, result=kind) == 375 * pe.n_pes
            pe.call(f"atomic_set_{name}", at, kind(1.5), 0)
            assert at[0] == 1.5

    world.run(program)
