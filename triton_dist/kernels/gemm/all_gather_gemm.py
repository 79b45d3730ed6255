"""All-gather and GEMM: C = A · B with A split by rows over the PEs, and B this PE's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from triton_dist.kernels.collectives.all_gather import all_gather
from triton_dist.kernels.collectives.gather_during import gather_during
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import choose
from triton_dist.kernels.gemm.fp8 import BlockScales, RowScales
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.plan_cache import cached, in_bucket, symmetric_matrix
from triton_dist.kernels.prepared import Launch, Part, Step, steps

if TYPE_CHECKING:
    from triton_dist.kernels.gemm.hopper.launch import Plan

__all__ = ["ALGORITHMS", "all_gather_gemm", "complete_gathered", "copy_gathered", "gather_again"]

ALGORITHMS = ("bulk_synchronous", "copy_engine")


@fused_gemm(ALGORITHMS, symmetric_result=False)
def all_gather_gemm(call: Call) -> Computation:
    """C = A · B, where A is every PE's ``a``, in PE order.

    ``a`` is [M / n_pes, K], of the same shape on every PE, ``b`` [K, N] and ``out`` [M, N], or
    [M, N / 2] with the activation ``swiglu``.

    - ``bulk_synchronous``: A is gathered, then multiplied.
    - ``copy_engine``: the copy engine sends this PE's rows to one PE after the other while the GEMM begins with them;
      it continues with the next PE's, which have arrived by then. For Hopper GPUs.
    """
    from triton_dist.kernels.gemm.hopper.launch import takes

    c = call.result((call.a.shape[0] * call.comm.n_pes, call.columns), symmetric=False)
    gemm = call.operands(c, reduces=False)
    lacks = _NEEDS_ITS_GPU if call.comm.world.shares_gpu else "" if takes(gemm) else _NEEDS
    return Computation(
        c,
        c,
        {
            "bulk_synchronous": partial(_bulk_synchronous, gemm),
            "copy_engine": lacks or partial(_copy_engine, gemm),
        },
    )


def copy_gathered(comm: Communicator, out: torch.Tensor, a: torch.Tensor) -> None:
    """Copy all of A to ``out``, as an :func:`all_gather_gemm` of ``a`` just before has gathered it."""
    rows = slice(comm.my_rank * a.shape[0], (comm.my_rank + 1) * a.shape[0])
    out.copy_(_gathered(comm, a))
    out[rows].copy_(a)  # the kernel reads this PE's own rows where they are, so the workspace need not hold them


def complete_gathered(comm: Communicator, a: torch.Tensor) -> torch.Tensor:
    """All of A, as an :func:`all_gather_gemm` of ``a`` just before has gathered it. The next one overwrites it."""
    gathered = _gathered(comm, a)
    gathered[comm.my_rank * a.shape[0] :][: a.shape[0]].copy_(a)  # which the kernel reads where they are
    return gathered


def gather_again(comm: Communicator, function: str, a: torch.Tensor, work: Callable[[], object]) -> torch.Tensor:
    """All of A, gathered while what ``work()`` launches runs (:func:`gather_during`).

    *Collective*, in a call of ``function`` with ``comm``. ``a`` is contiguous. The next :func:`all_gather_gemm`
    overwrites the result.
    """
    return gather_during(comm, function, _gathered, a, work)


_NEEDS = (
    "needs a Hopper GPU, up to 8 PEs, operands of 16-bit floats, or of fp8 with b by columns, a result of 16-bit"
    " floats, and rows that begin at multiples of 16 bytes"
)
_NEEDS_ITS_GPU = (
    "needs a GPU for each PE: a copy to a PE of the same GPU is a kernel, which would wait for the multiprocessors of"
    " the GEMM that waits for it"
)


def _bulk_synchronous(gemm: Operands) -> Sequence[Step] | None:
    comm, sm_margin = gemm.comm, gemm.sm_margin
    gathered = _gathered(comm, gemm.a)
    scale: Any = gemm.scale

    def gather(a: torch.Tensor) -> None:
        all_gather(gathered, a.contiguous(), sm_margin=sm_margin, group=comm)

    parts: list[Part] = [(gather, lambda call: (call.a,))]
    gather(gemm.a)
    if (gathered_scales := _gathered_scales(gemm)) is not None:

        def gather_scales(scale_a: torch.Tensor) -> None:
            all_gather(gathered_scales, scale_a, sm_margin=sm_margin, group=comm)

        parts.append((gather_scales, lambda call: (call.scale.a,)))
        gather_scales(scale.a)
        scale = scale._replace(a=gathered_scales)
    multiplied = local_gemm(gemm._replace(a=gathered, scale=scale))
    return steps(*parts, (multiplied, lambda call: call._replace(a=gathered)))


def _copy_engine(gemm: Operands) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import all_gather_gemm as hopper

    comm, a = gemm.comm, gemm.a
    plan = cached(comm, gemm.key("chunks of a", rows=gemm.c.shape[0]), lambda: _plan(gemm))
    return hopper.run(plan, gemm, _gathered(comm, a), _gathered_scales(gemm))


def _plan(gemm: Operands) -> Plan:
    from triton_dist.kernels.gemm.hopper import all_gather_gemm as hopper

    c, programs = in_bucket(gemm.c), portable.programs(gemm.sm_margin)
    config = choose(gemm.a, c, programs, fold=gemm.fold, of_blocks=gemm.of_blocks)
    return hopper.make_plan(gemm.comm, gemm.a, c, config, gemm.sm_margin)


def _gathered(comm: Communicator, a: torch.Tensor) -> torch.Tensor:
    """Memory for all of A, on every PE."""
    return symmetric_matrix(comm, "gathered", a.shape[0] * comm.n_pes, a.shape[1], a.dtype)


def _gathered_scales(gemm: Operands) -> torch.Tensor | None:
    """Memory for the scales of all of A's blocks or rows, on every PE; None where there are none, or each has all."""
    comm, a, scale = gemm.comm, gemm.a, gemm.scale
    if not isinstance(scale, (BlockScales, RowScales)) or scale.a.shape[0] != a.shape[0]:
        return None
    return symmetric_matrix(comm, "gathered scales", a.shape[0] * comm.n_pes, scale.a.shape[1], scale.a.dtype)
