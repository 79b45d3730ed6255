"""Compiles the broadcast in rounds for an H200 that need not be there, and prints its PTX."""

from __future__ import annotations

import importlib
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport


def main() -> None:
    kernel = importlib.import_module("triton_dist.kernels.broadcast")._scatter
    constants: dict[str, Any] = {"N_PES": 4, "BLOCK": 4096, "trace": None}
    types = dict.fromkeys(kernel.arg_names, "i32") | dict.fromkeys(constants, "constexpr")
    types |= {"tensor": "*i32", "meeting_room": "*i32"}
    aligned = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in ("tensor", "meeting_room", "n")}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
    with transport.using("p2p"):
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 16})
    print(compiled.asm["ptx"])


if __name__ == "__main__":
    main()
