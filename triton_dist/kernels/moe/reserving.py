"""Workspaces of the operations on experts, made before the first call: what ``kernels.reserve`` does for these."""

from __future__ import annotations

from typing import NamedTuple

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.moe.all_gather_grouped_gemm import senders_of
from triton_dist.kernels.moe.all_gather_grouped_gemm import workspace as workspace_of_gathering
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.combine import make_slots as make_slots_of_combine
from triton_dist.kernels.moe.dispatch import make_slots as make_slots_of_dispatch
from triton_dist.kernels.moe.gathered_routing import workspace as workspace_of_routing
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import workspace as workspace_of_scattering
from triton_dist.kernels.moe.tokens import make_slots as make_slots_of_tokens
from triton_dist.kernels.moe.tokens import make_slots_of_sums

__all__ = ["BETWEEN_HOSTS", "RESERVE", "Experts"]


class Experts(NamedTuple):
    """Sizes of the calls that workspaces are made for.

    Attributes:
        max_tokens: of a PE, as the functions have it.
        hidden: the columns of a token. dtype: of tokens that are sent; results of fp8 are of bfloat16.
        num_experts: of all PEs together. top_k: choices of a token.
        scales: float32 scales of a row.
        num_sms: of the functions.
    """

    max_tokens: int
    hidden: int
    dtype: torch.dtype
    num_experts: int
    top_k: int
    scales: int
    num_sms: int

    @property
    def result(self) -> torch.dtype:
        return torch.bfloat16 if self.dtype in FP8 else self.dtype

    def routing(self, comm: Communicator) -> Routing:
        """That of a call without tokens."""
        local = self.num_experts // comm.n_pes
        ids = torch.empty(0, self.top_k, dtype=torch.int32, device=comm.world.device)
        sizes = comm.members, local, self.max_tokens, 1, 1
        return Routing(ids, ids.float(), *sizes, comm=comm, num_sms=self.num_sms, hosts=comm.grid.hosts)


def _dispatch(comm: Communicator, of: Experts) -> None:
    x = torch.empty(0, of.hidden, dtype=of.dtype, device=comm.world.device)
    make_slots_of_dispatch(comm, "reserve", x, of.scales, of.routing(comm))


def _combine(comm: Communicator, of: Experts) -> None:
    y = torch.empty(0, of.hidden, dtype=of.result, device=comm.world.device)
    make_slots_of_combine(comm, "reserve", y, of.routing(comm))


def _dispatch_tokens(comm: Communicator, of: Experts) -> None:
    x = torch.empty(0, of.hidden, dtype=of.dtype, device=comm.world.device)
    make_slots_of_tokens(comm, "reserve", x, of.scales, of.routing(comm))


def _combine_tokens(comm: Communicator, of: Experts) -> None:
    x, y = (torch.empty(0, of.hidden, dtype=dtype, device=comm.world.device) for dtype in (of.dtype, of.result))
    make_slots_of_sums(comm, "reserve", x, y, of.routing(comm))


def _gather_routing(comm: Communicator, of: Experts) -> None:
    workspace_of_routing(comm, of.max_tokens, of.top_k)


def _all_gather_grouped_gemm(comm: Communicator, of: Experts) -> None:
    n_programs, _ = senders_of("reserve", of.num_sms, 0)
    words = of.hidden * of.dtype.itemsize // 4
    workspace_of_gathering(comm, of.max_tokens, words, of.scales, n_programs)


def _grouped_gemm_reduce_scatter(comm: Communicator, of: Experts) -> None:
    kind = "none" if not of.scales else "rows" if of.scales == 1 else "blocks"
    n_programs, n_reducers = senders_of("reserve", of.num_sms, 0)
    workspace_of_scattering(comm, of.max_tokens, of.hidden, of.dtype, of.result, kind, n_programs, n_reducers)


RESERVE = {
    "dispatch": _dispatch,
    "combine": _combine,
    "dispatch_tokens": _dispatch_tokens,
    "combine_tokens": _combine_tokens,
    "gather_routing": _gather_routing,
    "all_gather_grouped_gemm": _all_gather_grouped_gemm,
    "grouped_gemm_reduce_scatter": _grouped_gemm_reduce_scatter,
}
"""What makes the workspace of calls with such sizes. *Collective.*"""

BETWEEN_HOSTS = "dispatch", "combine", "dispatch_tokens", "combine_tokens"
"""Those of them that members on several hosts can make."""
