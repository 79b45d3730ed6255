"""Kernels that are compiled on one machine and launched on others, which need no compiler.

``triton-dist-compile`` writes a kernel's files; :func:`load` and ``triton_dist_kernel.h`` read them.
"""

from triton_dist.ahead_of_time.loading import Kernel, load
from triton_dist.ahead_of_time.manifest import Manifest, ManifestError, read

__all__ = ["Kernel", "Manifest", "ManifestError", "load", "read"]
