"""Runs the checks of a file on this PE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

import triton_dist


def main(module: Mapping[str, Any]) -> None:
    """Every ``check_…`` of the module, in order, in one world. The first that fails ends this PE, and so the others."""
    checks: list[Callable[[Any], None]] = [value for name, value in module.items() if name.startswith("check_")]
    with triton_dist.init() as world:
        for check in checks:
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
