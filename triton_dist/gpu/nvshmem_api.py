"""The one seam to nvshmem4py: it is imported, changed and started here, and the world hands its objects on.

NVSHMEM's collective host calls are made without Python's lock. nvshmem4py keeps the lock in those of its bindings that
return no status: when a PE is lost while others wait in one, no other thread of theirs would run, and none could end
them.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

from triton_dist.bootstrap.exit_handlers import skip_exit_handlers
from triton_dist.bootstrap.launch import Launch
from triton_dist.process_state import of_process

__all__ = ["INITIALIZED", "leave", "load", "start"]

INITIALIZED = 2
"""NVSHMEM_STATUS_IS_INITIALIZED of ``nvshmemx_init_status()``. Greater values mean initialized, too."""

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


class Starts:
    """How often NVSHMEM was started. One for each process: what a start registers for the process's exit stays."""

    def __init__(self) -> None:
        self.number = 0


def load() -> tuple[Any, Any]:
    """``nvshmem.core`` and ``nvshmem.bindings``, with calls that let threads run.

    Raises:
        ImportError: they are not installed; the message has the pip command.
    """
    try:
        import nvshmem.bindings
        import nvshmem.core
        import nvshmem.core.nvshmem_types
    except ImportError as error:
        cuda = (torch.version.cuda or "13").split(".")[0]
        raise ImportError(
            f"the GPU world needs nvshmem4py ({error}): pip install nvshmem4py-cu{cuda}, or set TRITON_DIST_WORLD=cpu"
        ) from error
    nvshmem.core.get_version()  # loads the library
    _let_threads_run(nvshmem.bindings, nvshmem.bindings.nvshmem, nvshmem.core.nvshmem_types)
    return nvshmem.core, nvshmem.bindings


def start(nvshmem: Any, bindings: Any, launch: Launch, device: torch.device, capacity: int) -> None:
    """Begin NVSHMEM with the PEs of a launch, and a symmetric heap of ``capacity`` bytes. *Collective.*"""
    import numpy
    from cuda.core import Device

    os.environ["NVSHMEM_SYMMETRIC_SIZE"] = str(capacity)
    gpu = Device(device.index)
    gpu.set_current()
    unique_id = nvshmem.get_unique_id(empty=launch.pe != 0)
    if launch.store is not None:
        if launch.pe == 0:
            launch.store.set("nvshmem/0", unique_id._data.tobytes())
        launch.await_keys(["nvshmem/0"], "start NVSHMEM")
        data = numpy.frombuffer(launch.store.get("nvshmem/0"), dtype=bindings.uniqueid_dtype).copy()
        unique_id = bindings.uniqueid.from_data(data)
    of_process(Starts).number += 1
    nvshmem.init(device=gpu, uid=unique_id, rank=launch.pe, nranks=launch.n_pes, initializer_method="uid")


def leave() -> None:
    """NVSHMEM will not be finalized: this process ends with it, since finalizing would wait for a peer that is lost.

    Each start has registered ``bootstrap_finalize`` with atexit(3), which unloads the bootstrap's library if NVSHMEM is
    still initialized, and is called once more then: a second call would jump to where that library was (seen with
    3.4.5).
    """
    if of_process(Starts).number > 1:
        skip_exit_handlers()


def _let_threads_run(bindings: Any, *users: Any) -> None:
    """Put calls without the lock in place of the bindings' own, also where ``users`` have taken them by name."""
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
