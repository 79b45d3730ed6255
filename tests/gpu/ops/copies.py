"""put and get, blocking and not: every byte arrives, and no byte beside them changes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import GPU, check, expect_equal, random_bytes, random_floats, rounds
from triton_dist import World

PUTMEM, PUTMEM_NBI, GETMEM, GETMEM_NBI = range(4)
GUARD = 64
SIZES = [1, 2, 7, 8, 16, 31, 1000, 1024, 4099, 65537]
OFFSETS = [(0, 0), (1, 0), (0, 3), (16, 8), (5, 13)]  # of destination and source
GUARD_BYTE = 0xA5


@triton.jit(do_not_specialize=["nbytes", "distance"], do_not_specialize_on_alignment=["dst", "src"])
def copy(dst, src, nbytes, distance, OP: tl.constexpr):
    pe = (dl.my_pe() + distance) % dl.n_pes()
    if OP == 0:
        dl.putmem(dst, src, nbytes, pe)
    elif OP == 1:
        dl.putmem_nbi(dst, src, nbytes, pe)
    elif OP == 2:
        dl.getmem(dst, src, nbytes, pe)
    else:
        dl.getmem_nbi(dst, src, nbytes, pe)
    dl.quiet()


@triton.jit
def put_elements(dst, src, n, distance):
    dl.put(dst, src, n, (dl.my_pe() + distance) % dl.n_pes())


@triton.jit
def get_elements(dst, src, n, distance):
    dl.get(dst, src, n, (dl.my_pe() + distance) % dl.n_pes())


@triton.jit
def put_in_parts(dst, src, part, distance):
    start = tl.program_id(0).to(tl.int64) * part
    dl.putmem(dst + start, src + start, part, (dl.my_pe() + distance) % dl.n_pes())


def _check_copies(world: World, op: int) -> None:
    space = max(SIZES) + 2 * GUARD
    source = triton_dist.empty(space, dtype=torch.uint8)
    target = triton_dist.empty(space, dtype=torch.uint8)
    for distance in range(world.n_pes):
        other = (world.pe + (distance if op in (GETMEM, GETMEM_NBI) else -distance)) % world.n_pes
        for round_, nbytes in enumerate(SIZES if GPU else SIZES[::2]):
            for to, start in OFFSETS:
                seed = 100 * round_ + to
                source.copy_(random_bytes(space, seed + 7919 * world.pe))
                target.fill_(GUARD_BYTE)
                triton_dist.barrier_all()
                warps = (1, 4, 8)[round_ % 3]
                copy[(1,)](target[GUARD + to :], source[start:], nbytes, distance, OP=op, num_warps=warps)
                triton_dist.barrier_all()
                expected = torch.full((space,), GUARD_BYTE, dtype=torch.uint8)
                there = random_bytes(space, seed + 7919 * other)
                expected[GUARD + to : GUARD + to + nbytes] = there[start : start + nbytes]
                expect_equal(target, expected, f"{nbytes} bytes to +{to} from +{start}, distance {distance}")
    triton_dist.free(source)
    triton_dist.free(target)


@check
def putmem(world: World) -> None:
    _check_copies(world, PUTMEM)


@check
def putmem_nbi(world: World) -> None:
    _check_copies(world, PUTMEM_NBI)


@check
def getmem(world: World) -> None:
    _check_copies(world, GETMEM)


@check
def getmem_nbi(world: World) -> None:
    _check_copies(world, GETMEM_NBI)


@check
def put_and_get_of_elements(world: World) -> None:
    n = 333
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int16, torch.int64):
        values = [(100 * random_floats(n, seed=pe)).to(dtype) for pe in range(world.n_pes)]
        source = triton_dist.from_tensor(values[world.pe])
        for kernel, sign in ((put_elements, -1), (get_elements, 1)):
            target = triton_dist.full(n + 1, 7, dtype=dtype)
            kernel[(1,)](target, source, n, 1)
            triton_dist.barrier_all()
            expect_equal(target[:n], values[(world.pe + sign) % world.n_pes], f"{n} elements of {dtype}")
            expect_equal(target[n:], torch.full((1,), 7, dtype=dtype), "the element behind them")
            triton_dist.free(target)
        triton_dist.free(source)


@check
def get_into_private_memory(world: World) -> None:
    n = 5000
    source = triton_dist.from_tensor(random_bytes(n, world.pe))
    target = torch.zeros(n, dtype=torch.uint8, device=world.device)
    copy[(1,)](target, source, n, 1, OP=GETMEM)
    triton_dist.barrier_all()
    expect_equal(target, random_bytes(n, (world.pe + 1) % world.n_pes), "bytes got into a plain tensor")
    triton_dist.free(source)


@check
def put_by_many_programs(world: World) -> None:
    programs, part = rounds(132, 8), rounds(1 << 20, 1 << 12)
    source = triton_dist.from_tensor(random_bytes(programs * part, world.pe))
    target = triton_dist.zeros(programs * part, dtype=torch.uint8)
    put_in_parts[(programs,)](target, source, part, 1)
    triton_dist.barrier_all()
    expect_equal(target, random_bytes(programs * part, (world.pe - 1) % world.n_pes), "bytes put by all programs")
    triton_dist.free(source)
    triton_dist.free(target)


@check(gpu_only=True)
def put_beyond_two_gigabytes(world: World) -> None:
    nbytes = (1 << 31) + 4099
    source = triton_dist.empty(nbytes, dtype=torch.uint8)
    target = triton_dist.zeros(nbytes + 1, dtype=torch.uint8)
    torch.manual_seed(world.pe)
    source.random_(0, 256)
    triton_dist.barrier_all()
    copy[(1,)](target, source, nbytes, 1, OP=PUTMEM)
    triton_dist.barrier_all()
    sent = triton_dist.peer(source, (world.pe - 1) % world.n_pes)
    assert torch.equal(target[:nbytes], sent), "the copy differs from its source"
    assert target[nbytes].item() == 0, "the byte behind the copy was written"
    triton_dist.barrier_all()
    triton_dist.free(source)
    triton_dist.free(target)
