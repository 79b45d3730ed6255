"""Every PE puts its data into the next PE's memory, and adds what came from the previous one.

A program sends one block: it puts the block together with a signal, waits for the signal that comes with its own block
    from the other side, and only then reads. The put is complete at its target before the signal is, so one word is all
    the synchronisation there is.

    torchrun --nproc-per-node 4 examples/01_ring_put.py
"""

import argparse
import sys
import time

import torch
import triton
import triton.language as tl
from common import random, report

import triton_dist
import triton_dist.language as dl


@triton.jit
def ring_put(inbox, outbox, arrived, result, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    start = block * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    next_pe = (dl.my_pe() + 1) % dl.n_pes()
    dl.putmem_signal(inbox + start, outbox + start, BLOCK * 4, arrived + block, 1, dl.SIGNAL_SET, next_pe)
    token = dl.signal_wait_until(arrived + block, dl.CMP_EQ, 1)
    received = tl.load(dl.consume_token(inbox, token) + offsets)  # the token keeps this load after the wait
    tl.store(result + offsets, received + tl.load(outbox + offsets))


def main() -> int:
    small = triton_dist.kind() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=8 if small else 64, help="blocks to send, one program each")
    parser.add_argument("--block", type=int, default=1024, help="float32 elements of a block, a power of two")
    args = parser.parse_args()
    with triton_dist.init() as world:
        n = args.blocks * args.block
        outbox = triton_dist.from_tensor(random(n, pe=world.pe))
        inbox = triton_dist.zeros(n)
        arrived = triton_dist.zeros(args.blocks, dtype=torch.int64)
        result = torch.empty(n, device=world.device)

        start = time.perf_counter()
        ring_put[(args.blocks,)](inbox, outbox, arrived, result, BLOCK=args.block)
        triton_dist.barrier_all()
        seconds = time.perf_counter() - start  # with the compiler's share

        previous = (world.pe - 1) % world.n_pes
        expected = random(n, pe=previous) + random(n, pe=world.pe)
        return report("01_ring_put", result, expected, tolerance=0, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
