"""Compiles the kernels of rounds by TMA for an H200 that need not be there: ``rounds_tma_ptx.py FOLDER CASE…``.

A case is the bytes of a row, how many choices a token has, PEs and SMs: ``7168-8-2-24``. Writes the PTX of the kernel
that moves rows, by the host's code, that of the one in front, ``headers-…``, and that of a combine of bfloat16 rows by
weights, ``combine-…``, to FOLDER. ``14336-8-2-24-float16`` is a combine of float16 rows without weights, and no more.
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

from triton_dist.kernels.moe import combine_by_tma, rounds_by_tma, rounds_headers
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.results import result_of
from triton_dist.kernels.moe.rounds_plan import combine_plan_for, plan_for
from triton_dist.kernels.protocols.members import Members

EXPERTS, MAX_TOKENS = 64, 256


def run_case(folder: Path, case: str) -> None:
    sizes_of_case, dtype = case.split("-")[:4], "".join(case.split("-")[4:])
    row_bytes, top_k, n_pes, programs = map(int, sizes_of_case)
    comm: Any = SimpleNamespace(n_pes=n_pes, my_rank=1, peer=lambda tensor, rank: tensor)
    comm.own = functools.cache(lambda kind: kind(comm))
    ids = torch.zeros(MAX_TOKENS, top_k, dtype=torch.int64)
    sizes = Members(0, 1, n_pes), EXPERTS // n_pes, MAX_TOKENS, 1, 1024
    plan = plan_for(n_pes, top_k, row_bytes, programs)
    routing = Routing(ids, ids.float(), *sizes, comm=comm, num_sms=programs, plan=plan)
    assert plan is not None
    n_scales = row_bytes // 128
    x = torch.zeros(MAX_TOKENS, row_bytes, dtype=torch.uint8).view(torch.float8_e4m3fn)
    result = result_of(routing, x.dtype, x.shape[1], n_scales, torch.zeros)
    write_code_to(folder, f"combine-{case}")
    of_combine = combine_plan_for(n_pes, top_k, row_bytes)
    assert of_combine is not None
    y, out = torch.zeros(2, 1024, row_bytes, dtype=torch.uint8).view(getattr(torch, dtype or "bfloat16"))
    combine_by_tma.combine_by_tma(of_combine, y, result, out[:MAX_TOKENS], not dtype, 0)
    if dtype:
        return
    write_code_to(folder, case)
    rounds_by_tma.move_rows(plan, x, routing, result, programs)
    constants = rounds_headers.constants_of_headers(routing, n_scales, programs, rounds_headers._WARPS, plan.headers)
    compile_kernel(
        rounds_headers.moe_dispatch_rounds_headers, constants, folder / f"headers-{case}.ptx", {"scales": "*i32"},
        rounds_headers._WARPS, {"debug": True},
    )  # fmt: skip


if __name__ == "__main__":
    replace_the_gpu()
    rounds_by_tma.current_world = lambda: SimpleNamespace(device=torch.device("cpu"))  # type: ignore[assignment]
    rounds_by_tma.symmetric_workspace = (  # type: ignore[assignment]
        lambda comm, name, numel, dtype=torch.int32: torch.zeros(numel, dtype=dtype)
    )
    for case in sys.argv[2:]:
        run_case(Path(sys.argv[1]), case)
