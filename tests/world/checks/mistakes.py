"""Bad arguments of every kind of op are errors that name them, and waits in vain say for what. For two PEs."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton
import triton.language as tl
from harness import main, raises

import triton_dist
import triton_dist.language as dl


@triton.jit
def iput(dst, src, dst_stride, src_stride, n, pe):
    dl.iput(dst, src, dst_stride, src_stride, n, pe)


@triton.jit
def iget(dst, src, dst_stride, src_stride, n, pe):
    dl.iget(dst, src, dst_stride, src_stride, n, pe)


@triton.jit
def unaligned(dst, src, n, pe, COPY: tl.constexpr):
    COPY(dst.to(tl.pointer_type(tl.int32), bitcast=True), src.to(tl.pointer_type(tl.int32), bitcast=True), 1, 1, n, pe)


@triton.jit
def ibput(dst, src, dst_stride, src_stride, bsize, nblocks, pe):
    dl.ibput(dst, src, dst_stride, src_stride, bsize, nblocks, pe)


@triton.jit
def ibget(dst, src, dst_stride, src_stride, bsize, nblocks, pe):
    dl.ibget(dst, src, dst_stride, src_stride, bsize, nblocks, pe)


@triton.jit
def peers_block(src, out, first, n, pe, STORES: tl.constexpr):
    places = first + tl.arange(0, 16)
    mask = tl.arange(0, 16) < n
    if STORES:
        dl.store(src + places, 1.0, pe, mask)
    else:
        tl.store(out + tl.arange(0, 16), dl.load(src + places, pe, mask, 0.0))


@triton.jit
def element(dst, byte_offset, pe, HOW: tl.constexpr):
    at = (dst.to(tl.int64) + byte_offset).to(tl.pointer_type(tl.int32))
    if HOW == "p":
        dl.p(at, 5, pe)
    elif HOW == "g":
        dl.g(at, pe)
    elif HOW == "add":
        dl.atomic_add(at, 5, pe)
    elif HOW == "compare_swap":
        dl.atomic_compare_swap(at, 0, 5, pe)
    elif HOW == "test":
        dl.test(at, dl.CMP_EQ, 5)
    else:
        dl.wait_until(at, dl.CMP_EQ, 5)


@triton.jit
def wait_all(ivars, n, status, values):
    dl.wait_until_all_vector(ivars, n, status, dl.CMP_EQ, values)


@triton.jit
def sum_reduce(team, dst, src, n):
    dl.sum_reduce(team, dst, src, n)


@triton.jit
def broadcast(dst, src, n, root):
    dl.broadcast(dl.TEAM_WORLD, dst, src, n, root)


@triton.jit
def ask_team(team, out):
    tl.store(out, dl.team_n_pes(team))


def check_warps(world: Any) -> None:
    x = triton_dist.zeros(8, dtype=torch.int32)
    for num_warps in (3, 0, -4):
        with raises(ValueError, "element: num_warps must be a power of 2", f"got {num_warps}"):
            element[(1,)](x, 0, world.pe, "p", num_warps=num_warps)


def check_strided_copies(world: Any) -> None:
    mine, private = triton_dist.zeros(16), torch.ones(16)
    ends = (world.heap.size - (mine.data_ptr() - world.heap.base(world.pe))) // 4
    with raises(RuntimeError, f"{4 * (2 * ends - 1)} bytes at dst .*element 0 .*leave the symmetric heap"):
        iput[(1,)](mine, private, 2, 1, ends, 0)
    with raises(RuntimeError, "dst .* not in the symmetric heap"):
        iput[(1,)](mine, private, -(1 << 20), 1, 1 << 8, 0)
    with raises(RuntimeError, "src .* not in the symmetric heap"):
        iget[(1,)](private, private, 1, 1, 4, 0)
    with raises(RuntimeError, "nelems is -1"):
        iput[(1,)](mine, private, 1, 1, -1, 0)
    with raises(RuntimeError, r"pe 2 is out of range \[0, 2\)"):
        iget[(1,)](private, mine, 1, 1, 4, 2)
    for copy in (iput, iget):
        with raises(RuntimeError, "dst_stride is 0: all 4 elements have one place in dst"):
            copy[(1,)](mine, mine[8:], 0, 1, 4, 0)
    bytes_ = triton_dist.zeros(64, dtype=torch.uint8)
    for dst, src, name in ((bytes_[1:33], mine, "dst"), (mine, bytes_[2:34], "src")):
        for copy in (iput, iget):
            with raises(RuntimeError, f"{name} .* is not aligned to 4 bytes"):
                unaligned[(1,)](dst, src, 4, 0, copy)
    triton_dist.barrier_all()
    assert not mine.any() and private.all() and not bytes_.any()


def check_blocks_of_a_peer(world: Any) -> None:
    """Of memory that is not symmetric there is none on a peer; what a mask leaves out may be anywhere."""
    mine, private, out = triton_dist.full(16, 2.0), torch.ones(16), torch.zeros(16)
    last = triton_dist.full(8, 3.0)
    for stores in (False, True):
        with raises(RuntimeError, "ptr .* is not in the symmetric heap"):
            peers_block[(1,)](private, out, 0, 16, 1 - world.pe, stores)
        peers_block[(1,)](private, out, 0, 0, 1 - world.pe, stores)
        with raises(RuntimeError, f"is a place on PE {1 - world.pe}: pass PE {world.pe}'s own address"):
            peers_block[(1,)](triton_dist.peer(mine, 1 - world.pe), out, 0, 16, 1 - world.pe, stores)
    peers_block[(1,)](last, out, -(1 << 40), 0, 1 - world.pe, False)
    peers_block[(1,)](mine, out, 0, 16, 1 - world.pe, False)
    assert out.eq(2.0).all()
    triton_dist.barrier_all()


def check_blocks(world: Any) -> None:
    mine, private = triton_dist.zeros(16), torch.ones(16)
    ends = (world.heap.size - (mine.data_ptr() - world.heap.base(world.pe))) // 4
    with raises(RuntimeError, f"{4 * ends + 4} bytes at dst .*element 0 .*leave the symmetric heap"):
        ibput[(1,)](mine, private, ends - 3, 4, 4, 2, 0)
    with raises(RuntimeError, "src .* not in the symmetric heap"):
        ibget[(1,)](private, private, 4, 4, 4, 2, 0)
    with raises(RuntimeError, "dst_stride is -3: blocks of 4 elements overlap in dst"):
        ibput[(1,)](mine[12:], private, -3, 4, 4, 2, 0)
    with raises(RuntimeError, "nblocks is -1"):
        ibput[(1,)](mine, private, 4, 4, 4, -1, 0)
    with raises(RuntimeError, "bsize is -1"):
        ibget[(1,)](private, mine, 4, 4, -1, 1, 0)
    with raises(RuntimeError, r"pe 2 is out of range \[0, 2\)"):
        ibget[(1,)](private, mine, 4, 4, 4, 2, 2)
    triton_dist.barrier_all()
    assert not mine.any() and private.all()


def check_single_elements(world: Any) -> None:
    words, private = triton_dist.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    for how in ("p", "g", "add", "compare_swap", "test", "wait"):
        with raises(RuntimeError, r"element 1 \+ 2 bytes", "not aligned to 4"):
            element[(1,)](words, 6, 0, how)
        with raises(RuntimeError, "(dst|src|ivar) .* not in the symmetric heap"):
            element[(1,)](private, 0, 0, how)
        with raises(RuntimeError, f"is a place on PE {1 - world.pe}: pass PE {world.pe}'s own address"):
            element[(1,)](triton_dist.peer(words, 1 - world.pe), 0, 0, how)
    for how in ("p", "g", "add", "compare_swap"):
        with raises(RuntimeError, r"pe -1 is out of range \[0, 2\)"):
            element[(1,)](words, 0, -1, how)
    triton_dist.barrier_all()
    assert not words.any()


def check_waits_on_many(world: Any) -> None:
    words = triton_dist.zeros(4, dtype=torch.int32)
    with raises(RuntimeError, "nelems is -3"):
        wait_all[(1,)](words, -3, None, words)
    with raises(RuntimeError, r"leave the symmetric heap"):
        wait_all[(1,)](words, 1 << 40, None, words)
    with raises(RuntimeError, "ivars .* not in the symmetric heap"):
        wait_all[(1,)](torch.zeros(4, dtype=torch.int32), 4, None, words)


def check_collectives(world: Any) -> None:
    mine, private = triton_dist.zeros(16), torch.zeros(16)
    for operands in ((private, mine), (mine, private)):
        with raises(RuntimeError, "(dst|src) .* not in the symmetric heap"):
            sum_reduce[(1,)](dl.TEAM_WORLD, *operands, 4)
    with raises(RuntimeError, "team is 7: PE \\d has no such team"):
        sum_reduce[(1,)](7, mine, mine, 4)
    with raises(RuntimeError, "team is -1: PE \\d has no such team"):
        sum_reduce[(1,)](-1, mine, mine, 4)
    with raises(RuntimeError, "team is 1: PE \\d has no such team"):
        ask_team[(1,)](1, torch.zeros(1))
    with raises(RuntimeError, "nelems is -1|nbytes is -4"):
        sum_reduce[(1,)](dl.TEAM_WORLD, mine, mine, -1)
    with raises(RuntimeError, r"root 2 is out of range \[0, 2\)"):
        broadcast[(1,)](mine, mine, 4, 2)
    with raises(RuntimeError, "leave the symmetric heap"):
        broadcast[(1,)](mine, mine, 1 << 40, 0)
    triton_dist.barrier_all()
    sum_reduce[(1,)](dl.TEAM_WORLD, mine, mine, 4)  # none of these has come to a barrier


@triton.jit
def asserted(x):
    at = tl.arange(0, 4)
    tl.device_assert(tl.load(x + at) > 3, "too small", mask=at < 2)
    tl.store(x + at, 9.0)


@triton.jit
def adds_asm(x):
    tl.store(x, tl.inline_asm_elementwise("add $0, $1, 1;", "=r,r", [tl.load(x)], tl.int32, True, 1))


@triton.jit
def takes(x, value):
    tl.store(x, value)


def check_kernels(world: Any) -> None:
    """Assertions of the device are on, as those of Python; what is not interpreted, or no argument, is named."""
    right = torch.tensor([4.0, 5.0, 0.0, 0.0])
    asserted[(1,)](right)
    assert right.tolist() == [9.0] * 4
    with raises(RuntimeError, r"kernel asserted, program \(0, 0, 0\), .*mistakes.py:\d+: AssertionError: too small"):
        asserted[(1,)](torch.tensor([4.0, 3.0, 5.0, 5.0]))
    with raises(RuntimeError, r"mistakes.py:\d+: NotImplementedError: inline_asm"):
        adds_asm[(1,)](torch.zeros(1, dtype=torch.int32))
    with raises(TypeError, r"argument x is a tensor of torch.complex64, which Triton's kernels do not take"):
        asserted[(1,)](torch.zeros(4, dtype=torch.complex64))
    for value, kind in ((np.ones(9), "numpy.ndarray"), (np.float32(3), "numpy.float32"), ("x", "builtins.str")):
        with raises(TypeError, rf"argument value is of type {kind}: kernels take tensors"):
            takes[(1,)](right, value)
    takes[(1,)](right, np.float64(2.5))  # which is a float of Python
    assert right[0] == 2.5


@triton.jit
def never(words, expected, HOW: tl.constexpr):
    if HOW == "wait":
        dl.wait_until_all_vector(words, 4, None, dl.CMP_GE, expected)
    elif HOW == "test":
        while dl.test(words, dl.CMP_LT, 0) == 0:
            pass
    elif HOW == "g":
        while dl.g(words, dl.my_pe()) == 0:
            pass
    else:
        while dl.atomic_compare_swap(words, 9, 1, dl.my_pe()) != 9:
            pass


def check_reports_of_waits_in_vain(world: Any) -> None:
    """On this PE alone: what cannot go on breaks the world for all."""
    words, expected = triton_dist.zeros(4, dtype=torch.int32), torch.tensor([0, 5, -1, 7], dtype=torch.int32)
    for how, text in (
        ("wait", r"wait_until_all_vector: .*element 1 of .* >= 5, seen 0 \(and 1 elements more\)"),
        ("test", r"a loop around test: .*element 0 of .*, which stays 0"),
        ("g", r"a loop around g: .*element 0 of .*, which stays 0"),
        ("compare_swap", r"a loop around atomic_compare_swap: .*element 0 of .*, which stays 0"),
    ):
        with (
            mock.patch.dict(os.environ, TRITON_DIST_WAIT_TIMEOUT="0.3"),
            mock.patch.object(world, "abort"),
            raises(RuntimeError, "no program could go on for 0.3 s", text),
        ):
            never[(1,)](words, expected, how)


if __name__ == "__main__":
    main(globals())
