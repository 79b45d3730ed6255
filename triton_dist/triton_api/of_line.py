"""What differs between the lines of Triton, as the installed one has it.

``build_plugin_op`` and ``extend_compilation`` complete those of ``common``. ``descriptor_arguments(descriptor, how)``
returns the arguments that Triton's launcher for CUDA makes of a TMA descriptor; ``how`` is the kernel's entry for it in
``tensordesc_meta``. For launches as data (``packing``): ``ARGUMENTS`` has by kind, as Triton numbers them in a kernel's
signature, how its launcher passes an argument, in ``struct``'s letters but for ``bfloat16`` and ``map``, a descriptor;
``launch_attributes`` are those that it gives to the driver; ``tensor_map_bytes`` are what a descriptor holds.
``repairs(backend)`` are passes of the plugin that modules with shmem ops need before Triton's step to TTGIR.
"""

from __future__ import annotations

import triton

if triton.__version__.startswith("3.7."):
    from triton_dist.triton_api.v3_7 import (
        ARGUMENTS,
        build_plugin_op,
        descriptor_arguments,
        extend_compilation,
        launch_attributes,
        repairs,
        tensor_map_bytes,
    )
elif triton.__version__.startswith("3.8."):
    from triton_dist.triton_api.v3_8 import (
        ARGUMENTS,
        build_plugin_op,
        descriptor_arguments,
        extend_compilation,
        launch_attributes,
        repairs,
        tensor_map_bytes,
    )
elif triton.__version__.startswith("3.9."):
    from triton_dist.triton_api.v3_9 import (
        ARGUMENTS,
        build_plugin_op,
        descriptor_arguments,
        extend_compilation,
        launch_attributes,
        repairs,
        tensor_map_bytes,
    )
else:
    raise ImportError(f"triton_dist knows the internals of Triton 3.7 to 3.9, and {triton.__version__} is installed")

__all__ = [
    "ARGUMENTS",
    "build_plugin_op",
    "descriptor_arguments",
    "extend_compilation",
    "launch_attributes",
    "repairs",
    "tensor_map_bytes",
]
