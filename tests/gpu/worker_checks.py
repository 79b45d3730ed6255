"""How a worker runs its checks, which are functions of the world."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

import triton_dist

__all__ = ["matrix", "run_checks"]


def matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    """Small integers of bfloat16 on the GPU, of which GEMMs and sums over PEs are exact."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randint(-1, 2, (rows, columns), generator=generator, device="cuda").to(torch.bfloat16)


def run_checks(
    world: Any, checks: Iterable[Callable[[Any], None]], wanted: Collection[str] = (), seconds: float | None = None
) -> None:
    """Run the checks one after the other, or those whose names are ``wanted``; PE 0 prints a line for each.

    Args:
        seconds: a check that takes longer ends this PE, which prints where it was.
    """
    for check in checks:
        if wanted and check.__name__ not in wanted:
            continue
        begin = time.monotonic()
        if seconds is not None:
            faulthandler.dump_traceback_later(seconds, exit=True)
        check(world)
        if seconds is not None:
            faulthandler.cancel_dump_traceback_later()
        triton_dist.barrier_all()
        if world.pe == 0:
            print(f"PASS {check.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
