"""Helpers for tests, notebooks and demonstrations: start PEs, of a script or of a function, and see what they did."""

from typing import Any

from triton_dist.testing.launch import PEResult, Result, launch

__all__ = ["PEError", "PEResult", "Result", "launch", "spawn"]


def __getattr__(name: str) -> Any:
    """``spawn`` and ``PEError`` call the public functions, which stand above this package: found when asked for."""
    if name in ("PEError", "spawn"):
        import importlib

        return getattr(importlib.import_module("triton_dist.spawning"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
