"""Experts of which every PE has a slice, against one process that has all tokens and all experts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from harness import examples, raises
from harness import main as run
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_dist.kernels import moe

FP8 = torch.float8_e4m3fn


def together(count: int) -> settings:
    """All PEs draw the same."""
    return settings(max_examples=examples(count), deadline=None, derandomize=True, database=None)


class Case(NamedTuple):
    """What all PEs have, by PE."""

    x: list[torch.Tensor]
    ids: list[torch.Tensor]
    weights: list[torch.Tensor]
    num_experts: int
    max_tokens: int


def case(
    n_pes: int,
    tokens: list[int],
    *,
    top_k: int = 2,
    experts: int = 3,
    hidden: int = 16,
    dtype: torch.dtype = torch.bfloat16,
    routing: str = "any",
    seed: int = 0,
    max_tokens: int = 40,
) -> Case:
    generator = torch.Generator().manual_seed(seed)
    tokens = [tokens[pe % len(tokens)] for pe in range(n_pes)]

    def ids(n: int) -> torch.Tensor:
        chosen = torch.randint(0, experts, (n, top_k), generator=generator)  # also repeated ones
        if routing == "one":
            chosen.fill_(experts - 1)
        elif routing == "none":
            chosen.fill_(-1)
        elif routing == "some":
            chosen[torch.rand(n, top_k, generator=generator) < 0.5] = -1
        elif routing == "even":
            chosen = chosen // 2 * 2
        return chosen

    return Case(
        [torch.randint(-2, 3, (n, hidden), generator=generator).to(dtype) for n in tokens],
        [ids(n) for n in tokens],
        [torch.randint(1, 5, (n, top_k), generator=generator) / 4 for n in tokens],
        experts,
        max_tokens,
    )


def routed(world: Any, case: Case, **options: Any) -> moe.GatheredRouting:
    me = world.pe
    ids = case.ids[me].to(torch.int32 if me % 2 else torch.int64)
    sizes = {"num_experts": case.num_experts, "max_tokens": case.max_tokens}
    return moe.gather_routing(ids, case.weights[me], **sizes, **options)


def expected_rows(case: Case) -> list[tuple[int, int, int, int]]:
    """All rows in their order: expert, PE, token, choice."""
    return sorted(
        (expert, pe, token, k)
        for pe, ids in enumerate(case.ids)
        for token, row in enumerate(ids.tolist())
        for k, expert in enumerate(row)
        if expert >= 0
    )


def matrices(case: Case, inner: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, (case.num_experts, inner, columns), generator=generator).float()


def verify_routing(case: Case, found: moe.GatheredRouting) -> None:
    rows = expected_rows(case)
    counts = [sum(row[0] == expert for row in rows) for expert in range(case.num_experts)]
    assert found.counts.tolist() == counts
    assert found.offsets.tolist() == [sum(counts[:i]) for i in range(case.num_experts + 1)]
    assert found.tokens[: len(rows)].tolist() == [pe * case.max_tokens + token for _, pe, token, _ in rows]
    assert found.weights[: len(rows)].tolist() == [case.weights[pe][token, k].item() for _, pe, token, k in rows]
    positions = torch.full(found.positions.shape, -1)
    for at, (_, pe, token, k) in enumerate(rows):
        positions[pe, token, k] = at
    assert torch.equal(found.positions.long(), positions)


def products(case: Case, b: torch.Tensor) -> torch.Tensor:
    """Of the rows of all tokens."""
    rows = expected_rows(case)
    made = [case.x[pe][token].float() @ b[expert] for expert, pe, token, _ in rows]
    return torch.stack(made) if made else torch.empty(0, b.shape[2])


def sums(case: Case, pe: int, h: torch.Tensor, b: torch.Tensor, n_pes: int, dtype: torch.dtype) -> torch.Tensor:
    """Of a PE's tokens, in the stated order: choices in float32, rounded, then PEs in float32. K is split over PEs."""
    rows = expected_rows(case)
    total = torch.zeros(len(case.x[pe]), b.shape[2])
    inner = h.shape[1] // n_pes
    for part in (slice(i * inner, (i + 1) * inner) for i in range(n_pes)):
        partial = torch.zeros_like(total)
        for at, (expert, source, token, k) in enumerate(rows):
            if source == pe:  # (in any order: these sums are exact)
                partial[token] += (case.weights[pe][token, k] * (h[at, part] @ b[expert][part])).to(dtype).float()
        total += partial.to(dtype).float()
    return total.to(dtype)


def both(world: Any, case: Case, *, columns: int = 40, **options: Any) -> None:
    """Both GEMMs, with something between them that is no sum."""
    n, me, dtype = world.n_pes, world.pe, case.x[0].dtype
    routing = routed(world, case, group=options.pop("group", None))
    verify_routing(case, routing)
    hidden = case.x[0].shape[1]
    w1, w2 = matrices(case, hidden, columns * n, 1), matrices(case, columns * n, hidden, 2)
    mine = slice(me * columns, (me + 1) * columns)
    up = moe.all_gather_grouped_gemm(case.x[me], w1[:, :, mine].to(dtype), routing, **options)
    expected = products(case, w1)
    n_rows = len(expected)
    assert torch.equal(up[:n_rows], expected[:, mine].to(dtype)), (up[:n_rows], expected[:, mine])
    up = up.clamp(-2, 2)
    up[n_rows:] = float("nan")
    down = w2[:, mine].to(dtype).transpose(1, 2).contiguous().transpose(1, 2)  # columns are contiguous
    out = moe.grouped_gemm_reduce_scatter(up, down, routing, **options)
    wanted = sums(case, me, expected.clamp(-2, 2), w2, n, dtype)
    assert torch.equal(out, wanted), (out, wanted)


def check_moe_tensor_routings(world: Any) -> None:
    @together(5)
    @given(
        st.lists(st.integers(0, 40), min_size=3, max_size=3),
        st.sampled_from([1, 2, 3]),
        st.sampled_from([1, 3, 5]),
        st.sampled_from(["any", "one", "none", "some", "even"]),
        st.integers(1, 3),
        st.integers(0, 1 << 16),
    )
    def example(tokens: list[int], top_k: int, experts: int, routing: str, num_sms: int, seed: int) -> None:
        chosen = case(world.n_pes, tokens, top_k=top_k, experts=experts, routing=routing, seed=seed)
        both(world, chosen, num_sms=num_sms)

    example()


def check_moe_tensor_sizes_and_dtypes(world: Any) -> None:
    for i, (dtype, hidden, columns) in enumerate(
        ((torch.bfloat16, 136, 8), (torch.float16, 8, 72), (torch.float32, 20, 33))
    ):
        routing = ("any", "one", "some")[i]
        both(
            world, case(world.n_pes, [37, 0, 40], dtype=dtype, hidden=hidden, seed=i, routing=routing), columns=columns
        )


def check_moe_tensor_many_chunks_of_choices(world: Any) -> None:
    """Choices that several programs place, and more tokens than are counted at a time."""
    chosen = case(world.n_pes, [301, 7], top_k=3, experts=7, seed=4, max_tokens=307)
    verify_routing(chosen, routed(world, chosen))


def check_moe_tensor_fp8(world: Any) -> None:
    """Scales of rows and columns, and of blocks: those of tokens are gathered with them."""
    n, me = world.n_pes, world.pe
    chosen = case(n, [5, 0, 9], hidden=144, dtype=FP8, experts=2)
    routing = routed(world, chosen)
    w = matrices(chosen, 144, 40, 5)
    sizes = [len(x) for x in chosen.x]
    rows = expected_rows(chosen)
    generator = torch.Generator().manual_seed(3)

    def powers(*shape: int) -> torch.Tensor:
        return 2.0 ** torch.randint(-1, 2, shape, generator=generator)

    of_rows, of_columns = [powers(size, 1) for size in sizes], powers(2, 40)
    found = moe.all_gather_grouped_gemm(
        chosen.x[me], w.to(FP8), routing, a_scales=of_rows[me], b_scales=of_columns, out_dtype=torch.float32
    )
    for at, (expert, pe, token, _) in enumerate(rows):
        expected = (chosen.x[pe][token].float() * of_rows[pe][token]) @ w[expert] * of_columns[expert]
        assert torch.equal(found[at], expected), (at, found[at], expected)
    of_blocks, of_matrices = [powers(size, 2) for size in sizes], powers(2, 1, 2)
    found = moe.all_gather_grouped_gemm(
        chosen.x[me], w.to(FP8), routing, a_scales=of_blocks[me], b_scales=of_matrices, out_dtype=torch.float32
    )
    for at, (expert, pe, token, _) in enumerate(rows):
        wide = (of_blocks[pe][token] * of_matrices[expert, 0]).repeat_interleave(128)[:144]
        expected = (chosen.x[pe][token].float() * wide) @ w[expert]
        assert torch.equal(found[at], expected), (at, found[at], expected)
    # The way back.
    h = torch.randint(-2, 3, (routing.rows, 16), generator=generator).float()
    scales = powers(routing.rows, 1)
    out = moe.grouped_gemm_reduce_scatter(
        h.to(FP8), w[:, :16].to(FP8), routing, a_scales=scales, b_scales=of_columns, out_dtype=torch.float32
    )
    expected = torch.zeros(sizes[me], 40)
    for at, (expert, pe, token, k) in enumerate(rows):
        if pe == me:
            product = h[at] @ w[expert, :16] * scales[at] * of_columns[expert]
            expected[token] += n * chosen.weights[pe][token, k] * product
    assert torch.equal(out, expected)


def check_moe_tensor_bits_do_not_depend_on_programs(world: Any) -> None:
    chosen = case(world.n_pes, [40, 11, 0], seed=9, hidden=48)
    generator = torch.Generator().manual_seed(world.pe)
    x = torch.randn(chosen.x[world.pe].shape, generator=generator).bfloat16()
    w1, w2 = torch.randn(3, 48, 72, generator=generator), torch.randn(3, 72, 48, generator=generator)
    routing = routed(world, chosen)
    n_rows, first = len(expected_rows(chosen)), None
    for options in ({}, {"num_sms": 1}, {"num_sms": 3}, {"num_sms": 1, "sm_margin": 2}, {}):
        up = moe.all_gather_grouped_gemm(x, w1.bfloat16(), routing, **options)
        out = moe.grouped_gemm_reduce_scatter(up, w2.bfloat16(), routing, **options)
        first = (up, out) if first is None else first
        assert torch.equal(up[:n_rows], first[0][:n_rows]) and torch.equal(out, first[1]), options


def check_moe_tensor_calls_that_follow_each_other(world: Any) -> None:
    """Gathered tokens, and partial sums, are not overwritten before a slow PE has read them."""
    chosen = case(world.n_pes, [12, 3], seed=6)
    routing = routed(world, chosen)
    w = matrices(chosen, 16, 24, 1)
    for i in range(3):
        chosen = chosen._replace(x=[x + 1 for x in chosen.x])
        expected = products(chosen, w)
        up = moe.all_gather_grouped_gemm(chosen.x[world.pe], w.bfloat16(), routing, num_sms=1 + i % 2)
        assert torch.equal(up[: len(expected)], expected.bfloat16())
    outs = [moe.grouped_gemm_reduce_scatter(up, w.bfloat16().transpose(1, 2), routing) for _ in range(3)]
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])


def check_moe_tensor_results_are_stored_to(world: Any) -> None:
    chosen = case(world.n_pes, [4, 3], experts=2)
    routing = routed(world, chosen)
    w = matrices(chosen, 16, 24, 1).bfloat16()
    out = torch.full((routing.rows, 24), 7.0).bfloat16()
    assert moe.all_gather_grouped_gemm(chosen.x[world.pe], w, routing, out=out) is out
    n_rows = len(expected_rows(chosen))
    assert torch.equal(out[:n_rows].float(), products(chosen, w.float())) and (out[n_rows:] == 7).all()
    back = torch.full((routing.n_tokens, 16), 7.0).bfloat16()
    assert moe.grouped_gemm_reduce_scatter(out, w.transpose(1, 2), routing, weighted=False, out=back) is back
    again = moe.grouped_gemm_reduce_scatter(out, w.transpose(1, 2), routing, weighted=False)
    assert torch.equal(back, again) and not torch.isnan(back).any()


def check_moe_tensor_groups(world: Any) -> None:
    """Every other PE, and all but the first."""
    for shape in ((0, 2, (world.n_pes + 1) // 2), (world.n_pes > 1, 1, world.n_pes - (world.n_pes > 1))):
        team = world.team_world.split_strided(*map(int, shape))
        if team:
            members = SimpleNamespace(pe=team.my_pe, n_pes=team.n_pes)
            both(members, case(team.n_pes, [9, 0, 40], seed=2), group=team)


def check_moe_tensor_mistakes(world: Any) -> None:
    ids, sizes = torch.zeros(2, 2, dtype=torch.int64), {"num_experts": 2, "max_tokens": 2}
    for kind, text, arguments, options in (
        (ValueError, r"topk_ids must be \[T, top_k\]", (ids.float(),), {}),
        (ValueError, r"topk_weights must be \(2, 2\)", (ids, torch.ones(2, 3)), {}),
        (ValueError, "topk_ids has 2 tokens, and max_tokens is 1", (ids,), {"max_tokens": 1}),
        (ValueError, r"num_experts must be in \[1, \d+\] for \d PEs, got 0", (ids,), {"num_experts": 0}),
        (ValueError, "got 20000", (ids,), {"num_experts": 20000}),
        (TypeError, "num_experts must be an int, got 2.0", (ids,), {"num_experts": 2.0}),
        (ValueError, r"must be less than 2\*\*30", (ids,), {"max_tokens": 1 << 30}),
        (ValueError, "requires a gradient", (ids, torch.ones(2, 2, requires_grad=True)), {}),
    ):
        with raises(kind, f"^gather_routing: .*{text}"):
            moe.gather_routing(*arguments, **(sizes | options))
    with raises(TypeError, "routing must be what gather_routing returns, got Tensor"):
        moe.all_gather_grouped_gemm(ids, ids, ids)
    routing = moe.gather_routing(ids, **sizes)
    x, w = torch.ones(2, 8).bfloat16(), torch.ones(2, 8, 8).bfloat16()
    rows = torch.ones(routing.rows, 8).bfloat16()
    gather, scatter = moe.all_gather_grouped_gemm, moe.grouped_gemm_reduce_scatter
    for function, kind, text, arguments, options in (
        (gather, ValueError, "a has 1 rows, and routing is of 2 tokens", (x[:1], w), {}),
        (gather, ValueError, "multiple of 16 bytes, got hidden = 4", (x[:, :4].contiguous(), w[:, :4]), {}),
        (gather, ValueError, r"counts must be \[1\]", (x, w[:1]), {}),
        (gather, ValueError, "a_scales and b_scales are for operands of fp8", (x, w), {"a_scales": x, "b_scales": x}),
        (gather, ValueError, r"num_sms must be in \[0, 4\)", (x, w), {"num_sms": 4}),
        (gather, TypeError, "num_sms must be an int", (x, w), {"num_sms": 1.0}),
        (gather, ValueError, "out must be", (x, w), {"out": x}),
        (scatter, ValueError, "a has 2 rows, and routing has room for", (x, w), {}),
        (scatter, ValueError, "sm_margin must leave two SMs or more", (rows, w), {"sm_margin": 3}),
        (scatter, ValueError, "out must be", (rows, w), {"out": rows}),
        (scatter, ValueError, "requires a gradient", (rows.clone().requires_grad_(), w), {}),
    ):
        with raises(kind, f"^{function.__name__}: .*{text}"):
            function(*arguments, routing, **options)


if __name__ == "__main__":
    run(globals())
