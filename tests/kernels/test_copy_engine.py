"""Copies in round-robin order: what the host puts into streams, run by a machine that has none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from triton_dist.kernels.gemm import copy_engine
from triton_dist.kernels.gemm.hopper import gemm_all_scatter_chunks, launch
from triton_dist.kernels.gemm.hopper.layout import ENTERED, TILES
from triton_dist.kernels.gemm.operands import Operands

BLOCK_M, COLUMNS = 4, 3


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 200), (64, 36), (500, 7)])
@pytest.mark.parametrize("row", [1e-7, 2e-5, 1e-3])
@pytest.mark.parametrize("peers", [0, 1, 3, 7])
def test_everybody_gets_every_row_once_and_not_before_it_can_be_there(
    rows: int, columns: int, row: float, peers: int
) -> None:
    steps = copy_engine.steps_of(rows, columns, 132, peers, round_=5e-5, row=row)
    sent = dict.fromkeys(range(1, peers + 1), 0)
    for step in steps:
        assert step.first == sent[step.distance] < step.stop
        sent[step.distance] = step.stop
    assert all(stop == rows for stop in sent.values())
    assert len(steps) <= copy_engine.COPIES * peers
    chunks = copy_engine.chunks_of(steps, rows)
    assert [r for chunk in chunks for r in chunk] == list(range(rows))
    assert {step.stop for step in steps} <= {chunk.stop for chunk in chunks}


def test_slow_links_take_few_copies_and_fast_ones_follow_the_product() -> None:
    slow = copy_engine.steps_of(64, 36, 132, 3, round_=5.6e-5, row=6.3e-6)
    fast = copy_engine.steps_of(64, 36, 132, 3, round_=5.6e-4, row=6.3e-6)
    assert len(slow) < 20 < len(fast)
    assert max(step.stop - step.first for step in fast) < 8 < max(step.stop - step.first for step in slow)


class Machine:
    """PEs whose streams work on words of memory, and whose copies take a while."""

    def __init__(self, n_pes: int, seed: int) -> None:
        self.n_pes, self.random = n_pes, random.Random(seed)
        self.steps = copy_engine.steps_of(20, COLUMNS, 8, n_pes - 1, round_=5e-5, row=self.random.choice((1e-6, 4e-5)))
        self.chunks = {rows.stop: i for i, rows in enumerate(copy_engine.chunks_of(self.steps, 20))}
        self.words: dict[int, int] = {}
        self.flags = [torch.zeros(TILES.value, dtype=torch.int32) for _ in range(n_pes)]
        self.chunk_flags = [torch.zeros(len(self.chunks), dtype=torch.int32) for _ in range(n_pes)]
        self.tokens = [torch.zeros(len(self.steps), dtype=torch.int32) for _ in range(n_pes)]
        self.outputs = [torch.zeros(20 * BLOCK_M, n_pes) for _ in range(n_pes)]
        self.mine = [out[:, pe : pe + 1] for pe, out in enumerate(self.outputs)]
        for pe, column in enumerate(self.mine):
            column[:] = 1 + pe

    def program(self, pe: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
        """What the host puts into the stream of copies of a PE, and then into the one that called."""
        done: list[tuple[Any, ...]] = []
        stream: Any = SimpleNamespace(cuda_stream=1)
        kernel: Any = SimpleNamespace(flags=self.flags[pe], config=SimpleNamespace(block_m=BLOCK_M))
        chunks: Any = SimpleNamespace(flags=self.chunk_flags[pe])
        plan = copy_engine.CopyPlan(kernel, chunks, self.steps, self.chunks, self.tokens[pe])

        def peer_tensors(comm: Any, tensor: torch.Tensor) -> list[torch.Tensor]:
            columns = [out[:, pe : pe + 1] for out in self.outputs]
            copies = {id(self.flags[pe]): self.flags, id(self.tokens[pe]): self.tokens}.get(id(tensor), columns)
            return [copies[(pe + i) % self.n_pes] for i in range(self.n_pes)]

        monkeypatch.setattr(launch, "peer_tensors", peer_tensors)
        monkeypatch.setattr(gemm_all_scatter_chunks, "run", lambda *arguments: None)  # ``_kernel`` acts for it
        comm: Any = SimpleNamespace(n_pes=self.n_pes, my_rank=pe, current_stream=lambda: 0)
        monkeypatch.setattr(copy_engine, "cached", lambda comm, key, make: plan)
        monkeypatch.setattr(copy_engine, "side_stream", lambda comm: nullcontext(stream))
        monkeypatch.setattr(copy_engine, "take", lambda word: ("wait", word))
        monkeypatch.setattr(copy_engine, "give", lambda word: ("write", word))
        monkeypatch.setattr(copy_engine, "copy_rows", lambda to, source: ("copy", to, source))
        monkeypatch.setattr(copy_engine, "StreamWork", lambda operations: lambda stream: done.extend(operations))
        a = torch.zeros(20 * BLOCK_M, 1)
        copy_engine.send_by_copy_engine(Operands(comm, a, a, self.mine[pe]))
        return done

    def run(self, programs: list[list[tuple[Any, ...]]]) -> None:
        """All programs together; a kernel on each PE raises flags now and then. Fails where nobody can go on."""
        events: list[Iterator[Any]] = [self._kernel(pe) for pe in range(self.n_pes)]
        events += [self._stream(pe, program) for pe, program in enumerate(programs)]
        self.busy: dict[int, int] = {}
        idle = 0
        while events:
            at = self.random.randrange(len(events))
            try:
                idle = idle + 1 if next(events[at]) is None else 0
            except StopIteration:
                del events[at]
                idle = 0
            assert idle < 10_000, "all wait, for ever"

    def _kernel(self, pe: int) -> Iterator[Any]:
        for i in range(self.n_pes):
            self._raise(self.flags[i][ENTERED.value + pe].data_ptr(), again=True)
            yield True
        for chunk in range(len(self.chunks)):
            for _ in range(self.random.randrange(30)):
                yield True
            self._raise(self.chunk_flags[pe][chunk].data_ptr())

    def _stream(self, pe: int, program: list[tuple[Any, ...]]) -> Iterator[Any]:
        for operation, *operands in program:
            if operation == "wait":
                while not self.words.get(operands[0]):
                    yield None
                self.words[operands[0]] = 0
            elif operation == "write":
                self._raise(operands[0])
            else:
                to, source = operands
                owner = next(
                    i for i, out in enumerate(self.outputs) if to.untyped_storage().data_ptr() == out.data_ptr()
                )
                assert owner not in self.busy, f"PE {pe} and PE {self.busy.get(owner)} copy to PE {owner} at a time"
                self.busy[owner] = pe
                for _ in range(self.random.randrange(1, 40)):
                    yield True
                to.copy_(source)
                del self.busy[owner]
            yield True
        expected = torch.arange(1.0, 1 + self.n_pes).expand(20 * BLOCK_M, self.n_pes)
        assert torch.equal(self.outputs[pe], expected), f"PE {pe} goes on before all has arrived"

    def _raise(self, word: int, *, again: bool = False) -> None:
        assert again or not self.words.get(word), "a flag is raised that nobody has taken"
        self.words[word] = 1


@pytest.mark.parametrize("n_pes", [2, 3, 4, 8])
@pytest.mark.parametrize("seed", range(5))
def test_no_two_pes_copy_to_one_and_all_arrives(monkeypatch: pytest.MonkeyPatch, n_pes: int, seed: int) -> None:
    machine = Machine(n_pes, seed)
    programs = [machine.program(pe, monkeypatch) for pe in range(n_pes)]
    for _ in range(2):  # a second launch finds every flag as the first one did
        machine.run(programs)
        for pe, out in enumerate(machine.outputs):
            out[:, [i for i in range(n_pes) if i != pe]] = 0
