"""Where shared memory is given back to TMA while reads of it may still be under way."""

from __future__ import annotations

import re
from collections import defaultdict

__all__ = ["released_before_read"]

_READ = re.compile(r"\b(ldmatrix\.|ld\.shared\.v4\.)")
_FENCE = re.compile(r"\bfence\.proxy\.async(?!\.global)")
_RELEASE = re.compile(r"\bmbarrier\.arrive\.(?!expect_tx)")
_LABEL = re.compile(r"(\$\w+):")
_JUMP = re.compile(r"(@!?%\w+ )?(bra|brx)\S*\s[^;]*?(\$\w+);")
_TARGETS = re.compile(r"\.branchtargets\s+([^;]*);")
_END = re.compile(r"(ret|exit|trap);")


def released_before_read(ptx: str) -> list[str]:
    """Arrivals at mbarriers that a path reaches from where a block was loaded from shared memory, without a fence of
    the proxies on the way. (A block is loaded 16 bytes at a time; fewer are what threads of a warp tell each other.)"""
    whole_lists = re.sub(r"\.branchtargets[^;]*;", lambda targets: " ".join(targets[0].split()), ptx)
    lines = [line.strip() for line in whole_lists.splitlines()]
    next_lines = _next_lines(lines)
    behind = {number: number for number, line in enumerate(lines) if _READ.search(line)}
    left = list(behind)
    while left:
        at = left.pop()
        for number in next_lines[at]:
            if number not in behind and not _FENCE.search(lines[number]):
                behind[number] = behind[at]
                left.append(number)
    return [
        f"{lines[number]} (line {number + 1}) behind {lines[read]} ({read + 1})"
        for number, read in behind.items()
        if _RELEASE.search(lines[number])
    ]


def _next_lines(lines: list[str]) -> dict[int, list[int]]:
    """Which lines may be executed behind each."""
    labels = {label[1]: number for number, line in enumerate(lines) if (label := _LABEL.match(line))}
    found: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        goes_on = number + 1 < len(lines) and not _END.match(line)
        if jump := _JUMP.match(line):
            found[number].append(labels[jump[3]])
            goes_on = jump[1] is not None
        elif targets := _TARGETS.search(line):
            found[number].extend(labels[target] for target in re.findall(r"\$\w+", targets[1]))
            goes_on = False
        if goes_on:
            found[number].append(number + 1)
    return found
