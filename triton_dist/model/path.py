"""The critical path of a phase: what its time was spent on, from its last step back to its first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from triton_dist.model.hardware import Step
from triton_dist.model.replay import Phase

__all__ = ["Part", "critical_path", "shares"]

_EQUAL = 1e-9


@dataclass
class Part:
    """A span of the path in which one program, or one transfer, decides when it goes on."""

    begin: float
    end: float
    step: Step


def critical_path(phase: Phase) -> list[Part]:
    """The parts of a phase, in order; together they are as long as it is."""
    parts = list(_backwards(phase))
    parts.reverse()
    merged: list[Part] = []
    for part in parts:
        last = merged[-1].step if merged else None
        same = last is not None and (last.pe, last.program, last.what, last.place) == (
            *(part.step.pe, part.step.program, part.step.what, part.step.place),
        )
        if same:
            merged[-1].end = part.end
        elif part.end > part.begin + _EQUAL:
            merged.append(part)
    return merged


def _backwards(phase: Phase) -> Iterator[Part]:
    step, until = phase.last, phase.end
    while step is not None and until > phase.begin + _EQUAL:
        cause = step.cause
        if cause is not None and cause.begin <= cause.end <= until and (cause.end > step.begin or step.program == -2):
            begin = max(min(cause.end, until), phase.begin)
            following: Step | None = cause
        else:
            begin, following = max(min(step.begin, until), phase.begin), step.previous
        yield Part(begin, until, step)
        step, until = following, begin


def shares(parts: list[Part]) -> list[tuple[str, float]]:
    """µs of each kind of step on a path, the largest first."""
    found: dict[str, float] = defaultdict(float)
    for part in parts:
        found[part.step.what] += part.end - part.begin
    return sorted(found.items(), key=lambda item: -item[1])
