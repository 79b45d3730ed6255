"""DeepEP's Buffer: results in its layouts, against one process that has all tokens."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from harness import main as run
from harness import raises, some

from triton_dist.deep_ep import Buffer, Config, EventHandle, EventOverlap, topk_idx_t
from triton_dist.expert_buffer import events
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import communicator_of


def tokens(world: Any, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    n = world.n_pes
    x = torch.randint(-8, 9, (n, 5, 128), generator=generator).bfloat16()
    idx = torch.randint(-1, 3 * n, (n, 5, 2), generator=generator)
    return x, idx, torch.randint(1, 5, idx.shape, generator=generator) / 4


def check_deep_ep_dispatch_and_combine(world: Any) -> None:
    dispatch_and_combine(world, 8)


def check_deep_ep_weights_refused_on_one_rank(world: Any) -> None:
    """Before rows have been sent."""
    buffer = Buffer(max_tokens=8)
    x, idx, ones = torch.ones(4, 16), torch.arange(4)[:, None] % world.n_pes, torch.ones(4, 1)
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(idx, world.n_pes)
    rows, _, weights, _, handle, _ = buffer.dispatch(
        x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=idx, topk_weights=ones
    )
    if world.pe == 0:
        with raises(ValueError, r"topk_weights must be \[\d+, top_k\], of rows that came, got"):
            buffer.combine(rows, handle, topk_weights=weights[:-1])
    out, sums, _ = buffer.combine(rows, handle, topk_weights=weights)
    assert torch.equal(out, x) and torch.equal(sums, torch.ones(4, 1))


def check_deep_ep_thousands_of_tokens_go_in_rounds(world: Any) -> None:
    """By as many SMs as DeepEP's users say, through slots that do not grow with the tokens."""
    before = communicator_of().workspace_bytes
    Buffer.set_num_sms(2)
    dispatch_and_combine(world, 4096)
    assert communicator_of().workspace_bytes - before < 4096 * 128
    with raises(ValueError, "new_num_sms must be at least 1, got 0"):
        Buffer.set_num_sms(0)


def dispatch_and_combine(world: Any, max_tokens: int) -> None:
    me, n = world.pe, world.n_pes
    buffer = Buffer(max_tokens=max_tokens)
    x, idx, weights = tokens(world)
    per_rank, none, per_expert, in_rank, event = buffer.get_dispatch_layout(idx[me], 3 * n)
    homes = torch.where(idx >= 0, idx // 3, -1)
    there = torch.stack([(homes == pe).any(-1) for pe in range(n)], dim=-1)  # [pes, tokens, ranks]
    assert torch.equal(in_rank, there[me]) and none is None
    assert per_rank.tolist() == there[me].sum(0).tolist()
    assert per_expert.tolist() == [(idx[me] == e).sum().item() for e in range(3 * n)]
    scales = torch.arange(5.0)[:, None] + me
    for given in (x[me], (x[me], scales)):
        results = buffer.dispatch(
            given, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert,
            topk_idx=idx[me], topk_weights=weights[me], expert_alignment=4, previous_event=event, async_finish=True,
        )  # fmt: skip
        received, local, of_rows, counts, handle, event = results
        mine = there[:, :, me]
        rows = received[0] if isinstance(received, tuple) else received
        assert torch.equal(rows, x[mine])
        if isinstance(received, tuple):
            expected = (torch.arange(5.0) + torch.arange(n)[:, None])[mine]
            assert torch.equal(received[1], expected[:, None])
        expected = torch.where(homes == me, idx - 3 * me, -1)[mine]
        assert torch.equal(local, expected)
        assert torch.equal(of_rows, torch.where(expected >= 0, weights[mine], 0.0))
        assert counts == [-(-(expected == e).sum().item() // 4) * 4 for e in range(3)]
        combined, summed, event = buffer.combine(rows * 2, handle, of_rows)
        event.current_stream_wait()
        assert torch.equal(combined, (2 * x[me].float() * there[me].sum(1, keepdim=True)).bfloat16())
        assert torch.equal(summed, torch.where(idx[me] >= 0, weights[me], 0.0))
        again = buffer.dispatch(x[me] * 2, handle=handle)
        assert torch.equal(again[0], x[mine] * 2) and again[1:5] == (None,) * 4
    with raises(ValueError, "rows that came"):
        buffer.combine(rows[:0] if len(rows) else x[0], handle)


def check_deep_ep_low_latency(world: Any) -> None:
    me, n = world.pe, world.n_pes
    buffer = Buffer(None, 0, Buffer.get_low_latency_rdma_size_hint(8, 128, n, 3 * n), low_latency_mode=True)
    for seed, most in enumerate((8, 16)):  # of 16 the weights go by senders and receivers, the tokens by halves
        x, idx, weights = tokens(world, seed)
        for fp8, hooked, early in ((False, False, False), (True, True, False), (False, True, True)):
            options = {"topk_weights": weights[me]} if early else {}
            rows, counts, handle, _, hook = buffer.low_latency_dispatch(
                x[me], idx[me], most, 3 * n, use_fp8=fp8, return_recv_hook=hooked, **options
            )
            if hooked:
                hook()
            if fp8:
                rows = (rows[0].float() * rows[1].repeat_interleave(128, -1)).bfloat16()
            assert rows.shape == (3, most * n, 128)
            y = torch.full(rows.shape, float("nan")).bfloat16()
            for e in range(3):
                expert = 3 * me + e
                expected = torch.cat([x[pe][(idx[pe] == expert).nonzero()[:, 0]] for pe in range(n)])
                assert counts[e] == len(expected)
                torch.testing.assert_close(rows[e, : len(expected)], expected, rtol=0.1, atol=0.1)
                y[e, : len(expected)] = expected
            out, _, hook = buffer.low_latency_combine(y, idx[me], weights[me], handle, return_recv_hook=hooked)
            if hooked:
                hook()
            total = (x[me].float() * torch.where(idx[me] >= 0, weights[me], 0.0).sum(1, keepdim=True)).bfloat16()
            torch.testing.assert_close(out, total, rtol=0.02, atol=0.02)


def check_deep_ep_low_latency_weights_and_choices_of_a_combine(world: Any) -> None:
    """A combine takes its own weights, also those that were sent early and written to since, and leaves out choices
    that are -1 by now."""
    me, n = world.pe, world.n_pes
    buffer = Buffer()
    x, idx, weights = (tensor[me].clone() for tensor in tokens(world, 0))
    sizes: dict[str, Any] = {"num_max_dispatch_tokens_per_rank": 8, "num_experts": 3 * n, "use_fp8": False}

    def result_of(early: Any, idx_then: torch.Tensor, weights_then: torch.Tensor) -> None:
        rows, _, handle, _, _ = buffer.low_latency_dispatch(x, idx, topk_weights=early, **sizes)
        if weights_then is early:
            weights_then.mul_(2)
        out, _, _ = buffer.low_latency_combine(rows.nan_to_num(0.0), idx_then, weights_then, handle)
        counted = torch.where((idx >= 0) & (idx_then >= 0), weights_then.float(), 0.0).sum(1, keepdim=True)
        torch.testing.assert_close(out, (x.float() * counted).bfloat16(), rtol=0.02, atol=0.02)

    fewer = idx.clone()
    fewer[:, 0] = -1
    for early in (None, weights, weights.bfloat16()):
        result_of(early, idx, weights if early is None else early)
        result_of(early, fewer, weights if early is None else early)
    with torch.inference_mode():
        unseen = weights.clone()  # whose writes PyTorch does not count
        rows, _, handle, _, _ = buffer.low_latency_dispatch(x, idx, topk_weights=unseen, **sizes)
        unseen.mul_(2)
        with raises(RuntimeError, "low_latency_combine: topk_weights have been written to since"):
            buffer.low_latency_combine(rows.nan_to_num(0.0), idx, unseen, handle)


def check_deep_ep_hooks(world: Any) -> None:
    """A combine before the hook of its dispatch is an error, on every PE, and nothing is lost; a hook receives once."""
    me, n = world.pe, world.n_pes
    buffer = Buffer()
    x, idx, weights = (tensor[me] for tensor in tokens(world))
    for early in (False, True):  # weights that are sent with the tokens, or behind them
        options = {"topk_weights": weights} if early else {}
        rows, counts, handle, _, hook = buffer.low_latency_dispatch(
            x, idx, 8, 3 * n, use_fp8=False, return_recv_hook=True, **options
        )
        with raises(
            RuntimeError, "low_latency_combine: the tokens of this handle have not been received: call the hook"
        ):
            buffer.low_latency_combine(rows, idx, weights, handle)
        with raises(RuntimeError, "dispatch_send: the last exchange in these slots has been sent and not received"):
            buffer.low_latency_dispatch(x, idx, 8, 3 * n, use_fp8=False)
        hook()
        with raises(RuntimeError, "its hook was called before"):
            hook()
        for row, count in zip(rows, counts.tolist(), strict=True):
            row[count:] = 0
        out, _, receive = buffer.low_latency_combine(rows, idx, weights, handle, return_recv_hook=True)
        receive()
        with raises(RuntimeError, "low_latency_combine: its hook was called before, and receives once"):
            receive()
        total = (x.float() * torch.where(idx >= 0, weights, 0.0).sum(1, keepdim=True)).bfloat16()
        torch.testing.assert_close(out, total, rtol=0.02, atol=0.02)
    # Without hooks, and weights that have changed since they were sent with the tokens.
    weights = weights.clone()
    options = {"topk_weights": weights, "use_fp8": False}
    rows, counts, handle, _, hook = buffer.low_latency_dispatch(x, idx, 8, 3 * n, **options)
    for row, count in zip(rows, counts.tolist(), strict=True):
        row[count:] = 0
    weights.mul_(2)
    if me == 0:  # refused before anything is sent
        for wrong, given in ((rows.to(torch.float8_e4m3fn), weights), (rows.clone().requires_grad_(), weights)):
            with raises(ValueError, "low_latency_combine: x must be of torch.bfloat16, .* may require a gradient"):
                buffer.low_latency_combine(wrong, idx, given, handle)
    out, _, receive = buffer.low_latency_combine(rows, idx, weights, handle)
    torch.testing.assert_close(out, 2 * total, rtol=0.02, atol=0.02)
    assert hook is None and receive is None
    for kind, text, arguments in (
        (
            TypeError,
            "handle must be one of low_latency_dispatch, got Dispatched",
            (rows, idx, weights, moe.Dispatched(*handle)),
        ),
        (ValueError, "another Buffer's", (rows, idx, weights, handle, Buffer())),
        (ValueError, r"topk_idx must be \(", (rows, idx[:, :1], weights, handle)),
        (ValueError, r"topk_weights must be \(", (rows, idx, weights[:-1] if len(weights) else weights[:, :1], handle)),
        (ValueError, r"x must be \[3, ", (rows[:, 1:], idx, weights, handle)),
    ):
        *given, by = arguments if len(arguments) == 5 else (*arguments, buffer)
        with raises(kind, text):
            by.low_latency_combine(*given)
    with raises(ValueError, r"out must be \(.* of torch.bfloat16"):
        buffer.low_latency_combine(rows, idx, weights, handle, out=x.float())


def check_deep_ep_lost_hooks(world: Any) -> None:
    """After an error between two halves ``clean_low_latency_buffer`` receives, of any Buffer of the group; so does
    ``destroy``. Errors until then say so."""
    me, n = world.pe, world.n_pes
    x, idx, weights = (tensor[me] for tensor in tokens(world, 5))
    for own in (False, True):
        buffer = Buffer(explicitly_destroy=own)
        _, counts, _, _, late = buffer.low_latency_dispatch(x, idx, 8, 3 * n, use_fp8=False, return_recv_hook=True)
        with raises(RuntimeError, r"not been called: 1\..* if a hook is lost, clean_low_latency_buffer receives"):
            buffer.low_latency_dispatch(x, idx, 8, 3 * n, use_fp8=False)
        (buffer if own else Buffer()).clean_low_latency_buffer(8, 128, 3 * n)
        with raises(RuntimeError, "its hook was called before"):
            late()
        rows, again, handle, _, _ = buffer.low_latency_dispatch(x, idx, 8, 3 * n, use_fp8=False)
        assert torch.equal(counts, again)
        out, _, _ = buffer.low_latency_combine(rows, idx, weights, handle, return_recv_hook=True)
        with raises(RuntimeError, "combine_send: .* clean_low_latency_buffer receives"):
            buffer.low_latency_combine(rows, idx, weights, handle)
        buffer.clean_low_latency_buffer(8, 128, 3 * n)
        assert torch.equal(out, buffer.low_latency_combine(rows, idx, weights, handle)[0])
        buffer.clean_low_latency_buffer(8, 128, 3 * n)
        if own:
            buffer.low_latency_dispatch(x, idx, 8, 3 * n, use_fp8=False, return_recv_hook=True)
            buffer.destroy()


def check_deep_ep_handles_of_others(world: Any) -> None:
    """A handle is of the Buffer that returned it, also when that was destroyed."""
    me, n = world.pe, world.n_pes
    x, idx, weights = (tensor[me] for tensor in tokens(world, 6))
    own, other = Buffer(explicitly_destroy=True, max_tokens=8), Buffer(max_tokens=16)
    per_expert = own.get_dispatch_layout(idx, 3 * n)[2]
    received, _, _, _, handle, _ = own.dispatch(x, num_tokens_per_expert=per_expert, topk_idx=idx, topk_weights=weights)
    for destroyed in (False, True):
        if destroyed:
            own.destroy()
        with raises(ValueError, "Buffer.dispatch: handle is of another Buffer's dispatch"):
            other.dispatch(x, handle=handle)
        with raises(ValueError, "Buffer.combine: handle is of another Buffer's dispatch"):
            other.combine(received, handle)


def check_deep_ep_default_dtype(world: Any) -> None:
    """Weights that a combine sends to the experts go by rows of float32, whatever PyTorch's dtype is."""
    me, n = world.pe, world.n_pes
    x, idx, weights = (tensor[me] for tensor in tokens(world, 7))
    buffer, found = Buffer(), []
    for dtype in (torch.float32, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            rows, _, handle, _, _ = buffer.low_latency_dispatch(x, idx, 8, 3 * n, use_fp8=False)
            found.append(buffer.low_latency_combine(rows, idx, weights, handle)[0])
        finally:
            torch.set_default_dtype(torch.float32)
    assert torch.equal(*found)


def check_deep_ep_mistakes(world: Any) -> None:
    x, idx, _ = (tensor[world.pe] for tensor in tokens(world))
    buffer = Buffer(max_tokens=8)
    with raises(ValueError, "num_tokens_per_expert, and topk_idx and topk_weights or neither, must be given"):
        buffer.dispatch(x, topk_idx=idx)
    of_expert = torch.zeros(3 * world.n_pes, dtype=torch.int32)
    for kind, text, options in (
        (ValueError, r"is_token_in_rank must be \(", {"is_token_in_rank": torch.ones(1, 1, dtype=torch.bool)}),
        (TypeError, "is_token_in_rank must be a torch.Tensor, got NoneType", {}),
        (ValueError, "or neither, must be given", {"topk_weights": torch.ones(len(x), 2)}),
        (ValueError, "num_worst_tokens must be at least 0", {"num_worst_tokens": -1}),
        (TypeError, "previous_event must be an EventOverlap", {"previous_event": 1}),
        (TypeError, "handle must be what Buffer.dispatch returns", {"handle": (1, 2)}),
    ):
        with raises(kind, text):
            buffer.dispatch(x, num_tokens_per_expert=of_expert, **options)
    with raises(ValueError, "x must be a tensor, or a pair of that and scales, got a tuple of 3"):
        buffer.dispatch((x, x, x), num_tokens_per_expert=of_expert)
    for wrong in (3 * world.n_pes, -2):
        ids = torch.full((2, 2), -1)
        ids[1, 0] = wrong
        with raises(ValueError, rf"topk_idx must be -1 or in \[0, {3 * world.n_pes}\), .* got {wrong}"):
            buffer.get_dispatch_layout(ids, 3 * world.n_pes)
    with raises(ValueError, "the scales of x must be of torch.float32, got torch.int32"):
        buffer.dispatch((x, idx.int()), num_tokens_per_expert=of_expert)
    with raises(TypeError, "config must be a triton_dist.deep_ep.Config"):
        in_rank = torch.zeros(len(x), world.n_pes, dtype=torch.bool)
        Buffer(max_tokens=4096).dispatch(x, is_token_in_rank=in_rank, num_tokens_per_expert=of_expert, config=24)
    for text, call in (
        ("enable_shrink is not supported: .* another group", lambda: Buffer(enable_shrink=True)),
        ("comm is not supported: pass a process group", lambda: Buffer(comm=object())),
        ("make memory of your own", lambda: buffer.get_local_buffer_tensor(torch.int8)),
        ("mask is not supported", lambda: buffer.low_latency_update_mask_buffer(0, True)),
        (
            "dispatch_wait_recv_cost_stats is not supported: triton_dist.kernels.tracing",
            lambda: buffer.low_latency_dispatch(x, idx, 8, 3 * world.n_pes, dispatch_wait_recv_cost_stats=x),
        ),
    ):
        with raises(NotImplementedError, text):
            call()
    for text, options in (
        ("use_ue8m0 needs use_fp8, round_scale and a hidden size", {"use_ue8m0": True, "round_scale": True}),
        ("give one", {"async_finish": True, "return_recv_hook": True}),
        (
            r"cumulative_local_expert_recv_stats must be \(3,\)",
            {"cumulative_local_expert_recv_stats": torch.zeros(4, dtype=torch.int32)},
        ),
    ):
        with raises(ValueError, text):
            buffer.low_latency_dispatch(x, idx, 8, 3 * world.n_pes, **options)
    for options in ({"num_sms": 0}, {"num_max_nvl_chunked_send_tokens": -1}):
        with raises(ValueError, "Config: .* must be at least 1"):
            Config(**options)
    with raises(ValueError, "multiple of 128"):
        buffer.low_latency_dispatch(x[:, :64], idx, 8, 3 * world.n_pes)
    if world.n_pes > 1:
        with raises(ValueError, "cannot be shared equally"):
            buffer.get_dispatch_layout(idx, 3 * world.n_pes + 1)


ALL_CALLS = "previous_event", "async_finish", "allocate_on_comm_stream"
PARAMETERS: dict[str, tuple[str, ...]] = {
    "__init__": (
        *("group", "num_nvl_bytes", "num_rdma_bytes", "low_latency_mode", "num_qps_per_rank"),
        *("allow_nvlink_for_low_latency_mode", "allow_mnnvl", "explicitly_destroy", "enable_shrink", "comm"),
    ),
    "destroy": (),
    "is_sm90_compiled": (),
    "set_num_sms": ("new_num_sms",),
    "capture": (),
    "get_low_latency_rdma_size_hint": ("num_max_dispatch_tokens_per_rank", "hidden", "num_ranks", "num_experts"),
    "get_comm_stream": (),
    "get_local_buffer_tensor": ("dtype", "size", "offset", "use_rdma_buffer"),
    "get_dispatch_config": ("num_ranks",),
    "get_combine_config": ("num_ranks",),
    "get_dispatch_layout": ("topk_idx", "num_experts", *ALL_CALLS),
    "dispatch": (
        *("x", "handle", "num_tokens_per_rank", "num_tokens_per_rdma_rank", "is_token_in_rank"),
        *("num_tokens_per_expert", "topk_idx", "topk_weights", "expert_alignment", "num_worst_tokens", "config"),
        *ALL_CALLS,
    ),
    "combine": ("x", "handle", "topk_weights", "bias", "config", *ALL_CALLS),
    "clean_low_latency_buffer": ("num_max_dispatch_tokens_per_rank", "hidden", "num_experts"),
    "low_latency_dispatch": (
        *("x", "topk_idx", "num_max_dispatch_tokens_per_rank", "num_experts", "cumulative_local_expert_recv_stats"),
        *("dispatch_wait_recv_cost_stats", "use_fp8", "round_scale", "use_ue8m0", "async_finish", "return_recv_hook"),
    ),
    "low_latency_combine": (
        *("x", "topk_idx", "topk_weights", "handle", "use_logfmt", "zero_copy", "async_finish", "return_recv_hook"),
        *("out", "combine_wait_recv_cost_stats"),
    ),
    "low_latency_update_mask_buffer": ("rank_to_mask", "mask"),
    "low_latency_query_mask_buffer": ("mask_status",),
    "low_latency_clean_mask_buffer": (),
    "get_next_low_latency_combine_buffer": ("handle",),
}
"""Of DeepEP's Buffer, in their order."""


def check_deep_ep_names(world: Any) -> None:
    """DeepEP's methods have its parameters in its order. What is more is by name only."""
    for name, expected in PARAMETERS.items():
        parameters = [p for p in inspect.signature(getattr(Buffer, name)).parameters.values() if p.name != "self"]
        assert tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY) == expected, name
    Buffer.set_num_sms(12)
    config, buffer = Buffer.get_dispatch_config(world.n_pes), Buffer(None, 1 << 20, 0)
    assert config == Buffer.get_combine_config(160) == Config(12, 6, 256, 6, 256)
    assert config.get_nvl_buffer_size_hint(14336, 8) > Config(6).get_nvl_buffer_size_hint(14336, 8) > 0
    assert config.get_rdma_buffer_size_hint(14336, 8) == 0 and Buffer.is_sm90_compiled()
    assert (buffer.num_nvl_bytes, buffer.num_rdma_bytes, buffer.low_latency_mode) == (1 << 20, 0, False)
    assert isinstance(buffer.get_comm_stream(), torch.cpu.Stream) and topk_idx_t == torch.int64
    status = torch.ones(world.n_pes, dtype=torch.int32)
    buffer.low_latency_query_mask_buffer(status)
    assert not status.any()


def check_deep_ep_without_choices(world: Any) -> None:
    """Ranks in place of experts; scales of any layout; as many rows as may come, without the host; and a handle."""
    me, n = world.pe, world.n_pes
    x, idx, weights = tokens(world, 3)
    idx = idx.int()
    for max_tokens in (8, 4096):
        buffer = Buffer(max_tokens=max_tokens)
        _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(idx[me], 3 * n)
        layout = {"is_token_in_rank": in_rank, "num_tokens_per_expert": per_expert}
        there = torch.stack([(torch.where(idx >= 0, idx // 3, -1) == pe).any(-1) for pe in range(n)], dim=-1)
        mine = there[:, :, me]
        of_all = torch.stack([(idx == e).sum() for e in range(3 * me, 3 * me + 3)]).tolist()
        wide = torch.arange(10.0).view(2, 5) + me
        for scales in some((wide.T, torch.arange(5.0) + me, None)):
            given = x[me] if scales is None else (x[me], scales)
            received, local, of_rows, counts, handle, event = buffer.dispatch(
                given, **layout, config=Config(2), previous_event=buffer.capture(), async_finish=True
            )
            assert local is None and of_rows is None and counts == of_all and isinstance(event.event, EventHandle)
            again = buffer.dispatch(given, handle=handle, config=Config(1))[0]
            for found in (received, again):
                rows = found if scales is None else found[0]
                assert torch.equal(rows, x[mine])
                if scales is not None:
                    shift = torch.arange(n).view(-1, *[1] * scales.dim())
                    assert torch.equal(found[1], (scales - me + shift)[mine]) and found[1].is_contiguous()
            rows = received if scales is None else received[0]
            bias = torch.full((5, 128), 3.0).bfloat16(), torch.full((5, 128), 0.5).bfloat16()
            total = x[me].float() * there[me].sum(1, keepdim=True)
            for added in (None, bias[0], bias, bias[:1]):
                of_bias = 0.0 if added is None else 3.5 if added is bias else 3.0
                combined = buffer.combine(rows, handle, bias=added, config=Config(1))[0]
                assert torch.equal(combined, (total.bfloat16().float() + of_bias).bfloat16())
            with raises(ValueError, "^Buffer.combine: a tensor requires a gradient, which this function"):
                buffer.combine(rows, handle, bias=bias[0].clone().requires_grad_())
        most = max_tokens * n + 2 if max_tokens == 8 else 5 * n + 2
        received, local, of_rows, counts, handle, _ = buffer.dispatch(
            x[me], topk_idx=idx[me], topk_weights=weights[me], num_worst_tokens=most, **layout
        )
        used = int(mine.sum())
        assert len(received) == len(local) == len(of_rows) == most and counts == []
        again = buffer.dispatch(x[me], handle=handle)[0]
        assert len(again) == most and torch.equal(again[:used], x[mine])
        assert torch.equal(received[:used], x[mine]) and local.dtype == torch.int32 and (local[used:] == -1).all()
        assert torch.equal(local[:used], torch.where(idx // 3 == me, idx - 3 * me, -1).where(idx >= 0, -1)[mine])
        assert not of_rows[used:].any()
        assert torch.equal(buffer.combine(received, handle)[0], total.bfloat16())
        with raises(ValueError, "bias must be up to two tensors, got 3"):
            buffer.combine(received, handle, bias=(*bias, bias[0]))
        with raises(ValueError, r"bias must be \(5, 128\)"):
            buffer.combine(received, handle, bias=bias[0][:1])
        with raises(ValueError, "a handle stands for topk_idx and topk_weights"):
            buffer.dispatch(x[me], handle=handle, topk_idx=idx[me])


def check_deep_ep_low_latency_scales(world: Any) -> None:
    """Scales that are powers of two, and packed; statistics; and the buffer for the next combine."""
    me, n = world.pe, world.n_pes
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(n, 5, 512, generator=generator).bfloat16()
    idx = torch.randint(-1, 3 * n, (n, 5, 2), generator=generator)
    buffer, weights = Buffer(), torch.ones(5, 2)
    stats = torch.full((3,), 7, dtype=torch.int32)
    for hooked in (False, True):
        plain, *_ = buffer.low_latency_dispatch(x[me], idx[me], 5, 3 * n, stats, round_scale=True)
        packed, counts, handle, event, hook = buffer.low_latency_dispatch(
            x[me], idx[me], 5, 3 * n, stats, round_scale=True, use_ue8m0=True, return_recv_hook=hooked
        )
        if hooked:
            hook()
        assert packed[1].shape == (3, 5 * n, 1) and packed[1].stride(1) == 1 and packed[1].dtype == torch.int32
        for e, count in enumerate(counts.tolist()):
            expert = torch.cat([x[pe][(idx[pe] == 3 * me + e).nonzero()[:, 0]] for pe in range(n)]).float()
            rows, scales = plain[0][e, :count].float(), plain[1][e, :count]
            assert (torch.frexp(scales)[0] == 0.5).all()
            largest = expert.view(count, 4, 128).abs().amax(-1) / 448
            assert (scales >= largest).all() and (scales < 2 * largest).all()
            torch.testing.assert_close(rows * scales.repeat_interleave(128, -1), expert, rtol=0.07, atol=0.01)
            exponents = torch.stack([packed[1][e, :count, 0] >> 8 * i & 255 for i in range(4)], dim=-1)
            assert torch.equal(torch.exp2(exponents.float() - 127), scales)
            assert torch.equal(packed[0][e, :count].float(), rows)
    assert torch.equal(stats, 7 + 4 * counts)
    y = buffer.get_next_low_latency_combine_buffer(handle)
    assert y.shape == (3, 5 * n, 512) and y.dtype == torch.bfloat16
    y.copy_((packed[0].float() * 0 + 1).nan_to_num(1.0))
    out, event, _ = buffer.low_latency_combine(
        y, idx[me], weights, handle, use_logfmt=True, zero_copy=True, async_finish=True
    )
    event.current_stream_wait()
    assert torch.equal(out, (idx[me] >= 0).sum(1, keepdim=True).expand(5, 512).bfloat16())


def check_deep_ep_destroy(world: Any) -> None:
    """A Buffer that is destroyed has slots of its own, which it gives back; its calls are one error from then on."""
    me, n = world.pe, world.n_pes
    x, idx, weights = (tensor[me] for tensor in tokens(world, 4))
    shared = communicator_of()
    before = shared.workspace_bytes
    buffer = Buffer(explicitly_destroy=True, max_tokens=8)
    per_expert = buffer.get_dispatch_layout(idx, 3 * n)[2]
    both = {"topk_idx": idx, "topk_weights": weights, "num_tokens_per_expert": per_expert}
    received, _, _, _, handle, _ = buffer.dispatch(x, **both)
    buffer.low_latency_dispatch(x, idx, 8, 3 * n)
    assert buffer.comm.workspace_bytes > 0 and shared.workspace_bytes == before
    comm = buffer.comm
    buffer.destroy()
    assert comm.workspace_bytes == 0
    for call in (
        lambda: buffer.dispatch(x, **both),
        lambda: buffer.combine(received, handle),
        lambda: buffer.low_latency_dispatch(x, idx, 8, 3 * n),
        buffer.destroy,
    ):
        with raises(RuntimeError, "Buffer: it was destroyed: make another one"):
            call()
    with raises(RuntimeError, "made without explicitly_destroy=True"):
        Buffer().destroy()


def check_deep_ep_events(world: Any) -> None:
    """On a GPU a call waits for ``previous_event`` on its stream, and its own event is there for others."""
    done: list[Any] = []
    stream = SimpleNamespace(wait_event=lambda event: done.append(("wait", event.number)))

    class Event:
        number = 0

        def record(self) -> None:
            Event.number += 1
            self.number = Event.number
            done.append(("record", self.number))

    tensor: Any = SimpleNamespace(record_stream=lambda used: done.append(("used by", used is stream)))
    with (
        mock.patch.object(events.triton_dist, "kind", return_value="gpu"),
        mock.patch.object(torch.cuda, "Event", Event),
        mock.patch.object(torch.cuda, "current_stream", return_value=stream),
    ):
        first = Buffer.capture()
        events.wait_for("f", first, tensor, None)
        events.wait_for("f", EventOverlap())
        assert done == [("record", 1), ("wait", 1), ("used by", True)]
        second = events.ended(True, tensor, None)
        assert second.extra_tensors == (tensor,) and events.ended(False, tensor).event is None
        second.register_hook_after_wait(lambda: done.append("hook"))
        with raises(RuntimeError, "a hook is registered already"):
            second.register_hook_after_wait(print)
        with second(release_handle=True) as entered:
            assert entered is second
            done.append("work")
        assert done[3:] == [("record", 2), "work", ("wait", 2), "hook"] and second.event is None
        second.current_stream_wait()
        with first:
            pass
        assert done[7:] == [("wait", 1)] and first.event is not None


if __name__ == "__main__":
    run(globals())
