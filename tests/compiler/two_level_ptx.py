"""Compile the two-level collectives for an H200, for both transports and between pretended hosts, and print their PTX
as JSON, by transport and name. Started by test_two_level_code.py; why, and ``ptx_of``: kernels_ptx.py."""

from __future__ import annotations

import json
import sys
from typing import Any

from kernels_ptx import ptx_of

from triton_dist.compiler import transport
from triton_dist.kernels.protocols.members import Members

GRID = {"ROW": Members(0, 1, 4, True), "COLUMN": Members(0, 4, 2, True), "trace": None}
MEMORY = {"data": "*bf16", "signals": "*i64", "barriers": "*i32", "BLOCK": 4096, "ROOM": 65536, "rounds": "i32"}
PARTS = {"output": "*bf16", "input": "*bf16", "total": "i32", "part": "i32", "n": "i32", "IN_PLACE": False, "OP": "sum"}
COMMON: dict[str, Any] = GRID | MEMORY | PARTS | {"tensor": "*bf16", "root_host": "i32", "root_local": "i32"}
NAMES = ("all_gather", "reduce_scatter", "all_to_all", "broadcast")

if __name__ == "__main__":
    found = {}
    for name, pretends in (("p2p", False), ("p2p", True), ("nvshmem", False)):
        transport.choose(name, 8, pretends_hosts=pretends)
        for kernel in NAMES:
            module = sys.modules[f"triton_dist.kernels.collectives.two_level.{kernel}"]
            key = f"{name}{', pretended hosts' if pretends else ''}: {kernel}"
            found[key] = ptx_of(getattr(module, f"_{kernel}"), COMMON, 8)
    print(json.dumps(found))
