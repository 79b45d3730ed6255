"""Cost of short waits. Run it on two commits, on one machine, and compare.

    torchrun --nproc-per-node 2 benchmarks/waits.py

Prints the median time of a signal ping-pong, and of small all-reduces and all-gathers in CUDA graphs, in µs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import kernels

ROUNDS = 2000
CALLS = 50
REPEATS = 21


@triton.jit(do_not_specialize=["first"])
def ping_pong(signal, first, me, ROUNDS: tl.constexpr):
    for i in range(ROUNDS):
        if me == 0:
            dl.signal_op(signal, first + i, dl.SIGNAL_SET, 1)
            dl.signal_wait_until(signal, dl.CMP_GE, first + i)
        if me == 1:
            dl.signal_wait_until(signal, dl.CMP_GE, first + i)
            dl.signal_op(signal, first + i, dl.SIGNAL_SET, 0)


def main() -> None:
    world = triton_dist.init()
    times: dict[str, float] = {}

    def measure(name: str, run: Callable[[], object], count: int) -> None:
        found = []
        for _ in range(REPEATS):
            triton_dist.barrier_all()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) * 1e3 / count)
        times[name] = statistics.median(found)

    signal = triton_dist.zeros(1, dtype=torch.int64)
    first = [1]

    def there_and_back() -> None:
        ping_pong[(1,)](signal, first[0], world.pe, ROUNDS=ROUNDS)
        first[0] += ROUNDS

    there_and_back()
    measure("signal there and back", there_and_back, ROUNDS)

    for nbytes in (8 << 10, 64 << 10, 512 << 10):
        source = triton_dist.from_tensor(torch.randn(nbytes // 2, device=world.device).bfloat16())
        total = triton_dist.zeros(nbytes // 2, dtype=torch.bfloat16)
        gathered = triton_dist.zeros(world.n_pes * nbytes // 2, dtype=torch.bfloat16)
        for name, call in (
            ("all_reduce", lambda total=total, source=source: kernels.all_reduce(source, out=total)),
            ("all_gather", lambda gathered=gathered, source=source: kernels.all_gather(gathered, source)),
        ):
            call()
            torch.cuda.synchronize()
            triton_dist.barrier_all()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(CALLS):
                    call()
            for _ in range(20):
                graph.replay()
            measure(f"{name} {nbytes >> 10} KB", graph.replay, CALLS)
    if world.pe == 0:
        for name, time in times.items():
            print(f"{name:24} {time:8.3f} µs", flush=True)
    triton_dist.finalize()


if __name__ == "__main__":
    main()
