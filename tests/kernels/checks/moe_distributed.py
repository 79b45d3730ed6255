"""Layers of experts whose parameters are DTensors: results, gradients, checkpoints, optimizers, FSDP, and mistakes.

    torchrun --nproc-per-node 2 tests/kernels/checks/moe_distributed.py

Runs in both worlds.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from typing import Any

import torch
from running import main as run
from running import raises, some
from tensor_parallel import close as close_to
from tensor_parallel import full, mesh_of
from torch import distributed, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard, distribute_module, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import triton_dist
from triton_dist.nn import MoE, prepare_for_ddp

HIDDEN, INNER, EXPERTS = 16, 8, 8
SIZES: dict[str, Any] = {"num_experts": EXPERTS, "top_k": 2, "max_tokens": 8}


def grid(world: Any) -> DeviceMesh:
    return init_device_mesh(world.device.type, (world.n_pes // 2, 2), mesh_dim_names=("ep", "tp"))


def ranks(world: Any) -> str:
    return ", ".join(map(str, range(world.n_pes)))


def layers(world: Any) -> dict[str, tuple[MoE, DeviceMesh]]:
    """A layer of each kind, and its mesh."""
    all_pes, both = mesh_of(world), grid(world)
    made: dict[str, tuple[dict[str, Any], DeviceMesh]] = {
        "experts": ({"group": all_pes}, all_pes),
        "the world's": ({"shared_intermediate": 4}, all_pes),
        "of the same tokens": ({"replicated": True, "group": all_pes}, all_pes),
        "slices": ({"parallel": "tensor", "group": all_pes}, all_pes),
        "grid": ({"group": both["ep"], "tp_group": both["tp"], "shared_intermediate": 4}, both),
        "grid of the same tokens": ({"group": both["ep"], "tp_group": both["tp"], "replicated": True}, both),
    }
    found = {}
    for seed, (name, (options, mesh)) in enumerate(made.items()):
        torch.manual_seed(100 * seed + world.pe)
        found[name] = MoE(HIDDEN, INNER, **SIZES, **options), mesh
    return found


def tokens(world: Any, layer: MoE) -> torch.Tensor:
    """Of this PE, or of those that have the same."""
    seed = world.pe
    if layer.replicated:
        seed = 1000 * (1 + (world.pe // 2 if layer.tp_group is not None else 0))
    return torch.randn(5, HIDDEN, device=world.device, generator=torch.Generator(world.device).manual_seed(seed))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    close_to(full(found), expected)


def check_results_and_gradients_stay(world: Any) -> None:
    for name, (layer, mesh) in some(tuple(layers(world).items()), 4):
        for parameter in (layer.gate, *(p for n, p in layer.named_parameters() if n.startswith("shared"))):
            distributed.broadcast(parameter.data, 0)
        changed = copy.deepcopy(layer)
        memory = changed.w13.data_ptr()
        assert changed.distribute_parameters(mesh) is changed
        assert changed.w13.shape == (EXPERTS, 2, INNER, HIDDEN) and changed.w2.shape == (EXPERTS, HIDDEN, INNER), name
        assert changed.w13.to_local().data_ptr() == memory, "the matrices were copied"
        x = tokens(world, layer)
        expected, found = layer(x), changed(x)
        assert torch.equal(found, expected) and not isinstance(found, DTensor), name
        for module in (layer, changed):
            module(x).square().sum().backward()
        for label, parameter in layer.named_parameters():
            gradient = changed.get_parameter(label).grad
            assert isinstance(gradient, DTensor) and parameter.grad is not None
            if label in ("w13", "w2"):
                assert gradient.placements == changed.get_parameter(label).placements
                close(gradient.to_local().reshape(parameter.shape), parameter.grad)
            else:
                whole = parameter.grad.clone()
                replicas = [layer.replicated and layer.tp_group is None, layer.replicated][: mesh.ndim]
                for dim, same in enumerate(replicas):
                    assert gradient.placements[dim] == (Replicate() if same else Partial()), (name, label)
                    if not same:
                        distributed.all_reduce(whole, group=mesh.get_group(dim))
                close(gradient, whole)
        again = copy.deepcopy(changed)
        assert again.mesh is mesh and again.w13 is not changed.w13
        with torch.no_grad():
            close(again(x), expected)
        assert again.double().w13.dtype == torch.float64 and isinstance(again.w13, DTensor)


def check_compiled(world: Any) -> None:
    for name, (layer, mesh) in layers(world).items():
        if name in ("the world's", "slices", "grid"):
            torch._dynamo.reset()  # a function is compiled for so many modules only
            layer.distribute_parameters(mesh)
            compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
            x = tokens(world, layer)
            found = []
            for call in (layer, compiled):
                call(x).square().sum().backward()
                found.append([parameter.grad.full_tensor() for parameter in layer.parameters()])  # type: ignore[union-attr]
                layer.zero_grad()
            for one, other in zip(*found, strict=True):
                close(one, other)
            with torch.no_grad():
                close(compiled(x), layer(x))


def whole_matrices(layer: MoE) -> list[torch.Tensor]:
    return [parameter.full_tensor() for parameter in (layer.w13, layer.w2, layer.gate)]  # type: ignore[attr-defined]


def check_checkpoints_are_of_all_experts(world: Any) -> None:
    """What a layer of one kind saves, those of other kinds load, with what an optimizer keeps."""
    folder = [tempfile.mkdtemp() if world.pe == 0 else ""]
    distributed.broadcast_object_list(folder)
    made = {name: layer.distribute_parameters(mesh) for name, (layer, mesh) in layers(world).items()}
    alike = ("experts", "slices", "of the same tokens")
    saved = made["experts"]
    optimizer = torch.optim.AdamW(saved.parameters(), lr=0.1)
    saved(tokens(world, saved)).square().sum().backward()
    nn.utils.clip_grad_norm_(saved.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    state, of_optimizer = get_state_dict(saved, optimizer)
    checkpoint.save({"model": state, "optimizer": of_optimizer}, checkpoint_id=folder[0])
    expected = whole_matrices(saved)
    assert len({float(matrix.sum()) for matrix in expected[0]}) == EXPERTS, "experts that are alike show nothing"
    for name in (*alike, "grid of the same tokens"):
        layer = made[name]
        others = torch.optim.AdamW(layer.parameters(), lr=0.1)
        state, of_optimizer = get_state_dict(layer, others)
        checkpoint.load({"model": state, "optimizer": of_optimizer}, checkpoint_id=folder[0])
        set_state_dict(layer, others, model_state_dict=state, optim_state_dict=of_optimizer)
        for one, other in zip(whole_matrices(layer), expected, strict=True):
            assert torch.equal(one, other), name
        for label in ("w13", "w2"):
            one, other = (of.state[of_layer.get_parameter(label)]["exp_avg"].full_tensor() for of, of_layer in
                          ((others, layer), (optimizer, saved)))  # fmt: skip
            assert torch.equal(one, other) and other.any(), (name, label)
    distributed.barrier()
    if world.pe == 0:
        shutil.rmtree(folder[0])


def check_norms_of_gradients_and_steps_are_those_of_all_pes(world: Any) -> None:
    for number, (name, (layer, mesh)) in some(tuple(enumerate(layers(world).items())), 3):
        layer.distribute_parameters(mesh)
        layer(tokens(world, layer)).square().sum().backward()
        gradients = [parameter.grad.full_tensor() for parameter in layer.parameters()]  # type: ignore[union-attr]
        norm: Any = nn.utils.clip_grad_norm_(layer.parameters(), 1e9)
        close(norm, torch.stack([gradient.norm() for gradient in gradients]).norm())
        before = [parameter.full_tensor().clone() for parameter in layer.parameters()]  # type: ignore[attr-defined]
        torch.optim.SGD(layer.parameters(), lr=0.5, foreach=number % 2 == 0).step()
        for parameter, old, gradient in zip(layer.parameters(), before, gradients, strict=True):
            assert isinstance(parameter, DTensor), name
            close(parameter, old - 0.5 * gradient)


def check_fsdp_shards_them_further(world: Any) -> None:
    both = init_device_mesh(world.device.type, (2, world.n_pes // 2), mesh_dim_names=("dp", "ep"))
    torch.manual_seed(world.pe % (world.n_pes // 2))
    layer = MoE(HIDDEN, INNER, **SIZES, group=both["ep"]).distribute_parameters(both["ep"])
    plain = copy.deepcopy(layer)
    fully_shard(layer, mesh=both["dp"])
    x = tokens(world, layer)
    expected = plain(x)
    assert torch.equal(layer(x), expected)
    for module in (plain, layer):
        module(x).square().sum().backward()
    for label, parameter in layer.named_parameters():
        mean = plain.get_parameter(label).grad.full_tensor()
        distributed.all_reduce(mean, group=both.get_group("dp"))
        close(parameter.grad, mean / 2)


class Block(nn.Module):
    """With what is replicated around experts."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, HIDDEN)
        self.experts = MoE(HIDDEN, INNER, **{**SIZES, **options}, shared_intermediate=4)
        for name, parameter in self.named_parameters():
            if not name.endswith(("w13", "w2")):
                distributed.broadcast(parameter.data, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.experts(self.up(x))


def check_data_parallel_leaves_experts_to_their_pes(world: Any) -> None:
    both = grid(world)
    for options in some(({"group": both["ep"], "tp_group": both["tp"]}, {}, {"parallel": "tensor"}), 3):
        torch.manual_seed(world.pe)
        model = Block(**options)
        plain = copy.deepcopy(model)
        assert prepare_for_ddp(prepare_for_ddp(model)) is model
        wrapped = DistributedDataParallel(copy.deepcopy(model))
        x = tokens(world, plain.experts)
        expected = plain(x)
        assert torch.equal(wrapped(x), expected), "experts of one PE were copied to the others"
        plain(x).square().sum().backward()
        wrapped(x).square().sum().backward()
        for name, parameter in wrapped.module.named_parameters():
            mean = plain.get_parameter(name).grad / world.n_pes
            if not name.endswith(("w13", "w2")):
                distributed.all_reduce(mean)
            close(parameter.grad, mean)


def check_gradients_in_data_parallel_are_those_of_the_mean_loss(world: Any) -> None:
    """By differences of the loss: of one number of an expert, of the router and of the layer in front. All experts are
    chosen, since other choices would make the loss jump."""
    both = grid(world)
    grids = {"group": both["ep"], "tp_group": both["tp"]}
    for options in ({}, {"replicated": True}, {"parallel": "tensor"}, grids, {**grids, "replicated": True}):
        torch.manual_seed(world.pe)
        model = prepare_for_ddp(Block(top_k=EXPERTS, **options))
        wrapped = DistributedDataParallel(model)
        x = tokens(world, model.experts)

        def loss(model: nn.Module = model, x: torch.Tensor = x) -> torch.Tensor:
            return model(x).square().sum()

        wrapped(x).square().sum().backward()
        for name in ("experts.w13", "experts.w2", "experts.gate", "up.weight"):
            parameter = model.get_parameter(name)
            own = name.endswith(("w13", "w2"))
            place = parameter.grad.abs().flatten().argmax()  # type: ignore[union-attr]
            if not own:
                distributed.broadcast(place, 0)
            for pe in range(world.n_pes) if own else (0,):
                means = []
                for step in (2**-7, -(2**-7)):
                    with torch.no_grad():
                        before = parameter.clone()
                        if pe == world.pe or not own:
                            parameter.view(-1)[place] += step
                        mean = loss() / world.n_pes
                        distributed.all_reduce(mean)
                        means.append(mean)
                        parameter.copy_(before)
                found = parameter.grad.flatten()[place]  # type: ignore[union-attr]
                difference = (means[0] - means[1]) / 2**-6
                if pe == world.pe or not own:
                    what = f"{options}, {name} of PE {pe}: {float(found)}, by differences {float(difference)}"
                    torch.testing.assert_close(found, difference, rtol=0.02, atol=1e-3, msg=what)


def check_data_parallel_is_refused_where_it_would_copy_experts(world: Any) -> None:
    x = torch.randn(5, HIDDEN, device=world.device)
    model = DistributedDataParallel(Block())
    with raises(
        RuntimeError, f"MoE: the ranks {ranks(world)} have experts of their own, and DistributedDataParallel has"
    ):
        model(x)
    # A layer that is none of the module's, as a teacher's, is not looked at; of a module of another thread neither.
    teacher = Block()

    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.others = nn.Linear(HIDDEN, HIDDEN), [teacher]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.up(x) + self.others[0](x).detach()

    assert DistributedDataParallel(Student())(x).isfinite().all()
    # Between replicas it is right, and averages.
    both = init_device_mesh(world.device.type, (2, world.n_pes // 2), mesh_dim_names=("dp", "ep"))
    torch.manual_seed(world.pe % (world.n_pes // 2))
    block = Block(group=both["ep"])
    x = tokens(world, block.experts)
    plain = copy.deepcopy(block)
    replicas = DistributedDataParallel(block, process_group=both.get_group("dp"))
    for each in (plain, replicas):
        each(x).square().sum().backward()
    mean = plain.experts.w13.grad
    distributed.all_reduce(mean, group=both.get_group("dp"))
    close(block.experts.w13.grad, mean / 2)
    with raises(ValueError, "prepare_for_ddp: PEs of process_group have the same experts of experts, or"):
        prepare_for_ddp(Block(group=both["ep"]))
    with raises(TypeError, "prepare_for_ddp: process_group must be a ProcessGroup, got DeviceMesh"):
        prepare_for_ddp(Block(), both)
    with raises(TypeError, "prepare_for_ddp: model must be a module, got list"):
        prepare_for_ddp([Block()])  # type: ignore[arg-type]
    with raises(ValueError, "prepare_for_ddp: the model has DTensors"):
        prepare_for_ddp(MoE(HIDDEN, INNER, **SIZES).distribute_parameters(mesh_of(world)))


def check_data_parallel_compiled(world: Any) -> None:
    how = {"backend": "aot_eager", "fullgraph": True}
    for prepare in (False, True):
        for compiled_first in (False, True):
            torch._dynamo.reset()
            model = Block()
            plain, x = copy.deepcopy(model), tokens(world, model.experts)
            if prepare:
                prepare_for_ddp(model)
            if compiled_first:
                wrapped = DistributedDataParallel(torch.compile(model, **how))
            else:
                model.experts.compile(**how)
                wrapped = DistributedDataParallel(model)
            if prepare:
                close(wrapped(x), plain(x))
            else:
                with raises(Exception, "and DistributedDataParallel has copied those of one to all"):
                    wrapped(x)


def check_others_that_would_take_experts_for_replicas(world: Any) -> None:
    mesh = mesh_of(world)
    same = f"w13 would be a DTensor that takes it for the same on the ranks {ranks(world)}"
    said = f"{same}, which have experts of their own"
    with raises(ValueError, said):
        fully_shard(Block(), mesh=mesh)
    with raises(ValueError, said):
        distribute_module(MoE(HIDDEN, INNER, **SIZES), mesh)
    torch.manual_seed(world.pe)
    block = Block()
    plain, x = copy.deepcopy(block), tokens(world, block.experts)
    fully_shard(block, mesh=mesh, ignored_params={block.experts.w13, block.experts.w2})
    assert torch.equal(block(x), plain(x))
    # Between replicas it is right.
    both = init_device_mesh(world.device.type, (2, world.n_pes // 2), mesh_dim_names=("dp", "ep"))
    torch.manual_seed(world.pe % (world.n_pes // 2))
    block = Block(group=both["ep"])
    plain, x = copy.deepcopy(block), tokens(world, block.experts)
    fully_shard(block, mesh=both["dp"])
    assert isinstance(block.experts.w13, DTensor) and torch.equal(block(x), plain(x))


def check_on_meta(world: Any) -> None:
    mesh = mesh_of(world)
    layer = MoE(HIDDEN, INNER, **SIZES, device=torch.device("meta")).distribute_parameters(mesh)
    layer.to_empty(device=world.device)
    assert layer.w13.placements == (Shard(0),) and layer.gate.placements == (Replicate(),)
    torch.manual_seed(0)
    layer.reset_parameters()
    found = layer(tokens(world, layer))
    assert found.isfinite().all() and found.any()


def check_mistakes(world: Any) -> None:
    mesh, both = mesh_of(world), grid(world)
    layer = MoE(HIDDEN, INNER, **SIZES)
    with raises(TypeError, r"MoE.distribute_parameters: mesh must be a DeviceMesh, got int"):
        layer.distribute_parameters(4)
    with raises(ValueError, r"mesh must have 1 dimensions \(group\), got 2"):
        layer.distribute_parameters(both)
    said = f"dimension 0 of the mesh must have the PEs of group, in their order; it has {world.n_pes // 2} PEs"
    with raises(ValueError, said):
        layer.distribute_parameters(both["ep"])
    turned = DeviceMesh(world.device.type, list(reversed(range(world.n_pes))))
    with raises(ValueError, f"this is number {world.n_pes - 1 - world.pe}, and group {world.n_pes}, of which this is"):
        layer.distribute_parameters(turned)
    first = DeviceMesh(world.device.type, [0, 1])
    if world.pe > 1:
        with raises(ValueError, "this PE is not in the mesh"):
            layer.distribute_parameters(first)
    sliced = MoE(HIDDEN, INNER, **SIZES, group=both["ep"], tp_group=both["tp"])
    with raises(ValueError, r"mesh must have 2 dimensions \(group, tp_group\), got 1"):
        sliced.distribute_parameters(mesh)
    layer.distribute_parameters(mesh)
    with raises(RuntimeError, "the parameters are DTensors of a mesh already"):
        layer.distribute_parameters(mesh)


if __name__ == "__main__":
    on_gpus = triton_dist.kind() == "gpu"
    distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo")
    torch.manual_seed(0)
    if on_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.set_default_device("cuda")
    run(globals())
    distributed.destroy_process_group()
