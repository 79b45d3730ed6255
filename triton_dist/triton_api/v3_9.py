"""Triton 3.9: other names for what a plugin brings, and no place for passes behind Triton's own."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

from triton_dist.triton_api import common
from triton_dist.triton_api.v3_8 import ARGUMENTS, descriptor_arguments, launch_attributes, repairs, tensor_map_bytes

__all__ = [
    "ARGUMENTS",
    "build_plugin_op",
    "descriptor_arguments",
    "extend_compilation",
    "launch_attributes",
    "repairs",
    "tensor_map_bytes",
]


def _with_passes(backend: Any, added: Mapping[str, list[str]]) -> Callable[..., Any]:
    """The backend's ``make_llir`` with passes of the plugin behind all of Triton's passes.

    Callbacks that are registered with Triton 3.9 run before warp-specialised regions are lowered, which would move the
    barriers of our ops. So for this function Triton's step from the LLVM dialect to LLVM IR begins with our passes.
    """
    llvm = type(backend).make_llir.__globals__.get("llvm")

    def to_module(module: Any, context: Any) -> Any:
        common.run_plugin_passes(module, added)
        return llvm.to_module(module, context)

    replaced = {**vars(llvm), "to_module": to_module} if llvm else {}
    return common.with_global(backend, "llvm", types.SimpleNamespace(**replaced))


build_plugin_op = functools.partial(common.build_plugin_op, prefix="create_")
extend_compilation = functools.partial(common.extend_compilation, with_passes=_with_passes)
