"""Compiles each fused norm and flash decode for an H200 that need not be there, for 2 and 8 PEs."""

from __future__ import annotations

import decode_ptx
import norm_ptx

for size in (2, 8):
    for name in norm_ptx.KERNELS:
        quantize = "none" if name == "all_gather" else "block"
        print("norm", name, size, norm_ptx.compiled(name, 1024, size, quantize).metadata.name)
    for case in ("gqa", "scattered"):
        print("decode", case, size, decode_ptx.compiled(case, size).metadata.name)
# As the CPU world cuts it, for TRITON_DIST_CHECK_COMPILE: words are polled piece by piece.
print("norm one_shot 3", norm_ptx.compiled("one_shot", 1024, 3, "none", gpu=False).metadata.name)
