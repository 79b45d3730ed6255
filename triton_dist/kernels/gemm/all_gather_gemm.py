"""All-gather and GEMM: C = A · B with A split by rows over the PEs, and B this PE's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from triton_dist.kernels.arguments import in_words
from triton_dist.kernels.collectives.all_gather import all_gather, all_gather_parts, operand_algorithm
from triton_dist.kernels.collectives.gather_during import gather_during
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import gpu
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.copy_engine import lacks_copy_engine
from triton_dist.kernels.gemm.fp8 import BlockScales, RowScales
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.plan_cache import cached, in_bucket
from triton_dist.kernels.gemm.tile_sizes import ROUNDS_OF_LARGE, choose
from triton_dist.kernels.gemm.two_level import gather_two_level, why_not_two_level
from triton_dist.kernels.gemm.workspaces import gathered_rows, gathered_scales
from triton_dist.kernels.prepared import Launch, Nested, Part, Step, steps
from triton_dist.kernels.shards import shard_of, wrong_shard

if TYPE_CHECKING:
    from triton_dist.kernels.gemm.hopper.launch import Plan

__all__ = [
    "ALGORITHMS",
    "all_gather_gemm",
    "complete_gathered",
    "copy_gathered",
    "fits_push",
    "gather_again",
    "gathering",
]

ALGORITHMS = ("bulk_synchronous", "copy_engine", "push")


@fused_gemm((*ALGORITHMS, "two_level"), gathers=True, symmetric_result=False)
def all_gather_gemm(call: Call) -> Computation:
    """C = A · B, where A is every PE's ``a``, in PE order.

    ``a`` is [M / n_pes, K], of the same shape on every PE, ``b`` [K, N] and ``out`` [M, N], or
    [M, N / 2] with the activation ``swiglu``. With ``rows``, any M, the last PEs may have fewer rows, or none: PE p has
    rows p · c to (p + 1) · c, where c is M / n_pes, rounded up, or those that there are.

    - ``bulk_synchronous``: A is gathered, then multiplied.
    - ``copy_engine``: the copy engine sends this PE's rows to one PE after the other while the GEMM begins with them;
      it continues with the next PE's, which have arrived by then. For Hopper GPUs.
    - ``push``: the programs of the GEMM send this PE's rows to all PEs, the first columns first, while they multiply
      what has come. For more than 64 rows, in a GEMM of few tiles; without scales of blocks or rows. For Hopper GPUs.
    - ``two_level``, over several hosts: the rows of one host after the other, this one's first, each as inside of one
      host; beside them the next host's cross the network. As many rows on every PE.
    """
    from triton_dist.kernels.gemm.hopper.launch import takes

    if why := wrong_shard(call.comm, call.a, call.rows, call.each):
        raise ValueError(f"{call.function}: {why}")
    c = call.result((call.rows, call.columns), symmetric=False)
    gemm = call.operands(c, reduces=False)
    lacks = "" if takes(gemm) else _NEEDS
    return Computation(
        c,
        c,
        {
            "two_level": why_not_two_level(gemm) or partial(gather_two_level, gemm, all_gather_gemm),
            "bulk_synchronous": partial(_bulk_synchronous, gemm),
            "copy_engine": lacks or _lacks_copies(call.comm) or partial(_copy_engine, gemm),
            "push": _lacks_push(gemm) or lacks or partial(_push, gemm),
        },
    )


def fits_push(rows: int) -> bool:
    """Whether ``push`` takes so many rows of A of all PEs: two groups multiply a tile, and every PE has rows."""
    return rows > 64


def gathering(comm: Communicator, algorithm: str) -> str:
    """``algorithm``, or the one in its place that leaves all of A in one matrix, for :func:`copy_gathered`: by
    ``two_level`` a host's rows of it take the place of the last one's."""
    return "bulk_synchronous" if comm.grid.hosts > 1 and algorithm in ("auto", "two_level") else algorithm


def copy_gathered(comm: Communicator, out: torch.Tensor, a: torch.Tensor, each: int) -> None:
    """Copy all of A to ``out``, as an :func:`all_gather_gemm` of ``a`` just before has gathered it, by an algorithm of
    :func:`gathering`; a whole shard has ``each`` rows."""
    rows = shard_of(out.shape[0], each, comm.my_rank)
    out.copy_(_gathered(comm, a, out.shape[0]))
    # The kernel reads this PE's own rows where they are, so the workspace need not hold them.
    out[rows.start : rows.stop].copy_(a)


def complete_gathered(comm: Communicator, a: torch.Tensor) -> torch.Tensor:
    """All of A, as an :func:`all_gather_gemm` of ``a`` just before has gathered it, by an algorithm of
    :func:`gathering`. The next one overwrites it."""
    gathered = _gathered_alike(comm, a)
    gathered[comm.my_rank * a.shape[0] :][: a.shape[0]].copy_(a)  # which the kernel reads where they are
    return gathered


def gather_again(comm: Communicator, function: str, a: torch.Tensor, work: Callable[[], object]) -> torch.Tensor:
    """All of A, gathered while what ``work()`` launches runs (:func:`gather_during`).

    *Collective*, in a call of ``function`` with ``comm``. ``a`` is contiguous. The next :func:`all_gather_gemm`
    overwrites the result.
    """
    return gather_during(comm, function, _gathered_alike, a, work)


_NEEDS = (
    "needs a Hopper GPU, up to 8 PEs, operands of 16-bit floats, or of fp8 with b by columns, a result of 16-bit"
    " floats, and rows that begin at multiples of 16 bytes"
)
_NEEDS_MORE_ROWS = "needs more than 64 rows of A"
_NEEDS_ONE_SCALE = "takes no scales of blocks or rows"
_NEEDS_ITS_GPU = (
    "needs a GPU for each PE: a copy to a PE of the same GPU is a kernel, which would wait for the multiprocessors of"
    " the GEMM that waits for it"
)
_NEEDS_LAUNCHES_THAT_RETURN = (
    "needs launches that return before their kernels end, unlike those with CUDA_LAUNCH_BLOCKING=1: the GEMM waits for"
    " copies that PEs queue behind it"
)


def _lacks_copies(comm: Communicator) -> str:
    """What ``copy_engine`` needs besides a GEMM that is one for Hopper; empty if it is there."""
    if lacks := lacks_copy_engine(comm):
        return lacks
    if comm.world.shares_gpu:
        return _NEEDS_ITS_GPU
    return "" if comm.world.kind == "cpu" or gpu().launches_return else _NEEDS_LAUNCHES_THAT_RETURN


def _bulk_synchronous(gemm: Operands) -> Sequence[Step] | None:
    comm = gemm.comm
    gathered = _gathered(comm, gemm.a, gemm.c.shape[0])
    scale: Any = gemm.scale
    gather = _gathers_to(gathered, gemm)
    parts: list[Part] = [(Nested(gather, (gathered,)), lambda call: (call.a,))]
    gather(gemm.a)
    if (gathered_scales := _gathered_scales(gemm)) is not None:
        gather_scales = _gathers_to(gathered_scales, gemm)
        parts.append((Nested(gather_scales, (gathered_scales,)), lambda call: (call.scale.a,)))
        gather_scales(scale.a)
        scale = scale._replace(a=gathered_scales)
    multiplied = local_gemm(gemm._replace(a=gathered, scale=scale))
    return steps(*parts, (multiplied, lambda call: call._replace(a=gathered)))


def _gathers_to(gathered: torch.Tensor, gemm: Operands) -> Callable[[torch.Tensor], None]:
    """What gathers matrices whose rows are shards of those of ``gathered``."""
    comm, sm_margin, own = gemm.comm, gemm.sm_margin, gemm.a.shape[0]
    part = gemm.each * gathered.shape[1]
    algorithm = operand_algorithm(comm, gathered.dtype, part * gathered.element_size(), gathered.nbytes, sm_margin)

    def gather(a: torch.Tensor) -> None:
        all_gather(gathered, in_words(a.contiguous()), algorithm=algorithm, sm_margin=sm_margin, group=comm)

    def gather_shards(a: torch.Tensor) -> None:
        # Scales of one row that only PE 0 has may come on all PEs.
        shard = in_words(a[:own].contiguous())
        all_gather_parts(gathered, shard, part, algorithm=algorithm, sm_margin=sm_margin, group=comm)

    return gather if gathered.shape[0] == gemm.each * comm.n_pes else gather_shards


def _copy_engine(gemm: Operands) -> Sequence[Step] | None:
    from triton_dist.kernels.gemm.hopper import all_gather_gemm as hopper

    plan = _plan(hopper, "chunks of a", gemm)
    return hopper.run(plan, gemm, _gathered(gemm.comm, gemm.a, gemm.c.shape[0]), _gathered_scales(gemm))


def _lacks_push(gemm: Operands) -> str:
    if not fits_push(gemm.c.shape[0]):
        return _NEEDS_MORE_ROWS
    return _NEEDS_ONE_SCALE if isinstance(gemm.scale, (BlockScales, RowScales)) else ""


def _push(gemm: Operands) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import all_gather_gemm_push as hopper

    plan = _plan(hopper, "blocks of a", gemm, rounds_of_large=3)  # all of A arrives in the first round
    return hopper.run(plan, gemm, _gathered(gemm.comm, gemm.a, gemm.c.shape[0]))


def _plan(hopper: ModuleType, key: str, gemm: Operands, rounds_of_large: float = ROUNDS_OF_LARGE) -> Plan:
    """The plan of a module's kernel for what is in the bucket of ``gemm``."""

    def make() -> Plan:
        c, programs = in_bucket(gemm.c), portable.programs(gemm.sm_margin)
        config = choose(gemm.a, c, programs, fold=gemm.fold, of_blocks=gemm.of_blocks, rounds_of_large=rounds_of_large)
        plan: Plan = hopper.make_plan(gemm.comm, gemm.a, c, config, gemm.sm_margin)
        return plan

    return cached(gemm.comm, gemm.key(key, rows=gemm.c.shape[0]), make)


def _gathered(comm: Communicator, a: torch.Tensor, rows: int) -> torch.Tensor:
    """Memory for all of A, which has so many rows, on every PE."""
    return gathered_rows(comm, rows, a.shape[1], a.dtype)


def _gathered_alike(comm: Communicator, a: torch.Tensor) -> torch.Tensor:
    """The same where all PEs have as many rows as ``a``."""
    return _gathered(comm, a, a.shape[0] * comm.n_pes)


def _gathered_scales(gemm: Operands) -> torch.Tensor | None:
    """Memory for the scales of all of A's blocks or rows, on every PE; None where there are none, or each has all.

    A has as many rows as a PE if it has one, or there is one PE: then they are gathered, too, as all PEs agree.
    """
    comm, rows, scale = gemm.comm, gemm.c.shape[0], gemm.scale
    if not isinstance(scale, (BlockScales, RowScales)) or (scale.a.shape[0] != gemm.a.shape[0] and rows > 1):
        return None
    return gathered_scales(comm, rows, scale.a.shape[1])
