"""Plans against the kernels: what store warps send and signal, as planned, is what the Gluon kernels do as threads.

Values are not compared: pieces of a tile follow each other in the shared memory of TMA, and threads have rows there.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.experimental.gluon import language as gl

pytest.importorskip("simpy", reason="the extra `model` is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))

import gluon_threads
from gluon_threads import Descriptor, Memory
from planned_gemms import Gemm, graph_of, plan_of

from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.gemm.hopper import (
    buffers,
    epochs,
    flags,
    gemm_all_reduce,
    gemm_all_scatter,
    gemm_reduce_scatter,
    load,
    multiply,
    ring,
    store,
    trace_events,
    warps,
    work,
)
from triton_dist.kernels.gemm.hopper.epochs import Peers
from triton_dist.kernels.gemm.hopper.layout import TILES
from triton_dist.kernels.gemm.hopper.load import PIECE
from triton_dist.kernels.gemm.hopper.pacing import piece_of
from triton_dist.kernels.gemm.hopper.work import Work
from triton_dist.model.machine import Machine
from triton_dist.model.nodes import Action, Launch

MODULES = (
    *(buffers, epochs, flags, gemm_all_reduce, gemm_all_scatter, gemm_reduce_scatter, load, multiply, ring, store),
    *(trace_events, warps, work),
)
H200 = Machine.load("h200")
MACHINE = replace(H200, sm=replace(H200.sm, count=3))
BLOCK_K = 64

Sent = list[tuple[Any, ...]]


def planned(gemm: Gemm) -> dict[tuple[int, int], Sent]:
    """By PE and program: bytes for each PE, and between them the PEs that get a tile's flag.

    Not what begins and ends a launch, which the last program does, and program 0 in a plan.
    """
    found: dict[tuple[int, int], Sent] = {}
    graph = graph_of(gemm, MACHINE)
    for pe, host in enumerate(graph.hosts):
        (launch,) = host
        assert isinstance(launch, Launch)
        for number, of_program in launch.warps.items():
            sent: Sent = []
            for node in of_program[0]:
                if node.action is Action.STORE:
                    _add(sent, node.target, node.nbytes)
                elif node.action is Action.ATOMIC and node.target != pe:
                    sent.append(("signal", node.target))
            if number == 0:
                assert sent.pop(0) == ("signal", 1 - pe)
                if gemm.to_all:
                    assert sent.pop() == ("signal", 1 - pe)
            found[pe, number] = sent
    return found


def _add(sent: Sent, target: int, nbytes: int) -> None:
    if not sent or sent[-1][0] != "bytes":
        sent.append(("bytes", {}))
    sent[-1][1][target] = sent[-1][1].get(target, 0) + nbytes


class _Pe:
    """The memory of a PE."""

    def __init__(self, gemm: Gemm, me: int, memory: Memory) -> None:
        self.me = me
        self.schedule, self.config, self.pacing = plan_of(gemm, MACHINE.sm.count, me)
        self.a, self.b = (memory.array(torch.ones(*shape).half()) for shape in ((gemm.m, gemm.k), (gemm.k, gemm.n)))
        rows = gemm.m // gemm.n_pes if gemm.name == "gemm_reduce_scatter" else gemm.m
        columns = gemm.n * gemm.n_pes if gemm.name == "gemm_all_scatter" else gemm.n
        self.c = memory.array(torch.zeros(rows, columns).half())
        self.staging = memory.array(torch.zeros(gemm.m, gemm.n).half())
        self.flags = memory.array(torch.zeros(int(TILES.value) + 64, dtype=torch.int32))
        self.state = memory.array(torch.zeros(8, dtype=torch.int32))
        self.units = memory.array(torch.tensor(self.schedule.units, dtype=torch.int32))
        self.starts = memory.array(torch.tensor(self.schedule.starts, dtype=torch.int32))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What threads store by TMA, and signal."""
    seen = SimpleNamespace(sent={}, whose={}, flags={})
    real_store, real_exchange = gluon_threads._TMA.async_store, gluon_threads._LANGUAGE.atomic_xchg

    def async_store(to: Descriptor, place: Any, block: Any) -> None:
        me, target = seen.whose[id(to)]
        (rows, columns), _ = to.overlap(place)
        nbytes = (rows.stop - rows.start) * (columns.stop - columns.start) * 2
        _add(seen.sent.setdefault((me, gluon_threads._PROGRAM.number), []), target, nbytes)
        real_store(to, place, block)

    def exchange(pointer: Any, value: Any, **more: Any) -> Any:
        for target, (begin, end) in seen.flags.items():
            if begin + 4 * int(TILES.value) <= int(pointer.addresses) < end:
                me = 1 - target  # of two PEs
                seen.sent.setdefault((me, gluon_threads._PROGRAM.number), []).append(("signal", target))
        return real_exchange(pointer, value, **more)

    monkeypatch.setattr(gluon_threads._TMA, "async_store", async_store)
    monkeypatch.setattr(gluon_threads._LANGUAGE, "atomic_xchg", exchange)
    for name in ("clock", "nanoseconds"):
        monkeypatch.setitem(gluon_threads._NAMES, name, time.monotonic_ns)
    return seen


@pytest.mark.parametrize(
    ("operation", "rows", "n"),
    [(gemm_reduce_scatter, 512, 256), (gemm_all_reduce, 384, 384), (gemm_all_scatter, 384, 256)],
    ids=["gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_scatter"],
)
def test_store_warps_do_what_is_planned(events: SimpleNamespace, operation: Any, rows: int, n: int) -> None:
    name = operation.__name__.rpartition(".")[2]
    gemm = Gemm(name, 2, rows, n, 2 * BLOCK_K, torch.float16, torch.float16)
    memory = Memory(1 << 25)
    pes = [_Pe(gemm, me, memory) for me in range(2)]
    events.flags = {pe.me: (memory.address(pe.flags), memory.address(pe.flags) + pe.flags.nbytes) for pe in pes}

    def words(array: Any, dtype: Any = gl.int32) -> Any:
        return memory.pointer(array, dtype)

    def descriptor(me: int, target: int, matrix: Any, block: tuple[int, int]) -> Descriptor:
        made = Descriptor(matrix, block)
        events.whose[id(made)] = me, target
        return made

    def arguments(pe: _Pe) -> dict[str, Any]:
        config, peer = pe.config, pes[1 - pe.me]
        block, piece = (config.group_m, config.c_columns), piece_of(config)
        own = slice(pe.me * gemm.n, (pe.me + 1) * gemm.n) if name == "gemm_all_scatter" else slice(None)
        distances = [memory.address(other.flags) - memory.address(pe.flags) for other in pes]
        to_peer = descriptor(pe.me, peer.me, peer.c[:, own], piece)
        return {
            "a": Descriptor(pe.a, (config.group_m, BLOCK_K)), "a_piece": Descriptor(pe.a, (PIECE.value, BLOCK_K)),
            "b": Descriptor(pe.b, (BLOCK_K, config.block_n)),
            "c": descriptor(pe.me, pe.me, pe.c[:, own], block), **{f"c{i}": to_peer for i in range(1, 8)},
            "next_staging": descriptor(pe.me, peer.me, peer.staging, piece),
            "staging": Descriptor(pe.staging, block), "work": Work(words(pe.units), words(pe.starts)), "split": None,
            "scale": None, "epilogue": EMPTY, "state": words(pe.state),
            "peers": Peers(pe.me, words(pe.flags), words(memory.array(torch.tensor(distances)), gl.int64)),
            "tiles_n": -(-gemm.n // config.block_n), "pacing": pe.pacing, "padding": 0,
                "own_rows": pe.c.shape[0], "own_padding": 0, "trace": None,
            "CONFIG": config, "B_BY_COLUMNS": False, "N_PES": 2,
        }  # fmt: skip

    kernel = getattr(operation, f"{name}_kernel")
    given = [arguments(pe) for pe in pes]
    with gluon_threads.interpreted(*MODULES):
        gluon_threads.run(kernel, 3, [[of_pe[arg] for arg in kernel.arg_names] for of_pe in given])
    assert events.sent == planned(gemm)
