"""The parallel styles where PEs cannot share the sequence equally, against the model in one process."""

from __future__ import annotations

import copy
from typing import Any

import torch
from harness import main as run
from harness import raises, some
from operands import whole
from tensor_parallel import FEATURES, MLP, Attention, close, mesh_of
from torch import distributed, nn
from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard, distribute_tensor, parallel
from uneven import own

from triton_dist import tensor_parallel

SIZES = (7, 12, 1, 4)


class Block(nn.Module):
    """A decoder's layer, whose residuals are DTensors."""

    def __init__(self, n_pes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.attention = Attention(n_pes)
        self.mlp = MLP(n_pes, True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


def sharded(style: Any, model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    rows = Shard(1)
    by_columns = style.ColwiseParallel(input_layouts=rows)
    by_rows = style.RowwiseParallel(output_layouts=rows, use_local_output=False)
    of_mlp = {"norm": style.SequenceParallel(), "up": by_columns, "down": by_rows}
    of_attention = {"q": by_columns, "k": by_columns, "v": by_columns, "out": by_rows}
    plan = of_mlp
    if isinstance(model, Block):
        plan = {"norm": style.SequenceParallel()}
        plan |= {f"mlp.{name}": how for name, how in of_mlp.items()}
        plan |= {f"attention.{name}": how for name, how in of_attention.items()}
    return parallel.parallelize_module(copy.deepcopy(model), mesh, plan)


def step(model: nn.Module, x: torch.Tensor, weights: torch.Tensor, *, is_dynamic: bool = False) -> list[torch.Tensor]:
    """The result and the gradients of the input and of all parameters, whole."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    if is_dynamic:
        torch._dynamo.mark_dynamic(x, 1)
    y = model(x)
    (y * weights).sum().backward()
    found = [y.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]
    return [each.full_tensor() if isinstance(each, DTensor) else each for each in found]  # type: ignore[misc]


def compare(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        close(one, other)


def check_uneven_sequences(world: Any) -> None:
    torch.manual_seed(0)
    mesh, model = mesh_of(world), Block(world.n_pes)
    made = sharded(tensor_parallel, model, mesh)
    for size in some(SIZES):
        x, weights = (torch.randn(2, size, FEATURES) for _ in range(2))
        shares = [distribute_tensor(each, mesh, [Shard(1)]) for each in (x, weights)]
        y = made(shares[0])
        assert y.placements == (Shard(1),) and y.shape == x.shape
        assert y.to_local().shape[1] == len(range(size)[own(size, world)])
        expected = step(model, x, weights)
        compare(step(made, *shares), expected)
    compare(step(sharded(parallel, model, mesh), *shares), expected)  # PyTorch's own styles do the same


def check_uneven_sequences_compiled(world: Any) -> None:
    """Whole graphs, of forward and backward, of any length, where PyTorch is told so.

    Else it takes a graph for every DTensor whose shard on this PE has the same shape, which is so of several lengths.
    """
    torch.manual_seed(0)
    mesh, model = mesh_of(world), MLP(world.n_pes, True)
    made = sharded(tensor_parallel, model, mesh)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    for size in some((7, 12, 4, 1)):
        given = [distribute_tensor(torch.randn(2, size, FEATURES), mesh, [Shard(1)]) for _ in range(2)]
        compare(step(compiled, *given, is_dynamic=True), step(made, *given))
    assert not torch._dynamo.utils.counters["graph_break"]


def check_uneven_rows_of_matrices(world: Any) -> None:
    """Tokens [rows, features]."""
    n, mesh = world.n_pes, mesh_of(world)
    up, down = nn.Linear(4, 2 * n), nn.Linear(2 * n, 4, bias=False)
    for rows in some((5, 2 * n, 1)):
        x, residual = whole(rows, 4), whole(rows, 4, seed=1)
        style = tensor_parallel.ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate())
        made = parallel.parallelize_module(copy.deepcopy(up), mesh, style)
        close(made(distribute_tensor(x, mesh, [Shard(0)])), up(x))
        style = tensor_parallel.RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(-2), use_local_output=False
        )
        made = parallel.parallelize_module(copy.deepcopy(down), mesh, style)
        inner = up(x).detach()
        found = made(inner)
        close(found.to_local(), down(inner)[own(rows, world)])
        close(found.full_tensor(), down(inner))
        (found * distribute_tensor(residual, mesh, [Shard(0)])).sum().backward()
        (down(inner) * residual).sum().backward()
        close(made.weight.grad.full_tensor(), down.weight.grad)
        down.zero_grad()


def check_uneven_embeddings(world: Any) -> None:
    n, mesh = world.n_pes, mesh_of(world)
    embedding = nn.Embedding(4 * n, 6)
    for rows in some((5, 2 * n, 1)):
        tokens = torch.randint(4 * n, (2, rows), generator=torch.Generator().manual_seed(rows))
        expected, weights = embedding(tokens), whole(2, rows, 6, seed=rows)
        (expected * weights).sum().backward()
        style = tensor_parallel.RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False
        )
        made = parallel.parallelize_module(copy.deepcopy(embedding), mesh, style)
        y = made(tokens)
        close(y.full_tensor(), expected)
        (y * distribute_tensor(weights, mesh, [Shard(1)])).sum().backward()
        close(made.weight.grad.full_tensor(), embedding.weight.grad)
        embedding.zero_grad()


def check_ordinary_tensors_of_uneven_rows_are_refused(world: Any) -> None:
    """Where PEs' ordinary tensors would differ, before any of them is made."""
    n, mesh = world.n_pes, mesh_of(world)
    style = tensor_parallel.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0))
    text = f"RowwiseParallel: dimension 0 of the output is {n + 1}, which {n} PEs cannot .*pass use_local_output=False"
    for module, given in ((nn.Linear(2 * n, 4), torch.ones(n + 1, 2 * n)), (nn.Embedding(2 * n, 4), torch.ones(n + 1))):
        made = parallel.parallelize_module(module, mesh, style)
        with raises(ValueError, text):
            made(given if isinstance(module, nn.Linear) else given.long())


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    run(globals())
    distributed.destroy_process_group()
