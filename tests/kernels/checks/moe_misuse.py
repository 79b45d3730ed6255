"""What would give wrong results, or none: an error that says so, after which right calls go on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from harness import main, raises, some

from triton_dist.kernels import moe
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.moe import functional
from triton_dist.kernels.moe.grouped_gemm import grouped_weight_grad

FP8 = torch.float8_e4m3fn

TOKENS = 3


def tokens(world: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, the ids of a neighbour's expert, and weights."""
    ids = torch.full((TOKENS, 1), (world.pe + 1) % world.n_pes)
    return torch.full((TOKENS, 8), world.pe + 1.0), ids, torch.full((TOKENS, 1), 2.0)


def check_ids_written_to(world: Any) -> None:
    """Ids say which PEs return rows, so a combine refuses those that are others by now. PyTorch counts writes for the
    whole of a buffer, and none in inference mode: there the CPU world compares."""
    x, ids, weights = tokens(world)
    sizes = {"num_experts": world.n_pes, "max_tokens": TOKENS}
    for combine, dispatched in (
        (moe.combine, moe.dispatch(x, ids, weights, **sizes)),
        (moe.combine_send, moe.dispatch(x, ids, weights, **sizes)),
        (functional.combine, functional.dispatch(x, ids, weights, **sizes)),
        (functional.combine_tokens, functional.dispatch_tokens(x, ids, weights, **sizes)),
    ):
        before = ids.clone()
        y = dispatched.x.nan_to_num(0.0)
        ids.fill_(world.pe)
        with raises(RuntimeError, "combine.*: topk_ids have been written to since they were dispatched"):
            combine(y, dispatched)
        ids.copy_(before)
    with torch.inference_mode():
        for given in (ids.clone(), torch.stack([ids, ids])[0]):
            dispatched = moe.dispatch(x, given, weights, **sizes)
            given[0] = (given[0] + 1) % world.n_pes
            with raises(RuntimeError, "combine: topk_ids have been written to since they were dispatched"):
                moe.combine(dispatched.x.nan_to_num(0.0), dispatched)
    for _ in range(4):  # the last by C++, on GPUs
        buffer = torch.cat([ids, ids])
        dispatched = moe.dispatch(x, buffer[:TOKENS], weights, **sizes)
        buffer[TOKENS:] = world.pe
        out = moe.combine(dispatched.x.nan_to_num(0.0), dispatched)
        assert torch.equal(out, 2 * x)


def check_another_group(world: Any) -> None:
    """What was made in a group is combined there by default, and refuses another."""
    x, _, weights = tokens(world)
    half = world.n_pes // 2
    row, column = world.team_world.split_2d(half)
    other_pair = torch.full((TOKENS, 1), 1 - row.my_pe)
    sizes = {"num_experts": 2, "max_tokens": TOKENS, "group": row}
    b = torch.eye(8).expand(2, 8, 8).contiguous()
    rows = functional.dispatch(x, other_pair, weights, **sizes)
    once = functional.dispatch_tokens(x, other_pair, weights, **sizes)
    routing = functional.gather_routing(other_pair, weights, **sizes)
    gathered = functional.all_gather_grouped_gemm(x, b, routing)
    for call, expected in (
        (lambda **group: functional.combine(rows.x, rows, **group), 2 * x),
        (lambda **group: functional.combine_tokens(once.x, once, **group), x),
        (lambda **group: functional.all_gather_grouped_gemm(x, b, routing, **group), gathered),
        (lambda **group: functional.grouped_gemm_reduce_scatter(gathered / 2, b, routing, weights, **group), 2 * x),
    ):
        assert torch.equal(call(), expected)
        with raises(ValueError, "group= has other PEs than the group in which its routing was made"):
            call(group=column)
        assert torch.equal(call(group=row), expected)


def check_other_numbers_of_tokens(world: Any) -> None:
    x, ids, weights = tokens(world)
    routing = functional.gather_routing(ids, weights, num_experts=world.n_pes, max_tokens=2 * TOKENS)
    b = torch.eye(8).expand(world.n_pes, 8, 8).contiguous()
    for rows in (x[:2], x[:0], torch.cat([x, x, x])):
        with raises(ValueError, f"a has {len(rows)} rows, and routing is of {TOKENS} tokens"):
            functional.all_gather_grouped_gemm(rows, b, routing)
    y = torch.zeros(routing.rows, 8)
    for shape in ((2, 1), (TOKENS, 2), (TOKENS,), (40, 1)):
        with raises(ValueError, r"topk_weights must be those that were gathered, \(3, 1\) of torch.float32, got"):
            functional.grouped_gemm_reduce_scatter(y, b, routing, torch.ones(shape))


def check_refused_on_one_pe(world: Any) -> None:
    """What one PE alone refuses is no call: it calls once more, as the others do for the first time."""
    x, ids, weights = tokens(world)
    sizes = {"num_experts": world.n_pes, "max_tokens": TOKENS}
    for wrong in ({"scales": torch.ones(2, 1)}, {"sm_margin": 1 << 20}, {"buffer": -1}, {"num_sms": 1, "sm_margin": 1}):
        with Communicator() as comm:
            if world.pe == 0:
                with raises(ValueError, "moe|dispatch"):
                    moe.dispatch(x, ids, weights, **sizes | wrong, group=comm)
            dispatched = moe.dispatch(x, ids, weights, **sizes, group=comm)
            y = dispatched.x.nan_to_num(0.0)
            if world.pe == 0 and "scales" not in wrong and "num_sms" not in wrong:
                with raises(ValueError, "combine"):
                    moe.combine(y, dispatched, **wrong)
            assert torch.equal(moe.combine(y, dispatched), 2 * x)


def check_layers_refused_on_one_pe(world: Any) -> None:
    """Before its tokens have been sent."""
    x, ids, weights = tokens(world)
    sizes = {"num_experts": world.n_pes, "max_tokens": TOKENS}
    w13, w2 = torch.ones(1, 8, 8), torch.ones(1, 8, 4)
    mistakes = (
        ((w13.repeat(2, 1, 1), w2.repeat(2, 1, 1)), "w13 must have the matrices of num_experts / 4 experts, got 2"),
        ((w13.repeat(2, 1, 1), w2), "matrices of as many experts"),
        ((torch.ones(1, 8, 4), torch.ones(1, 4, 4)), "as many columns as w13's"),
        ((w13.double(), w2.double()), "must be of one dtype, got torch.float32, torch.float64 and torch.float64"),
    )
    ways: tuple[dict[str, Any], ...] = ({}, {"num_sms": 1}, {"algorithm": "fused"})
    for (wrong, text), options in some(tuple(product(mistakes, ways)), 5):
        if world.pe == 0:
            with raises(ValueError, text):
                moe.moe_layer(x, ids, weights, *wrong, **sizes, **options)
        moe.moe_layer(x, ids, weights, w13, w2, **sizes, **options)


def check_weights_are_those_that_were_dispatched(world: Any) -> None:
    x, ids, weights = tokens(world)
    sizes = {"num_experts": world.n_pes, "max_tokens": TOKENS}
    rows = functional.dispatch(x, ids, weights, **sizes)
    for wrong, kind, text in (
        (weights[:, :0], ValueError, "topk_weights must be those that were dispatched"),
        (weights.double(), ValueError, "got .* of torch.float64"),
        (weights + 1, ValueError, "topk_weights are not those that were dispatched"),
        ([1.0], TypeError, "topk_weights must be a torch.Tensor, got list"),
    ):
        with raises(kind, f"combine: .*{text}"):
            functional.combine(rows.x, rows, wrong)
    assert torch.equal(functional.combine(rows.x, rows, weights.clone()), 2 * x)
    rows = functional.dispatch(x, ids, weights * torch.nan, **sizes)
    assert functional.combine(rows.x, rows, weights * torch.nan).isnan().all()


def check_halves_of_something_else(world: Any) -> None:
    x, ids, weights = tokens(world)
    sent = moe.dispatch_send(x, ids, weights, num_experts=world.n_pes, max_tokens=TOKENS)
    for half, wrong, what in (
        (moe.dispatch_receive, None, "dispatch_send"),
        (moe.combine_receive, sent, "combine_send"),
    ):
        with raises(TypeError, f"sent must be what {what} returns"):
            half(wrong)
    moe.dispatch_receive(sent)


def check_default_dtype(world: Any) -> None:
    """Weights that are not given are float32, whatever new tensors are."""
    x, ids, _ = tokens(world)
    sizes = {"num_experts": world.n_pes, "max_tokens": TOKENS}
    torch.set_default_dtype(torch.bfloat16)
    try:
        rows = functional.dispatch(x, ids, **sizes)
        assert torch.equal(functional.combine(rows.x, rows), x)
        once = functional.dispatch_tokens(x, ids, **sizes)
        assert torch.equal(functional.combine_tokens(once.x, once), x)
        routing = functional.gather_routing(ids, **sizes)
        y = torch.ones(routing.rows, 8, dtype=torch.float32)
        b = torch.eye(8, dtype=torch.float32).expand(world.n_pes, 8, 8).contiguous()
        assert torch.equal(functional.grouped_gemm_reduce_scatter(y, b, routing), torch.full_like(x, world.n_pes))
    finally:
        torch.set_default_dtype(torch.float32)


def check_gradients_that_nothing_would_record(world: Any) -> None:
    """Of operands and of what is stored to; also after calls that need none, which are known then."""
    x, ids, weights = tokens(world)
    sizes: dict[str, Any] = {"num_experts": world.n_pes, "max_tokens": TOKENS}
    rows, routing = moe.dispatch(x, ids, weights, **sizes), moe.gather_routing(ids, weights, **sizes)
    once = moe.dispatch_tokens(x, ids, weights, **sizes)
    b, narrow = torch.ones(1, x.shape[1], 8), torch.empty(rows.x.shape[0], 8)
    wide = torch.empty(routing.rows, 8)
    calls: dict[str, tuple[Any, ...]] = {
        "grouped_gemm": (
            lambda a, b, out: moe.grouped_gemm(a, b, rows.offsets, rows.counts, out=out),
            *(rows.x, b, narrow),
        ),
        "all_gather_grouped_gemm": (
            lambda a, b, out: moe.all_gather_grouped_gemm(a, b, routing, out=out),
            *(x, torch.ones(world.n_pes, x.shape[1], 8), wide),
        ),
        "dispatch_grouped_gemm": (lambda a, b, out: moe.dispatch_grouped_gemm(a, b, routing, out=out), x, b, wide),
        "dispatch": (lambda x, weights: moe.dispatch(x, ids, weights, **sizes), x, weights),
        "dispatch_tokens": (
            lambda x, weights, out: moe.dispatch_tokens(x, ids, weights, **sizes, out=out),
            *(x, weights, world.empty(tuple(once.x.shape), x.dtype)),
        ),
        "combine_tokens": (lambda y: moe.combine_tokens(y, once), once.x),
        "gather_routing": (lambda weights: moe.gather_routing(ids, weights, **sizes), weights),
    }
    for name, (call, *given) in calls.items():
        for _ in range(2):
            call(*given)
        for i in range(len(given)):
            wanted = [tensor.detach().requires_grad_(i == j) for j, tensor in enumerate(given)]
            with raises(ValueError, f"^{name}: a tensor requires a gradient, which this function does not record"):
                call(*wanted)
            with torch.no_grad():
                call(*wanted)


def check_scales_that_want_a_gradient(world: Any) -> None:
    """They have none: where nothing would record it, and in functional forms."""
    n, f = world.n_pes, moe.functional
    x, ids, weights = torch.ones(3, 8), torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1)
    sizes: dict[str, Any] = {"num_experts": n, "max_tokens": 3}
    routing = moe.gather_routing(ids, weights, **sizes)
    low, b = torch.ones(3, 16).to(FP8), torch.ones(n, 16, 8).to(FP8)
    of_a, of_b = torch.ones(3, 1), torch.ones(n, 8)
    plain: dict[str, Callable[[torch.Tensor], Any]] = {
        "dispatch": lambda scales: moe.dispatch(x, ids, weights, scales=scales, **sizes),
        "dispatch_tokens": lambda scales: moe.dispatch_tokens(x, ids, weights, scales=scales, **sizes),
        "dispatch_send": lambda scales: moe.dispatch_receive(
            moe.dispatch_send(x, ids, weights, scales=scales, **sizes)
        ),
        "all_gather_grouped_gemm": lambda scales: moe.all_gather_grouped_gemm(
            low, b, routing, a_scales=scales, b_scales=of_b
        ),
    }
    for name, call in plain.items():
        for _ in range(2):  # the later one is prepared
            call(of_a)
        wanted = of_a.clone().requires_grad_()
        with raises(ValueError, f"^{name}: a tensor requires a gradient, which this function does not record"):
            call(wanted)
        with torch.no_grad():
            call(wanted)
    for name in ("dispatch", "dispatch_tokens"):
        with raises(ValueError, f"^{name}: scales have no gradient: pass a detached tensor"):
            getattr(f, name)(x, ids, weights, scales=of_a.clone().requires_grad_(), **sizes)


def check_functional_forms_name_what_is_no_tensor(world: Any) -> None:
    f, sizes = moe.functional, {"num_experts": world.n_pes, "max_tokens": 3}
    x, ids, weights = torch.ones(3, 8), torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1)
    b: Any = torch.ones(world.n_pes, 8, 8)
    received, routing = f.dispatch(x, ids, **sizes), f.gather_routing(ids, weights, **sizes)
    once = f.dispatch_tokens(x, ids, **sizes)
    calls: dict[str, list[tuple[Callable[[], Any], str]]] = {
        "dispatch": [
            (lambda: f.dispatch(None, ids, **sizes), "x must be a torch.Tensor, got NoneType"),  # type: ignore[arg-type]
            (lambda: f.dispatch(x, None, **sizes), "topk_ids must be a torch.Tensor"),  # type: ignore[arg-type]
            (lambda: f.dispatch(x, ids, [[1.0]], **sizes), "topk_weights must be a torch.Tensor"),  # type: ignore[arg-type]
            (lambda: f.dispatch(x, ids, scales=1.0, **sizes), "scales must be a torch.Tensor"),  # type: ignore[arg-type]
        ],
        "dispatch_tokens": [(lambda: f.dispatch_tokens(x, 1, **sizes), "topk_ids must be a")],  # type: ignore[arg-type]
        "combine": [(lambda: f.combine([1], received), "y must be a torch.Tensor, got list")],  # type: ignore[arg-type]
        "combine_tokens": [(lambda: f.combine_tokens(1, once), "y must be a torch.Tensor")],  # type: ignore[arg-type]
        "gather_routing": [(lambda: f.gather_routing(None, **sizes), "topk_ids must be a")],  # type: ignore[arg-type]
        "all_gather_grouped_gemm": [
            (lambda: f.all_gather_grouped_gemm(x, b, None), "routing must be what gather_routing returns"),  # type: ignore[arg-type]
            (lambda: f.all_gather_grouped_gemm(x, 1, routing), "b must be a torch.Tensor"),  # type: ignore[arg-type]
        ],
        "grouped_gemm_reduce_scatter": [
            (lambda: f.grouped_gemm_reduce_scatter(None, None, None), "routing must be what"),  # type: ignore[arg-type]
        ],
        "grouped_gemm": [(lambda: f.grouped_gemm(None, b, ids, ids), "a must be a torch.Tensor")],  # type: ignore[arg-type]
        "softmax_top_k": [(lambda: moe.softmax_top_k(None, 1), "logits must be a")],  # type: ignore[arg-type]
    }
    for name, wrong in calls.items():
        for call, message in wrong:
            with raises(TypeError, f"^{name}: {message}"):
                call()
    with raises(ValueError, "dispatch: x is of layout torch.sparse_coo, not dense: pass tensor.to_dense"):
        f.dispatch(x.to_sparse(), ids, **sizes)
    with raises(ValueError, r"group_limited_top_k: bias must be \[8\], as logits have experts, got \(3,\)"):
        moe.group_limited_top_k(x, 1, bias=torch.ones(3))
    rows = f.all_gather_grouped_gemm(x, b, routing)
    f.grouped_gemm_reduce_scatter(rows, b, routing, weights)
    with raises(ValueError, "topk_weights are not those that were gathered, by which rows are multiplied"):
        f.grouped_gemm_reduce_scatter(rows, b, routing, weights + 1)
    with raises(ValueError, r"topk_weights must be those that were gathered, \(3, 1\) of torch.float32, got .*float64"):
        f.grouped_gemm_reduce_scatter(rows, b, routing, weights.double())


def check_counts_of_rows_that_are_not_there(world: Any) -> None:
    """What lies beside the tensors of a grouped GEMM is neither read nor written."""
    del world
    for dtype in (torch.float32, torch.float16):  # the latter by the kernel for Hopper GPUs, where that is interpreted
        beside, found = torch.full((60, 64), torch.nan, dtype=dtype), torch.full((60, 64), 7.0, dtype=dtype)
        a, out = beside[20:32], found[20:32]
        a[:] = torch.arange(12)[:, None].to(dtype)
        b = torch.stack([torch.eye(64, dtype=dtype), 2 * torch.eye(64, dtype=dtype)])
        offsets, counts = torch.tensor([0, 5], dtype=torch.int32), torch.tensor([5, 33], dtype=torch.int32)
        moe.grouped_gemm(a, b, offsets, counts, out=out)
        assert torch.equal(out, a * torch.tensor([1.0] * 5 + [2.0] * 7, dtype=dtype)[:, None])
        assert (found[:20] == 7).all() and (found[32:] == 7).all()
        assert not moe.grouped_gemm(a[:0], b, offsets, counts).numel()
        if dtype == torch.float32:  # with such counts the kernel for Hopper GPUs takes long
            wrong = torch.tensor([[-3, 1 << 30], [1 << 30, 7]], dtype=torch.int32)
            for some, expected in zip(wrong, (a[5:] * 2, a[5:] * 2), strict=True):
                assert torch.equal(moe.grouped_gemm(a, b, offsets, some)[5:], expected)
        grad = grouped_weight_grad(a, torch.ones_like(a), offsets, counts)
        assert torch.equal(grad[:, 0, 0], torch.tensor([10.0, 56.0], dtype=dtype)), grad[:, 0, 0]


if __name__ == "__main__":
    main(globals())
