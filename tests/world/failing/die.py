"""PE 1 ends in the way that the first argument names, while each of the others waits in another way of waiting."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import triton

import triton_dist
import triton_dist.language as dl


@triton.jit
def wait(signals):
    dl.signal_wait_until(signals, dl.CMP_EQ, 1)


def end(how: str) -> None:
    time.sleep(0.5)  # the others have begun to wait
    sys.stdout.write(f"ended {time.time()}\n")
    sys.stdout.flush()
    if how == "_exit":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "raise":
        raise ValueError("no good: ünïcode")
    assert how == "return"


world = triton_dist.init()
signals = triton_dist.zeros(1, dtype=torch.int64)
if world.pe == 1:
    end(sys.argv[1])
else:
    try:
        if world.pe == 0:
            triton_dist.barrier_all()
        elif world.pe == 2:
            triton_dist.finalize()
        else:
            wait[(1,)](signals)
    finally:
        print("noticed", time.time())
