"""Copies, strided copies and single elements of the device library, compiled for this machine, against OpenSHMEM.

PEs, and the threads of their programs, are threads that really run at once.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest
from host_world import HostWorld, Pe
from semantics import INTEGERS, SCOPES, only_pe_0


def _size(name: str) -> int:
    return int("".join(filter(str.isdigit, name))) // 8


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

    solo = functools.partial(only_pe_0, program)
    world.run(solo)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("routine", ["putmem", "putmem_nbi", "getmem", "getmem_nbi"])
def test_copies_between_aligned_addresses(host_library: ctypes.CDLL, routine: str, scope: str) -> None:
    """Of no round, of one that is not full, of a full one, and of several; with and without bytes behind them."""
    world = HostWorld(host_library, 2)
    rng = np.random.default_rng(0)

    def program(pe: Pe) -> None:
        here, there = (1, 0) if routine.startswith("get") else (0, 1)
        copies = [("aligned", 16 * vectors) for vectors in [0, 1, 2, 3, 7, 8, 9, 23, 24, 25, 100]]
        copies += [("between_aligned", nbytes) for nbytes in [0, 1, 2, 3, 4, 15, 16, 17, 31, 127, 129, 384, 400, 1601]]
        for kind, nbytes in copies:
            source, target = pe.array(8192, 2048, np.uint8, here), pe.array(0, 2048, np.uint8, there)
            source[:], target[:] = rng.integers(0, 256, 2048), 0xA5
            expected = target.copy()
            expected[64 : 64 + nbytes] = source[:nbytes]
            dst, src = pe.array(64, 1, np.uint8), pe.array(8192, 1, np.uint8)
            pe.call(f"{routine}_{kind}{scope}", dst, src, nbytes, 1)
            assert np.array_equal(target, expected), (kind, nbytes)

    world.run(functools.partial(only_pe_0, program))


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

    world.run(functools.partial(only_pe_0, program))


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

    world.run(functools.partial(only_pe_0, program))


def test_no_blocks(host_library: ctypes.CDLL) -> None:
    def program(pe: Pe) -> None:
        pe.array(0, 16, np.int32)[:] = 7
        for bsize, nblocks in ((0, 4), (4, 0), (0, 0)):
            pe.call("ibput_i32_block", pe.array(4096, 1, np.int32), pe.array(0, 1, np.int32), 4, 4, bsize, nblocks, 1)
        assert not pe.array(4096, 16, np.int32, 1).any()

    HostWorld(host_library, 2).run(functools.partial(only_pe_0, program))
