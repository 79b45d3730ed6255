"""``triton-dist-compile``: see :mod:`triton_dist.ahead_of_time.command`.

It stands beside the package, because ``triton.jit`` is told at the package's import whether it makes kernels for the
compiler or for the CPU world, and here it is always the compiler.
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Entry point; 0 when the kernel was compiled."""
    os.environ |= {"TRITON_DIST_WORLD": "gpu", "TRITON_INTERPRET": "0"}
    os.environ.pop("TRITON_DIST_CHECK_COMPILE", None)
    from triton_dist.ahead_of_time import command

    return command.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
