"""Our place in the stock Triton's compilation: the hook that it offers on the stages of every kernel.

Only modules that hold shmem ops are touched. For those, the step from TTGIR to LLVM IR also runs our conversion, in
the slot that Triton keeps for instrumentation (its profiler uses the same; what is there already still runs), and
links the device library. All kernels of a process get our key in Triton's cache key, so that a cached binary is never
used with another plugin or library.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from triton.errors import TritonError

from triton_dist import triton_api
from triton_dist._C.op_table import OPS
from triton_dist.compiler import device_library, transport

__all__ = ["ShmemCompilationError", "install"]

_NVSHMEM_ASKS = OPS["is_reachable"].routines["nvshmem"]


class ShmemCompilationError(TritonError):  # type: ignore[misc]  # Triton has no types
    """A kernel uses a shmem op where or for what it cannot be compiled; the message has the kernel's file and line."""


def install() -> None:
    """Hook into Triton's compilation. Calling it again changes nothing."""
    triton_api.extend_compilation(_cache_key, _check, _conversion, transport.pin)


def _cache_key() -> tuple[str, str, Mapping[str, str]]:
    """Key and digest, and the transport of each of Triton's backends. Cheap: Triton asks at every launch."""
    return _cache_key_for(transport.current("cuda"), transport.current("hip"), transport.pretends_hosts())


@cache
def _cache_key_for(cuda: str, hip: str, pretends_hosts: bool) -> tuple[str, str, Mapping[str, str]]:
    libraries = [_identify(name, "sm_90", pretends_hosts) for name in dict.fromkeys((cuda, "p2p"))]
    libraries += [_identify(name, "gfx942", pretends_hosts) for name in dict.fromkeys((hip, "p2p"))]
    key = "-".join(["-triton_dist", device_library.plugin_hash(), *libraries])
    return key, hashlib.sha256(key.encode()).hexdigest(), {"cuda": cuda, "hip": hip}


def _identify(name: str, architecture: str, pretends_hosts: bool) -> str:
    try:
        return f"{name}-{device_library.find(name, architecture, pretends_hosts=pretends_hosts).version}"
    except FileNotFoundError:
        return f"{name}-none"  # kernels without shmem ops compile all the same


def _check(transports: Mapping[str, str], module: Any, backend: str, num_ctas: int) -> None:
    """Repair what Triton's step to TTGIR would break, and search for mistakes before its passes for clusters do.

    Those fail on a kernel without a store, with no word about the reason.
    """
    if not _has_shmem_ops(module):
        return
    if repairs := triton_api.repairs(backend):
        triton_api.run_plugin_passes(module, repairs)
    if num_ctas > 1:
        triton_api.set_int_attribute(module, "ttg.num-ctas", num_ctas)
        _run_plan(module, transports[backend])


def _conversion(
    transports: Mapping[str, str], module: Any, backend: str, architecture: str
) -> triton_api.Conversion | None:
    """What a module with shmem ops needs on its way to LLVM IR."""
    if not _has_shmem_ops(module):
        return None
    name = transports[backend]
    plan = _plan(module, name)
    return triton_api.Conversion(
        passes={"shmem_to_llvm": [name]},
        libraries=_libraries(name, architecture, plan.routines),
        needs_tritons_libraries=lambda: module.get_operation().get_bool_attr("shmem.calls_others"),
        metadata={"shmem": plan.launch},
    )


def _has_shmem_ops(module: Any) -> bool:
    found = False

    def visit(op: Any) -> None:
        nonlocal found
        found = found or op.get_name().startswith("shmem.")

    module.walk(visit)
    return found


@dataclass(frozen=True)
class _Plan:
    """What is known of a module before it is lowered."""

    routines: dict[str, str]
    """What it will call, each with the line and the op that calls it first."""
    launch: dict[str, Any]
    """What must hold when it is launched, for triton_dist.gpu.launch_check; kept in the kernel's metadata."""


def _run_plan(module: Any, name: str) -> Any:
    """The module's operation, whose attributes are the plan. ShmemCompilationError where the plan finds a mistake."""
    triton_api.run_plugin_passes(module, {"shmem_order": [], "shmem_plan": [name, str(transport.n_pes())]})
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
    """Names and files of what is linked: the transport's library, and our own where that has the routine of a wait, or
    NVSHMEM's question who is reached, which our library answers by pretended hosts."""
    called: dict[str, dict[str, str]] = {}
    for routine, use in routines.items():
        ours = routine.startswith("triton_dist_") or (transport.pretends_hosts() and routine == _NVSHMEM_ASKS)
        called.setdefault("p2p" if ours else name, {})[routine] = use
    found = []
    for transport_of, its in called.items():
        library = device_library.find(transport_of, architecture, pretends_hosts=transport.pretends_hosts())
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
