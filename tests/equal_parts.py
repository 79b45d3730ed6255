"""Schedules as they were when many GEMMs were measured, before docs/decisions/0143."""

from __future__ import annotations

from triton_dist.kernels.gemm.schedule import MAX_PARTS, MIN_STEPS, Round

__all__ = ["equal_parts"]


def equal_parts(tiles: int, k_steps: int, programs: int) -> Round:
    """In place of ``schedule._last_round``."""
    return Round(tiles, max(1, min(programs // tiles, k_steps // MIN_STEPS, MAX_PARTS)))
