"""The parallel styles against PyTorch's own, over gloo: results and gradients, layouts, torch.compile, and mistakes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from running import main as run
from running import raises
from torch import distributed, nn
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard, init_device_mesh, parallel

import triton_dist
from triton_dist import kernels, tensor_parallel

FEATURES, HEADS = 4, 2


class MLP(nn.Module):
    def __init__(self, n_pes: int, bias: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.up = nn.Linear(FEATURES, 3 * n_pes, bias=bias)
        self.down = nn.Linear(3 * n_pes, FEATURES, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self, n_pes: int) -> None:
        super().__init__()
        self.heads = HEADS * n_pes
        self.q, self.k, self.v = (nn.Linear(FEATURES, 4 * self.heads) for _ in range(3))
        self.out = nn.Linear(4 * self.heads, FEATURES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (linear(x).unflatten(-1, (-1, 4)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def mesh_of(world: Any) -> DeviceMesh:
    return init_device_mesh(world.device.type, (world.n_pes,))


def full(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def apply(style: Any, model: nn.Module, mesh: DeviceMesh, plan: dict[str, tuple[str, dict[str, Any]]]) -> nn.Module:
    made = {name: getattr(style, kind)(**options) for name, (kind, options) in plan.items()}
    return parallel.parallelize_module(copy.deepcopy(model), mesh, made)


def compare(model: nn.Module, mesh: DeviceMesh, plan: Any, x: torch.Tensor, wrap: Any = None) -> nn.Module:
    """Both styles, forward and backward; ours is returned."""
    outcomes = []
    for style in (parallel, tensor_parallel):
        made = apply(style, model, mesh, plan)
        mine = x.detach().clone().requires_grad_()
        y = made(DTensor.from_local(mine, mesh, [wrap], run_check=False) if wrap is not None else mine)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
        if isinstance(y, DTensor):
            weights = DTensor.from_local(weights, mesh, [Replicate()], run_check=False)
        full((y * weights).sum()).backward()
        outcomes.append((made, y, mine.grad))
    (theirs, y, grad), (ours, found, found_grad) = outcomes
    assert isinstance(found, DTensor) == isinstance(y, DTensor)
    if isinstance(y, DTensor):
        assert found.placements == y.placements
    close(full(found), full(y))
    close(full(found_grad), full(grad))
    for (name, expected), parameter in zip(theirs.named_parameters(), ours.parameters(), strict=True):
        assert parameter.placements == expected.placements, name
        close(full(parameter.grad), full(expected.grad))
    return ours


def sequence(world: Any, dim: int = 1, batch: int = 2) -> torch.Tensor:
    shape = (batch, 3, FEATURES) if dim == 1 else (3 * batch, FEATURES)
    return torch.randn(shape, generator=torch.Generator().manual_seed(world.pe))


def check_mlp_with_sequence_parallelism(world: Any) -> None:
    torch.manual_seed(0)
    mesh = mesh_of(world)
    for bias in (True, False):
        for dim in (1, 0):
            plan = {
                "norm": ("SequenceParallel", {"sequence_dim": dim}),
                "up": ("ColwiseParallel", {"input_layouts": Shard(dim)}),
                "down": ("RowwiseParallel", {"output_layouts": Shard(dim)}),
            }
            made: Any = compare(MLP(world.n_pes, bias), mesh, plan, sequence(world, dim))
            if bias:  # added up, as PyTorch's: what is done to local gradients is right, too
                assert made.down.bias.grad.placements == (Replicate(),)
                torch.nn.utils.clip_grad_value_(made.down.parameters(), 0.05)
    plan["down"] = ("RowwiseParallel", {"output_layouts": Shard(dim), "use_local_output": False})
    compare(MLP(world.n_pes, True), mesh, plan, sequence(world, dim))


def check_mlp_with_replicated_tensors(world: Any) -> None:
    torch.manual_seed(0)
    mesh, x = mesh_of(world), torch.randn(2, 3, FEATURES, generator=torch.Generator().manual_seed(1))
    for bias in (True, False):
        plan = {"up": ("ColwiseParallel", {}), "down": ("RowwiseParallel", {})}
        model = nn.Sequential()
        model.up, model.act, model.down = MLP(world.n_pes, bias).up, nn.Tanh(), MLP(world.n_pes, bias).down
        compare(model, mesh, plan, x)
        compare(model, mesh, plan, x, Replicate())
        plan["down"] = ("RowwiseParallel", {"use_local_output": False})
        compare(model, mesh, plan, x)


def check_other_layouts(world: Any) -> None:
    """Those that PyTorch redistributes: results and gradients are its own."""
    torch.manual_seed(0)
    mesh, n = mesh_of(world), world.n_pes
    up, down = nn.Sequential(nn.Linear(4 * n, 2 * n)), nn.Sequential(nn.Linear(2 * n, 4 * n))
    wide, narrow = torch.randn(2, n, 4 * n), torch.randn(2, n, 4)
    for options, x in (
        ({"input_layouts": Shard(-1)}, narrow),
        ({"input_layouts": Shard(-1), "output_layouts": Replicate()}, narrow),
        ({"input_layouts": Shard(1), "output_layouts": Shard(2), "use_local_output": False}, wide),
        ({"output_layouts": Shard(1)}, wide),
    ):
        compare(up, mesh, {"0": ("ColwiseParallel", options)}, x)
    part = torch.randn(2, n, 2)
    for options, x in (
        ({"output_layouts": Shard(-1)}, part),
        ({"input_layouts": Shard(2), "output_layouts": Shard(-2)}, part),
        ({"input_layouts": Replicate()}, torch.randn(2, n, 2 * n, generator=torch.Generator().manual_seed(1))),
    ):
        compare(down, mesh, {"0": ("RowwiseParallel", options)}, x)
    compare(up, mesh, {"0": ("ColwiseParallel", {})}, wide, Partial())
    compare(up, mesh, {"0": ("ColwiseParallel", {})}, wide, Shard(1))


def check_autocast(world: Any) -> None:
    torch.manual_seed(0)
    mesh, x = mesh_of(world), sequence(world)
    for layout in (Shard(1), Replicate()):
        outcomes = []
        for style in (parallel, tensor_parallel):
            plan = {
                "up": ("ColwiseParallel", {"input_layouts": layout}),
                "down": ("RowwiseParallel", {"output_layouts": layout}),
            }
            torch.manual_seed(1)
            made = apply(style, MLP(world.n_pes, True), mesh, plan)
            with torch.autocast("cpu", torch.bfloat16):
                y = made.down(torch.tanh(made.up(x if layout == Shard(1) else torch.ones(2, 3, FEATURES))))
            y.float().square().sum().backward()
            outcomes.append((y, full(made.up.weight.grad), full(made.down.bias.grad)))
        for expected, found in zip(*outcomes, strict=True):
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def check_autocast_leaves_float64(world: Any) -> None:
    """As PyTorch's layers: a layer of float64 computes in float64."""
    mesh, n = mesh_of(world), world.n_pes
    for style in (parallel, tensor_parallel):
        made = apply(style, nn.Sequential(nn.Linear(4, 2 * n).double()), mesh, {"0": ("ColwiseParallel", {})})
        with torch.autocast("cpu", torch.bfloat16):
            assert made(torch.ones(3, 4, dtype=torch.float64)).dtype == torch.float64


def check_vectors(world: Any) -> None:
    """nn.Linear takes an input of one dimension."""
    torch.manual_seed(0)
    mesh, n = mesh_of(world), world.n_pes
    replicated = torch.randn(2 * n, generator=torch.Generator().manual_seed(1))
    mine = torch.randn(2, generator=torch.Generator().manual_seed(world.pe))
    model = nn.Sequential(nn.Linear(2 * n, 3 * n))
    for options, x in (({}, replicated), ({"output_layouts": Replicate()}, replicated)):
        compare(model, mesh, {"0": ("ColwiseParallel", options)}, x)
    compare(model, mesh, {"0": ("ColwiseParallel", {})}, replicated, Replicate())
    compare(model, mesh, {"0": ("ColwiseParallel", {"input_layouts": Shard(0)})}, mine)
    for options in ({}, {"use_local_output": False}, {"output_layouts": Shard(0)}):
        compare(model, mesh, {"0": ("RowwiseParallel", options)}, mine)


def check_attention(world: Any) -> None:
    torch.manual_seed(0)
    plan = {name: ("ColwiseParallel", {"input_layouts": Shard(1)}) for name in "qkv"}
    plan["out"] = ("RowwiseParallel", {"output_layouts": Shard(1)})
    compare(Attention(world.n_pes), mesh_of(world), plan, sequence(world))


def check_embeddings(world: Any) -> None:
    """By rows, against PyTorch's; those that it looks up alone are left to it."""
    torch.manual_seed(0)
    mesh, n = mesh_of(world), world.n_pes
    tokens = torch.randint(4 * n, (2, 3 * n))
    for options, embedding in (
        ({}, {}),
        ({"output_layouts": Shard(1)}, {}),
        ({"output_layouts": Shard(1), "use_local_output": False}, {"padding_idx": 4 * n - 1}),
        ({"output_layouts": Shard(-1)}, {"padding_idx": 0}),
    ):
        model = nn.Sequential(nn.Embedding(4 * n, 2 * n, **embedding))
        plan = {"0": ("RowwiseParallel", {"input_layouts": Replicate()} | options)}
        outcomes = []
        for style in (parallel, tensor_parallel):
            made = apply(style, model, mesh, plan)
            y = made(tokens)
            full((y * y.detach().cos()).sum()).backward()
            outcomes.append((full(y), full(made[0].weight.grad)))
        for expected, found in zip(*outcomes, strict=True):
            close(found, expected)
    plan = {"0": ("RowwiseParallel", {"input_layouts": Replicate()})}
    uneven = nn.Sequential(nn.Embedding(4 * n + 1, 2))
    close(full(apply(tensor_parallel, uneven, mesh, plan)(tokens)), uneven(tokens))
    for options in ({"max_norm": 1.0}, {"sparse": True}, {"scale_grad_by_freq": True}):
        made = apply(tensor_parallel, nn.Sequential(nn.Embedding(4 * n, 2, **options)), mesh, plan)
        assert type(made[0]) is nn.Embedding


def check_compile(world: Any) -> None:
    torch.manual_seed(0)
    plan = {
        "norm": ("SequenceParallel", {}),
        "up": ("ColwiseParallel", {"input_layouts": Shard(1)}),
        "down": ("RowwiseParallel", {"output_layouts": Shard(1)}),
    }
    model = apply(tensor_parallel, MLP(world.n_pes, True), mesh_of(world), plan)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for batch in (2, 3):
        eager, traced = (sequence(world, 1, batch).requires_grad_() for _ in range(2))
        expected, found = model(eager), compiled(traced)
        close(found, expected)
        expected.square().sum().backward()
        found.square().sum().backward()
        close(traced.grad, eager.grad)


def check_blocks_compiled_one_by_one(world: Any) -> None:
    """As is usual for models of many equal blocks: what is compiled for the first serves the others."""
    mesh = mesh_of(world)
    plan = {
        "up": ("ColwiseParallel", {"input_layouts": Shard(1)}),
        "down": ("RowwiseParallel", {"output_layouts": Shard(1)}),
    }
    blocks = [apply(tensor_parallel, MLP(world.n_pes, True), mesh, plan) for _ in range(3)]
    torch._dynamo.utils.counters.clear()
    x = torch.randn(2, 3, FEATURES)
    for block in blocks:
        close(torch.compile(block, backend="aot_eager", fullgraph=True)(x), block(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def check_state_and_copies(world: Any) -> None:
    """The layer is still an nn.Linear with PyTorch's parameters; copies work; training changes them."""
    model, mesh = nn.Sequential(nn.Linear(4, 2 * world.n_pes)), mesh_of(world)
    made = apply(tensor_parallel, model, mesh, {"0": ("ColwiseParallel", {"input_layouts": Shard(0)})})
    assert isinstance(made[0], nn.Linear)
    copied = copy.deepcopy(made)
    x = torch.randn(3, 4)
    close(copied(x), made(x))
    copied.load_state_dict(made.state_dict())
    optimizer = torch.optim.AdamW(made.parameters(), foreach=False)
    made(x).sum().backward()
    optimizer.step()
    assert not torch.equal(made(x), copied(x))


def check_symmetric_tensors_in_dtensors(world: Any) -> None:
    """Ours can be wrapped like any tensor; what needs their memory names the wrapper."""
    mesh = mesh_of(world)
    x = triton_dist.full((2, 4), float(world.pe))
    wrapped = DTensor.from_local(x, mesh, [Shard(0)], run_check=False)
    assert wrapped.to_local().data_ptr() == x.data_ptr()
    close((wrapped * 2).full_tensor()[::2, 0], 2.0 * torch.arange(world.n_pes))
    model = apply(tensor_parallel, nn.Sequential(nn.Linear(4, 2 * world.n_pes)), mesh,
                  {"0": ("ColwiseParallel", {"input_layouts": Shard(0)})})  # fmt: skip
    close(model(wrapped), model(x))
    triton_dist.peer(wrapped.to_local(), 0)
    with raises(TypeError, "a DTensor has no memory of its own", r"to_local\(\)"):
        triton_dist.peer(wrapped, 0)
    with raises(TypeError, "a DTensor has no memory of its own"):
        triton_dist.free(wrapped)
    with raises(TypeError, "all_gather_gemm: a DTensor", r"to_local\(\)"):
        kernels.all_gather_gemm(wrapped, torch.ones(4, 4))
    with raises(TypeError, "all_reduce: a DTensor", r"to_local\(\)"):
        kernels.all_reduce(wrapped)
    with raises(Exception, "triton_dist.all_reduce"):
        kernels.functional.all_reduce(wrapped)


def check_mistakes(world: Any) -> None:
    mesh, n = mesh_of(world), world.n_pes
    with raises(ValueError, rf"ColwiseParallel: out_features of Linear.* is {2 * n + 1}, which {n} PEs cannot"):
        parallel.parallelize_module(nn.Linear(4, 2 * n + 1), mesh, tensor_parallel.ColwiseParallel())
    with raises(ValueError, rf"RowwiseParallel: in_features of Linear.* is {2 * n + 1}, which {n} PEs cannot"):
        parallel.parallelize_module(nn.Linear(2 * n + 1, 4), mesh, tensor_parallel.RowwiseParallel())
    with raises(ValueError, "the mesh is of meta devices, and this PE's device is cpu"):
        tensor_parallel.ColwiseParallel()._apply(nn.Linear(4, 2 * n), _MeshOf("meta"))

    class LoRA(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 2

    with raises(NotImplementedError, "LoRA has a forward of its own"):
        parallel.parallelize_module(LoRA(4, 2 * n), mesh, tensor_parallel.ColwiseParallel())
    with raises(NotImplementedError, "only support nn.Linear and nn.Embedding"):
        parallel.parallelize_module(nn.Conv1d(1, 1, 1), mesh, tensor_parallel.ColwiseParallel())
    style = tensor_parallel.ColwiseParallel(input_layouts=Shard(0))
    made = parallel.parallelize_module(nn.Linear(4, 2 * n), mesh, style)
    with raises(ValueError, "a is of torch.float16, and b of torch.float32"):
        made(torch.ones(2, 4).half())


class _MeshOf:
    """As much of a mesh as is looked at before its device is refused."""

    ndim = 1

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    run(globals())
    with raises(RuntimeError, "there is no world"):
        parallel.parallelize_module(
            nn.Linear(4, 4), init_device_mesh("cpu", (distributed.get_world_size(),)), tensor_parallel.ColwiseParallel()
        )
    print("passed: no_world", flush=True)
    distributed.destroy_process_group()
