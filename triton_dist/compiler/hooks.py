"""Our place in the stock Triton's compilation: the hook that it offers on the stages of every kernel.

Only modules that hold shmem ops are touched. For those, the step from TTGIR to LLVM IR also runs our conversion, in
the slot that Triton keeps for instrumentation (its profiler uses the same; what is there already still runs), and
links the device library. All kernels of a process get our key in Triton's cache key, so that a cached binary is never
used with another plugin or library.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from triton import knobs
from triton._C.libtriton import ir, passes
from triton.errors import TritonError

from triton_dist.compiler.device_library import linked_bitcode, nvshmem_bitcode, plugin_hash

__all__ = ["ShmemCompilationError", "install"]

_Stage = Callable[[Any, dict[str, Any]], Any]


class ShmemCompilationError(TritonError):  # type: ignore[misc]  # Triton has no types
    """A kernel uses a shmem op where or for what it cannot be compiled; the message has the kernel's file and line."""


def install() -> None:
    """Hook into Triton's compilation. Calling it again changes nothing."""
    earlier = knobs.runtime.add_stages_inspection_hook
    if not isinstance(earlier, _StagesHook):
        knobs.runtime.add_stages_inspection_hook = _StagesHook(earlier)


class _StagesHook:
    """Triton calls it with the stages of a compilation, or with nothing (at every launch) to ask for its cache key."""

    def __init__(self, earlier: Callable[..., Any] | None) -> None:
        self._earlier = earlier

    def __call__(
        self, backend: Any = None, stages: Any = None, options: Any = None, language: Any = None, capability: Any = None
    ) -> tuple[str, str]:
        key, digest = _cache_key()
        if self._earlier is not None:
            earlier_key, earlier_digest = self._earlier(backend, stages, options, language, capability)
            key, digest = earlier_key + key, earlier_digest + digest
        if stages is not None:
            stages["llir"] = _with_shmem(stages["llir"], backend, options, capability)
        return key, digest


@cache
def _cache_key() -> tuple[str, str]:
    try:
        library = f"nvshmem-{nvshmem_bitcode()[1]}"
    except FileNotFoundError:
        library = "nvshmem-none"  # kernels without shmem ops compile all the same
    key = f"-triton_dist-{plugin_hash()}-{library}"
    return key, hashlib.sha256(key.encode()).hexdigest()


def _with_shmem(plain: _Stage, backend: Any, options: Any, capability: Any) -> _Stage:
    """The stage that makes LLVM IR, for modules with and without shmem ops."""

    def make_llir(module: Any, metadata: dict[str, Any]) -> Any:
        op = _first_shmem_op(module)
        if op is None:
            return plain(module, metadata)
        if backend.target.backend != "cuda":
            raise ShmemCompilationError(
                f"{op}: shmem ops are compiled for NVIDIA GPUs only so far, not for {backend.target.backend}"
            )
        _check(module)
        library = ("nvshmem", str(linked_bitcode()))
        linked = dataclasses.replace(options, extern_libs=(*options.extern_libs, library))
        with _conversion_in(type(backend)):
            return backend.make_llir(module, metadata, linked, capability)

    return make_llir


def _first_shmem_op(module: Any) -> str | None:
    found: list[str] = []

    def visit(op: Any) -> None:
        if not found and op.get_name().startswith("shmem."):
            found.append(op.get_name())

    module.walk(visit)
    return found[0] if found else None


def _check(module: Any) -> None:
    manager = ir.pass_manager(module.context)
    passes.plugin.shmem_check(manager, [])
    manager.run(module, "shmem_check")
    if mistake := module.get_operation().get_str_attr("shmem.error"):
        raise ShmemCompilationError(mistake)


@contextmanager
def _conversion_in(backend: Any) -> Iterator[None]:
    """Our conversion in the backend's instrumentation slot, behind what is in the slot already."""
    earlier = backend.instrumentation
    backend.instrumentation = _Conversion(earlier)
    try:
        yield
    finally:
        backend.instrumentation = earlier


class _Conversion:
    def __init__(self, earlier: Any) -> None:
        self._earlier = earlier

    def load_dialects(self, context: Any) -> None:
        if self._earlier:
            self._earlier.load_dialects(context)

    def patch(self, point: str, manager: Any, context: Any) -> None:
        if self._earlier:
            self._earlier.patch(point, manager, context)
        if point == "llvmir_to_llvm":
            passes.plugin.shmem_to_llvm(manager, [])
