"""Compiles the kernels of ``kernels.moe`` for an H100 that need not be there.

    moe_ptx.py FOLDER HIDDEN DTYPE LARGE N_PES…  # of so many PEs are the kernels with GEMMs

LARGE names those that take long and are compiled, "a,b,…"; the others are compiled always. Writes the PTX of each to a
file in FOLDER.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.results import parts_of
from triton_dist.kernels.protocols.members import Members

MODULES = (
    "arguments",
    "dispatch",
    "dispatch_messages",
    "dispatch_many",
    "combine",
    "combine_many",
    "senders",
    "grouped_gemm",
    "rounds",
    "gathered_routing",
    "all_gather_grouped_gemm",
    "grouped_gemm_reduce_scatter",
    "exchange",
    "tokens_by_expert",
)
(
    arguments, dispatch, messages, dispatch_many, combine, combine_many, senders, grouped_gemm, rounds, gathered,
    gathering, scattering, exchange, by_expert,
) = (import_module(f"triton_dist.kernels.moe.{name}") for name in MODULES)  # fmt: skip

rounds._blocks = lambda words, most: (8, min(most, int(triton.next_power_of_2(words))))
for module in (exchange, combine, senders):  # blocks as on a GPU
    module.block_of = lambda words, most: min(most, int(triton.next_power_of_2(words)))
for module in (arguments, exchange, senders):
    module.sms = lambda: 132
for module in (exchange, senders):
    module.has_gpu_sizes = lambda: True
senders.check_sm_margin = lambda function, sm_margin: 132 - sm_margin

N_PES, EXPERTS, TOP_K, MAX_TOKENS, MANY_TOKENS = 8, 256, 8, 128, 4096
POINTERS = {"counts": "*i64", "sums": "*i64", "flags": "*i64", "messages": "*i64", "ids": "*i64", "weights": "*fp32"}
SCALARS = ("n_tokens", "capacity", "senders")
ALIGNED = ("N", "K", "N_COLUMNS", "INNER", "a_step", "b_step", "b_column")


def compile_kernel(
    kernel: Any, constants: dict[str, Any], file: Path, types: dict[str, str] | None = None, warps: int = 0,
    more: dict[str, int] | None = None,
) -> None:  # fmt: skip
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    known = {**POINTERS, **dict.fromkeys(SCALARS, "i32"), **(types or {}), **dict.fromkeys(constants, "constexpr")}
    signature = {name: known.get(name, "*i32") for name in kernel.arg_names}
    wide = [
        (i,)
        for i, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or (kind == "i32" and name in ALIGNED)
    ]
    source = ASTSource(kernel, signature, constants, {i: [["tt.divisibility", 16]] for i in wide})
    options = {"num_warps": warps or exchange.warps_of(constants.get("BLOCK", 1024)), "sanitize_overflow": False}
    if kernel.__name__ in (
        "moe_dispatch_one_round",
        "moe_dispatch_rounds",
        "moe_dispatch_many",
        "moe_gather_routing_pack",
        "moe_group_by_expert",
    ):
        options["debug"] = True
    options |= more or {}
    with transport.using("p2p"):
        file.write_text(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])


def compile_many(routing: Routing, hidden: int, dtype: torch.dtype, sm_margin: int, folder: Path) -> None:
    """Dispatch and combine of thousands of tokens, by senders and receivers; with ``sm_margin`` one program each SM."""
    words, n_scales = hidden * dtype.itemsize // 4, hidden // 128 if dtype.itemsize == 1 else 0
    name = f"many_{routing.members.size}{'_margin' if sm_margin else ''}.ptx"
    plan = dispatch_many.plan_of("", routing, words, sm_margin)
    constants = dispatch_many.constants_of(routing, words, n_scales, plan)
    compile_kernel(dispatch_many.moe_dispatch_many, constants, folder / f"dispatch_{name}", more=plan.options)
    if dtype.itemsize > 1:
        plan = combine_many.plan_of("", routing, words, sm_margin)
        constants = combine_many.constants_of(routing, words, triton.language.bfloat16, True, plan)
        compile_kernel(combine_many.moe_combine_many, constants, folder / f"combine_{name}", more=plan.options)


def compile_combine(routing: Routing, hidden: int, folder: Path, types: dict[str, str]) -> None:
    constants = combine._constants(routing, torch.bfloat16, hidden) | {"WEIGHTED": True, "PARTS": parts_of(routing)[:9]}
    compile_kernel(combine.moe_combine_one_round, constants, folder / "combine.ptx")
    batch, block = rounds._blocks(constants["WORDS"], 256)
    of_rounds = constants | {"B": batch, "BLOCK": block, "TAKEN": min(block, 2048 // N_PES)}
    compile_kernel(
        rounds.moe_combine_rounds, of_rounds, folder / "combine_rounds.ptx", types, rounds._warps(batch * block)
    )


def main(folder: Path, hidden: int, dtype: torch.dtype, large: list[str], numbers_of_pes: list[int]) -> None:
    ids = torch.empty(MAX_TOKENS, TOP_K, dtype=torch.int64)
    local = EXPERTS // N_PES
    routing = Routing(ids, ids.float(), Members(0, 1, N_PES), local, MAX_TOKENS, 1, N_PES * MAX_TOKENS * TOP_K)
    fp8 = dtype.itemsize == 1
    words, n_scales = hidden * dtype.itemsize // 4, hidden // 128 if fp8 else 0
    constants = dispatch._constants(routing, words, n_scales) | {"ALIGN": 128, "FIXED": False}
    constants |= dispatch._sending(SimpleNamespace(programs=132), routing, constants) | {"PARTS": parts_of(routing)[:9]}
    compile_kernel(messages.moe_dispatch_one_round, constants, folder / "dispatch.ptx")
    many = routing._replace(max_tokens=MANY_TOKENS)
    compile_many(many, hidden, dtype, 0, folder)
    if "many" in large:
        compile_many(many, hidden, dtype, 32, folder)
        of_two = many._replace(members=Members(0, 1, 2), local_experts=EXPERTS // 2)
        compile_many(of_two, hidden, dtype, 0, folder)
    if "dispatch_rounds" in large:
        batch, block = rounds._blocks(words, 512)
        warps = rounds._warps(batch * block)
        of_rounds = constants | {"B": batch, "BLOCK": block, "TOKENS": 64 * warps // TOP_K}
        types = {"words": "*i64", "rounds": "*i32"}
        compile_kernel(rounds.moe_dispatch_rounds, of_rounds, folder / "dispatch_rounds.ptx", types, warps)
    if not fp8:
        compile_combine(routing, hidden, folder, types)
    operand, scales = ("*fp8e4nv", "*fp32") if fp8 else ("*bf16", "*bf16")
    types = dict.fromkeys(("a", "b"), operand) | {"c": "*bf16", "a_scales": scales, "b_scales": scales}
    types |= dict.fromkeys(("n_rows", "n_experts", "N", "K", "a_step", "b_step", "b_column"), "i32")
    tile = {
        "BLOCK_M": 128,
        "BLOCK_N": 64 if fp8 else 128,
        "BLOCK_K": 128 // dtype.itemsize,
        "SCALES": "blocks" if fp8 else "none",
    }
    multiplied = tile | {"b_row": 1, "SWIGLU": False}
    compile_kernel(
        grouped_gemm.moe_grouped_gemm_portable, multiplied, folder / "grouped_gemm.ptx", types | {"counts": "*i32"}
    )
    compile_by_expert(hidden, words, n_scales, folder)
    for n_pes in numbers_of_pes:
        compile_tensor_parallel(folder, large, n_pes, hidden, fp8, tile, types)


def compile_by_expert(hidden: int, words: int, n_scales: int, folder: Path) -> None:
    """What lies between tokens that came once and grouped GEMMs."""
    sizes = {"K": TOP_K, "WORDS": words, "SCALES": n_scales, "BLOCK": 2048}
    sizes["BLOCK_OF_SCALES"] = int(triton.next_power_of_2(max(1, n_scales)))
    compile_kernel(by_expert.moe_group_by_expert, sizes, folder / "group_by_expert.ptx", {"R": "i32"}, 8)
    types = {"out": "*bf16", "y": "*bf16"}
    sizes = {"K": TOP_K, "COLUMNS": hidden, "BLOCK": 1024}
    compile_kernel(by_expert.moe_sum_over_experts, sizes, folder / "sum_over_experts.ptx", types, 4)


def compile_tensor_parallel(
    folder: Path,
    large: list[str],
    n_pes: int,
    hidden: int,
    fp8: bool,
    tile: dict[str, Any],
    types: dict[str, str],
) -> None:
    """The kernels for experts of which every PE has a slice, and those of a layer in two kernels."""
    end, itemsize = f"_{n_pes}.ptx", 1 if fp8 else 2
    members = Members(0, 1, n_pes)
    routing = gathered.GatheredRouting(torch.empty(0), MAX_TOKENS, TOP_K, EXPERTS, MAX_TOKENS, members)
    common = {
        "MEMBERS": members, "N": n_pes, "E": EXPERTS, "K": TOP_K, "MAX_TOKENS": MAX_TOKENS, "PARTS": routing.parts,
        "CHUNKS": 4, "SIZE": 256,
    }  # fmt: skip
    compile_kernel(gathered.moe_gather_routing_pack, common | {"BLOCK": 1024}, folder / f"pack{end}", {}, 4)
    compile_kernel(gathered.moe_gather_routing_count, common, folder / f"count{end}", {}, 4)
    compile_kernel(gathered.moe_gather_routing_place, common, folder / f"place{end}", {}, 4)
    types = {
        **types, "out": "*bf16", "gathered": types["a"], "gathered_scales": types["a_scales"], "products": "*bf16",
        "slots": "*bf16", **dict.fromkeys(("N_COLUMNS", "INNER", "senders", "reducers"), "i32"),
    }  # fmt: skip
    multiplied = common | tile | {"b_row": 1, "FLAGS": 256, "PROGRAMS": 256, "WHOLE": False, "SWIGLU": False}
    gathered_rows = {"WORDS": hidden * itemsize // 4, "S": hidden // 128 if fp8 else 0, "BLOCK": 8192}
    scattered_rows = {"CHUNK": 8 * tile["BLOCK_N"], "WEIGHTED": True, "B": 4, "BLOCK": 512}
    gather = gathering.moe_all_gather_grouped_gemm, multiplied | gathered_rows, types | {"a": "*i32"}
    scatter = scattering.moe_grouped_gemm_reduce_scatter, multiplied | scattered_rows, types
    whole = {"WHOLE": True, "SWIGLU": True}
    for name, (kernel, constants, known), changed in (
        ("gather_and_multiply", gather, {}),
        ("dispatch_and_multiply", gather, whole),
        ("multiply_and_scatter", scatter, {}),
        ("multiply_and_combine", scatter, whole),
    ):
        if name in large:
            compile_kernel(kernel, constants | changed, folder / f"{name}{end}", known, 8)


if __name__ == "__main__":
    folder, hidden, dtype, large, *numbers_of_pes = sys.argv[1:]
    main(Path(folder), int(hidden), getattr(torch, dtype), large.split(","), [*map(int, numbers_of_pes)])
