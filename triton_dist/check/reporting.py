"""Findings as text, in the manner of a compiler's errors."""

from __future__ import annotations

import linecache
import os

from triton_dist.check.findings import CLASSES, Finding

__all__ = ["report"]


def report(findings: list[Finding], events: int, n_pes: int, schedule: str, *, complete: bool = True) -> str:
    """All findings, and a line that says how many there are. ``complete``: the run came to its end."""
    how = f"{n_pes} PE{'s' * (n_pes > 1)}, schedule {schedule}, {events} events"
    if not findings:
        return f"triton-dist-check: nothing found {'' if complete else 'until the error '}({how})"
    count = f"{len(findings)} problem{'s' * (len(findings) > 1)}"
    return "\n".join([*(_one(finding) for finding in findings), f"triton-dist-check: {count} ({how})"])


def _one(finding: Finding) -> str:
    lines = [f"error: {CLASSES[finding.kind]} [{finding.kind}]"]
    for side in finding.sides:
        lines.append(f"  {side.place}: PE {side.pe}, {side.who}: {side.does}")
        code = linecache.getline(side.place.file, side.place.line).strip() if os.path.isfile(side.place.file) else ""
        if code:
            lines.append(f"      {code}")
    lines += [f"  note: {note}" for note in finding.notes]
    if finding.count > 1:
        lines.append(f"  note: {finding.count} times on these lines")
    return "\n".join(lines) + "\n"
