"""Small programs with a bug each, and right ones: several to a file, which runs those that its arguments name.

``python file.py bug one other`` or ``python file.py right`` (all): in one world, one after the other, with a barrier of
the hosts in between. The line that a report must show is marked with ``# name``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import triton_dist

__all__ = ["CASES", "Case", "case", "flags", "main", "out"]


@dataclass(frozen=True)
class Case:
    run: Callable[[Any, bool], None]
    kinds: tuple[str, ...]
    """Of the report: one of these. None: there is no bug in it."""
    fatal: bool
    """The run ends with it."""
    schedule: str
    """The first of the command's schedules that finds it."""


CASES: dict[str, Case] = {}


def case(*kinds: str, fatal: bool = False, schedule: str = "round-robin") -> Callable[..., Any]:
    """``function(world, bug)`` is a case, called by its name."""

    def note(function: Callable[[Any, bool], None]) -> Callable[[Any, bool], None]:
        CASES[function.__name__] = Case(function, kinds, fatal, schedule)
        return function

    return note


def flags(count: int = 1, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return triton_dist.zeros(count, dtype=dtype)


def out(count: int = 16) -> torch.Tensor:
    """Local memory where a kernel stores the values that it has read."""
    return torch.empty(count)


def main() -> None:
    bug, names = sys.argv[1] == "bug", sys.argv[2:]
    with triton_dist.init() as world:
        for name, one in CASES.items():
            if name in names or not names:
                one.run(world, bug)
                triton_dist.barrier_all()
