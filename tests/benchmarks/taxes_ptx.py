"""Compiles the kernels of benchmarks/taxes_kernels.py for an H200 that need not be there: ``taxes_ptx.py NAME FILE``.

Writes the kernel's PTX to FILE and prints the bytes of shared memory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.protocols.members import Members

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import taxes_kernels

MEMBERS = {"MEMBERS": Members(0, 1, 2), "trace": None}
KERNELS: dict[str, tuple[Any, dict[str, str], dict[str, Any], dict[str, int]]] = {
    "gemm": (
        taxes_kernels._gemm_from_peers,
        {"a": "*bf16", "b": "*bf16", "c": "*bf16", "barriers": "*i32"},
        {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64},
        {"num_warps": 8, "num_stages": 3},
    ),
    "combine": (
        taxes_kernels._combine_on_arrival,
        {"parts": "*bf16", "logarithms": "*fp32", "out": "*bf16", "slots": "*i64"},
        {"DV": 128, "PES": 2},
        {"num_warps": 1},
    ),
}


def main(name: str, file: Path) -> None:
    kernel, pointers, constants, options = KERNELS[name]
    constants = constants | MEMBERS
    types = dict.fromkeys(kernel.arg_names, "i32") | pointers | dict.fromkeys(constants, "constexpr")
    place = kernel.arg_names.index
    aligned = [*pointers, *({"N", "K", "half"} & set(kernel.arg_names))]
    attributes = {(place(one),): [["tt.divisibility", 16]] for one in aligned}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=attributes)
    with transport.using("p2p"):
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    file.write_text(compiled.asm["ptx"])
    print(compiled.metadata.shared)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
