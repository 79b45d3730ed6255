"""One PE ends in some way while each of the others waits for it in another way. Both worlds.

    worker_lost.py HOW WHO [WAIT…]

HOW: kill, segfault, exit, raise, interrupt. WHO: the PE that ends. WAIT: what the others do, in turn: kernel (a kernel
waits for a signal, and the host for the kernel), barrier, finalize, empty, exit, python; or a call of the kernel
library in which the PE that ends does not take part: tokens, all_reduce, gemm_all_reduce.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import torch
import triton

import triton_dist
import triton_dist.language as dl
from triton_dist import kernels
from triton_dist.kernels import moe


@triton.jit
def wait_for_one(flag):
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)


def end(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exit":
        os._exit(0)
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    raise ValueError("no good")


LIBRARY = {"tokens", "all_reduce", "gemm_all_reduce"}


def library_calls(world: triton_dist.World) -> dict[str, Callable[[], object]]:
    device, n = world.device, world.n_pes
    x = torch.ones(64, 1024, dtype=torch.bfloat16, device=device)
    w = torch.ones(1024, 1024, dtype=torch.bfloat16, device=device)
    ids = (torch.arange(64 * 2, device=device) % n).view(64, 2)  # each token goes to several PEs
    options = {"num_experts": n, "max_tokens": 64, "num_sms": 4}
    result = world.empty((n * 64, 1024), torch.bfloat16)

    def tokens() -> None:
        found = moe.dispatch_tokens(x, ids, torch.ones(64, 2, device=device), **options, out=result)
        moe.combine_tokens(found.x, found)

    return {
        "tokens": tokens,
        "all_reduce": lambda: kernels.all_reduce(x.clone()),
        "gemm_all_reduce": lambda: kernels.gemm_all_reduce(x, w),
    }


def wait(world: triton_dist.World, way: str, flag: torch.Tensor) -> None:
    if way in calls:
        calls[way]()
        flag.cpu()
    elif way == "kernel":
        wait_for_one[(1,)](flag)
        flag.cpu()
    elif way == "barrier":
        triton_dist.barrier_all()
    elif way == "finalize":
        triton_dist.finalize()
    elif way == "empty":
        triton_dist.empty(5)
    elif way == "exit":
        wait_for_one[(1,)](flag)  # and the program ends, with the kernel still waiting
    else:
        time.sleep(60)


how, who, ways = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
world = triton_dist.init()
flag = triton_dist.zeros(1, dtype=torch.int64)
calls = library_calls(world) if set(ways) & LIBRARY else {}
for way in ways:
    if way in calls:
        calls[way]()  # makes its workspace, and compiles
if world.kind == "gpu":
    wait_for_one.warmup(flag, grid=(1,))  # so that only waiting is left to do
triton_dist.barrier_all()
if world.pe == who:
    time.sleep(1.5)
    print(f"ended {time.time()}", flush=True)
    end(how)
others = [pe for pe in range(world.n_pes) if pe != who]
wait(world, ways[others.index(world.pe) % len(ways)], flag)
