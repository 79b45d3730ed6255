"""PE 1 is ``TRITON_DIST_WAIT_TIMEOUT`` + 3 s late for a wait of PE 0. PE 0 reports the wait and goes on.

    worker_waits.py CASE [never]

With ``never``, PE 1 stays away: for ``TRITON_DIST_WAIT_ACTION=abort``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import environment, kernels


@triton.jit
def await_signal(flags, seen):
    tl.store(seen, dl.signal_wait_until(flags + 3, dl.CMP_GE, 7))


@triton.jit
def await_all(flags, seen):
    dl.wait_until_all(flags, 5, None, dl.CMP_EQ, 7)
    tl.store(seen, tl.load(flags + 3))


@triton.jit
def signal(flags):
    for i in range(5):
        dl.signal_op(flags + i, 7, dl.SIGNAL_SET, 0)


@triton.jit
def meet(seen):
    dl.barrier_all()
    tl.store(seen, 7)


def main(case: str, comes: bool) -> None:
    with triton_dist.init() as world:
        me, n_pes, device = world.pe, world.n_pes, world.device
        flags = triton_dist.zeros(8, dtype=torch.int64)
        seen = torch.zeros(1, dtype=torch.int64, device=device)
        words = (1 << 20) if case == "all_gather" else 256
        source = triton_dist.full((words,), float(me + 1), dtype=torch.float32)
        gathered = triton_dist.zeros((n_pes, words), dtype=torch.float32)
        reduced = triton_dist.zeros(words, dtype=torch.float32)
        a = torch.full((512, 512), 1.0, dtype=torch.bfloat16, device=device)
        b = torch.full((512, 512 // n_pes), float(me + 1), dtype=torch.bfloat16, device=device)
        c = triton_dist.zeros((512, 512), dtype=torch.bfloat16)

        def waits(kernel: Callable[..., None]) -> None:
            if me == 0:
                kernel[(1,)](flags, seen)  # type: ignore[index]
                torch.cuda.synchronize()
                assert seen.item() == 7
            elif me == 1:
                signal[(1,)](flags)

        def barrier() -> None:
            meet[(1,)](seen)

        def all_reduce() -> None:
            kernels.all_reduce(source, out=reduced)

        def all_gather() -> None:
            kernels.all_gather(gathered, source, algorithm="push")

        def gemm() -> None:
            kernels.gemm_all_scatter(a, b, c, algorithm="warp_specialized")

        calls: dict[str, Callable[[], None]] = {
            "signal": lambda: waits(await_signal),
            "all": lambda: waits(await_all),
            "barrier": barrier,
            "all_reduce": all_reduce,
            "all_gather": all_gather,
            "gemm": gemm,
        }
        call = calls[case]
        call()  # compiles, and makes the workspace
        triton_dist.barrier_all()
        flags.fill_(5)
        torch.cuda.synchronize()
        triton_dist.barrier_all()
        if me == 1:
            time.sleep(environment.get("TRITON_DIST_WAIT_TIMEOUT") + 3 if comes else 1000)
        call()
        torch.cuda.synchronize()
        if case == "barrier":
            assert seen.item() == 7
        if case == "all_reduce":
            assert bool((reduced == n_pes * (n_pes + 1) // 2).all())
        if case == "all_gather":
            assert all(bool((gathered[pe] == pe + 1).all()) for pe in range(n_pes))
        if case == "gemm":
            width = 512 // n_pes
            assert all(bool((c[:, pe * width : (pe + 1) * width] == 512 * (pe + 1)).all()) for pe in range(n_pes))
        triton_dist.barrier_all()
        print(f"PE {me}: right", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], comes="never" not in sys.argv)
