"""Trace events of a program's warps, when they computed, waited and sent: in ``trace``, int64 words, if it is not None.

Each event of each unit has two words of its own, for its begin and its end. So an event takes two stores and no load,
which would take longer than some of the events, and warps with few registers have enough of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.schedule import Schedule
from triton_dist.kernels.tracing.recorder import Event

__all__ = [
    "ARRIVAL",
    "COMPUTE",
    "HAND_OVER",
    "OPERANDS",
    "PEERS",
    "RECEIVE",
    "SEND",
    "TILE",
    "read",
    "record_event",
    "time",
    "words",
]

_EVENTS = (
    ("multiply 0", "wait", "operands"),
    ("multiply 1", "wait", "operands"),
    ("multiply 0", "compute", ""),
    ("multiply 1", "compute", ""),
    ("multiply 0", "wait", "the tile buffer"),
    ("multiply 1", "wait", "the tile buffer"),
    ("load", "wait", "stores of other programs or PEs"),
    ("send", "wait", "all PEs"),
    ("send", "wait", "a finished tile"),
    ("send", "send", ""),
    ("receive", "wait", "the partial sum"),
)
"""Of a unit: the warps that record it, its kind, and what they wait for. In the order of the numbers below."""

OPERANDS = gl.constexpr(0)  # plus the group, until the first blocks of A and B have arrived
COMPUTE = gl.constexpr(2)  # plus the group, until the sums are complete
HAND_OVER = gl.constexpr(4)  # plus the group, until the other parts are added and the tile buffer is empty
ARRIVAL = gl.constexpr(6)
PEERS = gl.constexpr(7)
TILE = gl.constexpr(8)
SEND = gl.constexpr(9)  # until TMA has read the tile; where a flag signals its arrival, until it has arrived
RECEIVE = gl.constexpr(10)

_SIZE = gl.constexpr(2 * len(_EVENTS))


@gluon.jit
def time(trace):
    """The time now, in nanoseconds; 0, and no instruction, without a trace."""
    if trace is None:
        return 0
    else:
        return gl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=gl.int64, is_pure=False, pack=1)


@gluon.jit
def record_event(trace, unit, event, began):
    """``event`` of ``unit`` lasted from ``began`` until now."""
    if trace is not None:
        words = trace + unit * _SIZE + 2 * event
        gl.store(words, began)
        gl.store(words + 1, time(trace))


def words(schedule: Schedule) -> int:
    """How many words the events of a schedule take."""
    return (len(schedule.units) + 1) * int(_SIZE.value)


def read(schedule: Schedule, trace: torch.Tensor) -> Iterator[Event]:
    """The events of programs that followed ``schedule``. *On the host.*"""
    times = trace.view(-1, len(_EVENTS), 2).tolist()
    for program, (first, last) in enumerate(pairwise(schedule.starts)):
        for unit in range(first, last):
            row, column, begin, end = schedule.units[unit][:4]
            details: dict[str, object] = {"tile": [row, column], "blocks along K": [begin, end]}
            for (warps, kind, awaited), (began, ended) in zip(_EVENTS, times[unit], strict=True):
                if ended:
                    what = f"{kind} for {awaited}" if awaited else f"{kind} {row}, {column}"
                    yield Event(f"program {program}, {warps}", kind, what, began, ended, details)
    began, ended = times[-1][PEERS.value]
    if ended:
        yield Event("the last program", "wait", "wait for all PEs", began, ended)
