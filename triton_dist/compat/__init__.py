"""What lets kernels and scripts written for Triton-distributed run here; see docs/migrating.md for the whole mapping.

Its names are where its users import them from: ``triton_dist.jit``, ``triton_dist.language`` and its ``extra``,
``triton_dist.utils``, ``triton_dist.profiler_utils``. What takes more than calling an operation of ours is here.
"""
