"""Round trip of a signal between two GPUs, in microseconds: PE 0 signals PE 1, which signals back, inside one kernel.

    torchrun --nproc-per-node 2 benchmarks/signal_latency.py

dl.signal_op and dl.signal_wait_until by each transport, against the same written with Triton's own atomics on a
pointer of dl.symm_at. Other PEs, if there are any, look on.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from measure import ROUNDS, WARM_UP_SECONDS, gpus_or_exit

import triton_dist
import triton_dist.language as dl
from triton_dist.compiler import transport


@triton.jit(do_not_specialize=["before"])
def signals(flag, before, n):
    me = dl.my_pe()
    for i in range(n):
        value = before + i + 1
        if me == 0:
            dl.signal_op(flag, value, dl.SIGNAL_SET, 1)
            dl.signal_wait_until(flag, dl.CMP_GE, value)
        else:
            dl.signal_wait_until(flag, dl.CMP_GE, value)
            dl.signal_op(flag, value, dl.SIGNAL_SET, 0)


@triton.jit(do_not_specialize=["before"])
def atomics(flag, before, n):
    me = dl.my_pe()
    there = dl.symm_at(flag, 1 - me)
    for i in range(n):
        value = (before + i + 1).to(tl.int64)
        if me == 0:
            tl.atomic_xchg(there, value, sem="release", scope="sys")
        while tl.atomic_add(flag, 0, sem="acquire", scope="sys") < value:
            pass
        if me != 0:
            tl.atomic_xchg(there, value, sem="release", scope="sys")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=5000, help="round trips inside one kernel")
    iterations = parser.parse_args().iterations
    gpus_or_exit(2, "signal latency")
    with triton_dist.init() as world:
        if world.n_pes == 1:
            print("signal latency: not measured. Start it with torchrun on two GPUs or more.")
            return 0
        steps: dict[str, Callable[[torch.Tensor, int], object]] = {}
        for warps in (1, 4):
            variants = {f"signals, {name}": (signals, name) for name in world.transports}
            variants["atomics"] = (atomics, world.transport)
            for title, (kernel, name) in variants.items():
                steps[f"{title}, {warps} warp{'s' * (warps > 1)}"] = _launcher(kernel, name, warps, iterations)
        flags = {name: triton_dist.zeros(1, dtype=torch.int64) for name in steps}
        done = dict.fromkeys(steps, 0)

        def round_trips(name: str) -> float:
            """Microseconds of one round trip, of the PE that starts them."""
            triton_dist.barrier_all()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            if world.pe < 2:
                steps[name](flags[name], done[name])
            end.record()
            end.synchronize()
            done[name] += iterations
            if world.pe < 2:
                assert flags[name].item() == done[name], f"{name}: the flag is {flags[name].item()}, not {done[name]}"
            return begin.elapsed_time(end) * 1e3 / iterations

        _warm_up(round_trips, list(steps))
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(ROUNDS):
            for name in steps:
                times[name].append(round_trips(name))
        if world.pe == 0:
            print(f"{torch.cuda.get_device_name()}: µs for a signal there and back, {iterations} in one kernel")
            for name, found in times.items():
                print(f"{name:>26} {statistics.median(found):7.2f}  ({min(found):.2f} to {max(found):.2f})", flush=True)
    return 0


def _launcher(kernel: object, name: str, warps: int, n: int) -> Callable[[torch.Tensor, int], object]:
    def launch(flag: torch.Tensor, before: int) -> None:
        with transport.using(name):
            kernel[(1,)](flag, before, n, num_warps=warps)  # type: ignore[index]

    return launch


def _warm_up(round_trips: Callable[[str], float], names: list[str]) -> None:
    """The same launches on every PE, which must meet in each, for as long as clocks need."""
    for name in names:
        round_trips(name)
    begin = time.perf_counter()
    for _ in range(10):
        for name in names:
            round_trips(name)
    triton_dist.barrier_all()
    if time.perf_counter() - begin < WARM_UP_SECONDS:
        raise SystemExit("too few iterations for a warm-up: raise --iterations")


if __name__ == "__main__":
    sys.exit(main())
