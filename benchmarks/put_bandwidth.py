"""Bandwidth of puts to the next PE, all PEs at once: dl.putmem by each transport, stores through dl.symm_at, and the
copy engine.

    torchrun --nproc-per-node 2 benchmarks/put_bandwidth.py

GB/s out of each GPU, of its slowest PE. Small puts are repeated inside one kernel, or one graph of copies, so that what
is timed is the put and not the launch. Programs share a put; a small one gets fewer programs, each at least a few
kilobytes.
"""

from __future__ import annotations

import argparse
import sys

import torch
import triton
import triton.language as tl
from measure import compare, gpus_or_exit

import triton_dist
import triton_dist.language as dl
from triton_dist.compiler import transport

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
SHARE = 4 * KIB  # bytes that a program gets at least
BLOCK = 2048  # int32 elements of one store


@triton.jit(do_not_specialize=["nbytes", "share", "repeats"])
def put(dst, src, nbytes, share, repeats):
    start = tl.program_id(0).to(tl.int64) * share
    to = (dl.my_pe() + 1) % dl.n_pes()
    for _ in range(repeats):
        dl.putmem(dst + start, src + start, tl.minimum(share, nbytes - start), to)
    dl.quiet()


@triton.jit(do_not_specialize=["repeats"])
def store(dst, src, n, share, repeats, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * share
    end = tl.minimum(start + share, n)
    there = dl.symm_at(dst, (dl.my_pe() + 1) % dl.n_pes())
    for _ in range(repeats):
        for at in range(start, end, BLOCK):
            offsets = at + tl.arange(0, BLOCK)
            tl.store(there + offsets, tl.load(src + offsets, mask=offsets < end), mask=offsets < end)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--programs", type=int, nargs="+", default=[16, 32, 132], help="how many programs share a put")
    parser.add_argument("--max", type=int, default=SIZES[-1], help="largest size in bytes")
    args = parser.parse_args()
    gpus_or_exit(2, "put bandwidth")
    with triton_dist.init() as world:
        if world.n_pes == 1:
            print("put bandwidth: not measured. Start it with torchrun on two GPUs or more.")
            return 0
        sizes = [size for size in SIZES if size <= args.max]
        torch.manual_seed(world.pe)
        source = triton_dist.empty(max(sizes) // 4, dtype=torch.int32)
        source.random_()
        target = triton_dist.zeros(max(sizes) // 4, dtype=torch.int32)
        if world.pe == 0:
            print(f"{world.n_pes} x {torch.cuda.get_device_name()}: GB/s from each PE to the next, all at once")
        for size in sizes:
            found = _measure(world, source[: size // 4], target[: size // 4], args.programs)
            if world.pe == 0:
                if size == sizes[0]:
                    print("     bytes " + "".join(f"{name:>18}" for name in found))
                print(
                    f"{size:>10} " + "".join(f"{size / seconds / 1e9:>18.2f}" for seconds in found.values()), flush=True
                )
    return 0


def _measure(
    world: triton_dist.World, source: torch.Tensor, target: torch.Tensor, programs: list[int]
) -> dict[str, float]:
    """Median seconds of one put of ``source`` to the next PE's ``target``, by each way there is."""
    nbytes = source.numel() * 4
    repeats = max(1, min(200, 32 * MIB // nbytes))
    there = triton_dist.peer(target, (world.pe + 1) % world.n_pes)

    def puts(name: str, count: int) -> None:
        share = _share(nbytes, count)
        grid = (triton.cdiv(nbytes, share),)
        with transport.using(name):
            put[grid](target.view(torch.uint8), source.view(torch.uint8), nbytes, share, repeats)

    def stores(count: int) -> None:
        share = _share(nbytes, count) // 4
        n = nbytes // 4
        store[(triton.cdiv(n, share),)](target, source, n, share, repeats, BLOCK=BLOCK, num_warps=8)

    def copies() -> None:
        for _ in range(repeats):
            there.copy_(source)

    steps = {
        f"{name} put x{count}": lambda name=name, count=count: puts(name, count)
        for name in world.transports
        for count in programs
    }
    steps |= {f"stores x{count}": lambda count=count: stores(count) for count in programs}
    steps |= {"copy engine": copies}
    for name, step in steps.items():
        _check(world, name, step, source, target)
    return {name: seconds / repeats for name, seconds in compare(world, steps).items()}


def _share(nbytes: int, programs: int) -> int:
    """Bytes for each program: a multiple of 16, so that every share is aligned as the whole is."""
    return max(SHARE, triton.cdiv(triton.cdiv(nbytes, programs), 16) * 16)


def _check(world: triton_dist.World, name: str, step: object, source: torch.Tensor, target: torch.Tensor) -> None:
    target.zero_()
    triton_dist.barrier_all()
    step()  # type: ignore[operator]
    triton_dist.barrier_all()
    sent = triton_dist.peer(source, (world.pe - 1) % world.n_pes)
    if not torch.equal(target, sent):
        raise SystemExit(f"{name} of {source.numel() * 4} bytes: PE {world.pe} did not get what was sent")
    triton_dist.barrier_all()


if __name__ == "__main__":
    sys.exit(main())
