"""iput, iget, ibput and ibget: every element arrives at its stride, and nothing between them changes."""

from __future__ import annotations

import torch
import triton

import triton_dist
import triton_dist.language as dl
from ops import element_types
from ops.element_types import expect_bits, random_bits
from ops.harness import GPU, check
from triton_dist import World

SPACE = 1024
GUARD = 3
CASES = [(1, 1, 1), (1, 7, 5), (37, 1, 3), (37, 4, 1), (100, 3, 7), (301, 2, 3)]  # elements, strides of dst and src
SCOPES = ("thread", "warp", "block")


@triton.jit(do_not_specialize=["dst_stride", "src_stride", "n", "distance", "how"])
def strided_copy(dst, src, dst_stride, src_stride, n, distance, how):
    pe = (dl.my_pe() + distance) % dl.n_pes()
    if how == 0:
        dl.iput(dst, src, dst_stride, src_stride, n, pe, scope="thread")
    elif how == 1:
        dl.iput(dst, src, dst_stride, src_stride, n, pe, scope="warp")
    elif how == 2:
        dl.iput(dst, src, dst_stride, src_stride, n, pe, scope="block")
    elif how == 3:
        dl.iget(dst, src, dst_stride, src_stride, n, pe, scope="thread")
    elif how == 4:
        dl.iget(dst, src, dst_stride, src_stride, n, pe, scope="warp")
    else:
        dl.iget(dst, src, dst_stride, src_stride, n, pe, scope="block")
    dl.quiet()


def _check_type(world: World, dtype: torch.dtype) -> None:
    source = triton_dist.from_tensor(random_bits(SPACE, dtype, world.pe))
    target = triton_dist.empty(SPACE, dtype=dtype)
    background = random_bits(SPACE, dtype, 100)
    for case, (n, dst_stride, src_stride) in enumerate(CASES if GPU else CASES[::2]):
        for how in range(6):
            distance = (case + how) % world.n_pes
            other = (world.pe + (distance if how >= 3 else -distance)) % world.n_pes
            target.copy_(background)
            triton_dist.barrier_all()
            strided_copy[(1,)](target[GUARD:], source, dst_stride, src_stride, n, distance, how)
            triton_dist.barrier_all()
            expected = background.clone()
            sent = random_bits(SPACE, dtype, other)[: n * src_stride : src_stride]
            expected[GUARD : GUARD + n * dst_stride : dst_stride] = sent
            op = f"{'iget' if how >= 3 else 'iput'}, scope {SCOPES[how % 3]}"
            expect_bits(target, expected, f"{op}: {n} {dtype} to every {dst_stride} from every {src_stride}")
    triton_dist.free(source)
    triton_dist.free(target)


# Elements of a block, blocks, strides of dst and src; the last ones are whole vectors for every type.
BLOCKS = [
    (1, 1, 1, 1),
    (5, 1, 9, 9),
    (3, 37, 7, 5),
    (4, 50, 4, 8),
    (61, 7, 67, 64),
    (16, 9, 48, 32),
    (128, 4, 160, 144),
]


@triton.jit(do_not_specialize=["dst_stride", "src_stride", "bsize", "nblocks", "distance", "how"])
def block_copy(dst, src, dst_stride, src_stride, bsize, nblocks, distance, how):
    pe = (dl.my_pe() + distance) % dl.n_pes()
    if how == 0:
        dl.ibput(dst, src, dst_stride, src_stride, bsize, nblocks, pe, scope="thread")
    elif how == 1:
        dl.ibput(dst, src, dst_stride, src_stride, bsize, nblocks, pe, scope="warp")
    elif how == 2:
        dl.ibput(dst, src, dst_stride, src_stride, bsize, nblocks, pe, scope="block")
    elif how == 3:
        dl.ibget(dst, src, dst_stride, src_stride, bsize, nblocks, pe, scope="thread")
    elif how == 4:
        dl.ibget(dst, src, dst_stride, src_stride, bsize, nblocks, pe, scope="warp")
    else:
        dl.ibget(dst, src, dst_stride, src_stride, bsize, nblocks, pe, scope="block")
    dl.quiet()


def _check_blocks(world: World, dtype: torch.dtype) -> None:
    source = triton_dist.from_tensor(random_bits(SPACE, dtype, world.pe))
    target = triton_dist.empty(SPACE, dtype=dtype)
    background = random_bits(SPACE, dtype, 100)
    for case, (bsize, nblocks, dst_stride, src_stride) in enumerate(BLOCKS if GPU else BLOCKS[::2]):
        for how in range(6):
            distance = (case + how) % world.n_pes
            other = (world.pe + (distance if how >= 3 else -distance)) % world.n_pes
            first = 0 if bsize % 16 == 0 else GUARD
            target.copy_(background)
            triton_dist.barrier_all()
            block_copy[(1,)](target[first:], source, dst_stride, src_stride, bsize, nblocks, distance, how)
            triton_dist.barrier_all()
            expected, sent = background.clone(), random_bits(SPACE, dtype, other)
            for block in range(nblocks):
                taken = sent[block * src_stride :][:bsize]
                expected[first + block * dst_stride :][:bsize] = taken
            op = f"{'ibget' if how >= 3 else 'ibput'}, scope {SCOPES[how % 3]}"
            expect_bits(
                target, expected, f"{op}: {nblocks} blocks of {bsize} {dtype}, {dst_stride} and {src_stride} apart"
            )
    triton_dist.free(source)
    triton_dist.free(target)


@check
def blocks_of_every_type(world: World) -> None:
    for dtype in element_types.ALL if GPU else element_types.ALL[::3]:
        _check_blocks(world, dtype)


@check
def strided_copies_of_every_type(world: World) -> None:
    for dtype in element_types.ALL if GPU else element_types.ALL[::3]:
        _check_type(world, dtype)
