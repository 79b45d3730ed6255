"""Worlds: who the PEs are, how they found each other, and where their symmetric memory lies."""

from triton_dist.world.base import BrokenWorldError, Launch, World
from triton_dist.world.kind import interprets, kind

__all__ = ["BrokenWorldError", "Launch", "World", "interprets", "kind"]
