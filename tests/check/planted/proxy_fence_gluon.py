"""A TMA load in Gluon behind an acquire, by another partition: a fence of shared memory is none of the proxies'."""

from __future__ import annotations

import sys

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import triton_dist
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy, stores_complete
from triton_dist.kernels.gemm.hopper.tma import async_load, async_store

BUG = sys.argv[1] == "bug"


@gluon.jit
def wait(flag, came, FENCE: gl.constexpr):
    acquire(flag, 1, "sys")
    if FENCE:
        fence_async_proxy()
    else:
        fence_async_shared()
    mbarrier.arrive(came)


@gluon.jit
def load(x, block, came, full):
    mbarrier.wait(came, 0)
    mbarrier.expect(full, x.block_type.nbytes)
    async_load(x, [0, 0], full, block)  # other
    mbarrier.wait(full, 0)


@gluon.jit
def kernel(x, there, flag, flag_there, me, FENCE: gl.constexpr):
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    block = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(bars.index(0), count=1)
    mbarrier.init(bars.index(1), count=1)
    if me == 0:
        block.store(gl.full([8, 64], 5, gl.float16, LAYOUT))
        fence_async_shared()
        gl.barrier()
        async_store(there, [0, 0], block)
        stores_complete()  # one
        gl.atomic_xchg(flag_there, 1, sem="release", scope="sys")
    else:
        gl.warp_specialize(
            [(wait, (flag, bars.index(0), FENCE)), (load, (x, block, bars.index(0), bars.index(1)))], [1], [24]
        )


def described(matrix: torch.Tensor) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for([8, 64], gl.float16)
    return TensorDescriptor.from_tensor(matrix, [8, 64], layout)


with triton_dist.init() as world:
    x, flag = triton_dist.zeros(8, 64, dtype=torch.float16), triton_dist.zeros(1, dtype=torch.int32)
    triton_dist.barrier_all()
    there, flag_there = world.peer(x, 1), world.peer(flag, 1)
    kernel[(1,)](described(x), described(there), flag, flag_there, world.pe, not BUG)
