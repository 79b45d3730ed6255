"""NVSHMEM's collective host calls, made without Python's lock.

nvshmem4py keeps the lock in those of its bindings that return no status: when a PE is lost while others wait in one, no
other thread of theirs would run, and nobody could end them.
"""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["let_threads_run"]

_CALLS: dict[str, tuple[str, Any, list[Any]]] = {
    "barrier_all": ("nvshmem_barrier_all", None, []),
    "malloc": ("nvshmem_malloc", ctypes.c_void_p, [ctypes.c_size_t]),
    "free": ("nvshmem_free", None, [ctypes.c_void_p]),
    "hostlib_finalize": ("nvshmemx_hostlib_finalize", None, []),
    "team_destroy": ("nvshmem_team_destroy", None, [ctypes.c_int32]),
    "buffer_register_symmetric": (
        "nvshmemx_buffer_register_symmetric",
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    ),
    "buffer_unregister_symmetric": (
        "nvshmemx_buffer_unregister_symmetric",
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_size_t],
    ),
}


def let_threads_run(bindings: Any, *users: Any) -> None:
    """Put such calls in place of the bindings' own, also where ``users`` have taken them by name."""
    library = ctypes.CDLL("libnvshmem_host.so.3")  # the one that nvshmem4py has loaded
    for name, (symbol, result, arguments) in _CALLS.items():
        original = getattr(bindings, name)
        if getattr(original, "__module__", None) == __name__:
            continue
        call = _call(getattr(library, symbol), result, arguments)
        for module in (bindings, *users):
            if getattr(module, name, None) is original:
                setattr(module, name, call)


def _call(function: Any, result: Any, arguments: list[Any]) -> Any:
    function.restype, function.argtypes = result, arguments

    def call(*values: int) -> int | None:
        returned: int | None = function(*values)
        return (returned or 0) if result is not None else None

    return call
