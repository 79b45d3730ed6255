"""DeepEP's Buffer: results in its layouts, against one process that has all tokens."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run
from harness import raises

from triton_dist.deep_ep import Buffer
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
        with raises(RuntimeError, "nothing is in flight of this exchange"):
            receive()
        total = (x.float() * torch.where(idx >= 0, weights, 0.0).sum(1, keepdim=True)).bfloat16()
        torch.testing.assert_close(out, total, rtol=0.02, atol=0.02)
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


def check_deep_ep_mistakes(world: Any) -> None:
    x, idx, _ = (tensor[world.pe] for tensor in tokens(world))
    buffer = Buffer(max_tokens=8)
    with raises(ValueError, "topk_idx, topk_weights and num_tokens_per_expert"):
        buffer.dispatch(x, topk_idx=idx)
    with raises(ValueError, "multiple of 128"):
        buffer.low_latency_dispatch(x[:, :64], idx, 8, 3 * world.n_pes)
    if world.n_pes > 1:
        with raises(ValueError, "cannot be shared equally"):
            buffer.get_dispatch_layout(idx, 3 * world.n_pes + 1)


if __name__ == "__main__":
    run(globals())
