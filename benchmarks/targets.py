"""Whether a comparison meets what it is to meet: a line to print below it."""

from __future__ import annotations

from harness import Entry

__all__ = ["at_most", "faster_than_peers", "share_of_bound"]


def _line(target: str, met: bool | None, found: str) -> str:
    return f"    target, {target}: {'not measured' if met is None else 'met' if met else 'not met'}{found}"


def at_most(entry: Entry, microseconds: float, contender: str = "ours") -> str:
    """Whether one call of a contender takes so long at most."""
    timing = entry.timings.get(contender)
    target = f"{contender} at most {microseconds:.1f} µs"
    if timing is None:
        return _line(target, None, "")
    return _line(target, timing.median <= microseconds, f" ({timing.median:.1f})")


def share_of_bound(entry: Entry, share: float, contender: str, more: float = 0.0) -> str:
    """Whether a contender reaches a share of the bound, to which so many microseconds ``more`` belong."""
    timing = entry.timings.get(contender)
    target = f"{contender} at {share:.2f} of the bound"
    if timing is None or entry.bound is None:
        return _line(target, None, "")
    reached = (entry.bound + more) / timing.median
    return _line(target, reached >= share, f" ({reached:.2f})")


def faster_than_peers(entry: Entry, factor: float) -> str:
    """Whether the fastest of our contenders is so many times as fast as the fastest peer."""
    ours, peer = entry.best(ours=True), entry.best(ours=False)
    target = f"{factor:.1f} x the best peer"
    if ours is None or peer is None:
        return _line(target, None, "")
    reached = entry.timings[peer].median / entry.timings[ours].median
    return _line(target, reached >= factor, f" ({reached:.2f}, {ours})")
