"""Shared memory seen as blocks of another dtype, shape and layout: a method whose name Triton 3.9 changed."""

from __future__ import annotations

from triton.experimental.gluon import language as gl

__all__ = ["reinterpret"]

_NAME = "reinterpret" if hasattr(gl.shared_memory_descriptor, "reinterpret") else "_reinterpret"

reinterpret = getattr(gl.shared_memory_descriptor, _NAME)
"""``reinterpret(blocks, dtype, shape, layout)``"""
