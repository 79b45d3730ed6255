"""The recorder is told what every op that has an effect does."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

os.environ.setdefault("TRITON_DIST_WORLD", "cpu")

from triton_dist._C.op_table import OPS, Effect, Op, Value
from triton_dist.cpu import effects

N_PES = 2
HEAP = np.zeros(N_PES * 64, np.int64)


class Heap:
    """Two PEs' heaps of this process's memory; this PE is PE 0."""

    size = HEAP.nbytes // N_PES

    def base(self, pe: int) -> int:
        return int(HEAP.ctypes.data) + pe * self.size

    def find(self, address: int) -> tuple[int, int] | None:
        pe, offset = divmod(address - self.base(0), self.size)
        return (pe, offset) if 0 <= pe < N_PES else None


def arguments(op: Op) -> list[Any]:
    """Values for an op's operands and attributes, with pointers to different places of the heap."""
    values = dict.fromkeys(op.operands, 1)
    pointers = [name for name, value in op.operands.items() if value in (Value.POINTER, Value.SYMMETRIC_POINTER)]
    values |= {name: int(HEAP.ctypes.data) + 64 * number for number, name in enumerate(pointers)}
    values |= dict.fromkeys({"team", "status"} & op.operands.keys(), 0)
    return [*values.values(), *(min(kind) for kind in op.attributes.values())]


def recorded(op: Op, *, late: bool) -> set[str]:
    """What the recorder is told, if updates of a PE arrive at once, or late."""
    everyone = SimpleNamespace(pes=range(N_PES))
    world: Any = SimpleNamespace(
        pe=0, n_pes=N_PES, heap=Heap(), teams={0: everyone}, team_world=everyone, delays_updates=lambda pe: late
    )
    recorder = MagicMock()
    effects.before(op, recorder, world, arguments(op))
    effects.after(op, recorder, world, arguments(op))
    return {call[0] for call in recorder.method_calls}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_what_is_recorded(op: Op) -> None:
    called = recorded(op, late=False)
    assert bool(called) == (op.effect is not Effect.NO_EFFECT)
    writes = {Effect.PUT: "put", Effect.PUT_SIGNAL: "put", Effect.PUT_ELEMENT: "put", Effect.GET: "get"}
    if op.effect in writes:
        assert writes[op.effect] in called
    if op.collective:
        assert {"arrive", "leave"} <= called
    if op.wait:
        assert "look" in called


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_what_is_sent(op: Op) -> None:
    """Signals, and atomics that return nothing, are sent where others are made; they acquire nothing."""
    sends = op.effect in (Effect.UPDATE_SIGNAL, Effect.PUT_SIGNAL) or (op.update is not None and op.result is None)
    now, late = recorded(op, late=False), recorded(op, late=True)
    assert late == ((now - {"update", "acquire"}) | {"send"} if sends else now)
