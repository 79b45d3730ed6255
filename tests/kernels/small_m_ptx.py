"""Compiles a small-M GEMM for an H200 that need not be there: ``small_m_ptx.py ROWS FILE [traced] [finished]
[dependent] [bands] [shards]``.

Writes its PTX to FILE and prints how many blocks are on their way at a time, and the bytes of shared memory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.dependent_launch import launch_options
from triton_dist.kernels.gemm.epilogue import Epilogue
from triton_dist.kernels.gemm.small_m import MAX_BANDS, cut_for, gemm_small_m, stages_for

PROGRAMS, SHARED, N_PES = 132, 227 << 10, 4


def main(rows: int, file: Path, *, traced: bool, finished: bool, dependent: bool, bands: bool, shards: bool) -> None:
    count = MAX_BANDS if bands or shards else 1
    cut = cut_for(rows, 8192, 2, PROGRAMS, count)
    stages = stages_for(rows, cut, 2, SHARED)
    constants: dict[str, Any] = {
        "TO_ALL": not shards, "MEMBERS": (0, 1, N_PES), "BLOCK_M": rows, "BLOCK_N": cut.block_n, "BLOCK_K": cut.block_k,
        "WORDS": rows * cut.block_n // N_PES // 2, "TURNED": cut.turned, "A_TMA": 3 if shards else 2, "B_TMA": True,
        "B_BY_COLUMNS": False, "WHOLE": True, "b_column": 1, "DEPENDENT": dependent,
        "BANDS": count,
    } | ({} if traced else {"trace": None})  # fmt: skip
    types = dict.fromkeys(gemm_small_m.arg_names, "i32") | dict.fromkeys(constants, "constexpr")
    types |= {
        "c": "*bf16",
        "slots": "*i32",
        "trace": "*i64" if traced else "constexpr",
        "a": f"tensordesc<bf16[{f'{N_PES}, {rows // N_PES}' if shards else rows}, {cut.block_k}]>",
    }
    types |= {"b": f"tensordesc<bf16[{cut.block_k}, {cut.block_n}]>"}
    place = gemm_small_m.arg_names.index
    aligned = {(place(name),): [["tt.divisibility", 16]] for name in ("c", "slots", "N", "c_step", "b_row")}
    parts = {"bias": "*bf16", "residual": "*bf16", "columns": "i32"} if finished else {}
    types["epilogue"] = Epilogue(**(dict.fromkeys(Epilogue._fields, "constexpr") | parts))
    known: dict[Any, Any] = {(place(name),): value for name, value in constants.items()}
    known |= {(place("epilogue"), i): None for i, name in enumerate(Epilogue._fields) if name not in parts}
    source = ASTSource(fn=gemm_small_m, signature=types, constexprs=known, attrs=aligned)
    with transport.using("p2p"):
        options = {"num_warps": cut.warps, "num_stages": stages} | launch_options(dependent=dependent)
        kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    file.write_text(kernel.asm["ptx"])
    print(stages, kernel.metadata.shared)


if __name__ == "__main__":
    wanted = {name: name in sys.argv for name in ("traced", "finished", "dependent", "bands", "shards")}
    main(int(sys.argv[1]), Path(sys.argv[2]), **wanted)
