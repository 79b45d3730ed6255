"""Dispatch and combine of many tokens, several for each multiprocessor: by senders and receivers (``senders.py``)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness import launches, raises, some
from harness import main as run
from hypothesis import given
from hypothesis import strategies as st
from moe import FP8, Case, case, computed, dispatched, exchange, together, verify_combine, verify_dispatch

from triton_dist.kernels import moe
from triton_dist.kernels.device import sms
from triton_dist.kernels.moe import exchange as slots
from triton_dist.kernels.moe import senders
from triton_dist.kernels.moe.senders import senders_of, work_of

MANY = 23
"""More than four for each of the CPU world's four multiprocessors."""


def check_moe_many_routings(world: Any) -> None:
    """With as many multiprocessors as there are, and with so few that each sends and receives."""

    @together
    @given(
        st.lists(st.integers(0, MANY), min_size=3, max_size=3),
        st.sampled_from([1, 2, 3, 9]),
        st.sampled_from([1, 3]),
        st.sampled_from(["any", "one", "none", "some", "even"]),
        st.sampled_from([1, 4]),
        st.integers(0, 3),
        st.integers(0, 1 << 16),
    )
    def example(tokens: list[int], top_k: int, local: int, routing: str, align: int, margin: int, seed: int) -> None:
        chosen = case(world, tokens, top_k=top_k, local=local, routing=routing, seed=seed, max_tokens=MANY)
        exchange_twice(world, chosen, align=align, sm_margin=margin)

    example()


def exchange_twice(world: Any, case: Case, dtype: torch.dtype = torch.bfloat16, *, align: int = 1, **how: Any) -> None:
    """The second combine of one dispatch uses slots again without a dispatch in between."""
    found = dispatched(world, case, align=align, **how)
    verify_dispatch(world, case, found, align)
    y = computed(world, case, found, dtype)
    for _ in range(2):
        verify_combine(world, case, moe.combine(y, found, **how), dtype)


def check_moe_many_or_no_tokens(world: Any) -> None:
    """No tokens on some PEs or on all, and as many as there may be; the same slots again and again."""
    for seed, tokens in enumerate(some(([23, 0, 1], [0, 23, 17], [0, 0, 0], [23, 23, 23]))):
        chosen = case(world, tokens, top_k=3, local=5, seed=seed, max_tokens=MANY)
        exchange_twice(world, chosen, sm_margin=2 * (seed // 3))


def check_moe_many_dtypes_and_scales(world: Any) -> None:
    sizes = (FP8, 272, 3), (torch.float16, 8, 0), (torch.float32, 1156, 1), (FP8, 16, 1), (torch.bfloat16, 1000, 0)
    for i, (dtype, hidden, n_scales) in enumerate(sizes):
        chosen = case(world, [3, 0, 8], dtype=dtype, hidden=hidden, n_scales=n_scales, seed=hidden, max_tokens=MANY)
        exchange_twice(world, chosen, dtype if dtype != FP8 else torch.bfloat16, sm_margin=i % 2)


def check_moe_many_choices(world: Any) -> None:
    """So many that a token's rows are not all loaded at once; and few multiprocessors' capacity is met exactly."""
    chosen = case(world, [17, 2, 0], top_k=33, local=2, hidden=16, seed=4, max_tokens=MANY)
    exchange_twice(world, chosen)
    chosen = case(world, [MANY], top_k=1, local=1, routing="one", max_tokens=MANY)
    rows = MANY * world.n_pes if world.pe == world.n_pes - 1 else 1
    verify_dispatch(world, chosen, dispatched(world, chosen, capacity=rows), 1)


def check_moe_many_bits(world: Any) -> None:
    """Those of rounds and of halves, of numbers whose sums are rounded; each way combines what each dispatched."""
    chosen = case(world, [11, 5, 9], top_k=3, local=4, hidden=136, seed=3, max_tokens=MANY)
    me = world.pe
    generator = torch.Generator().manual_seed(me)
    x = torch.randn(chosen.x[me].shape, generator=generator).bfloat16()
    weights = torch.rand(chosen.weights[me].shape, generator=generator)
    options = {"num_experts": chosen.num_experts, "max_tokens": MANY}
    rounds = moe.dispatch(x, chosen.ids[me], weights, num_sms=2, **options)
    rows = int(rounds.counts.sum())
    y = torch.randn(rounds.x.shape, generator=generator).bfloat16()
    for buffer, margin in some(((1, 1), (0, 0))):
        how = {"buffer": buffer, "sm_margin": margin}
        whole = moe.dispatch(x, chosen.ids[me], weights, **options, **how)
        sent = moe.dispatch_send(x, chosen.ids[me], weights, **options, **how)
        between = moe.dispatch(x, chosen.ids[me], weights, **options, **how)  # in slots of its own
        halves = moe.dispatch_receive(sent)
        for found in (whole, halves) if margin else (whole, between, halves):
            for name in ("x", "weights", "choices"):
                assert torch.equal(getattr(found, name)[:rows], getattr(rounds, name)[:rows]), name
            assert torch.equal(found.counts, rounds.counts) and torch.equal(found.offsets, rounds.offsets)
            for weighted in (True, False)[: 2 - margin]:
                expected = moe.combine(y, rounds, weighted=weighted)
                assert torch.equal(moe.combine(y, found, weighted=weighted, **how), expected)
                combining = moe.combine_send(y, found, weighted=weighted, **how)
                assert torch.equal(moe.combine(y, found, weighted=weighted, buffer=2), expected)
                assert torch.equal(moe.combine_receive(combining), expected)
                assert torch.equal(moe.functional.combine(y, found, weighted=weighted), expected)


def check_moe_many_gradients_of_halves(world: Any) -> None:
    """A combine of what halves received has the gradients of one of a whole dispatch's result."""
    chosen = case(world, [20, 3, MANY], seed=6, max_tokens=MANY)
    me = world.pe
    x, ids, weights = chosen.x[me], chosen.ids[me], chosen.weights[me]
    options = {"num_experts": chosen.num_experts, "max_tokens": MANY}
    gradients = []
    for found in (
        moe.dispatch_receive(moe.dispatch_send(x, ids, weights, **options)),
        moe.functional.dispatch(x, ids, weights, **options),
    ):
        rows = int(found.counts.sum())
        y = torch.zeros(found.x.shape, dtype=torch.bfloat16)
        y[:rows] = found.x[:rows]
        y.requires_grad_()
        moe.functional.combine(y, found, weights).float().square().sum().backward()
        gradients.append(y.grad[:rows])
    assert gradients[0].abs().sum() > 0 and torch.equal(*gradients)


def check_moe_many_programs(world: Any) -> None:
    """``sm_margin`` leaves multiprocessors to others in fact: the rest have one program each, and without it four."""
    chosen = case(world, [MANY, 9], seed=8, max_tokens=MANY)
    with pytest.MonkeyPatch.context() as patch:
        for module in (senders, slots):
            patch.setattr(module, "has_gpu_sizes", lambda: True)
        for halves, count in ((False, 3), (True, 2)):
            for margin in some((1, 3, 0)):
                with launches() as launched:
                    if halves:
                        sent = sent_half(world, chosen, sm_margin=margin)
                        verify_dispatch(world, chosen, moe.dispatch_receive(sent), 1)
                    else:
                        exchange_twice(world, chosen, sm_margin=margin)
                per_sm = 1 if margin else 4
                programs = [launch.programs for launch in launched]
                assert programs == [per_sm * (sms() - margin)] * count, programs


def sent_half(world: Any, case: Case, **how: Any) -> moe.Sent:
    tokens = case.x[world.pe], case.ids[world.pe], case.weights[world.pe]
    return moe.dispatch_send(*tokens, num_experts=case.num_experts, max_tokens=case.max_tokens, **how)


def check_moe_many_mistakes(world: Any) -> None:
    chosen = case(world, [3, 1], max_tokens=MANY)
    with raises(ValueError, r"dispatch: sm_margin must be in \[0, \d+\), got 1000"):
        dispatched(world, chosen, sm_margin=1000)
    found = dispatched(world, chosen)
    with raises(ValueError, r"combine: sm_margin must be in \[0, \d+\), got 1000"):
        moe.combine(found.x, found, sm_margin=1000)
    exchange(world, chosen)


def check_moe_many_senders(world: Any) -> None:
    """Of any number of multiprocessors at least one sends and one receives, and those that count ids do not send."""
    for n_pes in (1, 2, 3, 8, 72):
        for top_k in (1, 2, 8, 64):
            work = work_of(n_pes, top_k)
            assert 0 <= work.leaves <= 1 and 0 <= work.stays <= 1 and 0 <= work.crosses <= min(top_k, n_pes - 1) + 1e-9
            for n in range(1, 200):
                senders = senders_of(work.leaves + work.crosses, work.stays + 3 * work.crosses + top_k, n)
                assert 1 <= senders <= max(1, n // 2)


if __name__ == "__main__":
    run(globals())
