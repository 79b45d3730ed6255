"""Kernels in Gluon: partitions, shared memory, mbarriers, TMA and WGMMA; what is asynchronous; and mistakes."""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from unittest import mock

import torch
from harness import main, place, raises
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import triton_dist
from triton_dist.cpu.executor import KernelError
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy, stores_complete
from triton_dist.kernels.gemm.hopper.reinterpret import reinterpret
from triton_dist.kernels.gemm.hopper.tma import async_load, async_store

TYPES = {
    torch.bfloat16: gl.bfloat16,
    torch.float16: gl.float16,
    torch.float32: gl.float32,
    torch.float8_e4m3fn: gl.float8e4nv,
    torch.int32: gl.int32,
}


def described(matrix: torch.Tensor, *block: int) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(list(block), TYPES[matrix.dtype])
    return TensorDescriptor.from_tensor(matrix, list(block), layout)


class Ring(NamedTuple):
    blocks: Any
    full: Any
    empty: Any


@gluon.jit
def make_ring(like, STAGES: gl.constexpr):
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    return Ring(gl.allocate_shared_memory(like.dtype, [STAGES] + like.block_shape, like.layout), full, empty)  # noqa: RUF005


# ---- copies


@gluon.jit
def load_all(x, ring, n, STAGES: gl.constexpr, ROWS: gl.constexpr, FENCES: gl.constexpr = False):
    for i in range(n):
        stage = i % STAGES
        mbarrier.wait(ring.empty.index(stage), (i // STAGES & 1) ^ 1)
        if FENCES:
            fence_async_shared()
        mbarrier.expect(ring.full.index(stage), x.block_type.nbytes)
        async_load(x, [i * ROWS, 0], ring.full.index(stage), ring.blocks.index(stage))


@gluon.jit
def store_all(y, ring, n, STAGES: gl.constexpr, ROWS: gl.constexpr):
    for i in range(n):
        stage = i % STAGES
        mbarrier.wait(ring.full.index(stage), i // STAGES & 1)
        async_store(y, [i * ROWS, 0], ring.blocks.index(stage))
        tma.store_wait(0)
        mbarrier.arrive(ring.empty.index(stage))


@gluon.jit
def copy_rows(x, y, n, STAGES: gl.constexpr, ROWS: gl.constexpr):
    ring = make_ring(x, STAGES)
    gl.warp_specialize([(load_all, (x, ring, n, STAGES, ROWS)), (store_all, (y, ring, n, STAGES, ROWS))], [1], [24])


def check_rows_by_tma(world: Any) -> None:
    """Of all dtypes, in blocks wider than a swizzle; rows and columns that fill no block."""
    for dtype, columns, wide in (
        (torch.bfloat16, 64, 64), (torch.float16, 200, 256), (torch.float32, 40, 64), (torch.int32, 96, 128),
        (torch.float8_e4m3fn, 144, 256),
    ):  # fmt: skip
        for rows in (1, 8, 77):
            x = torch.randint(-9, 9, (rows, columns)).to(dtype)
            y = torch.zeros_like(x)
            copy_rows[(1,)](described(x, 8, wide), described(y, 8, wide), -(-rows // 8), 3, 8, num_warps=1)
            assert torch.equal(x.view(torch.uint8), y.view(torch.uint8)), (dtype, rows)


@gluon.jit
def cut_in_pieces(x, pieces, ROWS: gl.constexpr, COLUMNS: gl.constexpr, STARTS: gl.constexpr):
    whole = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.expect(full, x.block_type.nbytes)
    async_load(x, [0, 0], full, whole)
    mbarrier.wait(full, 0)
    cut = reinterpret(whole, x.dtype, [STARTS, ROWS, COLUMNS], pieces.layout)
    for i in gl.static_range(STARTS):
        async_store(pieces, [i * ROWS, 0], cut.index(i))
    tma.store_wait(0)


def check_shared_memory_lies_as_tma_stores_it(world: Any) -> None:
    """A block of two swizzles, seen as blocks of one, holds the first half of all rows, then the second."""
    x = torch.arange(16 * 128, dtype=torch.float16).view(16, 128)
    y = torch.zeros(32, 64, dtype=torch.float16)
    cut_in_pieces[(1,)](described(x, 16, 128), described(y, 8, 64), 8, 64, 4)
    assert torch.equal(y, torch.cat([x[:, :64], x[:, 64:]]))


# ---- products


@gluon.jit
def load_operands(a, b, ring_a, ring_b, steps, STAGES: gl.constexpr, K: gl.constexpr):
    for i in range(steps):
        stage = i % STAGES
        mbarrier.wait(ring_a.empty.index(stage), (i // STAGES & 1) ^ 1)
        mbarrier.expect(ring_a.full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
        async_load(a, [0, i * K], ring_a.full.index(stage), ring_a.blocks.index(stage))
        async_load(b, [0, i * K], ring_a.full.index(stage), ring_b.blocks.index(stage))


@gluon.jit
def multiply(c, ring_a, ring_b, steps, STAGES: gl.constexpr, WAITS: gl.constexpr, FENCES: gl.constexpr):
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, c.block_shape[1], 16])
    sums = gl.zeros(c.block_shape, gl.float32, LAYOUT)
    for i in range(steps):
        stage = i % STAGES
        mbarrier.wait(ring_a.full.index(stage), i // STAGES & 1)
        b = ring_b.blocks.index(stage).permute((1, 0))
        sums = warpgroup_mma(ring_a.blocks.index(stage), b, sums, is_async=True)
        sums = warpgroup_mma_wait(WAITS, (sums,))
        mbarrier.arrive(ring_a.empty.index(stage))
    sums = warpgroup_mma_wait(0, (sums,))
    out = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    out.store(sums.to(c.dtype))
    if FENCES:
        fence_async_shared()
    async_store(c, [0, 0], out)
    tma.store_wait(0)


@gluon.jit
def matrix_product(a, b, c, steps, K: gl.constexpr, WAITS: gl.constexpr, FENCES: gl.constexpr):
    ring_a, ring_b = make_ring(a, 2), make_ring(b, 2)
    gl.warp_specialize(
        [
            (multiply, (c, ring_a, ring_b, steps, 2, WAITS, FENCES)),
            (load_operands, (a, b, ring_a, ring_b, steps, 2, K)),
        ],
        [1],
        [24],
    )


def product(k: int, waits: int = 0, fences: bool = True, dtype: torch.dtype = torch.bfloat16) -> bool:
    a, b = (torch.randint(-3, 4, (64, k)).to(dtype) for _ in range(2))
    c = torch.zeros(64, 64)
    given = described(a, 64, 64), described(b, 64, 64), described(c, 64, 64)
    matrix_product[(1,)](*given, -(-k // 64), 64, waits, fences)
    return torch.equal(c, a.float() @ b.float().t())


def check_products_of_tensor_cores(world: Any) -> None:
    for k in (16, 64, 200, 512):
        assert product(k) and product(k, dtype=torch.float16), k


def check_a_stage_released_too_early_is_an_error(world: Any) -> None:
    """The product may still read it, which nothing has waited for when TMA fills it again: here in some launches, the
    same ones in every run."""
    said = r"gluon\.py:\d+: RuntimeError: a TMA load overwrites shared memory that a product of tensor cores may"
    with raises(KernelError, said):
        for _ in range(20):
            assert product(512, waits=1)


def check_a_fence_that_lacks_is_an_error(world: Any) -> None:
    with raises(
        KernelError, r"program \(0, 0, 0\), .*gluon\.py:\d+: RuntimeError: a TMA store reads shared memory that"
    ):
        product(64, fences=False)


@gluon.jit
def add_up(y, ring, n, STAGES: gl.constexpr, FENCES: gl.constexpr):
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    sums = gl.zeros(y.block_shape, y.dtype, LAYOUT)
    for i in range(n):
        stage = i % STAGES
        mbarrier.wait(ring.full.index(stage), i // STAGES & 1)
        sums += ring.blocks.index(stage).load(LAYOUT)
        if FENCES:
            fence_async_shared()
        mbarrier.arrive(ring.empty.index(stage))
    out = gl.allocate_shared_memory(y.dtype, y.block_shape, y.layout)
    out.store(sums)
    fence_async_shared()
    async_store(y, [0, 0], out)
    tma.store_wait(0)


@gluon.jit
def sum_of_rows(x, y, n, STAGES: gl.constexpr, ROWS: gl.constexpr, WHO_FENCES: gl.constexpr):
    ring = make_ring(x, STAGES)
    added = (y, ring, n, STAGES, WHO_FENCES == "who adds")
    gl.warp_specialize([(add_up, added), (load_all, (x, ring, n, STAGES, ROWS, WHO_FENCES == "who loads"))], [1], [24])


def check_what_is_loaded_is_not_overwritten(world: Any) -> None:
    """TMA fills a stage again whose ordinary loads may be under way: a barrier does not order them, a fence does."""
    x, y = torch.randn(48, 64), torch.zeros(8, 64)
    given = described(x, 8, 64), described(y, 8, 64)
    for who in ("who adds", "who loads"):  # as Triton's tutorial of warp specialization has it: one of them
        sum_of_rows[(1,)](*given, 6, 2, 8, who)
        torch.testing.assert_close(y, x.view(6, 8, 64).sum(0))
    sum_of_rows[(1,)](*given, 2, 2, 8, "nobody")  # no stage is filled twice
    with raises(
        KernelError, r"gluon\.py:\d+: RuntimeError: a TMA load overwrites shared memory behind an ordinary load"
    ):
        sum_of_rows[(1,)](*given, 6, 2, 8, "nobody")


@gluon.jit
def make_stages(like, STAGES: gl.constexpr):
    """As Triton's tutorials name a block's shape."""
    ring = make_ring(like, STAGES)
    blocks = gl.allocate_shared_memory(like.dtype, [STAGES] + like.block_type.shape, like.layout)  # noqa: RUF005
    return Ring(blocks, ring.full, ring.empty)


@gluon.jit
def double(x, y, n, STAGES: gl.constexpr):
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    for i in range(n):
        stage = i % STAGES
        mbarrier.wait(x.full.index(stage), i // STAGES & 1)
        block = x.blocks.index(stage).load(LAYOUT)
        fence_async_shared()
        mbarrier.arrive(x.empty.index(stage))
        mbarrier.wait(y.empty.index(stage), (i // STAGES & 1) ^ 1)
        y.blocks.index(stage).store(block + block)
        fence_async_shared()
        mbarrier.arrive(y.full.index(stage))


@gluon.jit
def store_some_behind(y, ring, n, STAGES: gl.constexpr, ROWS: gl.constexpr):
    BEHIND: gl.constexpr = STAGES - 1
    for i in range(n):
        mbarrier.wait(ring.full.index(i % STAGES), i // STAGES & 1)
        async_store(y, [i * ROWS, 0], ring.blocks.index(i % STAGES))
        tma.store_wait(BEHIND)
        mbarrier.arrive(ring.empty.index((i - BEHIND + STAGES) % STAGES), pred=i >= BEHIND)
    tma.store_wait(0)


@gluon.jit
def double_rows(x, y, n, STAGES: gl.constexpr, ROWS: gl.constexpr):
    of_x, of_y = make_stages(x, STAGES), make_stages(y, STAGES)
    gl.warp_specialize(
        [
            (double, (of_x, of_y, n, STAGES)),
            (load_all, (x, of_x, n, STAGES, ROWS)),
            (store_some_behind, (y, of_y, n, STAGES, ROWS)),
        ],
        [1, 1],
        [24, 24],
    )


def check_a_pipeline_of_three_partitions(world: Any) -> None:
    """Loads, ordinary arithmetic and stores, each some blocks ahead of the next."""
    for stages in (1, 2, 3):
        for _ in range(5):
            x, y = torch.randn(56, 64), torch.zeros(56, 64)
            double_rows[(1,)](described(x, 8, 64), described(y, 8, 64), 7, stages, 8)
            assert torch.equal(y, x + x), stages


# ---- mistakes


@gluon.jit
def mistaken(x, y, WHICH: gl.constexpr):
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    block = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    if WHICH == "uninitialized":
        mbarrier.wait(bar, 0)
    mbarrier.init(bar, count=2)
    if WHICH == "arrivals":
        mbarrier.arrive(bar, count=3)
    elif WHICH == "block":
        async_load(y, [0, 0], bar, block)
    elif WHICH == "place":
        async_load(x, [0], bar, block)
    elif WHICH == "multicast":
        async_load(x, [0, 0], bar, block, multicast=True)
    elif WHICH == "unread":
        for _ in range(64):
            async_store(x, [0, 0], block)
    elif WHICH == "overwritten":
        async_store(x, [0, 0], block)
        block.store(gl.zeros([8, 64], x.dtype))
    elif WHICH == "filled":
        async_store(x, [0, 0], block)
        tma.store_wait(1)
        async_load(x, [0, 0], bar, block)
    elif WHICH == "index":
        block.index(8)
    elif WHICH == "dtype":
        block.store(gl.zeros([8, 64], gl.float32))
    elif WHICH == "function":
        gl.bank_conflicts(x.block_type, x.block_type)
    elif WHICH == "assembly":
        gl.inline_asm_elementwise("bar.sync 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)
    elif WHICH == "workers":
        gl.warp_specialize([(nothing, ()), (nothing, ())], [1, 1], [24, 24])
    elif WHICH == "nested":
        gl.warp_specialize([(nothing, ()), (partitions, ())], [1], [24])


@gluon.jit
def nothing():
    pass


@gluon.jit
def partitions():
    gl.warp_specialize([(nothing, ()), (nothing, ())], [1], [24])


MISTAKES = {
    "uninitialized": "RuntimeError: this mbarrier was not initialized",
    "arrivals": r"RuntimeError: mbarrier 0 of its 1, phase 0, 2 of 2 to arrive, 0 bytes: 3 more arrive than the 2 of",
    "block": r"ValueError: a TMA load: the descriptor has blocks of fp16 \[16, 64\], shared memory one of fp16 \[8",
    "place": r"ValueError: a TMA load: 1 coordinates for blocks of \[8, 64\]",
    "multicast": "NotImplementedError: the CPU world has no clusters of programs",
    "overwritten": r"RuntimeError: an ordinary store overwrites shared memory that the TMA store at .* may still read:",
    "filled": r"RuntimeError: a TMA load overwrites shared memory that the TMA store at .*gluon\.py:\d+ may still read",
    "unread": r"RuntimeError: the TMA store at \S*gluon\.py:\d+ may still read shared memory when its partition ends",
    "index": "IndexError: block 8 of shared memory with 8",
    "dtype": r"ValueError: a block of fp16 \[8, 64\] in shared memory cannot hold one of fp32",
    "function": "NotImplementedError: the CPU world has no bank_conflicts of Gluon",
    "assembly": "NotImplementedError: the CPU world has no instruction 'bar.sync 0' of PTX",
    "workers": "ValueError: gl.warp_specialize: 1 functions behind the first, but 2 numbers of warps",
    "nested": "RuntimeError: gl.warp_specialize in a partition: they cannot be nested",
}


def check_gluon_mistakes(world: Any) -> None:
    x = torch.ones(16, 64, dtype=torch.float16)
    for which, message in MISTAKES.items():
        with raises(KernelError, rf"kernel mistaken, program \(0, 0, 0\).*: {message}", r"checks/gluon\.py:\d+"):
            mistaken[(1,)](described(x, 8, 64), described(x, 16, 64), which)


# ---- with other PEs


@gluon.jit
def send(x, there, flag, flag_there, me, COMPLETES: gl.constexpr):
    """PE 0 stores to PE 1 and sets a flag there."""
    block = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    if me == 0:
        mbarrier.expect(full, x.block_type.nbytes)
        async_load(x, [0, 0], full, block)
        mbarrier.wait(full, 0)
        async_store(there, [0, 0], block)
        if COMPLETES:
            stores_complete()
        else:
            tma.store_wait(0)
        gl.atomic_xchg(flag_there, 1, sem="release", scope="sys")
    else:
        acquire(flag, 1, "sys")
        fence_async_proxy()
        mbarrier.expect(full, x.block_type.nbytes)
        async_load(there, [0, 0], full, block)
        mbarrier.wait(full, 0)
        async_store(x, [0, 0], block)
        tma.store_wait(0)


def sent(world: Any, completes: bool) -> bool:
    """Whether PE 1 has found what it was sent."""
    me = world.pe
    x = torch.full((8, 64), 5.0 - 5 * me, dtype=torch.float16)
    data, flag = triton_dist.zeros(8, 64, dtype=torch.float16), triton_dist.zeros(1, dtype=torch.int32)
    there, flag_there = world.peer(data, 1), world.peer(flag, 1)
    triton_dist.barrier_all()
    send[(1,)](described(x, 8, 64), described(there, 8, 64), flag, flag_there, me, completes)
    triton_dist.barrier_all()
    triton_dist.free(data)
    triton_dist.free(flag)
    return me != 1 or bool((x == 5).all())


def check_stores_to_a_peer(world: Any) -> None:
    if world.n_pes > 1:
        found = [sent(world, True) for _ in range(20)]
        assert all(found)


def check_a_flag_in_front_of_its_data(world: Any) -> None:
    """Where the sender waits only until shared memory has been read, the data may come after the flag."""
    if world.n_pes > 1:
        found = [sent(world, False) for _ in range(20)]
        assert world.pe != 1 or not all(found)


@gluon.jit
def never_arrives(x, n):
    ring = make_ring(x, 1)
    gl.warp_specialize([(wait_for_full, (ring,)), (load_all, (x, ring, n, 1, 8))], [1], [24])


@gluon.jit
def wait_for_full(ring):
    mbarrier.wait(ring.full.index(0), 0)
    mbarrier.wait(ring.full.index(0), 1)  # HERE second


def check_deadlocks_name_the_partition_and_the_barrier(world: Any) -> None:
    """The last check of this file: it ends the world."""
    x = torch.ones(16, 64, dtype=torch.float16)
    with (
        mock.patch.dict(os.environ, TRITON_DIST_WAIT_TIMEOUT="0.5"),
        raises(
            KernelError,
            rf"program \(0, 0, 0\) at \S*{place('second')} waits in mbarrier.wait for parity 1: mbarrier 0 of its 1, "
            r"phase 1, 1 of 1 to arrive, 0 bytes",
            r"program \(0, 0, 0\), partition 1 \(load_all\) at \S*gluon\.py:\d+ waits in mbarrier.wait for parity 0",
        ),
    ):
        never_arrives[(1,)](described(x, 8, 64), 2)


if __name__ == "__main__":
    main(globals())
