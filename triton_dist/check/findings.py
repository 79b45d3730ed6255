"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from triton_dist.check.log import Place
from triton_dist.check.run import Run

__all__ = ["CLASSES", "Finding", "Findings", "Side"]

CLASSES = {
    "early-read": "read before the signal",
    "reuse": "buffer reused before its reader is done",
    "race": "data race",
    "missing-quiet": "missing quiet",
    "missing-fence": "missing fence",
    "missing-proxy-fence": "missing proxy fence",
    "lost-signal": "signal overwritten before it is seen",
    "overlap": "source and destination overlap",
    "deadlock": "deadlock",
    "barrier": "barrier not entered by all",
    "unawaited-signal": "signal that no one waits for",
    "outside": "access outside of a symmetric tensor",
    "use-after-free": "access to memory that was freed",
    "leak": "leaked allocation",
    "compile": "kernel that does not compile",
}
"""By the name that a report shows in brackets: a headline."""


@dataclass(frozen=True)
class Side:
    """One of those who have a part in it."""

    pe: int
    who: str
    """Which program, or the host."""
    place: Place
    does: str

    @staticmethod
    def of(run: Run, pe: int, program: int, place: int, does: str) -> Side:
        known = run.program(pe, program)
        who = "host" if known is None else f"program {known.index} of {known.kernel}"
        return Side(pe, who, run.place(pe, place), does)


@dataclass
class Finding:
    kind: str
    """A key of ``CLASSES``."""
    sides: list[Side]
    notes: list[str]
    count: int = 1
    """How often, on the same lines."""


@dataclass
class Findings:
    """Each once: those of one kind with the same lines are one."""

    found: dict[tuple[object, ...], Finding] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        places = [(side.place.file, side.place.line, side.place.what) for side in finding.sides]
        key = (finding.kind, *sorted(places))  # whichever came first
        if key in self.found:
            self.found[key].count += 1
        else:
            self.found[key] = finding
