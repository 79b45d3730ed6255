"""Remote memory access: copies between this PE's memory and a peer's symmetric memory.

Sizes are 64-bit. ``scope`` says which threads of the program do the work: all together (``"block"``, the default), its
first warp (``"warp"``), or one thread (``"thread"``). Whatever it is, the op acts once per program, ordered with the
accesses of all of its threads.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist._C.op_table import Op, ThreadScope
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import Integer, Number, Pointer, Scope

__all__ = [
    "copy",
    "g",
    "get",
    "get_nbi",
    "getmem",
    "getmem_nbi",
    "ibget",
    "ibput",
    "iget",
    "iput",
    "p",
    "put",
    "put_nbi",
    "putmem",
    "putmem_nbi",
]


def _copy(op: Op, dst: Any, src: Any, nbytes: Any, pe: Any, scope: Any, semantic: Any) -> None:
    emit(
        semantic,
        op,
        dst=_check.pointer(op.name, "dst", dst),
        src=_check.pointer(op.name, "src", src),
        nbytes=_check.byte_count(op.name, "nbytes", nbytes, semantic),
        pe=_check.pe_number(op.name, "pe", pe, semantic),
        scope=_check.choice(op.name, "scope", scope, ThreadScope),
    )


def _same_elements(op: str, dst: Any, src: Any, bytewise: str) -> tl.dtype:
    dst = _check.pointer(op, "dst", dst)
    src = _check.pointer(op, "src", src)
    if dst.type.element_ty != src.type.element_ty:
        raise TypeError(
            f"{op}: dst and src must have one element type, got {dst.type.element_ty} and {src.type.element_ty}"
            f"{bytewise}"
        )
    return src.type.element_ty


def _copy_elements(name: str, op: Op, dst: Any, src: Any, nelems: Any, pe: Any, scope: Any, semantic: Any) -> None:
    dtype = _same_elements(name, dst, src, f"; use {op.name} to copy bytes")
    nbytes = _check.element_count(name, "nelems", nelems, dtype, semantic)
    _copy(op, dst, src, nbytes, pe, scope, semantic)


@builtin
def putmem(
    dst: Pointer, src: Pointer, nbytes: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Copy ``nbytes`` bytes from ``src`` on this PE to the symmetric object ``dst`` on PE ``pe``.

    When it returns, ``src`` may be written again; the data has arrived after ``quiet`` or ``barrier_all``, and puts to
    one PE stay in order across ``fence``. The program's earlier stores to ``src`` are part of the data. Its other
    stores are not ordered with the data.

    Args:
        dst: scalar pointer into the symmetric heap (any element type).
        src: scalar pointer to memory of this PE, symmetric or not.
        nbytes: size in bytes.
        pe: the target PE.
        scope: ``"block"``, ``"warp"`` or ``"thread"``.

    OpenSHMEM 1.5, 9.6.1.1.
    """
    _copy(op_table.PUTMEM, dst, src, nbytes, pe, scope, _semantic)


@builtin
def putmem_nbi(
    dst: Pointer, src: Pointer, nbytes: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Start the copy that ``putmem`` makes. ``src`` must not be written before ``quiet``.

    Transport ``p2p`` makes the copy before it returns: the program computes nothing meanwhile. OpenSHMEM 1.5, 9.6.2.1.
    """
    _copy(op_table.PUTMEM_NBI, dst, src, nbytes, pe, scope, _semantic)


@builtin
def getmem(
    dst: Pointer, src: Pointer, nbytes: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Copy ``nbytes`` bytes from the symmetric object ``src`` on PE ``pe`` to ``dst`` on this PE.

    When it returns, the whole program may load the data from ``dst``. (In a loop with ``num_stages > 1`` Triton may
    issue loads of later iterations early: keep such loads out of the loop that gets the data.)

    Args:
        dst: scalar pointer to memory of this PE, symmetric or not.
        src: scalar pointer into the symmetric heap (any element type).
        nbytes: size in bytes.
        pe: the source PE.
        scope: ``"block"``, ``"warp"`` or ``"thread"``.

    OpenSHMEM 1.5, 9.6.1.4.
    """
    _copy(op_table.GETMEM, dst, src, nbytes, pe, scope, _semantic)


@builtin
def getmem_nbi(
    dst: Pointer, src: Pointer, nbytes: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Start the copy that ``getmem`` makes; ``dst`` holds the data after ``quiet``.

    Transport ``p2p`` makes the copy before it returns: the program computes nothing meanwhile. OpenSHMEM 1.5, 9.6.2.2.
    """
    _copy(op_table.GETMEM_NBI, dst, src, nbytes, pe, scope, _semantic)


@builtin
def put(
    dst: Pointer, src: Pointer, nelems: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """``putmem`` of ``nelems`` elements of the pointers' common element type. OpenSHMEM 1.5, 9.6.1.1."""
    _copy_elements("put", op_table.PUTMEM, dst, src, nelems, pe, scope, _semantic)


@builtin
def put_nbi(
    dst: Pointer, src: Pointer, nelems: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """``putmem_nbi`` of ``nelems`` elements of the pointers' common element type. OpenSHMEM 1.5, 9.6.2.1."""
    _copy_elements("put_nbi", op_table.PUTMEM_NBI, dst, src, nelems, pe, scope, _semantic)


@builtin
def get(
    dst: Pointer, src: Pointer, nelems: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """``getmem`` of ``nelems`` elements of the pointers' common element type. OpenSHMEM 1.5, 9.6.1.4."""
    _copy_elements("get", op_table.GETMEM, dst, src, nelems, pe, scope, _semantic)


@builtin
def get_nbi(
    dst: Pointer, src: Pointer, nelems: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """``getmem_nbi`` of ``nelems`` elements of the pointers' common element type. OpenSHMEM 1.5, 9.6.2.2."""
    _copy_elements("get_nbi", op_table.GETMEM_NBI, dst, src, nelems, pe, scope, _semantic)


@builtin
def copy(
    dst: Pointer, src: Pointer, nelems: Integer, pe: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Copy ``nelems`` elements to PE ``pe`` and wait until they are there: ``put``, then ``quiet``."""
    _copy_elements("copy", op_table.PUTMEM, dst, src, nelems, pe, scope, _semantic)
    emit(_semantic, op_table.QUIET)


def _strided(
    op: Op, dst: Any, src: Any, dst_stride: Any, src_stride: Any, pe: Any, scope: Any, semantic: Any, **counts: Any
) -> None:
    """``counts``: the op's ``nelems``, or its ``bsize`` and ``nblocks``."""
    dtype = _same_elements(op.name, dst, src, "")
    if dtype != _moved(dtype):
        dst, src = (_pointing_to(_moved(dtype), ptr, semantic) for ptr in (dst, src))
    emit(
        semantic,
        op,
        dst=dst,
        src=src,
        dst_stride=_check.stride(op.name, "dst_stride", dst_stride, semantic),
        src_stride=_check.stride(op.name, "src_stride", src_stride, semantic),
        **{name: _check.byte_count(op.name, name, count, semantic) for name, count in counts.items()},
        pe=_check.pe_number(op.name, "pe", pe, semantic),
        type=_check.element_type(op.name, "dst", dst),
        scope=_check.choice(op.name, "scope", scope, ThreadScope),
    )


@builtin
def iput(
    dst: Pointer,
    src: Pointer,
    dst_stride: Integer,
    src_stride: Integer,
    nelems: Integer,
    pe: Integer,
    scope: Scope = "block",
    _semantic: Any = None,
) -> None:
    """Copy ``nelems`` elements, ``src_stride`` apart here, to PE ``pe``, ``dst_stride`` apart there.

    Strides are in elements. Otherwise as ``put``. OpenSHMEM 1.5, 9.6.1.3.
    """
    _strided(op_table.IPUT, dst, src, dst_stride, src_stride, pe, scope, _semantic, nelems=nelems)


@builtin
def iget(
    dst: Pointer,
    src: Pointer,
    dst_stride: Integer,
    src_stride: Integer,
    nelems: Integer,
    pe: Integer,
    scope: Scope = "block",
    _semantic: Any = None,
) -> None:
    """Copy ``nelems`` elements, ``src_stride`` apart on PE ``pe``, to ``dst``, ``dst_stride`` apart here.

    Strides are in elements. Otherwise as ``get``. OpenSHMEM 1.5, 9.6.1.6.
    """
    _strided(op_table.IGET, dst, src, dst_stride, src_stride, pe, scope, _semantic, nelems=nelems)


@builtin
def ibput(
    dst: Pointer,
    src: Pointer,
    dst_stride: Integer,
    src_stride: Integer,
    bsize: Integer,
    nblocks: Integer,
    pe: Integer,
    scope: Scope = "block",
    _semantic: Any = None,
) -> None:
    """Copy ``nblocks`` blocks of ``bsize`` elements, ``src_stride`` apart, to PE ``pe``, ``dst_stride`` apart there.

    A tile of a matrix in one call: a block is a row of the tile, and a stride the length of a row of the matrix.
    Transport ``p2p`` moves 16 bytes at a time where both addresses and, in bytes, both strides and the blocks are
    multiples of 16. The other transports put one block after the other. Otherwise as ``put``.

    Args:
        dst: scalar pointer into the symmetric heap.
        src: scalar pointer to memory of this PE, symmetric or not, of the same element type.
        dst_stride: elements from the first of a block to the first of the next in ``dst``, at least ``bsize``, or at
            most ``-bsize``.
        src_stride: the same in ``src``, where blocks may overlap.
        bsize: elements of a block.
        nblocks: number of blocks.
        pe: the target PE.
        scope: ``"block"``, ``"warp"`` or ``"thread"``.

    OpenSHMEM 1.6, 9.6.1.4.
    """
    counts = {"bsize": bsize, "nblocks": nblocks}
    _strided(op_table.IBPUT, dst, src, dst_stride, src_stride, pe, scope, _semantic, **counts)


@builtin
def ibget(
    dst: Pointer,
    src: Pointer,
    dst_stride: Integer,
    src_stride: Integer,
    bsize: Integer,
    nblocks: Integer,
    pe: Integer,
    scope: Scope = "block",
    _semantic: Any = None,
) -> None:
    """Copy ``nblocks`` blocks of ``bsize`` elements, ``src_stride`` apart on PE ``pe``, to ``dst`` on this PE.

    Arguments as ``ibput``'s, but ``src`` is the symmetric one. Otherwise as ``get``. OpenSHMEM 1.6, 9.6.1.8.
    """
    counts = {"bsize": bsize, "nblocks": nblocks}
    _strided(op_table.IBGET, dst, src, dst_stride, src_stride, pe, scope, _semantic, **counts)


def _bits(dtype: tl.dtype) -> tl.dtype:
    """The routine's register type for ``dtype``. C passes half types as structs, so they are passed as 16 bits.

    An int1 is a byte in memory, 0 or 1.
    """
    if dtype.is_bool():
        return tl.uint8
    return tl.uint16 if dtype in (tl.float16, tl.bfloat16) else dtype


def _moved(dtype: tl.dtype) -> tl.dtype:
    """An element type of the size of ``dtype`` that the library has routines for."""
    return tl.uint8 if dtype.is_bool() or dtype.is_fp8() else dtype


def _pointing_to(dtype: tl.dtype, ptr: Pointer, semantic: Any) -> tl.tensor:
    return semantic.cast(ptr, tl.pointer_type(dtype, ptr.type.address_space))


@builtin
def p(dst: Pointer, value: Number, pe: Integer, _semantic: Any = None) -> None:
    """Write one element to the symmetric object ``dst`` on PE ``pe``.

    It has arrived after ``quiet`` or ``barrier_all``. It orders nothing: a program that sees the element need not see
    this program's earlier stores and puts. A flag is raised with ``signal_op`` or ``atomic_set``, or with ``p``
    behind a ``fence``.

    Args:
        dst: scalar pointer into the symmetric heap.
        value: a number, or a scalar of a type that fits the pointer's.
        pe: the target PE.

    OpenSHMEM 1.5, 9.6.1.2.
    """
    dst = _check.pointer("p", "dst", dst, "for one value per element use dl.store")
    dtype = dst.type.element_ty
    value = _check.value_of("p", "value", value, dtype, _semantic)
    value = _semantic.cast(value, tl.uint8) if dtype.is_bool() else _semantic.bitcast(value, _bits(dtype))
    dst = _pointing_to(_bits(dtype), dst, _semantic)
    kind = _check.element_type("p", "dst", dst)
    emit(_semantic, op_table.P, dst=dst, value=value, pe=_check.pe_number("p", "pe", pe, _semantic), type=kind)


@builtin
def g(src: Pointer, pe: Integer, _semantic: Any = None) -> tl.tensor:
    """The element of the symmetric object ``src`` on PE ``pe``, a scalar of the pointer's element type.

    OpenSHMEM 1.5, 9.6.1.5.
    """
    src = _check.pointer("g", "src", src, "for one value per element use dl.load")
    dtype = src.type.element_ty
    src = _pointing_to(_bits(dtype), src, _semantic)
    kind = _check.element_type("g", "src", src)
    pe = _check.pe_number("g", "pe", pe, _semantic)
    value = emit(_semantic, op_table.G, src=src, pe=pe, type=kind, result=_bits(dtype))
    return _semantic.cast(value, dtype) if dtype.is_bool() else _semantic.bitcast(value, dtype)
