"""Signals: 64-bit words in symmetric memory that tell a PE that something has happened.

A signal is a word of a ``torch.int64`` or ``torch.uint64`` symmetric tensor. Comparisons are those of ``uint64_t``.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist._C.op_table import Cmp, Op, SignalUpdate, ThreadScope
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import Integer, Pointer, Scope

__all__ = ["putmem_signal", "putmem_signal_nbi", "signal_fetch", "signal_op", "signal_wait_until"]


def _put_signal(
    op: Op,
    dst: Any,
    src: Any,
    nbytes: Any,
    sig_addr: Any,
    signal: Any,
    sig_op: Any,
    pe: Any,
    scope: Any,
    semantic: Any,
) -> None:
    emit(
        semantic,
        op,
        dst=_check.pointer(op.name, "dst", dst),
        src=_check.pointer(op.name, "src", src),
        nbytes=_check.byte_count(op.name, "nbytes", nbytes, semantic),
        sig_addr=_check.signal_pointer(op.name, "sig_addr", sig_addr),
        signal=_check.word(op.name, "signal", signal, semantic),
        sig_op=_check.constant(op.name, "sig_op", sig_op, SignalUpdate),
        pe=_check.pe_number(op.name, "pe", pe, semantic),
        scope=_check.choice(op.name, "scope", scope, ThreadScope),
    )


@builtin
def putmem_signal(
    dst: Pointer,
    src: Pointer,
    nbytes: Integer,
    sig_addr: Pointer,
    signal: Integer,
    sig_op: tl.constexpr,
    pe: Integer,
    scope: Scope = "block",
    _semantic: Any = None,
) -> None:
    """Copy bytes to PE ``pe``, then update its signal: who sees the signal sees the data.

    What the program wrote before, locally or through ``symm_at``, is visible then, too.

    Args:
        dst: scalar pointer into the symmetric heap (any element type).
        src: scalar pointer to memory of this PE.
        nbytes: size in bytes.
        sig_addr: scalar pointer to a 64-bit signal in the symmetric heap.
        signal: the 64-bit value to set or add.
        sig_op: ``SIGNAL_SET`` or ``SIGNAL_ADD``.
        pe: the target PE.
        scope: which threads copy: ``"block"``, ``"warp"`` or ``"thread"``.

    OpenSHMEM 1.5, 9.8.3.
    """
    _put_signal(op_table.PUTMEM_SIGNAL, dst, src, nbytes, sig_addr, signal, sig_op, pe, scope, _semantic)


@builtin
def putmem_signal_nbi(
    dst: Pointer,
    src: Pointer,
    nbytes: Integer,
    sig_addr: Pointer,
    signal: Integer,
    sig_op: tl.constexpr,
    pe: Integer,
    scope: Scope = "block",
    _semantic: Any = None,
) -> None:
    """As ``putmem_signal``, but ``src`` must not be written before ``quiet``. OpenSHMEM 1.5, 9.8.4."""
    _put_signal(op_table.PUTMEM_SIGNAL_NBI, dst, src, nbytes, sig_addr, signal, sig_op, pe, scope, _semantic)


@builtin
def signal_op(sig_addr: Pointer, signal: Integer, sig_op: tl.constexpr, pe: Integer, _semantic: Any = None) -> None:
    """Update a signal on PE ``pe``, once per program.

    Who sees the updated signal sees what the program wrote before, locally or through ``symm_at``. Put a ``fence``
    between a ``putmem`` and the signal for it, or use ``putmem_signal``.

    Args:
        sig_addr: scalar pointer to a 64-bit signal in the symmetric heap.
        signal: the 64-bit value to set or add.
        sig_op: ``SIGNAL_SET`` or ``SIGNAL_ADD``.
        pe: the target PE.

    NVSHMEM's ``nvshmemx_signal_op``.
    """
    op = "signal_op"
    emit(
        _semantic,
        op_table.SIGNAL_OP,
        sig_addr=_check.signal_pointer(op, "sig_addr", sig_addr),
        signal=_check.word(op, "signal", signal, _semantic),
        sig_op=_check.constant(op, "sig_op", sig_op, SignalUpdate),
        pe=_check.pe_number(op, "pe", pe, _semantic),
    )


@builtin
def signal_fetch(sig_addr: Pointer, _semantic: Any = None) -> tl.tensor:
    """The value of this PE's signal at ``sig_addr``; later loads see what its signaller had published.

    OpenSHMEM 1.5, 9.8.5.
    """
    sig_addr = _check.signal_pointer("signal_fetch", "sig_addr", sig_addr)
    return emit(_semantic, op_table.SIGNAL_FETCH, sig_addr=sig_addr, result=sig_addr.type.element_ty)


@builtin
def signal_wait_until(sig_addr: Pointer, cmp: tl.constexpr, cmp_value: Integer, _semantic: Any = None) -> tl.tensor:
    """Wait until this PE's signal at ``sig_addr`` compares true with ``cmp_value``.

    When it returns, every load of the program sees what the signaller had published. A flag that only grows is awaited
    with ``CMP_GE``, not ``CMP_EQ``: it may have moved on.

    Args:
        sig_addr: scalar pointer to a 64-bit signal of this PE's symmetric heap.
        cmp: ``CMP_EQ``, ``CMP_NE``, ``CMP_GT``, ``CMP_GE``, ``CMP_LT`` or ``CMP_LE``.
        cmp_value: the 64-bit value to compare with.

    Returns:
        The value that ended the wait, a scalar of the signal's type. It is also the token of the wait: inside a loop
        with ``num_stages > 1``, pass it to ``consume_token`` for the pointers whose loads the wait protects.

    OpenSHMEM 1.5, 9.10.15.
    """
    op = "signal_wait_until"
    sig_addr = _check.signal_pointer(op, "sig_addr", sig_addr)
    return emit(
        _semantic,
        op_table.SIGNAL_WAIT_UNTIL,
        sig_addr=sig_addr,
        cmp=_check.constant(op, "cmp", cmp, Cmp),
        cmp_value=_check.word(op, "cmp_value", cmp_value, _semantic),
        result=sig_addr.type.element_ty,
    )
