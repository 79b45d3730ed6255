"""Compile the portable products of fp8 factors and print their PTX as JSON, by GPU, kernel, types and layout of b.

Takes the capability of the GPU, and which strides of b are 1: ``fp8_gemms_ptx.py 90 b_row b_column``. Started by
test_fp8_gemms.py. (Why it is a process of its own, and ``ptx_of``: kernels_ptx.py.)
"""

from __future__ import annotations

import json
import sys
from itertools import product

from kernels_ptx import ptx_of

from triton_dist.compiler import transport
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.gemm.fp8 import RowScales

TYPES = {"e4m3": "*fp8e4nv", "e5m2": "*fp8e5"}
PAIRS = (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e5m2"))
SIZES = dict.fromkeys(("M", "N", "K", "a_step", "b_row", "b_column", "c_step"), "i32")
CONSTANTS = {
    "BLOCK_M": 128,
    "BLOCK_N": 128,
    "BLOCK_K": 64,
    "WHOLE": False,
    "SCALES": "one",
    "epilogue": EMPTY,
    "FLAGS": True,
    "MEMBERS": (0, 1, 4),
    "trace": None,
}
OTHERS = {"c": "*bf16", "scale": "*fp32", "flags": "*i32", "comm_programs": "i32"}

if __name__ == "__main__":
    found = {}
    with transport.using("p2p"):
        architecture = int(sys.argv[1])
        for (a, b), contiguous in product(PAIRS, sys.argv[2:]):
            for name in (
                ("gemm_portable_local", "gemm_portable_scatter", "gemm_portable_scatter_by_programs")
                if (a, b) == PAIRS[0]
                else ("gemm_portable_local",)
            ):
                arguments = {"a": TYPES[a], "b": TYPES[b]} | OTHERS | SIZES | CONSTANTS | {contiguous: 1}
                key = f"{architecture} {name} {a} {b} {contiguous}"
                found[key] = ptx_of(getattr(portable, name), arguments, 8, architecture=architecture)
                if name == "gemm_portable_local" and (a, b) == PAIRS[0]:
                    arguments |= {"SCALES": "rows", "scale": RowScales("*fp32", "*fp32")}  # type: ignore[arg-type]
                    found[f"{key} rows"] = ptx_of(portable.gemm_portable_local, arguments, 8, architecture=architecture)
    print(json.dumps(found))
