"""DeepEP's low-latency pair: rows of each expert, with room for all that can come, and nothing waits for the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from triton_dist.expert_buffer.arguments import check_ids, check_tensor, refuse
from triton_dist.expert_buffer.events import EventOverlap, ended
from triton_dist.expert_buffer.fp8 import packed_exponents, to_fp8
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gradients import records_gradients
from triton_dist.kernels.moe.results import check_ids as check_ids_unwritten
from triton_dist.kernels.moe.results import result_of
from triton_dist.kernels.moe.seen import Seen, is_as_seen, see
from triton_dist.kernels.options import check_int

__all__ = ["LowLatency"]

_COMBINED = (torch.bfloat16, torch.float16, torch.float32)
"""Of rows that are added up."""

_TIMES = "triton_dist.kernels.tracing records what programs wait for"


class _Handle(moe.Dispatched):
    """Of :meth:`LowLatency.low_latency_dispatch`."""

    buffer: Any = None
    """Whose dispatch it was."""
    columns = 0
    """Of a row before it was converted."""
    has_come = False
    """Whether the tokens have been received: by the dispatch, or by its hook."""
    given_weights: torch.Tensor | None = None
    seen_weights: Seen = None
    """The weights that were sent with the tokens, and what they were."""


def _check_tokens(function: str, x: torch.Tensor, most: int) -> None:
    if not x.is_contiguous():
        raise ValueError(f"{function}: x must be contiguous, got strides {x.stride()} for shape {tuple(x.shape)}")
    if len(x) > most:
        raise ValueError(f"{function}: x has {len(x)} tokens, and num_max_dispatch_tokens_per_rank is {most}")


class _PendingHooks:
    """Of one communicator: the hooks of exchanges that Buffers have sent and not received, by the numbers of these.

    A caller may lose a hook to an exception. Slots stay in flight until it is called, so it is kept here.
    """

    def __init__(self, communicator: Communicator) -> None:
        self.hooks: dict[int, Callable[[], None]] = {}

    def close(self) -> None:
        self.hooks.clear()

    def receive_all(self) -> None:
        for hook in tuple(self.hooks.values()):
            hook()

    def explain(self, error: RuntimeError) -> None:
        """Raise the error of a send with the pending hooks, and how they are received if they are lost."""
        if self.hooks:
            raise RuntimeError(
                f"{error}. Hooks of low_latency_dispatch or low_latency_combine that have not been called:"
                f" {len(self.hooks)}. Call each before the next call of its kind; if a hook is lost,"
                " clean_low_latency_buffer receives in its place"
            ) from error


class LowLatency:
    """The calls of a ``Buffer`` that have low latency."""

    group_size: int

    @property
    def comm(self) -> Communicator:
        raise NotImplementedError

    def _local(self, num_experts: int) -> int:
        """How many experts each PE has."""
        raise NotImplementedError

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """Bytes of symmetric memory that the low-latency pair takes, about: slots for bfloat16 rows, both ways."""
        return 4 * num_ranks * num_max_dispatch_tokens_per_rank * (2 * hidden + 512)

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Call the hooks that have not been called, of all Buffers with these slots: a caller may have lost one to an
        exception. This PE waits for what its peers have sent, or still send. Each hook receives once.

        Nothing else is to be cleaned: receivers clear what they have read, and other calls have slots of their own.
        """
        self._pending.receive_all()

    @property
    def _pending(self) -> _PendingHooks:
        return self.comm.own(_PendingHooks)

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Raises:
        NotImplementedError: a rank would be left out, with ``mask``.
        """
        refuse("low_latency_update_mask_buffer", "mask", mask, "a world ends with any of its PEs; make another group")

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Fill ``mask_status`` [ranks] int32 with 0: no rank is left out."""
        check_tensor("low_latency_query_mask_buffer", "mask_status", mask_status, (self.group_size,), torch.int32)
        mask_status.zero_()

    def low_latency_clean_mask_buffer(self) -> None:
        """No rank is left out."""

    def get_next_low_latency_combine_buffer(self, handle: moe.Dispatched) -> torch.Tensor:
        """[L, ranks * max tokens, hidden] bfloat16, a new tensor for the ``x`` of :meth:`low_latency_combine`, which
        reads it where it lies, as it does any other."""
        checked = self._handle("get_next_low_latency_combine_buffer", handle)
        room = checked.routing.align
        shape = checked.routing.capacity // room, room, checked.columns
        return torch.empty(shape, dtype=torch.bfloat16, device=checked.x.device)

    def low_latency_dispatch(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: torch.Tensor | None = None,
        dispatch_wait_recv_cost_stats: torch.Tensor | None = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        *,
        topk_weights: torch.Tensor | None = None,
    ) -> tuple[Any, torch.Tensor, moe.Dispatched, EventOverlap, Callable[[], None] | None]:
        """Each token to its experts, without the host.

        Args:
            x: [T, hidden], of a dtype that rows have. topk_idx: [T, top_k], -1 for a choice that is not made.
            cumulative_local_expert_recv_stats: [L] int32, to which the rows of each expert are added when they come.
            use_fp8: convert rows to float8_e4m3fn with a scale for each 128 elements; recv_x is a pair then.
            round_scale: scales are powers of two. use_ue8m0: and their exponents are packed, four in an int32; for
                hidden sizes that are multiples of 512.
            async_finish: the event is that of this call's end.
            return_recv_hook: only send; the fifth result receives when it is called, once, before the results and the
                handle are used.
            topk_weights: if given here, :meth:`low_latency_combine` need not send them. DeepEP has no such argument.

        Returns:
            recv_x [L, ranks * max tokens, hidden], recv_count [L] int32: how many of an expert's rows are used, the
            handle, an event, the hook, or None without ``return_recv_hook``. Scales are
            [L, ranks * max tokens, hidden / 128] float32, row by row; or
            [L, ranks * max tokens, hidden / 512] int32, column by column, with ``use_ue8m0``.

        Raises:
            RuntimeError: the hook of the last dispatch has not been called: if it is lost, call
                :meth:`clean_low_latency_buffer`; or, of a hook, it was called before.
            ValueError: an argument is not as described. NotImplementedError: ``dispatch_wait_recv_cost_stats``.
        """
        name = "low_latency_dispatch"
        check_int(name, "num_max_dispatch_tokens_per_rank", num_max_dispatch_tokens_per_rank, 1)
        local = self._local(num_experts)
        check_ids(name, topk_idx)
        if not isinstance(x, torch.Tensor) or x.dim() != 2:
            found = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            raise ValueError(f"{name}: x must be a tensor of two dimensions, got {found}")
        refuse(name, "dispatch_wait_recv_cost_stats", dispatch_wait_recv_cost_stats, _TIMES)
        if cumulative_local_expert_recv_stats is not None:
            stats = cumulative_local_expert_recv_stats
            check_tensor(name, "cumulative_local_expert_recv_stats", stats, (local,), torch.int32)
        if use_ue8m0 and not (use_fp8 and round_scale and x.shape[1] % 512 == 0):
            raise ValueError(
                f"{name}: use_ue8m0 needs use_fp8, round_scale and a hidden size that is a multiple of 512, got"
                f" use_fp8={use_fp8}, round_scale={round_scale} and {x.shape[1]}"
            )
        if async_finish and return_recv_hook:
            raise ValueError(f"{name}: async_finish and return_recv_hook: give one, as the hook tells when rows come")
        if topk_weights is not None:
            check_tensor(name, "topk_weights", topk_weights, tuple(topk_idx.shape))
        rows, scales = to_fp8(x, round_scale) if use_fp8 else (x, None)
        _check_tokens(name, rows, num_max_dispatch_tokens_per_rank)
        room = self.group_size * num_max_dispatch_tokens_per_rank
        pending = self._pending
        try:
            sent = moe.dispatch_send(
                rows,
                topk_idx,
                None if topk_weights is None else topk_weights.float(),
                num_experts=num_experts,
                max_tokens=num_max_dispatch_tokens_per_rank,
                scales=scales,
                expert_capacity=room,
                group=self.comm,
            )
        except RuntimeError as error:
            pending.explain(error)
            raise
        received = _Handle(*result_of(sent.routing, sent.dtype, sent.hidden, sent.n_scales, torch.empty))
        received.buffer, received.columns = self, x.shape[1]
        if topk_weights is not None:
            received.given_weights, received.seen_weights = topk_weights, see(topk_weights)
        of_rows = None if received.scales is None else received.scales.view(local, room, -1)
        packed = None
        if use_ue8m0:
            packed = torch.empty(local, x.shape[1] // 512, room, dtype=torch.int32, device=x.device).transpose(1, 2)

        def hook() -> None:
            if received.has_come:
                raise RuntimeError(f"{name}: its hook was called before, and receives once")
            moe.dispatch_receive(sent, received)
            received.has_come = True
            pending.hooks.pop(sent.number, None)
            if packed is not None and of_rows is not None:
                packed.copy_(packed_exponents(of_rows))
            if cumulative_local_expert_recv_stats is not None:
                cumulative_local_expert_recv_stats.add_(received.counts)

        pending.hooks[sent.number] = hook
        if not return_recv_hook:
            hook()
        by_expert: Any = received.x.view(-1, room, x.shape[1])
        if use_fp8:
            by_expert = by_expert, of_rows if packed is None else packed
        event = ended(async_finish, x, topk_idx, received.x, received.scales, received.memory)
        return by_expert, received.counts, received, event, hook if return_recv_hook else None

    def low_latency_combine(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: moe.Dispatched,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: torch.Tensor | None = None,
        combine_wait_recv_cost_stats: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, EventOverlap, Callable[[], None] | None]:
        """The weighted sum of each token's rows [T, hidden]; ``x`` is [L, ranks * max tokens, hidden].

        The weights are sent to the experts first, unless :meth:`low_latency_dispatch` was given them as they are.
        ``use_logfmt`` has no effect: rows are sent as they are. Nor has ``zero_copy``: ``x`` is read where it lies.

        Returns:
            The result, which is ``out`` if that is given, an event, the hook, or None without ``return_recv_hook``.

        Raises:
            RuntimeError: the hook of the dispatch has not been called. TypeError, ValueError: an argument is not as of
                that dispatch. NotImplementedError: ``combine_wait_recv_cost_stats``.
        """
        refuse("low_latency_combine", "combine_wait_recv_cost_stats", combine_wait_recv_cost_stats, _TIMES)
        if async_finish and return_recv_hook:
            raise ValueError("low_latency_combine: async_finish and return_recv_hook: give one")
        checked = self._check_combine(x, topk_idx, topk_weights, handle, out)
        routing = checked.routing
        if self._needs_weights(checked, topk_idx, topk_weights):
            if topk_idx is not routing.ids:  # choices that are -1 now are left out, as by DeepEP
                topk_weights = torch.where(topk_idx >= 0, topk_weights, 0)
            nothing = torch.zeros(routing.n_tokens, 4, dtype=torch.float32, device=x.device)
            experts = routing.local_experts * self.group_size
            weighted = moe.dispatch(
                nothing,
                routing.ids,
                topk_weights.float(),
                num_experts=experts,
                max_tokens=routing.max_tokens,
                expert_capacity=routing.align,
                group=self.comm,
            )
            # Of the same routing; where the tables lie is as of the dispatch of the weights.
            handle = moe.Dispatched(handle.x, handle.scales, weighted.memory, weighted.routing)
        pending = self._pending
        try:
            sending = moe.combine_send(x.reshape(-1, x.shape[-1]).contiguous(), handle)
        except RuntimeError as error:
            pending.explain(error)
            raise
        result = torch.empty(routing.n_tokens, x.shape[-1], dtype=x.dtype, device=x.device) if out is None else out

        def hook() -> None:
            if pending.hooks.get(sending.number) is not hook:
                raise RuntimeError("low_latency_combine: its hook was called before, and receives once")
            result.copy_(moe.combine_receive(sending))
            del pending.hooks[sending.number]

        pending.hooks[sending.number] = hook
        if not return_recv_hook:
            hook()
        event = ended(async_finish, x, topk_idx, topk_weights, handle.memory, result)
        return result, event, hook if return_recv_hook else None

    def _handle(self, name: str, handle: Any) -> _Handle:
        if type(handle) is not _Handle:
            raise TypeError(f"{name}: handle must be one of low_latency_dispatch, got {type(handle).__name__}")
        if handle.buffer is not self:
            raise ValueError(f"{name}: handle is of another Buffer's dispatch")
        return handle

    @staticmethod
    def _needs_weights(handle: _Handle, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> bool:
        """Whether the experts have other weights than these, or none.

        RuntimeError: early weights have been written to since where only the CPU world can tell.
        """
        if handle.given_weights is not topk_weights or topk_idx is not handle.routing.ids:
            return True
        as_seen = is_as_seen(topk_weights, handle.seen_weights)
        if not as_seen and isinstance(handle.seen_weights, torch.Tensor):
            raise RuntimeError(
                "low_latency_combine: topk_weights have been written to since low_latency_dispatch was given them. Of a"
                " view, or of a tensor of inference mode, only the CPU world can tell: give such weights to"
                " low_latency_combine alone, or do not write to them in between"
            )
        return not as_seen

    def _check_combine(
        self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, given: Any, out: Any
    ) -> _Handle:
        """The handle of a combine, if the arguments are as of its dispatch."""
        name = "low_latency_combine"
        handle: _Handle = self._handle(name, given)
        if not handle.has_come:
            raise RuntimeError(
                f"{name}: the tokens of this handle have not been received: call the hook that low_latency_dispatch"
                " returned with it first"
            )
        check_ids_unwritten(name, handle.memory, handle.routing.ids)
        shape = tuple(handle.routing.ids.shape)
        for key, tensor in (("topk_idx", topk_idx), ("topk_weights", topk_weights)):
            check_tensor(name, key, tensor, shape)
        rows, room = handle.routing.capacity, handle.routing.align
        if not isinstance(x, torch.Tensor) or tuple(x.shape[:-1]) not in ((rows // room, room), (rows,)):
            found = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            raise ValueError(f"{name}: x must be [{rows // room}, {room}, hidden], as recv_x is, got {found}")
        if x.dtype not in _COMBINED or records_gradients(x, topk_weights):
            kinds = ", ".join(map(str, _COMBINED))
            raise ValueError(
                f"{name}: x must be of {kinds}, and neither it nor topk_weights may require a gradient, got x of"
                f" {x.dtype}, requires_grad {x.requires_grad} and {topk_weights.requires_grad}"
            )
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
