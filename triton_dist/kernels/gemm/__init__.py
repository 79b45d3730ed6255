"""GEMMs that are fused with a collective, so that communication overlaps with computation.

An operation is a file: ``all_gather_gemm``, ``gemm_all_scatter``, ``gemm_reduce_scatter``, ``gemm_all_reduce``; their
common signature is in ``operation``. ``schedule`` says which program computes what in which order. ``hopper/`` has a
kernel for each operation on H100 and H200, which follows such a schedule; ``portable`` does the same in plain Triton on
other GPUs and in the CPU world.
"""
