"""What is different in Triton 3.8: its launcher for CUDA makes descriptors with one argument more, and kernels may
have more shared memory than Hopper has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.backends.nvidia import driver

from triton_dist.triton_api import v3_7
from triton_dist.triton_api.v3_7 import ARGUMENTS, build_plugin_op, extend_compilation, tensor_map_bytes

__all__ = [
    "ARGUMENTS",
    "build_plugin_op",
    "descriptor_arguments",
    "extend_compilation",
    "launch_attributes",
    "repairs",
    "tensor_map_bytes",
]


def descriptor_arguments(descriptor: Any, how: Any) -> list[Any]:
    made: list[Any] = driver.make_tensordesc_arg(descriptor, how, None)  # AMD's alone reads the third
    return made


def launch_attributes(shared: int, ctas: int, *, cooperative: bool, dependent: bool) -> v3_7.Attributes | None:
    if shared > 228 << 10:  # by an attribute that no driver has that was tried
        return None
    return v3_7.launch_attributes(shared, ctas, cooperative=cooperative, dependent=dependent)


def repairs(backend: str) -> Mapping[str, list[str]]:
    return {}
