"""Waits and tests of the device library, compiled for this machine, against OpenSHMEM.

PEs, and the threads of their programs, are threads that really run at once.
"""

from __future__ import annotations

import ctypes
import operator
import time

import numpy as np
import pytest
from host_world import HostWorld, Pe
from semantics import EQ, INTEGERS, LT, NONE, SIZE


@pytest.mark.parametrize("name", ["i16", "u16", "i32", "u32", "i64", "u64"])
def test_tests(host_library: ctypes.CDLL, name: str) -> None:
    """All comparisons, with and without a sign, status, and what is returned when nothing is selected or true."""
    world = HostWorld(host_library, 1)
    dtype = INTEGERS[name]
    operators = [operator.eq, operator.ne, operator.gt, operator.ge, operator.lt, operator.le]
    rng = np.random.default_rng(1)

    def program(pe: Pe) -> None:
        ivars, compared = pe.array(0, 6, dtype), pe.array(128, 6, dtype)
        indices, status = np.full(8, 77, dtype=np.uint64), np.zeros(6, dtype=np.int32)
        for round_ in range(60):
            ivars[:] = rng.integers(-2, 2, 6).astype(dtype)
            compared[:] = rng.integers(-2, 2, 6).astype(dtype)
            status[:] = rng.integers(0, 2, 6) * 5 if round_ % 3 else 0
            for cmp, holds in enumerate(operators):
                for suffix, wanted, argument in (
                    ("", np.full(6, compared[0]), int(compared[0])),
                    ("_vector", compared, compared),
                ):
                    selected = [i for i in range(6) if not status[i]]
                    true = [i for i in selected if holds(ivars[i], wanted[i])]
                    mask = status if round_ % 2 or status.any() else 0
                    tail = (mask, cmp, argument)
                    assert pe.call(f"test_all{suffix}_{name}", ivars, 6, *tail, result=ctypes.c_int32) == (
                        true == selected
                    )
                    assert pe.call(f"test_any{suffix}_{name}", ivars, 6, *tail, result=SIZE) == (
                        true[0] if true else NONE
                    )
                    indices[:] = 77
                    assert pe.call(f"test_some{suffix}_{name}", ivars, 6, indices, *tail, result=SIZE) == len(true)
                    assert indices.tolist() == true + [77] * (8 - len(true))
                    if true or not selected:  # then waits end at once
                        assert pe.call(f"wait_until_any{suffix}_{name}", ivars, 6, *tail, result=SIZE) == (
                            true[0] if true else NONE
                        )
                        assert pe.call(f"wait_until_some{suffix}_{name}", ivars, 6, indices, *tail, result=SIZE) == len(
                            true
                        )
                    if true == selected:
                        pe.call(f"wait_until_all{suffix}_{name}", ivars, 6, *tail)
                assert pe.call(f"test_{name}", ivars, cmp, int(compared[0]), result=ctypes.c_int32) == holds(
                    ivars[0], compared[0]
                )

    world.run(program)


def test_waits_end_when_others_act(host_library: ctypes.CDLL) -> None:
    world = HostWorld(host_library, 3)

    def program(pe: Pe) -> None:
        words, indices = pe.array(0, 4, np.int32), np.zeros(4, dtype=np.uint64)
        if pe.number == 0:
            pe.call("wait_until_i32", words, LT, 0)
            assert pe.call("wait_until_any_i32", words[1:], 3, 0, EQ, 5, result=SIZE) == 1
            status = np.array([0, 1, 0], dtype=np.int32)
            assert pe.call("wait_until_some_i32", words[1:], 3, indices, status, EQ, 5, result=SIZE) == 1
            assert indices[0] == 2
            pe.call("wait_until_all_i32", words[1:], 3, np.array([1, 0, 0], dtype=np.int32), EQ, 5)
            pe.call("atomic_set_i32", pe.array(0, 1, np.int32), 1, 1)
        elif pe.number == 1:
            for at, value in ((0, -3), (2, 5), (3, 5)):
                time.sleep(0.01)
                pe.call("p_i32", pe.array(4 * at, 1, np.int32), ctypes.c_int32(value), 0)
            pe.call("wait_until_i32", words, EQ, 1)

    world.run(program)
