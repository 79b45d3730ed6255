"""Dispatch and combine against one process that has all tokens, with routings of every kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from harness import main as run
from harness import raises, some
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_dist.kernels import moe

together = settings(max_examples=6, deadline=None, derandomize=True, database=None)  # all PEs draw the same
FP8 = torch.float8_e4m3fn


class Case(NamedTuple):
    """What all PEs have, by PE."""

    x: list[torch.Tensor]
    ids: list[torch.Tensor]
    weights: list[torch.Tensor]
    scales: list[torch.Tensor]
    num_experts: int
    max_tokens: int


def case(
    world: Any,
    tokens: list[int],
    *,
    top_k: int = 2,
    local: int = 3,
    hidden: int = 64,
    n_scales: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    routing: str = "any",
    seed: int = 0,
    max_tokens: int = 8,
) -> Case:
    generator = torch.Generator().manual_seed(seed)
    experts = local * world.n_pes
    tokens = [tokens[pe % len(tokens)] for pe in range(world.n_pes)]

    def ids(n: int) -> torch.Tensor:
        chosen = torch.randint(0, experts, (n, top_k), generator=generator, dtype=torch.int64)  # also repeated ones
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
        [torch.randint(-8, 8, (n, hidden), generator=generator).float().to(dtype) for n in tokens],
        [ids(n) for n in tokens],
        [torch.randint(1, 5, (n, top_k), generator=generator) / 4 for n in tokens],
        [torch.rand(n, n_scales, generator=generator) for n in tokens],
        experts,
        max_tokens,
    )


def expected_rows(case: Case, expert: int) -> list[tuple[int, int, int]]:
    """The rows of an expert in their order: PE, token, choice."""
    return [
        (pe, token, k)
        for pe, ids in enumerate(case.ids)
        for token, row in enumerate(ids.tolist())
        for k, chosen in enumerate(row)
        if chosen == expert
    ]


def dispatched(world: Any, case: Case, *, halves: bool = False, **options: Any) -> moe.Dispatched:
    me = world.pe
    arguments = (case.x[me], case.ids[me].to(torch.int32 if me % 2 else torch.int64), case.weights[me])
    options |= {"num_experts": case.num_experts, "max_tokens": case.max_tokens}
    if case.scales[0].shape[1]:
        options["scales"] = case.scales[me]
    if halves:
        return moe.dispatch_receive(moe.dispatch_send(*arguments, **options))
    return moe.dispatch(*arguments, **options)


def verify_dispatch(world: Any, case: Case, found: moe.Dispatched, align: int) -> None:
    local = case.num_experts // world.n_pes
    begin = 0
    for i in range(local):
        rows = expected_rows(case, world.pe * local + i)
        assert found.counts[i] == len(rows) and found.offsets[i] == begin, (found.counts, found.offsets, i, rows)
        for at, (pe, token, k) in enumerate(rows, begin):
            assert torch.equal(found.x[at].float(), case.x[pe][token].float()), (at, pe, token)
            assert found.weights[at] == case.weights[pe][token, k] and found.choices[at] == k
            if found.scales is not None:
                assert torch.equal(found.scales[at], case.scales[pe][token])
        begin += -(-len(rows) // align) * align
    assert found.offsets[local] == begin


def computed(world: Any, case: Case, found: moe.Dispatched, dtype: torch.dtype) -> torch.Tensor:
    """What experts might: expert e multiplies by e + 1. Other rows hold NaN."""
    local = case.num_experts // world.n_pes
    y = torch.full(found.x.shape, float("nan"))
    for i in range(local):
        begin, end = int(found.offsets[i]), int(found.offsets[i] + found.counts[i])
        y[begin:end] = found.x[begin:end].float() * (world.pe * local + i + 1)
    return y.to(dtype)


def verify_combine(world: Any, case: Case, out: torch.Tensor, dtype: torch.dtype) -> None:
    """In the stated order: choices of a PE in float32, rounded, then PEs in float32."""
    local = case.num_experts // world.n_pes
    x, ids, weights = case.x[world.pe].float(), case.ids[world.pe], case.weights[world.pe]
    total = torch.zeros(x.shape)
    for pe in range(world.n_pes):
        partial = torch.zeros(x.shape)
        for k in range(ids.shape[1]):
            there = (ids[:, k] >= 0) & (ids[:, k] // local == pe)
            rows = (x * (ids[:, k : k + 1] + 1)).to(dtype).float()
            partial += torch.where(there[:, None], weights[:, k : k + 1] * rows, 0.0)
        total += partial.to(dtype).float()
    assert out.dtype == dtype and torch.equal(out, total.to(dtype)), (out, total)


def exchange(
    world: Any, case: Case, dtype: torch.dtype = torch.bfloat16, *, align: int = 1, halves: bool = False, **options: Any
) -> None:
    found = dispatched(world, case, halves=halves, align=align, **options)
    verify_dispatch(world, case, found, align)
    y = computed(world, case, found, dtype)
    out = moe.combine_receive(moe.combine_send(y, found)) if halves else moe.combine(y, found)
    verify_combine(world, case, out, dtype)


def check_moe_routings(world: Any) -> None:
    @together
    @given(
        st.lists(st.integers(0, 8), min_size=3, max_size=3),
        st.sampled_from([1, 2, 3]),
        st.sampled_from([1, 3]),
        st.sampled_from(["any", "one", "none", "some", "even"]),
        st.sampled_from([1, 4]),
        st.booleans(),
        st.integers(0, 1 << 16),
    )
    def example(tokens: list[int], top_k: int, local: int, routing: str, align: int, halves: bool, seed: int) -> None:
        chosen = case(world, tokens, top_k=top_k, local=local, routing=routing, seed=seed)
        exchange(world, chosen, align=align, halves=halves)

    example()


def check_moe_dtypes_and_scales(world: Any) -> None:
    sizes = (FP8, 272, 3), (torch.float16, 8, 0), (torch.float32, 1156, 1), (FP8, 16, 1), (torch.bfloat16, 1000, 0)
    for dtype, hidden, n_scales in sizes:
        chosen = case(world, [3, 0, 8], dtype=dtype, hidden=hidden, n_scales=n_scales, seed=hidden)
        exchange(world, chosen, dtype if dtype != FP8 else torch.bfloat16)


def check_moe_bits_arrive(world: Any) -> None:
    """Zeros, negative zeros, infinities and NaN are not taken for words that have not arrived."""
    row = torch.tensor([0.0, -0.0, float("inf"), float("nan"), -1.0, 0.0, -0.0, 0.0] * 2)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, FP8):
        x = row.repeat(2, 1).to(dtype)
        ids = torch.tensor([[0], [world.n_pes - 1]])
        found = moe.dispatch(x, ids, num_experts=world.n_pes, max_tokens=2)
        for at in range(int(found.counts[0])):
            torch.testing.assert_close(found.x[at].float(), x[0].float(), rtol=0, atol=0, equal_nan=True)
        assert (found.weights[: int(found.counts[0])] == 1).all()


def check_moe_sums_are_rounded_once_a_pe(world: Any) -> None:
    """What bfloat16 could not hold in between, and what float32 can."""
    ids = torch.zeros(1, 4, dtype=torch.int64)
    found = moe.dispatch(torch.ones(1, 8).bfloat16(), ids, num_experts=world.n_pes, max_tokens=1)
    y = torch.zeros(found.x.shape).bfloat16()
    y[: len(found.weights)] = torch.tensor([256.0, 1.0, 1.0, 1.0]).repeat(world.n_pes)[:, None].bfloat16()
    out = moe.combine(y, found)
    assert (out == torch.tensor(259.0).bfloat16()).all(), out


def check_moe_exchanges_in_flight(world: Any) -> None:
    first, second = (case(world, [4, 1, 0], seed=seed) for seed in (1, 2))
    me, options = world.pe, {"num_experts": first.num_experts, "max_tokens": first.max_tokens}
    for _ in range(3):
        sent = moe.dispatch_send(first.x[me], first.ids[me], first.weights[me], **options)
        with raises(RuntimeError, "dispatch_send: the last exchange in these slots", "buffer="):
            moe.dispatch_send(first.x[me], first.ids[me], first.weights[me], **options)
        with raises(RuntimeError, "^dispatch: the last exchange"):
            moe.dispatch(first.x[me], first.ids[me], first.weights[me], **options)
        other = moe.dispatch_send(second.x[me], second.ids[me], second.weights[me], **options, buffer=1)
        verify_dispatch(world, first, found := moe.dispatch_receive(sent), 1)
        with raises(RuntimeError, "dispatch_receive: nothing is in flight"):
            moe.dispatch_receive(sent)
        combining = moe.combine_send(computed(world, first, found, torch.bfloat16), found)
        again = moe.dispatch_send(second.x[me], second.ids[me], second.weights[me], **options)
        with raises(RuntimeError, "dispatch_receive: nothing is in flight of this exchange"):
            moe.dispatch_receive(sent)  # though another dispatch is, in the same slots
        verify_dispatch(world, second, moe.dispatch_receive(again), 1)
        verify_dispatch(world, second, found := moe.dispatch_receive(other), 1)
        verify_combine(world, first, moe.combine_receive(combining), torch.bfloat16)
        verify_combine(
            world, second, moe.combine(computed(world, second, found, torch.bfloat16), found), torch.bfloat16
        )


def check_moe_offsets_that_would_overflow(world: Any) -> None:
    n = world.n_pes
    x, ids = torch.zeros(2, 8), torch.zeros(2, 1, dtype=torch.int64)
    with raises(ValueError, "dispatch: the choices of all PEs' max_tokens are", r"fewer than 2\*\*31"):
        moe.dispatch(x, ids, num_experts=n, max_tokens=(1 << 31) // n + 1, expert_capacity=4)
    routing = moe.gather_routing(ids, num_experts=n, max_tokens=2)._replace(max_tokens=1 << 28)
    with raises(ValueError, r"all_gather_grouped_gemm: max_tokens \(268435456\) rows of a are 2147483648 words"):
        moe.all_gather_grouped_gemm(x, torch.zeros(n, 8, 8), routing)
    routing = routing._replace(max_tokens=1 << 25)
    rows = torch.zeros(1, 8).expand(routing.rows, 8)
    with raises(ValueError, "grouped_gemm_reduce_scatter: max_tokens .* rows of chunks of"):
        moe.grouped_gemm_reduce_scatter(rows, torch.zeros(n, 8, 1024), routing)


def check_moe_two_combines_of_one_dispatch(world: Any) -> None:
    """Slots are used again safely also where no dispatch comes between."""
    chosen = case(world, [8, 0, 3], seed=5, routing="some")
    found = dispatched(world, chosen)
    y = computed(world, chosen, found, torch.bfloat16)
    for _ in range(4):
        verify_combine(world, chosen, moe.combine(y, found), torch.bfloat16)


def check_moe_capacity(world: Any) -> None:
    """As few rows as come, and not one more."""
    chosen = case(world, [2], top_k=1, local=1, routing="one")
    rows = 2 * world.n_pes if world.pe == world.n_pes - 1 else 1
    verify_dispatch(world, chosen, dispatched(world, chosen, capacity=rows), 1)


def check_moe_room_of_each_expert(world: Any) -> None:
    chosen = case(world, [4, 1], routing="some", local=2, seed=3)
    found = dispatched(world, chosen, expert_capacity=20)
    assert found.offsets.tolist() == [0, 20, 40] and found.x.shape[0] == 40
    for i in range(2):
        for at, (pe, token, _) in enumerate(expected_rows(chosen, 2 * world.pe + i), 20 * i):
            assert torch.equal(found.x[at], chosen.x[pe][token])
    verify_combine(world, chosen, moe.combine(computed(world, chosen, found, torch.bfloat16), found), torch.bfloat16)


def check_moe_few_programs(world: Any) -> None:
    """Each has several tokens that follow each other, and all get their ranks right."""
    chosen = case(world, [8, 5, 7], top_k=3, local=2, seed=11)
    found = dispatched(world, chosen, sm_margin=2)
    verify_dispatch(world, chosen, found, 1)
    out = moe.combine(computed(world, chosen, found, torch.bfloat16), found, sm_margin=3)
    verify_combine(world, chosen, out, torch.bfloat16)
    with raises(ValueError, r"dispatch: sm_margin must be in \[0, \d+\), got 1000"):
        dispatched(world, chosen, sm_margin=1000)


def check_moe_many_tokens(world: Any) -> None:
    """With several tokens for each multiprocessor ids are counted in parts, whose number need not be a power of two;
    calls and halves of calls take turns in the same slots."""
    many = 40
    for sm_margin, tokens in enumerate(some(([40, 0, 1], [39, 40, 17], [1, 40, 23], [0, 0, 0]))):
        for routing, top_k, local in some((("any", 3, 5), ("one", 1, 1))):
            chosen = case(world, tokens, top_k=top_k, local=local, routing=routing, seed=sm_margin, max_tokens=many)
            for halves in (False, True, False):
                exchange(world, chosen, halves=halves, sm_margin=sm_margin)


def check_moe_rounds(world: Any) -> None:
    """The same results through few slots: as many rounds as the PE with the most tokens needs, or one."""

    @settings(together, max_examples=5)
    @given(
        st.lists(st.integers(0, 23), min_size=3, max_size=3),
        st.sampled_from([1, 2, 3]),
        st.sampled_from(["any", "one", "none", "some"]),
        st.sampled_from([1, 4]),
        st.integers(1, 4),
        st.integers(0, 1 << 16),
    )
    def example(tokens: list[int], top_k: int, routing: str, align: int, num_sms: int, seed: int) -> None:
        chosen = case(world, tokens, top_k=top_k, routing=routing, seed=seed, max_tokens=23)
        exchange(world, chosen, align=align, num_sms=num_sms)

    example()
    for i in range(3):  # the second combine of one dispatch, then the next dispatch
        chosen = case(world, [23, 0, 9], seed=i, max_tokens=23)
        found = dispatched(world, chosen, num_sms=1)
        y = computed(world, chosen, found, torch.bfloat16)
        for _ in range(2):
            verify_combine(world, chosen, moe.combine(y, found), torch.bfloat16)
    for dtype, hidden, n_scales in ((FP8, 272, 3), (torch.float32, 1156, 1), (torch.float16, 8, 0)):
        chosen = case(world, [3, 0, 8], dtype=dtype, hidden=hidden, n_scales=n_scales, seed=hidden)
        exchange(world, chosen, dtype if dtype != FP8 else torch.bfloat16, num_sms=2)


def check_moe_rounds_mistakes(world: Any) -> None:
    x, ids = torch.ones(2, 8).bfloat16(), torch.zeros(2, 2, dtype=torch.int64)
    options: dict[str, Any] = {"num_experts": world.n_pes, "max_tokens": 2}
    for kind, text, num_sms in ((ValueError, r"num_sms must be in \[0, \d+\]", 1000), (TypeError, "num_sms", 1.5)):
        with raises(kind, text):
            moe.dispatch(x, ids, num_sms=num_sms, **options)
    with raises(ValueError, "num_sms says how many SMs work"):
        moe.dispatch(x, ids, num_sms=1, sm_margin=1, **options)
    found = moe.dispatch(x, ids, num_sms=1, **options)
    with raises(ValueError, "combine_send: a dispatch with num_sms goes in rounds and has no halves"):
        moe.combine_send(found.x, found)
    with raises(ValueError, "dispatch_send: a dispatch with num_sms .* sm_margin leaves SMs"):
        moe.dispatch_send(x, ids, num_sms=1, **options)
    with raises(ValueError, "leave out sm_margin"):
        moe.combine(found.x, found, sm_margin=1)


def check_moe_groups(world: Any) -> None:
    """Every other PE, and all but the first, with exchanges of both in between each other."""
    for shape in ((0, 2, (world.n_pes + 1) // 2), (world.n_pes > 1, 1, world.n_pes - (world.n_pes > 1))):
        team = world.team_world.split_strided(*map(int, shape))
        if not team:
            continue
        members = SimpleNamespace(pe=team.my_pe, n_pes=team.n_pes)
        for seed in range(2):
            chosen = case(members, [4, 0, 6], seed=seed)
            found = dispatched(members, chosen, group=team)
            verify_dispatch(members, chosen, found, 1)
            verify_combine(
                members, chosen, moe.combine(computed(members, chosen, found, torch.bfloat16), found), torch.bfloat16
            )


def check_moe_mistakes(world: Any) -> None:
    x, ids, n = torch.ones(2, 8).bfloat16(), torch.zeros(2, 2, dtype=torch.int64), world.n_pes
    options: dict[str, Any] = {"num_experts": n, "max_tokens": 2}

    def wrong(kind: type[Exception], text: str, *arguments: Any, **changed: Any) -> None:
        with raises(kind, text):
            moe.dispatch(*arguments, **(options | changed))

    wrong(TypeError, "dispatch: x must be a torch.Tensor, got list", [1], ids)
    wrong(ValueError, "multiple of 16 bytes, got hidden = 7", x[:, :7].contiguous(), ids)
    wrong(ValueError, "x must be contiguous", x[:, ::2], ids)
    wrong(ValueError, "dispatch: x is the conjugate or the negative", torch._neg_view(x), ids)
    wrong(ValueError, r"x must be \[rows, hidden\]", x.long(), ids)
    wrong(ValueError, r"topk_ids must be \[2, top_k\]", x, ids[:1])
    wrong(ValueError, r"topk_ids must be \[2, top_k\]", x, ids.float())
    wrong(ValueError, "topk_weights must be", x, ids, torch.ones(2, 3))
    wrong(ValueError, "x has 2 tokens, and max_tokens is 1", x, ids, max_tokens=1)
    wrong(ValueError, "align must be at least 1, got 0", x, ids, align=0)
    wrong(ValueError, "expert_capacity stands for", x, ids, expert_capacity=1, capacity=1)
    wrong(ValueError, "scales must be", x, ids, scales=torch.ones(1, 1))
    wrong(ValueError, "top_k must be in", x, ids[:, :0])
    if n > 1:
        wrong(ValueError, f"num_experts must be a multiple of the {n} PEs", x, ids, num_experts=n + 1)
    wrong(ValueError, "num_experts must be at least 1, got 0", x, ids, num_experts=0)
    found = moe.dispatch(x, ids, **options)
    with raises(ValueError, "y must have a row for each"):
        moe.combine(x, found)
    with raises(ValueError, r"y must be \[rows, hidden\]"):
        moe.combine(found.x.to(FP8), found)


if __name__ == "__main__":
    run(globals())
