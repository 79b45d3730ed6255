"""A file that shows what all programs of all PEs did, and when: for https://ui.perfetto.dev or chrome://tracing.

While :func:`tracing` is on, an operation passes its kernels memory for trace events; else it passes None, and their
machine code is that of kernels without them. In the file a PE is a process, and a program of a kernel, or a
warp of it that has work of its own, is a thread.

Times are the GPU's global timer, which each GPU has its own: a barrier of all PEs when tracing begins gives them a
common zero, to about a microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

import triton_dist
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.workspace import barrier_state
from triton_dist.kernels.tracing.events import KINDS, WORDS
from triton_dist.world import World
from triton_dist.world.current import current_world

__all__ = ["Event", "Tracing", "claim", "paused", "record", "tracing"]

_BUFFER = 1 << 20
"""Bytes that a PE hands over at a time."""


@dataclass(frozen=True)
class Event:
    """Something that took a while.

    Attributes:
        thread: a program, or a warp of it.
        kind: compute, wait, send, …: what it is coloured by.
        name: what is written on it.
        began, ended: by this GPU's global timer, in nanoseconds.
        details: what else there is to know about it.
    """

    thread: str
    kind: str
    name: str
    began: int
    ended: int
    details: dict[str, object] = field(default_factory=dict)


@dataclass
class _Launch:
    kernel: str
    words: torch.Tensor
    read: Callable[[torch.Tensor], Iterator[Event]]


@dataclass
class _Session:
    path: Path
    zero: torch.Tensor
    launches: list[_Launch] = field(default_factory=list)


class Tracing:
    """The session that traces operations of one world, if there is one."""

    def __init__(self, world: World) -> None:
        self.session: _Session | None = None

    def close(self) -> None:
        self.session = None


@triton.jit
def tracing_begin(zero, barriers, MEMBERS: tl.constexpr):
    barrier(barriers, 0, MEMBERS)
    tl.store(zero, globaltimer())


@contextmanager
def tracing(path: str | Path) -> Iterator[None]:
    """Record when the operations of this package compute, wait and send within the block. *Collective.*

    At its end PE 0 writes what all PEs have recorded to ``path``, in Chrome's trace format; a block that ends with an
    exception writes nothing. Kernels that record are compiled when they are first needed: to see what a call takes, let
    the block hold two, and look at the second. Of a CUDA graph that is captured in the block, the file has the last
    replay; one that was captured before it records nothing. What copy engines do is not seen, only who waits for it.

    Args:
        path: of the file, which commonly ends in ``.json``.

    Raises:
        RuntimeError: operations are traced already.
    """
    world = current_world()
    traced = world.own(Tracing)
    if traced.session is not None:
        raise RuntimeError(
            f"tracing to {path}: operations are traced already, to {traced.session.path}; one ends first"
        )
    session = _Session(Path(path), torch.zeros(1, dtype=torch.int64, device=world.device))
    everyone = communicator_of()
    everyone.check_one_host("tracing")
    tracing_begin[(1,)](session.zero, barrier_state(everyone, "tracing"), everyone.members, num_warps=1)
    traced.session = session
    try:
        yield
    finally:
        traced.session = None
    triton_dist.barrier_all()
    mine = {"zero": int(session.zero), "events": _chrome(session)}
    gathered = _gathered(json.dumps(mine).encode())
    if triton_dist.my_pe() == 0:
        found = [json.loads(text) for text in gathered]
        zeros = {"zeros of the PEs' timers, in ns": [pe["zero"] for pe in found]}
        events = [event for pe in found for event in pe["events"]]
        session.path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": zeros}))
    triton_dist.barrier_all()


@contextmanager
def paused() -> Iterator[None]:
    """Nothing is recorded within the block."""
    traced = current_world().own(Tracing)
    session, traced.session = traced.session, None
    try:
        yield
    finally:
        traced.session = session


def record(kernel: str, programs: int, capacity: int = 256, kinds: Sequence[str] = KINDS) -> torch.Tensor | None:
    """The ``trace`` to launch a kernel with, whose programs :func:`~triton_dist.kernels.tracing.events.record_event`.

    Args:
        kernel: its name in the file.
        programs: how many it has, in a grid of one dimension.
        capacity: how many events each can record; later ones are counted, but lost.
        kinds: what the numbers of kinds mean.

    Returns:
        int64, on this PE's device, for one launch; None, if nothing is traced.
    """
    if current_world().own(Tracing).session is None:
        return None

    def read(words: torch.Tensor) -> Iterator[Event]:
        for program, row in enumerate(words.view(programs, 1 + capacity, WORDS.value).tolist()):
            count, _, sm, _ = row[0]
            lost = f", {count - capacity} events lost" if count > capacity else ""
            for kind, tile, began, ended in row[1 : 1 + min(count, capacity)]:
                name = kinds[kind] if 0 <= kind < len(kinds) else f"kind {kind}"
                yield Event(f"program {program}{lost}", name, f"{name} {tile}", began, ended, {"tile": tile, "SM": sm})

    words = claim(kernel, programs * (1 + capacity) * WORDS.value, read)
    assert words is not None
    words.view(programs, 1 + capacity, WORDS.value)[:, 0, 1] = capacity
    return words


def claim(kernel: str, words: int, read: Callable[[torch.Tensor], Iterator[Event]]) -> torch.Tensor | None:
    """So many int64 words, all 0, for the events of one launch of ``kernel``; None, if nothing is traced.

    Args:
        read: finds the events in a copy of the words, on the host, when the kernel has ended.
    """
    session = current_world().own(Tracing).session
    if session is None:
        return None
    memory = torch.zeros(words, dtype=torch.int64, device=session.zero.device)
    session.launches.append(_Launch(kernel, memory, read))
    return memory


def _chrome(session: _Session) -> list[dict[str, Any]]:
    """This PE's events in Chrome's format, in microseconds."""
    pe, zero = triton_dist.my_pe(), int(session.zero)
    threads: dict[str, int] = {}
    events: list[dict[str, Any]] = [_name("process", pe, 0, f"PE {pe}")]
    for number, launch in enumerate(session.launches):
        for event in launch.read(launch.words.cpu()):
            name = f"{launch.kernel}: {event.thread}"
            if name not in threads:
                threads[name] = 1 + len(threads)  # (thread 0 of an operating system idles, and viewers may hide it)
                events.append(_name("thread", pe, threads[name], name))
            times = {"ts": (event.began - zero) / 1000, "dur": (event.ended - event.began) / 1000}
            details = {"kernel": launch.kernel, "launch": number, **event.details}
            place = {"pid": pe, "tid": threads[name]}
            events.append({"name": event.name, "cat": event.kind, "ph": "X", **place, **times, "args": details})
    return events


def _name(what: str, pe: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": f"{what}_name", "ph": "M", "pid": pe, "tid": thread, "args": {"name": name}}


def _gathered(text: bytes) -> list[bytes]:
    """What every PE has passed, on PE 0; elsewhere nothing of use. It goes through symmetric memory, part by part."""
    n_pes, me = triton_dist.n_pes(), triton_dist.my_pe()
    buffer, size = triton_dist.zeros(_BUFFER, dtype=torch.uint8), triton_dist.zeros(1, dtype=torch.int64)
    size.fill_(len(text))
    triton_dist.barrier_all()
    sizes = [int(triton_dist.peer(size, pe)) for pe in range(n_pes)]
    found = [b""] * n_pes
    for first in range(0, max(sizes), _BUFFER):
        part = torch.frombuffer(bytearray(text[first : first + _BUFFER] or b"\0"), dtype=torch.uint8)
        buffer[: part.numel()] = part.to(buffer.device)
        triton_dist.barrier_all()
        if me == 0:
            for pe in range(n_pes):
                rest = max(0, sizes[pe] - first)
                found[pe] += triton_dist.peer(buffer, pe)[:rest].cpu().numpy().tobytes()
        triton_dist.barrier_all()
    triton_dist.free(buffer)
    triton_dist.free(size)
    return found
