"""Random calls of all operations. All PEs draw the same sequence and compare each result bitwise with PyTorch's.

    torchrun --nproc-per-node 2 tests/gpu/stress.py --seconds 570 --seed 1
    TRITON_DIST_WORLD=cpu torchrun --nproc-per-node 3 tests/gpu/stress.py --seconds 20

Collectives, fused GEMMs with and without epilogues and scales, and fused norms of ``triton_dist.kernels`` with every
algorithm, also with shards that differ between PEs, flash decode with and without its projection, dispatch and combine
by choices and by tokens, layers of experts in steps and in two kernels, the ops of the language in small kernels, and
host operations. On GPUs, calls move between more streams than torch's pool has and are captured in CUDA graphs, which
are replayed in random order between direct calls. PEs are delayed at random. Buffers are reused at once. Worlds end and
begin anew.

The calls keep to the contract of docs/kernels.md: every PE makes the same calls in the same order, and a PE runs one
operation at a time, so the stream of each call waits for that of the previous call. Every 16 steps the hosts agree
whether time is left, which is a barrier; only the operations order PEs between these barriers.

A failure prints the seed, the step and the call. The same seed, kind of world and number of PEs repeat it; ``--sync``
checks each result before the next step. A step that hangs ends the run, with the stack of every thread.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field

import stress_cases
import stress_experts
import stress_large
import stress_library
import stress_shards
import torch
from stress_cases import GPU, VARIANTS, Case, Cases, Recipe

import triton_dist
from triton_dist import World

WINDOW = 16
"""Steps between two looks at results."""

GRAPHS = 6
"""Cached at a time."""

SAID_SECONDS = 15

LATE_CYCLES = 1_000_000
LATE_SECONDS = 0.003


class WrongBitsError(AssertionError):
    """A result differs from PyTorch's."""


class Watchdog:
    """Ends the process when a step takes too long, and says which one it was."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.doing, self._deadline = "starting", time.monotonic() + 180
        threading.Thread(target=self._look, daemon=True).start()

    def expect(self, doing: str, seconds: float) -> None:
        """From now on the process does this, for so long at most."""
        self.doing, self._deadline = doing, time.monotonic() + seconds

    def _look(self) -> None:
        while time.monotonic() < self._deadline:
            time.sleep(0.2)
        print(f"HANG seed {self._seed}, {self.doing}", flush=True)
        faulthandler.dump_traceback()
        os._exit(3)


@dataclass
class Graph:
    """Calls that were captured, and how many elements were wrong in all replays."""

    graph: torch.cuda.CUDAGraph
    calls: list[str]
    wrong: torch.Tensor


@dataclass
class Session:
    """State of one world."""

    world: World
    cases: Cases
    warm: dict[str, Case] = field(default_factory=dict)
    """Cases that have run in this world, and so may be captured."""
    graphs: list[Graph] = field(default_factory=list)
    pending: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    """What was called, and how many elements are wrong, which the device will know."""


def catalogue(rng: random.Random, variety: int, large: bool) -> list[Recipe]:
    """Of every function with every algorithm, ``variety`` calls; few, since each has kernels to compile."""
    modules = (stress_large,) if large else (stress_cases, stress_library, stress_shards, stress_experts)
    groups = [group for module in modules for group in module.groups()]
    return [recipe for group in groups for recipe in rng.sample(group, min(variety, len(group)))]


class Stress:
    """The sequence of a seed, as one PE goes through it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rng = random.Random(options.seed)  # every PE draws the same from it
        self.recipes = catalogue(self.rng, options.variety, options.large)
        self.refused: set[str] = set()
        self.watchdog = Watchdog(options.seed)
        self.step = 0
        self.began = self.said = time.monotonic()
        self.streams = [torch.cuda.Stream() for _ in range(options.streams)] if GPU else []
        self.last: torch.cuda.Stream | None = None
        self.known: set[str] = set()  # cases that this process has run, so that their kernels are compiled

    def run(self) -> None:
        going, worlds = True, 0
        while going:
            self.watchdog.expect("a world begins", 180)
            with triton_dist.init() as world:
                worlds += 1
                self.late = random.Random(f"{self.options.seed} {world.pe} {worlds}")  # different on each PE
                going = self._in_world(world)
                self.watchdog.expect(f"step {self.step}: world {worlds} ends", 120)
            gc.collect()  # cases and their calls refer to each other
            self._say(world, f"world {worlds} has ended")
        if world.pe == 0:
            ran = len(self.known)
            print(
                f"PASS seed {self.options.seed}: {self.step} steps of {ran} calls in {worlds} worlds,"
                f" {len(self.refused)} are not for this world",
                flush=True,
            )

    def _in_world(self, world: World) -> bool:
        """Steps until the world shall end; whether there shall be another."""
        session = Session(world, Cases(world, self.options.seed))
        steps = self.rng.randint(self.options.world_steps // 2, self.options.world_steps)
        going = True
        for i in range(steps):
            self.step += 1
            self._one(session)
            if self.options.sync or not GPU or len(session.pending) >= WINDOW or i == steps - 1:
                self._look(session)
            if self.step % WINDOW == 0 or i == steps - 1:
                going = self._goes_on(world)
                self._say(world, f"{len(self.known)} calls are compiled, {len(session.graphs)} graphs")
                if not going:
                    break
        self._look(session)
        session.graphs.clear()
        return going

    def _say(self, world: World, what: str) -> None:
        """A line of progress, now and then."""
        now = time.monotonic()
        if world.pe == 0 and now - self.said > SAID_SECONDS:
            self.said = now
            print(f"step {self.step}, {now - self.began:.0f} s: {what}", flush=True)

    def _goes_on(self, world: World) -> bool:
        """Whether time, or steps, are left. PE 0 decides."""
        enough = self.options.steps and self.step >= self.options.steps
        late = self.options.seconds and time.monotonic() - self.began > self.options.seconds
        said = world.together(world.team_world, "stress goes on", str(int(bool(enough or late))))
        return said[0] == "0"

    def _one(self, session: Session) -> None:
        draw = self.rng.random()
        if GPU and draw < 0.03 and len(session.warm) > 3:
            self._capture(session)
        elif GPU and draw < 0.3 and session.graphs:
            self._replay(session)
        else:
            self._direct(session, self.rng.choice(self.recipes), self.rng.randrange(VARIANTS))

    def _direct(self, session: Session, recipe: Recipe, variant: int) -> None:
        if recipe.name in self.refused:
            return
        what = f"step {self.step}: {recipe.name}, variant {variant}"
        self.watchdog.expect(what, self.options.hang if recipe.name in self.known else self.options.cold)
        wrong = torch.zeros((), dtype=torch.int64, device=session.world.device)
        try:
            case = session.cases(recipe)
            with self._stream():
                case.run(variant, wrong)
        except ValueError:  # not for this world, or these sizes, on any PE
            if recipe.name in self.known:
                raise
            self.refused.add(recipe.name)
            return
        self.known.add(recipe.name)
        session.warm[recipe.name] = case
        session.pending.append((what, wrong))

    def _capture(self, session: Session) -> None:
        names = self.rng.choices(sorted(session.warm), k=self.rng.randint(1, 4))
        variants = [self.rng.randrange(VARIANTS) for _ in names]
        calls = [f"{name}, variant {variant}" for name, variant in zip(names, variants, strict=True)]
        self.watchdog.expect(f"step {self.step}: capture of {calls}", max(60, self.options.hang))
        wrong = torch.zeros((), dtype=torch.int64, device=session.world.device)
        graph = torch.cuda.CUDAGraph()
        stream = self.rng.choice([None, *self.streams])
        with torch.cuda.graph(graph, stream=stream):
            for name, variant in zip(names, variants, strict=True):
                session.warm[name].run(variant, wrong)
        if len(session.graphs) == GRAPHS:
            torch.cuda.synchronize()
            session.graphs.pop(self.rng.randrange(GRAPHS))
        session.graphs.append(Graph(graph, calls, wrong))

    def _replay(self, session: Session) -> None:
        chosen = self.rng.choice(session.graphs)
        what = f"step {self.step}: replay of {chosen.calls}"
        self.watchdog.expect(what, self.options.hang)
        with self._stream():
            chosen.graph.replay()
            session.pending.append((what, chosen.wrong.clone()))

    def _stream(self) -> torch.cuda.StreamContext | nullcontext[None]:
        """Another stream, which comes after the last one; and this PE is late, perhaps."""
        late = self.late.random() < 0.2
        if not GPU:
            if late:
                time.sleep(self.late.random() * LATE_SECONDS)
            return nullcontext()
        stream = self.rng.choice([torch.cuda.default_stream(), *self.streams])
        stream.wait_stream(self.last or torch.cuda.default_stream())
        stream.wait_stream(torch.cuda.default_stream())  # where tensors are made
        self.last = stream
        if late:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(self.late.randrange(LATE_CYCLES))
        return torch.cuda.stream(stream)

    def _look(self, session: Session) -> None:
        """Wait for the device, and for what it has found."""
        if GPU:
            torch.cuda.synchronize()
        found = [int(wrong) for _, wrong in session.pending]
        for (what, _), wrong in zip(session.pending, found, strict=True):
            if wrong:
                raise WrongBitsError(f"{what}: {wrong} elements are wrong on PE {session.world.pe}")
        session.pending.clear()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same calls")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    parser.add_argument("--steps", type=int, default=0, help="stop after so many calls")
    parser.add_argument("--variety", type=int, default=2, help="calls of each function with each algorithm")
    parser.add_argument("--large", action="store_true", help="GEMMs and experts of the sizes of models, on GPUs")
    parser.add_argument("--world-steps", type=int, default=2000 if GPU else 60, help="at most, before a world ends")
    parser.add_argument("--streams", type=int, default=44)
    parser.add_argument("--hang", type=float, default=60, help="seconds that a step may take, once it is compiled")
    parser.add_argument("--cold", type=float, default=180, help="seconds that a call may take, the first time")
    parser.add_argument("--sync", action="store_true", help="look at the result of every step before the next")
    options = parser.parse_args()
    if not options.seconds and not options.steps:
        parser.error("--seconds or --steps: when shall it stop?")
    faulthandler.enable()
    if GPU:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())  # PEs may share GPUs
    stress = Stress(options)
    try:
        stress.run()
    except BaseException as error:
        print(f"FAIL seed {options.seed}, in {stress.watchdog.doing}: {type(error).__name__}: {error}", flush=True)
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
