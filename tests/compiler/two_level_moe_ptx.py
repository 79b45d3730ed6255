"""Compile kernels of dispatch and combine on 2 hosts of 4 PEs for an H200: ``two_level_moe_ptx.py TRANSPORT NAMES``.

Prints the PTX of NAMES, "a;b;…", as JSON, by transport, which may be one between pretended hosts, and name. Started by
test_two_level_moe_code.py; why, and ``ptx_of``: kernels_ptx.py.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl
from kernels_ptx import ptx_of

from triton_dist.compiler import transport
from triton_dist.kernels.moe import arguments, host_exchange
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.dispatch_counts import TokenSources
from triton_dist.kernels.moe.results import parts_of
from triton_dist.kernels.protocols.members import Members

MODULES = "dispatch", "dispatch_messages", "combine", "rounds", "exchange"
dispatch, messages, combine, rounds, exchange = (import_module(f"triton_dist.kernels.moe.{name}") for name in MODULES)
for module in (exchange, combine):  # blocks as on a GPU
    module.block_of = lambda words, most: min(most, int(triton.next_power_of_2(words)))
arguments.sms = lambda: 132

ROW, COLUMN = Members(0, 1, 4, True), Members(0, 4, 2, True)
HIDDEN, TOP_K, MAX_TOKENS, LOCAL = 7168, 8, 128, 32
IDS = torch.empty(MAX_TOKENS, TOP_K, dtype=torch.int64)
ROUTING = Routing(IDS, IDS.float(), Members(0, 1, 8), LOCAL, MAX_TOKENS, 1, 8192, hosts=2)
INSIDE = ROUTING._replace(
    ids=IDS.int(), members=ROW, hosts=1, max_tokens=ROUTING.tokens_of_hosts, sources=TokenSources(2, MAX_TOKENS, 4, 1)
)
POINTERS = ("x", "scales", "rows", "row_scales", "outbox", "inbox", "memory", "out", "sums", "slots", "out_scales", "y")
TYPES: dict[str, Any] = {
    **dict.fromkeys(POINTERS, "*i32"), "ids": "*i64", "weights": "*fp32", "row_weights": "*fp32", "n_tokens": "i32",
    **dict.fromkeys(("signals", "numbers", "sent_numbers", "received_numbers"), "*i64"),
    "ROW": ROW, "COLUMN": COLUMN, "K": TOP_K, "KP": TOP_K, "L": LOCAL, "CHUNKS": ROUTING.chunks,
    "AT_IDS": parts_of(ROUTING)[-3], "AT_COUNTS": parts_of(ROUTING)[-2],
}  # fmt: skip
IN_HOST: dict[str, Any] = {
    **TYPES, "ids": "*i32", "capacity": "i32", **dict.fromkeys(("counts", "sums", "words", "flags"), "*i64"),
    **dict.fromkeys(("sent_numbers", "received_numbers", "numbers", "rounds", "order"), "*i32"),
}  # fmt: skip


def between(name: str) -> str:
    """A kernel of what crosses between hosts, of rows of so many bytes an element."""
    kernel, itemsize = name.split(", ")[0], int(name.split(", ")[1][0])
    data, scales = HIDDEN * itemsize // 4, HIDDEN // 128 if itemsize == 1 else 0
    sizes = {"DATA": data, "SCALES": scales, "MESSAGE": host_exchange.words_of_message(ROUTING, data, scales)}
    given = TYPES | sizes | {"WORDS": HIDDEN // 2, "DTYPE": tl.bfloat16, "BLOCK": 512}
    return ptx_of(getattr(host_exchange, kernel), given, 8)


def inside_host(name: str) -> str:
    """A kernel of one host, of tokens of two hosts."""
    constants = dispatch._constants(INSIDE, HIDDEN // 2, 0)
    constants |= dispatch._sending(SimpleNamespace(programs=132), INSIDE, constants) | dispatch._layout(INSIDE)
    summed = combine._constants(INSIDE, torch.bfloat16, HIDDEN) | {"WEIGHTED": True, "PARTS": parts_of(INSIDE)[:9]}
    in_rounds = {"B": 8, "TOKENS": 128, "TAKEN": 256}
    if name == "dispatch":
        return ptx_of(messages.moe_dispatch_one_round, IN_HOST | constants, 8)
    if name == "combine":
        return ptx_of(combine.moe_combine_one_round, IN_HOST | summed, 8)
    if name == "dispatch in rounds":
        return ptx_of(rounds.moe_dispatch_rounds, IN_HOST | constants | in_rounds | {"BLOCK": 512}, 16)
    return ptx_of(rounds.moe_combine_rounds, IN_HOST | summed | in_rounds | {"BLOCK": 256}, 16)


if __name__ == "__main__":
    _, of, names = sys.argv
    transport.choose(of.partition(",")[0], 8, pretends_hosts="pretended" in of)
    print(
        json.dumps(
            {f"{of}: {name}": between(name) if "bytes" in name else inside_host(name) for name in names.split(";")}
        )
    )
