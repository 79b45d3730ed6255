"""What files of checks share; they run by ``running.py``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from running import MORE_EXAMPLES
from running import by_load_and_store as by_load_and_store
from running import main as main
from running import raises as raises
from running import some as some

import triton_dist
from triton_dist import environment

DTYPES = (
    *(torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
"""What the dialect calls element types, in its order."""

# Hypothesis also draws constants of the modules that a process has imported, which are not the same on all PEs. Finding
# them takes each PE as long as a small check.
providers._get_local_constants = providers.Constants
# All PEs draw the same examples, and none looks at what an earlier run found.
together = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def examples(count: int) -> int:
    """How many of a check's examples to draw: ``count``, in slow tests twice as many, and a third under the checker.

    What the checker looks at is in all of them: a protocol's order of accesses, which sizes and values hardly change.
    """
    if MORE_EXAMPLES in sys.argv[1:]:
        return 2 * count
    return max(1, count // 3) if environment.get("TRITON_DIST_CHECK") else count


def noise(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random numbers of all sizes and signs; no NaN, which would not equal itself."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8, generator=generator).view(dtype)
    return torch.where(bits.isfinite(), bits, 1) if dtype.is_floating_point else bits


def on_pe(tensor: torch.Tensor, pe: int) -> torch.Tensor:
    """A copy of the symmetric ``tensor`` as it lies on ``pe``."""
    copy = torch.empty_like(tensor)
    triton_dist.get(copy, tensor, pe)
    return copy


class Launched(NamedTuple):
    kernel: str
    programs: int


@contextmanager
def launches() -> Iterator[list[Launched]]:
    """The launches of the block, in a CPU world."""
    from triton_dist.cpu.executor import Executor

    found: list[Launched] = []
    run = Executor.run

    def noted(self: Executor, grid: Sequence[Any], *more: Any) -> None:
        found.append(Launched(self.fn.__name__, prod(grid)))
        run(self, grid, *more)

    with mock.patch.object(Executor, "run", noted):
        yield found


def place(mark: str) -> str:
    """A pattern for where a line of the calling file is that ends with ``# HERE`` and the mark, as reports name it."""
    file = Path(sys._getframe(1).f_code.co_filename)
    lines = file.read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.endswith(f"# HERE {mark}"))
    return rf"checks/{re.escape(file.name)}:{number}\b"
