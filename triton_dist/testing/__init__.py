"""Helpers for tests, notebooks and demonstrations: start PEs, of a script or of a function, and see what they did."""

from triton_dist.testing.launch import PEResult, Result, launch
from triton_dist.testing.spawn import PEError, spawn

__all__ = ["PEError", "PEResult", "Result", "launch", "spawn"]
