"""Compiles the fused layer's kernels for an H200 that need not be there: ``fused_experts_ptx.py FOLDER CASE…``.

A case is a kernel, an average of rows, and how many PEs there are: ``dispatch-1024-2``, ``combine-8-8``. Writes the PTX
of each, by the host's code, to FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from hopper_launches import replace_the_gpu, write_code_to

from triton_dist.kernels.gemm.hopper import dispatch_grouped_gemm, grouped_gemm_combine
from triton_dist.kernels.gemm.hopper.epochs import Peers
from triton_dist.kernels.moe.grouped_gemm import config_for

EXPERTS, INNER, COLUMNS, MAX_TOKENS, TOP_K = 64, 2048, 768, 64, 8


def words(*size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32)


def run_case(kind: str, average: int, n_pes: int) -> None:
    x, up = torch.zeros(MAX_TOKENS, INNER).bfloat16(), torch.zeros(EXPERTS, 2 * COLUMNS, INNER).bfloat16()
    hidden, down = torch.zeros(1024, COLUMNS).bfloat16(), torch.zeros(EXPERTS, INNER, COLUMNS).bfloat16()
    distances = torch.zeros(n_pes, dtype=torch.int64)
    if kind == "dispatch":
        gathered = torch.zeros(n_pes, MAX_TOKENS, INNER).bfloat16()
        dispatch_grouped_gemm.run_dispatch(
            x, up.transpose(1, 2), hidden, gathered, words(1024), (words(EXPERTS * n_pes * 8), words(MAX_TOKENS)),
            words(128), Peers(0, words(24), distances), distances, 40, config_for(average, True, exchanges=True), 132,
        )  # fmt: skip
        return
    products, slots = torch.zeros(1024, INNER).bfloat16(), torch.zeros(2 * n_pes * MAX_TOKENS * 1024).bfloat16()
    exchange = grouped_gemm_combine.Exchange(
        products, x, words(EXPERTS * n_pes + 1), words(n_pes), words(n_pes, MAX_TOKENS, TOP_K), torch.zeros(1024),
        slots, words(132 * 256), distances, distances, 1, 40, EXPERTS,
    )  # fmt: skip
    grouped_gemm_combine.run_combine(
        hidden, down.transpose(1, 2), words(EXPERTS), exchange, words(128), 1024, True,
        config_for(average, exchanges=True), 132,
    )  # fmt: skip


def compile_case(folder: Path, case: str) -> None:
    write_code_to(folder, case)
    kind, average, n_pes = case.split("-")
    run_case(kind, int(average), int(n_pes))


if __name__ == "__main__":
    replace_the_gpu()
    for case in sys.argv[2:]:
        compile_case(Path(sys.argv[1]), case)
