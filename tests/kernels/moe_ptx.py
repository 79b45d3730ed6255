"""Compiles the kernels of dispatch and combine for an H100 that need not be there: ``moe_ptx.py FOLDER HIDDEN DTYPE``.

Writes their PTX to FOLDER, a file for each.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.protocols.members import Members

dispatch, combine = (import_module(f"triton_dist.kernels.moe.{name}") for name in ("dispatch", "combine"))

for module in (dispatch, combine):  # blocks as on a GPU
    module.block_of = lambda words, most: min(most, int(triton.next_power_of_2(words)))

N_PES, EXPERTS, TOP_K, MAX_TOKENS = 8, 256, 8, 128
POINTERS = {"counts": "*i64", "flags": "*i64", "messages": "*i64", "ids": "*i64", "weights": "*fp32"}
POINTERS |= {"row_weights": "*fp32", "out_weights": "*fp32"}
SCALARS = ("n_tokens", "capacity")


def compile_kernel(kernel: Any, constants: dict[str, Any], file: Path) -> None:
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    types = {
        name: "constexpr" if name in constants else "i32" if name in SCALARS else POINTERS.get(name, "*i32")
        for name in kernel.arg_names
    }
    aligned = [(i,) for i, name in enumerate(kernel.arg_names) if types[name].startswith("*")]
    source = ASTSource(kernel, types, constants, {i: [["tt.divisibility", 16]] for i in aligned})
    with transport.using("p2p"):
        options = dispatch._OPTIONS if "_dispatch" in kernel.__name__ else {"num_warps": 8}
        file.write_text(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])


def main(folder: Path, hidden: int, dtype: torch.dtype) -> None:
    ids = torch.empty(MAX_TOKENS, TOP_K, dtype=torch.int64)
    local = EXPERTS // N_PES
    routing = Routing(ids, ids.float(), Members(0, 1, N_PES), local, MAX_TOKENS, 1, N_PES * MAX_TOKENS * TOP_K)
    words, n_scales = hidden * dtype.itemsize // 4, hidden // 128 if dtype.itemsize == 1 else 0
    constants = dispatch._constants(routing, words, n_scales) | dispatch._sending(routing) | {"ALIGN": 128}
    for name in ("_dispatch", "_dispatch_send", "_dispatch_receive"):
        compile_kernel(getattr(dispatch, name), constants, folder / f"{name}.ptx")
    constants = combine._constants(routing, torch.bfloat16, hidden) | {"WEIGHTED": True}
    for name in ("_combine", "_combine_send", "_combine_receive"):
        compile_kernel(getattr(combine, name), constants, folder / f"{name}.ptx")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3]))
