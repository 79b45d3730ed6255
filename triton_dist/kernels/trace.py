"""When tiles were computed, waited for and sent: noted by programs as they go, and written for Perfetto.

A kernel notes what it does with two calls, and costs nothing more when its ``TRACE`` is false:

    began = clock(TRACE)
    ...                                       # compute tile 7
    note(trace, COMPUTE, 7, began, TRACE)

and its caller hands it ``Trace(programs).tensor``, or None, and writes the file that https://ui.perfetto.dev or
chrome://tracing opens: a process for each PE, a thread for each program.

Every program writes to a row of its own, so nothing is shared. Times are the GPU's global timer, which each GPU has its
own: a meeting of all PEs when the trace is made gives them a common zero, to about a microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer, smid

import triton_dist
from triton_dist.kernels.meet import meet
from triton_dist.kernels.workspace import room

__all__ = ["COMPUTE", "SEND", "WAIT", "Trace", "clock", "note"]

COMPUTE = tl.constexpr(0)
WAIT = tl.constexpr(1)
SEND = tl.constexpr(2)
KINDS = ("compute", "wait", "send")

_WORDS = tl.constexpr(4)  # of an event: kind, tile, begin, end; of a row's header: events, room for events, SM, zero


@triton.jit
def clock(TRACE: tl.constexpr):
    """The time now, in nanoseconds; 0, and no instruction, if not ``TRACE``."""
    if TRACE:
        return globaltimer()
    else:
        return 0


@triton.jit
def note(trace, kind, tile, began, TRACE: tl.constexpr):
    """What this program did from ``began`` until now: ``COMPUTE``, ``WAIT``, ``SEND`` or a number of your own."""
    if TRACE:
        now = globaltimer()
        row = trace + tl.program_id(0).to(tl.int64) * (tl.load(trace + 1) + 1) * _WORDS
        count = tl.load(row)
        tl.debug_barrier()  # all threads have read the count
        if count < tl.load(row + 1):
            event = row + (count + 1) * _WORDS
            tl.store(event, kind)
            tl.store(event + 1, tile)
            tl.store(event + 2, began)
            tl.store(event + 3, now)
        tl.store(row, count + 1)
        tl.store(row + 2, smid())


@triton.jit
def _begin(trace, meeting_room, N_PES: tl.constexpr):
    meet(meeting_room, 0, N_PES)
    tl.store(trace + 3, globaltimer())


class Trace:
    """What the programs of a kernel note. Made, cleared and written by all PEs together.

    Args:
        programs: how many programs the kernel has (of a grid of one dimension).
        capacity: how many events each can note; later ones are counted, but lost.
    """

    def __init__(self, programs: int, capacity: int = 256) -> None:
        self.tensor = triton_dist.zeros(programs, 1 + capacity, _WORDS.value, dtype=torch.int64)
        """The kernel's argument."""
        self.clear()

    def clear(self) -> None:
        """Forget all events; times are counted from now on. *Collective.*"""
        self.tensor.zero_()
        self.tensor[:, 0, 1] = self.tensor.shape[1] - 1
        _begin[(1,)](self.tensor, room(), triton_dist.n_pes(), num_warps=1)

    def write(self, path: str | Path, kinds: Sequence[str] = KINDS) -> None:
        """PE 0 writes what all PEs have noted, in Chrome's trace format. *Collective.*

        Args:
            path: of the file, which commonly ends in ``.json``.
            kinds: what the numbers of kinds mean.
        """
        triton_dist.barrier_all()
        if triton_dist.my_pe() == 0:
            events: list[dict[str, Any]] = []
            for pe in range(triton_dist.n_pes()):
                events += _events(pe, triton_dist.peer(self.tensor, pe).cpu(), kinds)
            Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))
        triton_dist.barrier_all()


def _events(pe: int, rows: torch.Tensor, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """One PE's events as Chrome's, in microseconds."""
    zero = int(rows[0, 0, 3])
    events = [_name("process", pe, 0, f"PE {pe}")]
    for program, row in enumerate(rows.tolist()):
        count, capacity, sm, _ = row[0]
        lost = f", {count - capacity} events lost" if count > capacity else ""
        events.append(_name("thread", pe, program, f"program {program} on SM {sm}{lost}"))
        for kind, tile, began, ended in row[1 : 1 + min(count, capacity)]:
            name = kinds[kind] if 0 <= kind < len(kinds) else f"kind {kind}"
            times = {"ts": (began - zero) / 1000, "dur": (ended - began) / 1000}
            place = {"pid": pe, "tid": program}
            events.append({"name": f"{name} {tile}", "cat": name, "ph": "X", **place, **times, "args": {"tile": tile}})
    return events


def _name(what: str, pe: int, program: int, name: str) -> dict[str, Any]:
    return {"name": f"{what}_name", "ph": "M", "pid": pe, "tid": program, "args": {"name": name}}
