"""iput and iget: every element arrives at its stride, and nothing between them changes."""

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


@check
def strided_copies_of_every_type(world: World) -> None:
    for dtype in element_types.ALL if GPU else element_types.ALL[::3]:
        _check_type(world, dtype)
