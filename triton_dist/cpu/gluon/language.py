"""What a Gluon kernel calls here in place of Gluon's functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl

from triton_dist.cpu.gluon import assembly, barriers, partition, shared_memory, tensor_cores, tma
from triton_dist.cpu.gluon.partition import constant
from triton_dist.triton_api import gluon, interpreter

__all__ = ["instead_of"]


def instead_of(function: Any) -> Any:
    """What to call where a kernel calls ``function``: that itself, unless it is one of Gluon's."""
    return _table().get(id(function), function)


@functools.cache
def _table() -> dict[int, Callable[..., Any]]:
    """By the identity of Gluon's functions: the hash of a jitted one is that of all its source.

    Those that are Triton's, too, are the interpreter's; what lacks is an error.
    """
    gluon.give_blocks_a_layout()
    return {
        id(function.itself): _OURS[function.module].get(function.name)
        or functools.partial(_of_triton if function.is_tritons else _lacks, function.name)
        for function in gluon.functions()
    }


def _of_triton(name: str, *args: Any, **kwargs: Any) -> Any:
    """Looked up for each call: a kernel's language is patched while it runs."""
    return getattr(tl if hasattr(tl, name) else tl.core, name)(*args, **kwargs)


def _lacks(name: str, *_: Any, **__: Any) -> Any:
    raise NotImplementedError(f"the CPU world has no {name} of Gluon")


# ---- of gluon.language


def _arange(start: Any, end: Any, layout: Any = None) -> tl.tensor:
    return tl.arange(start, end)


def _full(shape: Any, value: Any, dtype: Any, layout: Any = None) -> tl.tensor:
    return tl.full([int(constant(size)) for size in constant(shape)], value, constant(dtype))


def _zeros(shape: Any, dtype: Any, layout: Any = None) -> tl.tensor:
    return _full(shape, 0, dtype)


def _same(value: Any, layout: Any, assert_trivial: Any = False) -> Any:
    return value


def _num_ctas() -> int:
    return 1


def _to_tensor(value: Any) -> Any:
    return interpreter.semantic().to_tensor(value)


def _store(*args: Any, **kwargs: Any) -> None:
    partition.partition().has_fenced = False
    tl.store(*args, **kwargs)


def _atomic(name: str, *args: Any, sem: Any = None, **kwargs: Any) -> Any:
    """A relaxed one behind a fence releases what is in front of that (PTX ISA, release patterns)."""
    if constant(sem) == "relaxed" and partition.partition().has_fenced:
        sem = "release"
    return getattr(tl, name)(*args, sem=sem, **kwargs)


_ATOMICS = [f"atomic_{what}" for what in ("add", "and", "cas", "max", "min", "or", "xchg", "xor")]
_LANGUAGE: dict[str, Callable[..., Any]] = {
    "allocate_shared_memory": shared_memory.allocate_shared_memory,
    "arange": _arange,
    "barrier": partition.barrier,
    "convert_layout": _same,
    "full": _full,
    "inline_asm_elementwise": assembly.inline_asm_elementwise,
    "num_ctas": _num_ctas,
    "num_warps": partition.num_warps,
    "set_auto_layout": _same,
    "store": _store,
    "to_tensor": _to_tensor,
    "warp_specialize": partition.warp_specialize,
    "zeros": _zeros,
    **{name: functools.partial(_atomic, name) for name in _ATOMICS},
}

# ---- of gluon.language.nvidia.hopper

_TMA: dict[str, Callable[..., Any]] = {
    "async_copy_global_to_shared": tma.async_load,
    "async_copy_shared_to_global": tma.async_store,
    "async_load": tma.async_load,
    "async_store": tma.async_store,
    "store_wait": tma.store_wait,
}
_BARRIERS: dict[str, Callable[..., Any]] = {
    "arrive": barriers.arrive,
    "expect": barriers.expect,
    "init": barriers.init,
    "invalidate": barriers.invalidate,
    "wait": barriers.wait,
}
_HOPPER: dict[str, Callable[..., Any]] = {
    "fence_async_shared": shared_memory.fence_async_shared,
    "warpgroup_mma": tensor_cores.warpgroup_mma,
    "warpgroup_mma_init": tensor_cores.warpgroup_mma_init,
    "warpgroup_mma_wait": tensor_cores.warpgroup_mma_wait,
}
_METHODS: dict[str, Callable[..., Any]] = {
    name: getattr(shared_memory.Blocks, name)
    for name in ("index", "load", "permute", "reinterpret", "_reinterpret", "store")
}
_OURS = {
    "language": _LANGUAGE,
    "tma": _TMA,
    "mbarrier": _BARRIERS,
    "hopper": _HOPPER,
    "shared_memory": _METHODS,
}
