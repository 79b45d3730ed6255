"""Compile kernels for an H200 and print their PTX as JSON, by module and name. Started by test_kernels_code.py.

The reductions of other types are those that the command names, such as ``"sum of int8"``.

A process of its own: device functions that call others are compiled only where ``triton.jit`` does not interpret.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_dist.kernels  # noqa: F401
from triton_dist.compiler import transport
from triton_dist.kernels.gemm.epilogue import EMPTY, Epilogue
from triton_dist.kernels.gemm.fp8 import RowScales
from triton_dist.kernels.tracing.events import SEND, clock, record_event

MOVED = {
    "output": "*i32",
    "input": "*i32",
    "n": "i32",
    "part": "i32",
    "total": None,
    "MEMBERS": (0, 1, 4),
    "trace": None,
}
SUMMED = MOVED | {"output": "*bf16", "input": "*bf16", "OP": "sum"}
LARGE = {"barriers": "*i32", "BLOCK": 4096}
SMALL = {"slots": "*i64", "BLOCK": 512}
STAGED = {"memory": "*bf16", "rounds": "i32", "PER_ROUND": 4, "SLOT": 16384}
SUM_OF_WORDS = {"DTYPE": tl.bfloat16, "PER_WORD": 2, "OP": "sum"}
PRODUCT = dict.fromkeys(("a", "b", "c"), "*bf16") | {
    "flags": "*i32",
    "MEMBERS": (0, 1, 4),
    "trace": None,
    "scale": "*fp32",
    "epilogue": EMPTY,
}
PRODUCT |= dict.fromkeys(("comm_programs", "M", "N", "K", "a_step", "b_row", "b_column", "c_step"), "i32")
PRODUCT |= {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "WHOLE": False, "SCALES": "none"}
KERNELS: dict[tuple[str, str], tuple[dict[str, Any], int]] = {
    ("collectives.all_gather", "all_gather_push"): (MOVED | LARGE, 8),
    ("collectives.all_to_all", "all_to_all_push"): (MOVED | LARGE, 8),
    ("collectives.reduce_scatter", "reduce_scatter_push"): (SUMMED | LARGE | STAGED, 16),
    ("collectives.all_reduce", "all_reduce_push"): (SUMMED | LARGE | STAGED, 16),
    ("collectives.all_reduce", "all_reduce_direct"): (SUMMED | LARGE, 8),
    ("collectives.broadcast", "broadcast_scatter"): (
        MOVED | LARGE | {"tensor": "*i32", "root": "i32", "rounds": "i32", "per_round": "i32"},
        16,
    ),
    ("collectives.all_gather", "all_gather_low_latency"): (MOVED | SMALL, 4),
    ("collectives.all_reduce", "all_reduce_two_shot"): (MOVED | SMALL | SUM_OF_WORDS, 8),
    ("protocols.stream_barrier", "stream_barrier_kernel"): (MOVED | LARGE, 4),
    ("gemm.portable", "gemm_portable_scatter"): (PRODUCT, 8),
    ("gemm.portable", "gemm_portable_scatter_by_programs"): (PRODUCT, 8),
}


def reduction(name: str, dtype: tl.dtype, op: str) -> dict[str, Any]:
    """Arguments for a reduction of elements of ``dtype``, called ``name`` in signatures; small ones are words."""
    elements = dict.fromkeys(("output", "input", "memory"), f"*{name}")
    per_word = max(32 // dtype.primitive_bitwidth, 1)
    return elements | {"OP": op, "DTYPE": dtype, "PER_WORD": per_word, "BLOCK": 32768 // dtype.primitive_bitwidth}


REDUCTIONS = {
    "sum of int8": reduction("i8", tl.int8, "sum"),
    "max of uint8": reduction("u8", tl.uint8, "max"),
    "min of int32": reduction("i32", tl.int32, "min"),
    "sum of int64": reduction("i64", tl.int64, "sum"),
    "avg of float64": reduction("fp64", tl.float64, "avg"),
}
REDUCTIONS_BY = {"all_reduce_push": 8, "all_reduce_direct": 8, "all_reduce_two_shot": 8}  # their numbers of warps


@triton.jit
def traced(output, input, trace):
    began = clock(trace)
    tl.store(output, tl.load(input))
    record_event(trace, SEND, 0, began)


@triton.jit
def untraced(output, input, trace):
    tl.store(output, tl.load(input))


def ptx_of(
    kernel: Any, arguments: dict[str, Any], num_warps: int, *, num_stages: int = 3, architecture: int = 90
) -> str:
    arguments = {"WIDE": False, "row": None} | arguments  # of parts of less than 2**31 elements, one behind the other
    chosen = {key: arguments[key] for key in kernel.arg_names}
    typed = {param.name for param in kernel.params if isinstance(chosen[param.name], str) and not param.is_constexpr}
    signature = {key: value if key in typed else "constexpr" for key, value in chosen.items()}
    constants: dict[Any, Any] = {key: value for key, value in chosen.items() if key not in typed}
    for i, key in enumerate(chosen):
        if isinstance(chosen[key], Epilogue):  # a tuple, of which all is None
            signature[key] = Epilogue(*["constexpr"] * len(EMPTY))
            del constants[key]
            constants |= {(i, j): None for j in range(len(EMPTY))}
        elif isinstance(chosen[key], RowScales):  # a tuple of pointers
            signature[key] = chosen[key]
            del constants[key]
    aligned = {(i,): [["tt.divisibility", 16]] for i, key in enumerate(chosen) if key in typed}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": num_warps, "num_stages": num_stages}
    ptx: str = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options).asm["ptx"]
    return ptx


if __name__ == "__main__":
    with transport.using("p2p"):
        found = {
            f"{module}.{name}": ptx_of(getattr(sys.modules[f"triton_dist.kernels.{module}"], name), *how)
            for (module, name), how in KERNELS.items()
        }
        for (name, num_warps), reduction in product(REDUCTIONS_BY.items(), sys.argv[1:]):
            how = SUMMED | LARGE | STAGED | REDUCTIONS[reduction]
            if name == "all_reduce_two_shot":
                how |= SMALL | dict.fromkeys(("output", "input"), "*i32")
            kernel = getattr(sys.modules["triton_dist.kernels.collectives.all_reduce"], name)
            found[f"{name}, {reduction}"] = ptx_of(kernel, how, num_warps)
        for name, kernel, trace in (("traced", traced, "*i64"), ("off", traced, None), ("untraced", untraced, None)):
            found[name] = ptx_of(kernel, {"output": "*i32", "input": "*i32", "trace": trace}, 4)
        for (module, name), (types, num_warps) in KERNELS.items():
            kernel = getattr(sys.modules[f"triton_dist.kernels.{module}"], name)
            if "trace" in kernel.arg_names:
                found[f"{module}.{name}, traced"] = ptx_of(kernel, types | {"trace": "*i64"}, num_warps)
        print(json.dumps(found))
