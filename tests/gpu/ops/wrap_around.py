"""Numbers of launches and barriers are int32 and wrap around: results after 2³¹ and 2³² of them are correct, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

import triton_dist
from ops.harness import GPU, check, expect_equal, rounds
from triton_dist import World, kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.plan_cache import PlanCache
from triton_dist.kernels.protocols import workspace
from triton_dist.kernels.protocols.ll import LL_PROGRAMS

STARTS = (2**31 - 4, 2**31 - 3, -4, -1)
"""A few launches before the largest int32, and before 0."""

AGAIN = 3

LATE_SECONDS = 0.01


def count_from(world: World, start: int) -> None:
    """As if there had been so many launches, of everything that has been launched. *Collective.*"""
    triton_dist.barrier_all()
    for name, words in communicator_of().own(workspace.Workspace).tensors.items():
        if name.startswith("barrier "):  # flags and counters
            words.fill_(start)
        elif name.startswith("LL slots"):
            words.zero_()
            words.view(LL_PROGRAMS, -1)[:, 0] = start
    if GPU:
        from triton_dist.kernels.gemm.copy_engine import CopyPlan
        from triton_dist.kernels.gemm.hopper.launch import Plan
        from triton_dist.kernels.gemm.hopper.layout import CHUNKS, EPOCH, TILES

        for (kind, *_), thing in communicator_of().own(PlanCache).plans.items():
            plan = thing.plan if isinstance(thing, CopyPlan) else thing
            if isinstance(plan, Plan):
                plan.state[EPOCH.value] = start
                if plan.split is not None:
                    plan.split.flags.fill_(start)
                if kind not in ("copy engine", "chunks of a"):  # streams wait for their flags, which are 0 or 1
                    plan.flags[: TILES.value if kind == "blocks of a" else None].fill_(start)  # others count from 0
                if kind == "comm programs":
                    plan.state[CHUNKS.value :] = start
    triton_dist.barrier_all()


def integers(shape: tuple[int, ...], seed: int, device: torch.device) -> torch.Tensor:
    """Sums of a few of them, and of their products, are exact."""
    found = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed))
    return found.to(device, torch.bfloat16)


def run_across(world: World, calls: dict[str, tuple[Callable[[], object], torch.Tensor, torch.Tensor]]) -> None:
    """Each call: what to do, where the result is, and what it must be."""
    for call, _, _ in calls.values():
        call()  # creates the cached buffers
    for start in STARTS:
        count_from(world, start)
        for i in range(AGAIN):
            for name, (call, out, expected) in calls.items():
                out.fill_(77)
                triton_dist.barrier_all()
                if world.pe == i % world.n_pes:
                    time.sleep(LATE_SECONDS)  # the others must wait for it
                call()
                found = out.clone()  # at once: a barrier of the hosts would wait for what the call must wait for
                triton_dist.barrier_all()
                expect_equal(found, expected, f"{name}, launch {i} from {start}")


@check(maps_all=True)
def collectives_wrap_around(world: World) -> None:
    n_pes, pe, n = world.n_pes, world.pe, rounds(400, 160)
    inputs = [integers((n_pes * n,), 10 + i, world.device) for i in range(n_pes)]
    part, whole = triton_dist.zeros(n, dtype=torch.bfloat16), triton_dist.zeros(n_pes * n, dtype=torch.bfloat16)
    source = triton_dist.from_tensor(inputs[pe])
    total = torch.stack(inputs).sum(0)
    gathered = torch.cat([one[:n] for one in inputs])
    exchanged = torch.cat([one[pe * n : (pe + 1) * n] for one in inputs])
    calls: dict[str, tuple[Callable[[], object], torch.Tensor, torch.Tensor]] = {}
    for name in ("low_latency", "push"):
        calls[f"all_gather, {name}"] = (
            partial(kernels.all_gather, whole, source[:n], algorithm=name), whole, gathered,
        )  # fmt: skip
        calls[f"all_to_all, {name}"] = partial(kernels.all_to_all, whole, source, algorithm=name), whole, exchanged
    for name in ("low_latency", "exchange", "push"):
        calls[f"reduce_scatter, {name}"] = (
            partial(kernels.reduce_scatter, part, source, algorithm=name), part, total[pe * n : (pe + 1) * n],
        )  # fmt: skip
    for name in ("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct"):
        calls[f"all_reduce, {name}"] = (
            partial(kernels.all_reduce, source, out=whole, algorithm=name), whole, total,
        )  # fmt: skip
    for name in ("low_latency", "push", "scatter"):

        def broadcast(name: str = name) -> None:
            if pe == n_pes - 1:
                whole.copy_(source)
            kernels.broadcast(whole, n_pes - 1, algorithm=name)

        calls[f"broadcast, {name}"] = broadcast, whole, inputs[-1]
    run_across(world, calls)
    for tensor in (part, whole, source):
        triton_dist.free(tensor)


@check(gpu_only=True, own_gpu=True)
def gemms_wrap_around(world: World) -> None:
    n_pes, pe = world.n_pes, world.pe
    m, k, n = 256 * n_pes, 512, 640
    a = [integers((m, k), 20 + i, world.device) for i in range(n_pes)]
    b = [integers((k, n), 40 + i, world.device) for i in range(n_pes)]
    rows = slice(pe * 256, (pe + 1) * 256)
    sums = sum(x.float() @ y.float() for x, y in zip(a, b, strict=True)).bfloat16()
    gathered, scattered = torch.zeros(m, n, device=world.device).bfloat16(), torch.zeros_like(sums[rows])
    beside, reduced = (triton_dist.zeros(m, width, dtype=torch.bfloat16) for width in (n * n_pes, n))
    calls: dict[str, tuple[Callable[[], object], torch.Tensor, torch.Tensor]] = {}
    for name in ("bulk_synchronous", "copy_engine", "push"):
        calls[f"all_gather_gemm, {name}"] = (
            partial(kernels.all_gather_gemm, a[0][rows], b[pe], gathered, algorithm=name), gathered,
            (a[0].float() @ b[pe].float()).bfloat16(),
        )  # fmt: skip
    columns = torch.cat([(a[0].float() @ y.float()).bfloat16() for y in b], 1)
    for name in ("copy_engine", "fused_producer_consumer", "warp_specialized"):
        calls[f"gemm_all_scatter, {name}"] = (
            partial(kernels.gemm_all_scatter, a[0], b[pe], beside, algorithm=name), beside, columns,
        )  # fmt: skip
    for name in ("ring", "direct"):
        calls[f"gemm_reduce_scatter, {name}"] = (
            partial(kernels.gemm_reduce_scatter, a[pe], b[pe], scattered, algorithm=name), scattered, sums[rows],
        )  # fmt: skip
        calls[f"gemm_all_reduce, {name}"] = (
            partial(kernels.gemm_all_reduce, a[pe], b[pe], reduced, algorithm=name), reduced, sums,
        )  # fmt: skip
    run_across(world, calls)
    for tensor in (beside, reduced):
        triton_dist.free(tensor)
