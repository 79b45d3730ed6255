"""What arguments of the language's functions are, to those who check types. In a kernel, constants are plain Python."""

from __future__ import annotations

from typing import Literal, TypeAlias

import triton.language as tl

__all__ = ["AtomicScope", "Integer", "Number", "Pointer", "Scope", "Semantics"]

Pointer: TypeAlias = "tl.tensor"
"""A scalar of pointer type (where an op says so, a block of them)."""

Integer: TypeAlias = "int | tl.constexpr | tl.tensor"
"""A number that is known when a kernel is compiled, or a scalar at run time."""

Number: TypeAlias = "float | bool | tl.constexpr | tl.tensor"
"""An element's value."""

Scope: TypeAlias = "Literal['block', 'warp', 'thread'] | tl.constexpr"
"""Which threads of the program act."""

AtomicScope: TypeAlias = "Literal['cta', 'gpu', 'sys'] | tl.constexpr"
"""Who observes the order of an atomic."""

Semantics: TypeAlias = "Literal['relaxed', 'acquire', 'release', 'acq_rel'] | tl.constexpr"
"""How an atomic orders the program's own accesses."""
