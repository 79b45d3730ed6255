"""A replay as a file of Chrome trace events, which https://ui.perfetto.dev shows.

A process for each PE, with a thread for its host, for each program number, and for each link; arrows lead from what was
sent to the wait that it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triton_dist.model.hardware import Step
from triton_dist.model.replay import Replay

__all__ = ["write_trace"]

_LINKS = 100_000
"""Number of the first thread of a link."""


def write_trace(replay: Replay, file: str | Path) -> None:
    """Raises OSError if the file cannot be written."""
    events = {"displayTimeUnit": "ns", "traceEvents": list(_events(replay))}
    Path(file).write_text(json.dumps(events), "utf-8")


def _events(replay: Replay) -> Iterator[dict[str, Any]]:
    for pe in range(replay.graph.n_pes):
        yield _name("process_name", pe, 0, f"PE {pe} (simulated)")
        yield _name("thread_name", pe, 0, "host")
    for number, step in enumerate(replay.steps):
        thread = step.program + 1
        yield _span(step.pe, thread, step.what, step.begin, step.end, step)
        sent = step.cause
        if sent is not None and sent.program == -2 and sent.cause is not None and sent.cause.pe != step.pe:
            source = sent.cause
            arrow = {"name": sent.what, "cat": "sent", "id": number}
            yield {**arrow, "ph": "s", "pid": source.pe, "tid": source.program + 1, "ts": source.end}
            yield {**arrow, "ph": "f", "bp": "e", "pid": step.pe, "tid": thread, "ts": step.end}
    for number, server in enumerate(replay.hardware.links):
        if server.spans:
            yield _name("thread_name", server.pe, _LINKS + number, server.name)
        for begin, end in server.spans:
            yield _span(server.pe, _LINKS + number, server.name, begin, end)


def _name(what: str, pe: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pe, "tid": thread, "args": {"name": name}}


def _span(pe: int, thread: int, name: str, begin: float, end: float, step: Step | None = None) -> dict[str, Any]:
    place = None if step is None else step.place
    args = {} if place is None else {"at": str(place), "what": place.what}
    return {"name": name, "ph": "X", "pid": pe, "tid": thread, "ts": begin, "dur": end - begin, "args": args}
