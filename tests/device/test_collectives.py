"""Collectives of the device library, compiled for this machine, against OpenSHMEM.

PEs, and the threads of their programs, are threads that really run at once.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest
from host_world import HostWorld, Pe
from semantics import ADD, FLOATS, INTEGERS, SCOPES, U64, values


@pytest.mark.parametrize("routine", ["sync_all", "barrier_all", "sync", "barrier"])
@pytest.mark.parametrize("scope", SCOPES)
def test_nobody_leaves_before_all_have_come(world: HostWorld, routine: str, scope: str) -> None:
    rounds = 50 if scope else 300  # other scopes start two threads for each call
    team = () if routine.endswith("_all") else (0,)

    def program(pe: Pe) -> None:
        count = pe.array(0, 1, np.uint64)
        for i in range(1, rounds + 1):
            pe.call("signal_op", count, 1, ADD, 0)
            pe.call(routine + scope, *team, result=ctypes.c_int32)
            seen = pe.call("atomic_fetch_u64", count, 0, result=U64)
            assert i * pe.n_pes <= seen < (i + 1) * pe.n_pes + 1

    world.run(program)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("nbytes", [0, 1, 24, 1000])
def test_exchanges(world: HostWorld, scope: str, nbytes: int) -> None:
    def program(pe: Pe) -> None:
        n = pe.n_pes
        space = n * nbytes + 64
        blocks = [values(other, n * nbytes, np.dtype(np.uint8), seed=nbytes) for other in range(n)]
        source, target = pe.array(0, n * nbytes, np.uint8), pe.array(8192, space, np.uint8)
        source[:] = blocks[pe.number]
        mine = slice(pe.number * nbytes, (pe.number + 1) * nbytes)
        for root in range(n):
            target[:] = 0xA5
            assert pe.call("broadcast" + scope, 0, target, source, nbytes, root, result=ctypes.c_int32) == 0
            assert np.array_equal(target[:nbytes], blocks[root][:nbytes]) and (target[nbytes:] == 0xA5).all()
        cases = {
            "fcollect": [block[:nbytes] for block in blocks],
            "alltoall": [block[mine] for block in blocks],
        }
        for routine, parts in cases.items():
            pe.call("barrier_all")
            target[:] = 0xA5
            pe.call("barrier_all")
            assert pe.call(routine + scope, 0, target, source, nbytes, result=ctypes.c_int32) == 0
            assert np.array_equal(target[: n * nbytes], np.concatenate(parts)), routine
            assert (target[n * nbytes :] == 0xA5).all()
        # in place: the sender's block is where it belongs already
        pe.call("barrier_all")
        target[mine] = source[:nbytes]
        pe.call("fcollect" + scope, 0, target, target[mine], nbytes, result=ctypes.c_int32)
        assert np.array_equal(target[: n * nbytes], np.concatenate(cases["fcollect"]))

    world.run(program)


REDUCTIONS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
ALL_REDUCTIONS = [(op, name) for op in REDUCTIONS for name in [*INTEGERS, *FLOATS]]
ALL_REDUCTIONS += [(op, name) for op in BITWISE for name in INTEGERS]
OF_EVERY_OPERATION = ("u8", "i32", "f16", "f64")
"""Sums are of all types; of the other operations the rest is slow."""


@pytest.mark.parametrize(
    ("op", "name"),
    [
        pytest.param(op, name, marks=[] if op == "sum" or name in OF_EVERY_OPERATION else pytest.mark.slow)
        for op, name in ALL_REDUCTIONS
    ],
)
def test_reductions(world: HostWorld, op: str, name: str) -> None:
    dtype = (INTEGERS | FLOATS)[name]
    function = (REDUCTIONS | BITWISE)[op]
    cases = [(0, 0), (1, 0), (37, 0), (64, 0), (50, 1)]  # elements, and elements off from alignment

    def program(pe: Pe) -> None:
        for index, (count, off) in enumerate(cases):
            scope = SCOPES[index % 3]
            offset = off * dtype.itemsize
            contributions = [values(other, count * pe.n_pes, dtype, seed=index) for other in range(pe.n_pes)]
            expected = functools.reduce(function, contributions)
            source = pe.array(offset, count * pe.n_pes, dtype)
            for target in (pe.array(16384 + offset, count + 1, dtype), source):  # apart, and in place
                pe.call("barrier_all")
                source[:] = contributions[pe.number]
                target[count:] = 99
                rest = target[count:].copy()
                pe.call(f"reduce_{op}_{name}{scope}", 0, target, source, count, result=ctypes.c_int32)
                assert np.array_equal(target[:count], expected[:count])
                assert np.array_equal(target[count:], rest)
            pe.call("barrier_all")
            source[:] = contributions[pe.number]
            target = pe.array(16384 + offset, count + 1, dtype)
            target[count:] = 99
            pe.call(f"reducescatter_{op}_{name}{scope}", 0, target, source, count, result=ctypes.c_int32)
            assert np.array_equal(target[:count], expected[pe.number * count :][:count])
            assert target[count] == 99

    world.run(program)


def test_16_bit_floats_are_rounded_once(host_library: ctypes.CDLL) -> None:
    """2048 + 1 + 1 is 2048 in float16, summed up one by one, and 2050 rounded once; likewise 256 in bfloat16."""
    world = HostWorld(host_library, 3)

    def program(pe: Pe) -> None:
        half, brain = pe.array(0, 20, np.float16), pe.array(64, 20, np.uint16)
        half[:] = 2048 if pe.number == 0 else 1
        brain[:] = _bfloat16(256.0 if pe.number == 0 else 1.0)
        pe.call("reduce_sum_f16_block", 0, half, half, 20, result=ctypes.c_int32)
        pe.call("reduce_sum_bf16_block", 0, brain, brain, 20, result=ctypes.c_int32)
        assert (half == 2050).all()
        assert (brain == _bfloat16(258.0)).all()

    world.run(program)


def _bfloat16(value: float) -> int:
    return int(np.float32(value).view(np.uint32)) >> 16
