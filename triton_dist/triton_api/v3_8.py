"""What is different in Triton 3.8: its launcher for CUDA makes descriptors with one argument more."""

from __future__ import annotations

from typing import Any

from triton.backends.nvidia import driver

from triton_dist.triton_api.v3_7 import build_plugin_op, extend_compilation

__all__ = ["build_plugin_op", "descriptor_arguments", "extend_compilation"]


def descriptor_arguments(descriptor: Any, how: Any) -> list[Any]:
    made: list[Any] = driver.make_tensordesc_arg(descriptor, how, None)  # AMD's alone reads the third
    return made
