"""Compiles a fused norm for an H200 that need not be there: ``norm_ptx.py KERNEL COLUMNS PES QUANTIZE FILE``.

Writes its PTX to FILE.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.norm import all_reduce_norm, arguments, norm_all_gather, reduce_scatter_norm
from triton_dist.kernels.protocols.members import Members

KERNELS = {
    "one_shot": all_reduce_norm.all_reduce_norm_one_shot,
    "two_shot": all_reduce_norm.all_reduce_norm_two_shot,
    "reduce_scatter": reduce_scatter_norm.reduce_scatter_norm_fused,
    "all_gather": norm_all_gather.norm_all_gather_fused,
}


def compiled(name: str, columns: int, size: int, quantize: str, *, gpu: bool = True) -> Any:
    """The kernel for rows of so many columns, bfloat16, of so many PEs, cut as for GPUs or as in the CPU world."""
    kernel = KERNELS[name]
    cut = arguments.cut_for(columns, 2, size, gpu=gpu)
    constants: dict[str, Any] = {
        "LAYER": False, "QUANTUM": {"token": 0, "block": 128, "none": 0}[quantize], "DTYPE": tl.bfloat16,
        "BLOCK": columns, "GROUP": cut.group, "PIECE": cut.piece, "MEMBERS": Members(0, 1, size), "trace": None,
        "shift": None, "H": columns,
    } | ({"scales": None} if quantize == "none" else {})  # fmt: skip
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    pointers = dict.fromkeys(("x", "residual", "bias", "weight", "new_residual"), "*bf16")
    pointers |= {"out": "*bf16" if quantize == "none" else "*fp8e4nv", "slots": "*i32", "scales": "*fp32"}
    pointers = {name: pointer for name, pointer in pointers.items() if name in kernel.arg_names}
    types = dict.fromkeys(kernel.arg_names, "i32") | pointers | {"eps": "fp32"} | dict.fromkeys(constants, "constexpr")
    place = kernel.arg_names.index
    aligned = {(place(name),): [["tt.divisibility", 16]] for name in pointers if types[name] != "constexpr"}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
    with transport.using("p2p"):
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": cut.warps})


if __name__ == "__main__":
    made = compiled(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    Path(sys.argv[5]).write_text(made.asm["ptx"])
