"""The one seam to Triton's internals: what this package uses of them, or changes in them.

``common`` holds what the supported versions have in common. What differs is in a module of each line that brought a
change, all with the same names; ``of_line`` has those of the installed version. Modules for one user each are the same
for all lines: ``front_end`` and ``language_patch``, ``interpreter`` and ``gluon`` for the CPU world,
``launch_compiler`` for its compilations, ``opt`` for the lit tests.

The rule: what Triton documents (``triton.jit``, ``triton.language``, ``triton.testing`` …) is used where it is needed.
All else is used here alone, and nothing but this package changes an object of Triton. tests/test_triton_api.py holds
the rule.
"""

from __future__ import annotations

from triton_dist.triton_api.autotuning import UNUSABLE, Autotuner, autotuned_kernel, extend_autotuning
from triton_dist.triton_api.common import (
    LAUNCHER_ARGUMENTS,
    Conversion,
    cached_file,
    current_device,
    device_properties,
    extend_loading,
    guard_launches,
    is_interpreting,
    load,
    mark_as_builtin,
    on_module_load,
    run_plugin_passes,
    set_int_attribute,
    warp_size,
)
from triton_dist.triton_api.launching import (
    NativeLaunch,
    PreparedLaunch,
    direct_launcher,
    is_descriptor,
    prepare_launch,
)
from triton_dist.triton_api.of_line import build_plugin_op, extend_compilation, repairs
from triton_dist.triton_api.replay import replayed

__all__ = [
    "LAUNCHER_ARGUMENTS",
    "UNUSABLE",
    "Autotuner",
    "Conversion",
    "NativeLaunch",
    "PreparedLaunch",
    "autotuned_kernel",
    "build_plugin_op",
    "cached_file",
    "current_device",
    "device_properties",
    "direct_launcher",
    "extend_autotuning",
    "extend_compilation",
    "extend_loading",
    "guard_launches",
    "is_descriptor",
    "is_interpreting",
    "load",
    "mark_as_builtin",
    "on_module_load",
    "prepare_launch",
    "repairs",
    "replayed",
    "run_plugin_passes",
    "set_int_attribute",
    "warp_size",
]
