"""C = A · B on one PE: the kernel that the fused operations extend.

A: [M, K], B: [K, N], both 16-bit floats or both fp8; C: [M, N], 16-bit floats. Sums are float32.

A persistent, warp-specialised kernel: each program follows its list of work units. The load warp fills a ring of
operand blocks in shared memory, the multiply groups accumulate a tile in registers, and the store warp stores it while
the groups compute the next one.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.hopper.buffers import make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.epochs import end_epoch, epoch_of, is_last_program
from triton_dist.kernels.gemm.hopper.flags import stores_complete
from triton_dist.kernels.gemm.hopper.launch import Plan, grouped_schedule, operand_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.load import load_operands
from triton_dist.kernels.gemm.hopper.multiply import multiply_tiles
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.hopper.store import store_tiles
from triton_dist.kernels.gemm.hopper.warps import specialize
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, Second, launch

__all__ = ["local_gemm_kernel", "make_plan", "run"]


@gluon.jit
def local_gemm_kernel(
    a, b, c, a_piece, work, split, scale, epilogue, state, trace, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr
):
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    if CONFIG.scales_rows:
        scale = scales_of(scale, a)
    specialize(
        multiply_tiles, (operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS),
        load_operands, (a, a_piece, b, operands, work, CONFIG, B_BY_COLUMNS),
        _store, (c, output, work, trace, state, CONFIG),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def _store(c, output, work, trace, state, CONFIG: gl.constexpr):
    epoch = epoch_of(state)
    store_tiles(c, output, work, trace, CONFIG)
    if is_last_program(state):  # nothing but the launch's end waits for the stores, so this does not either
        end_epoch(state, epoch)
    stores_complete()


def make_plan(
    comm: Communicator, a: torch.Tensor, c: torch.Tensor, sm_margin: int = 0, fold: int = 1, of_blocks: bool = False
) -> Plan:
    """The plan for GEMMs of these shapes and dtypes, with scales of blocks or others."""
    schedule, config = grouped_schedule(a, c, portable.programs(sm_margin), fold=fold, of_blocks=of_blocks)
    return Plan(comm, "GEMM", schedule, config, n_flags=0)


def run(plan: Plan, gemm: Operands) -> Launch | None:
    """c = a · b, times the scale and after the epilogue, on the current stream."""
    config = plan.config_of(gemm)
    a_map, a_piece, b_map, b_by_columns = operand_maps(gemm.a, gemm.b, config)
    return launch(
        local_gemm_kernel, plan.grid, (a_map, b_map, tile_map(gemm.c, config), Second(0, a_piece)),
        plan.work, plan.split, scale_argument(gemm), gemm.epilogue, plan.state, plan.trace(), config, b_by_columns,
        **plan.options,
    )  # fmt: skip
