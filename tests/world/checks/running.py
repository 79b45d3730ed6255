"""Runs the checks of a file on this PE. (Apart from the harness for files that run on GPUs, too, where there is no
Hypothesis.)"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

import triton_dist

__all__ = ["MORE_EXAMPLES", "by_load_and_store", "main", "raises", "some"]

T = TypeVar("T")

MORE_EXAMPLES = "more_examples"
"""Among the arguments of a launch of slow checks."""


def by_load_and_store(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Marks a check that loads from, stores to or names memory of peers: it is for worlds that map all PEs."""
    check.__dict__["maps_all"] = True
    return check


def some(cases: Sequence[T], every: int = 2) -> Sequence[T]:
    """The first of ``cases`` and every second (or other) one behind it: all in a launch of slow checks, and on GPUs."""
    return cases if MORE_EXAMPLES in sys.argv[1:] or triton_dist.kind() == "gpu" else cases[::every]


def main(module: Mapping[str, Any]) -> None:
    """Every ``check_…`` of the module, or those that the command names, in the module's order and in one world.

    The first that fails ends this PE, and so the others.
    """
    named = [argument for argument in sys.argv[1:] if argument != MORE_EXAMPLES]
    names = [name for name in module if name.startswith("check_") and (name[6:] in named or not named)]
    checks: list[Callable[[Any], None]] = [module[name] for name in names]
    with triton_dist.init() as world:
        all_reachable = all(world.is_reachable(pe) for pe in range(world.n_pes))
        for check in checks:
            if not all_reachable and "maps_all" in check.__dict__:
                print("out of reach:", check.__name__.removeprefix("check_"), flush=True)
                continue
            check(world)
            print("passed:", check.__name__.removeprefix("check_"), flush=True)
            triton_dist.barrier_all()


@contextmanager
def raises(kind: type[BaseException], *patterns: str) -> Iterator[None]:
    """The block raises ``kind``, and each pattern is found in its text."""
    with pytest.raises(kind) as caught:
        yield
    for pattern in patterns:
        assert re.search(pattern, str(caught.value)), f"no {pattern!r} in: {caught.value}"
