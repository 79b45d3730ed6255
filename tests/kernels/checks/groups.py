"""Groups of some PEs in a world of four: rows and columns of 2 × 2, overlapping ones, one PE, and communicators."""

from __future__ import annotations

import inspect
import threading
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from harness import main as run
from harness import raises

import triton_dist
from triton_dist import deep_ep, kernels, nn, serving
from triton_dist.kernels import Communicator, functional
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER
from triton_dist.kernels.gemm.gemm_all_scatter import HOPPER_ALGORITHMS
from triton_dist.kernels.protocols.workspace import Workspace, symmetric_workspace

COLLECTIVES = {
    "all_gather": ("low_latency", "push", "copy_engine", "auto"),
    "reduce_scatter": ("low_latency", "exchange", "push", "auto"),
    "all_reduce": ("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct", "auto"),
    "all_to_all": ("low_latency", "push", "copy_engine", "auto"),
    "broadcast": ("low_latency", "push", "scatter", "auto"),
}
SHAPES = ((0, 1, 2), (0, 2, 2), (1, 1, 3), (0, 1, 3), (3, 1, 1), (1, 2, 2), (0, 3, 2))
"""Start, stride and size: neighbours, every other PE, three of four, one alone; most overlap with others."""


def numbers(numel: int, pe: int, seed: int = 0) -> torch.Tensor:
    """Small integers, whose sums are exact."""
    return torch.randint(-8, 8, (numel,), generator=torch.Generator().manual_seed(100 * seed + pe)).float()


def exercise(group: Any, pes: range, me: int, tensors: dict[str, torch.Tensor], name: str, algorithm: str) -> None:
    """One collective of a group, against what its members have."""
    size, rank, n = len(pes), pes.index(me), 37
    everybody = [numbers(n * size, pe) for pe in pes]
    whole, part = tensors["whole"][: n * size], tensors["part"][:n]
    if name == "all_gather":
        part.copy_(everybody[rank][:n])
        kernels.all_gather(whole, part, algorithm=algorithm, group=group)
        assert torch.equal(whole, torch.cat([other[:n] for other in everybody]))
    elif name == "reduce_scatter":
        whole.copy_(everybody[rank])
        kernels.reduce_scatter(part, whole, algorithm=algorithm, group=group)
        assert torch.equal(part, sum(everybody).view(size, n)[rank])
    elif name == "all_reduce":
        whole.copy_(everybody[rank])
        kernels.all_reduce(whole, algorithm=algorithm, group=group)
        assert torch.equal(whole, sum(everybody))
    elif name == "all_to_all":
        kernels.all_to_all(whole, everybody[rank], algorithm=algorithm, group=group)
        assert torch.equal(whole, torch.cat([other.view(size, n)[rank] for other in everybody]))
    else:
        for root in range(size):
            whole.copy_(everybody[rank])
            kernels.broadcast(whole, root, algorithm=algorithm, group=group)
            assert torch.equal(whole, everybody[root])


def matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randint(-2, 3, (rows, columns), generator=torch.Generator().manual_seed(seed)).float()


def tensors_of(world: Any) -> dict[str, torch.Tensor]:
    return {name: triton_dist.zeros(4 * 40, dtype=torch.float32) for name in ("whole", "part")}


def check_members_alone_call(world: Any) -> None:
    """The other PEs do not, and none waits for them: not even the first call of all waits for a PE outside."""
    row, _ = world.team_world.split_2d(2)
    if world.pe < 2:
        for _ in range(2):
            assert kernels.all_reduce(torch.ones(4), group=row).tolist() == [2.0] * 4
        with Communicator(row) as comm:
            assert functional.all_reduce(torch.ones(4), group=comm).tolist() == [2.0] * 4
            assert comm.zeros(4, dtype=torch.int32).tolist() == [0] * 4
    triton_dist.barrier_all()


def check_rows_and_columns(world: Any) -> None:
    """As tensor parallel × data parallel: every PE is in one of each, and they take turns."""
    tensors = tensors_of(world)
    row, column = world.team_world.split_2d(2)
    for name, algorithms in COLLECTIVES.items():
        for algorithm in algorithms:
            exercise(row, row.pes, world.pe, tensors, name, algorithm)
            exercise(None, range(4), world.pe, tensors, name, algorithm)
            exercise(column, column.pes, world.pe, tensors, name, algorithm)
    kept = [communicator_of(group) for group in (row, column, None)]
    assert len(set(kept)) == 3 and all(comm.workspace_bytes > 0 for comm in kept)
    assert [comm.n_pes for comm in kept] == [2, 2, 4] and kept[0].my_rank == world.pe % 2


def check_overlapping_groups(world: Any) -> None:
    """Each has memory of its own on every PE, and members alone take part."""
    tensors = tensors_of(world)
    teams = {shape: world.team_world.split_strided(*shape) for shape in SHAPES}
    mine = {shape: team for shape, team in teams.items() if team}
    for times in range(2):
        for team in mine.values():
            for name, algorithms in COLLECTIVES.items():
                exercise(team, team.pes, world.pe, tensors, name, algorithms[times])
    spans = []
    for team in mine.values():
        for owned in communicator_of(team)._owned.values():
            spans += [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in getattr(owned, "tensors", {}).values()]
    spans.sort()
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def check_gemms(world: Any) -> None:
    """Every fused GEMM, of rows, columns and one PE; sizes that fit no tile."""
    row, column = world.team_world.split_2d(2)
    alone = world.team_world.split_2d(1)[0]
    m, n, k = 6, 5, 7
    for group in (row, column, alone, None):
        comm = communicator_of(group)
        size, rank = comm.n_pes, comm.my_rank
        parts = [(matrix(m * size, k, 2 * pe), matrix(k, n, 2 * pe + 1)) for pe in comm.pes]
        (a, b), rows = parts[rank], slice(rank * m, (rank + 1) * m)
        gathered = torch.cat([x[:m] for x, _ in parts]) @ parts[0][1]
        summed = torch.stack([x @ y for x, y in parts]).sum(0)
        whole = comm.empty(m * size, n, dtype=torch.float32)
        for algorithm in ("auto", "bulk_synchronous", "fused"):
            found = kernels.gemm_reduce_scatter(a, b, algorithm=algorithm, group=group)
            assert torch.equal(found, summed[rows])
            assert kernels.gemm_all_reduce(a, b, whole, algorithm=algorithm, group=group) is whole
            assert torch.equal(whole, summed)
        assert torch.equal(kernels.all_gather_gemm(a[:m], parts[0][1], group=group), gathered)
        scattered = comm.empty(m, n * size, dtype=torch.float32)
        for algorithm in SCATTER:
            if algorithm not in HOPPER_ALGORITHMS:
                kernels.gemm_all_scatter(parts[0][0][:m], b, scattered, algorithm=algorithm, group=group)
                assert torch.equal(scattered, torch.cat([parts[0][0][:m] @ y for _, y in parts], 1))
        assert torch.equal(kernels.gemm_all_reduce(a, b, group=group), summed), "into a new tensor of the group"


def check_many_shapes_take_bounded_memory(world: Any) -> None:
    """What is outgrown takes no more than what is in use."""
    with Communicator() as comm:
        for rows in range(4, 68, 4):
            kernels.gemm_reduce_scatter(
                torch.ones(rows, 3), torch.ones(3, 50), algorithm="bulk_synchronous", group=comm
            )
        held = [t for name, t in comm.own(Workspace).tensors.items() if name.startswith("matrix")]
        assert held and sum(t.nbytes for t in held) <= 2 * max(t.nbytes for t in held)


def check_several_communicators(world: Any) -> None:
    """Of the same PEs, interleaved: none sees another's flags."""
    tensors = tensors_of(world)
    row, _ = world.team_world.split_2d(2)
    with Communicator(row) as first, Communicator(row) as second, Communicator() as everyone:
        assert first.name != second.name and first.pes == second.pes == row.pes
        for algorithm in COLLECTIVES["all_reduce"]:
            for comm in (first, second, row, everyone, None, first):
                pes = range(4) if comm is None else communicator_of(comm).pes
                exercise(comm, pes, world.pe, tensors, "all_reduce", algorithm)
        assert first.workspace_bytes == second.workspace_bytes > 0
        free = world.group_memory.free_bytes
    assert world.group_memory.free_bytes > free
    assert first.workspace_bytes == 0
    first.close()
    with raises(RuntimeError, "communicator of PEs .* was closed"):
        kernels.all_reduce(torch.ones(4), group=first)
    for call in (
        lambda: first.empty(4, dtype=torch.float32),
        lambda: functional.all_reduce(torch.ones(4), group=first),
        lambda: functional.gemm_all_reduce(torch.ones(4, 4), torch.ones(4, 4), group=first),
        first.barrier,
        lambda: first.exchange("a call", "a value"),
    ):
        with raises(RuntimeError, "communicator of PEs .* was closed"):
            call()


def check_a_communicator_of_a_former_world_is_refused(world: Any) -> None:
    """Also where one of this world has its name, as the first ones of both have. The end of a world closes all."""
    former = Communicator()
    former.close()
    with Communicator() as comm:
        former.name = comm.name
        for module in (kernels, functional):
            with raises(RuntimeError, "communicator of PEs .* was closed"):
                module.all_reduce(torch.ones(4), group=former)
        assert functional.all_reduce(torch.ones(4), group=comm).tolist() == [4.0] * 4


def check_tensors_of_communicators(world: Any) -> None:
    """Shapes, dtypes and ranks are as those of ``triton_dist.empty`` and ``triton_dist.peer``."""
    row, _ = world.team_world.split_2d(2)
    with Communicator(row) as of_row, Communicator() as of_all:
        for comm in (of_row, of_all):
            assert comm.empty((4, 5), dtype=torch.int8).shape == comm.zeros(4, 5, dtype=torch.int8).shape == (4, 5)
            assert comm.zeros(torch.Size((2, 3))).dtype == torch.get_default_dtype()
            for wrong, error, message in (
                ((-1,), ValueError, "sizes must not be negative"),
                (((4, -5),), ValueError, "sizes must not be negative"),
                ((2.5,), TypeError, "a shape is made of integers"),
                (("3",), TypeError, "a shape is made of integers"),
            ):
                with raises(error, message):
                    comm.empty(*wrong, dtype=torch.float32)
            with raises(TypeError, "expected a torch.dtype, got 'float32'"):
                comm.zeros(3, dtype="float32")
            mine = comm.empty(3, dtype=torch.float32)
            assert comm.peer(mine, comm.my_rank).data_ptr() == mine.data_ptr()
            for rank in (-1, comm.n_pes, 99):
                with raises(ValueError, rf"rank {rank} is out of range \[0, {comm.n_pes}\) of <communicator"):
                    comm.peer(mine, rank)
            with raises(TypeError, "rank must be an integer"):
                comm.peer(mine, 0.0)


def check_workspace_that_cannot_grow_is_counted_once(world: Any) -> None:
    with Communicator() as comm:
        symmetric_workspace(comm, "a matrix", 1 << 10)
        before = comm.workspace_bytes, dict(comm.own(Workspace).tensors)
        for _ in range(2):
            with raises(MemoryError):
                symmetric_workspace(comm, "a matrix", 1 << 40)
            assert (comm.workspace_bytes, comm.own(Workspace).tensors) == before
        assert symmetric_workspace(comm, "a matrix", 1 << 10).numel() == 1 << 10


def check_memory_is_reused(world: Any) -> None:
    """What members have dropped, and what a closed communicator had, is given back; too much is one error for all."""
    row, _ = world.team_world.split_2d(2)
    comm = Communicator(row)
    before = world.group_memory.free_bytes
    for _ in range(5):
        tensor = comm.zeros(1 << 20, dtype=torch.uint8)
        assert not tensor.any()
        tensor.fill_(7)
        comm.barrier()
        del tensor
    assert before - world.group_memory.free_bytes <= 1 << 20
    with raises(MemoryError, "TRITON_DIST_GROUP_MEMORY", r"group of PEs \d, \d cannot allocate"):
        comm.empty(1 << 40, dtype=torch.uint8)
    assert comm.zeros(4, dtype=torch.int32).tolist() == [0] * 4
    comm.close()


def check_mistakes(world: Any) -> None:
    row, column = world.team_world.split_2d(2)
    ones = torch.ones(8)
    for group in ("tp", 3, [0, 1]):
        with raises(TypeError, "group must be a triton_dist.Team, a ProcessGroup, a DeviceMesh"):
            kernels.all_reduce(ones, group=group)
    large = Communicator(column).zeros(1 << 18, dtype=torch.float32)
    with raises(ValueError, "tensor, of .* must be symmetric .* it belongs to the group of PEs .* the call is of"):
        kernels.all_reduce(large, algorithm="push", group=row)
    with raises(ValueError, "group of PEs .* must be symmetric|it belongs to the group"):
        kernels.gemm_all_reduce(torch.ones(512, 4), torch.ones(4, 512), large.view(512, 512), group=row)
    with raises(ValueError, "all_gather: output must have 2 times the elements of input"):
        kernels.all_gather(torch.ones(32), ones, group=row)
    with raises(ValueError, r"root must be in \[0, 2\), got 2"):
        kernels.broadcast(ones, 2, group=row)
    gone = triton_dist.team_world().split_strided(0, 1, 4)
    gone.destroy()
    with raises(RuntimeError, "was destroyed"):
        kernels.all_reduce(ones, group=gone)


def check_who_is_no_member_is_told_so(world: Any) -> None:
    """By every function that takes a group, before it waits for anybody: None would be all PEs, who do not come."""
    team = world.team_world.split_strided(0, 1, 2)
    if team:
        return
    why = rf"no member of that team: PE {world.pe} is not in <team of PEs 0, 1>"
    needed = {"reserve": {"hidden": 8}, "tune": {"hidden": 8}}
    found = 0
    for module in (kernels, functional, nn, deep_ep, serving):
        for name in module.__all__:
            function = getattr(module, name)
            if not callable(function) or "group" not in inspect.signature(function).parameters:
                continue
            parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "group"]
            required = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
            named = {p.name: 1 for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY}
            named |= needed.get(name, {})
            with raises(ValueError, why):
                function(*(torch.ones(4, 4) for _ in required), **named, group=team)
            found += 1
    assert found >= 20
    x = triton_dist.team_world().n_pes * [0.0]
    for call in (triton_dist.barrier, partial(triton_dist.reduce, torch.tensor(x), torch.tensor(x))):
        with raises(ValueError, why):
            call(team=team)
    with raises(AttributeError, rf"team\.barrier: this PE is {why}"):
        team.barrier()


def check_two_threads(world: Any) -> None:
    """A second thread in a call of the same communicator is told so; with another one it may go on."""
    comm = communicator_of()
    found: list[BaseException] = []

    def call() -> None:
        try:
            kernels.all_reduce(torch.ones(4))
        except RuntimeError as error:
            found.append(error)

    comm.begin("a call that lasts")
    try:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    finally:
        comm.end()
    assert "another thread is in a call of <communicator of PEs 0, 1, 2, 3>" in str(found[0])
    assert kernels.all_reduce(torch.ones(4)).tolist() == [4.0] * 4, "the communicator is as good as before"


if __name__ == "__main__":
    run(globals())
