"""Worlds: the contract between the public functions and what carries PEs and their symmetric memory."""

from triton_dist.world.base import World
from triton_dist.world.kind import interprets, kind

__all__ = ["World", "interprets", "kind"]
