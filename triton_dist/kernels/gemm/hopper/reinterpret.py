"""Shared memory seen as blocks of another dtype, shape and layout: a method whose name Triton 3.9 changed."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["reinterpret"]

_RENAMED = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))


@gluon.jit
def reinterpret(blocks, dtype: gl.constexpr, shape: gl.constexpr, layout: gl.constexpr):
    if _RENAMED:
        return blocks.reinterpret(dtype, shape, layout)
    else:
        return blocks._reinterpret(dtype, shape, layout)
