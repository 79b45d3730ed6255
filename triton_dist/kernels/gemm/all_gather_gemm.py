"""All-gather and GEMM: C = A · B with A split by rows over the PEs, and B this PE's own."""

from __future__ import annotations

from functools import partial

import torch

from triton_dist.kernels.collectives.all_gather import all_gather
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import Config, choose
from triton_dist.kernels.gemm.epilogue import Epilogue
from triton_dist.kernels.gemm.fp8 import BlockScales, Scale
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.plan_cache import cached, shape_of, symmetric_matrix
from triton_dist.kernels.prepared import Launch

__all__ = ["ALGORITHMS", "all_gather_gemm", "copy_gathered"]

ALGORITHMS = ("bulk_synchronous", "copy_engine")


@fused_gemm(ALGORITHMS, symmetric_result=False)
def all_gather_gemm(call: Call) -> Computation:
    """C = A · B, where A is every PE's ``a``, in PE order.

    ``a`` is [M / n_pes, K], of the same shape on every PE, ``b`` [K, N] and ``out`` [M, N], or
    [M, N / 2] with the activation ``swiglu``.

    - ``bulk_synchronous``: A is gathered, then multiplied.
    - ``copy_engine``: the copy engine sends this PE's rows to one PE after the other while the GEMM begins with them;
      it continues with the next PE's, which have arrived by then. For Hopper GPUs, and a multiple of 128 rows on each
      PE.
    """
    comm, a, b = call.comm, call.a, call.b
    c = call.result((a.shape[0] * comm.n_pes, call.columns), symmetric=False)
    scale, epilogue = call.scale(), call.epilogue(c, reduces=False)
    whole = None if isinstance(scale, BlockScales) else scale
    return Computation(
        c,
        c,
        {
            "bulk_synchronous": partial(_bulk_synchronous, comm, a, b, c, scale, epilogue, call.sm_margin),
            "copy_engine": partial(_copy_engine, comm, a, b, c, whole, epilogue, call.sm_margin)
            if _copy_engine_fits(comm, a, b, c, scale, epilogue, call.sm_margin)
            else _NEEDS,
        },
    )


def copy_gathered(comm: Communicator, out: torch.Tensor, a: torch.Tensor) -> None:
    """Copy all of A to ``out``, as an :func:`all_gather_gemm` of ``a`` just before has gathered it."""
    rows = slice(comm.my_rank * a.shape[0], (comm.my_rank + 1) * a.shape[0])
    out.copy_(_gathered(comm, a))
    out[rows].copy_(a)  # the kernel reads this PE's own rows where they are, so the workspace need not hold them


_NEEDS = (
    "needs a Hopper GPU, up to 8 PEs, rows that begin at multiples of 16 bytes, whole tiles on each PE and no scales of"
    " blocks"
)


def _copy_engine_fits(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> bool:
    from triton_dist.kernels.gemm.hopper.launch import fits

    # Rows that are no multiple of 64 fill no tiles, whatever their size.
    if isinstance(scale, BlockScales) or a.shape[0] % 64 or not fits(comm, a, b, c):
        return False
    return a.shape[0] % _config(comm, a, b, c, epilogue.fold, sm_margin).block_m == 0


def _config(comm: Communicator, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, fold: int, sm_margin: int) -> Config:
    """Tiles that lie within one PE's rows where possible. Cached, since choosing takes the host a while."""
    programs = portable.programs(sm_margin)
    key = ("tiles of chunks", fold, programs, a.shape[0], *shape_of(a, b))
    return cached(comm, key, partial(choose, a, c, programs, each=a.shape[0], fold=fold), on_host=True)


def _bulk_synchronous(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> None:
    gathered = _gathered(comm, a)
    all_gather(gathered, a.contiguous(), sm_margin=sm_margin, group=comm)
    if isinstance(scale, BlockScales):
        rows, blocks = scale.a.shape
        scale_a = symmetric_matrix(comm, "gathered scales", rows * comm.n_pes, blocks, scale.a.dtype)
        all_gather(scale_a, scale.a, sm_margin=sm_margin, group=comm)
        scale = BlockScales(scale_a, scale.b)
    local_gemm(comm, gathered, b, c, scale, epilogue, sm_margin)


def _copy_engine(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: torch.Tensor | None,
    epilogue: Epilogue,
    sm_margin: int,
) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import all_gather_gemm as hopper

    config = _config(comm, a, b, c, epilogue.fold, sm_margin)
    key = ("chunks of a", epilogue.fold, sm_margin, a.shape[0], *shape_of(a, b))
    plan = cached(comm, key, lambda: hopper.make_plan(comm, a, c, config, sm_margin))
    return hopper.run(plan, a, _gathered(comm, a), b, c, scale, epilogue)


def _gathered(comm: Communicator, a: torch.Tensor) -> torch.Tensor:
    """Memory for all of A, on every PE."""
    return symmetric_matrix(comm, "gathered", a.shape[0] * comm.n_pes, a.shape[1], a.dtype)
