"""Compiles all_reduce's ``exchange`` for an H200 that need not be there: ``exchange_ptx.py WORDS PES FILE``.

Of bfloat16, whose number is known to be a multiple of nothing. Writes its PTX to FILE.
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
from triton_dist.kernels.collectives.exchange import all_reduce_exchange, group_of, warps_of
from triton_dist.kernels.protocols.members import Members


def compiled(words: int, size: int) -> Any:
    constants: dict[str, Any] = {
        "MEAN": False, "DTYPE": tl.bfloat16, "BLOCK": 2 * words, "GROUP": group_of(words, size), "PIECE": words,
        "MEMBERS": Members(0, 1, size), "trace": None,
    }  # fmt: skip
    names = all_reduce_exchange.arg_names
    pointers = {"output": "*bf16", "input": "*bf16", "slots": "*i32"}
    types = {"n": "i32"} | pointers | dict.fromkeys(constants, "constexpr")
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    signature = {name: types[name] for name in names}
    source = ASTSource(fn=all_reduce_exchange, signature=signature, constexprs=constants, attrs=aligned)
    with transport.using("p2p"):
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps_of(words)})


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(compiled(int(sys.argv[1]), int(sys.argv[2])).asm["ptx"])
