"""Compiles a flash decode for an H200 that need not be there: ``decode_ptx.py CASE PES [dependent] FILE``. For one PE
it is that of heads that PEs share, and stores no logarithms.

Writes its PTX to FILE and prints the bytes of shared memory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.attention.arguments import shape_for
from triton_dist.kernels.attention.flash_decode import flash_decode_kernel
from triton_dist.kernels.dependent_launch import launch_options
from triton_dist.kernels.protocols.members import Members
from triton_dist.kernels.tile_order import tasks_in_step

CASES = {  # query heads a KV head, head size, of values, the cache's dtype, pages, scattered heads
    "64": (1, 64, 64, "bf16", False, False),
    "gqa": (8, 128, 128, "bf16", True, False),
    "scattered": (16, 128, 128, "bf16", False, True),
    "fp8": (8, 128, 128, "fp8e4nv", True, False),
    "256": (4, 256, 256, "bf16", True, False),
    "mla": (128, 576, 512, "bf16", True, True),
    "mla-16": (16, 576, 512, "bf16", True, False),
}


def compiled(case: str, size: int, *, dependent: bool = False) -> Any:
    """The kernel of a case for so many PEs."""
    group, dim, dim_v, cache, paged, scatter = CASES[case]
    first = 1 << (dim.bit_length() - 1)
    itemsize = 1 if cache.startswith("fp8") else 2
    shape = shape_for(group, first, dim - first, dim_v, itemsize, size, split=True, gpu=True)
    constants: dict[str, Any] = {
        "QUERY_HEADS": 8 * group if dim <= 256 else group, "KV_HEADS": 8 if dim <= 256 else 1, "ROWS": shape.rows,
        "TILES": shape.tiles, "DV": dim_v, "D": first, "REST": dim - first, "BLOCK_N": shape.block_n, "REQUESTS": 64,
        "PAGED": paged, "V_IN_K": dim > first, "SCATTER": scatter, "PES": shape.pes, "TOGETHER": shape.together,
        "COLUMNS": shape.columns, "WAYS": shape.ways, "RADIX": shape.radix, "PAGE": 16 * paged,
        "TILE_GROUPS": tasks_in_step(shape.tiles, 132), "HEAD_GROUPS": 8 if dim <= 256 else 1,
        "MEMBERS": Members(0, 1, size), "trace": None, "DEPENDENT": dependent,
    } | ({} if cache.startswith("fp8") else {"k_scale": None, "v_scale": None})  # fmt: skip
    constants |= {"lse": None} if size == 1 else {}
    pointers = {"q": "*bf16", "k": f"*{cache}", "v": f"*{cache}", "out": "*bf16", "lengths": "*i32", "table": "*i32"}
    pointers |= {"counters": "*i32", "slots": "*i64"}
    pointers |= dict.fromkeys(("lse", "parts", "k_scale", "v_scale"), "*fp32")
    types = dict.fromkeys(flash_decode_kernel.arg_names, "i32") | pointers | {"scale": "fp32"}
    types |= dict.fromkeys(constants, "constexpr")
    aligned = [*pointers, "q_request", "q_head", "k_page", "k_token", "k_head", "v_page", "v_token", "v_head", "half"]
    place = flash_decode_kernel.arg_names.index
    attributes = {(place(name),): [["tt.divisibility", 16]] for name in aligned if types[name] != "constexpr"}
    source = ASTSource(fn=flash_decode_kernel, signature=types, constexprs=constants, attrs=attributes)
    options = {"num_warps": shape.warps, "num_stages": shape.stages} | launch_options(dependent=dependent)
    with transport.using("p2p"):
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


if __name__ == "__main__":
    kernel = compiled(sys.argv[1], int(sys.argv[2]), dependent="dependent" in sys.argv)
    Path(sys.argv[-1]).write_text(kernel.asm["ptx"])
    print(kernel.metadata.shared)
