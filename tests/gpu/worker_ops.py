"""Every op between PEs, against a torch reference: one PE's part. PE 0 prints one line per check.

    torchrun --nproc-per-node 2 tests/gpu/worker_ops.py [--only NAME] [--list]

Runs in both worlds. What the CPU world cannot do (it has no compiler and no streams) is left out there, and said so.
"""

from __future__ import annotations

import sys

from ops import (  # noqa: F401
    atomics,
    booleans,
    collectives,
    constructs,
    copies,
    elements,
    kernel_collectives,
    kernel_epilogues,
    kernel_fused,
    kernel_gemms,
    kernel_gemms_between_hosts,
    kernel_operands,
    kernel_prepared,
    kernel_traces,
    kernels_mixed,
    launches,
    litmus,
    litmus_tma,
    memory,
    ordering,
    pipelined,
    point_to_point,
    remote,
    signals,
    strided,
    transports,
    wrap_around,
)
from ops.harness import main

if __name__ == "__main__":
    sys.exit(main())
