"""Compiles a GEMM with a norm in front for an H200 that need not be there: ``norm_gemm_ptx.py ROWS COLUMNS FILE
[dependent]``.

Writes its PTX to FILE and prints how many blocks are on their way at a time, the bytes of shared memory, and how many
programs share an SM.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.kernels.dependent_launch import launch_options
from triton_dist.kernels.gemm.epilogue import Epilogue
from triton_dist.kernels.gemm.norm_gemm import cut_for, norm_gemm_kernel, stages_for

SMS, SHARED = 132, 227 << 10


def main(rows: int, columns: int, file: Path, *, dependent: bool) -> None:
    cut = cut_for(rows, columns, 2, SMS)
    tiles = columns // cut.block_n
    stages = stages_for(rows, cut, 2, tiles, SMS, SHARED)
    constants: dict[str, Any] = {
        "BLOCK_M": rows, "BLOCK_N": cut.block_n, "BLOCK_K": cut.block_k, "TURNED": cut.turned, "A_TMA": 2,
        "B_TMA": True, "B_BY_COLUMNS": True, "WHOLE": True, "b_row": 1, "DEPENDENT": dependent,
    }  # fmt: skip
    types = dict.fromkeys(norm_gemm_kernel.arg_names, "i32") | dict.fromkeys(constants, "constexpr")
    types |= {"c": "*bf16", "norm": "*bf16", "eps": "fp32"}
    types["a"] = f"tensordesc<bf16[{rows}, {cut.block_k}]>"
    types["b"] = f"tensordesc<bf16[{cut.block_n}, {cut.block_k}]>"
    types["epilogue"] = Epilogue(**dict.fromkeys(Epilogue._fields, "constexpr"))
    place = norm_gemm_kernel.arg_names.index
    aligned = {(place(name),): [["tt.divisibility", 16]] for name in ("c", "norm", "N", "K", "c_step", "b_column")}
    known: dict[Any, Any] = {(place(name),): value for name, value in constants.items()}
    known |= {(place("epilogue"), i): None for i in range(len(Epilogue._fields))}
    known[place("epilogue"), Epilogue._fields.index("activation")] = "swiglu"
    source = ASTSource(fn=norm_gemm_kernel, signature=types, constexprs=known, attrs=aligned)
    options = {"num_warps": cut.warps, "num_stages": stages} | launch_options(dependent=dependent)
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    file.write_text(kernel.asm["ptx"])
    file.with_suffix(".ttgir").write_text(kernel.asm["ttgir"])
    print(stages, kernel.metadata.shared, -(-tiles // SMS))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), dependent="dependent" in sys.argv)
