"""Helpers for tests and demonstrations: start the PEs of a script and look at what they did."""

from triton_dist.testing.launch import PEResult, Result, launch

__all__ = ["PEResult", "Result", "launch"]
