"""One process group's part of transports.py: everything that runs in a world of ours. Started by torchrun.

Each PE puts to the next one, or gets from it, all at once; of fewer PEs than there are, the others look on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from harness import machine
from measure import SIZES, WARPS, Report, compare, meet, random_bytes, split
from texts import all_gather_texts

import triton_dist
import triton_dist.language as dl
from triton_dist.compiler import transport

BLOCK = 8192  # bytes of one store
ROUND_TRIPS = 3000


@triton.jit(do_not_specialize=["nbytes", "piece", "repeats", "pe"])
def put(dst, src, nbytes, piece, repeats, pe):
    for _ in range(repeats):
        for start in range(tl.program_id(0) * piece, nbytes, tl.num_programs(0) * piece):
            dl.putmem(dst + start, src + start, tl.minimum(piece, nbytes - start), pe)
    dl.quiet()


@triton.jit(do_not_specialize=["nbytes", "piece", "repeats", "pe"])
def get(dst, src, nbytes, piece, repeats, pe):
    for _ in range(repeats):
        for start in range(tl.program_id(0) * piece, nbytes, tl.num_programs(0) * piece):
            dl.getmem(dst + start, src + start, tl.minimum(piece, nbytes - start), pe)


@triton.jit(do_not_specialize=["n", "piece", "repeats", "pe"])
def copy(dst, src, n, piece, repeats, pe, PUSH: tl.constexpr, BLOCK: tl.constexpr):
    """The same in Triton's own loads and stores, of int32."""
    to = dl.symm_at(dst, pe) if PUSH else dst
    of = src if PUSH else dl.symm_at(src, pe)
    for _ in range(repeats):
        for start in range(tl.program_id(0) * piece, n, tl.num_programs(0) * piece):
            end = tl.minimum(start + piece, n)
            for at in range(start, end, BLOCK):
                offsets = at + tl.arange(0, BLOCK)
                tl.store(to + offsets, tl.load(of + offsets, mask=offsets < end), mask=offsets < end)


@triton.jit(do_not_specialize=["before", "n"])
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


@triton.jit(do_not_specialize=["before", "n"])
def atomics(flag, before, n):
    """The same in Triton's own atomics."""
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


class Copies:
    """Buffers of one size, and every way to copy between them, each with how many copies one launch makes."""

    def __init__(
        self, world: triton_dist.World, n_pes: int, source: torch.Tensor, target: torch.Tensor, programs: list[int]
    ) -> None:
        self.world, self.n_pes, self.source, self.target, self.programs = world, n_pes, source, target, programs
        self.nbytes = source.numel()
        self.next = (world.pe + 1) % n_pes

    def sides(self, push: bool) -> dict[str, tuple[Callable[[], None], int]]:
        sides: dict[str, tuple[Callable[[], None], int]] = {}
        for name in self.world.transports:
            for count in self.programs:
                sides[f"{name} ×{count}"] = self._by_transport(name, push, count)
        for count in self.programs:
            sides[f"{'stores' if push else 'loads'} ×{count}"] = self._by_triton(push, count)
        sides["copy engine"] = self._by_copy_engine(push)
        if self.world.pe >= self.n_pes:
            return {name: (lambda: None, times) for name, (_, times) in sides.items()}
        return sides

    def check(self, push: bool) -> str:
        """What is wrong with the target, or nothing."""
        if self.world.pe >= self.n_pes:
            return ""
        pe = (self.world.pe - 1) % self.n_pes if push else self.next
        return (
            "" if torch.equal(self.target, random_bytes(self.nbytes, pe, self.world.device)) else f"not PE {pe}'s data"
        )

    def _by_transport(self, name: str, push: bool, count: int) -> tuple[Callable[[], None], int]:
        how = split(self.nbytes, count)

        def launch() -> None:
            with transport.using(name):
                kernel = put if push else get
                arguments = (self.target, self.source, self.nbytes, how.piece, how.repeats, self.next)
                kernel[(how.programs,)](*arguments, num_warps=WARPS)

        return launch, how.repeats

    def _by_triton(self, push: bool, count: int) -> tuple[Callable[[], None], int]:
        how = split(self.nbytes, count)
        target, source = self.target.view(torch.int32), self.source.view(torch.int32)

        def launch() -> None:
            arguments = (target, source, self.nbytes // 4, how.piece // 4, how.repeats, self.next, push, BLOCK // 4)
            copy[(how.programs,)](*arguments, num_warps=WARPS)

        return launch, how.repeats

    def _by_copy_engine(self, push: bool) -> tuple[Callable[[], None], int]:
        times = min(100, split(self.nbytes, 1).repeats)
        to = triton_dist.peer(self.target, self.next) if push else self.target
        of = self.source if push else triton_dist.peer(self.source, self.next)

        def launch() -> None:
            for _ in range(times):
                to.copy_(of)

        return launch, times


def bandwidths(
    world: triton_dist.World,
    n_pes: int,
    source: torch.Tensor,
    target: torch.Tensor,
    programs: list[int],
    report: Report,
) -> None:
    """Report bytes per second, by "put" or "get", side and size."""
    found: dict[str, dict[str, dict[int, float]]] = {"put": {}, "get": {}}
    report.found[str(n_pes)] = found
    for nbytes in SIZES:
        copies = Copies(world, n_pes, source[:nbytes], target[:nbytes], programs)
        copies.source.copy_(random_bytes(nbytes, world.pe, world.device))
        for what, push in (("put", True), ("get", False)):
            sides = copies.sides(push)
            problems = []
            for name, (step, _) in sides.items():
                copies.target.zero_()
                meet()
                step()
                meet()
                if problem := copies.check(push):
                    problems.append(f"{name} of {nbytes} bytes: {problem}")
            agree(what, "; ".join(problems))
            for name, seconds in compare({name: step for name, (step, _) in sides.items()}).items():
                found[what].setdefault(name, {})[nbytes] = nbytes * sides[name][1] / seconds
            report.add(
                f"{n_pes} PEs, {what} {nbytes:>10} bytes: {line({n: r[nbytes] for n, r in found[what].items()})}"
            )


def round_trips(world: triton_dist.World, report: Report) -> None:
    """Report seconds of a signal from PE 0 to PE 1 and back."""
    names = {f"{name} signals": (signals, name) for name in world.transports}
    names["Triton's atomics"] = (atomics, world.transport)
    flags = {name: triton_dist.zeros(1, dtype=torch.int64) for name in names}
    done = dict.fromkeys(names, 0)

    def launch(name: str) -> None:
        if world.pe < 2:
            kernel, library = names[name]
            with transport.using(library):
                kernel[(1,)](flags[name], done[name], ROUND_TRIPS)
        done[name] += ROUND_TRIPS

    steps = {name: (lambda name=name: launch(name)) for name in names}
    for name, step in steps.items():
        meet()
        step()
        meet()
        seen = flags[name].item() if world.pe < 2 else done[name]
        agree(name, "" if seen == done[name] else f"the flag is {seen}, not {done[name]}")
    # Not as graphs: each launch signals other values.
    found = {name: seconds / ROUND_TRIPS for name, seconds in compare(steps, as_graphs=False).items()}
    report.found["signal"] = found
    report.add("signal round trip: " + ", ".join(f"{name} {1e6 * seconds:.2f} µs" for name, seconds in found.items()))


def agree(what: str, problem: str) -> None:
    """End the program on every PE when one of them has a problem: no wrong result is timed. *Collective.*"""
    problems = all_gather_texts(problem, "cpu")  # over Gloo
    if found := [f"PE {pe}: {text}" for pe, text in enumerate(problems) if text]:
        raise SystemExit(f"{what} is wrong: {'; '.join(found)}")


def line(rates: dict[str, float]) -> str:
    return ", ".join(f"{name} {rate / 1e9:.2f}" for name, rate in rates.items()) + " GB/s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", required=True)
    parser.add_argument("--programs", type=int, nargs="+", required=True)
    parser.add_argument("--save", type=Path, required=True)
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo")
    with triton_dist.init() as world:
        report = Report(args.save, world.pe)
        report.found["machine"] = machine(world)
        round_trips(world, report)
        source = triton_dist.empty(SIZES[-1], dtype=torch.uint8)
        target = triton_dist.empty(SIZES[-1], dtype=torch.uint8)
        for n_pes in args.gpus:
            bandwidths(world, n_pes, source, target, args.programs, report)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
