"""``python -m triton_dist.kernels``: measure which algorithms are the fastest here (``tuning.py``)."""

from __future__ import annotations

from triton_dist.kernels.tuning import main

if __name__ == "__main__":
    main()
