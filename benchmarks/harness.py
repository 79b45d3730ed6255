"""Ours beside every peer, by rules that favour none.

- What is compared runs in one process and one run, in turns whose order rotates, so that what disturbs the machine
  disturbs all. Before that all of it runs together for a while: clocks start low.
- Every contender is launched as a CUDA graph of several calls, so that no host's time counts.
- Data is random. Each call of a graph has buffers of its own, and before a graph is timed the L2 cache is overwritten.
- PEs begin together: they meet on the device right before. The time of the slowest PE counts; of the rounds the median,
  with the fastest and the slowest round beside it.
- A result is checked before it is timed, called directly and from the graph. What computes a wrong one is not timed,
  and the benchmark fails in the end. A peer that cannot run here is listed with its reason.

    with session("collectives") as bench:
        bench.compare("all_gather 8 KB", {"ours": step, "NCCL": other}, check=check, sets=8, bound=seconds)
        bench.save("benchmarks/results/collectives.json")

A contender is a function of the number of a set of buffers, which returns its result there. A name that begins with
"ours" is ours; all others are peers.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from memory import programs, read_all
from texts import all_gather_texts

import triton_dist
from triton_dist import World

__all__ = ["Bench", "Entry", "Timing", "capture", "compiled", "machine", "session"]

WARM_UP_SECONDS = 0.15
ROUNDS = 9
CACHE_BYTES = 128 << 20  # more than any GPU's L2

Contender = Callable[[int], torch.Tensor]
Check = Callable[[torch.Tensor, int], "str | None"]


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call, of the slowest PE: the median of the rounds, the fastest and the slowest."""

    median: float
    fastest: float
    slowest: float


@dataclass
class Entry:
    """What was compared, and how long each contender took."""

    title: str
    bound: float | None
    """Microseconds that no one can be faster than, if known."""
    timings: dict[str, Timing] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    """Why a contender was not timed."""
    alone: dict[str, float] = field(default_factory=dict)
    """Microseconds of what computes something else and was timed apart, to compare with."""

    def best(self, *, ours: bool) -> str | None:
        """The fastest contender that is ours, or that is not."""
        names = [name for name in self.timings if name.startswith("ours") == ours]
        return min(names, key=lambda name: self.timings[name].median, default=None)

    @property
    def ratio(self) -> float | None:
        """Our time by the best peer's; below one we are faster. "ours" counts if a contender has just that name."""
        ours, peer = "ours" if "ours" in self.timings else self.best(ours=True), self.best(ours=False)
        return self.timings[ours].median / self.timings[peer].median if ours and peer else None

    def efficiency(self, name: str) -> float | None:
        return None if self.bound is None else self.bound / self.timings[name].median

    def __str__(self) -> str:
        bound = "" if self.bound is None else f" bound {self.bound:.1f} µs"
        ratio = "" if self.ratio is None else f" ours/best peer {self.ratio:.2f}"
        lines = [f"{self.title}:{bound}{ratio}"]
        for name, time_ in self.timings.items():
            efficiency = "" if self.bound is None else f"  efficiency {self.efficiency(name):.2f}"
            spread = f"({time_.fastest:.1f} to {time_.slowest:.1f})"
            lines.append(f"    {name:<36} {time_.median:9.1f} µs {spread:>22}{efficiency}")
        lines += [f"    {name:<36} {reason}" for name, reason in self.absent.items()]
        return "\n".join(lines)


@contextmanager
def session(
    name: str,
    *,
    total: int | None = None,
    save: str | Path | None = None,
    least: int = 2,
    shared: bool = False,
) -> Iterator[Bench]:
    """A world on all GPUs of the launch, with NCCL beside it. Ends the program, with status 0, where there is none.

    Args:
        name: what the benchmark is called.
        total: how many comparisons there will be, for the progress bar.
        save: a file that is written after each comparison, so that a run that is cut off keeps those that it made.
        least: how many PEs it takes. With 1 it is started with torchrun, too.
        shared: whether PEs may share a GPU: for figures of the host. NCCL refuses that, so Gloo stands in for what
            PEs tell each other, and :attr:`Bench.shared` is true.
    """
    if triton_dist.kind() == "cpu":
        print(f"{name}: not measured. The CPU world interprets kernels; its times say nothing about GPUs.")
        sys.exit(0)
    if int(os.environ.get("WORLD_SIZE", "0")) < least:
        several = "two GPUs or more" if least > 1 else "a GPU"
        print(f"{name}: not measured. Start it with torchrun on {several}.")
        sys.exit(0)
    warnings.filterwarnings("ignore")
    pe, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    is_shared = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > gpus
    if is_shared and not shared:
        print(f"{name}: not measured. PEs would share a GPU, whose times mean nothing.")
        sys.exit(0)
    device = torch.device("cuda", pe % gpus)
    torch.cuda.set_device(device)
    dist.init_process_group("gloo") if is_shared else dist.init_process_group("nccl", device_id=device)
    with triton_dist.init() as world:
        bench = Bench(world, name, total, save, shared=is_shared)
        yield bench
        bench.close()
    dist.destroy_process_group()
    if bench.wrong:
        sys.exit(f"wrong results: {'; '.join(bench.wrong)}")


class Bench:
    """One run of a benchmark. Every PE calls its methods, in the same order."""

    def __init__(
        self, world: World, name: str, total: int | None, save: str | Path | None = None, *, shared: bool = False
    ) -> None:
        self.world = world
        self.shared = shared
        self.name = name
        self.entries: list[Entry] = []
        self.wrong: list[str] = []
        self._save = save
        self._cache = torch.zeros(CACHE_BYTES // 4, dtype=torch.int32, device=world.device)
        self._progress = _progress(name, total) if world.pe == 0 else None

    def compare(
        self,
        title: str,
        contenders: dict[str, Contender],
        *,
        check: Check,
        sets: int = 1,
        calls: int | None = None,
        bound: float | None = None,
        fresh: Callable[[], None] | None = None,
        rounds: int = ROUNDS,
    ) -> Entry:
        """Check and time the contenders against each other. *Collective.*

        Args:
            title: what is computed, and of what size.
            contenders: ``step(i)`` works on set ``i`` of the buffers and returns its result; a CUDA graph can capture
                it once it has run. One that raises is listed as absent.
            check: what is wrong with a result of set ``i``, or None.
            sets: how many sets of buffers there are; the more, the less the L2 cache helps.
            calls: how many calls a graph has, by default one for each set.
            bound: seconds of one call that no one can be faster than.
            fresh: restores inputs that a contender works on in place; called before every replay. ``calls`` must be
                ``sets`` then.
        """
        assert fresh is None or calls in (None, sets), "a call in place would find what an earlier one left"
        entry = Entry(title, None if bound is None else bound * 1e6)
        graphs: dict[str, torch.cuda.CUDAGraph] = {}
        for name, step in contenders.items():
            graph, reason = self._prepare(step, check, sets, calls or sets, fresh)
            if graph is None:
                entry.absent[name] = reason
                if reason.startswith("WRONG"):
                    self.wrong.append(f"{title}, {name}: {reason}")
            else:
                graphs[name] = graph
        self._warm_up(graphs)
        times: dict[str, list[float]] = {name: [] for name in graphs}
        names = list(graphs)
        for round_ in range(rounds):
            turn = round_ % max(1, len(names))
            for name in names[turn:] + names[:turn]:
                times[name].append(self._time(graphs[name], fresh) / (calls or sets))
        if names:
            slowest = torch.tensor([times[name] for name in names], device=self.world.device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            for name, row in zip(names, slowest.cpu(), strict=True):
                entry.timings[name] = Timing(row.median().item(), row.min().item(), row.max().item())
        self.entries.append(entry)
        if self._save:
            self.save(self._save)
        self.say(str(entry))
        if self._progress is not None:
            self._progress.update()
        return entry

    def time_alone(self, step: Callable[[], Any], *, calls: int = 4, rounds: int = ROUNDS) -> float:
        """Median seconds of one call, of the slowest PE: what a bound is made of. *Collective.*"""
        graph = capture(lambda i: step(), 1, calls)[0]
        self._warm_up({"": graph})
        times = torch.tensor([self._time(graph, None) / calls for _ in range(rounds)], device=self.world.device)
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        return times.median().item() * 1e-6

    def copy_engine_rate(self, nbytes: int = 256 << 20) -> float:
        """Bytes per second that every PE's copy engine sends to the next PE, all at once. *Collective.*"""
        target = triton_dist.empty(nbytes, dtype=torch.uint8)
        there = triton_dist.peer(target, (self.world.pe + 1) % self.world.n_pes)
        source = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=self.world.device)
        rate = nbytes / self.time_alone(lambda: there.copy_(source))
        triton_dist.barrier_all()
        triton_dist.free(target)
        self.say(f"copy engine: {rate / 1e9:.1f} GB/s")
        return rate

    def memory_rate(self, nbytes: int = 1 << 30) -> float:
        """Bytes per second that a kernel moves from and to this GPU's memory, on the slowest PE. *Collective.*

        A copy of n bytes moves 2n. A kernel that only reads moves more a second, as memory does not turn from reading
        to writing; the faster of the two counts.
        """
        source = torch.zeros(nbytes // 4, dtype=torch.int32, device=self.world.device)
        largest = torch.empty(programs(), dtype=torch.int32, device=self.world.device)
        target = torch.empty_like(source[: nbytes // 8])
        copied = self.time_alone(lambda: target.copy_(source[: target.numel()]))
        read = self.time_alone(lambda: read_all(source, largest))
        self.say(f"memory: {nbytes / copied / 1e9:.0f} GB/s copied, both ways; {nbytes / read / 1e9:.0f} GB/s read")
        return nbytes / min(copied, read)

    def agree(self, problem: str) -> str:
        """The first PE's problem, if any PE has one. *Collective.*"""
        problems = all_gather_texts(problem, torch.device("cpu") if self.shared else self.world.device)
        return next((f"{text} (PE {pe})" for pe, text in enumerate(problems) if text), "")

    def say(self, text: str) -> None:
        """Print on PE 0, above the progress bar if there is one."""
        if self._progress is not None:
            self._progress.write(text)

    def save(self, path: str | Path) -> None:
        """Write all entries, and what they were measured with, as JSON, on PE 0."""
        if self.world.pe == 0:
            data = {
                "benchmark": self.name,
                "machine": machine(self.world),
                "entries": [asdict(e) for e in self.entries],
            }
            path = Path(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.partial")
            partial.write_text(json.dumps(data, indent=1))
            partial.replace(path)  # a reader finds all of it

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def _prepare(
        self, step: Contender, check: Check, sets: int, calls: int, fresh: Callable[[], None] | None
    ) -> tuple[torch.cuda.CUDAGraph | None, str]:
        """The captured contender, once it has computed the right thing; or why there is none, the same on every PE."""

        def attempt(action: Callable[[], str | None]) -> str:
            self.settle()
            try:
                problem = action() or ""
                torch.cuda.synchronize()
            except Exception as error:
                problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
            return self.agree(problem)

        looked_at = sorted({0, sets - 1})
        captured: tuple[torch.cuda.CUDAGraph, list[torch.Tensor]] | None = None

        def direct() -> str | None:
            if fresh:
                fresh()
            results = {i: step(i) for i in looked_at}
            torch.cuda.synchronize()
            if len({result.data_ptr() for result in results.values()}) < len(results):
                return "WRONG: sets of buffers share the memory of their results, so that one cannot be checked"
            return next((f"WRONG: {text}" for i in looked_at if (text := check(results[i], i))), None)

        def in_a_graph() -> None:
            nonlocal captured
            captured = capture(step, sets, calls)

        def replayed() -> str | None:
            assert captured is not None
            graph, results = captured
            for result in results:
                result.zero_()
            if fresh:
                fresh()
            self.settle()
            graph.replay()
            torch.cuda.synchronize()
            return next((f"WRONG in a graph: {text}" for i in looked_at if (text := check(results[i], i))), None)

        for action in (direct, in_a_graph, replayed):
            if reason := attempt(action):
                return None, reason
        assert captured is not None
        return captured[0], ""

    def _time(self, graph: torch.cuda.CUDAGraph, fresh: Callable[[], None] | None) -> float:
        """Microseconds of one replay on this PE."""
        from triton_dist.kernels.communicator import communicator_of
        from triton_dist.kernels.protocols.stream_barrier import stream_barrier

        self.settle()
        if fresh:
            fresh()
        self._cache.add_(1)
        torch.cuda._sleep(200_000)  # about 0.1 ms, in which the host gets everything below into the stream
        stream_barrier(communicator_of())
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def _warm_up(self, graphs: dict[str, torch.cuda.CUDAGraph]) -> None:
        begin = time.perf_counter()
        enough = not graphs
        while not enough:
            for graph in graphs.values():
                graph.replay()
            torch.cuda.synchronize()
            shortest = torch.tensor([time.perf_counter() - begin], device=self.world.device)
            dist.all_reduce(shortest, op=dist.ReduceOp.MIN)  # all PEs stop after the same replay
            enough = shortest.item() > WARM_UP_SECONDS

    def settle(self) -> None:
        """All PEs are here, and their GPUs idle. *Collective.*"""
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()


def capture(step: Contender, sets: int, calls: int) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor]]:
    """A graph of calls that go round the sets, and the results of the first round."""
    for i in range(min(sets, 2)):
        step(i)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog calls CUDA, too
        results = [step(call % sets) for call in range(calls)]
    return graph, results[:sets]


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """``function``, to be compiled by torch for the shapes of one comparison.

    What torch has compiled before is forgotten. Else torch runs a function that has been compiled for eight shapes
    eagerly for all others, also through a new ``torch.compile``; a peer would then be timed that no user has.
    """
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False, fullgraph=True, **options)


def machine(world: World) -> dict[str, Any]:
    """What figures depend on."""
    import triton

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
    driver = subprocess.run(query, capture_output=True, text=True).stdout.strip() if shutil.which(query[0]) else None
    shared = world.n_pes > torch.cuda.device_count()  # benchmarks run on one host
    name = torch.cuda.get_device_name(world.device)
    return {
        "gpus": f"{world.n_pes} PEs on 1 × {name}" if shared else f"{world.n_pes} × {name}",
        "driver": driver,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "transport": getattr(world, "transport", None),
        "date": datetime.date.today().isoformat(),
    }


def _progress(name: str, total: int | None) -> Any:
    if not sys.stderr.isatty():  # a bar would fill a log with its states
        return _Plain()
    try:
        from tqdm import tqdm
    except ImportError:
        return _Plain()
    return tqdm(total=total, desc=name, unit="comparison", dynamic_ncols=True)


class _Plain:
    """A progress bar's place where tqdm is not installed or no terminal shows it: plain lines."""

    def update(self) -> None: ...

    def close(self) -> None: ...

    def write(self, text: str) -> None:
        print(text, flush=True)
