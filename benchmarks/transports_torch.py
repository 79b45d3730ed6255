"""One process group's part of transports.py: torch's own Triton helper for NVSHMEM. Started by torchrun.

It has NVSHMEM to itself, so it cannot run in a world of ours. The kernels are transports_ours.py's in its words.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from measure import SIZES, WARPS, Report, compare, meet, random_bytes, split
from torch.distributed._symmetric_memory import _nvshmem_triton as nvshmem

ROUND_TRIPS = 3000
SIGNAL_SET = tl.constexpr(9)
CMP_GE = tl.constexpr(5)  # as NVSHMEM's headers number it; by the helper's docstrings it is 3, which is "less or equal"


@nvshmem.requires_nvshmem
@triton.jit(do_not_specialize=["nbytes", "piece", "repeats", "pe"])
def put_of_torch(dst, src, nbytes, piece, repeats, pe):
    for _ in range(repeats):
        for start in range(tl.program_id(0) * piece, nbytes, tl.num_programs(0) * piece):
            nvshmem.put(dst + start, src + start, tl.minimum(piece, nbytes - start), pe)
    nvshmem.quiet()


@nvshmem.requires_nvshmem
@triton.jit(do_not_specialize=["nbytes", "piece", "repeats", "pe"])
def get_of_torch(dst, src, nbytes, piece, repeats, pe):
    for _ in range(repeats):
        for start in range(tl.program_id(0) * piece, nbytes, tl.num_programs(0) * piece):
            nvshmem.get(dst + start, src + start, tl.minimum(piece, nbytes - start), pe)


@nvshmem.requires_nvshmem
@triton.jit(do_not_specialize=["before", "n", "me", "other"])
def signals_of_torch(flag, before, n, me, other):
    for i in range(n):
        value = (before + i + 1).to(tl.int64)
        if me == 0:
            nvshmem.signal_op(flag.to(tl.int64), value, SIGNAL_SET, other)
            nvshmem.signal_wait_until(flag, CMP_GE, value)
        else:
            nvshmem.signal_wait_until(flag, CMP_GE, value)
            nvshmem.signal_op(flag.to(tl.int64), value, SIGNAL_SET, other)


def symmetric(nbytes: int, device: torch.device) -> torch.Tensor:
    tensor = symm_mem.empty(nbytes, dtype=torch.uint8, device=device)
    symm_mem.rendezvous(tensor, dist.group.WORLD.group_name)
    return tensor


def bandwidths(n_pes: int, source: torch.Tensor, target: torch.Tensor, programs: list[int], report: Report) -> None:
    """Report bytes per second, by "put" or "get", side and size."""
    pe, device = dist.get_rank(), source.device
    found: dict[str, dict[str, dict[int, float]]] = {"put": {}, "get": {}}
    report.found[str(n_pes)] = found
    for nbytes in SIZES:
        source[:nbytes].copy_(random_bytes(nbytes, pe, device))
        for what, kernel, sender in (("put", put_of_torch, pe - 1), ("get", get_of_torch, pe + 1)):
            steps, repeats = {}, {}
            for count in programs:
                how = split(nbytes, count)
                arguments = (target, source, nbytes, how.piece, how.repeats, (pe + 1) % n_pes)
                name = f"torch ×{count}"
                repeats[name] = how.repeats

                def launch(how=how, kernel=kernel, arguments=arguments) -> None:
                    if pe < n_pes:
                        kernel[(how.programs,)](*arguments, num_warps=WARPS)

                steps[name] = launch
                target[:nbytes].zero_()
                meet()
                launch()
                meet()
                right = pe >= n_pes or torch.equal(target[:nbytes], random_bytes(nbytes, sender % n_pes, device))
                wrong = torch.tensor(int(not right))
                dist.all_reduce(wrong, op=dist.ReduceOp.MAX)
                if wrong.item():
                    raise SystemExit(f"{what} of {nbytes} bytes by {name} is wrong")
            for name, seconds in compare(steps).items():
                found[what].setdefault(name, {})[nbytes] = nbytes * repeats[name] / seconds
            rates = ", ".join(f"{name} {rates[nbytes] / 1e9:.2f}" for name, rates in found[what].items())
            report.add(f"{n_pes} PEs, {what} {nbytes:>10} bytes: {rates} GB/s")


def compile_together(source: torch.Tensor, target: torch.Tensor) -> None:
    """Each PE compiles one kernel, which takes seconds, and finds the others' in the disk cache."""
    copies = (target, source, 8, 4096, 4, 1)
    flag = target.view(torch.int64)
    kernels = [(put_of_torch, copies, WARPS), (get_of_torch, copies, WARPS), (signals_of_torch, (flag, 0, 1, 0, 1), 4)]
    for index, (kernel, arguments, warps) in enumerate(kernels):
        if index % dist.get_world_size() == dist.get_rank():
            options = {"num_warps": warps, "extern_libs": kernel.extern_libs}
            kernel.jit_func.run(*arguments, grid=(1,), warmup=True, **options)
    meet()


def round_trip(device: torch.device, report: Report) -> None:
    """Report seconds of a signal from PE 0 to PE 1 and back."""
    pe, done = dist.get_rank(), 0
    flag = symmetric(8, device).view(torch.int64)
    flag.zero_()

    def launch() -> None:
        nonlocal done
        if pe < 2:
            signals_of_torch[(1,)](flag, done, ROUND_TRIPS, pe, 1 - pe)
        done += ROUND_TRIPS

    meet()
    launch()
    meet()
    if pe < 2 and flag.item() != done:
        raise SystemExit(f"torch's signals: the flag is {flag.item()}, not {done}")
    seconds = compare({"torch": launch}, as_graphs=False)["torch"] / ROUND_TRIPS
    report.found["signal"] = {"torch signals": seconds}
    report.add(f"signal round trip: torch signals {1e6 * seconds:.2f} µs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", required=True)
    parser.add_argument("--programs", type=int, nargs="+", required=True)
    parser.add_argument("--save", type=Path, required=True)
    args = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    # NCCL's is what torch's symmetric memory knows groups by; what is timed meets by way of the CPU.
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    symm_mem.set_backend("NVSHMEM")
    report = Report(args.save, dist.get_rank())
    source, target = symmetric(SIZES[-1], device), symmetric(SIZES[-1], device)
    compile_together(source, target)
    report.add("torch's symmetric memory is there, and its kernels are compiled")
    for n_pes in args.gpus:
        bandwidths(n_pes, source, target, args.programs, report)
    round_trip(device, report)
    meet()
    sys.stdout.flush()
    os._exit(0)  # torch's NVSHMEM objects are not always taken down cleanly at exit


if __name__ == "__main__":
    sys.exit(main())
