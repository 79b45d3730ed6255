"""``python -m triton_dist.info``: see :mod:`_triton_dist_info`, which works without this package, too."""

from __future__ import annotations

import sys

from _triton_dist_info import collect, main

__all__ = ["collect", "main"]

if __name__ == "__main__":
    sys.exit(main())
