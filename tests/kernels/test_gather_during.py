"""An all-gather by the copy engine beside kernels that fill the GPU, on a machine of streams without a GPU."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from stream_machine import Machine, Operation, Owner, Stream

from triton_dist.kernels.collectives import gather_during as module
from triton_dist.kernels.prepared import Prepared
from triton_dist.kernels.protocols import side_stream
from triton_dist.kernels.protocols.peer_addresses import PeerAddresses

NBYTES = 64


class Pe(Owner):
    """The communicator of one PE. Addresses are 1000 times its rank, and on."""

    kind, device = "gpu", torch.device("cpu")

    def __init__(self, rank: int, n_pes: int) -> None:
        super().__init__()
        self.my_rank, self.n_pes = rank, n_pes
        self.stream = Stream.__new__(Stream)
        plans = SimpleNamespace(signature=lambda *call: None, repeat=lambda *call: False, keep=lambda *call: None)
        addresses = SimpleNamespace(of=lambda tensor: tuple(1000 * rank for rank in range(n_pes)))
        self._owned |= {Prepared: plans, PeerAddresses: addresses}

    def compare(self, *call: object) -> None: ...


def labelled(what: str, operation: Operation) -> Operation:
    operation.__dict__["what"] = what
    return operation


class Group:
    """PEs, each with a stream, whose backward passes run in step."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch, n_pes: int, seed: int) -> None:
        self.machine, self.random = machine, random.Random(seed)
        self.pes = [Pe(rank, n_pes) for rank in range(n_pes)]
        for pe in self.pes:
            pe.stream = torch.cuda.Stream()
        self.here = 0  # whose host is at work
        self.resident: Counter[int] = Counter()
        """How many persistent kernels each PE's GPU is filled by."""
        self.held = False
        """Whether no kernel ends."""
        self.arrived: Counter[object] = Counter()
        self.received: Counter[tuple[int, int]] = Counter()
        """Copies by where they arrived and from whom."""
        self.used = [0] * n_pes
        """How often each PE has used what it gathered."""
        self.steps, self.barriers, self.kernels = [0] * n_pes, [0] * n_pes, [0] * n_pes
        monkeypatch.setattr(module, "stream_barrier", lambda comm: self.put_barrier(comm.my_rank))
        machine.copying = self.copying  # type: ignore[method-assign]

    def share_queues(self, which: str) -> None:
        """Have both streams of some PEs, or all, in one hardware queue."""
        for pe in {"none": [], "first": self.pes[:1], "all": self.pes}[which]:
            with self.machine.on(pe.stream), side_stream.side_stream(pe) as side:  # type: ignore[arg-type]
                self.machine.queue_of[side.cuda_stream] = pe.stream.cuda_stream
        self.machine.run()

    def put(self, pe: int, what: str, operation: Operation) -> None:
        self.machine.put(self.pes[pe].stream.cuda_stream, labelled(what, operation))

    def put_barrier(self, pe: int) -> None:
        number = self.barriers[pe]
        self.barriers[pe] += 1
        began: list[bool] = []

        def barrier() -> bool | None:
            if self.resident[pe]:
                return False  # there is no multiprocessor for it
            if not began:
                began.append(True)
                self.arrived["barrier", number] += 1
                return None
            return self.arrived["barrier", number] == len(self.pes)

        self.machine.put(self.machine.current.cuda_stream, labelled("barrier", barrier))

    def put_kernel(self, pe: int) -> None:
        """One that fills the GPU, and ends when those of all PEs have begun."""
        number = self.kernels[pe]
        self.kernels[pe] += 1
        began: list[bool] = []

        def kernel() -> bool | None:
            if not began:
                began.append(True)
                self.resident[pe] += 1
                self.arrived["kernel", number] += 1
                return None
            if self.held or self.arrived["kernel", number] < len(self.pes):
                return False
            self.resident[pe] -= 1
            return True

        self.put(pe, "kernel", kernel)

    def copying(self, to: int, source: int, nbytes: int, stream: int) -> Operation:
        me, polls, step = self.here, self.random.randrange(4), self.steps[self.here]
        target, offset = divmod(to, 1000)
        assert (offset, nbytes) == (me * NBYTES, NBYTES)

        def copy() -> bool | None:
            nonlocal polls
            assert self.used[target] == step, f"PE {me} overwrites what PE {target} has not used yet"
            polls -= 1
            if polls >= 0:
                return None
            self.received[target, me] += 1
            return True

        return labelled(f"copy to {target}", copy)

    def backward(self, pe: int) -> None:
        """What the host of a PE does in a step."""
        self.here, comm = pe, self.pes[pe]
        with self.machine.on(comm.stream):
            memory = torch.zeros(len(self.pes) * NBYTES, dtype=torch.uint8)
            module.gather_during(
                comm,  # type: ignore[arg-type]
                "test",
                lambda comm, input: memory,
                memory[:NBYTES],
                lambda: self.put_kernel(pe),
            )
            self.put_use(pe)
        self.steps[pe] += 1

    def put_use(self, pe: int) -> None:
        polls = self.random.randrange(6)

        def use() -> bool | None:
            nonlocal polls
            for other in range(len(self.pes)):
                arrived = self.received[pe, other] == self.used[pe] + 1
                assert arrived, f"PE {pe} goes on before PE {other}'s rows have arrived"
            polls -= 1
            if polls >= 0:
                return None
            self.used[pe] += 1
            return True

        self.put(pe, "weight", use)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize("shared", ["none", "first", "all"])
@pytest.mark.parametrize("n_pes", [2, 3, 8])
@pytest.mark.parametrize("seed", range(3))
def test_it_ends_and_all_arrives(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, n_pes: int, seed: int, shared: str
) -> None:
    """Also where the streams of ``shared`` PEs are in one hardware queue, and hosts are steps ahead of each other."""
    group = Group(machine, monkeypatch, n_pes, seed)
    group.share_queues(shared)
    steps = 4
    todo = [pe for pe in range(n_pes) for _ in range(steps)]
    group.random.shuffle(todo)
    for pe in todo:
        group.backward(pe)
    machine.run()
    assert group.used == [steps] * n_pes and not any(group.resident.values())


@pytest.mark.parametrize("shared", ["none", "first", "all"])
def test_copies_arrive_while_kernels_fill_every_gpu(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    group = Group(machine, monkeypatch, 3, 0)
    group.share_queues(shared)
    group.held = True
    for pe in range(3):
        group.backward(pe)
    with pytest.raises(AssertionError, match="streams wait for ever"):
        machine.run()
    assert group.resident.total() == 3
    assert group.received == {(to, of): 1 for to in range(3) for of in range(3)}
    group.held = False
    machine.run()


def test_a_graph_holds_two_barriers_the_kernel_and_copies(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(machine, monkeypatch, 3, 0)
    for pe in range(3):
        group.backward(pe)
    machine.run()
    here, direct = group.pes[1].stream.cuda_stream, set(machine.created)
    with machine.on(group.pes[1].stream), machine.capture(group.pes[1].stream, 5):
        group.backward(1)
    assert not any(machine.queues.values()), "something was done, and not captured"
    held = [(stream, operation.__dict__["what"]) for stream, operation in machine.captured[5] if vars(operation)]
    (side,) = {stream for stream, _ in held} - {here}
    assert side in machine.created and side not in direct, "the side stream of direct calls would be captured"
    assert held == [
        (here, "barrier"),
        *((side, f"copy to {rank}") for rank in (2, 0, 1)),
        (here, "kernel"),
        (here, "barrier"),
        (here, "weight"),
    ]
