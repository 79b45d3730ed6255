"""The device library's sources, compiled for this machine, against OpenSHMEM: PEs, and the threads of their programs,
are threads that really run at once.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import time
from typing import Any

import numpy as np
import pytest
from host_world import HostWorld, Pe

U64, SIZE = ctypes.c_uint64, ctypes.c_size_t
NONE = 2**64 - 1
EQ, NE, GT, GE, LT, LE = range(6)
SET, ADD = range(2)
SCOPES = ["", "_warp", "_block"]

INTEGERS = {
    name: np.dtype(name.replace("u", "uint") if name[0] == "u" else name.replace("i", "int"))
    for name in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
}
FLOATS = {"f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def values(pe: int, count: int, dtype: np.dtype, seed: int = 0) -> np.ndarray:
    """What every PE can make again: small numbers, so that products of four do not leave any type."""
    return np.random.default_rng(1000 * seed + pe).integers(1, 4, count).astype(dtype)


# ---- who and where


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
            there = pe.call("ptr", mine, other, result=U64)
            assert there == (0 if other in far else pe.array(40, 1, np.uint8, other).ctypes.data)
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


# ---- copies


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("routine", ["putmem", "putmem_nbi", "getmem", "getmem_nbi"])
def test_copies_of_any_size_and_alignment(host_library: ctypes.CDLL, routine: str, scope: str) -> None:
    world = HostWorld(host_library, 2)
    rng = np.random.default_rng(0)
    sizes = [0, 1, 2, 15, 16, 17, 127, 128, 129, 1000, 4099]

    def program(pe: Pe) -> None:
        other = 1 - pe.number
        for nbytes in sizes:
            for to in range(17):
                start = int(rng.integers(0, 17)) if to % 3 else to
                before = np.full(6000, 0xA5, dtype=np.uint8)
                here, there = (other, pe.number) if routine.startswith("get") else (pe.number, other)
                source, target = pe.array(8192, 6000, np.uint8, here), pe.array(0, 6000, np.uint8, there)
                source[:], target[:] = rng.integers(0, 256, 6000), before
                dst, src = pe.array(64 + to, nbytes, np.uint8), pe.array(8192 + start, nbytes, np.uint8)
                pe.call(routine + scope, dst, src, nbytes, other)
                before[64 + to : 64 + to + nbytes] = source[start : start + nbytes]
                assert np.array_equal(target, before), (nbytes, to, start)

    solo = functools.partial(_only_pe_0, program)
    world.run(solo)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("routine", ["putmem", "putmem_nbi", "getmem", "getmem_nbi"])
def test_copies_of_whole_vectors(host_library: ctypes.CDLL, routine: str, scope: str) -> None:
    """Of no round, of one that is not full, of a full one, and of several."""
    world = HostWorld(host_library, 2)
    rng = np.random.default_rng(0)

    def program(pe: Pe) -> None:
        here, there = (1, 0) if routine.startswith("get") else (0, 1)
        for vectors in [0, 1, 2, 3, 7, 8, 9, 23, 24, 25, 100]:
            source, target = pe.array(8192, 2048, np.uint8, here), pe.array(0, 2048, np.uint8, there)
            source[:], target[:] = rng.integers(0, 256, 2048), 0xA5
            expected = target.copy()
            expected[64 : 64 + 16 * vectors] = source[: 16 * vectors]
            dst, src = pe.array(64, 1, np.uint8), pe.array(8192, 1, np.uint8)
            pe.call(f"{routine}_aligned{scope}", dst, src, 16 * vectors, 1)
            assert np.array_equal(target, expected), vectors

    world.run(functools.partial(_only_pe_0, program))


def _only_pe_0(program: Any, pe: Pe) -> None:
    if pe.number == 0:
        program(pe)


@pytest.mark.parametrize("name", [*INTEGERS, "f16", "bf16", "f32", "f64"])
def test_elements_and_strides(host_library: ctypes.CDLL, name: str) -> None:
    world = HostWorld(host_library, 2)
    bits = np.dtype(f"u{_size(name)}")

    def program(pe: Pe) -> None:
        pattern = np.arange(1, 41, dtype=np.uint8).view(np.uint8)[: 5 * bits.itemsize].view(bits)
        pe.array(0, 5, bits)[:] = pattern
        pe.call(f"iput_{name}", pe.array(4096, 1, bits), pe.array(0, 1, bits), 3, 2, 3, 1)
        pe.call(f"iget_{name}_block", pe.array(6000, 1, bits), pe.array(4096, 1, bits), -1, 3, 3, 1)
        assert pe.array(4096, 7, bits, 1).tolist() == [pattern[0], 0, 0, pattern[2], 0, 0, pattern[4]]
        assert pe.array(6000 - 2 * bits.itemsize, 3, bits).tolist() == [pattern[4], pattern[2], pattern[0]]
        pe.call(f"ibput_{name}_block", pe.array(8192, 1, bits), pe.array(0, 1, bits), 4, 1, 2, 3, 1)
        pe.call(f"ibget_{name}", pe.array(9000, 1, bits), pe.array(8192, 1, bits), -2, 4, 2, 3, 1)
        assert pe.array(8192, 11, bits, 1).tolist() == [*pattern[:2], 0, 0, *pattern[1:3], 0, 0, *pattern[2:4], 0]
        assert pe.array(9000 - 4 * bits.itemsize, 6, bits).tolist() == [*pattern[2:4], *pattern[1:3], *pattern[:2]]
        kind = {"f32": ctypes.c_float, "f64": ctypes.c_double}.get(name, getattr(ctypes, f"c_uint{8 * bits.itemsize}"))
        value = kind(2.5) if name in ("f32", "f64") else kind(int(pattern[1]))
        pe.call(f"p_{name}", pe.array(512, 1, bits), value, 1)
        assert pe.call(f"g_{name}", pe.array(512, 1, bits), 1, result=kind) == value.value

    world.run(functools.partial(_only_pe_0, program))


@pytest.mark.parametrize(
    ("to", "nearest", "bsize"), [(0, 64, 48), (0, 64, 1), (1, 64, 48), (0, 65, 16), (0, 64, 50), (8, 56, 24)]
)
@pytest.mark.parametrize("suffix", ["", "_warp", "_block"])
def test_blocks_of_any_alignment(host_library: ctypes.CDLL, to: int, nearest: int, bsize: int, suffix: str) -> None:
    """Vectors where everything is a multiple of 16 bytes, elements elsewhere; no byte besides."""
    world, count = HostWorld(host_library, 2), 5

    def program(pe: Pe) -> None:
        source = np.random.default_rng(1).integers(1, 255, 1024, dtype=np.uint8)
        pe.array(0, 1024, np.uint8)[:] = source
        for name, size in (("u8", 1), ("u16", 2)) if not (to | nearest | bsize) % 2 else (("u8", 1),):
            pe.array(2048, 1024, np.uint8, 1)[:] = 0
            steps = nearest // size, 80 // size, bsize // size, count
            pe.call(f"ibput_{name}{suffix}", pe.array(2048 + to, 1, np.uint8), pe.array(0, 1, np.uint8), *steps, 1)
            expected = np.zeros(1024, np.uint8)
            for block in range(count):
                expected[to + block * nearest :][:bsize] = source[80 * block :][:bsize]
            assert pe.array(2048, 1024, np.uint8, 1).tolist() == expected.tolist()

    world.run(functools.partial(_only_pe_0, program))


def test_no_blocks(host_library: ctypes.CDLL) -> None:
    def program(pe: Pe) -> None:
        pe.array(0, 16, np.int32)[:] = 7
        for bsize, nblocks in ((0, 4), (4, 0), (0, 0)):
            pe.call("ibput_i32_block", pe.array(4096, 1, np.int32), pe.array(0, 1, np.int32), 4, 4, bsize, nblocks, 1)
        assert not pe.array(4096, 16, np.int32, 1).any()

    HostWorld(host_library, 2).run(functools.partial(_only_pe_0, program))


def _size(name: str) -> int:
    return int("".join(filter(str.isdigit, name))) // 8


# ---- signals


@pytest.mark.parametrize(
    "routine", ["putmem_signal", "putmem_signal_nbi", "putmem_signal_aligned", "putmem_signal_nbi_aligned"]
)
@pytest.mark.parametrize("scope", SCOPES)
def test_who_sees_the_signal_sees_the_data(world: HostWorld, routine: str, scope: str) -> None:
    rounds, count = 200, 100

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


# ---- atomics


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

    world.run(functools.partial(_only_pe_0, program))


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


# ---- waits


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


# ---- collectives


@pytest.mark.parametrize("routine", ["sync_all", "barrier_all", "sync", "barrier"])
@pytest.mark.parametrize("scope", SCOPES)
def test_nobody_leaves_before_all_have_come(world: HostWorld, routine: str, scope: str) -> None:
    rounds = 300
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


@pytest.mark.parametrize(("op", "name"), ALL_REDUCTIONS)
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
