"""Compiles the kernels of tokens by TMA for an H200 that need not be there: ``tokens_ptx.py FOLDER CASE…``.

A case is the bytes of a row, how many choices a token has, PEs, SMs, and scales of a row: ``7168-8-2-24-56``. Writes
the PTX of the kernel that moves tokens, of the one that stores them to results, ``direct-…``, of the ones in front,
``tables-…`` and ``direct-tables-…``, and of a combine of bfloat16 rows of up to 16 KB, ``combine-…``, by the host's
code, to FOLDER. ``7168-8-2-24-56-rows`` is a dispatch by a handle, without ids and
weights, and is no more.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hopper_launches import replace_the_gpu, write_code_to
from moe_ptx import compile_kernel

from triton_dist.kernels.moe import rounds_by_tma, token_batches, tokens_by_tma
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.rounds_plan import sums_plan_for, tokens_plan_for
from triton_dist.kernels.moe.token_batches import tables_of
from triton_dist.kernels.moe.tokens_by_tma import Beside
from triton_dist.kernels.protocols.members import Members

EXPERTS, MAX_TOKENS = 64, 256


def run_case(folder: Path, case: str) -> None:
    row_bytes, top_k, n_pes, programs, n_scales = map(int, case.split("-")[:5])
    only_rows = case.endswith("-rows")
    comm: Any = SimpleNamespace(n_pes=n_pes, my_rank=1, peer=lambda tensor, rank: tensor)
    comm.own = functools.cache(lambda kind: kind(comm))
    plan = tokens_plan_for(n_pes, top_k, row_bytes)
    assert plan is not None
    ids = torch.zeros(MAX_TOKENS, top_k, dtype=torch.int64)
    sizes = Members(0, 1, n_pes), EXPERTS // n_pes, MAX_TOKENS, 1, 1024
    routing = Routing(ids, ids.float(), *sizes, comm=comm, num_sms=programs, plan=plan)
    x, out = torch.zeros(2, 1024, row_bytes, dtype=torch.uint8).view(torch.float8_e4m3fn)
    scales = torch.zeros(1024, n_scales) if n_scales else None
    beside = Beside(None, None, scales) if only_rows else Beside(ids, routing.weights, scales)
    tables = torch.zeros(tables_of(routing).words, dtype=torch.int32)
    write_code_to(folder, case)
    tokens_by_tma.move_tokens(plan, x[:MAX_TOKENS], routing, beside, out, beside, tables, 0, early=not only_rows)
    if only_rows:
        return
    write_code_to(folder, f"direct-{case}")
    tokens_by_tma.move_directly(plan, x[:MAX_TOKENS], routing, beside, out, beside, tables, 0)
    if (of_sums := sums_plan_for(n_pes, row_bytes)) is not None:
        write_code_to(folder, f"combine-{case}")
        y = out.view(torch.bfloat16)
        tokens_by_tma.combine_by_tma(of_sums, y, routing, tables, y[:MAX_TOKENS], 0)
    for direct, name in ((False, "tables"), (True, "direct-tables")):
        compile_kernel(
            token_batches.moe_token_batches, token_batches.constants_of(routing, direct=direct),
            folder / f"{name}-{case}.ptx", {"ids": "*i64", "messages": "*i64"}, token_batches.WARPS, {"debug": True},
        )  # fmt: skip


if __name__ == "__main__":
    replace_the_gpu()
    rounds_by_tma.current_world = lambda: SimpleNamespace(device=torch.device("cpu"))  # type: ignore[assignment]
    for early in (token_batches, tokens_by_tma):
        early.begins_early = lambda: True  # type: ignore[attr-defined]
    for module in (rounds_by_tma, tokens_by_tma):
        module.symmetric_workspace = (  # type: ignore[attr-defined]
            lambda comm, name, numel, dtype=torch.int32: torch.zeros(numel, dtype=dtype)
        )
    for case in sys.argv[2:]:
        run_case(Path(sys.argv[1]), case)
