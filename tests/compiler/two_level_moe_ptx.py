"""Compile dispatch and combine of a group on 2 hosts of 4 PEs for an H200: ``two_level_moe_ptx.py TRANSPORT…``.

Prints their PTX as JSON, by transport, which may be one between pretended hosts, and name. Started by
test_two_level_moe_code.py; why, and ``ptx_of``: kernels_ptx.py.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import torch
import triton.language as tl
from kernels_ptx import ptx_of

from triton_dist.compiler import transport
from triton_dist.kernels.moe import host_exchange
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.dispatch_counts import Sources
from triton_dist.kernels.moe.results import parts_of
from triton_dist.kernels.protocols.members import Members

dispatch, combine, rounds = (import_module(f"triton_dist.kernels.moe.{name}") for name in ("dispatch", "combine", "rounds"))

ROW, COLUMN = Members(0, 1, 4, True), Members(0, 4, 2, True)
HIDDEN, TOP_K, MAX_TOKENS, LOCAL = 7168, 8, 128, 32
IDS = torch.empty(MAX_TOKENS, TOP_K, dtype=torch.int64)
ROUTING = Routing(IDS, IDS.float(), Members(0, 1, 8), LOCAL, MAX_TOKENS, 1, 8192, hosts=2)
INSIDE = ROUTING._replace(
    ids=IDS.int(), members=ROW, hosts=1, max_tokens=ROUTING.tokens_of_hosts, sources=Sources(2, MAX_TOKENS, 4, 1)
)
POINTERS = ("x", "scales", "rows", "row_scales", "outbox", "inbox", "memory", "out", "sums", "slots", "out_scales", "y")
TYPES: dict[str, Any] = {
    **dict.fromkeys(POINTERS, "*i32"), "ids": "*i64", "weights": "*fp32", "row_weights": "*fp32", "n_tokens": "i32",
    **dict.fromkeys(("signals", "numbers", "sent_numbers", "received_numbers"), "*i64"),
    "ROW": ROW, "COLUMN": COLUMN, "K": TOP_K, "KP": TOP_K, "L": LOCAL, "CHUNKS": ROUTING.chunks,
    "AT_IDS": parts_of(ROUTING)[-3], "AT_COUNTS": parts_of(ROUTING)[-2],
}  # fmt: skip
IN_HOST: dict[str, Any] = {
    **TYPES, "ids": "*i32", "capacity": "i32", **dict.fromkeys(("counts", "words", "flags"), "*i64"),
    **dict.fromkeys(("sent_numbers", "received_numbers", "numbers", "rounds", "order"), "*i32"),
}  # fmt: skip


def of_hosts(itemsize: int) -> dict[str, str]:
    """What crosses between hosts, of rows of so many bytes an element."""
    data, scales = HIDDEN * itemsize // 4, HIDDEN // 128 if itemsize == 1 else 0
    sizes = {"DATA": data, "SCALES": scales, "MESSAGE": host_exchange.words_of_message(ROUTING, data, scales)}
    given = TYPES | sizes | {"WORDS": HIDDEN // 2, "DTYPE": tl.bfloat16, "BLOCK": 512}
    names = ("send_rows", "receive_rows", "exchange_rows", *(("return_sums",) if itemsize == 2 else ()))
    return {f"{name}, {itemsize} bytes": ptx_of(getattr(host_exchange, name), given, 8) for name in names}


def inside_host() -> dict[str, str]:
    """The kernels of one host, of tokens of two hosts."""
    constants = dispatch._constants(INSIDE, HIDDEN // 2, 0)
    constants |= dispatch._sending(INSIDE, constants) | dispatch._layout(INSIDE)
    summed = combine._constants(INSIDE, torch.bfloat16, HIDDEN) | {"WEIGHTED": True, "PARTS": parts_of(INSIDE)[:6]}
    in_rounds = {"B": 8, "BLOCK": 256, "TOKENS": 64, "TAKEN": 256}
    return {
        "dispatch": ptx_of(dispatch._dispatch, IN_HOST | constants, 8),
        "dispatch in rounds": ptx_of(rounds._dispatch, IN_HOST | constants | in_rounds, 16),
        "combine": ptx_of(combine._combine, IN_HOST | summed, 8),
        "combine in rounds": ptx_of(rounds._combine, IN_HOST | summed | in_rounds | {"words": "*i64"}, 16),
    }


if __name__ == "__main__":
    found = {}
    for of in sys.argv[1:]:
        transport.choose(of.partition(",")[0], 8, pretends_hosts="pretended" in of)
        kernels = of_hosts(2) | of_hosts(1) | inside_host()
        found |= {f"{of}: {name}": text for name, text in kernels.items()}
    print(json.dumps(found))
