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
    dl.signal_op(signals + 1, 1, dl.SIGNAL_ADD, 1)
    dl.signal_wait_until(signals, dl.CMP_EQ, 1)


def end(how: str) -> None:
    while signals[1] < world.n_pes - 1:
        time.sleep(0.01)
    time.sleep(0.5)  # the others, which were about to wait, do so
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


@triton.jit
def tell(signals):
    dl.signal_op(signals + 1, 1, dl.SIGNAL_ADD, 1)


world = triton_dist.init()
signals = triton_dist.zeros(2, dtype=torch.int64)
if world.pe == 1:
    end(sys.argv[1])
elif world.pe == 3:
    wait[(1,)](signals)
else:
    tell[(1,)](signals)
    if world.pe == 0:
        triton_dist.barrier_all()
    else:
        triton_dist.finalize()
