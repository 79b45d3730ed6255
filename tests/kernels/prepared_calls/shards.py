"""Calls of PEs with different numbers of rows: PE 0 has a whole shard, and PE 1 fewer rows, or none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from prepared_calls.calls import A8, B8, FEW_OUT, OF_ALL, OWN, RESIDUAL, A, B
from prepared_calls.world import calls, forget_plans

from triton_dist import kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.plan_cache import PlanCache

OF_ROWS = torch.ones(512, 1), torch.ones(1, 512)


def of_pe(pe: int, rows: int) -> dict[str, Callable[[], object]]:
    """Calls of PE ``pe`` of 2."""
    each = -(-rows // 2)
    own = min(each, rows - pe * each)
    scatter = partial(kernels.gemm_reduce_scatter, A[:rows], B, OWN[:own])
    gather = partial(kernels.all_gather_gemm, A[:own], B, OF_ALL[:rows], rows=rows)
    scales = {"scale_a": OF_ROWS[0][:own], "scale_b": OF_ROWS[1]}
    found: dict[str, Callable[[], object]] = {
        "ring": partial(scatter, algorithm="ring"),
        "ring, residual": partial(scatter, algorithm="ring", residual=OWN[:own].clone()),
        "bulk": partial(scatter, algorithm="bulk_synchronous"),
        "bulk, residual": partial(scatter, algorithm="bulk_synchronous", residual=OWN[:own].clone()),
        "copies": partial(gather, algorithm="copy_engine"),
        "copies, scales": partial(
            kernels.all_gather_gemm, A8[:own], B8, OF_ALL[:rows], rows=rows, algorithm="copy_engine", **scales
        ),
        "gathered": partial(gather, algorithm="bulk_synchronous"),
    }
    norms = partial(kernels.reduce_scatter_norm, A[:rows], A[0], A[:own].clone(), algorithm="fused")
    gathers = partial(kernels.norm_all_gather, A[:own], A[0], A[:own].clone(), rows=rows, algorithm="fused")
    found |= {"norms": norms, "norms, gathered": gathers}
    if rows <= 16:
        few = partial(kernels.gemm_reduce_scatter, A[:rows], B, FEW_OUT[:own], algorithm="fused")
        found |= {"fused": few, "fused, residual": partial(few, residual=RESIDUAL[:own])}
    return found


def calls_with_shards_that_differ_are_prepared() -> None:
    comm = communicator_of()
    for pe in range(2):
        forget_plans()
        comm.own(PlanCache).plans.clear()
        comm.my_rank = pe
        try:
            for rows in (333, 7, 1):
                for name, call in of_pe(pe, rows).items():
                    call()
                    found = calls(call)
                    assert found["PreparedLaunch.__call__"], f"{name}, {rows} rows, PE {pe}"
                    assert not found["JITFunction.run"] and not found["check_operands"], f"{name}, {rows} rows, PE {pe}"
        finally:
            comm.my_rank = 0
            forget_plans()
            comm.own(PlanCache).plans.clear()
