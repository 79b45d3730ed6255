"""Who am I, how many are we, and where is a peer's copy of an object."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit

__all__ = ["my_pe", "n_pes", "symm_at"]


@builtin
def my_pe(_semantic: Any = None) -> tl.tensor:
    """Number of the calling PE, an int32 in ``[0, n_pes())``. OpenSHMEM 1.5, 9.1.3."""
    return emit(_semantic, "my_pe", result=tl.int32)


@builtin
def n_pes(_semantic: Any = None) -> tl.tensor:
    """Number of PEs in the world, an int32. OpenSHMEM 1.5, 9.1.4."""
    return emit(_semantic, "n_pes", result=tl.int32)


@builtin
def symm_at(ptr: tl.tensor, pe: tl.tensor, _semantic: Any = None) -> tl.tensor:
    """Where PE ``pe`` keeps its copy of the symmetric object at ``ptr``: the device's ``shmem_ptr``.

    The result has ``ptr``'s type and alignment and may be used in ``tl.load``, ``tl.store``, ``tl.atomic_*`` and
    pointer arithmetic. It is null when ``pe`` cannot be reached by load and store. Stores through it are ordered
    like the program's own: ``signal_op`` and the other releasing ops publish them.

    Args:
        ptr: a scalar pointer into the symmetric heap.
        pe: an integer in ``[0, n_pes())``.

    OpenSHMEM 1.5, 9.4.3.
    """
    ptr = _check.pointer("symm_at", "ptr", ptr)
    pe = _check.pe_number("symm_at", "pe", pe, _semantic)
    distance = emit(_semantic, "symm_offset", [ptr, pe], result=tl.int64)
    here = _semantic.bitcast(ptr, tl.pointer_type(tl.int8, ptr.type.address_space))
    there = _semantic.add(here, distance, sanitize_overflow=False)
    return _semantic.bitcast(there, ptr.type)
