"""DeepEP's ``Buffer`` for PEs of one host or several: its names on :mod:`triton_dist.kernels.moe`.

    from triton_dist.deep_ep import Buffer  # instead of: from deep_ep import Buffer

docs/migrating.md says what differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from triton_dist.kernels import moe
from triton_dist.kernels.communicator import calling, communicator_of
from triton_dist.kernels.device import sms
from triton_dist.kernels.moe.combine import run as run_combine
from triton_dist.kernels.moe.results import result_of
from triton_dist.kernels.options import check_int

__all__ = ["Buffer", "EventOverlap"]

_FEW = 512
"""Up to as many tokens of a PE go with low latency; more go in rounds, by ``Buffer.num_sms`` programs."""

_BLOCK = 128
_LARGEST = 448.0  # of float8_e4m3fn


class EventOverlap:
    """The end of a call. Calls work on the current stream, so there is nothing to wait for."""

    def current_stream_wait(self) -> None:
        """Do nothing."""

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: object) -> None: ...


class _LowLatencyHandle(moe.Dispatched):
    """Of :meth:`Buffer.low_latency_dispatch`."""

    buffer: Any = None
    """Whose dispatch it was."""
    has_come = False
    """Whether the tokens have been received: by the dispatch, or by its hook."""


class _Handle(NamedTuple):
    """Of :meth:`Buffer.dispatch`: what has come, how many rows, and the PEs that this PE's tokens went to."""

    received: moe.Dispatched
    rows: int
    pes: torch.Tensor


class Buffer:
    """Dispatch and combine with DeepEP's arguments and results.

    Args:
        group: a process group, or what else :mod:`triton_dist.kernels` takes as ``group``; None for all PEs.
        max_tokens: how many tokens a PE may have in :meth:`dispatch`, the same on all PEs. DeepEP has no such argument.
        options: DeepEP's others, which are not needed.

    Raises:
        RuntimeError: there is no world. TypeError, ValueError: this is no group, or one without this PE.
    """

    num_sms = 20
    """How many SMs :meth:`dispatch` and its :meth:`combine` use if ``max_tokens`` is more than 512; else all."""

    def __init__(self, group: Any = None, *options: Any, max_tokens: int = 4096, **named: Any) -> None:
        check_int("Buffer", "max_tokens", max_tokens, 1)
        self.comm = communicator_of(group)
        self.group, self.group_size, self.rank = group, self.comm.n_pes, self.comm.my_rank
        self.max_tokens = max_tokens

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """How many SMs thousands of tokens take, from the next :meth:`dispatch` on; the same on all PEs."""
        check_int("Buffer.set_num_sms", "new_num_sms", new_num_sms, 1)
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """An event of the current stream, which need not be waited for."""
        return EventOverlap()

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> None:
        """There is nothing to configure."""

    @staticmethod
    def get_combine_config(num_ranks: int) -> None:
        """There is nothing to configure."""

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """Bytes of symmetric memory that the low-latency pair takes, about: slots for bfloat16 rows, both ways."""
        return 4 * num_ranks * num_max_dispatch_tokens_per_rank * (2 * hidden + 512)

    def get_dispatch_layout(
        self, topk_idx: torch.Tensor, num_experts: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, None, torch.Tensor, torch.Tensor, EventOverlap]:
        """How many tokens go to each rank and expert, and which tokens go to which rank."""
        _check_ids("get_dispatch_layout", topk_idx)
        ranks = torch.arange(self.group_size, device=topk_idx.device)
        homes = torch.where(topk_idx >= 0, topk_idx // self._local(num_experts), -1)
        is_token_in_rank = (homes[:, :, None] == ranks).any(dim=1)
        chosen = torch.where(topk_idx >= 0, topk_idx, num_experts).flatten()  # without waiting for the GPU
        counts = torch.zeros(num_experts + 1, dtype=torch.int32, device=topk_idx.device)
        per_expert = counts.scatter_add_(0, chosen, torch.ones_like(chosen, dtype=torch.int32))[:num_experts]
        per_rank = is_token_in_rank.sum(dim=0, dtype=torch.int32)
        return per_rank, None, per_expert, is_token_in_rank, EventOverlap()

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
        config: Any = None,
        previous_event: Any = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[Any, ...]:
        """Each token once to every rank that has one of its experts, in the order of ranks and tokens.

        The host waits for the number of rows, as DeepEP's does, unless ``handle`` gives it.

        Returns:
            recv_x (a pair, if ``x`` is), recv_topk_idx (local experts, or -1), recv_topk_weights, the rows of each
            expert as a list of multiples of ``expert_alignment``, the handle, an event. With a handle, None for all but
            the first and the last.
        """
        rows, scales = x if isinstance(x, tuple) else (x, None)
        n_scales = 0 if scales is None else scales.shape[1]
        check_int("Buffer.dispatch", "expert_alignment", expert_alignment, 1)
        if handle is not None:
            _check_handle("Buffer.dispatch", handle)
            found = self._send(rows, handle.pes, scales)
            received = found.x[: handle.rows]
            both = received if found.scales is None else (received, found.scales[: handle.rows])
            return both, None, None, None, None, EventOverlap()
        if topk_idx is None or topk_weights is None or num_tokens_per_expert is None:
            raise ValueError("Buffer.dispatch: topk_idx, topk_weights and num_tokens_per_expert must be given")
        _check_ids("Buffer.dispatch", topk_idx)
        _check_tensor("Buffer.dispatch", "topk_weights", topk_weights, tuple(topk_idx.shape))
        _check_tensor("Buffer.dispatch", "num_tokens_per_expert", num_tokens_per_expert)
        local, top_k = self._local(num_tokens_per_expert.numel()), topk_idx.shape[1]
        homes = torch.where(topk_idx >= 0, topk_idx // local, -1).sort(dim=1).values
        homes[:, 1:] = torch.where(homes[:, 1:] == homes[:, :-1], -1, homes[:, 1:])
        # Ids and weights go with the row as scales do. float32 holds ids exactly.
        parts = [] if scales is None else [scales]
        found = self._send(rows, homes, torch.cat([*parts, topk_idx.float(), topk_weights.float()], dim=1))
        assert found.scales is not None
        n = int(found.counts[0])  # waits for the GPU
        with_them = found.scales[:n]
        idx = with_them[:, n_scales : n_scales + top_k].long() - self.rank * local
        here = (idx >= 0) & (idx < local)
        weights = torch.where(here, with_them[:, n_scales + top_k :], 0.0)
        counts = torch.bincount(idx[here], minlength=local).tolist()
        aligned = [-(-count // expert_alignment) * expert_alignment for count in counts]
        received = found.x[:n]
        both = received if scales is None else (received, with_them[:, :n_scales].contiguous())
        return both, torch.where(here, idx, -1), weights, aligned, _Handle(found, n, homes), EventOverlap()

    def combine(
        self,
        x: torch.Tensor,
        handle: _Handle,
        topk_weights: torch.Tensor | None = None,
        bias: Any = None,
        config: Any = None,
        previous_event: Any = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, EventOverlap]:
        """The sum over ranks of the rows that ``dispatch`` has sent, [T, hidden], and of ``topk_weights`` alike."""
        if bias is not None:
            raise NotImplementedError("Buffer.combine: bias: add it to the result")
        _check_handle("Buffer.combine", handle)
        if x.shape[0] != handle.rows:
            raise ValueError(f"Buffer.combine: x must have the {handle.rows} rows that came, got {tuple(x.shape)}")
        with calling("Buffer.combine", self.comm, between_hosts=True):
            combined = run_combine("Buffer.combine", x.contiguous(), handle.received, False)
        weights = None
        if topk_weights is not None:
            top_k = topk_weights.shape[1]
            wide = torch.nn.functional.pad(topk_weights.float(), (0, -top_k % 4)).contiguous()
            with calling("Buffer.combine", self.comm, between_hosts=True):
                weights = run_combine("Buffer.combine", wide, handle.received, False)[:, :top_k]
        return combined, weights, EventOverlap()

    def clean_low_latency_buffer(self, *_: Any) -> None:
        """There is nothing to clean: receivers clear what they have read."""

    def low_latency_dispatch(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        use_fp8: bool = True,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        *,
        topk_weights: torch.Tensor | None = None,
    ) -> tuple[Any, torch.Tensor, moe.Dispatched, EventOverlap, Callable[[], None]]:
        """Each token to its experts, without the host.

        Args:
            use_fp8: convert rows to float8_e4m3fn with a scale for each 128 elements; recv_x is a pair then.
            return_recv_hook: only send; the fifth result receives when it is called, once, before the results and the
                handle are used.
            topk_weights: if given here, :meth:`low_latency_combine` need not send them. DeepEP has no such argument.

        Returns:
            recv_x [L, ranks * max tokens, hidden], recv_count [L] int32: how many of an expert's rows are used, the
            handle, an event, the hook.

        Raises:
            RuntimeError: the hook of the last dispatch has not been called; or, of a hook, it was called before.
        """
        check_int("low_latency_dispatch", "num_max_dispatch_tokens_per_rank", num_max_dispatch_tokens_per_rank, 1)
        self._local(num_experts)
        _check_ids("low_latency_dispatch", topk_idx)
        if not isinstance(x, torch.Tensor) or x.dim() != 2:
            found = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            raise ValueError(f"low_latency_dispatch: x must be a tensor of two dimensions, got {found}")
        rows, scales = _to_fp8(x) if use_fp8 else (x, None)
        room = self.group_size * num_max_dispatch_tokens_per_rank
        sent = moe.dispatch_send(
            rows,
            topk_idx,
            topk_weights,
            num_experts=num_experts,
            max_tokens=num_max_dispatch_tokens_per_rank,
            scales=scales,
            expert_capacity=room,
            group=self.comm,
        )
        received = _LowLatencyHandle(*result_of(sent.routing, sent.dtype, sent.hidden, sent.n_scales, torch.empty))
        received.buffer = self

        def hook() -> None:
            if received.has_come:
                raise RuntimeError("low_latency_dispatch: its hook was called before, and receives once")
            moe.dispatch_receive(sent, received)
            received.has_come = True

        if not return_recv_hook:
            hook()
        by_expert: Any = received.x.view(-1, room, x.shape[1])
        if received.scales is not None:
            by_expert = (by_expert, received.scales.view(-1, room, received.scales.shape[1]))
        return by_expert, received.counts, received, EventOverlap(), hook

    def low_latency_combine(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: moe.Dispatched,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, EventOverlap, Callable[[], None]]:
        """The weighted sum of each token's rows [T, hidden]; ``x`` is [L, ranks * max tokens, hidden].

        Unless they were given to :meth:`low_latency_dispatch`, the weights are sent to the experts first.

        Returns:
            The result, an event, the hook.

        Raises:
            RuntimeError: the hook of the dispatch has not been called. TypeError, ValueError: an argument is not as of
                that dispatch.
        """
        routing = self._check_combine(x, topk_idx, topk_weights, handle, out).routing
        if routing.weights is not topk_weights:
            nothing = torch.zeros(routing.n_tokens, 4, device=x.device)
            experts = routing.local_experts * self.group_size
            weighted = moe.dispatch(
                nothing,
                topk_idx,
                topk_weights,
                num_experts=experts,
                max_tokens=routing.max_tokens,
                expert_capacity=routing.align,
                group=self.comm,
            )
            # Of the same routing; where the tables lie is as of the dispatch of the weights.
            handle = moe.Dispatched(handle.x, handle.scales, weighted.memory, weighted.routing)
        sending = moe.combine_send(x.reshape(-1, x.shape[-1]).contiguous(), handle)
        result = torch.empty(routing.n_tokens, x.shape[-1], dtype=x.dtype, device=x.device) if out is None else out

        def hook() -> None:
            result.copy_(moe.combine_receive(sending))

        if not return_recv_hook:
            hook()
        return result, EventOverlap(), hook

    def _check_combine(
        self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: Any, out: Any
    ) -> moe.Dispatched:
        """The handle of a combine, if the arguments are as of its dispatch."""
        name = "low_latency_combine"
        if type(handle) is not _LowLatencyHandle:
            raise TypeError(f"{name}: handle must be one of low_latency_dispatch, got {type(handle).__name__}")
        if handle.buffer is not self:
            raise ValueError(f"{name}: handle is of another Buffer's dispatch")
        if not handle.has_come:
            raise RuntimeError(
                f"{name}: the tokens of this handle have not been received: call the hook that low_latency_dispatch"
                " returned with it first"
            )
        shape = tuple(handle.routing.ids.shape)
        for key, tensor in (("topk_idx", topk_idx), ("topk_weights", topk_weights)):
            _check_tensor(name, key, tensor, shape)
        rows, room = handle.routing.capacity, handle.routing.align
        if not isinstance(x, torch.Tensor) or tuple(x.shape[:-1]) not in ((rows // room, room), (rows,)):
            found = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            raise ValueError(f"{name}: x must be [{rows // room}, {room}, hidden], as recv_x is, got {found}")
        if out is not None:
            expected = (shape[0], x.shape[-1])
            if not isinstance(out, torch.Tensor):
                raise TypeError(f"{name}: out must be a torch.Tensor, got {type(out).__name__}")
            if tuple(out.shape) != expected or out.dtype != x.dtype or out.device != x.device:
                raise ValueError(
                    f"{name}: out must be {expected} of {x.dtype} on {x.device}, got {tuple(out.shape)} of {out.dtype}"
                    f" on {out.device}"
                )
        return handle

    def _local(self, num_experts: int) -> int:
        check_int("Buffer", "num_experts", num_experts, 1)
        if num_experts % self.group_size:
            raise ValueError(f"Buffer: {num_experts} experts cannot be shared equally by {self.group_size} ranks")
        return num_experts // self.group_size

    def _send(self, rows: torch.Tensor, pes: torch.Tensor, scales: torch.Tensor | None) -> moe.Dispatched:
        """A row to each of the PEs, as if each were one expert."""
        return moe.dispatch(
            rows,
            pes,
            num_experts=self.group_size,
            max_tokens=self.max_tokens,
            scales=scales,
            capacity=self.group_size * self.max_tokens,
            num_sms=min(Buffer.num_sms, sms()) if self.max_tokens > _FEW else 0,
            group=self.comm,
        )


def _check_ids(function: str, ids: Any) -> None:
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.dtype not in (torch.int32, torch.int64):
        found = f"{tuple(ids.shape)} of {ids.dtype}" if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"{function}: topk_idx must be [T, top_k] of torch.int64 or torch.int32, got {found}")


def _check_tensor(function: str, name: str, tensor: Any, shape: tuple[int, ...] | None = None) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function}: {name} must be a torch.Tensor, got {type(tensor).__name__}")
    if shape is not None and tuple(tensor.shape) != shape:
        raise ValueError(f"{function}: {name} must be {shape}, as topk_idx was dispatched, got {tuple(tensor.shape)}")


def _check_handle(function: str, handle: Any) -> None:
    if not isinstance(handle, _Handle):
        raise TypeError(f"{function}: handle must be what Buffer.dispatch returns, got {type(handle).__name__}")


def _to_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of float8_e4m3fn, and the float32 scale of each 128 elements."""
    if x.shape[1] % _BLOCK:
        raise ValueError(f"low_latency_dispatch: with use_fp8 hidden must be a multiple of {_BLOCK}, got {x.shape[1]}")
    blocks = x.float().view(len(x), x.shape[1] // _BLOCK, _BLOCK)
    scales = blocks.abs().amax(dim=-1).clamp(min=1e-4) / _LARGEST
    rows = (blocks / scales[:, :, None]).view(x.shape).to(torch.float8_e4m3fn)
    return rows, scales
