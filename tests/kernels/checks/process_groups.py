"""Groups of PyTorch in a world of four: process groups and a mesh of 2 × 2, with kernels, operators and styles."""

from __future__ import annotations

import copy
from typing import Any

import torch
from harness import main as run
from harness import raises
from torch import distributed, nn
from torch.distributed.tensor import DTensor, Shard, init_device_mesh, parallel

import triton_dist
from triton_dist import kernels, tensor_parallel
from triton_dist.kernels import Communicator, functional
from triton_dist.kernels.communicator import communicator_of

OPS: Any = torch.ops.triton_dist


def whole(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_()


def mesh() -> Any:
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def check_every_kind_of_group_is_one(world: Any) -> None:
    """A dimension of a mesh, its process group and the team of the same PEs have one implicit communicator."""
    grid = mesh()
    row, column = world.team_world.split_2d(2)
    for name, team in (("tp", row), ("dp", column)):
        group = grid.get_group(name)
        assert communicator_of(grid[name]) is communicator_of(group) is communicator_of(team)
        for given in (grid[name], group, team, Communicator(group)):
            found = kernels.all_reduce(torch.full((5,), 1.0 + world.pe), group=given)
            assert found.tolist() == [float(sum(1 + pe for pe in team.pes))] * 5
    everyone = distributed.new_group([0, 1, 2, 3])
    assert communicator_of(everyone) is communicator_of()


def check_operators_and_their_gradients(world: Any) -> None:
    """Tensor parallel in rows: each row computes on its own what one process does."""
    grid = mesh()
    for name in ("tp", "dp"):
        group = grid.get_group(name)
        rank = group.rank()
        x, up, down = whole(4, 4, seed=7), whole(4, 6, seed=8), whole(6, 4, seed=9)
        mine = [leaf(x.chunk(2)[rank]), leaf(up.chunk(2, 1)[rank]), leaf(down.chunk(2)[rank])]
        alone = [leaf(x), leaf(up), leaf(down)]

        def both(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, group: Any = group) -> torch.Tensor:
            hidden = functional.all_gather_gemm(x, up, group=group)
            return functional.gemm_reduce_scatter(hidden.relu(), down, group=group)

        expected = (alone[0] @ alone[1]).relu() @ alone[2]
        found = both(*mine)
        torch.testing.assert_close(found, expected.chunk(2)[rank])
        expected.square().sum().backward()
        found.square().sum().backward()
        for i, (part, full) in enumerate(zip(mine, alone, strict=True)):
            torch.testing.assert_close(part.grad, full.grad.chunk(2, 1 if i == 1 else 0)[rank])
        torch._dynamo.reset()
        compiled = torch.compile(both, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(*mine), found)


def check_all_operators_by_name(world: Any) -> None:
    group = mesh().get_group("dp")
    where = (2, group.group_name)
    a, b = leaf(whole(4, 3, seed=world.pe)), leaf(whole(3, 5, seed=world.pe))
    for name, arguments in {
        "all_gather": (a, 0, *where),
        "reduce_scatter": (a, "sum", 0, *where),
        "all_reduce": (a, "sum", *where),
        "all_to_all": (a, *where),
        "all_gather_gemm": (a, b, 0, *where),
        "all_gather_gemm_gathered": (a, b, 0, *where),
        "all_gather_gemm_gradients": (leaf(whole(8, 5)), a, b, 0, *where),
        "gemm_reduce_scatter": (a, b, "sum", 0, *where),
        "gemm_reduce_scatter_gradients": (leaf(whole(2, 5)), a, b, 0, *where),
        "gemm_all_reduce": (a, b, "sum", *where),
        "replicated_gemm": (a, b, *where),
        "gemm_all_scatter": (a, b, *where),
    }.items():
        torch.library.opcheck(getattr(OPS, name).default, arguments)
    with Communicator(group) as comm:
        peers = [pe for pe in range(4) if pe % 2 == world.pe % 2]
        expected = sum(whole(4, 3, seed=pe) for pe in peers)
        torch.testing.assert_close(functional.all_reduce(a.detach(), group=comm), expected)
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: functional.all_reduce(x, group=comm), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(a.detach()), expected)


def check_parallel_styles_on_a_part_of_a_mesh(world: Any) -> None:
    """TP × DP: each row of the mesh has a copy of the model, sharded over its PEs."""
    tp = mesh()["tp"]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))
    plan = {
        "0": tensor_parallel.ColwiseParallel(input_layouts=Shard(0)),
        "2": tensor_parallel.RowwiseParallel(output_layouts=Shard(0)),
    }
    made = parallel.parallelize_module(copy.deepcopy(model), tp, plan)
    x = whole(4, 4, seed=world.pe // 2)  # another batch for each row
    rank = world.pe % 2
    found, expected = made(x.chunk(2)[rank]), model(x)
    torch.testing.assert_close(found, expected.chunk(2)[rank])
    found.square().sum().backward()
    expected.square().sum().backward()
    for ours, theirs in zip(made.parameters(), model.parameters(), strict=True):
        grad = ours.grad.full_tensor() if isinstance(ours.grad, DTensor) else ours.grad
        torch.testing.assert_close(grad, theirs.grad)


def check_mistakes(world: Any) -> None:
    for of in (kernels, functional):
        with raises(ValueError, r"a mesh of 2 dimensions: pass one of them, as mesh\['dp'\] or mesh\['tp'\]"):
            of.all_reduce(torch.ones(4), group=mesh())
    three = distributed.new_group([0, 1, 3])
    if world.pe != 2:
        with raises(ValueError, "ranks 0, 1, 3 is of PEs 0, 1, 3", "at equal, ascending distances", "teams"):
            kernels.all_reduce(torch.ones(3), group=three)
    else:
        with raises(ValueError, "this PE is no member of that team: PE 2 is not in the process group"):
            kernels.all_reduce(torch.ones(3), group=three)
    name = mesh().get_group("tp").group_name
    with raises(ValueError, rf"the group has 4 members, and the group '{name}' has 2 PEs"):
        OPS.all_reduce(torch.ones(3), "sum", 4, name)
    triton_dist.barrier_all()


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    run(globals())
    distributed.destroy_process_group()
