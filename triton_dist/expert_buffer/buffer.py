"""DeepEP's ``Buffer``: dispatch and combine of tokens by rank, and what a program asks of a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

import triton_dist
from triton_dist.expert_buffer.arguments import check_ids, check_range, check_tensor, refuse
from triton_dist.expert_buffer.config import Config
from triton_dist.expert_buffer.events import EventHandle, EventOverlap, ended, wait_for
from triton_dist.expert_buffer.low_latency import LowLatency
from triton_dist.kernels import Communicator, functional, moe
from triton_dist.kernels.communicator import calling, communicator_of
from triton_dist.kernels.device import sms
from triton_dist.kernels.gradients import refuse_gradients
from triton_dist.kernels.moe.tokens import run as run_dispatch
from triton_dist.kernels.moe.tokens import run_again, run_combine
from triton_dist.kernels.options import check_int

__all__ = ["Buffer"]

_FEW = 512
"""Up to as many tokens of a PE go with low latency; more go in rounds, by so many programs as a ``Config`` says."""


class _Handle(NamedTuple):
    """Of :meth:`Buffer.dispatch`: what has come, how many rows, and by which Buffer."""

    received: moe.DispatchedTokens
    rows: int
    buffer: Buffer


class Buffer(LowLatency):
    """Dispatch and combine with DeepEP's arguments and results.

    Args:
        group: a process group, or what else :mod:`triton_dist.kernels` takes as ``group``; None for all PEs.
        num_nvl_bytes, num_rdma_bytes, low_latency_mode, num_qps_per_rank, allow_nvlink_for_low_latency_mode,
            allow_mnnvl, use_fabric: DeepEP's, without effect: memory is made on first use, and every Buffer has low
            latency.
        explicitly_destroy: the slots are this Buffer's own, and :meth:`destroy` gives them back. *Collective.* By
            default they are those of :mod:`triton_dist.kernels` for this group, and live as long as the world.
        max_tokens: how many tokens a PE may have in :meth:`dispatch`, the same on all PEs. DeepEP has no such argument.

    Raises:
        RuntimeError: there is no world. TypeError, ValueError: this is no group, or one without this PE.
        NotImplementedError: ``enable_shrink``, or ``comm`` of mpi4py.
    """

    num_sms = 20
    """How many SMs :meth:`dispatch` and its :meth:`combine` use if ``max_tokens`` is more than 512; else all."""

    def __init__(
        self,
        group: Any = None,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
        comm: Any = None,
        *,
        use_fabric: bool = False,
        max_tokens: int = 4096,
    ) -> None:
        check_int("Buffer", "max_tokens", max_tokens, 1)
        refuse("Buffer", "enable_shrink", enable_shrink, "a world ends with any of its PEs; make another group")
        refuse("Buffer", "comm", comm, "pass a process group, a triton_dist.Team, or None for all PEs as group")
        self._comm: Communicator | None = Communicator(group) if explicitly_destroy else communicator_of(group)
        self.group, self.group_size, self.rank = group, self.comm.n_pes, self.comm.my_rank
        self.num_nvl_bytes, self.num_rdma_bytes, self.low_latency_mode = num_nvl_bytes, num_rdma_bytes, low_latency_mode
        self.explicitly_destroy, self.enable_shrink = explicitly_destroy, enable_shrink
        self.max_tokens = max_tokens

    # ---- what a program asks of a buffer

    @property
    def comm(self) -> Communicator:
        """What calls go by.

        Raises:
            RuntimeError: it was destroyed.
        """
        if self._comm is None:
            raise RuntimeError("Buffer: it was destroyed: make another one")
        return self._comm

    def destroy(self) -> None:
        """Give the slots back. *Collective.* The Buffer and its handles cannot be used any more.

        Raises:
            RuntimeError: it was made without ``explicitly_destroy``, or was destroyed.
        """
        if not self.explicitly_destroy:
            raise RuntimeError(
                "Buffer.destroy: it was made without explicitly_destroy=True: its slots end with the world"
            )
        self.comm.close()
        self._comm = None

    @staticmethod
    def is_sm90_compiled() -> bool:
        """True: rows of fp8 are moved on all GPUs."""
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """How many SMs thousands of tokens take, from the next :meth:`dispatch` on; the same on all PEs."""
        check_int("Buffer.set_num_sms", "new_num_sms", new_num_sms, 1)
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """An event of the current stream, as ``previous_event`` of a call on another one."""
        return EventOverlap(EventHandle())

    def get_comm_stream(self) -> Any:
        """The current stream, on which calls work: a ``torch.cuda.Stream``; in the CPU world a ``torch.cpu.Stream``."""
        return torch.cuda.current_stream() if triton_dist.kind() == "gpu" else torch.cpu.current_stream()

    def get_local_buffer_tensor(
        self, dtype: torch.dtype, size: torch.Size | None = None, offset: int = 0, use_rdma_buffer: bool = False
    ) -> torch.Tensor:
        """Raises:
        NotImplementedError: slots hold words of a protocol between calls, which a program must not write.
        """
        raise NotImplementedError(
            "Buffer.get_local_buffer_tensor: slots hold words of a protocol between calls: make memory of your own with"
            " triton_dist.empty, or torch.empty where no peer needs it"
        )

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """What :meth:`dispatch` takes by default: ``num_sms`` SMs."""
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """What :meth:`combine` takes by default, if :meth:`dispatch` did, too: ``num_sms`` SMs."""
        return Config(Buffer.num_sms)

    # ---- dispatch and combine

    def get_dispatch_layout(
        self,
        topk_idx: torch.Tensor,
        num_experts: int,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[torch.Tensor, None, torch.Tensor, torch.Tensor, EventOverlap]:
        """How many tokens go to each rank and expert, and which tokens go to which rank.

        Returns:
            [ranks] int32, None, [num_experts] int32, [T, ranks] bool, an event.

        Raises:
            ValueError: an argument is not as described; in the CPU world also: an id is out of range.
        """
        check_ids("get_dispatch_layout", topk_idx)
        wait_for("get_dispatch_layout", previous_event, topk_idx)
        local = self._local(num_experts)
        if not topk_idx.is_cuda:  # a GPU's ids would have to be waited for
            check_range("get_dispatch_layout", topk_idx, num_experts)
        ranks = torch.arange(self.group_size, device=topk_idx.device)
        homes = torch.where(topk_idx >= 0, topk_idx // local, -1)
        is_token_in_rank = (homes[:, :, None] == ranks).any(dim=1)
        chosen = torch.where(topk_idx >= 0, topk_idx, num_experts).flatten().long()  # without waiting for the GPU
        counts = torch.zeros(num_experts + 1, dtype=torch.int32, device=topk_idx.device)
        per_expert = counts.scatter_add_(0, chosen, torch.ones_like(chosen, dtype=torch.int32))[:num_experts]
        per_rank = is_token_in_rank.sum(dim=0, dtype=torch.int32)
        return per_rank, None, per_expert, is_token_in_rank, ended(async_finish, per_rank, per_expert, is_token_in_rank)

    def dispatch(
        self,
        x: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        handle: _Handle | None = None,
        num_tokens_per_rank: torch.Tensor | None = None,
        num_tokens_per_rdma_rank: torch.Tensor | None = None,
        is_token_in_rank: torch.Tensor | None = None,
        num_tokens_per_expert: torch.Tensor | None = None,
        topk_idx: torch.Tensor | None = None,
        topk_weights: torch.Tensor | None = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, ...]:
        """Each token once to every rank that has one of its experts, in the order of ranks and tokens.

        The host waits for the number of rows, as DeepEP's does, unless ``handle`` or ``num_worst_tokens`` gives it.

        Args:
            x: [T, hidden], of a dtype that rows have; or a pair of that and scales [T, S] or [T] float32.
            handle: of an earlier dispatch of this Buffer: its tokens again go where they went. Then nothing below is
                given but ``config`` and what is of streams.
            num_tokens_per_rank, num_tokens_per_rdma_rank: not needed.
            num_tokens_per_expert: [num_experts] int32, of :meth:`get_dispatch_layout`.
            topk_idx, topk_weights: [T, top_k]; or None for both, and ``is_token_in_rank`` [T, ranks] says where tokens
                go.
            num_worst_tokens: at most so many rows come; results have as many, and ids of those behind the last are -1.
                The host waits for nothing, and the list is empty.

        Returns:
            recv_x (a pair, if ``x`` is), recv_topk_idx (local experts, or -1), recv_topk_weights, the rows of each
            expert as a list of multiples of ``expert_alignment``, the handle, an event. With a handle, None for all but
            the first and the last; without ``topk_idx``, None for the second and the third.
        """
        name = "Buffer.dispatch"
        if isinstance(x, tuple) and len(x) != 2:
            raise ValueError(f"{name}: x must be a tensor, or a pair of that and scales, got a tuple of {len(x)}")
        rows, scales = x if isinstance(x, tuple) else (x, None)
        check_tensor(name, "x", rows)
        check_int(name, "expert_alignment", expert_alignment, 1)
        check_int(name, "num_worst_tokens", num_worst_tokens, 0)
        wait_for(name, previous_event, rows, scales, topk_idx, topk_weights, is_token_in_rank, num_tokens_per_expert)
        of_rows = None if scales is None else _scales(scales)
        if handle is not None:
            self._check_handle(name, handle)
            if topk_idx is not None or topk_weights is not None:
                raise ValueError(f"{name}: a handle stands for topk_idx and topk_weights: leave these out")
            num_sms = self._sms(config)
            with calling(name, self.comm, between_hosts=True) as comm:
                found = run_again(comm, name, rows, handle.received, of_rows, num_sms)
            both = _pair(found.x[: handle.rows], found.scales, scales, handle.rows)
            return both, None, None, None, None, ended(async_finish, rows, scales, found.x, found.scales)
        if num_tokens_per_expert is None or (topk_idx is None) != (topk_weights is None):
            raise ValueError(f"{name}: num_tokens_per_expert, and topk_idx and topk_weights or neither, must be given")
        check_tensor(name, "num_tokens_per_expert", num_tokens_per_expert)
        experts = num_tokens_per_expert.numel()
        local = self._local(experts)
        if topk_idx is None or topk_weights is None:
            ids = self._ranks(is_token_in_rank, rows.shape[0])
            found = self._send(name, rows, ids, None, of_rows, self.group_size, config, num_worst_tokens)
        else:
            check_ids(name, topk_idx)
            check_tensor(name, "topk_weights", topk_weights, tuple(topk_idx.shape))
            ids, weights = topk_idx.contiguous(), topk_weights.float().contiguous()
            found = self._send(name, rows, ids, weights, of_rows, experts, config, num_worst_tokens)
        n, counts = num_worst_tokens, []
        if not num_worst_tokens:
            n, *counts = _counts(found, local)  # waits for the GPU
            if topk_idx is None:
                counts = functional.reduce_scatter(num_tokens_per_expert.int(), group=self.comm).tolist()
        both = _pair(found.x[:n], found.scales, scales, n)
        received_idx = None if found.topk_ids is None else found.topk_ids[:n]
        received_weights = None if found.topk_weights is None else found.topk_weights[:n]
        aligned = [-(-count // expert_alignment) * expert_alignment for count in counts]
        tensors = found.x, found.scales, received_idx, received_weights
        event = ended(async_finish, rows, scales, topk_idx, topk_weights, *tensors)
        return both, received_idx, received_weights, aligned, _Handle(found, n, self), event

    def combine(
        self,
        x: torch.Tensor,
        handle: _Handle,
        topk_weights: torch.Tensor | None = None,
        bias: torch.Tensor | Sequence[torch.Tensor] | None = None,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, EventOverlap]:
        """The sum over ranks of the rows that ``dispatch`` has sent, [T, hidden], and of ``topk_weights`` alike.

        ``bias``, one tensor [T, hidden] or two, is added to the rounded sum in float32, which rounds once more.
        """
        name = "Buffer.combine"
        self._check_handle(name, handle)
        check_tensor(name, "x", x)
        if x.dim() != 2 or x.shape[0] != handle.rows:
            raise ValueError(f"{name}: x must have the {handle.rows} rows that came, got {tuple(x.shape)}")
        added = (bias,) if isinstance(bias, torch.Tensor) else tuple(bias or ())
        if len(added) > 2:
            raise ValueError(f"{name}: bias must be up to two tensors, got {len(added)}")
        received = handle.received
        for tensor in added:
            check_tensor(name, "bias", tensor, (received.routing.n_tokens, x.shape[1]))
        refuse_gradients(name, *added)
        if topk_weights is not None:
            check_tensor(name, "topk_weights", topk_weights)
            if topk_weights.dim() != 2 or topk_weights.shape[0] != handle.rows:
                raise ValueError(
                    f"{name}: topk_weights must be [{handle.rows}, top_k], of rows that came, got"
                    f" {tuple(topk_weights.shape)}"
                )
        wait_for(name, previous_event, x, topk_weights, *added)
        if config is not None and received.routing.num_sms:
            received = _with_num_sms(received, _num_sms(config))
        with calling(name, self.comm, between_hosts=True):
            combined = run_combine(name, x.contiguous(), received)
        if added:
            combined = sum((tensor.float() for tensor in added), combined.float()).to(combined.dtype)
        weights = None
        if topk_weights is not None:
            top_k = topk_weights.shape[1]
            wide = torch.nn.functional.pad(topk_weights.float(), (0, -top_k % 4)).contiguous()
            with calling(name, self.comm, between_hosts=True):
                weights = run_combine(name, wide, received)[:, :top_k]
        return combined, weights, ended(async_finish, x, topk_weights, received.memory, combined, weights)

    # DeepEP's methods for groups over several hosts, which its two above call.
    internode_dispatch = dispatch
    internode_combine = combine

    def _check_handle(self, function: str, handle: Any) -> None:
        if not isinstance(handle, _Handle):
            raise TypeError(f"{function}: handle must be what Buffer.dispatch returns, got {type(handle).__name__}")
        if handle.buffer is not self:
            raise ValueError(f"{function}: handle is of another Buffer's dispatch")

    def _local(self, num_experts: int) -> int:
        check_int("Buffer", "num_experts", num_experts, 1)
        if num_experts % self.group_size:
            raise ValueError(f"Buffer: {num_experts} experts cannot be shared equally by {self.group_size} ranks")
        return num_experts // self.group_size

    def _ranks(self, is_token_in_rank: Any, n_tokens: int) -> torch.Tensor:
        """The ranks of tokens, [T, ranks], -1 for none."""
        shape = n_tokens, self.group_size
        check_tensor("Buffer.dispatch", "is_token_in_rank", is_token_in_rank, shape, torch.bool)
        ranks = torch.arange(self.group_size, device=is_token_in_rank.device)
        return torch.where(is_token_in_rank, ranks, -1)

    def _send(
        self,
        name: str,
        rows: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor | None,
        scales: torch.Tensor | None,
        num_experts: int,
        config: Config | None,
        most: int,
    ) -> moe.DispatchedTokens:
        """With ids if there are weights."""
        num_sms, capacity = self._sms(config), most or self.group_size * self.max_tokens
        with calling(name, self.comm, between_hosts=True) as comm:
            return run_dispatch(
                comm, name, rows, ids, weights, scales, num_experts, self.max_tokens, capacity, 0, num_sms,
                with_ids=weights is not None,
            )  # fmt: skip

    def _sms(self, config: Config | None) -> int:
        """How many SMs a dispatch takes; 0: all, for few tokens."""
        return _num_sms(config) if self.max_tokens > _FEW else 0


def _counts(found: moe.DispatchedTokens, local: int) -> list[int]:
    """How many rows have come, and how many each expert has, if ids came with them. The host waits once."""
    counts = [found.n_rows]
    if found.topk_ids is not None:
        ids = found.topk_ids.flatten().long()
        of_experts = torch.zeros(local + 1, dtype=torch.int32, device=ids.device)
        places = torch.where(ids >= 0, ids, local)
        counts.append(of_experts.scatter_add_(0, places, torch.ones_like(places, dtype=torch.int32))[:local])
    return [int(count) for count in torch.cat(counts).tolist()]


def _with_num_sms(received: moe.DispatchedTokens, num_sms: int) -> moe.DispatchedTokens:
    """For a combine by as many SMs."""
    of_ranks = received.of_ranks
    if of_ranks is not None:
        of_ranks = of_ranks._replace(routing=of_ranks.routing._replace(num_sms=num_sms))
    return received._replace(routing=received.routing._replace(num_sms=num_sms), of_ranks=of_ranks)


def _num_sms(config: Config | None) -> int:
    if config is not None and not isinstance(config, Config):
        raise TypeError(f"Buffer: config must be a triton_dist.deep_ep.Config, got {type(config).__name__}")
    return min(Buffer.num_sms if config is None else config.num_sms, sms())


def _scales(scales: torch.Tensor) -> torch.Tensor:
    """Scales as they are sent, [T, S]."""
    check_tensor("Buffer.dispatch", "the scales of x", scales, dtype=torch.float32)
    return (scales[:, None] if scales.dim() == 1 else scales).contiguous()


def _pair(rows: torch.Tensor, sent: torch.Tensor | None, scales: torch.Tensor | None, n: int) -> Any:
    """Rows, and with them the scales among what was sent with them, if there are any."""
    if scales is None or sent is None:
        return rows
    return rows, sent[:n, 0].contiguous() if scales.dim() == 1 else sent[:n, : scales.shape[1]].contiguous()
