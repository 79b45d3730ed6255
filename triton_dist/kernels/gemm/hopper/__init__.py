"""Matrix multiplication on Hopper GPUs in warp-specialised programs (Gluon), whose tiles leave and arrive by TMA."""
