"""Triton-distributed's own operations, in terms of OpenSHMEM's: ``rank``, ``num_ranks``, ``wait``, ``notify``.

For kernels that come from there (docs/migrating.md). ``symm_at`` and ``consume_token`` have the same name here.
"""

from __future__ import annotations

import enum
from typing import Any, Literal

import triton.language as tl

from triton_dist._C.op_table import MemScope, Sem, SignalUpdate
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._types import AtomicScope, Integer, Pointer, Semantics
from triton_dist.language.constants import CMP_EQ, SIGNAL_ADD, SIGNAL_SET
from triton_dist.language.point_to_point import wait_until, wait_until_all
from triton_dist.language.query import my_pe, n_pes
from triton_dist.language.signal import signal_op

__all__ = ["notify", "num_ranks", "rank", "wait"]


class _CommScope(enum.IntEnum):
    GPU = 0
    INTRA_NODE = 1
    INTER_NODE = 2


@builtin
def rank(axis: int | tl.constexpr = -1, _semantic: Any = None) -> tl.tensor:
    """``my_pe()``. There is one axis, of all PEs."""
    _one_axis("rank", axis)
    return my_pe(_semantic=_semantic)


@builtin
def num_ranks(axis: int | tl.constexpr = -1, _semantic: Any = None) -> tl.tensor:
    """``n_pes()``. There is one axis, of all PEs."""
    _one_axis("num_ranks", axis)
    return n_pes(_semantic=_semantic)


@builtin
def wait(
    barrierPtrs: Pointer,
    numBarriers: Integer,
    scope: AtomicScope,
    semantic: Semantics,
    waitValue: Integer = 1,
    _semantic: Any = None,
) -> tl.tensor:
    """Wait until each of a row of words holds ``waitValue``, and return a token for ``consume_token``.

    The words may be any memory that this GPU can load: symmetric or not, its own or a peer's through ``symm_at``. When
    it returns, every load of the program sees what those who wrote the words had published before.

    Args:
        barrierPtrs: scalar pointer to the first of the words, which have 32 or 64 bits.
        numBarriers: how many words there are.
        scope: "cta", "gpu" or "sys"; the wait is always good for "sys".
        semantic: "acquire" as a rule, and always done.
        waitValue: what all of them are to hold, exactly.
    """
    words = _check.pointer("wait", "barrierPtrs", barrierPtrs)
    if words.type.element_ty not in (tl.int32, tl.uint32, tl.int64, tl.uint64):
        raise TypeError(f"wait: barrierPtrs must point to words of 32 or 64 bits, got {words.type}")
    _check.choice("wait", "scope", scope, MemScope)
    _check.choice("wait", "semantic", semantic, Sem)
    if hasattr(_semantic.builder, "shmem_op"):
        return _polled(words, numBarriers, waitValue, _semantic)
    count = getattr(numBarriers, "value", numBarriers)
    if not isinstance(count, tl.tensor) and count == 1:
        return wait_until(words, CMP_EQ, waitValue, _semantic=_semantic)
    return wait_until_all(words, numBarriers, None, CMP_EQ, waitValue, _semantic=_semantic)


@builtin
def notify(
    ptr: Pointer,
    rank: Integer,
    signal: Integer = 1,
    sig_op: Literal["set", "add"] | tl.constexpr = "set",
    comm_scope: Literal["gpu", "intra_node", "inter_node"] | tl.constexpr = "inter_node",
    _semantic: Any = None,
) -> None:
    """Set, or add to, a 64-bit signal, once per program; who sees it sees what the program wrote before.

    Args:
        ptr: scalar pointer to 64-bit signals.
        rank: the PE whose signal it is.
        signal: the value to set or add.
        sig_op: "set" or "add".
        comm_scope: "intra_node" and "inter_node" are ``signal_op`` on PE ``rank``. "gpu" is an atomic on ``ptr`` as it
            stands, in any memory of this GPU, for programs of the same GPU.
    """
    ptr = _check.signal_pointer("notify", "ptr", ptr)
    sets = _check.choice("notify", "sig_op", sig_op, SignalUpdate) == SignalUpdate.SET
    if _check.choice("notify", "comm_scope", comm_scope, _CommScope) != _CommScope.GPU:
        signal_op(ptr, signal, SIGNAL_SET if sets else SIGNAL_ADD, rank, _semantic=_semantic)
        return
    value = _semantic.cast(_check.word("notify", "signal", signal, _semantic), ptr.type.element_ty)
    _semantic.debug_barrier()  # the atomic is one thread's, and it is to release the stores of all
    (_semantic.atomic_xchg if sets else _semantic.atomic_add)(ptr, value, None, "release", "gpu")


def _polled(words: tl.tensor, count: Any, value: Any, semantic: Any) -> tl.tensor:
    """The wait of the CPU world, whose ``wait_until`` is for a PE's own symmetric memory only."""
    dtype = words.type.element_ty
    expected = _check.value_of("wait", "waitValue", value, dtype, semantic).handle.data.item()
    zero = semantic.scalar_constant(0, dtype)
    for i in range(_check.byte_count("wait", "numBarriers", count, semantic).handle.data.item()):
        word = semantic.add(words, semantic.scalar_constant(i, tl.int64), sanitize_overflow=False)
        # The interpreter lets others run when a program sees again what it saw before.
        while semantic.atomic_or(word, zero, None, "acquire", "sys").handle.data.item() != expected:
            pass
    return semantic.scalar_constant(0, tl.int64)


def _one_axis(op: str, axis: Any) -> None:
    axis = getattr(axis, "value", axis)
    if isinstance(axis, (bool, tl.tensor)) or axis not in (-1, 0):
        raise ValueError(f"{op}: there is one axis, -1 or 0, got {axis!r}")
