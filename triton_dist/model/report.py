"""The text that says what a replay came to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from triton_dist.model.hardware import Server
from triton_dist.model.path import Part, critical_path, shares
from triton_dist.model.replay import Phase, Replay

__all__ = ["chosen_phase", "report"]

_LISTED = 24
"""Parts of a path that are shown at each of its ends."""


def chosen_phase(replay: Replay, number: int | None) -> int:
    """The index of the phase that is asked for, or of the last one with a kernel. ValueError: there is none."""
    if number is None:
        return max(i for i, phase in enumerate(replay.phases) if phase.launches)
    if not 1 <= number <= len(replay.phases):
        raise ValueError(f"there is no phase {number}: the script has {len(replay.phases)}")
    return number - 1


def report(replay: Replay, index: int) -> str:
    """The times of all phases; of one, the use of links and the critical path. Times are simulated."""
    return "\n".join(_lines(replay, index)) + "\n"


def _lines(replay: Replay, index: int) -> Iterator[str]:
    phase, machine = replay.phases[index], replay.machine
    total = replay.phases[-1].end
    yield f"simulated: {replay.graph.n_pes} PEs on {machine.name}"
    yield f"{total:.2f} µs in all, in phases between barriers of the hosts:"
    for i, each in enumerate(replay.phases):
        if each.launches:
            yield f"  phase {i + 1:3}  {each.end - each.begin:10.2f} µs  until {_end(each)}: {_kernels(each.launches)}"
    yield ""
    took = phase.end - phase.begin
    yield f"phase {index + 1}, {took:.2f} µs"
    yield "  use of links and SMs, of this time:"
    for kind, servers in groupby(replay.hardware.links, lambda server: server.name):
        yield from _use(kind, list(servers), phase)
    busy = [sum(_busy(sm, phase) for sm in sms) / len(sms) / took if took else 0.0 for sms in replay.hardware.sms]
    yield f"    {'SMs':12} {_range([100 * share for share in busy])} %"
    parts = critical_path(phase)
    yield "  critical path, by what it waits for:"
    for what, time in shares(parts):
        yield f"    {time:9.2f} µs  {time / took:6.1%}  {what}"
    yield "  critical path, in order:"
    if len(parts) > 2 * _LISTED:
        yield from map(_part, parts[:_LISTED])
        yield f"    … {len(parts) - 2 * _LISTED} more"
        parts = parts[-_LISTED:]
    yield from map(_part, parts)


def _end(phase: Phase) -> str:
    return "the end" if phase.place is None else str(phase.place)


def _kernels(names: list[str]) -> str:
    counted = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{name} × {count}" for name, count in counted.items())


def _busy(server: Server, phase: Phase) -> float:
    spans = (min(end, phase.end) - max(begin, phase.begin) for begin, end in server.spans)
    return sum(span for span in spans if span > 0)


def _use(kind: str, servers: list[Server], phase: Phase) -> Iterator[str]:
    took = phase.end - phase.begin
    busy = [_busy(server, phase) for server in servers]
    if any(busy):
        yield f"    {kind:12} {_range([100 * time / took for time in busy])} %"


def _range(values: list[float]) -> str:
    """The least and the largest of all GPUs."""
    least, most = f"{min(values):.1f}", f"{max(values):.1f}"
    return f"{least:>6}" if least == most else f"{least:>6} to {most}"


def _part(part: Part) -> str:
    step = part.step
    who = {-1: "host", -2: "sends"}.get(step.program, f"program {step.program}")
    where = "" if step.place is None else f"  {step.place}, {step.place.what}"
    return f"    {part.end - part.begin:9.2f} µs  PE {step.pe}, {who}: {step.what}{where}"
