"""Names of Triton-distributed for use in kernels: thin layers over :mod:`triton_dist.language`; see docs/migrating.md."""
