"""Open MPI's liboshmem in this process: its functions, its start, its progress and its end.

The library starts once in a process and serves all of its worlds. Its own end is not used: ``shmem_finalize`` of Open
MPI 4.1.4 crashes, also when the library calls it at exit. Instead PMIx is told of the end, and the process exits before
the library's exit handler runs.

Over TCP the library needs the target's help for gets and atomics, so a thread makes progress all the time. That takes
``opal_progress``: while a PE repeated ``shmem_quiet``, ``shmem_fence``, ``shmem_long_test`` or an atomic on itself,
another PE's atomic did not return (4.1.4). One lock orders the calls of all threads.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from ctypes import CDLL, byref, c_int, c_size_t, c_uint, c_ulong, c_void_p, cast
from typing import Any

from triton_dist.bootstrap.exit_handlers import skip_exit_handlers

__all__ = ["Library"]

_NAME = "liboshmem.so.40"  # of Open MPI 4 and 5
_PMIX = "libpmix.so.2"
_THREAD_MULTIPLE = 3
_PROGRESS_SECONDS = 0.001
_VARIABLE = "TRITON_DIST_CPU_TRANSPORT=oshmem"


class Library:
    """The library, which does nothing until :meth:`start`. One for each process, since it cannot be started again."""

    def __init__(self) -> None:
        self._functions: CDLL | None = None
        self._lock = threading.RLock()
        self._region = (0, 0)

    @property
    def started(self) -> bool:
        return self._functions is not None

    def start(self, heap_bytes: int) -> None:
        """Start the library, with room for ``heap_bytes`` bytes in its symmetric heap. *Collective* over all processes.

        A second call does nothing.

        Raises:
            RuntimeError: the library is not installed, or does not support threads.
        """
        if self._functions is not None:
            return
        try:
            library = CDLL(_NAME, mode=ctypes.RTLD_GLOBAL)  # Open MPI's plugins look for its symbols
        except OSError as error:
            raise RuntimeError(
                f"{_VARIABLE} needs Open MPI's OpenSHMEM library ({error}): install Debian's or Ubuntu's openmpi-bin"
            ) from None
        for name in ("SHMEM_SYMMETRIC_SIZE", "SHMEM_SYMMETRIC_HEAP_SIZE"):  # Open MPI 4.1 reads the latter only
            os.environ[name] = str(heap_bytes)
        provided = c_int()
        status = library.shmem_init_thread(_THREAD_MULTIPLE, byref(provided))
        if status or provided.value < _THREAD_MULTIPLE:
            raise RuntimeError(
                f"{_VARIABLE}: shmem_init_thread returned {status}, with threads of level {provided.value} where"
                f" SHMEM_THREAD_MULTIPLE ({_THREAD_MULTIPLE}) is needed"
            )
        self._functions = library
        self._type_functions(library)
        _end_before_the_library()

    @property
    def place(self) -> tuple[int, int]:
        """This process's PE and the number of PEs, as the library counts."""
        assert self._functions is not None
        return int(self._functions.shmem_my_pe()), int(self._functions.shmem_n_pes())

    def region(self, nbytes: int, alignment: int) -> int:
        """The address of a symmetric region of ``nbytes`` bytes, the same one for all worlds. *Collective.*

        Raises:
            MemoryError: the library cannot have so much, or an earlier world of this process had less.
        """
        size, address = self._region
        if not address:
            with self._lock:
                address = int(self.align(alignment, nbytes) or 0)
            if not address:
                raise MemoryError(f"{_VARIABLE}: the library has no {nbytes} bytes of symmetric memory")
            self._region = size, address = nbytes, address
            threading.Thread(target=self._progress_always, name="triton_dist oshmem progress", daemon=True).start()
        if nbytes > size:
            raise MemoryError(
                f"{_VARIABLE}: this process's first world had a heap of {size} bytes, and this one asks for {nbytes}:"
                " the library's heap cannot grow; set TRITON_DIST_SYMMETRIC_SIZE alike for all worlds"
            )
        return address

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the library; one thread at a time."""
        with self._lock:
            return function(*arguments)

    def progress(self) -> None:
        """Let the library work on what other PEs want from this one."""
        with self._lock:
            self.opal_progress()

    def _progress_always(self) -> None:
        while True:
            time.sleep(_PROGRESS_SECONDS)
            self.progress()

    def _type_functions(self, library: CDLL) -> None:
        def typed(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            function: Any = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            return function  # type: ignore[no-any-return]

        self.align = typed("shmem_align", c_void_p, c_size_t, c_size_t)
        self.ptr = typed("shmem_ptr", c_void_p, c_void_p, c_int)
        self.fence, self.quiet = typed("shmem_fence", None), typed("shmem_quiet", None)
        self.barrier_all = typed("shmem_barrier_all", None)
        self.opal_progress = typed("opal_progress", None)
        copy = (c_void_p, c_void_p, c_size_t, c_int)
        self.putmem, self.getmem = typed("shmem_putmem", None, *copy), typed("shmem_getmem", None, *copy)
        self.putmem_nbi = typed("shmem_putmem_nbi", None, *copy)
        self.getmem_nbi = typed("shmem_getmem_nbi", None, *copy)
        strided = (c_void_p, c_void_p, ctypes.c_ssize_t, ctypes.c_ssize_t, c_size_t, c_int)
        self.iput = {bits // 8: typed(f"shmem_iput{bits}", None, *strided) for bits in (8, 16, 32, 64, 128)}
        self.iget = {bits // 8: typed(f"shmem_iget{bits}", None, *strided) for bits in (8, 16, 32, 64, 128)}
        self.atomics = {4: _Atomics(typed, "uint", c_uint), 8: _Atomics(typed, "ulong", c_ulong)}
        active_set = (c_int, c_int, c_int, c_void_p)
        moved = (c_void_p, c_void_p, c_size_t)
        self.barrier = typed("shmem_barrier", None, *active_set)
        self.broadcast = {n: typed(f"shmem_broadcast{8 * n}", None, *moved, c_int, *active_set) for n in (4, 8)}
        self.fcollect = {n: typed(f"shmem_fcollect{8 * n}", None, *moved, *active_set) for n in (4, 8)}
        self.alltoall = {n: typed(f"shmem_alltoall{8 * n}", None, *moved, *active_set) for n in (4, 8)}
        combined = (c_void_p, c_void_p, c_int, c_int, c_int, c_int, c_void_p, c_void_p)
        self.reductions = {
            (kind, op): typed(f"shmem_{kind}_{op}_to_all", None, *combined)
            for kind in ("int", "long")
            for op in ("sum", "min", "max")
        }


def _end_before_the_library() -> None:
    """Have the process tell PMIx of its end, and exit with its status, before older exit handlers run.

    Those are the library's. What is registered here is called first, with the status and a null pointer: PMIx_Finalize
    takes the null for the length of its first argument, a list.
    """
    skip_exit_handlers()
    try:
        pmix = CDLL(_PMIX, mode=os.RTLD_NOLOAD)
    except OSError:  # it is a part of this Open MPI; then its launcher takes the end for a failure
        return
    CDLL(None).on_exit(cast(pmix.PMIx_Finalize, c_void_p), None)


class _Atomics:
    """The library's atomic operations on one unsigned type."""

    def __init__(self, typed: Callable[..., Callable[..., Any]], name: str, kind: Any) -> None:
        at = f"shmem_{name}_atomic_"
        self.fetch = typed(at + "fetch", kind, c_void_p, c_int)
        self.set = typed(at + "set", None, c_void_p, kind, c_int)
        self.swap = typed(at + "swap", kind, c_void_p, kind, c_int)
        self.compare_swap = typed(at + "compare_swap", kind, c_void_p, kind, kind, c_int)
        self.add = typed(at + "add", None, c_void_p, kind, c_int)
        self.fetch_add = typed(at + "fetch_add", kind, c_void_p, kind, c_int)
        self.fetch_and = typed(at + "fetch_and", kind, c_void_p, kind, c_int)
        self.fetch_or = typed(at + "fetch_or", kind, c_void_p, kind, c_int)
        self.fetch_xor = typed(at + "fetch_xor", kind, c_void_p, kind, c_int)
