"""Dispatch, combine, grouped GEMMs and a layer of experts, as one PE of some: on GPUs, or in the CPU world.

    torchrun --nproc-per-node 2 tests/gpu/worker_moe.py [CHECK...]

PE 0 prints a line for each check. Every result is compared with what this PE computes alone from all PEs' tokens.
Between hosts, also pretended ones (``TRITON_DIST_TOPOLOGY=2x1``), checks of what loads and stores at all peers are left
out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from ops.grouped_gemms import grouped_gemms_with_scales_of_blocks
from worker_checks import run_checks

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.device import sms
from triton_dist.kernels.moe import functional_tensor_parallel_gradients as slices
from triton_dist.kernels.moe import rounds_plan
from triton_dist.kernels.moe.swiglu import swiglu_of_rows
from triton_dist.nn import MoE

ON_GPU = triton_dist.kind() == "gpu"
HIDDEN, MAX_TOKENS, TOP_K, LOCAL = (7168, 128, 8, 32) if ON_GPU else (64, 6, 3, 2)
ROUNDS = 50 if ON_GPU else 3
MANY, SMS = (2000, 24) if ON_GPU else (21, 2)
"""Tokens that go by senders and receivers or in rounds, and by how many programs."""
FP8 = torch.float8_e4m3fn
Result = TypeVar("Result")


def fitting(programs: int) -> int:
    """So many, or as many as fit into this PE's part of a GPU that PEs share."""
    return min(programs, sms())


class Tokens(NamedTuple):
    """Of all PEs, a row for each; ``counts`` of them are used."""

    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    counts: list[int]


def tokens(
    world: Any, seed: int, skew: float = 0.0, dtype: torch.dtype = torch.bfloat16, room: int = MAX_TOKENS
) -> Tokens:
    n = world.n_pes
    generator = torch.Generator().manual_seed(seed)
    counts = [int(c) for c in torch.randint(0, room + 1, (n,), generator=generator)]
    counts[seed % n] = room if seed % 3 else 0
    ids = torch.randint(0, n * LOCAL, (n, room, TOP_K), generator=generator)
    ids[torch.rand(ids.shape, generator=generator) < skew] = 1
    ids[torch.rand(ids.shape, generator=generator) < 0.1] = -1
    weights = torch.randint(1, 5, ids.shape, generator=generator) / 4
    device = world.device
    # Made where they are: a CPU takes seconds for those of many tokens. Equal GPUs make equal ones.
    on_device = torch.Generator(device).manual_seed(seed)
    x = torch.randint(-8, 8, (n, room, HIDDEN), generator=on_device, device=device, dtype=torch.float16)
    return Tokens(x.to(dtype), ids.to(device), weights.to(device), counts)


def rows_of(world: Any, given: Tokens) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """PE and token of this PE's rows, in their order, and their local experts."""
    pe, token, _ = torch.meshgrid(*(torch.arange(s, device=world.device) for s in given.ids.shape), indexing="ij")
    limits = torch.tensor(given.counts, device=world.device)[:, None, None]
    local = given.ids - world.pe * LOCAL
    used = (local >= 0) & (local < LOCAL) & (token < limits)
    order = torch.argsort(local[used], stable=True)
    return pe[used][order], token[used][order], local[used][order]


def call(world: Any, given: Tokens, **options: Any) -> moe.Dispatched:
    me, n = world.pe, given.counts[world.pe]
    arguments = [tensor[me, :n] for tensor in given[:3]]
    return moe.dispatch(*arguments, **({"num_experts": world.n_pes * LOCAL, "max_tokens": MAX_TOKENS} | options))


def verify(world: Any, given: Tokens, found: moe.Dispatched) -> None:
    pe, token, local = rows_of(world, given)
    counts = torch.bincount(local, minlength=LOCAL)
    assert torch.equal(found.counts.long(), counts), f"PE {world.pe}: counts"
    assert torch.equal(found.offsets[1:].long(), counts.cumsum(0)), f"PE {world.pe}: offsets"
    assert torch.equal(found.x[: len(pe)].float(), given.x[pe, token].float()), f"PE {world.pe}: rows"


def times_expert(found: moe.Dispatched, first: int) -> torch.Tensor:
    """What experts might do: expert e multiplies by e mod 4 + 1."""
    rows = torch.arange(len(found.x), device=found.x.device)
    local = torch.searchsorted(found.offsets[1:].long(), rows, right=True)
    return (found.x.float() * ((first + local) % 4 + 1)[:, None]).bfloat16()


def verify_combine(world: Any, given: Tokens, out: torch.Tensor) -> None:
    me, n = world.pe, given.counts[world.pe]
    x, ids, weights = given.x[me, :n].float(), given.ids[me, :n], given.weights[me, :n]
    total, grid = torch.zeros_like(x), communicator_of().grid
    sums = [torch.zeros_like(x) for _ in range(grid.hosts)]
    for pe in range(world.n_pes):
        there = (ids >= 0) & (ids // LOCAL == pe)
        factor = torch.where(there, weights * (ids % 4 + 1), 0.0).sum(1, keepdim=True)  # sums of these are exact
        sums[grid.place_of(pe)[0]] += (x * factor).bfloat16().float()
    for of_host in sums:
        total += of_host if grid.hosts == 1 else of_host.bfloat16().float()
    assert torch.equal(out, total.bfloat16()), f"PE {me}: {(out != total.bfloat16()).sum().item()} elements are wrong"


def dispatch_and_combine(world: Any) -> None:
    for seed in range(ROUNDS):
        given = tokens(world, seed, skew=(0.0, 0.5, 1.0)[seed % 3])
        found = call(world, given)
        verify(world, given, found)
        verify_combine(world, given, moe.combine(times_expert(found, world.pe * LOCAL), found))


def many_tokens(world: Any) -> None:
    """By senders and receivers, also by few programs; halves take what whole calls leave, and the other way round."""
    me, scales_of = world.pe, torch.Generator().manual_seed(5)
    options = {"num_experts": world.n_pes * LOCAL, "max_tokens": MANY}
    for seed in range(ROUNDS // 5 + 2):
        given = tokens(world, seed, skew=(0.0, 0.5, 1.0)[seed % 3], room=MANY)
        margin = {"sm_margin": 1 if seed % 3 == 2 else 0}
        for _ in range(3):
            found = call(world, given, **options, **margin)
            y = times_expert(found, me * LOCAL)
            out = moe.combine(y, found, **margin)
        verify(world, given, found)
        verify_combine(world, given, out)
        verify_combine(world, given, moe.combine_receive(moe.combine_send(y, found)))
        received = moe.dispatch_receive(
            moe.dispatch_send(*(tensor[me, : given.counts[me]] for tensor in given[:3]), **options)
        )
        verify(world, given, received)
        verify_combine(world, given, moe.combine(y, received))
    given = tokens(world, 7, dtype=FP8, room=MANY)
    scales = torch.rand((world.n_pes, MANY, -(-HIDDEN // 128)), generator=scales_of).to(world.device)
    found = call(world, given, scales=scales[me, : given.counts[me]], **options)
    verify(world, given, found)
    pe, token, _ = rows_of(world, given)
    assert found.scales is not None and torch.equal(found.scales[: len(pe)], scales[pe, token])


def rounds(world: Any) -> None:
    """Thousands of tokens through slots for a few, and calls without a pause in between."""
    options = {"max_tokens": MANY, "num_sms": SMS}
    for seed in range(ROUNDS // 5 + 2):
        given = tokens(world, seed, skew=(0.0, 0.5, 1.0)[seed % 3], room=MANY)
        for _ in range(3):
            found = call(world, given, **options)
            y = times_expert(found, world.pe * LOCAL)
            out = moe.combine(y, found)
        verify(world, given, found)
        verify_combine(world, given, out)
        verify_combine(world, given, moe.combine(y, found))
    given = tokens(world, 7, dtype=FP8, room=MANY)
    n_scales = -(-HIDDEN // 128)
    scales = torch.rand((world.n_pes, MANY, n_scales), generator=torch.Generator().manual_seed(5)).to(world.device)
    found = call(world, given, scales=scales[world.pe, : given.counts[world.pe]], **options)
    verify(world, given, found)
    pe, token, _ = rows_of(world, given)
    assert found.scales is not None and torch.equal(found.scales[: len(pe)], scales[pe, token])


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])


def verify_same(found: moe.Dispatched, expected: moe.Dispatched, what: str) -> None:
    """The rows that are used, and all that says which they are, have the same bits."""
    assert torch.equal(found.counts, expected.counts), f"{what}: counts"
    assert torch.equal(found.offsets, expected.offsets), f"{what}: offsets"
    rows = torch.arange(len(expected.x), device=expected.x.device)
    used = torch.zeros_like(rows, dtype=torch.bool)
    for begin, count in zip(expected.offsets[:-1].tolist(), expected.counts.tolist(), strict=True):
        used[begin : begin + count] = True
    for name in ("x", "scales", "weights", "choices"):
        mine, other = getattr(found, name), getattr(expected, name)
        assert (mine is None) == (other is None)
        if mine is not None:
            wrong = (bits(mine[used]) != bits(other[used])).sum().item()
            assert not wrong, f"{what}: {wrong} elements of {name} differ"


def rounds_by_tma(world: Any) -> None:
    """What ``dispatch`` takes in rounds against load and store: the same bits, on Hopper GPUs by two kernels of TMA."""
    me, n, device = world.pe, world.n_pes, world.device
    n_scales = -(-HIDDEN // 128)
    random = torch.Generator(device).manual_seed(me)
    sizes: dict[str, Any] = {"num_experts": n * LOCAL, "max_tokens": MANY}
    groups = [None, *([world.team_world.split_strided(0, 1, 2)] if n > 2 and LOCAL % 2 == 0 else [])]
    for seed, (dtype, programs, scales) in enumerate(
        (dtype, programs, scales)
        for dtype, scales in ((torch.bfloat16, 0), (FP8, n_scales), (torch.float32, 1))
        for programs in ((SMS, 1, fitting(64)) if ON_GPU else (SMS, 1, 3))
    ):
        given = tokens(world, seed, skew=(0.0, 0.5, 1.0)[seed % 3], room=MANY)
        t = given.counts[me]
        rows = [torch.randn((t, HIDDEN), generator=random, device=device).to(dtype) for _ in range(2)]
        weights = torch.rand((t, TOP_K), generator=random, device=device)
        ids = given.ids[me, :t].to(torch.int32 if seed % 2 else torch.int64)
        options: dict[str, Any] = sizes | {"num_sms": programs, "align": 1 if dtype == FP8 else 128}
        if scales:
            options["scales"] = torch.rand((t, scales), generator=random, device=device)
        for group in groups:
            if group is not None and not group:
                continue
            expected = [moe.dispatch(x, ids, weights, algorithm="portable", group=group, **options) for x in rows]
            # Without a pause in between, beside other slots, and of other rows in turn: what is left of the call in
            # front is wrong.
            calls = [moe.dispatch(rows[i % 2], ids, weights, buffer=i // 4, group=group, **options) for i in range(8)]
            for i, found in enumerate(calls):
                verify_same(found, expected[i % 2], f"PE {me}, {dtype}, {programs} programs, call {i}")


def combines_by_tma(world: Any) -> None:
    """What ``combine`` takes in rounds against load and store: the same bits, for rows of all kinds."""
    me, n, device = world.pe, world.n_pes, world.device
    random = torch.Generator(device).manual_seed(me)
    groups = [None, *([world.team_world.split_strided(0, 1, 2)] if n > 2 and LOCAL % 2 == 0 else [])]
    kinds = (
        (
            (7168, torch.bfloat16, True),
            (1472, torch.float16, False),
            (4224, torch.float32, True),
            (1024, torch.bfloat16, False),
        )
        if ON_GPU
        else ((64, torch.bfloat16, True), (32, torch.float32, False))
    )
    for seed, programs in enumerate((SMS, 1, fitting(64), SMS) if ON_GPU else (SMS, 1)):
        given = tokens(world, seed, skew=(0.0, 0.5, 1.0)[seed % 3], room=MANY)
        t = given.counts[me]
        ids = given.ids[me, :t].to(torch.int32 if seed % 2 else torch.int64)
        weights = torch.rand((t, TOP_K), generator=random, device=device)
        x = torch.zeros((t, 64), dtype=torch.bfloat16, device=device)
        options: dict[str, Any] = {"num_experts": n * LOCAL, "max_tokens": MANY, "num_sms": programs}
        for group in groups:
            if group is not None and not group:
                continue
            found = moe.dispatch(x, ids, weights, group=group, **options)
            for hidden, dtype, weighted in kinds:
                y = torch.randn((len(found.x), hidden), generator=random, device=device).to(dtype)
                other = torch.randn(y.shape, generator=random, device=device).to(dtype)
                expected = [moe.combine(of, found, weighted=weighted, algorithm="portable") for of in (y, other)]
                # In calls without a pause in between, of two kinds of rows, so that what is left of others differs.
                calls = [
                    (i % 2, moe.combine((y, other)[i % 2], found, weighted=weighted, buffer=i // 4)) for i in range(8)
                ]
                for which, out in calls:
                    different = (bits(out) != bits(expected[which])).any(dim=1).nonzero().flatten().tolist()
                    assert not different, f"PE {me}: {hidden} of {dtype}, {programs} programs: tokens {different}"


def rounds_of_one_choice(world: Any) -> None:
    """Each token to one expert, as ``benchmarks/moe.py --only kraken`` does, with slots that hold zeros: few additions
    for a row, so rows follow each other as fast as they can, and what is read too early is wrong. On 2 H200s three in
    ten of the first dispatches of communicators were, by 64 SMs or more (docs/decisions/0125)."""
    me, n, device = world.pe, world.n_pes, world.device
    tokens_, hidden, numbers = (4096, 4096, (64, 16, 96, 24, 128)) if ON_GPU else (21, 512, (2, 3))
    repeats, in_turn = (8, 3) if ON_GPU else (2, 1)
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 4 * n, (n, tokens_, 1), generator=generator).to(device)
    weights = (torch.randint(1, 5, ids.shape, generator=generator) / 4).to(device)
    on_device = torch.Generator(device).manual_seed(3)
    x = torch.randint(-8, 9, (n, tokens_, hidden), generator=on_device, device=device, dtype=torch.float16).bfloat16()
    exact = (x[me].float() * weights[me]).bfloat16()
    given = x[me], ids[me], weights[me]
    for programs in map(fitting, numbers):
        options: dict[str, Any] = {"num_experts": 4 * n, "max_tokens": tokens_, "num_sms": programs}
        want = moe.dispatch(*given, **options, algorithm="portable")
        rows = want.x[: int(want.counts.sum())]
        for _ in range(repeats):
            with kernels.Communicator() as comm:
                results = []
                for _ in range(in_turn):  # without a pause in between
                    found = moe.dispatch(*given, **options, group=comm)
                    assert found.routing.plan is not None or not rounds_plan.is_hopper(), "by load and store"
                    results.append((found.x[: len(rows)], moe.combine(found.x, found), moe.combine(want.x, found)))
                for number, (x_found, back, sums) in enumerate(results):
                    what = f"PE {me}, {programs} programs, call {number}"
                    verify_rows(x_found, rows, f"{what}, a dispatch")
                    verify_rows(back, exact, f"{what}, what came back")
                    verify_rows(sums, exact, f"{what}, a combine")


def verify_rows(here: torch.Tensor, right: torch.Tensor, what: str) -> None:
    wrong = (here != right).any(dim=1).nonzero().flatten().tolist()
    others = [(here[i] == right).all(dim=1).nonzero().flatten().tolist() for i in wrong[:4]]
    assert not wrong, f"{what}: {len(wrong)} rows are wrong, first {wrong[:8]}, which hold rows {others}"


class Sent(NamedTuple):
    """What a PE passes to ``dispatch_tokens``, or what comes to one."""

    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    scales: torch.Tensor | None

    def goes(self, rank: int, local: int) -> torch.Tensor:
        """Which choices are of the experts of a rank, of which each has as many."""
        return (self.ids >= 0) & (self.ids // local == rank)


def received_by(sent: list[Sent], rank: int, local: int) -> Sent:
    """What comes to a rank of what all ranks send."""
    parts = []
    for one in sent:
        here = one.goes(rank, local)
        ids, weights = torch.where(here, one.ids - rank * local, -1), torch.where(here, one.weights, 0.0)
        there = here.any(dim=-1)
        parts.append(Sent(*(None if of is None else of[there] for of in (one.x, ids, weights, one.scales))))
    return Sent(*(None if of[0] is None else torch.cat(of) for of in zip(*parts, strict=True)))


def sums_at(sent: list[Sent], rank: int, local: int, ys: list[torch.Tensor], hosts: int) -> torch.Tensor:
    """The sums of a rank's tokens of the rows ``ys`` that the ranks have for what came: in float32, by rank; those of a
    host are rounded before they leave it."""
    of_hosts = torch.zeros((hosts, len(sent[rank].x), ys[0].shape[1]), device=ys[0].device)
    for other, y in enumerate(ys):
        counts = [int(one.goes(other, local).any(dim=-1).sum()) for one in sent[: rank + 1]]
        there = sent[rank].goes(other, local).any(dim=-1)
        of_hosts[other * hosts // len(ys)][there] += y[sum(counts[:-1]) : sum(counts)].float()
    return of_hosts.to(ys[0].dtype).float().sum(dim=0).to(ys[0].dtype)


class Kind(NamedTuple):
    """Of rows, and by how many programs they go."""

    hidden: int
    dtype: torch.dtype
    n_scales: int
    programs: int

    @property
    def of_sums(self) -> torch.dtype:
        return torch.bfloat16 if self.dtype == FP8 else self.dtype

    def rows(self, world: Any, number: int, pe: int, count: int) -> torch.Tensor:
        """Random rows that all PEs can make: those of this ``number`` of any PE."""
        random = torch.Generator(world.device).manual_seed(1000 * number + pe)
        return torch.randn((count, self.hidden), generator=random, device=world.device)

    def sent_by(self, world: Any, given: Tokens, number: int, pe: int) -> Sent:
        t = given.counts[pe]
        x, others = self.rows(world, 4 * number, pe, t), self.rows(world, 4 * number + 1, pe, t).abs()
        scales = others[:, : self.n_scales].contiguous() if self.n_scales else None
        ids = given.ids[pe, :t].to(torch.int32 if number % 2 else torch.int64)
        return Sent(x.to(self.dtype), ids, others[:, -TOP_K:].contiguous(), scales)


def tokens_once(world: Any) -> None:
    """``dispatch_tokens``, to slots or a symmetric result, and ``combine_tokens`` by TMA, bit by bit, in calls without
    a pause."""
    me, n = world.pe, world.n_pes
    kinds = (
        (Kind(HIDDEN, FP8, HIDDEN // 128, SMS), Kind(HIDDEN, torch.bfloat16, 0, SMS), Kind(4224, torch.float32, 1, 7),
         Kind(1472, torch.float16, 0, fitting(64)), Kind(1024, FP8, 3, 1))
        if ON_GPU
        else (Kind(512, torch.bfloat16, 0, SMS), Kind(32, torch.float32, 1, 1))
    )  # fmt: skip
    groups = [None, *([world.team_world.split_strided(0, 1, 2)] if n > 2 and LOCAL % 2 == 0 else [])]
    for seed, kind in enumerate(kinds):
        for group in groups:
            if group is not None and not group:
                continue
            members = range(n if group is None else 2)
            local, hosts = n * LOCAL // len(members), communicator_of(group).grid.hosts
            options = {"num_experts": n * LOCAL, "max_tokens": MANY, "num_sms": kind.programs, "group": group}
            calls, expected = [], []
            for i in range(2):
                number = 2 * seed + i
                given = tokens(world, number, skew=(0.0, 0.5, 1.0)[seed % 3], room=MANY)
                sent = [kind.sent_by(world, given, number, pe) for pe in members]
                received = [received_by(sent, rank, local) for rank in members]
                ys = [kind.rows(world, 4 * number + 2, pe, len(received[pe].x)).to(kind.of_sums) for pe in members]
                y = torch.full((len(members) * MANY, kind.hidden), torch.nan, dtype=kind.of_sums, device=world.device)
                y[: len(ys[me])] = ys[me]
                x, ids, weights, scales = sent[me]
                calls.append(((x, ids, weights), options | {"scales": scales}, y))
                expected.append((received[me], sums_at(sent, me, local, ys, hosts)))
            found, place = [], result_of(kind.hidden, kind.dtype, group)
            for i in range(8):  # in turn, in the slots of two buffers
                arguments, named, y = calls[i % 2]
                here = moe.dispatch_tokens(*arguments, **named, buffer=i // 4, out=place if i % 4 > 1 else None)
                found.append((here._replace(x=here.x.clone()), moe.combine_tokens(y, here, buffer=i // 4)))
            for i, (here, out) in enumerate(found):
                what = f"PE {me}: call {i} of {kind}"
                want, sums = expected[i % 2]
                verify_received(here, want, what)
                assert torch.equal(bits(out), bits(sums)), f"{what}: sums"


def result_of(hidden: int, dtype: torch.dtype, group: Any) -> torch.Tensor:
    """A symmetric result of ``dispatch_tokens``."""
    comm = communicator_of(group)
    return comm.empty(comm.n_pes * MANY, hidden, dtype=dtype)


def verify_received(here: moe.DispatchedTokens, want: Sent, what: str) -> None:
    rows = len(want.x)
    assert int(here.n_rows) == rows, f"{what}: {int(here.n_rows)} rows, not {rows}"
    assert torch.equal(bits(here.x[:rows]), bits(want.x)), f"{what}: rows"
    assert here.topk_ids is not None and torch.equal(here.topk_ids[:rows], want.ids), f"{what}: ids"
    assert bool((here.topk_ids[rows:] == -1).all()), f"{what}: ids behind the last row"
    assert here.topk_weights is not None and torch.equal(here.topk_weights[:rows], want.weights), f"{what}: weights"
    if want.scales is not None:
        assert here.scales is not None and torch.equal(here.scales[:rows], want.scales), f"{what}: scales"


def verify_tokens(here: moe.DispatchedTokens, want: moe.DispatchedTokens, what: str) -> None:
    rows = int(want.n_rows)
    assert want.topk_ids is not None and want.topk_weights is not None
    scales = None if want.scales is None else want.scales[:rows]
    verify_received(here, Sent(want.x[:rows], want.topk_ids[:rows], want.topk_weights[:rows], scales), what)
    assert here.topk_ids is not None and torch.equal(here.topk_ids, want.topk_ids), f"{what}: ids"
    assert here.topk_weights is not None and torch.equal(here.topk_weights, want.topk_weights), f"{what}: weights"


def graphs_of_tokens(world: Any) -> None:
    """Two graphs, of which one stores to a symmetric result, replayed in any order, with other routings each time."""
    me, device = world.pe, world.device
    random = torch.Generator(device).manual_seed(me)
    options: dict[str, Any] = {"num_experts": world.n_pes * LOCAL, "max_tokens": MANY, "num_sms": SMS}
    graphs = []
    for dtype, t in ((FP8, MANY), (torch.bfloat16, MANY // 3)):
        x = torch.randn((t, HIDDEN), generator=random, device=device).to(dtype)
        scales = torch.rand((t, HIDDEN // 128 or 1), generator=random, device=device) if dtype == FP8 else None
        ids = tokens(world, 1, room=t).ids[me].contiguous()
        weights = torch.rand(ids.shape, generator=random, device=device)
        y = torch.randn((world.n_pes * MANY, HIDDEN), generator=random, device=device).bfloat16()
        given = (x, ids, weights), options | {"scales": scales}
        place = result_of(HIDDEN, dtype, None) if dtype == FP8 else None

        def step(given: Any = given, y: torch.Tensor = y, place: Any = place) -> tuple[Any, torch.Tensor]:
            found = moe.dispatch_tokens(*given[0], **given[1], out=place)
            return found, moe.combine_tokens(y, found)

        graphs.append((*captured(step), given, y) if ON_GPU else (None, step, given, y))
    for i, which in enumerate((0, 1, 1, 0, 0, 1, 0)):
        graph, result, given, y = graphs[which]
        x, ids, _ = given[0]
        ids.copy_(tokens(world, 10 + i, skew=(0.0, 0.5, 1.0)[i % 3], room=len(ids)).ids[me])
        x.copy_(torch.randn(x.shape, generator=random, device=device).to(x.dtype))
        if graph is not None:
            graph.replay()
        found, out = result if graph is not None else result()
        want = moe.dispatch_tokens(*given[0], **given[1], algorithm="portable")
        verify_tokens(found, want, f"PE {me}, replay {i}")
        assert torch.equal(bits(out), bits(moe.combine_tokens(y, want, algorithm="portable"))), f"PE {me}, replay {i}"


def tokens_of_communicators(world: Any) -> None:
    """Some communicators at a time, each on a stream of its own."""
    me, device = world.pe, world.device
    random = torch.Generator(device).manual_seed(me)
    given = tokens(world, 4, room=MANY)
    t, number = given.counts[me], 4 if ON_GPU else 1
    communicators = [kernels.Communicator() for _ in range(number)]
    streams = [torch.cuda.Stream() for _ in communicators] if ON_GPU else [None]
    x = torch.randn((t, HIDDEN), generator=random, device=device).bfloat16()
    arguments = x, given.ids[me, :t].contiguous(), given.weights[me, :t].contiguous()
    options: dict[str, Any] = {"num_experts": world.n_pes * LOCAL, "max_tokens": MANY, "num_sms": SMS}
    want = moe.dispatch_tokens(*arguments, **options, algorithm="portable")
    sums = moe.combine_tokens(want.x, want, algorithm="portable")
    if ON_GPU:
        torch.cuda.synchronize()
    found = []
    for _ in range(5):
        for communicator, stream in zip(communicators, streams, strict=True):
            with torch.cuda.stream(stream):
                here = moe.dispatch_tokens(*arguments, **options, group=communicator)
                found.append((here, moe.combine_tokens(here.x, here)))
    if ON_GPU:
        torch.cuda.synchronize()
    for i, (here, out) in enumerate(found):
        verify_tokens(here, want, f"PE {me}, call {i}")
        assert torch.equal(bits(out), bits(sums)), f"PE {me}, call {i}: sums"
    for communicator in communicators:
        communicator.close()


def tokens_on_many_streams(world: Any) -> None:
    """Calls of three kinds and several groups in turn, which overlap where there are more than two PEs, each on another
    of forty streams, behind the one in front, and of other rows each time."""
    me, n, device = world.pe, world.n_pes, world.device
    random = torch.Generator(device).manual_seed(me)
    calls, programs, t = (120, fitting(64), MANY // 2) if ON_GPU else (6, 3, MANY)
    communicator = kernels.Communicator()
    groups: list[Any] = [None, communicator]
    if n > 2 and LOCAL % 2 == 0:
        groups += [world.team_world.split_strided(first, 1, 2) for first in (0, 1)]
    rows = [torch.randn((t, HIDDEN), generator=random, device=device).bfloat16() for _ in range(5)]
    places = [result_of(HIDDEN, torch.bfloat16, group) if group is None or group else None for group in groups]
    given = tokens(world, 1, room=t)
    ids, weights = given.ids[me].contiguous(), given.weights[me].contiguous()
    options: dict[str, Any] = {"num_experts": n * LOCAL, "max_tokens": MANY}

    def exchange(i: int, **chosen: Any) -> list[torch.Tensor]:
        x, group = rows[i % 5], groups[i % len(groups)]
        of = options | chosen | {"group": group, "num_sms": SMS if i % 3 == 0 else programs}
        if i % 3 == 2:
            by_choice = moe.dispatch(x, ids, weights, **of)
            return [moe.combine(by_choice.x, by_choice)]
        found = moe.dispatch_tokens(x, ids, weights, **of, out=places[i % len(groups)] if i % 3 else None)
        come = torch.arange(len(found.x), device=device)[:, None] < found.n_rows
        return [torch.where(come, found.x, 0), moe.combine_tokens(found.x, found)]

    mine = [i for i in range(calls) if groups[i % len(groups)] is None or groups[i % len(groups)]]
    expected = {i: exchange(i, algorithm="portable") for i in mine if i < 60}  # calls repeat after 5 · 3 · 4
    for i in mine:
        if i < 12:
            exchange(i)  # allocates workspace
    results = {}
    if ON_GPU:
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(40)]
        in_front = torch.cuda.current_stream()
        for i in mine:
            stream = streams[7 * i % 40]
            stream.wait_stream(in_front)
            with torch.cuda.stream(stream):
                results[i] = exchange(i)
            in_front = stream
        torch.cuda.synchronize()
    else:
        results = {i: exchange(i) for i in mine}
    for i, found in results.items():
        for one, want in zip(found, expected[i % 60], strict=True):
            assert torch.equal(bits(one), bits(want)), f"PE {me}, call {i}"
    communicator.close()


def graphs_of_rounds_by_tma(world: Any) -> None:
    graphs_with_other_routings(world, SMS, MANY)


def fp8_with_scales(world: Any) -> None:
    given = tokens(world, 1, dtype=FP8)
    n_scales = -(-HIDDEN // 128)
    shape = (world.n_pes, MAX_TOKENS, n_scales)
    scales = torch.rand(shape, generator=torch.Generator().manual_seed(5)).to(world.device)
    found = call(world, given, scales=scales[world.pe, : given.counts[world.pe]])
    verify(world, given, found)
    pe, token, _ = rows_of(world, given)
    assert found.scales is not None and torch.equal(found.scales[: len(pe)], scales[pe, token])


def halves(world: Any) -> None:
    options = {"num_experts": world.n_pes * LOCAL, "max_tokens": MAX_TOKENS}
    for seed in range(ROUNDS):
        given, me = tokens(world, seed), world.pe
        sent = moe.dispatch_send(*(tensor[me, : given.counts[me]] for tensor in given[:3]), **options)
        found = moe.dispatch_receive(sent)
        verify(world, given, found)
        combining = moe.combine_send(times_expert(found, me * LOCAL), found)
        verify_combine(world, given, moe.combine_receive(combining))


def captured(step: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """A graph of two steps without a pause in between, after a first step, and what its second step returns."""
    step()
    torch.cuda.synchronize()
    triton_dist.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
        result = step()
    return graph, result


def replay_twice(graph: torch.cuda.CUDAGraph, found: Sequence[torch.Tensor]) -> None:
    """Replay behind other operands, then behind the same ones: ``found`` has the same bits."""
    graph.replay()
    firsts = [tensor.clone() for tensor in found]
    graph.replay()
    assert all(torch.equal(first, second) for first, second in zip(firsts, found, strict=True))


def graphs_with_other_routings(world: Any, num_sms: int = 0, room: int = MAX_TOKENS) -> None:
    """A graph of two layers is replayed with ids, weights and tokens that change, without a pause in between."""
    if not ON_GPU:
        return
    cases = [tokens(world, seed, room=room)._replace(counts=[room] * world.n_pes) for seed in range(8)]
    me = world.pe
    static = [tensor[me].clone() for tensor in cases[0][:3]]
    options = {"num_experts": world.n_pes * LOCAL, "max_tokens": room, "num_sms": num_sms}

    def step() -> tuple[moe.Dispatched, torch.Tensor]:
        found = moe.dispatch(*static, **options)
        return found, moe.combine(times_expert(found, me * LOCAL), found)

    graph, (found, out) = captured(step)
    for given in cases * 3:
        for place, tensor in zip(static, given[:3], strict=True):
            place.copy_(tensor[me])
        graph.replay()
        kept = found._replace(x=found.x.clone(), memory=found.memory.clone())
        result = out.clone()
        graph.replay()
        verify(world, given, kept)
        verify_combine(world, given, result)


def graphs_of_many_tokens(world: Any) -> None:
    graphs_with_other_routings(world, room=MANY)


def graphs_of_rounds(world: Any) -> None:
    graphs_with_other_routings(world, SMS)


def grouped_gemms(world: Any) -> None:
    for columns in (768, 400) if ON_GPU else (24,):  # which fill tiles, and not
        grouped_gemms_of(world, columns)
    grouped_gemms_with_scales_of_blocks(world)


def grouped_gemms_of(world: Any, columns: int) -> None:
    inner = 512 if ON_GPU else 40
    counts = [0, 1, 130, 64, 3, 200, 0, 17] if ON_GPU else [0, 3, 17]
    device = world.device
    counted = torch.tensor(counts, dtype=torch.int32, device=device)
    offsets = torch.cat([counted.new_zeros(1), counted.cumsum(0)]).int()
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(-1, 2, (sum(counts), inner), generator=generator).to(device)
    b = torch.randint(-1, 2, (len(counts), inner, columns), generator=generator).to(device)
    expected = torch.cat([x.float() @ y.float() for x, y in zip(a.split(counts), b, strict=True)])
    more = torch.cat([a, a.new_zeros(128 * len(counts), inner)])  # room for more rows, which takes other tiles
    for dtype in (torch.bfloat16, torch.float16, torch.float32, FP8):
        for matrices in (b.to(dtype), b.transpose(1, 2).contiguous().to(dtype).transpose(1, 2)):
            for rows in (a, more):
                out = torch.full((len(rows), columns), 7.0, device=device).to(torch.bfloat16 if dtype == FP8 else dtype)
                moe.grouped_gemm(rows.to(dtype), matrices, offsets, counted, out=out)
                assert torch.equal(out[: len(a)], expected.to(out.dtype)), (dtype, len(rows))
                assert (out[len(a) :] == 7).all(), (dtype, "rows of no expert")
                if rows is a:  # more rows by its count than there are: those are left out, and take no time
                    counted[-1] = 1 << 30
                    again = moe.grouped_gemm(rows.to(dtype), matrices, offsets, counted, out_dtype=out.dtype)
                    counted[-1] = counts[-1]
                    assert torch.equal(again, out), (dtype, "a count of more than all rows")
                found = moe.grouped_gemm(rows.to(dtype), matrices, offsets, counted, swiglu=True)
                wanted = swiglu_of_rows(out, offsets)[: len(a)]
                torch.testing.assert_close(found[: len(a)], wanted, rtol=1e-2, atol=1e-2)
    of_rows = torch.arange(1, sum(counts) + 1, device=device).float()[:, None]
    of_columns = torch.arange(columns * len(counts), device=device).float().view(len(counts), columns) - 100
    scales = of_rows * of_columns.repeat_interleave(counted.long(), 0)
    found = moe.grouped_gemm(
        a.to(FP8), b.transpose(1, 2).contiguous().to(FP8).transpose(1, 2), offsets, counted, a_scales=of_rows,
        b_scales=of_columns,
    )  # fmt: skip
    torch.testing.assert_close(found.float(), expected * scales, rtol=1e-2, atol=0.0)


def layers_and_gradients(world: Any, num_sms: int = 0) -> None:
    """A module against the same experts on every PE, one by one."""
    n, hidden, inner = world.n_pes, 256 if ON_GPU else 16, 128 if ON_GPU else 8
    layer = MoE(hidden, inner, num_experts=2 * n, top_k=2, max_tokens=32, num_sms=num_sms, dtype=torch.float32)
    generator = torch.Generator().manual_seed(3)
    w13 = (torch.rand(2 * n, 2 * inner, hidden, generator=generator) - 0.5).to(world.device) / 8
    w2 = (torch.rand(2 * n, hidden, inner, generator=generator) - 0.5).to(world.device) / 8
    gate = torch.rand(2 * n, hidden, generator=generator).to(world.device)
    x = (torch.rand(n, 20, hidden, generator=generator) - 0.5).to(world.device)
    mine = slice(2 * world.pe, 2 * world.pe + 2)
    with torch.no_grad():
        for parameter, value in ((layer.gate, gate), (layer.w13, w13[mine]), (layer.w2, w2[mine])):
            parameter.copy_(value)
    w13.requires_grad_()
    tokens_here = x[world.pe].clone().requires_grad_()
    out = layer(tokens_here)
    out.square().sum().backward()
    loss = torch.zeros((), device=world.device)
    leaves = [x[pe].clone().requires_grad_() for pe in range(n)]
    for pe in range(n):
        ids, weights = layer.route(leaves[pe])
        up = torch.einsum("th,eih->tei", leaves[pe], w13).chunk(2, dim=-1)
        of_all = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(up[0]) * up[1], w2)
        expected = (of_all.gather(1, ids[:, :, None].expand(-1, -1, hidden)) * weights[:, :, None]).sum(1)
        if pe == world.pe:
            torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-4)
        loss = loss + expected.square().sum()
    loss.backward()
    torch.testing.assert_close(tokens_here.grad, leaves[world.pe].grad, rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(layer.w13.grad, w13.grad[mine], rtol=1e-2, atol=1e-4)


def gradients_of_rounds(world: Any) -> None:
    layers_and_gradients(world, SMS)


def separate_layer(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor, **sizes: Any
) -> torch.Tensor:
    """A layer by an operator for each step: its backward is the other operators' one after the other."""
    received = moe.functional.dispatch(x, ids, weights, **sizes)
    groups = received.offsets, received.counts
    gate, up = moe.functional.grouped_gemm(received.x, w13.transpose(1, 2), *groups).chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * up
    return moe.functional.combine(moe.functional.grouped_gemm(hidden, w2.transpose(1, 2), *groups), received, weights)


def gradients_beside_combines(world: Any, num_sms: int = 0, room: int = MAX_TOKENS) -> None:
    """Gradients of matrices that are computed while rows are combined: the bits of steps one after the other."""
    layer = Experts(world, room)
    for seed in range(6 if ON_GPU else 2):
        given, me = tokens(world, seed, skew=(0.0, 0.5, 1.0)[seed % 3], room=room), world.pe
        x, ids, weights = (tensor[me, : given.counts[me]] for tensor in given[:3])
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (x[:, : layer.hidden] / 8, weights)]
        leaves += [layer.w13.detach().requires_grad_(), layer.w2.detach().requires_grad_()]
        sizes = {"num_experts": world.n_pes * LOCAL, "max_tokens": room, "num_sms": num_sms}
        grad = x[:, -layer.hidden :] / 8
        expected = torch.autograd.grad(separate_layer(leaves[0], ids, *leaves[1:], **sizes), leaves, grad)
        for _ in range(3 if ON_GPU else 1):
            found = torch.autograd.grad(moe.moe_layer(leaves[0], ids, *leaves[1:], **sizes), leaves, grad)
            for name, ours, theirs in zip(("x", "weights", "w13", "w2"), found, expected, strict=True):
                differ = (ours != theirs).sum().item()
                assert differ == 0, f"PE {me}, seed {seed}: {differ} elements of the gradient of {name}"


def gradients_beside_rounds(world: Any) -> None:
    gradients_beside_combines(world, SMS, MANY)


def graphs_of_gradients(world: Any, num_sms: int = 0) -> None:
    """A graph of two steps forward and backward is replayed with other ids, weights and tokens."""
    if not ON_GPU:
        return
    cases = [tokens(world, seed)._replace(counts=[MAX_TOKENS] * world.n_pes) for seed in range(6)]
    layer, static = Experts(world, MAX_TOKENS), [tensor[world.pe].clone() for tensor in cases[0][:3]]
    matrices = [layer.w13.detach().requires_grad_(), layer.w2.detach().requires_grad_()]
    sizes = {"num_experts": world.n_pes * LOCAL, "max_tokens": MAX_TOKENS, "num_sms": num_sms}

    def step(compute: Callable[..., torch.Tensor] = moe.moe_layer) -> tuple[torch.Tensor, ...]:
        x, ids, weights = static
        leaves = [(x[:, : layer.hidden] / 8).requires_grad_(), weights.detach().requires_grad_(), *matrices]
        out = compute(leaves[0], ids, *leaves[1:], **sizes)
        return torch.autograd.grad(out, leaves, x[:, -layer.hidden :] / 8)

    graph, found = captured(step)
    for given in cases * 2:
        for place, tensor in zip(static, given[:3], strict=True):
            place.copy_(tensor[world.pe])
        replay_twice(graph, found)
        kept = [tensor.clone() for tensor in found]
        for ours, theirs in zip(kept, step(separate_layer), strict=True):
            assert torch.equal(ours, theirs), f"PE {world.pe}: {(ours != theirs).sum().item()} elements of a gradient"


def graphs_of_gradients_beside_rounds(world: Any) -> None:
    graphs_of_gradients(world, SMS)


def sliced(
    world: Any, seed: int, room: int, skew: float = 0.0
) -> tuple[Tokens, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, both matrices of all experts, and this PE's slices of them: small integers, whose sums are exact."""
    inner, experts = (256, 16) if ON_GPU else (24, 5)
    generator = torch.Generator().manual_seed(seed)
    given = tokens(world, seed, skew, room=room)
    given = given._replace(x=given.x[:, :, : HIDDEN // 4].clamp(-1, 1).contiguous(), ids=given.ids % (experts + 1) - 1)
    hidden, n = given.x.shape[2], world.n_pes
    w1 = torch.randint(-1, 2, (experts, hidden, inner * n), generator=generator).to(world.device).bfloat16()
    w2 = torch.randint(-1, 2, (experts, inner * n, hidden), generator=generator).to(world.device).bfloat16()
    mine = slice(world.pe * inner, (world.pe + 1) * inner)
    return given, w1, w2, w1[:, :, mine].contiguous(), w2[:, mine].contiguous()


def verify_sliced(
    world: Any, given: Tokens, w1: torch.Tensor, w2: torch.Tensor, up: torch.Tensor, out: torch.Tensor
) -> None:
    """``up`` and ``out`` as of this PE's slices, with a clamp in between."""
    n, me, inner = world.n_pes, world.pe, w1.shape[2] // world.n_pes
    pe, token, k = torch.meshgrid(*(torch.arange(s, device=world.device) for s in given.ids.shape), indexing="ij")
    used = (given.ids >= 0) & (token < torch.tensor(given.counts, device=world.device)[:, None, None])
    order = torch.argsort(given.ids[used], stable=True)
    pe, token, k, expert = (tensor[used][order] for tensor in (pe, token, k, given.ids))
    x = given.x[pe, token].float()
    rows = torch.stack([row @ w1[e].float() for row, e in zip(x, expert.tolist(), strict=True)]) if len(x) else x
    part = slice(me * inner, (me + 1) * inner)
    expected = rows[:, part].bfloat16() if len(x) else up[:0]
    assert torch.equal(up[: len(x)], expected), f"PE {me}: {(up[: len(x)] != expected).sum().item()} elements of rows"
    wanted = torch.zeros(given.counts[me], w2.shape[2], device=world.device)
    for i in range(n):
        partial = torch.zeros_like(wanted)
        slice_ = slice(i * inner, (i + 1) * inner)
        for at in (pe == me).nonzero()[:, 0].tolist():
            product = rows[at, slice_].bfloat16().clamp(-2, 2).float() @ w2[expert[at], slice_].float()
            weight = given.weights[me, token[at], k[at]]
            partial[token[at]] += (weight * product).bfloat16().float()
        wanted += partial.bfloat16().float()
    assert torch.equal(out, wanted.bfloat16()), f"PE {me}: {(out != wanted.bfloat16()).sum().item()} elements of sums"


def tensor_parallel(world: Any) -> None:
    """GEMMs that overlap with all-gather and reduce-scatter, of calls without a pause in between."""
    room = MAX_TOKENS if ON_GPU else 5
    for seed in range(12 if ON_GPU else 2):
        given, w1, w2, mine1, mine2 = sliced(world, seed, room, skew=(0.0, 0.5, 1.0)[seed % 3])
        me, n = world.pe, given.counts[world.pe]
        x, ids, weights = (tensor[me, :n].contiguous() for tensor in given[:3])
        options = {"num_sms": (0, 1, 2)[seed % 3]}
        outs = []
        for _ in range(3):
            routing = moe.gather_routing(ids, weights, num_experts=len(w1), max_tokens=room)
            up = moe.all_gather_grouped_gemm(x, mine1, routing, **options)
            outs.append(moe.grouped_gemm_reduce_scatter(up.clamp(-2, 2), mine2, routing, **options))
        out = moe.grouped_gemm_reduce_scatter(up.clamp(-2, 2), mine2, routing, **options)
        assert all(torch.equal(out, other) for other in outs)
        verify_sliced(world, given, w1, w2, up, out)


def tensor_parallel_graphs(world: Any) -> None:
    """A graph of two layers is replayed with other ids, weights and tokens."""
    if not ON_GPU:
        return
    room = MAX_TOKENS
    cases = [sliced(world, seed, room) for seed in range(6)]
    cases = [(given._replace(counts=[room] * world.n_pes), *rest) for given, *rest in cases]
    _, w1, w2, mine1, mine2 = cases[0]
    static = [tensor[world.pe].clone() for tensor in cases[0][0][:3]]

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        routing = moe.gather_routing(*static[1:], num_experts=len(w1), max_tokens=room)
        up = moe.all_gather_grouped_gemm(static[0], mine1, routing)
        return up, moe.grouped_gemm_reduce_scatter(up.clamp(-2, 2), mine2, routing)

    graph, (up, out) = captured(step)
    for given, *_ in cases * 2:
        for place, tensor in zip(static, given[:3], strict=True):
            place.copy_(tensor[world.pe])
        replay_twice(graph, [out])
        verify_sliced(world, given, w1, w2, up, out)


def of_whole_experts(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor
) -> torch.Tensor:
    """What a layer gives tokens [T, hidden] with w13 [experts, 2, intermediate, hidden]: every expert computes all."""
    first, second = torch.einsum("th,epih->ptei", x, w13)
    of_all = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(first) * second, w2)
    return (of_all.gather(1, ids[:, :, None].expand(-1, -1, x.shape[1])) * weights[:, :, None]).sum(1)


def tensor_parallel_layers(world: Any) -> None:
    """A module of slices against the same module of one whole expert after the other, and its gradients."""
    n, hidden, inner = world.n_pes, 256 if ON_GPU else 16, 128 if ON_GPU else 8
    layer = MoE(hidden, inner * n, num_experts=3, top_k=2, max_tokens=32, parallel="tensor", dtype=torch.float32)
    generator = torch.Generator().manual_seed(3)
    w13 = ((torch.rand(3, 2, inner * n, hidden, generator=generator) - 0.5) / 8).to(world.device).requires_grad_()
    w2 = ((torch.rand(3, hidden, inner * n, generator=generator) - 0.5) / 8).to(world.device)
    gate = torch.rand(3, hidden, generator=generator).to(world.device)
    x = (torch.rand(n, 20, hidden, generator=generator) - 0.5).to(world.device)
    mine = slice(world.pe * inner, (world.pe + 1) * inner)
    with torch.no_grad():
        for parameter, value in (
            (layer.gate, gate),
            (layer.w13, w13[:, :, mine].flatten(1, 2)),
            (layer.w2, w2[:, :, mine]),
        ):
            parameter.copy_(value)
    here = x[world.pe].clone().requires_grad_()
    out = layer(here)
    out.square().sum().backward()
    loss = torch.zeros((), device=world.device)
    leaves = [x[pe].clone().requires_grad_() for pe in range(n)]
    for pe in range(n):
        ids, weights = layer.route(leaves[pe])
        expected = of_whole_experts(leaves[pe], ids, weights, w13, w2)
        if pe == world.pe:
            torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-4)
        loss = loss + expected.square().sum()
    loss.backward()
    torch.testing.assert_close(here.grad, leaves[world.pe].grad, rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(layer.w13.grad, w13.grad[:, :, mine].flatten(1, 2), rtol=1e-2, atol=1e-4)


def tensor_parallel_gradients(world: Any) -> None:
    """Tokens that the copy engine gathers while their gradient is computed: the bits of calls one after the other."""
    n, experts, top_k = world.n_pes, 4, 2
    rows, hidden, inner = (2048, 4096, 512) if ON_GPU else (7, 16, 8)  # the tokens are large enough for it
    for step in range(6):
        generator = torch.Generator().manual_seed(10 * step + world.pe)

        def draw(*size: int, generator: torch.Generator = generator) -> torch.Tensor:
            return torch.randn(size, generator=generator).to(world.device, torch.bfloat16)

        ids = torch.randint(0, experts, (rows - step, top_k), generator=generator).to(world.device)
        sizes = experts, rows, n, ""
        routing = moe.functional.gather_routing(ids, num_experts=experts, max_tokens=rows)
        a, b = draw(rows - step, hidden).requires_grad_(), draw(experts, hidden, inner).requires_grad_()
        grad = draw(routing.rows, inner)
        found = torch.autograd.grad(moe.functional.all_gather_grouped_gemm(a, b, routing), (a, b), grad)
        a, b = a.detach(), b.detach()
        alone = slices.scattered(grad, b, (rows - step, top_k), routing.memory, 0, sizes)
        assert torch.equal(found[0], alone), "the gradient of a has other bits than of a call of its own"
        gathered = slices.rows_of_all(a, routing, sizes)
        alone = torch.ops.triton_dist.moe_grouped_weight_grad(gathered, grad, routing.offsets, routing.counts)
        assert torch.equal(found[1], alone), "the gradient of b has other bits than with tokens gathered before"


def tensor_parallel_gradients_of_sums(world: Any) -> None:
    """Gradients that one GEMM gathers for both operands: the bits of a gather for each."""
    n, experts, top_k = world.n_pes, 4, 2
    rows, hidden, inner = (2048, 4096, 512) if ON_GPU else (7, 16, 8)
    for step in range(6):
        generator = torch.Generator().manual_seed(10 * step + world.pe)

        def draw(*size: int, generator: torch.Generator = generator) -> torch.Tensor:
            return torch.randn(size, generator=generator).to(world.device, torch.bfloat16)

        ids = torch.randint(-1, experts, (rows - step, top_k), generator=generator).to(world.device)
        weights = torch.rand(rows - step, top_k, generator=generator).to(world.device)
        sizes = experts, rows, n, ""
        routing = moe.functional.gather_routing(ids, weights, num_experts=experts, max_tokens=rows)
        a, b = draw(routing.rows, inner).requires_grad_(), draw(experts, inner, hidden).requires_grad_()
        grad = draw(rows - step, hidden)
        found = torch.autograd.grad(moe.functional.grouped_gemm_reduce_scatter(a, b, routing), (a, b), grad)
        a, b = a.detach(), b.detach()
        alone = slices.multiplied(grad, b, top_k, routing.memory, 0, sizes)
        alone = slices.weighted_rows(alone, routing)
        assert torch.equal(found[0], alone), "the gradient of a has other bits than of a call of its own"
        gathered = slices.rows_of_all(grad, routing, sizes)
        alone = slices.of_matrices(gathered, a, routing, True)
        assert torch.equal(found[1], alone), "the gradient of b has other bits than with gradients gathered once more"


class Experts:
    """A layer for tokens of :func:`tokens`: this PE's matrices, by which values stay as large as they are."""

    def __init__(self, world: Any, room: int) -> None:
        hidden, inner = HIDDEN // 4, 512 if ON_GPU else 24
        generator = torch.Generator(world.device).manual_seed(world.pe)
        self.world, self.room, self.hidden = world, room, hidden

        def draw(*size: int) -> torch.Tensor:
            made = torch.randn(size, generator=generator, device=world.device) / size[-1] ** 0.5
            return made.bfloat16()

        self.w13, self.w2 = draw(LOCAL, 2 * inner, hidden), draw(LOCAL, hidden, inner)

    def __call__(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, **options: Any) -> torch.Tensor:
        sizes = {"num_experts": self.world.n_pes * LOCAL, "max_tokens": self.room}
        return moe.moe_layer(x[:, : self.hidden] / 8, ids, weights, self.w13, self.w2, **sizes, **options)

    def verify(self, given: Tokens, found: torch.Tensor) -> None:
        me = self.world.pe
        arguments = (tensor[me, : given.counts[me]] for tensor in given[:3])
        torch.testing.assert_close(found, self(*arguments, algorithm="separate"), rtol=2e-2, atol=5e-2)


def fused_layers(world: Any, algorithm: str = "fused") -> None:
    """Layers in two kernels against the steps one after the other, in calls without a pause in between."""
    for room, seeds in ((MAX_TOKENS, range(12 if ON_GPU else 2)), (MANY, range(3 if ON_GPU else 1))):
        layer = Experts(world, room)
        for seed in seeds:
            given, me = tokens(world, seed, skew=(0.0, 0.5, 1.0)[seed % 3], room=room), world.pe
            arguments = [tensor[me, : given.counts[me]] for tensor in given[:3]]
            options = {"algorithm": algorithm, "num_sms": (0, 1, 2)[seed % 3]}
            found, *others = [layer(*arguments, **options) for _ in range(3)]
            assert all(torch.equal(found, other) for other in others), f"PE {me}, seed {seed}: other bits"
            layer.verify(given, found)


def hopper_layers(world: Any) -> None:
    """The same by the warp-specialised kernels of Hopper GPUs."""
    if ON_GPU:
        fused_layers(world, "fused_hopper")


def layers_by_tokens(world: Any) -> None:
    """The same of steps whose tokens cross once, on 1, 2 and all SMs; and in graphs."""
    fused_layers(world, "tokens")
    graphs_of_fused_layers(world, "tokens")


def graphs_of_hopper_layers(world: Any) -> None:
    graphs_of_fused_layers(world, "fused_hopper")


def graphs_of_fused_layers(world: Any, algorithm: str = "fused") -> None:
    """A graph of two layers is replayed with other ids, weights and tokens."""
    if not ON_GPU:
        return
    cases = [tokens(world, seed)._replace(counts=[MAX_TOKENS] * world.n_pes) for seed in range(6)]
    layer, static = Experts(world, MAX_TOKENS), [tensor[world.pe].clone() for tensor in cases[0][:3]]
    graph, out = captured(lambda: layer(*static, algorithm=algorithm))
    for given in cases * 2:
        for place, tensor in zip(static, given[:3], strict=True):
            place.copy_(tensor[world.pe])
        replay_twice(graph, [out])
        layer.verify(given, out)


def graphs_of_hopper_layers_beside_larger_calls(world: Any) -> None:
    """A layer that has run is captured when another call has made the memory of gathered tokens anew, for more."""
    if not ON_GPU:
        return
    given = tokens(world, 1)._replace(counts=[MAX_TOKENS] * world.n_pes)
    layer, static = Experts(world, MAX_TOKENS), [tensor[world.pe].clone() for tensor in given[:3]]
    with kernels.Communicator() as comm:
        options = {"algorithm": "fused_hopper", "group": comm}
        layer(*static, **options)
        for rows in (2 * MAX_TOKENS, 7 * MAX_TOKENS):
            ids = torch.zeros(rows, 1, dtype=torch.int64, device=world.device)
            sizes = {"num_experts": 1, "max_tokens": rows}
            routing = moe.gather_routing(ids, torch.ones(rows, 1, device=world.device), **sizes, group=comm)
            columns = static[0].new_ones(1, HIDDEN, 64)
            up = moe.all_gather_grouped_gemm(static[0].new_ones(rows, HIDDEN), columns, routing)
            assert (up == HIDDEN).all()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = layer(*static, **options)
            replay_twice(graph, [out])
            layer.verify(given, out)


def shared_and_sliced_layers(world: Any) -> None:
    """Experts over a column of PEs, and slices of each over a row, of all rows that there are; and gradients."""
    n, hidden, inner, experts = world.n_pes, 256 if ON_GPU else 16, 128 if ON_GPU else 8, 2 * world.n_pes
    generator = torch.Generator().manual_seed(3)
    w13 = ((torch.rand(experts, 2, inner * n, hidden, generator=generator) - 0.5) / 8).to(world.device).requires_grad_()
    w2 = ((torch.rand(experts, hidden, inner * n, generator=generator) - 0.5) / 8).to(world.device)
    gate = torch.rand(experts, hidden, generator=generator).to(world.device)
    x = (torch.rand(n, 20, hidden, generator=generator) - 0.5).to(world.device)
    for width in {width for width in (1, 2, n) if n % width == 0}:
        slices, shares = world.team_world.split_2d(width)
        layer = MoE(
            hidden, inner * n, num_experts=experts, top_k=2, max_tokens=32, group=shares, tp_group=slices,
            dtype=torch.float32,
        )  # fmt: skip
        columns, local = inner * n // width, experts // shares.n_pes
        mine = slice(slices.my_pe * columns, (slices.my_pe + 1) * columns)
        own = slice(shares.my_pe * local, (shares.my_pe + 1) * local)
        with torch.no_grad():
            parts = (gate, w13[own, :, mine].flatten(1, 2), w2[own, :, mine])
            for parameter, value in zip((layer.gate, layer.w13, layer.w2), parts, strict=True):
                parameter.copy_(value)
        here = x[world.pe].clone().requires_grad_()
        out = layer(here)
        out.square().sum().backward()
        w13.grad, loss = None, torch.zeros((), device=world.device)
        leaves = [x[pe].clone().requires_grad_() for pe in range(n)]
        for pe in range(n):
            ids, weights = layer.route(leaves[pe])
            expected = of_whole_experts(leaves[pe], ids, weights, w13, w2)
            if pe == world.pe:
                torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-4)
                with torch.no_grad():
                    torch.testing.assert_close(layer(here), expected, rtol=1e-3, atol=1e-4)
            loss = loss + expected.square().sum()
        loss.backward()
        torch.testing.assert_close(here.grad, leaves[world.pe].grad, rtol=1e-2, atol=1e-4)
        torch.testing.assert_close(layer.w13.grad, w13.grad[own, :, mine].flatten(1, 2), rtol=1e-2, atol=1e-4)
        triton_dist.barrier_all()


def replicated_layers(world: Any) -> None:
    """Tokens that all PEs have: without a dispatch between PEs as with one."""
    layer = Experts(world, MAX_TOKENS)
    for seed in range(6 if ON_GPU else 2):
        given = tokens(world, seed, skew=(0.0, 0.5, 1.0)[seed % 3])
        arguments = [tensor[0, : given.counts[0]] for tensor in given[:3]]
        found = [layer(*arguments, replicated=True) for _ in range(3)]
        assert all(torch.equal(found[0], other) for other in found), f"PE {world.pe}, seed {seed}: other bits"
        expected = layer(*arguments, algorithm="separate")
        torch.testing.assert_close(found[0], expected, rtol=2e-2, atol=5e-2)


def graphs_of_replicated_layers(world: Any) -> None:
    """A graph of two layers is replayed with other ids, weights and tokens."""
    if not ON_GPU:
        return
    cases = [tokens(world, seed) for seed in range(6)]
    layer, static = Experts(world, MAX_TOKENS), [tensor[0].clone() for tensor in cases[0][:3]]
    graph, out = captured(lambda: layer(*static, replicated=True))
    for given in cases * 2:
        for place, tensor in zip(static, given[:3], strict=True):
            place.copy_(tensor[0])
        replay_twice(graph, [out])
        torch.testing.assert_close(out, layer(*static, algorithm="separate"), rtol=2e-2, atol=5e-2)


CHECKS: tuple[Callable[[Any], None], ...] = (
    dispatch_and_combine,
    fp8_with_scales,
    halves,
    graphs_with_other_routings,
    many_tokens,
    graphs_of_many_tokens,
    grouped_gemms,
    layers_and_gradients,
    rounds,
    rounds_by_tma,
    combines_by_tma,
    rounds_of_one_choice,
    tokens_once,
    graphs_of_tokens,
    tokens_of_communicators,
    tokens_on_many_streams,
    graphs_of_rounds,
    graphs_of_rounds_by_tma,
    gradients_of_rounds,
    gradients_beside_combines,
    gradients_beside_rounds,
    graphs_of_gradients,
    graphs_of_gradients_beside_rounds,
)
BY_LOAD_AND_STORE: tuple[Callable[[Any], None], ...] = (
    tensor_parallel,
    tensor_parallel_graphs,
    tensor_parallel_layers,
    tensor_parallel_gradients,
    tensor_parallel_gradients_of_sums,
    fused_layers,
    graphs_of_fused_layers,
    hopper_layers,
    graphs_of_hopper_layers,
    graphs_of_hopper_layers_beside_larger_calls,
    layers_by_tokens,
    shared_and_sliced_layers,
    replicated_layers,
    graphs_of_replicated_layers,
)


def main() -> int:
    with triton_dist.init() as world:
        checks = CHECKS if communicator_of().grid.hosts > 1 else CHECKS + BY_LOAD_AND_STORE
        run_checks(world, checks, sys.argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
