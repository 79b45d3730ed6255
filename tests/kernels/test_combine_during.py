"""Rounds of a combine beside kernels that fill the GPU, on a machine of streams and multiprocessors without a GPU."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stream_machine import Machine, Operation, Owner, Stream

from triton_dist.kernels.moe import combine_during as module
from triton_dist.kernels.protocols import side_stream

MULTIPROCESSORS = 4


class Pe(Owner):
    """The communicator of one PE, with its GPU's multiprocessors."""

    kind = "gpu"

    def __init__(self) -> None:
        super().__init__()
        self.free = MULTIPROCESSORS
        self.stream = torch.cuda.Stream()


class Group:
    """PEs that combine, each while a kernel of its own runs that fills the GPU."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch, n_pes: int, seed: int) -> None:
        self.machine, self.random = machine, random.Random(seed)
        self.pes = [Pe() for _ in range(n_pes)]
        self.calls, self.done, self.held = [0] * n_pes, [0] * n_pes, False
        self.arrived: Counter[int] = Counter()
        """How many PEs' combines have begun, by call."""
        monkeypatch.setattr(module, "calling", lambda function, comm, between_hosts: nullcontext(comm))
        monkeypatch.setattr(module, "combine", self.combine)
        monkeypatch.setattr(torch.cuda, "stream", machine.on)

    def put(self, what: str, operation: Operation) -> None:
        operation.__dict__["what"] = what
        self.machine.put(self.machine.current.cuda_stream, operation)

    def combine(self, y: Any, dispatched: Any, *, weighted: bool) -> None:
        """A kernel of few programs, which ends when those of all PEs have begun."""
        assert not weighted
        pe, began = dispatched.routing.comm, []
        number = self.calls[self.pes.index(pe)]

        def kernel() -> bool | None:
            if not began:
                if not pe.free:
                    return False
                pe.free -= 1
                began.append(True)
                self.arrived[number] += 1
                return None
            if self.arrived[number] < len(self.pes):
                return False
            pe.free += 1
            return True

        self.put("combine", kernel)

    def work(self, pe: Pe) -> None:
        """A kernel that takes all multiprocessors which are free, for a while."""
        taken, polls = [], self.random.randrange(1, 6)

        def kernel() -> bool | None:
            nonlocal polls
            if not taken:
                if not pe.free:
                    return False
                taken.append(pe.free)
                pe.free = 0
                return None
            if self.held:
                return False
            polls -= 1
            if polls >= 0:
                return None
            pe.free += taken[0]
            return True

        self.put("work", kernel)

    def backward(self, which: int) -> None:
        pe: Any = self.pes[which]
        dispatched: Any = SimpleNamespace(routing=SimpleNamespace(comm=pe, num_sms=1, hosts=1))
        with self.machine.on(pe.stream):
            module.combine_during(torch.empty(0), dispatched, lambda: self.work(pe))
            self.put("behind", lambda: self.done.__setitem__(which, self.done[which] + 1) or True)
        self.calls[which] += 1

    def run(self) -> None:
        """In any order of streams."""
        queues = [*self.machine.queues.items()]
        self.random.shuffle(queues)
        self.machine.queues = dict(queues)
        self.machine.run()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("shared", ["none", "first", "all"])
@pytest.mark.parametrize("n_pes", [2, 3, 8])
def test_it_ends(machine: Machine, monkeypatch: pytest.MonkeyPatch, n_pes: int, shared: str) -> None:
    """Whichever kernel is resident first, also where both streams of ``shared`` PEs are in one hardware queue."""
    for seed in range(20):
        group = Group(machine, monkeypatch, n_pes, seed)
        for pe in {"none": [], "first": group.pes[:1], "all": group.pes}[shared]:
            with machine.on(pe.stream), side_stream.side_stream(pe) as side:  # type: ignore[arg-type]
                machine.queue_of[side.cuda_stream] = pe.stream.cuda_stream
        steps = 3
        todo = [pe for pe in range(n_pes) for _ in range(steps)]
        group.random.shuffle(todo)
        for which in todo:
            group.backward(which)
        group.run()
        assert group.done == [steps] * n_pes
        assert all(pe.free == MULTIPROCESSORS for pe in group.pes)


def test_rounds_are_done_while_the_kernel_fills_the_gpu(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(machine, monkeypatch, 3, 0)
    group.held = True
    for which in range(3):
        group.backward(which)
    with pytest.raises(AssertionError, match="streams wait for ever"):
        machine.run()
    assert group.arrived[0] == 3 and group.done == [0] * 3
    assert all(pe.free == 1 for pe in group.pes), "the combines have ended, and the kernels have the rest"
    group.held = False
    machine.run()
    assert group.done == [1] * 3


def test_a_graph_holds_both_kernels(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(machine, monkeypatch, 3, 0)
    for which in range(3):
        group.backward(which)
    machine.run()
    stream: Stream = group.pes[1].stream  # type: ignore[assignment]
    direct = set(machine.created)
    with machine.on(stream), machine.capture(stream, 5):
        group.backward(1)
    assert not any(machine.queues.values()), "something was done, and not captured"
    held = [(handle, operation.__dict__["what"]) for handle, operation in machine.captured[5] if vars(operation)]
    (side,) = {handle for handle, _ in held} - {stream.cuda_stream}
    assert side in machine.created and side not in direct, "the side stream of direct calls would be captured"
    assert held == [(stream.cuda_stream, "combine"), (side, "work"), (stream.cuda_stream, "behind")]
