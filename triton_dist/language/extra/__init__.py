"""Names of Triton-distributed in kernels: thin layers over :mod:`triton_dist.language` (docs/migrating.md)."""
