"""What is different in Triton 3.7."""

from __future__ import annotations

import ctypes
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

from triton.backends.nvidia import driver

from triton_dist.triton_api import common

__all__ = [
    "ARGUMENTS",
    "build_plugin_op",
    "descriptor_arguments",
    "extend_compilation",
    "launch_attributes",
    "repairs",
    "tensor_map_bytes",
]

_BACKENDS = {"cuda": "CUDABackend", "hip": "HIPBackend"}


def with_passes(backend: Any, added: Mapping[str, list[str]]) -> Callable[..., Any]:
    """The backend's ``make_llir`` with passes of the plugin in the slot that Triton keeps for its profiler.

    The slot is an attribute of the backend's class, which all threads share. So for this function the class's name
    means an object that has our passes in the slot, behind what is there now.
    """
    slot = _Slot(type(backend).instrumentation, added)
    own_class = types.SimpleNamespace(instrumentation=slot)
    return common.with_global(backend, _BACKENDS[backend.target.backend], own_class)


class _Slot:
    def __init__(self, earlier: Any, added: Mapping[str, list[str]]) -> None:
        self._earlier = earlier
        self._added = added

    def patch(self, point: str, manager: Any, context: Any) -> None:
        if self._earlier:
            self._earlier.patch(point, manager, context)
        if point == "llvmir_to_llvm":
            common.add_plugin_passes(manager, self._added)


def descriptor_arguments(descriptor: Any, how: Any) -> list[Any]:
    made: list[Any] = driver.make_tensordesc_arg(descriptor, how)
    return made


ARGUMENTS = {
    **dict(enumerate(("P", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "bfloat16", "f", "d"), 1)),
    14: "map",
}
"""As ``ExtractorTypeIndex`` of backends/nvidia/driver.c numbers them."""

Attributes = tuple[tuple[int, tuple[int, int, int]], ...]


def launch_attributes(shared: int, ctas: int, *, cooperative: bool, dependent: bool) -> Attributes | None:
    """As ``_launch`` of driver.c orders them; None for what asks the driver for more than attributes."""
    if ctas == 16:  # also sets an attribute of the function
        return None
    found: Attributes = ()
    if dependent:
        found += ((6, (1, 0, 0)),)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    if cooperative:
        found += ((2, (1, 0, 0)),)  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    if ctas != 1:
        # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION and _CLUSTER_SCHEDULING_POLICY_PREFERENCE, which is to spread
        found += ((4, (ctas, 1, 1)), (5, (1, 0, 0)))
    return found


def tensor_map_bytes(descriptor: Any) -> bytes:
    """Of a ``PyCUtensorMap``, which ends with the CUtensorMap."""
    return ctypes.string_at(id(descriptor) + type(descriptor).__basicsize__ - 128, 128)


def repairs(backend: str) -> Mapping[str, list[str]]:
    """Passes of the plugin that a module needs before the step to TTGIR, for what this Triton makes of it otherwise.

    Its passes do not see that loops use their bounds (triton-lang/triton, pull request 9036; mended in 3.8).
    """
    return {"shmem_keep_bounds": [backend]}


build_plugin_op = functools.partial(common.build_plugin_op, prefix="")
extend_compilation = functools.partial(common.extend_compilation, with_passes=with_passes)
