"""Launches every Hopper GEMM on H200s that need not be there: ``hopper_launches.py CASE…``.

A case is the PE of 4 that calls (Triton specialises on 0 and on 1), or an epilogue. Each call goes through the host's
code, Triton's binder and the compiler. Only the GPU's part is left out. Prints the kernels' names. (A process of its
own: in CPU worlds ``JITFunction.run`` interprets.)
"""

from __future__ import annotations

import functools
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonJITFunction

from triton_dist.compiler import hooks
from triton_dist.kernels.gemm import copy_engine, portable
from triton_dist.kernels.gemm.config import LARGE, ring_rows
from triton_dist.kernels.gemm.epilogue import EMPTY, Epilogue
from triton_dist.kernels.gemm.fp8 import BlockScales, RowScales
from triton_dist.kernels.gemm.hopper import (
    all_gather_gemm,
    all_gather_gemm_push,
    gemm_all_reduce,
    gemm_all_reduce_direct,
    gemm_all_scatter,
    gemm_all_scatter_chunks,
    gemm_all_scatter_comm_programs,
    gemm_reduce_scatter,
    gemm_reduce_scatter_direct,
    launch,
    local_gemm,
    memory,
)
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.tile_sizes import choose
from triton_dist.kernels.shards import each_of, shard_of
from triton_dist.triton_api.mbarriers import forgotten_mbarriers

GATHERING = all_gather_gemm, all_gather_gemm_push


class Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only(kernel: Any, grid: object) -> Any:
    def launch_kernel(*arguments: Any, **options: Any) -> None:
        compiled = kernel.run(*arguments, grid=grid, warmup=True, **options)
        assert not forgotten_mbarriers(compiled.asm["ttgir"]), kernel.__name__
        print(kernel.__name__)

    return launch_kernel


def replace_the_gpu() -> None:
    triton.runtime.driver.set_active(Driver())
    hooks.install()
    GluonJITFunction.__getitem__ = compile_only
    launch.current_world = memory.current_world = lambda: SimpleNamespace(device=torch.device("cpu"))
    launch.claim = lambda *what: None  # no trace
    portable.programs = lambda sm_margin=0: 132 - sm_margin
    all_gather_gemm.side_stream = lambda comm: nullcontext(SimpleNamespace(cuda_stream=0))
    all_gather_gemm.StreamWork = lambda operations: lambda stream, *addresses: None


def write_code_to(folder: Path, case: str) -> None:
    """From now on a launch writes its PTX, and how many bytes of shared memory it takes, to files of this name."""

    def compile_to_files(kernel: Any, grid: object) -> Any:
        def launch_kernel(*arguments: Any, **options: Any) -> None:
            compiled = kernel.run(*arguments, grid=grid, warmup=True, **options)
            assert not forgotten_mbarriers(compiled.asm["ttgir"]), kernel.__name__
            (folder / f"{case}.ptx").write_text(compiled.asm["ptx"])
            (folder / f"{case}.shared").write_text(str(compiled.metadata.shared))

        return launch_kernel

    GluonJITFunction.__getitem__ = compile_to_files


def communicator(pe: int) -> Any:
    comm: Any = SimpleNamespace(n_pes=4, my_rank=pe, peer=lambda tensor, rank: tensor, zeros=torch.zeros)
    comm.current_stream = int
    comm.own = functools.cache(lambda kind: kind(comm))
    return comm


def launch_direct(comm: Any, gemm: Operands, module: Any = gemm_all_reduce_direct, shards: int = 1) -> None:
    of_blocks = isinstance(gemm.scale, BlockScales)
    padded = torch.empty(ring_rows(gemm.a.shape[0], shards), gemm.b.shape[1], dtype=gemm.c.dtype, device="meta")
    made = module.make_plan(comm, gemm.a, padded, of_blocks=of_blocks)
    module.run(made, gemm, torch.zeros(made.shares.staging_shape(comm.n_pes), dtype=gemm.c.dtype))


def launch_direct_by_rows(comm: Any, gemm: Operands) -> None:
    """The sum of which each PE gets its rows."""
    launch_direct(comm, gemm, gemm_reduce_scatter_direct, comm.n_pes)


def launch_all(pe: int, epilogue: Epilogue) -> None:
    comm = communicator(pe)
    a, b, c = (torch.zeros(shape, dtype=torch.bfloat16) for shape in ((8192, 512), (512, 1280), (8192, 1280)))
    fp8_a, fp8_b = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e5m2).t()
    gemm = Operands(comm, a, b, c, None, epilogue)
    local_gemm.run(local_gemm.make_plan(comm, a, c), gemm)
    gemm_all_scatter.run(gemm_all_scatter.make_plan(comm, a, c), gemm)
    gemm_all_scatter_comm_programs.run(
        gemm_all_scatter_comm_programs.make_plan(comm, a, c, 16), 16, gemm._replace(epilogue=EMPTY)
    )
    chunked = copy_engine._make_plan(comm, a, c, 132)
    gemm_all_scatter_chunks.run(chunked.plan, chunked.chunks, gemm)
    for module in GATHERING:
        module.run(module.make_plan(comm, a[:2048], c, LARGE), gemm._replace(a=a[:2048]), a)
    gemm_reduce_scatter.run(gemm_reduce_scatter.make_plan(comm, a, c), gemm._replace(c=c[:2048]), c)
    launch_direct_by_rows(comm, gemm._replace(c=c[:2048]))
    for plan in (
        local_gemm.make_plan(comm, a, c, 20),
        gemm_all_scatter.make_plan(comm, a, c, 20),
        gemm_all_scatter_comm_programs.make_plan(comm, a, c, 16, 20),
        *(module.make_plan(comm, a[:2048], c, LARGE, 20) for module in GATHERING),
        gemm_reduce_scatter.make_plan(comm, a, c, 20),
        gemm_all_reduce.make_plan(comm, a, c, 20),
        gemm_all_reduce_direct.make_plan(comm, a, c, 20).plan,
        gemm_reduce_scatter_direct.make_plan(comm, a, c, 20).plan,
    ):
        assert plan.grid == (112,), f"{plan.name}: {plan.grid} programs leave fewer than 20 SMs"
    fp8 = Operands(comm, fp8_a, fp8_b, c, torch.ones(1), epilogue)
    gemm_all_reduce.run(gemm_all_reduce.make_plan(comm, fp8_a, c), fp8, c)
    launch_direct(comm, fp8)


def launch_blocks(pe: int) -> None:
    """fp8 with scales of blocks, of rows that fill tiles and others."""
    comm = communicator(pe)
    for rows in (16, 333, 2048):  # of each PE
        m, k, n = 4 * rows, 512, 1296
        a, b = torch.zeros(m, k).to(torch.float8_e4m3fn), torch.zeros(n, k).to(torch.float8_e4m3fn).t()
        c = torch.zeros(m, n, dtype=torch.bfloat16)
        scale = BlockScales(torch.ones(m, k // 128), torch.ones(k // 128, -(-n // 128)))
        gemm = Operands(comm, a, b, c, scale)
        local_gemm.run(local_gemm.make_plan(comm, a, c, of_blocks=True), gemm)
        gathered = gemm._replace(a=a[:rows], scale=scale._replace(a=scale.a[:rows]))
        plan = all_gather_gemm.make_plan(comm, a[:rows], c, choose(a, c, 132, of_blocks=True))
        assert all_gather_gemm.run(plan, gathered, a, torch.zeros(m, k // 128)) is None, "its copies are of this call"
        staging = torch.zeros(ring_rows(m, 4), n, dtype=torch.bfloat16)
        plan = gemm_reduce_scatter.make_plan(comm, a, staging, of_blocks=True)
        gemm_reduce_scatter.run(plan, gemm._replace(c=c[:rows]), staging)
        launch_direct_by_rows(comm, gemm._replace(c=c[:rows]))
        staging = torch.zeros(ring_rows(m, 1), n, dtype=torch.bfloat16)
        gemm_all_reduce.run(gemm_all_reduce.make_plan(comm, a, staging, of_blocks=True), gemm, staging)
        launch_direct(comm, gemm)
        gemm_all_scatter.run(gemm_all_scatter.make_plan(comm, a, c, of_blocks=True), gemm)
        programs = gemm_all_scatter_comm_programs.make_plan(comm, a, c, 16, of_blocks=True)
        gemm_all_scatter_comm_programs.run(programs, 16, gemm)
        chunked = copy_engine._make_plan(comm, a, c, 132, of_blocks=True)
        gemm_all_scatter_chunks.run(chunked.plan, chunked.chunks, gemm)


def launch_rows(pe: int) -> None:
    """fp8 with scales of rows: the plans are those of one scale."""
    comm = communicator(pe)
    for rows in (1, 333, 2048):  # of each PE
        m, k, n = 4 * rows, 528, 1296
        a, b = torch.zeros(m, k).to(torch.float8_e4m3fn), torch.zeros(n, k).to(torch.float8_e4m3fn).t()
        c = torch.zeros(m, n, dtype=torch.bfloat16)
        scale = RowScales(torch.ones(m, 1), torch.ones(1, n))
        gemm = Operands(comm, a, b, c, scale)
        local_gemm.run(local_gemm.make_plan(comm, a, c), gemm)
        plan = all_gather_gemm.make_plan(comm, a[:rows], c, choose(a, c, 132))
        gathered = gemm._replace(a=a[:rows], scale=scale._replace(a=scale.a[:rows]))
        all_gather_gemm.run(plan, gathered, a, torch.zeros(m, 1))
        all_gather_gemm.run(plan, gathered._replace(scale=scale), a)
        staging = torch.zeros(ring_rows(m, 4), n, dtype=torch.bfloat16)
        gemm_reduce_scatter.run(gemm_reduce_scatter.make_plan(comm, a, staging), gemm._replace(c=c[:rows]), staging)
        launch_direct_by_rows(comm, gemm._replace(c=c[:rows]))
        staging = torch.zeros(ring_rows(m, 1), n, dtype=torch.bfloat16)
        gemm_all_reduce.run(gemm_all_reduce.make_plan(comm, a, staging), gemm, staging)
        launch_direct(comm, gemm)
        gemm_all_scatter.run(gemm_all_scatter.make_plan(comm, a, c), gemm)
        gemm_all_scatter_comm_programs.run(gemm_all_scatter_comm_programs.make_plan(comm, a, c, 16), 16, gemm)
        chunked = copy_engine._make_plan(comm, a, c, 132)
        gemm_all_scatter_chunks.run(chunked.plan, chunked.chunks, gemm)


def launch_folded(pe: int, epilogue: Epilogue) -> None:
    """The kernels that are not for sums over PEs, with two columns of B for one of C."""
    comm = communicator(pe)
    for rows in (8192, 64, 16):  # tiles of all widths
        a, b, c = (torch.zeros(shape, dtype=torch.bfloat16) for shape in ((rows, 512), (512, 1280), (rows, 640)))
        gemm = Operands(comm, a, b, c, None, epilogue)
        local_gemm.run(local_gemm.make_plan(comm, a, c, 0, 2), gemm)
        gemm_all_scatter.run(gemm_all_scatter.make_plan(comm, a, c, 0, 2), gemm)
        programs = gemm_all_scatter_comm_programs.make_plan(comm, a, c, 16, 0, 2)
        gemm_all_scatter_comm_programs.run(programs, 16, gemm)
        chunked = copy_engine._make_plan(comm, a, c, 132, 2)
        gemm_all_scatter_chunks.run(chunked.plan, chunked.chunks, gemm)
    a, c = torch.zeros(8192, 512, dtype=torch.bfloat16), torch.zeros(8192, 640, dtype=torch.bfloat16)
    for module in GATHERING:
        plan = module.make_plan(comm, a[:2048], c, choose(a, c, 132, fold=2))
        module.run(plan, Operands(comm, a[:2048], b, c, None, epilogue), a)


def launch_ragged(pe: int, epilogue: Epilogue) -> None:
    """Rows that fill no tiles, and which PEs do not share equally where they need not; N and K are multiples of 16."""
    comm = communicator(pe)
    for rows in (1, 7, 33, 100, 130, 1000):  # of each PE
        m = 4 * rows
        a, b, c = (torch.zeros(shape, dtype=torch.bfloat16) for shape in ((m, 528), (528, 1296), (m, 1296)))
        gathered = Operands(comm, a[:rows], b, c, None, epilogue._replace(residual=None))
        for module in GATHERING if m > 64 else (all_gather_gemm,):
            module.run(module.make_plan(comm, a[:rows], c, choose(a, c, 132)), gathered, a)
        staging = torch.zeros(ring_rows(m, 4), 1296, dtype=torch.bfloat16)
        scattered = Operands(comm, a, b, c[:rows], None, epilogue)
        gemm_reduce_scatter.run(gemm_reduce_scatter.make_plan(comm, a, staging), scattered, staging)
        launch_direct_by_rows(comm, scattered)
        for odd in (m, m - 1):
            staging = torch.zeros(ring_rows(odd, 1), 1296, dtype=torch.bfloat16)
            summed = Operands(comm, a[:odd], b, c[:odd], None, epilogue)
            gemm_all_reduce.run(gemm_all_reduce.make_plan(comm, a[:odd], staging), summed, staging)
            launch_direct(comm, summed)


def launch_uneven(pe: int, epilogue: Epilogue) -> None:
    """Rows that PEs cannot share equally, of which the last PEs have fewer, or none."""
    comm = communicator(pe)
    for m in (1, 2, 5, 333, 1001, 4099):
        a, b = torch.zeros(m, 528, dtype=torch.bfloat16), torch.zeros(528, 1296, dtype=torch.bfloat16)
        own = len(shard_of(m, each_of(m, 4), pe))
        staging = torch.zeros(ring_rows(m, 4), 1296, dtype=torch.bfloat16)
        c, residual = torch.zeros(own, 1296, dtype=torch.bfloat16), epilogue.residual
        finish = epilogue._replace(residual=None if residual is None else residual[:own])
        plan = gemm_reduce_scatter.make_plan(comm, a, staging)
        scattered = Operands(comm, a, b, c, None, finish)
        gemm_reduce_scatter.run(plan, scattered, staging)
        launch_direct_by_rows(comm, scattered)
        whole = torch.zeros(m, 1296, dtype=torch.bfloat16)
        gathered = Operands(comm, a[:own], b, whole, None, epilogue._replace(residual=None))
        for module in GATHERING if m > 64 else (all_gather_gemm,):
            module.run(module.make_plan(comm, a[:own], whole, choose(a, whole, 132)), gathered, a)


if __name__ == "__main__":
    replace_the_gpu()
    bias, residual = torch.zeros(1280, dtype=torch.bfloat16), torch.zeros(8192, 1280)
    for case in sys.argv[1:]:
        match case:
            case "bias":
                launch_all(1, Epilogue(bias=bias, columns=1280))
            case "residual":
                launch_all(1, Epilogue(tl.constexpr("silu"), bias.float(), residual, 1280))
            case "swiglu":
                launch_folded(1, Epilogue(tl.constexpr("swiglu"), bias, columns=1280))
            case "ragged":
                launch_ragged(2, EMPTY)
            case "uneven":
                launch_uneven(3, EMPTY)
            case "uneven residual":
                launch_uneven(3, Epilogue(tl.constexpr("silu"), torch.zeros(1296), torch.zeros(4000, 1296), 1296))
            case "blocks":
                launch_blocks(2)
            case "rows":
                launch_rows(2)
            case "ragged residual":
                launch_ragged(1, Epilogue(tl.constexpr("silu"), torch.zeros(1296), torch.zeros(4000, 1296), 1296))
            case pe:
                launch_all(int(pe), EMPTY)
