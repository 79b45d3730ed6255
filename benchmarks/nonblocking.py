"""Overlap of a non-blocking put with the computation of the program that issues it.

    torchrun --nproc-per-node 2 benchmarks/nonblocking.py

Every program of PE 0 puts its own bytes to PE 1 and computes for some time, in three ways:

- ``put``: ``putmem``, ``quiet``, then the computation;
- ``put_nbi``: ``putmem_nbi``, the computation, then ``quiet``;
- ``bulk``: a TMA copy in PTX. One thread loads the bytes into shared memory and issues a bulk store; all threads
  compute until this thread waits for the store. Only for sizes that fit into shared memory.

``compute`` is the computation without a put. A way that hides its copy takes no longer than the larger of ``compute``
and ``put`` without computation. Times are of one put with its computation, in microseconds.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

KIB = 1 << 10
SIZES = [4 * KIB, 16 * KIB, 64 * KIB, 1024 * KIB]
STAGED_AT_MOST = 32 * KIB
PROGRAMS = [1, 32, 132]
SPINS = [0, 120, 600]
REPEATS = 50
ROUNDS = 9
WARPS = 8
COMPUTE, PUT, PUT_NBI, BULK = range(4)
WAYS = {"compute": COMPUTE, "put": PUT, "put_nbi": PUT_NBI, "bulk": BULK}

# Run by one thread: waits for the previous store, which frees the staging memory, then loads and stores the next bytes.
# Its warp waits for it: otherwise it would compute twice, once for this thread and once for the others.
_START = tl.constexpr("""{
    .reg .pred elected, arrived;
    .reg .b32 thread, stage, barrier;
    .shared .align 128 .b8 staged[32768];
    .shared .align 8 .b64 fetched;
    mov.b32 $0, 0;
    mov.u32 thread, %tid.x;
    setp.eq.u32 elected, thread, 0;
    @!elected bra done;
    mov.u32 stage, staged;
    mov.u32 barrier, fetched;
    mbarrier.init.shared::cta.b64 [barrier], 1;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], $3;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [stage], [$2], $3, [barrier];
fetching:
    mbarrier.try_wait.parity.shared::cta.b64 arrived, [barrier], 0;
    @!arrived bra fetching;
    mbarrier.inval.shared::cta.b64 [barrier];
    cp.async.bulk.global.shared::cta.bulk_group [$1], [stage], $3;
    cp.async.bulk.commit_group;
done:
    bar.warp.sync 0xffffffff;
}""")
# Eight multiply-adds, each on the result of the one before. As PTX, so that every way has the same machine code for it.
_SPIN = tl.constexpr("mov.f32 $0, $1; " + "fma.rn.f32 $0, $0, 0f3F7FBE77, 0f3F800000; " * 8)
_COMPLETE = tl.constexpr("cp.async.bulk.wait_group 0; mov.b32 $0, 0;")


@triton.jit
def put_and_compute(dst, src, out, nbytes, spins, repeats, pe, WAY: tl.constexpr):
    """``dst``, ``src``: ``nbytes`` for each program; ``out``: 256 float32 for each."""
    to = dst + tl.program_id(0).to(tl.int64) * nbytes
    of = src + tl.program_id(0).to(tl.int64) * nbytes
    values = tl.arange(0, 256).to(tl.float32)
    for _ in range(repeats):
        if WAY == 1:
            dl.putmem(to, of, nbytes, pe)
            dl.quiet()
        elif WAY == 2:
            dl.putmem_nbi(to, of, nbytes, pe)
        elif WAY == 3:
            tl.inline_asm_elementwise(
                _START, "=r,l,l,r", [dl.symm_at(to, pe).to(tl.int64), of.to(tl.int64), nbytes.to(tl.int32)],
                dtype=tl.int32, is_pure=False, pack=1,
            )  # fmt: skip
        for _ in range(spins):
            values = tl.inline_asm_elementwise(_SPIN, "=f,f", [values], dtype=tl.float32, is_pure=False, pack=1)
        if WAY == 2:
            dl.quiet()
        elif WAY == 3:
            tl.inline_asm_elementwise(_COMPLETE, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
            tl.debug_barrier()
    tl.store(out + tl.program_id(0) * 256 + tl.arange(0, 256), values)


def main() -> None:
    if triton_dist.kind() == "cpu":
        print("nonblocking: not measured. It needs two GPUs: the CPU world has no inline assembly.")
        return
    with triton_dist.init() as world:
        dst, src = (triton_dist.zeros(max(PROGRAMS) * max(SIZES), dtype=torch.uint8) for _ in range(2))
        src.fill_(world.pe + 1)
        out = torch.empty(max(PROGRAMS) * 256, device=world.device)
        for count, nbytes, spins in itertools.product(PROGRAMS, SIZES, SPINS):
            times = {}
            for name, way in WAYS.items():
                if name == "bulk" and nbytes > STAGED_AT_MOST:
                    continue

                def step(way: int = way, count: int = count, nbytes: int = nbytes, spins: int = spins) -> None:
                    put_and_compute[(count,)](dst, src, out, nbytes, spins, REPEATS, 1, way, num_warps=WARPS)

                dst.zero_()
                triton_dist.barrier_all()
                if world.pe == 0:
                    times[name] = _seconds(step) / REPEATS * 1e6
                triton_dist.barrier_all()
                if world.pe == 1 and name != "compute":
                    assert bool((dst[: count * nbytes] == 1).all()), f"{name}, {nbytes} bytes: wrong data"
            if world.pe == 0:
                found = "  ".join(f"{name} {time:8.2f}" for name, time in times.items())
                print(f"{count:4} programs  {nbytes >> 10:5} KiB  {spins:5} spins  {found}", flush=True)


def _seconds(step: Callable[[], None]) -> float:
    for _ in range(3):
        step()
    times = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times)


if __name__ == "__main__":
    main()
