"""Compiles Hopper's grouped GEMM for an H200 that need not be there: ``grouped_gemm_ptx.py FOLDER CASE…``.

A case is an average of rows and what is multiplied: ``8-bf16``, ``8-rows``, ``8-swiglu``, ``8-fp8``, ``8-blocks``,
``8-blocks swiglu``, ``8-blocks half`` (results of float16). Writes the PTX of
each, by the host's code, to FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from hopper_launches import replace_the_gpu, write_code_to

from triton_dist.kernels.gemm.hopper import grouped_gemm
from triton_dist.kernels.moe.grouped_gemm import config_for

EXPERTS, INNER, COLUMNS = 4, 2048, 1536


def compile_case(folder: Path, case: str) -> None:
    average, kind = case.split("-")
    dtype = torch.float8_e4m3fn if kind == "fp8" or "blocks" in kind else torch.bfloat16
    swiglu = "swiglu" in kind
    rows = EXPERTS * int(average)
    a, b = torch.zeros(rows, INNER).to(dtype), torch.zeros(EXPERTS, COLUMNS, INNER).to(dtype).transpose(1, 2)
    if kind == "rows":
        b = b.contiguous()
    c = torch.zeros(
        rows, COLUMNS // 2 if swiglu else COLUMNS, dtype=torch.float16 if "half" in kind else torch.bfloat16
    )
    scales = (torch.zeros(rows, 1), torch.zeros(EXPERTS, COLUMNS)) if kind == "fp8" else (None, None)
    if "blocks" in kind:
        scales = torch.zeros(rows, INNER // 128), torch.zeros(EXPERTS, COLUMNS // 128, INNER // 128)
    counts = torch.zeros(EXPERTS + 1, dtype=torch.int32)

    write_code_to(folder, case)
    config = config_for(int(average), swiglu, of_blocks="blocks" in kind)
    grouped_gemm.run_grouped(a, b, c, *scales, counts, counts[:EXPERTS], config, 132)


if __name__ == "__main__":
    replace_the_gpu()
    for case in sys.argv[2:]:
        compile_case(Path(sys.argv[1]), case)
