"""The order of tiles and of KV splits: row by row, in groups of rows, and as the model of the L2 cache chooses.

    torchrun --nproc-per-node 2 benchmarks/tile_order.py [--save FILE]
    ncu --metrics lts__t_sector_hit_rate.pct,dram__bytes_read.sum --kernel-name regex:local_gemm_kernel \
        python benchmarks/tile_order.py --profile gemm
    ncu --metrics lts__t_sector_hit_rate.pct,dram__bytes_read.sum --kernel-name regex:flash_decode_kernel \
        python benchmarks/tile_order.py --profile decode

Timed in CUDA graphs, in one run: the local Hopper GEMM, all-gather + GEMM by the copy engine, and flash decode of a KV
head whose queries are several tiles (MLA with 128 heads), with these one after the other and in step. For each order of
a GEMM the table has the bytes that the model of triton_dist/kernels/tile_order.py expects to come from memory.

``--profile`` runs each order of one kernel once on one GPU, without peers, in the order that it prints: Nsight Compute
replays kernels, and one that waits for peers would wait for ever. Its hit rates and bytes are for this list. An
all-gather + GEMM is, tile for tile, the local GEMM of the rows of one PE after the other: ``--profile gathered`` runs
that schedule on one GPU. In the CPU world nothing runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from harness import session

import triton_dist
from triton_dist import World, kernels
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule
from triton_dist.kernels.gemm.tile_sizes import choose
from triton_dist.kernels.gemm.workspaces import gathered_rows
from triton_dist.kernels.tile_order import chip, group_rows, loaded_bytes

SHAPES = ((4096, 8192, 4096), (8192, 8192, 8192), (16384, 4096, 4096), (8192, 2048, 8192))
"""M of all PEs, and N and K of each."""

GROUPS = (1, 4, 8, 16, 32)
"""Rows of tiles; 1 is row by row."""

DECODES = ((1, 128 << 10), (8, 16 << 10), (64, 4 << 10))
"""Requests, and positions of each on a PE."""

Step = Callable[[int], torch.Tensor]


def random(world: World, *shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator(world.device).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=world.device, dtype=torch.bfloat16)


def tiles_of(a: torch.Tensor, config: Config, rows: int, columns: int) -> dict[str, tuple[int, str]]:
    """The orders of so many rows and columns of tiles: rows of a group, and what the model expects of it."""
    row = a.shape[1] * a.element_size()
    here = chip(portable.programs())
    assert here is not None, "PyTorch does not say how large this GPU's L2 cache is"
    sizes = rows, columns, config.block_m * row, config.block_n * row
    orders = {"row by row" if group == 1 else f"groups of {group}": group for group in GROUPS}
    orders[f"the model's, groups of {group_rows(*sizes, here)}"] = group_rows(*sizes, here)
    return {name: (group, f"{loaded_bytes(*sizes, group, here) / 2**20:.0f} MB") for name, group in orders.items()}


@contextmanager
def in_groups(group: int) -> Iterator[None]:
    """Plans that are made in the block have groups of so many rows."""
    with mock.patch.object(Config, "order", return_value=group):
        yield


def local(comm: Communicator, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[dict[str, Step], list[str]]:
    """The local GEMM in every order, and what the model expects."""
    from triton_dist.kernels.gemm.hopper import local_gemm as hopper

    config = choose(a, c, portable.programs())
    rows, columns = config.tiles(c)
    steps: dict[str, Step] = {}
    expected = []
    for name, (group, loads) in tiles_of(a, config, len(rows), len(columns)).items():
        with in_groups(group):
            plan = hopper.make_plan(comm, a, c)

        def step(i: int, plan: Any = plan) -> torch.Tensor:
            hopper.run(plan, Operands(comm, a, b, c))
            return c

        steps[name] = step
        expected.append(f"    {name:<36} {loads} from memory by the model")
    return steps, expected


def one_after_the_other(comm: Communicator, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Step]:
    """The schedule of an all-gather + GEMM of two PEs, all of whose rows are here."""
    from triton_dist.kernels.gemm.hopper import local_gemm as hopper
    from triton_dist.kernels.gemm.hopper.launch import Plan

    config = choose(a, c, portable.programs())
    rows, columns = config.tiles(c)
    half = len(rows) // 2
    steps: dict[str, Step] = {}
    for name, (group, _) in tiles_of(a, config, half, len(columns)).items():
        parts = (range(half), range(half, len(rows)))
        tiles = [Tile(*place, 0) for part in parts for place in grouped(part, columns, group)]
        plan = Plan(comm, "GEMM", make_schedule(tiles, config.k_steps(a), portable.programs()), config, n_flags=0)

        def step(i: int, plan: Any = plan) -> torch.Tensor:
            hopper.run(plan, Operands(comm, a, b, c))
            return c

        steps[name] = step
    return steps


def gathered(comm: Communicator, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Step]:
    """The all-gather + GEMM by the copy engine in every order. *Collective.*"""
    from triton_dist.kernels.gemm.hopper import all_gather_gemm as hopper

    config = choose(a, c, portable.programs())
    rows, columns = config.tiles(c)
    memory = gathered_rows(comm, a.shape[0] * comm.n_pes, a.shape[1], a.dtype)
    steps: dict[str, Step] = {}
    for name, (group, _) in tiles_of(a, config, -(-len(rows) // comm.n_pes), len(columns)).items():
        with in_groups(group):
            plan = hopper.make_plan(comm, a, c, config)

        def step(i: int, plan: Any = plan) -> torch.Tensor:
            hopper.run(plan, Operands(comm, a, b, c), memory)
            return c

        steps[name] = step
    return steps


def decodes(
    world: World, comms: tuple[Communicator, Communicator], requests: int, keys: int
) -> tuple[dict[str, Step], torch.Tensor]:
    """MLA's decode of keys of this PE alone, with the tiles of the heads in both orders; and what it should be.

    Each order has a communicator of its own, of this PE: a call that has been made before is not cut again.
    """
    q = random(world, requests, 128, 576, seed=1)
    cache = random(world, requests, keys, 1, 576, seed=2)
    lengths = torch.full((requests,), keys, dtype=torch.int32, device=world.device)

    def step(i: int, *, in_step: bool) -> torch.Tensor:
        groups = (lambda tasks, programs: tasks) if in_step else (lambda tasks, programs: 1)
        with mock.patch("triton_dist.kernels.attention.flash_decode.tasks_in_step", groups):
            return kernels.flash_decode(q, cache, None, lengths, head_dim_v=512, group=comms[in_step])[0]

    few = slice(0, 1)
    k = cache[few, :, 0].float()
    logits = torch.einsum("bhd,btd->bht", q[few].float(), k) * 576**-0.5
    expected = torch.einsum("bht,btd->bhd", logits.softmax(-1), k[..., :512])
    return {
        "one tile of heads after the other": partial(step, in_step=False),
        "tiles of heads in step (the model's)": partial(step, in_step=True),
    }, expected


def against(expected: torch.Tensor) -> Callable[[torch.Tensor, int], str | None]:
    """A check of the first rows, as many as are expected."""

    def check(result: torch.Tensor, i: int) -> str | None:
        part = result[: len(expected)].float()
        error = (part - expected).abs().max().item() / expected.abs().max().item()
        return None if error < 0.02 else f"an error is {error:.3f} of the largest value"

    return check


def measure(save: str | None) -> None:
    with session("tile order", total=2 * len(SHAPES) + len(DECODES)) as bench:
        world, comm = bench.world, communicator_of()
        for m, n, k in SHAPES:
            a, b = random(world, m, k, seed=world.pe), random(world, k, n, seed=9)
            c = a.new_empty(m, n)
            steps, expected = local(comm, a, b, c)
            bench.compare(f"local GEMM {m} × {n} × {k}", steps, check=against(a[:256].float() @ b.float()), calls=4)
            bench.say("\n".join(expected))
            rows = random(world, m // world.n_pes, k, seed=world.pe)
            first = random(world, m // world.n_pes, k, seed=0)[:256].float() @ b.float()
            bench.compare(
                f"all-gather + GEMM {m} × {n} × {k}", gathered(comm, rows, b, c), check=against(first), calls=4
            )
            if save:
                bench.save(save)
        team = world.team_world.split_2d(1)[0]
        with kernels.Communicator(team) as one, kernels.Communicator(team) as other:
            for requests, keys in DECODES:
                contenders, expected_heads = decodes(world, (one, other), requests, keys)
                title = f"flash decode of MLA, 128 heads, {requests} × {keys}"
                bench.compare(title, contenders, check=against(expected_heads), calls=4)
                if save:
                    bench.save(save)


def profile(what: str) -> None:
    with triton_dist.init() as world:
        if world.n_pes > 1:
            raise SystemExit("--profile is for one GPU: start it without torchrun")
        comm = communicator_of()
        runs: list[tuple[str, Step]] = []
        if what == "decode":
            comms = kernels.Communicator(world.team_world), kernels.Communicator(world.team_world)
            for requests, keys in DECODES:
                contenders = decodes(world, comms, requests, keys)[0]
                runs += [(f"{requests} × {keys}, {name}", step) for name, step in contenders.items()]
        else:
            for m, n, k in SHAPES:
                a, b = random(world, m, k, seed=0), random(world, k, n, seed=9)
                c = a.new_empty(m, n)
                contenders = local(comm, a, b, c)[0] if what == "gemm" else one_after_the_other(comm, a, b, c)
                runs += [(f"{m} × {n} × {k}, {name}", step) for name, step in contenders.items()]
        for number, (name, step) in enumerate(runs):
            step(0)
            torch.cuda.synchronize()
            print(f"launch {number}: {name}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--save", help="where to write the figures, as JSON")
    parser.add_argument("--profile", choices=("gemm", "gathered", "decode"), help="one launch of each order, for ncu")
    args = parser.parse_args()
    if triton_dist.kind() == "cpu":
        print("tile order: not measured. The CPU world interprets kernels.")
        return 0
    if args.profile:
        profile(args.profile)
    else:
        measure(args.save)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
