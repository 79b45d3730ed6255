"""Remote memory access: copies between this PE's memory and a peer's symmetric memory.

All of them are program-collective: the threads of the program copy together. Sizes are 64-bit.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit

__all__ = ["get", "getmem", "getmem_nbi", "put", "putmem", "putmem_nbi"]


def _copy(op: str, dst: Any, src: Any, nbytes: Any, pe: Any, semantic: Any) -> None:
    emit(
        semantic,
        op,
        [
            _check.pointer(op, "dst", dst),
            _check.pointer(op, "src", src),
            _check.byte_count(op, "nbytes", nbytes, semantic),
            _check.pe_number(op, "pe", pe, semantic),
        ],
    )


def _copy_elements(name: str, op: str, dst: Any, src: Any, nelems: Any, pe: Any, semantic: Any) -> None:
    dst = _check.pointer(name, "dst", dst)
    src = _check.pointer(name, "src", src)
    if dst.type.element_ty != src.type.element_ty:
        raise TypeError(
            f"{name}: dst and src must have one element type, got {dst.type.element_ty} and {src.type.element_ty}; "
            f"use {op} to copy bytes"
        )
    nbytes = _check.element_count(name, "nelems", nelems, src.type.element_ty, semantic)
    _copy(op, dst, src, nbytes, pe, semantic)


@builtin
def putmem(dst: tl.tensor, src: tl.tensor, nbytes: tl.tensor, pe: tl.tensor, _semantic: Any = None) -> None:
    """Copy ``nbytes`` bytes from ``src`` on this PE to the symmetric object ``dst`` on PE ``pe``.

    When it returns, ``src`` may be written again; the data has arrived after ``quiet`` or ``barrier_all``, and puts to
    one PE stay in order across ``fence``. What the program stored to ``src`` before is what is sent.

    Args:
        dst: scalar pointer into the symmetric heap (any element type).
        src: scalar pointer to memory of this PE, symmetric or not.
        nbytes: size in bytes.
        pe: the target PE.

    OpenSHMEM 1.5, 9.5.1.
    """
    _copy("putmem", dst, src, nbytes, pe, _semantic)


@builtin
def putmem_nbi(dst: tl.tensor, src: tl.tensor, nbytes: tl.tensor, pe: tl.tensor, _semantic: Any = None) -> None:
    """Start the copy that ``putmem`` makes. ``src`` must not be written before ``quiet``. OpenSHMEM 1.5, 9.6.1."""
    _copy("putmem_nbi", dst, src, nbytes, pe, _semantic)


@builtin
def getmem(dst: tl.tensor, src: tl.tensor, nbytes: tl.tensor, pe: tl.tensor, _semantic: Any = None) -> None:
    """Copy ``nbytes`` bytes from the symmetric object ``src`` on PE ``pe`` to ``dst`` on this PE.

    When it returns, the whole program may load the data from ``dst``. (In a loop with ``num_stages > 1`` Triton may
    issue loads of later iterations early: keep such loads out of the loop that gets the data.)

    Args:
        dst: scalar pointer to memory of this PE, symmetric or not.
        src: scalar pointer into the symmetric heap (any element type).
        nbytes: size in bytes.
        pe: the source PE.

    OpenSHMEM 1.5, 9.5.4.
    """
    _copy("getmem", dst, src, nbytes, pe, _semantic)


@builtin
def getmem_nbi(dst: tl.tensor, src: tl.tensor, nbytes: tl.tensor, pe: tl.tensor, _semantic: Any = None) -> None:
    """Start the copy that ``getmem`` makes; ``dst`` holds the data after ``quiet``. OpenSHMEM 1.5, 9.6.2."""
    _copy("getmem_nbi", dst, src, nbytes, pe, _semantic)


@builtin
def put(dst: tl.tensor, src: tl.tensor, nelems: tl.tensor, pe: tl.tensor, _semantic: Any = None) -> None:
    """``putmem`` of ``nelems`` elements of the pointers' common element type. OpenSHMEM 1.5, 9.5.1."""
    _copy_elements("put", "putmem", dst, src, nelems, pe, _semantic)


@builtin
def get(dst: tl.tensor, src: tl.tensor, nelems: tl.tensor, pe: tl.tensor, _semantic: Any = None) -> None:
    """``getmem`` of ``nelems`` elements of the pointers' common element type. OpenSHMEM 1.5, 9.5.4."""
    _copy_elements("get", "getmem", dst, src, nelems, pe, _semantic)
