"""Argument types of the language's functions, for type checkers. In a kernel, constants are plain Python values."""

from __future__ import annotations

from typing import Literal, TypeAlias

import triton.language as tl

__all__ = ["AtomicScope", "Integer", "Number", "Pointer", "Scope", "Semantics"]

Pointer: TypeAlias = "tl.tensor"
"""A scalar pointer (or a block of pointers, if an op's docstring says so)."""

Integer: TypeAlias = "int | tl.constexpr | tl.tensor"
"""A compile-time constant or a run-time scalar."""

Number: TypeAlias = "float | bool | tl.constexpr | tl.tensor"
"""An element's value."""

Scope: TypeAlias = "Literal['block', 'warp', 'thread'] | tl.constexpr"
"""The threads of the program that execute the op together."""

AtomicScope: TypeAlias = "Literal['cta', 'gpu', 'sys'] | tl.constexpr"
"""The observers of an atomic's order."""

Semantics: TypeAlias = "Literal['relaxed', 'acquire', 'release', 'acq_rel'] | tl.constexpr"
"""How an atomic orders the program's own accesses."""
