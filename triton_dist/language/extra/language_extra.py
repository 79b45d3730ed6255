"""``triton_dist.language.extra.language_extra`` of Triton-distributed: threads, and atomics on single words.

The words are memory that this GPU can load from and store to: its own, or a peer's through ``symm_at``. As everywhere
here, each function acts once per program and is ordered with the accesses of all the program's threads.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.language import _check
from triton_dist.language._builtin import builtin

__all__ = [
    "__syncthreads",
    "atomic_add",
    "atomic_cas",
    "ld",
    "ld_acquire",
    "num_threads",
    "num_warps",
    "st",
    "threads_per_warp",
    "tid",
]

_INTERPRETED_WARPS = 32
"""A program of the interpreter has no threads; it has as many as the largest may have."""


@builtin
def __syncthreads(_semantic: Any = None) -> None:
    """A barrier of the program's threads. Our operations bring their own."""
    _semantic.debug_barrier()


@builtin
def tid(axis: int = 0, count: bool = False, warp_size: bool = False, _semantic: Any = None) -> tl.constexpr:
    """The index of a thread, for use in the condition of an ``if`` in a kernel decorated with ``@triton_dist.jit``.

    That decorator makes each such ``if`` a loop of the program (:mod:`triton_dist.compat.threads`), and leaves of
    ``tid`` only ``tid(count=True)``, the number of threads, where nothing in a condition bounds it, and
    ``tid(warp_size=True)``, that of a warp, where an operation acts once for each warp.
    """
    if _unwrapped(warp_size):
        return threads_per_warp(_semantic=_semantic)
    if not _unwrapped(count):
        raise ValueError("tid: only in kernels decorated with @triton_dist.jit (see docs/migrating.md)")
    return num_threads(_semantic=_semantic)


tid.is_the_index_of_a_thread = True  # type: ignore[attr-defined]


@builtin
def num_threads(_semantic: Any = None) -> tl.constexpr:
    """How many threads the program has."""
    return _constant(_num_warps(_semantic) * _warp_size(_semantic), _semantic)


@builtin
def num_warps(_semantic: Any = None) -> tl.constexpr:
    """How many warps the program has."""
    return _constant(_num_warps(_semantic), _semantic)


@builtin
def threads_per_warp(_semantic: Any = None) -> tl.constexpr:
    """How many threads a warp has."""
    return _constant(_warp_size(_semantic), _semantic)


@builtin
def ld(ptr: tl.tensor, scope: str = "gpu", semantic: str = "relaxed", _semantic: Any = None) -> tl.tensor:
    """Read a word that others write. ``semantic`` is "relaxed" or "acquire" (integers only)."""
    ptr = _check.pointer("ld", "ptr", ptr)
    if _one_of("ld", "semantic", semantic, "relaxed", "acquire") == "relaxed":
        return _semantic.load(ptr, None, None, (), "", "", "", True)
    zero = _semantic.scalar_constant(0, ptr.type.element_ty)
    return _semantic.atomic_or(ptr, zero, None, "acquire", _scope("ld", scope))


@builtin
def ld_acquire(ptr: tl.tensor, scope: str = "gpu", _semantic: Any = None) -> tl.tensor:
    """``ld`` with acquire."""
    return ld(ptr, scope, "acquire", _semantic=_semantic)


@builtin
def st(ptr: tl.tensor, val: tl.tensor, scope: str = "gpu", semantic: str = "relaxed", _semantic: Any = None) -> None:
    """Write a word that others read. ``semantic`` is "relaxed" or "release"."""
    ptr = _check.pointer("st", "ptr", ptr)
    value = _check.value_of("st", "val", val, ptr.type.element_ty, _semantic)
    sem = _one_of("st", "semantic", semantic, "relaxed", "release")
    _publish(sem, _semantic)
    _semantic.atomic_xchg(ptr, value, None, sem, _scope("st", scope))


@builtin
def atomic_add(ptr: tl.tensor, val: tl.tensor, scope: str, semantic: str, _semantic: Any = None) -> tl.tensor:
    """Add to a word; what it held."""
    ptr = _check.pointer("atomic_add", "ptr", ptr)
    value = _check.value_of("atomic_add", "val", val, ptr.type.element_ty, _semantic, wraps=True)
    sem = _atomic_sem("atomic_add", semantic)
    _publish(sem, _semantic)
    return _semantic.atomic_add(ptr, value, None, sem, _scope("atomic_add", scope))


@builtin
def atomic_cas(
    ptr: tl.tensor, cmp_val: tl.tensor, target_val: tl.tensor, scope: str, semantic: str, _semantic: Any = None
) -> tl.tensor:
    """Exchange a word if it holds ``cmp_val``; what it held."""
    ptr = _check.pointer("atomic_cas", "ptr", ptr)
    condition, value = (
        _check.value_of("atomic_cas", name, value, ptr.type.element_ty, _semantic)
        for name, value in (("cmp_val", cmp_val), ("target_val", target_val))
    )
    sem = _atomic_sem("atomic_cas", semantic)
    _publish(sem, _semantic)
    return _semantic.atomic_cas(ptr, condition, value, sem, _scope("atomic_cas", scope))


def _num_warps(semantic: Any) -> int:
    return int(getattr(semantic.builder.options, "num_warps", _INTERPRETED_WARPS))


def _warp_size(semantic: Any) -> int:
    return int(getattr(semantic.builder.options, "warp_size", 32))


def _constant(value: int, semantic: Any) -> Any:
    """The interpreter uses plain numbers for constants, since some Python operators reject a constexpr on the right."""
    return value if hasattr(semantic.builder, "shmem_op") else tl.constexpr(value)


def _publish(sem: str, semantic: Any) -> None:
    """Triton's scalar atomics run on one thread; a release is to cover the stores of all."""
    if sem in ("release", "acq_rel"):
        semantic.debug_barrier()


def _scope(op: str, scope: Any) -> str:
    return _one_of(op, "scope", scope, "cta", "gpu", "sys")


def _atomic_sem(op: str, semantic: Any) -> str:
    return _one_of(op, "semantic", semantic, "relaxed", "acquire", "release", "acq_rel")


def _one_of(op: str, name: str, value: Any, *allowed: str) -> str:
    value = _unwrapped(value)
    if value not in allowed:
        raise ValueError(f"{op}: {name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return str(value)


def _unwrapped(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value
