"""Compiles kernels of collectives for parts of 2**31 elements and for fewer; prints each name, and its Triton IR."""

from __future__ import annotations

import json
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.collectives import all_gather, all_reduce, all_to_all, broadcast, copies, reduce_scatter
from triton_dist.kernels.collectives.exchange import all_reduce_exchange
from triton_dist.kernels.collectives.exchange_chunks import reduce_scatter_exchange
from triton_dist.kernels.collectives.gather_exchange import all_gather_exchange
from triton_dist.kernels.collectives.two_exchanges import all_reduce_two_exchanges
from triton_dist.kernels.protocols.members import Members

ARGUMENTS = {
    "output": "*i8", "input": "*i8", "tensor": "*i8", "to": "*i8", "source": "*i8", "memory": "*i8",
    "barriers": "*i32", "slots": "*i32", "root": "i32", "rounds": "i32",
    "n": "i32", "part": "i32", "total": "constexpr", "trace": "constexpr",
}  # fmt: skip
CONSTANTS: dict[str, Any] = {
    "MEMBERS": Members(0, 1, 4), "BLOCK": 2048, "OP": "sum", "total": None, "trace": None,
    "PER_ROUND": 2, "SLOT": 4096, "MEAN": False, "DTYPE": tl.bfloat16, "GROUP": 4, "PIECE": 1024,
    "WORDS": 1024, "row": None,
}  # fmt: skip
KERNELS = {
    "all_gather": all_gather.all_gather_push,
    "all_gather, exchange": all_gather_exchange,
    "all_to_all": all_to_all.all_to_all_push,
    "broadcast": broadcast.broadcast_push,
    "copies": copies.copies_own_part,
    "all_reduce, direct": all_reduce.all_reduce_direct,
    "all_reduce, push": all_reduce.all_reduce_push,
    "reduce_scatter": reduce_scatter.reduce_scatter_push,
    "all_reduce, exchange": all_reduce_exchange,
    "all_reduce, two_exchanges": all_reduce_two_exchanges,
    "reduce_scatter, exchange": reduce_scatter_exchange,
}


def ir_of(kernel: Any, wide: bool) -> str:
    constants = {name: value for name, value in (CONSTANTS | {"WIDE": wide}).items() if name in kernel.arg_names}
    types = {name: "constexpr" if name in constants else ARGUMENTS[name] for name in kernel.arg_names}
    if "DTYPE" in constants:
        types |= dict.fromkeys(("output", "input"), "*i32" if "WORDS" in constants else "*bf16")
    with transport.using("p2p"):
        source = ASTSource(kernel, types, constants)
        return str(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["ttir"])


if __name__ == "__main__":
    print(json.dumps({name: [ir_of(kernel, wide) for wide in (False, True)] for name, kernel in KERNELS.items()}))
