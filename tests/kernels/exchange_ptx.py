"""Compiles a kernel of exchanges for an H200 that need not be there: ``exchange_ptx.py KERNEL WORDS PES FILE``.

Of bfloat16, whose number is known to be a multiple of nothing, but of a part of 16. Writes its PTX to FILE.
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
from triton_dist.kernels.collectives.exchange_chunks import reduce_scatter_exchange
from triton_dist.kernels.collectives.gather_exchange import all_gather_exchange
from triton_dist.kernels.collectives.two_exchanges import all_reduce_two_exchanges
from triton_dist.kernels.protocols.members import Members

KERNELS = {
    "all_reduce": (all_reduce_exchange, {"n": 1}),
    "reduce_scatter": (reduce_scatter_exchange, {"part": 16}),
    "two_exchanges": (all_reduce_two_exchanges, {"n": 1, "part": 16}),
    "all_gather": (all_gather_exchange, {"n": 16}),
}
"""And what numbers of elements are a multiple of."""


def compiled(name: str, words: int, size: int) -> Any:
    kernel, numbers = KERNELS[name]
    constants: dict[str, Any] = {
        "MEAN": False, "DTYPE": tl.bfloat16, "BLOCK": 2 * words, "GROUP": group_of(words, size), "PIECE": words,
        "MEMBERS": Members(0, 1, size), "trace": None,
        "WORDS": words, "WIDE": False, "total": None, "row": None,
    }  # fmt: skip
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    names = kernel.arg_names
    element = "*i32" if "WORDS" in names else "*bf16"
    pointers = {"output": element, "input": element, "slots": "*i32"}
    types = dict.fromkeys(numbers, "i32") | pointers | dict.fromkeys(constants, "constexpr")
    multiples = [*pointers, *(name for name, of in numbers.items() if of == 16)]
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in multiples}
    signature = {name: types[name] for name in names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    with transport.using("p2p"):
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps_of(words)})


if __name__ == "__main__":
    Path(sys.argv[4]).write_text(compiled(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).asm["ptx"])
