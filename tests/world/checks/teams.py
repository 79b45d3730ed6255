"""Teams against a reference: who is in them, what hosts do on them, and what kernels do. For two PEs and for four."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from harness import DTYPES, by_load_and_store, main, noise, raises, together
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

import triton_dist
import triton_dist.language as dl
from triton_dist.gpu import host_ops as gpu_host_ops

SIZES = st.integers(1, 40)


@triton.jit
def use(team, who, everybody, gathered, spread, total, scattered, src, n, root):
    """Every op that takes a team."""
    dl.sync(team)
    tl.store(who, dl.team_my_pe(team))
    tl.store(who + 1, dl.team_n_pes(team))
    tl.store(who + 2, dl.team_translate_pe(team, 0, dl.TEAM_WORLD))
    tl.store(who + 3, dl.team_translate_pe(dl.TEAM_WORLD, dl.my_pe(), team))
    dl.broadcast(team, everybody, src, n, root)
    dl.fcollect(team, gathered, src, n)
    dl.alltoall(team, spread, src, n)
    dl.sum_reduce(team, total, src, n)
    dl.max_reducescatter(team, scattered, src, n)
    dl.barrier(team)


def expected(world: Any, team: Any, parts: list[torch.Tensor], n: int, root: int) -> dict[str, torch.Tensor]:
    """What a member has after :func:`use`; ``parts`` has what every PE of the world contributes."""
    sources = [parts[pe] for pe in team.pes]
    mine = slice(team.my_pe * n, (team.my_pe + 1) * n)
    return {
        "who": torch.tensor([team.my_pe, team.n_pes, team.pes[0], team.my_pe]),
        "everybody": sources[root][:n],
        "gathered": torch.cat([source[:n] for source in sources]),
        "spread": torch.cat([source[mine] for source in sources]),
        "total": torch.stack([source[:n] for source in sources]).sum(0),
        "scattered": torch.stack([source[mine] for source in sources]).amax(0),
    }


def kernels_on(world: Any, team: Any, n: int, root: int) -> None:
    """All members of ``team`` run every op on it."""
    parts = [noise(team.n_pes * n, torch.int64, 97 * pe + n) for pe in range(world.n_pes)]
    want = expected(world, team, parts, n, root)
    space = world.n_pes * n
    src = triton_dist.empty(space, dtype=torch.int64)
    src[: team.n_pes * n] = parts[world.pe]
    got = {name: triton_dist.zeros(max(space, 4), dtype=torch.int64) for name in want}
    use[(1,)](team.handle, *got.values(), src, n, root)
    for name, values in want.items():
        assert torch.equal(got[name][: len(values)], values), f"{name} on {team}"
        assert not got[name][len(values) :].any(), f"{name} on {team}: too much was written"


def check_split_strided(world: Any) -> None:
    # All PEs draw alike, whichever teams they are in.
    @settings(together, max_examples=12)
    @given(st.lists(st.tuples(*[st.integers(0, 59)] * 3), max_size=3))
    def example(triples: list[tuple[int, int, int]]) -> None:
        parent, made = world.team_world, []
        for a, b, c in triples:  # a team of a team of a team: only the members of each go on
            start, stride = a % parent.n_pes, 1 + b % parent.n_pes
            size = 1 + c % (1 + (parent.n_pes - 1 - start) // stride)
            numbers = [parent.pes[start + i * stride] for i in range(size)]
            team = parent.split_strided(start, stride, size)
            assert bool(team) == (world.pe in numbers)
            if not team:
                assert isinstance(team, triton_dist.NonMember)
                assert (team.handle, team.my_pe, team.n_pes, team.translate_pe(0, parent)) == (-1, -1, -1, -1)
                assert parent.translate_pe(0, team) == -1
                team.destroy()
                break
            assert list(team.pes) == numbers
            assert (team.my_pe, team.n_pes) == (numbers.index(world.pe), size)
            for pe, number in enumerate(numbers):
                assert team.translate_pe(pe, world.team_world) == number
                assert parent.translate_pe(parent.pes.index(number), team) == pe
            assert team.translate_pe(size, parent) == team.translate_pe(-1, parent) == -1
            handles = world.together(team, "handles", str(team.handle))
            assert len(set(handles)) == 1 and team.handle > 0
            made.append(team)
            parent = team
        world.barrier_all()
        for team in made:
            team.barrier()
        for team in reversed(made):
            team.destroy()
        assert list(world.teams) == [0]
        world.barrier_all()

    example()


def check_split_2d(world: Any) -> None:
    for xrange in range(1, world.n_pes + 2):
        columns = min(xrange, world.n_pes)
        row, column = triton_dist.team_world().split_2d(xrange)
        x, y = world.pe % columns, world.pe // columns
        assert list(row.pes) == [pe for pe in range(world.n_pes) if pe // columns == y]
        assert list(column.pes) == [pe for pe in range(world.n_pes) if pe % columns == x]
        assert (row.my_pe, column.my_pe) == (x, y)
        # All PEs at the same time, each on its own teams, of which some have the same handle.
        for team in (row, column):
            kernels_on(world, team, 5, team.n_pes - 1)
        column.destroy()
        row.destroy()


def check_handles_are_used_again(world: Any) -> None:
    """A barrier state that other teams have used, some of its PEs more often than others."""
    everybody = world.team_world
    for turn in range(6):
        team = everybody.split_strided(turn % 2, 1, world.n_pes - turn % 2)
        if team:
            for _ in range(turn):
                team.barrier()
                triton_dist.barrier(team)
        world.barrier_all()
        if turn % 2 == 0:
            kernels_on(world, team, 3, 0)
        if team:
            team.destroy()


def check_host_ops(world: Any) -> None:
    host_ops(world)


class WithoutStreams(gpu_host_ops.GpuHostOps):
    """What GPU worlds do, on a heap and with barriers of a CPU world."""

    def __init__(self, world: Any) -> None:
        class Bindings:
            def barrier_on_stream(self, handle: int, stream: int) -> None:
                world.together(world.teams[handle], "barrier")

        class Heap:
            def peer(self, tensor: torch.Tensor, pe: int) -> torch.Tensor:
                return world.peer(tensor, pe)

        super().__init__(Bindings(), Heap(), world.device, mapped=True)

    @contextmanager
    def _on(self, stream: None) -> Iterator[int]:
        yield 0


@by_load_and_store
def check_host_ops_of_gpus(world: Any) -> None:
    usual, world.host_ops = world.host_ops, WithoutStreams(world)
    limit, gpu_host_ops._ONE_SHOT_BYTES = gpu_host_ops._ONE_SHOT_BYTES, 200  # so that larger ones are shared out
    host_ops(world)
    check_put_and_get(world)
    gpu_host_ops._ONE_SHOT_BYTES = limit
    world.host_ops = usual


def host_ops(world: Any) -> None:
    @settings(together, max_examples=12)
    @given(st.sampled_from(DTYPES), SIZES, st.booleans(), st.data())
    def example(dtype: torch.dtype, n: int, halves: bool, data: st.DataObject) -> None:
        team = world.team_world
        half = team.split_2d(max(1, world.n_pes // 2))[0] if halves else team
        root = data.draw(st.integers(0, world.n_pes - 1)) % half.n_pes
        op = data.draw(st.sampled_from(("sum", "min", "max")))
        count = half.n_pes * n
        parts = [noise(count, dtype, pe + n) for pe in range(world.n_pes)]
        if dtype.is_floating_point:
            parts = [(part.view(torch.uint8)[:: dtype.itemsize] % 7).to(dtype) for part in parts]
        src = triton_dist.from_tensor(parts[world.pe])
        dst = triton_dist.zeros(count, dtype=dtype)
        sources = [parts[pe] for pe in half.pes]
        mine = slice(half.my_pe * n, (half.my_pe + 1) * n)

        def reduced(values: list[torch.Tensor]) -> torch.Tensor:
            import numpy

            if dtype.is_floating_point:
                stacked = torch.stack(values).double()
                return {"sum": stacked.sum(0), "min": stacked.amin(0), "max": stacked.amax(0)}[op].to(dtype)
            arrays = numpy.stack([value.numpy() for value in values])
            ufunc = {"sum": numpy.add, "min": numpy.minimum, "max": numpy.maximum}[op]
            return torch.from_numpy(ufunc.reduce(arrays, dtype=arrays.dtype))

        for name, arguments, want in (
            ("broadcast", (dst, src, root), sources[root]),
            ("fcollect", (dst, src[:n]), torch.cat([source[:n] for source in sources])),
            ("alltoall", (dst, src), torch.cat([source[mine] for source in sources])),
            ("reduce", (dst, src, op), reduced(sources)),
            ("reducescatter", (dst[:n], src, op), reduced([source[mine] for source in sources])),
            ("alltoall", (src, src), torch.cat([source[mine] for source in sources])),
        ):
            getattr(triton_dist, name)(*arguments, team=half)
            world.barrier_all()
            found = arguments[0]
            assert torch.equal(found.view(torch.uint8), want.view(torch.uint8)), f"{name} of {n} {dtype} on {half}"
        src.copy_(parts[world.pe])
        world.barrier_all()
        triton_dist.reduce(src, src, op, team=half)
        assert torch.equal(src.view(torch.uint8), reduced(sources).view(torch.uint8)), f"reduce in place of {dtype}"
        world.barrier_all()
        for handle in sorted(world.teams, reverse=True)[:-1]:
            world.teams[handle].destroy()

    example()


def check_put_and_get(world: Any) -> None:
    following, before = (world.pe + 1) % world.n_pes, (world.pe - 1) % world.n_pes
    table = triton_dist.zeros(4, 6)
    mine = torch.arange(24.0).view(4, 6) + 100 * world.pe
    triton_dist.put(table[1:3, ::2], mine[1:3, ::2], following)
    triton_dist.barrier()
    want = torch.zeros(4, 6)
    want[1:3, ::2] = (torch.arange(24.0).view(4, 6) + 100 * before)[1:3, ::2]
    assert torch.equal(table, want)
    taken = torch.empty(6, 4)
    triton_dist.get(taken, table.t(), before)
    triton_dist.barrier()
    assert taken[2, 1] == 8 + 100 * ((world.pe - 2) % world.n_pes)


def check_groups_and_meshes(world: Any) -> None:
    with raises(RuntimeError, r"init_process_group\(\) first"):
        triton_dist.team_from_group(None)
    distributed.init_process_group("gloo")
    team = triton_dist.team_from_group(distributed.group.WORLD)
    assert list(team.pes) == list(range(world.n_pes))
    team.destroy()
    last = distributed.new_group([world.n_pes - 1])
    team = triton_dist.team_from_group(last if world.pe == world.n_pes - 1 else None)
    assert bool(team) == (world.pe == world.n_pes - 1)
    mesh = init_device_mesh("cpu", (world.n_pes // 2, 2), mesh_dim_names=("rows", "columns"))
    for name, numbers in (
        ("rows", range(world.pe % 2, world.n_pes, 2)),
        ("columns", range(world.pe - world.pe % 2, world.pe - world.pe % 2 + 2)),
    ):
        team = triton_dist.team_from_group(mesh, name)
        assert list(team.pes) == list(numbers) == list(triton_dist.team_from_group(mesh[name]).pes)
        kernels_on(world, team, 2, 0)
    with raises(ValueError, r"mesh of 2 dimensions: pass one of them, as mesh\['rows'\] or mesh\['columns'\]"):
        triton_dist.team_from_group(mesh)
    if world.n_pes == 4:
        odd = [distributed.new_group(ranks) for ranks in ([0, 1, 3], [2])]
        with raises(ValueError, "equal, ascending distances"):
            triton_dist.team_from_group(odd[world.pe == 2])
        pair = distributed.new_group([0, 1])
        with raises(RuntimeError, "each of its ranks must be a PE of this world.* and pass this group"):
            triton_dist.team_from_group(pair if world.pe == 0 else None)
    distributed.destroy_process_group()


def check_mistakes(world: Any) -> None:
    everybody = world.team_world
    n = world.n_pes
    for arguments, pattern in (
        ((0, 0, 2), "stride 0 and size 2 must be positive"),
        ((0, -1, 2), "stride -1"),
        ((0, 1, 0), "size 0 must be positive"),
        ((-1, 1, 2), r"PEs -1 to 0 are not all in \[0, \d\)"),
        ((1, 1, n), rf"PEs 1 to {n} are not all in"),
    ):
        with raises(ValueError, pattern):
            everybody.split_strided(*arguments)
    with raises(ValueError, "xrange 0 must be positive"):
        everybody.split_2d(0)
    with raises(RuntimeError, r"PE 0: split_strided\(0, 1, 1\); PE 1: split_2d\(1\)"):
        everybody.split_strided(0, 1, 1) if world.pe == 0 else everybody.split_2d(1)
    with raises(ValueError, "cannot be destroyed"):
        everybody.destroy()
    first = everybody.split_strided(0, 1, 1)
    row, _ = everybody.split_2d(1)
    stranger = triton_dist.Team(world, "stranger", 5, range((world.pe + 1) % n, (world.pe + 1) % n + 1))
    x = triton_dist.zeros(4 * n)
    for function, arguments, team, kind, pattern in (
        (triton_dist.reduce, (x, x), stranger, RuntimeError, "destroyed"),
        (triton_dist.reduce, (x, x), 3, TypeError, "team must be a triton_dist.Team"),
        (triton_dist.reduce, (x, x, "prod"), None, ValueError, "op is 'prod': it must be one of sum, min, max"),
        (triton_dist.reduce, (x, x[1:]), None, ValueError, f"dst must have as many elements as src: dst has {4 * n}"),
        (triton_dist.reduce, (x, torch.zeros(4 * n)), None, ValueError, "reduce: src, of shape .* is not symmetric"),
        (triton_dist.reduce, (x, x.int()), None, ValueError, "dst is of torch.float32 and src of torch.int32"),
        (triton_dist.fcollect, (x, x), None, ValueError, f"dst must have {n} times as many elements as src"),
        (triton_dist.reducescatter, (x, x), None, ValueError, f"src must have {n} times as many elements as dst"),
        (triton_dist.alltoall, (x[1:], x[1:]), None, ValueError, f"cannot be shared out to {n} PEs"),
        (triton_dist.broadcast, (x, x, n), None, ValueError, rf"root {n} is out of range \[0, {n}\)"),
        (triton_dist.broadcast, (x.view(2, -1).t(), x.view(2, -1).t()), None, ValueError, "not contiguous"),
    ):
        with raises(kind, pattern):
            function(*arguments, team=team)
    with raises(ValueError, "put: dst has shape"):
        triton_dist.put(x, x[1:], 0)
    with raises(ValueError, rf"pe {n} is out of range"):
        triton_dist.put(x, x, n)
    with raises(TypeError, "get: dst must be a torch.Tensor, got list"):
        triton_dist.get([1], x, 0)
    with raises(ValueError, "the CPU world has no streams"):
        triton_dist.barrier(stream=0)
    handle = row.handle
    row.destroy()
    with raises(RuntimeError, rf"<team of PE {world.pe}> was destroyed"):
        _ = row.handle
    with raises(RuntimeError, f"team is {handle}: PE {world.pe} has no such team"):
        use[(1,)](handle, x, x, x, x, x, x, x, 1, 0)
    with raises(RuntimeError, "in 32 teams, and no more are to be had"):
        while True:
            everybody.split_strided(0, 1, n)
    if first:
        first.barrier()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(globals())
