"""Our place in the stock Triton's compilation: the hook that it offers on the stages of every kernel.

Only modules that hold shmem ops are touched. For those, the step from TTGIR to LLVM IR also runs our conversion, in
the slot that Triton keeps for instrumentation (its profiler uses the same; what is there already still runs), and
links the device library. All kernels of a process get our key in Triton's cache key, so that a cached binary is never
used with another plugin or library.
"""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from triton import knobs
from triton._C.libtriton import ir, passes
from triton.errors import TritonError

from triton_dist.compiler import device_library, transport

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
            if options.num_ctas > 1 and "ttgir" in stages:
                stages["ttgir"] = _checked_first(stages["ttgir"], backend, options)
        return key, digest


def _cache_key() -> tuple[str, str]:
    """Cheap: Triton asks at every launch."""
    return _cache_key_for(transport.current("cuda"), transport.current("hip"))


@cache
def _cache_key_for(cuda: str, hip: str) -> tuple[str, str]:
    libraries = [_identify(name, "sm_90") for name in dict.fromkeys((cuda, "p2p"))]
    libraries += [_identify(name, "gfx942") for name in dict.fromkeys((hip, "p2p"))]
    key = "-".join(["-triton_dist", device_library.plugin_hash(), *libraries])
    return key, hashlib.sha256(key.encode()).hexdigest()


def _identify(name: str, architecture: str) -> str:
    try:
        return f"{name}-{device_library.find(name, architecture).version}"
    except FileNotFoundError:
        return f"{name}-none"  # kernels without shmem ops compile all the same


def _with_shmem(plain: _Stage, backend: Any, options: Any, capability: Any) -> _Stage:
    """The stage that makes LLVM IR, for modules with and without shmem ops."""
    arguments = () if capability is None else (capability,)  # AMD's backend takes none

    def make_llir(module: Any, metadata: dict[str, Any]) -> Any:
        if not _has_shmem_ops(module):
            return plain(module, metadata)
        name = transport.current(backend.target.backend)
        architecture = f"sm_{capability}" if capability is not None else backend.target.arch
        plan = _plan(module, name)
        if plan.launch:
            metadata["shmem"] = plan.launch
        linked = dataclasses.replace(options)
        libraries = _libraries(name, architecture, plan.routines)
        object.__setattr__(linked, "extern_libs", _Libraries(options.extern_libs, libraries, module))
        with _conversion_in(type(backend), name):
            return backend.make_llir(module, metadata, linked, *arguments)

    return make_llir


def _checked_first(plain: _Stage, backend: Any, options: Any) -> _Stage:
    """The stage that makes TTGIR, behind a search for mistakes.

    Triton's own passes for clusters fail on a kernel without a store, with no word about the reason.
    """

    def make_ttgir(module: Any, metadata: dict[str, Any]) -> Any:
        if _has_shmem_ops(module):
            module.set_attr("ttg.num-ctas", ir.builder(module.context).get_int32_attr(options.num_ctas))
            _run_plan(module, transport.current(backend.target.backend))
        return plain(module, metadata)

    return make_ttgir


class _Libraries(tuple[tuple[str, str], ...]):
    """Names and files of what a kernel with shmem ops is linked with: Triton's own libraries only if it calls them.

    Triton links all of its libraries into a kernel that calls any function, and to read libdevice takes longer than all
    else that an op costs. Whether it is needed is known when our conversion has run, which is when Triton iterates.
    """

    _needed: Callable[[], bool]
    _ours: tuple[tuple[str, str], ...]

    def __new__(
        cls, tritons: tuple[tuple[str, str], ...], ours: tuple[tuple[str, str], ...], module: Any
    ) -> _Libraries:
        libraries = super().__new__(cls, (*tritons, *ours))
        libraries._needed = lambda: module.get_operation().get_bool_attr("shmem.calls_others")
        libraries._ours = ours
        return libraries

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return super().__iter__() if self._needed() else iter(self._ours)


def _has_shmem_ops(module: Any) -> bool:
    found = False

    def visit(op: Any) -> None:
        nonlocal found
        found = found or op.get_name().startswith("shmem.")

    module.walk(visit)
    return found


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What is known of a module before it is lowered."""

    routines: dict[str, str]
    """What it will call, each with the line and the op that calls it first."""
    launch: dict[str, Any]
    """What must hold when it is launched, for triton_dist.world.launch_check; kept in the kernel's metadata."""


def _run_plan(module: Any, name: str) -> Any:
    """The module's operation, whose attributes are the plan. ShmemCompilationError where the plan finds a mistake."""
    manager = ir.pass_manager(module.context)
    passes.plugin.shmem_order(manager, [])
    passes.plugin.shmem_plan(manager, [name, str(transport.n_pes())])
    manager.run(module, "shmem_plan")
    plan = module.get_operation()
    if mistake := plan.get_str_attr("shmem.error"):
        raise ShmemCompilationError(mistake)
    return plan


def _plan(module: Any, name: str) -> _Plan:
    plan = _run_plan(module, name)
    for doubt in (plan.get_str_attr("shmem.warnings") or "").splitlines():
        warnings.warn(doubt, stacklevel=2)
    launch: dict[str, Any] = {}
    if collective := plan.get_str_attr("shmem.collective"):
        launch["collective"] = collective
    if symmetric := _pairs(plan.get_str_attr("shmem.symmetric")):
        launch["symmetric"] = symmetric
    if waits := plan.get_str_attr("shmem.waits"):
        launch["waits"] = [line.split("\t") for line in waits.splitlines()]
    if scratch := plan.get_str_attr("shmem.scratch"):
        launch["scratch"] = [line.split("\t") for line in scratch.splitlines()]
    return _Plan(_pairs(plan.get_str_attr("shmem.routines")), launch)


def _pairs(lines: str | None) -> dict[str, str]:
    return dict(line.split("\t") for line in (lines or "").splitlines())


def _libraries(name: str, architecture: str, routines: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Names and files of what is linked: the transport's library, and our own where that has the routine of a wait."""
    called: dict[str, dict[str, str]] = {}
    for routine, use in routines.items():
        called.setdefault("p2p" if routine.startswith("triton_dist_") else name, {})[routine] = use
    found = []
    for transport_of, its in called.items():
        library = device_library.find(transport_of, architecture)
        found.append((library.link_name, str(_linked_bitcode(library, its))))
    return tuple(found)


def _linked_bitcode(library: device_library.DeviceLibrary, routines: dict[str, str]) -> Path:
    try:
        return device_library.linked_bitcode(library, tuple(routines))
    except device_library.MissingRoutineError as error:
        (routine,) = error.args
        raise ShmemCompilationError(
            f"{routines[routine]} is not available on transport {library.transport}: {library.path.name} "
            f"({library.version}) has no {routine}"
        ) from None


@contextmanager
def _conversion_in(backend: Any, name: str) -> Iterator[None]:
    """Our conversion in the backend's instrumentation slot, behind what is in the slot already."""
    earlier = backend.instrumentation
    backend.instrumentation = _Conversion(earlier, name)
    try:
        yield
    finally:
        backend.instrumentation = earlier


class _Conversion:
    def __init__(self, earlier: Any, name: str) -> None:
        self._earlier = earlier
        self._transport = name

    def load_dialects(self, context: Any) -> None:
        if self._earlier:
            self._earlier.load_dialects(context)

    def patch(self, point: str, manager: Any, context: Any) -> None:
        if self._earlier:
            self._earlier.patch(point, manager, context)
        if point == "llvmir_to_llvm":
            passes.plugin.shmem_to_llvm(manager, [self._transport])
