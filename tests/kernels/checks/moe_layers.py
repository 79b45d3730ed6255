"""Grouped GEMMs, layers of experts and their gradients, against one process that has all tokens and all experts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from harness import main as run
from harness import raises, some

from triton_dist.kernels import Communicator, moe
from triton_dist.kernels.moe import functional
from triton_dist.kernels.moe.layer_steps import Steps, choose
from triton_dist.kernels.moe.swiglu import swiglu_of_rows
from triton_dist.nn import MoE

FP8 = torch.float8_e4m3fn
OPS: Any = torch.ops.triton_dist


def whole(*shape: int, seed: int = 0) -> torch.Tensor:
    """Small integers; the same on every PE."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_()


def same(found: torch.Tensor | None, expected: torch.Tensor | None, tolerance: float = 1e-4) -> None:
    assert found is not None and expected is not None
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def groups(counts: list[int], align: int = 1) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Offsets, counts and the end of groups of rows."""
    offsets = [0]
    for count in counts:
        offsets.append(offsets[-1] + -(-count // align) * align)
    return torch.tensor(offsets, dtype=torch.int32), torch.tensor(counts, dtype=torch.int32), offsets[-1]


def reference(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    out = a.new_zeros(a.shape[0], b.shape[2])
    for e, (begin, count) in enumerate(zip(offsets.tolist(), counts.tolist(), strict=False)):
        out = out.index_put((torch.arange(begin, begin + count),), a[begin : begin + count] @ b[e])
    return out


def check_moe_grouped_gemm(world: Any) -> None:
    for counts, align, inner, columns in (([5, 0, 33, 1], 1, 40, 24), ([0, 64], 32, 7, 65), ([0, 0], 1, 8, 8)):
        offsets, counted, end = groups(counts, align)
        a, b = whole(end + 3, inner, seed=1), whole(len(counts), inner, columns, seed=2)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for by_columns in (False, True):
                matrices = b.to(dtype)
                matrices = matrices.transpose(1, 2).contiguous().transpose(1, 2) if by_columns else matrices
                out = torch.full((end + 3, columns), 7.0, dtype=dtype)
                found = moe.grouped_gemm(a.to(dtype), matrices, offsets, counted, out=out)
                expected = reference(a, b, offsets, counted)
                used = torch.zeros(end + 3, dtype=torch.bool)
                for begin, count in zip(offsets.tolist(), counts, strict=False):
                    used[begin : begin + count] = True
                same(found[used], expected[used].to(dtype))
                assert (found[~used] == 7).all()
                if columns % 2 == 0:
                    hidden = moe.grouped_gemm(a.to(dtype), matrices, offsets, counted, swiglu=True)
                    same(hidden[used], swiglu_of_rows(found, torch.tensor([end]))[used])


def check_moe_grouped_gemm_fp8(world: Any) -> None:
    offsets, counts, end = groups([3, 17])
    a, b = whole(end, 200, seed=1).to(FP8), whole(2, 200, 136, seed=2).to(FP8)
    x, y = a.float(), b.float()
    of_rows, of_columns = whole(end, 1, seed=3) + 3, whole(2, 136, seed=4) + 3
    found = moe.grouped_gemm(a, b, offsets, counts, a_scales=of_rows, b_scales=of_columns, out_dtype=torch.float32)
    same(found, reference(x * of_rows, y * of_columns[:, None, :], offsets, counts))
    of_rows, of_blocks = whole(end, 2, seed=5) + 3, whole(2, 2, 2, seed=6) + 3
    found = moe.grouped_gemm(a, b, offsets, counts, a_scales=of_rows, b_scales=of_blocks)
    wide = of_blocks.repeat_interleave(128, 1).repeat_interleave(128, 2)[:, :136, :200].transpose(1, 2)
    expected = reference(x * of_rows.repeat_interleave(128, 1)[:, :200], y * wide, offsets, counts)
    same(found.float(), expected.bfloat16().float(), 1e-2)
    assert found.dtype == torch.bfloat16


def check_moe_grouped_gemm_mistakes(world: Any) -> None:
    offsets, counts, end = groups([2, 3])
    a, b = whole(end, 8), whole(2, 8, 8)
    for text, arguments, options in (
        ("a must be a tensor of 2 dimensions", (b, b, offsets, counts), {}),
        ("matrices of b are", (a[:, :7].contiguous(), b, offsets, counts), {}),
        ("a is the conjugate or the negative of", (torch._neg_view(a), b, offsets, counts), {}),
        ("b is the conjugate or the negative of", (a, torch._neg_view(b), offsets, counts), {}),
        ("a is on meta", (a.to("meta"), b, offsets, counts), {}),
        ("counts must be", (a, b, offsets, counts[:1]), {}),
        ("counts must be", (a, b, offsets, counts.long()), {}),
        ("offsets must be", (a, b, offsets[:1], counts), {}),
        ("contiguous rows or columns", (a, b[:, ::2, ::2], offsets, counts), {}),
        ("half of b's columns are gates", (a, b[:, :, :7].contiguous(), offsets, counts), {"swiglu": True}),
        ("expected_rows must be", (a, b, offsets, counts), {"expected_rows": -1}),
        ("out must be", (a, b, offsets, counts), {"out": whole(1, 8)}),
        ("cannot give a result", (a, b, offsets, counts), {"out_dtype": torch.bfloat16}),
        ("for operands of fp8", (a, b, offsets, counts), {"a_scales": a, "b_scales": b}),
        ("scales must be", (a.to(FP8), b.to(FP8), offsets, counts), {"a_scales": a, "b_scales": b}),
    ):
        if text == "contiguous rows or columns":
            arguments = (a[:, :4].contiguous(), *arguments[1:])
        with raises(ValueError, text):
            moe.grouped_gemm(*arguments, **options)


def routed(world: Any, tokens: int, experts: int, top_k: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Of all PEs: tokens, ids and weights, a row of each for a PE."""
    n = world.n_pes
    generator = torch.Generator().manual_seed(seed)
    ids = torch.rand(n, tokens, experts, generator=generator).topk(top_k, dim=-1).indices
    return whole(n, tokens, 8, seed=seed) / 4, ids, torch.rand(n, tokens, top_k, generator=generator)


def dense(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor
) -> torch.Tensor:
    """The layer for tokens [T, hidden], by one process."""
    gate, up = torch.einsum("th,eih->tei", x, w13).chunk(2, dim=-1)
    of_all = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(gate) * up, w2)
    chosen = of_all.gather(1, ids[:, :, None].expand(-1, -1, x.shape[1]))
    return (chosen * weights[:, :, None]).sum(dim=1)


def check_moe_layer_and_gradients(world: Any) -> None:
    n, me = world.n_pes, world.pe
    experts = 2 * n
    for seed in range(2):
        x, ids, weights = routed(world, 5, experts, 2, seed)
        w13, w2 = whole(experts, 12, 8, seed=8) / 4, whole(experts, 8, 6, seed=9) / 4
        given = [leaf(x[me]), leaf(weights[me]), leaf(w13[2 * me : 2 * me + 2]), leaf(w2[2 * me : 2 * me + 2])]
        sizes: dict[str, Any] = {"num_experts": experts, "max_tokens": 6, "num_sms": 2 * seed}
        out = moe.moe_layer(given[0], ids[me], given[1], *given[2:], **sizes)
        all_of = [leaf(tensor) for tensor in (x, weights, w13, w2)]
        outs = [dense(all_of[0][pe], ids[pe], all_of[1][pe], *all_of[2:]) for pe in range(n)]
        same(out, outs[me])
        with torch.no_grad():
            plain = moe.moe_layer(given[0], ids[me], given[1], *given[2:], **sizes)
        same(plain, outs[me])
        (out * whole(5, 8, seed=me)).sum().backward()
        sum((part * whole(5, 8, seed=pe)).sum() for pe, part in enumerate(outs)).backward()
        same(given[0].grad, all_of[0].grad[me])
        same(given[1].grad, all_of[1].grad[me])
        for mine, expected in zip(given[2:], all_of[2:], strict=True):
            same(mine.grad, expected.grad[2 * me : 2 * me + 2])


def check_moe_layer_of_pes_without_tokens(world: Any) -> None:
    """Their gradients are expanded and have no elements, of which PyTorch makes no view of another type."""
    n, me = world.n_pes, world.pe
    ids = torch.arange(2 * n)[None, :].expand(3, -1)
    w13, w2 = whole(2 * n, 12, 8, seed=8) / 4, whole(2 * n, 8, 6, seed=9) / 4
    for algorithm, num_sms, tokens in (("separate", 0, 3), ("separate", 2, 3), ("tokens", 0, 3), ("separate", 0, 0)):
        t = 0 if me == n - 1 else tokens
        x = leaf(whole(t, 8, seed=me).bfloat16())
        matrices = [leaf(matrix[2 * me : 2 * me + 2].bfloat16()) for matrix in (w13, w2)]
        sizes: dict[str, Any] = {"num_experts": 2 * n, "max_tokens": 3, "num_sms": num_sms, "algorithm": algorithm}
        out = moe.moe_layer(x, ids[:t], torch.ones(t, 2 * n), *matrices, **sizes)
        out.float().sum().backward()
        expected = leaf(x.detach().float())
        dense(expected, ids[:t], torch.ones(t, 2 * n), *(m.bfloat16().float() for m in (w13, w2))).sum().backward()
        same(x.grad.float(), expected.grad, tolerance=0.05)
        assert all(matrix.grad is not None for matrix in matrices)
    nothing = torch.ones(()).bfloat16().expand(0, 8), torch.zeros((), dtype=torch.int64).expand(0, 2)
    received = moe.dispatch(*nothing, torch.ones(()).expand(0, 2), num_experts=2 * n, max_tokens=3)
    assert not received.counts.any() and moe.combine(received.x, received).shape == (0, 8)


def check_moe_second_derivatives(world: Any) -> None:
    """Of tokens, weights and matrices, with rows of choices and with tokens once to each PE."""
    n, me, experts = world.n_pes, world.pe, 2 * world.n_pes
    x, ids, weights = routed(world, 5, experts, 2, 3)
    w13, w2 = whole(experts, 12, 8, seed=8) / 4, whole(experts, 8, 6, seed=9) / 4

    def second(outs: list[torch.Tensor], leaves: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        firsts = torch.autograd.grad(sum(out.square().sum() for out in outs), leaves[:2], create_graph=True)
        return torch.autograd.grad(sum(first.square().sum() for first in firsts), leaves)

    all_of = [leaf(tensor) for tensor in (x, weights, w13, w2)]
    expected = second([dense(all_of[0][pe], ids[pe], all_of[1][pe], *all_of[2:]) for pe in range(n)], all_of)
    here = slice(2 * me, 2 * me + 2)
    for algorithm in ("separate", "tokens"):
        given = [leaf(tensor) for tensor in (x[me], weights[me], w13[here], w2[here])]
        out = moe.moe_layer(given[0], ids[me], *given[1:], num_experts=experts, max_tokens=6, algorithm=algorithm)
        found = second([out], given)
        for mine, wanted, part in zip(found, expected, (me, me, here, here), strict=True):
            same(mine, wanted[part])


def check_moe_second_derivatives_of_the_same_tokens(world: Any) -> None:
    """All PEs have the tokens and the loss; experts are theirs, or columns of all experts are."""
    n, me, experts = world.n_pes, world.pe, 2 * world.n_pes
    x, ids, weights = (tensor[0] for tensor in routed(world, 5, experts, 2, 3))
    w13, w2 = whole(experts, 2 * 3 * n, 8, seed=8) / 4, whole(experts, 8, 3 * n, seed=9) / 4
    here, columns = slice(2 * me, 2 * me + 2), slice(3 * me, 3 * me + 3)

    def second(out: torch.Tensor, given: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        firsts = torch.autograd.grad((out**3).sum(), given[:2], create_graph=True)
        return torch.autograd.grad(sum(first.square().sum() for first in firsts), given)

    def sliced(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(experts, 2, 3 * n, 8)[:, :, columns].flatten(1, 2)

    all_of = [leaf(tensor) for tensor in (x, weights, w13, w2)]
    expected = second(dense(all_of[0], ids, *all_of[1:]), all_of)
    for parallel, of_w13, of_w2 in (
        ("expert", lambda w: w[here], lambda w: w[here]),
        ("tensor", sliced, lambda w: w[:, :, columns]),
    ):
        given = [leaf(tensor) for tensor in (x, weights, of_w13(w13), of_w2(w2))]
        options = {"num_experts": experts, "max_tokens": 6, "replicated": True, "parallel": parallel}
        found = second(moe.moe_layer(given[0], ids, *given[1:], **options), given)
        wanted = expected[0], expected[1], of_w13(expected[2]), of_w2(expected[3])
        for one, right in zip(found, wanted, strict=True):
            same(one, right)


def check_moe_weights_of_other_dtypes(world: Any) -> None:
    """They are converted to float32, with gradients and without; a gradient of them is of their dtype."""
    experts = 2 * world.n_pes
    x, ids, weights = (tensor[world.pe] for tensor in routed(world, 5, experts, 2, 4))
    for options in ({}, {"algorithm": "tokens"}, {"parallel": "tensor"}):
        local = experts if "parallel" in options else 2
        w13, w2, half = whole(local, 12, 8, seed=8) / 4, whole(local, 8, 6, seed=9) / 4, weights.bfloat16()
        sizes: dict[str, Any] = {"num_experts": experts, "max_tokens": 6} | options
        with torch.no_grad():
            plain = moe.moe_layer(x, ids, half, w13, w2, **sizes)
        given = leaf(half)
        out = moe.moe_layer(x, ids, given, w13, w2, **sizes)
        same(out, plain)
        out.sum().backward()
        assert given.grad is not None and given.grad.dtype == torch.bfloat16


def check_moe_gradients_of_every_path(world: Any) -> None:
    """Skewed routing: most tokens go to one expert, some choices are not made, the last PE has no tokens."""
    n, me, experts = world.n_pes, world.pe, 2 * world.n_pes
    x, ids, weights = routed(world, 6, experts, 2, 5)
    ids[:, :4, 0] = 1
    ids[:, 4, 1] = -1
    ids[:, 5] = -1
    w13, w2 = whole(experts, 2 * 3 * n, 8, seed=8) / 4, whole(experts, 8, 3 * n, seed=9) / 4
    tokens = [6 if pe < n - 1 else 0 for pe in range(n)]
    all_of = [leaf(tensor) for tensor in (x, weights, w13, w2)]
    made = [weight * (ids[pe] >= 0) for pe, weight in enumerate(all_of[1])]
    outs = [dense(all_of[0][pe], ids[pe].clamp(min=0), made[pe], *all_of[2:])[: tokens[pe]] for pe in range(n)]
    sum((part * whole(6, 8, seed=pe)[: tokens[pe]]).sum() for pe, part in enumerate(outs)).backward()
    here, columns = slice(2 * me, 2 * me + 2), slice(3 * me, 3 * me + 3)
    of_w13, of_w2 = all_of[2].grad, all_of[3].grad
    assert of_w13 is not None and of_w2 is not None

    def sliced(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(experts, 2, 3 * n, 8)[:, :, columns].flatten(1, 2)

    paths: list[dict[str, Any]] = [{"algorithm": "fused"}, {"algorithm": "fused_hopper", "num_sms": 1}]
    paths += [{"parallel": "tensor"}, {"algorithm": "tokens"}, {"algorithm": "tokens", "num_sms": 1}]
    for path in paths:
        tensor = path.get("parallel") == "tensor"
        mine = (sliced(w13), w2[:, :, columns]) if tensor else (w13[here], w2[here])
        wanted = (sliced(of_w13), of_w2[:, :, columns]) if tensor else (of_w13[here], of_w2[here])
        count = tokens[me]
        given = [leaf(tensor) for tensor in (x[me, :count], weights[me, :count], *mine)]
        options = {"num_experts": experts, "max_tokens": 6} | path
        out = moe.moe_layer(given[0], ids[me, :count], given[1], *given[2:], **options)
        same(out, outs[me])
        (out * whole(6, 8, seed=me)[:count]).sum().backward()
        for tensor_, expected in zip(given, (all_of[0].grad, all_of[1].grad), strict=False):
            assert expected is not None
            same(tensor_.grad, expected[me, :count])
        for tensor_, expected in zip(given[2:], wanted, strict=True):
            same(tensor_.grad, expected)


def check_moe_what_auto_takes(world: Any) -> None:
    """If a number of SMs is asked for: tokens once to each PE where TMA moves them; where it does not, from thousands
    of tokens on, two kernels. The results are the same."""

    def chosen(by_tma: bool, num_experts: int = 128, num_sms: int = 24) -> list[str]:
        steps = [Steps(num_experts, most, None, num_sms, "expert", "auto") for most in (64, 4095, 4096, 8192)]
        return [choose(of, by_tma=by_tma, hosts=1, most=132) for of in steps]

    assert chosen(True) == chosen(True, 512) == chosen(True, num_sms=132) == ["tokens"] * 4
    assert chosen(False) == ["separate"] * 2 + ["fused_hopper"] * 2
    assert chosen(False, 512) == chosen(False, num_sms=132) == chosen(True, num_sms=0) == ["separate"] * 4
    experts = 2 * world.n_pes
    x, ids, weights = (tensor[world.pe] for tensor in routed(world, 5, experts, 2, 1))
    matrices = whole(2, 12, 8, seed=8) / 4, whole(2, 8, 6, seed=9) / 4
    found, expected = (
        moe.moe_layer(x, ids, weights, *matrices, num_experts=experts, max_tokens=most, num_sms=1) for most in (4096, 5)
    )
    same(found, expected)


def check_moe_opcheck(world: Any) -> None:
    n, me = world.n_pes, world.pe
    x, ids, weights = routed(world, 3, 2 * n, 2, 0)
    sizes = (2 * n, 4, 1, 4 * n * 2, 0, n, "")
    torch.library.opcheck(OPS.moe_dispatch.default, (leaf(x[me]), ids[me], weights[me], None, *sizes))
    received = functional.dispatch(
        x[me], ids[me], weights[me], num_experts=2 * n, max_tokens=4, scales=torch.rand(3, 2)
    )
    y, groups = leaf(received.x), (received.offsets, received.counts)
    torch.library.opcheck(OPS.moe_combine.default, (y, ids[me], leaf(weights[me]), received.memory, True, *sizes))
    b = leaf(whole(2, 8, 4))
    torch.library.opcheck(OPS.moe_grouped_gemm.default, (y, b, *groups))
    torch.library.opcheck(OPS.moe_grouped_weight_grad.default, (y.detach(), whole(len(y), 4), *groups))


def check_moe_compiled(world: Any) -> None:
    layer = MoE(8, 6, num_experts=2 * world.n_pes, top_k=2, max_tokens=8)
    x = whole(7, 8, seed=world.pe)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    same(compiled(x), layer(x))
    compiled(x).sum().backward()
    assert layer.w13.grad is not None and layer.gate.grad is not None
    assert not layer(x)._is_view(), "FSDP2's hooks are lost where a view is written to"


def check_moe_tokens_by_expert_opcheck(world: Any) -> None:
    ids = torch.tensor([[0, 2, -1], [1, 1, 0], [-1, -1, -1], [2, 0, 1]])
    x, weights = whole(4, 8, seed=1), torch.rand(4, 3)
    torch.library.opcheck(OPS.moe_group_by_expert.default, (leaf(x), ids, 3, 12))
    rows, memory = OPS.moe_group_by_expert(x, ids, 3, 12)
    assert not rows[8:].any(), "rows that no token fills are zeros"
    torch.library.opcheck(OPS.moe_sum_over_experts.default, (leaf(rows), leaf(weights), memory, 3))
    torch.library.opcheck(OPS.moe_sum_over_experts_backward.default, (leaf(x), leaf(rows), leaf(weights), memory, 3))
    found = functional.dispatch_tokens(x, ids.clamp(max=0), num_experts=world.n_pes, max_tokens=4)
    with raises(TypeError, "sum_over_experts: y must be a torch.Tensor, got list"):
        functional.sum_over_experts([1], functional.group_by_expert(found))  # type: ignore[arg-type]


def check_moe_layers_by_tokens_compiled(world: Any) -> None:
    """In one graph, with gradients and without."""
    layer = MoE(8, 6, num_experts=2 * world.n_pes, top_k=2, max_tokens=8, algorithm="tokens", num_sms=1)
    x = whole(7, 8, seed=world.pe) / 4
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    results = []
    for function in (layer, compiled):
        layer.zero_grad()
        given = leaf(x)
        out = function(given)
        out.square().sum().backward()
        assert layer.w13.grad is not None and layer.w2.grad is not None
        results.append((out, given.grad, layer.w13.grad.clone(), layer.w2.grad.clone()))
    for one, other in zip(*results, strict=True):
        same(one, other)
    with torch.no_grad():
        same(compiled(x), layer(x))
    found = functional.dispatch_tokens(
        x.to(FP8).repeat(1, 2), layer.route(x)[0], num_experts=2 * world.n_pes, max_tokens=8
    )
    with raises(ValueError, "fp8 and scales have no gradients"):
        functional.group_by_expert(found)


def check_moe_compile_refusals(world: Any) -> None:
    """Functions without operators break a graph, and say what to call where they may not."""
    ids, x = torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 8)

    def exchange(x: torch.Tensor) -> torch.Tensor:
        received = moe.dispatch(x, ids, num_experts=world.n_pes, max_tokens=3)
        return moe.combine(received.x, received) * 2

    with raises(Exception, "dispatch: torch.compile cannot trace it: call the function of the same name in"):
        torch.compile(exchange, backend="aot_eager", fullgraph=True)(x)
    with raises(ValueError, r"dispatch: it cannot be traced \(by .*by torch.func\): call the function of the same"):
        torch.vmap(exchange)(x[None])
    same(torch.compile(exchange, backend="aot_eager")(x), 2 * x)


def check_moe_modules(world: Any) -> None:
    n, me = world.n_pes, world.pe
    for options in (
        {},
        {"norm_topk_prob": False, "shared_intermediate": 4, "num_sms": 1},
        {"scoring": "sigmoid", "n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.5},
    ):
        torch.manual_seed(0)
        layer = MoE(8, 6, num_experts=4 * n, top_k=2, max_tokens=8, **options)
        w13, w2 = whole(4 * n, 12, 8, seed=1) / 4, whole(4 * n, 8, 6, seed=2) / 4
        with torch.no_grad():
            layer.w13.copy_(w13[4 * me : 4 * me + 4])
            layer.w2.copy_(w2[4 * me : 4 * me + 4])
            if layer.bias is not None:
                layer.bias.copy_(whole(4 * n, seed=3))
        x = whole(2, 3, 8, seed=10 + me)
        found = layer(x)
        tokens = x.view(-1, 8)
        expected = dense(tokens, *layer.route(tokens), w13, w2)
        if layer.shared_up is not None:
            gate, up = layer.shared_up(tokens).chunk(2, dim=-1)
            expected = expected + layer.shared_down(torch.nn.functional.silu(gate) * up)
        same(found, expected.view(2, 3, 8))
    same(layer(x[:, :0]), x[:, :0])


def check_moe_modules_under_autocast(world: Any) -> None:
    """float32 parameters and tokens of either dtype are cast; the choices and their weights are those without it."""
    n = world.n_pes
    for options in some(
        (
            {"algorithm": "tokens", "shared_intermediate": 4},
            {},
            {"parallel": "tensor"},
            {"replicated": True},
        )
    ):
        torch.manual_seed(0)
        layer = MoE(8, 4 * n, num_experts=2 * n, top_k=2, max_tokens=8, **options)
        x = whole(3, 8, seed=0 if "replicated" in options else world.pe) / 4
        expected, routing = layer(x), layer.route(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert all(torch.equal(one, other) for one, other in zip(layer.route(x), routing, strict=True))
            found = layer(x), layer(x.bfloat16()), layer(x.bfloat16().requires_grad_())
            with torch.no_grad():
                found = *found, layer(x.bfloat16())
        for out in found:
            assert out.dtype == torch.bfloat16
            same(out.float(), expected, 0.05)
        found[1].sum().backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


def check_moe_modules_are_copied_and_converted(world: Any) -> None:
    """A copy has parameters of its own and the same groups; ``bias`` stays float32, and is reset with the rest."""
    n = world.n_pes
    sizes: dict[str, Any] = {"num_experts": 2 * n, "top_k": 2, "max_tokens": 8, "scoring": "sigmoid"}
    with Communicator() as comm:
        for group in (world.team_world, comm):
            layer = MoE(8, 4, **sizes, group=group)
            copied = copy.deepcopy(torch.nn.ModuleList([layer, layer]))
            assert copied[0] is copied[1] and copied[0].group is group
            assert copied[0].w13 is not layer.w13 and torch.equal(copied[0].w13, layer.w13)
            x = whole(3, 8, seed=world.pe)
            same(copied[0](x), layer(x))
            assert copy.copy(group) is copy.deepcopy(group) is group and copy.deepcopy(world) is world
            with raises(TypeError, "cannot be pickled, as it is of the world of this process"):
                pickle.dumps(layer)
    layer = MoE(8, 4, **sizes)
    assert layer.bias is not None
    layer.bias.fill_(1 + 2**-20)
    for converted in (layer.bfloat16(), layer.double(), layer.to("cpu", torch.bfloat16)):
        assert converted is layer and layer.bias.dtype == torch.float32 and (layer.bias == 1 + 2**-20).all()
    assert layer.w13.dtype == torch.bfloat16 and dict(layer.named_buffers())["bias"] is layer.bias
    layer.reset_parameters()
    assert not layer.bias.any()


def check_moe_sigmoid_compiled(world: Any) -> None:
    """With sizes and numbers that vary, in one graph."""
    layer = MoE(8, 4, num_experts=2 * world.n_pes, top_k=1, max_tokens=8, scoring="sigmoid", routed_scaling_factor=2.5)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch.no_grad():
        for tokens in (3, 5):
            x = whole(tokens, 8, seed=world.pe)
            same(compiled(x), layer(x))


def check_moe_routing(world: Any) -> None:
    """Groups are chosen by their two best, and the bias counts in the choice only."""
    logits = torch.tensor([[3.0, -9.0, 2.0, 1.9, 0.0, 0.1]])
    ids, weights = moe.group_limited_top_k(logits, 2, n_group=3, topk_group=1, norm_topk_prob=False)
    assert ids.tolist() == [[2, 3]]
    same(weights, torch.sigmoid(logits[:, 2:4]))
    ids, weights = moe.group_limited_top_k(
        logits, 1, bias=torch.tensor([0, 9.0, 0, 0, 0, 0]), routed_scaling_factor=2.0
    )
    assert ids.tolist() == [[1]] and weights.tolist() == [[2.0]]
    ids, weights = moe.softmax_top_k(logits, 2)
    assert ids.tolist() == [[0, 2]]
    same(weights.sum(), torch.tensor(1.0))


def check_moe_no_gradient_is_lost(world: Any) -> None:
    n = world.n_pes
    x, ids = leaf(whole(2, 8)), torch.zeros(2, 1, dtype=torch.int64)
    options: dict[str, Any] = {"num_experts": n, "max_tokens": 2}
    with raises(ValueError, "dispatch: a tensor requires a gradient", r"kernels\.moe\.functional"):
        moe.dispatch(x, ids, **options)
    received = functional.dispatch(x, ids, **options)
    for half in (moe.combine, moe.combine_send):
        with raises(ValueError, "dispatched is of functional.dispatch: call functional.combine"):
            half(received.x, received)
    plain = moe.dispatch(x.detach(), ids, **options)
    with raises(ValueError, "combine: a tensor requires a gradient"):
        moe.combine(leaf(plain.x), plain)
    assert received.x.requires_grad and not received.weights.requires_grad
    with raises(ValueError, "have no gradient here"):
        functional.dispatch(leaf(whole(2, 16).to(FP8)), ids, **options)
    with raises(ValueError, "scoring must be"):
        MoE(8, 8, num_experts=n, top_k=1, max_tokens=1, scoring="max")
    of_layer: dict[str, Any] = {"num_experts": 70 * n, "top_k": 1, "max_tokens": 1}
    for hidden, kind, wrong, text in (
        (7, ValueError, {}, "a multiple of 16 bytes; got hidden 7 and dtype torch.float32"),
        (8, ValueError, {"dtype": torch.float64}, "matrices are of bfloat16, .*; got hidden 8 and dtype torch.float64"),
        (8, ValueError, {"top_k": 65}, "top_k 65 is more than 64"),
        (8, TypeError, {"norm_topk_prob": "no"}, "norm_topk_prob must be"),
    ):
        with raises(kind, f"MoE: .*{text}"):
            MoE(hidden, 8, **of_layer | wrong)
    for algorithm in ("separate", "tokens"):
        with raises(ValueError, f"w13 must have the matrices of num_experts / {n} experts, got 0"), torch.no_grad():
            moe.moe_layer(x, ids, torch.ones(2, 1), whole(0, 8, 8), whole(0, 8, 4), algorithm=algorithm, **options)
    with raises(ValueError, "w13 must be"):
        moe.moe_layer(x, ids, torch.ones(2, 1), whole(1, 8, 8), whole(1, 8, 8), **options)


if __name__ == "__main__":
    run(globals())
