"""Compile the two-level collectives, and what GEMMs add to them, for an H200: ``two_level_ptx.py TRANSPORT…``.

Prints their PTX as JSON, by transport, which may be one between pretended hosts, and name. Started by
test_two_level_code.py; why, and ``ptx_of``: kernels_ptx.py.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kernels_ptx import ptx_of

from triton_dist.compiler import transport
from triton_dist.kernels.collectives.two_level.reduce_scatter import reduce_scatter_two_level
from triton_dist.kernels.gemm.between_hosts import gemm_between_hosts_finish_rows
from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.protocols.host_exchange import host_exchange_admit, host_exchange_kernel
from triton_dist.kernels.protocols.members import Members

EXCHANGE = {"to": "*u8", "source": "*u8", "signals": "*i64", "nbytes": "i32", "share": "i32", "distance": "i32"}
EXCHANGE["COLUMN"] = Members(0, 4, 2, True)
GRID = {"ROW": Members(0, 1, 4, True), "COLUMN": Members(0, 4, 2, True), "trace": None}
EIGHT = {"ROW": Members(0, 1, 8, True), "COLUMN": Members(0, 8, 2, True)}
MEMORY = {"data": "*bf16", "signals": "*i64", "barriers": "*i32", "BLOCK": 4096, "ROOM": 65536, "rounds": "i32"}
PARTS = {"output": "*bf16", "input": "*bf16", "total": "i32", "part": "i32", "n": "i32", "IN_PLACE": False, "OP": "sum"}
COMMON: dict[str, Any] = GRID | MEMORY | PARTS | {"tensor": "*bf16", "root_host": "i32", "root_local": "i32"}
FINISH: dict[str, Any] = {"c": "*bf16", "sums": "*fp32", "epilogue": EMPTY, "BLOCK_M": 16, "BLOCK_N": 128}
FINISH["PARTS"] = 1
FINISH |= dict.fromkeys(("first", "M", "N", "each"), "i32")
NAMES = ("all_gather", "reduce_scatter", "all_to_all", "broadcast")

if __name__ == "__main__":
    found = {}
    for of in sys.argv[1:]:
        transport.choose(of.partition(",")[0], 8, pretends_hosts="pretended" in of)
        for kernel in NAMES:
            module = sys.modules[f"triton_dist.kernels.collectives.two_level.{kernel}"]
            key = f"{of}: {kernel}"
            found[key] = ptx_of(getattr(module, f"{kernel}_two_level"), COMMON, 8)
        if of == "p2p":
            for name in NAMES[:3]:
                module = sys.modules[f"triton_dist.kernels.collectives.two_level.{name}"]
                found[f"{of}: {name} of 16 PEs"] = ptx_of(getattr(module, f"{name}_two_level"), COMMON | EIGHT, 8)
        of_gemms = key.replace(kernel, "sums of GEMMs"), key.replace(kernel, "finished rows of GEMMs")
        found[of_gemms[0]] = ptx_of(reduce_scatter_two_level, COMMON | {"output": "*fp32"}, 8)
        found[of_gemms[1]] = ptx_of(gemm_between_hosts_finish_rows, FINISH, 4)
        of_slices = FINISH | {"sums": "*bf16", "PARTS": 4}
        found[key.replace(kernel, "finished sums of hosts")] = ptx_of(gemm_between_hosts_finish_rows, of_slices, 4)
        found[key.replace(kernel, "admission")] = ptx_of(host_exchange_admit, EXCHANGE, 1)
        found[key.replace(kernel, "exchange")] = ptx_of(host_exchange_kernel, EXCHANGE, 4)
    print(json.dumps(found))
