"""Ops that a program may spin on: one that reads again and again what was there before lets others run."""

from __future__ import annotations

from triton_dist.cpu.program import running
from triton_dist.cpu.world import CpuWorld

__all__ = ["looked", "moved"]


def looked(world: CpuWorld, op: str, place: tuple[int, int], seen: object) -> None:
    """The program has looked at ``place``, a PE and an offset in its heap, and seen a number, or the bytes there."""

    def describe() -> str:
        stays = seen[:16].hex(" ") if isinstance(seen, bytes) else seen
        return f"a loop around {op}: {world.describe_place(*place)}, which stays {stays}"

    running().poll((op, place), seen if isinstance(seen, bytes) else repr(seen).encode(), describe)


def moved() -> None:
    """The program has done something that may bring it, or another one, forward."""
    running().steps += 1
