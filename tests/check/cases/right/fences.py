"""Data before a flag: quiet, fence and pe_fence order puts and stores before what tells of them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from harness import case, flags, out
from right.common import pair, use

import triton_dist
import triton_dist.language as dl


@triton.jit
def completed_relaxed(x, y, flag, result, QUIET: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem_nbi(x, y, 64, other)
    if QUIET:
        dl.quiet()
    else:
        dl.fence()
        dl.pe_quiet(other)
    dl.atomic_inc(flag, other, sem="relaxed")
    dl.wait_until(flag, dl.CMP_GE, 1)
    use(result, x)


@case()
def quiet_relaxed_atomic(world, bug):
    completed_relaxed[(1,)](*pair(), flags(), out(), True)


@case()
def pe_quiet_relaxed_atomic(world, bug):
    completed_relaxed[(1,)](*pair(), flags(1, torch.int32), out(), False)


@triton.jit
def p_behind_fence(x, flag, result):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)
    dl.pe_fence(other)
    dl.p(flag, 1, other)
    dl.wait_until(flag, dl.CMP_NE, 0)
    use(result, x)


@case()
def fence_and_p(world, bug):
    p_behind_fence[(1,)](triton_dist.zeros(16), flags(1, torch.int32), out())


@triton.jit
def stored_flag(x, flag, result):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)
    dl.fence()
    dl.store(flag, 1, other)
    dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case()
def fence_and_store(world, bug):
    stored_flag[(1,)](triton_dist.zeros(16), flags(), out())


@triton.jit
def put_flag(x, y, flag, one, result):
    other = 1 - dl.my_pe()
    dl.putmem(x, y, 64, other)
    dl.fence()
    dl.putmem(flag, one, 8, other)
    dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case()
def fence_and_put(world, bug):
    put_flag[(1,)](*pair(), flags(), torch.ones(1, dtype=torch.int64), out())


@triton.jit
def relaxed_poll_then_quiet(x, flag, result):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    while dl.atomic_fetch(flag, dl.my_pe(), sem="relaxed") == 0:
        pass
    dl.quiet()
    use(result, x)


@case()
def relaxed_poll(world, bug):
    relaxed_poll_then_quiet[(1,)](triton_dist.zeros(16), flags(), out())


@triton.jit
def descriptors(x, flag, result):
    other = 1 - dl.my_pe()
    there = tl.make_tensor_descriptor(dl.symm_at(x, other), [8, 16], [16, 1], [8, 16])
    there.store([0, 0], tl.full((8, 16), 3.0, tl.float32))
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    here = tl.make_tensor_descriptor(x, [8, 16], [16, 1], [8, 16])
    tl.store(result + tl.arange(0, 16), tl.sum(here.load([0, 0]), 0))


@case()
def tensor_descriptors(world, bug):
    descriptors[(1,)](triton_dist.zeros(8, 16), flags(), out())


@triton.jit
def strided(x, y, flag, result):
    other = 1 - dl.my_pe()
    dl.iput(x, y, 2, 1, 8, other)
    dl.iput(x + 1, y, 2, 1, 8, other)
    dl.fence()
    dl.signal_op(flag, 1, dl.SIGNAL_ADD, other)
    dl.signal_wait_until(flag, dl.CMP_NE, 0)
    dl.iget(result, x, 1, 2, 8, dl.my_pe())


@case()
def interleaved_elements(world, bug):
    strided[(1,)](*pair(), flags(), out())


@triton.jit
def tiles(x, y, flag, result):
    other = 1 - dl.my_pe()
    dl.ibput(x, y, 4, 1, 2, 4, other)
    dl.ibput(x + 2, y, 4, 1, 2, 4, other)
    dl.fence()
    dl.signal_op(flag, 1, dl.SIGNAL_ADD, other)
    dl.signal_wait_until(flag, dl.CMP_NE, 0)
    dl.ibget(result, x, 2, 4, 2, 4, dl.my_pe())


@case()
def interleaved_blocks(world, bug):
    tiles[(1,)](*pair(), flags(), out())
