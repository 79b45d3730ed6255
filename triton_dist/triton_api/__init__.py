"""The one seam to Triton's internals: what this package uses of them, or changes in them.

Each version line of Triton has a module here, all with the same names; the installed version chooses. Modules for one
user each are the same for all lines: ``front_end`` and ``language_patch``, ``interpreter`` for the CPU world,
``launch_compiler`` for its compilations, ``opt`` for the lit tests.

The rule: what Triton documents (``triton.jit``, ``triton.language``, ``triton.testing`` …) is used where it is needed.
All else is used here alone, and nothing but this package changes an object of Triton. tests/test_triton_api.py holds
the rule.
"""

from __future__ import annotations

import triton

if triton.__version__.startswith("3.7."):
    from triton_dist.triton_api.v3_7 import (
        LAUNCHER_ARGUMENTS,
        UNUSABLE,
        Autotuner,
        Conversion,
        autotuned_kernel,
        build_plugin_op,
        cached_file,
        current_device,
        device_properties,
        extend_autotuning,
        extend_compilation,
        extend_loading,
        guard_launches,
        interpreter_semantic,
        load,
        mark_as_builtin,
        on_module_load,
        run_plugin_passes,
        set_int_attribute,
        warp_size,
    )
else:
    raise ImportError(f"triton_dist knows the internals of Triton 3.7, and {triton.__version__} is installed")

__all__ = [
    "LAUNCHER_ARGUMENTS",
    "UNUSABLE",
    "Autotuner",
    "Conversion",
    "autotuned_kernel",
    "build_plugin_op",
    "cached_file",
    "current_device",
    "device_properties",
    "extend_autotuning",
    "extend_compilation",
    "extend_loading",
    "guard_launches",
    "interpreter_semantic",
    "load",
    "mark_as_builtin",
    "on_module_load",
    "run_plugin_passes",
    "set_int_attribute",
    "warp_size",
]
