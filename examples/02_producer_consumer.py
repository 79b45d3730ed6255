"""A bounded queue between PEs: every PE produces items for the next one, and consumes those of the previous one.

The queue has a few slots in the consumer's memory, and each slot two signals that only grow. `filled`, beside the slot,
says how often the producer has filled it; `drained`, in the producer's memory, how often the consumer has emptied it.
The producer waits before it would overwrite an item that is still needed, the consumer before it reads one that is not
there yet: neither ever asks the other PE, each waits on its own memory.

    torchrun --nproc-per-node 4 examples/02_producer_consumer.py
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
def produce(items, n_items, queue, filled, drained, n_slots, consumer, ITEM: tl.constexpr):
    for i in range(n_items):
        slot = i % n_slots
        turn = i // n_slots
        dl.signal_wait_until(drained + slot, dl.CMP_GE, turn)
        dl.putmem_signal(
            queue + slot * ITEM, items + i * ITEM, ITEM * 4, filled + slot, turn + 1, dl.SIGNAL_SET, consumer
        )


@triton.jit
def consume(results, n_items, queue, filled, drained, n_slots, producer, ITEM: tl.constexpr):
    offsets = tl.arange(0, ITEM)
    for i in range(n_items):
        slot = i % n_slots
        turn = i // n_slots
        token = dl.signal_wait_until(filled + slot, dl.CMP_GE, turn + 1)
        item = tl.load(dl.consume_token(queue + slot * ITEM, token) + offsets)
        tl.store(results + i * ITEM + offsets, item * item)
        dl.signal_op(drained + slot, 1, dl.SIGNAL_ADD, producer)


@triton.jit
def pipeline(items, results, n_items, queue, filled, drained, n_slots, ITEM: tl.constexpr):
    me = dl.my_pe()
    n_pes = dl.n_pes()
    if tl.program_id(0) == 0:
        produce(items, n_items, queue, filled, drained, n_slots, (me + 1) % n_pes, ITEM)
    else:
        consume(results, n_items, queue, filled, drained, n_slots, (me + n_pes - 1) % n_pes, ITEM)


def main() -> int:
    small = triton_dist.kind() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=24 if small else 1000, help="items that each PE sends")
    parser.add_argument("--slots", type=int, default=4, help="slots of the queue")
    parser.add_argument("--item", type=int, default=512 if small else 4096, help="float32 elements, a power of two")
    args = parser.parse_args()
    with triton_dist.init() as world:
        items = triton_dist.from_tensor(random(args.items, args.item, pe=world.pe))
        queue = triton_dist.zeros(args.slots, args.item)
        filled = triton_dist.zeros(args.slots, dtype=torch.int64)
        drained = triton_dist.zeros(args.slots, dtype=torch.int64)
        results = torch.empty(args.items, args.item, device=world.device)

        start = time.perf_counter()
        pipeline[(2,)](items, results, args.items, queue, filled, drained, args.slots, ITEM=args.item)
        triton_dist.barrier_all()
        seconds = time.perf_counter() - start  # with the compiler's share

        expected = random(args.items, args.item, pe=(world.pe - 1) % world.n_pes) ** 2
        return report("02_producer_consumer", results, expected, tolerance=0, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
