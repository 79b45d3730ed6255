"""How kernels with shmem ops are compiled by the stock Triton: hooks into its stages, and the device libraries."""
