"""The operators, parallel styles and the autotuner of PyTorch users, as one PE of some: on GPUs, or in the CPU world.

    torchrun --nproc-per-node 2 tests/gpu/worker_torch_ops.py [CHECK…]

PE 0 prints a line for each check. With ``TRITON_DIST_ALLOW_SHARED_GPU=1`` PEs may share a GPU for
``weight_gradients``; other checks compare with NCCL, which refuses that. On GPUs the shapes are such that the
overlapping algorithms can be had, and generated code and CUDA graphs are tried as well.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import distributed, nn
from torch.distributed.tensor import DTensor, Shard, init_device_mesh, parallel
from worker_checks import run_checks

import triton_dist
import triton_dist.language as dl
from triton_dist import kernels, tensor_parallel
from triton_dist.kernels import functional
from triton_dist.serving import CustomAllreduce

ON_GPU = triton_dist.kind() == "gpu"
ROWS, K, N = (256, 512, 384) if ON_GPU else (4, 6, 5)  # rows of each PE
DTYPE = torch.bfloat16 if ON_GPU else torch.float32


def whole(*shape: int, seed: int = 0) -> torch.Tensor:
    """Small integers, the same on every PE, so that sums are exact in float32."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).to(DTYPE)


def close(found: torch.Tensor | None, expected: torch.Tensor | None, world: Any) -> None:
    assert found is not None and expected is not None
    found, expected = found.detach(), expected.detach()
    scale = float(expected.float().abs().max()) + 1e-6
    error = float((found.float() - expected.float().to(found.device)).abs().max()) / scale
    assert error < (2e-2 if ON_GPU else 1e-5), f"PE {world.pe}: relative error {error:g}"


def gradients(world: Any) -> None:
    """A column and a row parallel GEMM, forward and backward, against one process's."""
    n, me = world.n_pes, world.pe
    for algorithm in ("auto", "bulk_synchronous"):
        A, B, C = whole(n * ROWS, K).float(), whole(K, n * N, seed=1).float(), whole(n * N, K, seed=2).float() / 8
        for leaf in (A, B, C):
            leaf.requires_grad_()
        (torch.relu(A @ B) @ C).sum().backward()
        a = A.detach()[me * ROWS :][:ROWS].to(world.device, DTYPE).requires_grad_()
        b = B.detach()[:, me * N :][:, :N].t().contiguous().to(world.device, DTYPE).requires_grad_()
        c = C.detach()[me * N :][:N].contiguous().to(world.device, DTYPE).requires_grad_()
        hidden = torch.relu(functional.all_gather_gemm(a, b.t(), algorithm=algorithm))
        out = functional.gemm_reduce_scatter(hidden, c, algorithm=algorithm)
        out.sum().backward()
        close(out, (torch.relu(A @ B) @ C).detach()[me * ROWS :][:ROWS], world)
        close(a.grad, A.grad[me * ROWS :][:ROWS], world)
        close(b.grad, B.grad[:, me * N :][:, :N].t(), world)
        close(c.grad, C.grad[me * N :][:N], world)
        _, gathered = functional.all_gather_gemm(a, b.t(), algorithm=algorithm, return_gathered=True)
        close(gathered, A.detach(), world)


def weight_gradients(world: Any) -> None:
    """The gradient of B, for which the copy engine gathers A while the gradient of ``a`` is computed.

    Many steps with other numbers, the bits of calls one after the other, and on GPUs in a graph, among direct calls.
    """
    n, me = world.n_pes, world.pe
    rows, k, columns = (4096, 1024, 256) if ON_GPU else (ROWS, K, N)  # A is large enough for it
    where = 0, n, ""
    a, b = torch.empty(rows, k), torch.empty(columns, k)
    a, b = (x.to(world.device, DTYPE).requires_grad_() for x in (a, b))
    grad = torch.empty(n * rows, columns, device=world.device, dtype=DTYPE)

    def step(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """New operands, and the gradients that one process finds."""
        A, B, G = (
            whole(*shape, seed=3 * number + i).to(world.device)
            for i, shape in enumerate(((n * rows, k), (n * columns, k), (n * rows, n * columns)))
        )
        mine = slice(me * columns, (me + 1) * columns)
        with torch.no_grad():
            a.copy_(A[me * rows :][:rows])
            b.copy_(B[mine])
            grad.copy_(G[:, mine])
        return (G.float() @ B.float())[me * rows :][:rows], G[:, mine].t().float() @ A.float()

    def backward() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(functional.all_gather_gemm(a, b.t()), (a, b), grad)

    def check(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, torch.Tensor]) -> None:
        for ours, theirs in zip(found, expected, strict=True):
            close(ours, theirs, world)
        mine, weight = a.detach(), b.detach()
        alone = torch.ops.triton_dist.gemm_reduce_scatter(grad, weight, "sum", *where)
        assert torch.equal(found[0], alone), "the gradient of a has other bits than a gemm_reduce_scatter of its own"
        alone = grad.t() @ torch.ops.triton_dist.all_gather(mine, *where)
        assert torch.equal(found[1], alone), "the gradient of b has other bits than with A that was gathered before"

    for number in range(8):
        expected = step(number)
        check(backward(), expected)
    if not ON_GPU:
        return
    for _ in range(50):  # without the host in between
        found = backward()
    check(found, expected)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = backward()
    for number in range(8, 12):
        expected = step(number)
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        check(captured, expected)
        check(backward(), expected)
        torch.cuda.synchronize()


def replicated(world: Any) -> None:
    n, me = world.n_pes, world.pe
    A, B = whole(n * ROWS, n * K).float(), whole(n * K, N, seed=1).float()
    a, b = A[:, me * K :][:, :K].contiguous(), B[me * K :][:K].contiguous()
    a, b = (x.to(world.device, DTYPE).requires_grad_() for x in (a, b))
    out = functional.gemm_all_reduce(a, b, reduce_grad=False)
    out.sum().backward()
    close(out, A @ B, world)
    close(a.grad, torch.ones(n * ROWS, N) @ B[me * K :][:K].t(), world)
    kept = out.clone()
    functional.gemm_all_reduce(a, 2 * b)
    assert torch.equal(out, kept), "a result changed when the workspace was used again"


def collectives(world: Any) -> None:
    n = world.n_pes
    for size in (7, 1024, (1 << 20) + 1 if ON_GPU else 20_001):
        x = torch.full((n * size,), world.pe + 1.0, dtype=DTYPE, device=world.device, requires_grad=True)
        total = n * (n + 1) / 2
        assert (functional.all_reduce(x) == total).all() and (functional.reduce_scatter(x) == total).all()
        gathered = functional.all_gather(x).view(n, -1)
        assert all((gathered[pe] == pe + 1).all() for pe in range(n))
        exchanged = functional.all_to_all(x).view(n, size)
        assert all((exchanged[pe] == pe + 1).all() for pe in range(n))
        (functional.all_gather(x) * 2).sum().backward()
        assert (x.grad == 2 * n).all()


def written_tensors(world: Any) -> None:
    """Autograd counts what calls store to, also of those that C++ makes again."""
    n = world.n_pes
    shared = triton_dist.zeros(n * ROWS, N, dtype=DTYPE)
    x, own = shared[:ROWS], torch.ones(ROWS, N, device=world.device, dtype=DTYPE)
    a, b = whole(ROWS, K).to(world.device), whole(K, N).to(world.device)
    rows = torch.tensor([0, ROWS], dtype=torch.int32, device=world.device)
    experts = torch.empty_like(own)
    calls: tuple[tuple[torch.Tensor, Callable[[], object]], ...] = (
        (own, lambda: kernels.all_reduce(own)),
        (x, lambda: kernels.all_reduce(own, out=x)),
        (shared, lambda: kernels.all_gather(shared, own)),
        (own, lambda: kernels.reduce_scatter(own, shared)),
        (shared, lambda: kernels.broadcast(shared)),
        (shared, lambda: kernels.all_gather_gemm(a, b, shared)),
        (experts, lambda: kernels.moe.grouped_gemm(a, b[None], rows[:1], rows[1:], out=experts)),
    )
    for i, (tensor, call) in enumerate(calls):
        for again in range(20):
            before = tensor._version
            call()
            assert tensor._version > before, f"call {i}, {again}"


def styles(world: Any) -> None:
    """Ours against PyTorch's own, on its process groups."""
    torch.manual_seed(0)
    mesh = init_device_mesh(world.device.type, (world.n_pes,))
    model = nn.Sequential(nn.Linear(K, world.n_pes * N), nn.GELU(), nn.Linear(world.n_pes * N, K))
    model.to(world.device, DTYPE)
    x = torch.randn(2, ROWS, K, generator=torch.Generator().manual_seed(world.pe)).to(world.device, DTYPE)
    found = []
    for style in (parallel, tensor_parallel):
        plan = {
            "0": style.ColwiseParallel(input_layouts=Shard(1)),
            "2": style.RowwiseParallel(output_layouts=Shard(1)),
        }
        made = parallel.parallelize_module(copy.deepcopy(model), mesh, plan)
        mine = x.clone().requires_grad_()
        y = made(mine)
        y.float().square().sum().backward()
        grads = [p.grad.full_tensor() for p in made.parameters() if isinstance(p.grad, DTensor)]
        found.append([y, mine.grad, *grads])
    assert len(found[0]) == len(found[1]) == 6
    for theirs, ours in zip(*found, strict=True):
        close(ours.detach(), theirs.detach(), world)


def serving(world: Any) -> None:
    """The servers' all-reduce as they call it: once to warm up in ``capture``, then in a graph that is replayed."""
    ca = CustomAllreduce(device=world.device, max_size=1 << 20)
    total = world.n_pes * (world.n_pes + 1) / 2
    for shape in ((1, 64), (128, K), (512, 1000)):
        x = torch.full(shape, world.pe + 1.0, dtype=DTYPE, device=world.device)
        if not ca.should_custom_ar(x):
            assert x.numel() * x.element_size() > ca.max_size or world.n_pes == 1
            continue
        with ca.capture():
            assert (ca.custom_all_reduce(x) == total).all()
            if not ON_GPU:
                continue
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                y = ca.custom_all_reduce(x)
        for factor in (2, 3):
            x.fill_(factor * (world.pe + 1.0))
            graph.replay()
            assert (y == factor * total).all()


@triton.jit
def sent(out, n, B: tl.constexpr):
    for i in range(0, n, B):
        offsets = i + tl.arange(0, B)
        tl.store(dl.symm_at(out, (dl.my_pe() + 1) % dl.n_pes()) + offsets, B, mask=offsets < n)
    dl.barrier_all()


def autotuning(world: Any) -> None:
    """A kernel in which PEs wait for each other, which a different number of launches would hang."""
    configs = [triton.Config({"B": size}, num_warps=4) for size in (64, 256, 1024)]
    kernel = triton_dist.autotune(configs, key=["n"], warmup=2, rep=5)(sent)
    for n in (1000, 100_000 if ON_GPU else 2000):
        out = triton_dist.zeros(n, dtype=torch.int32)
        kernel[(1,)](out, n)
        triton_dist.barrier_all()
        chosen = triton_dist.from_tensor(torch.tensor([kernel.best_config.kwargs["B"]], device=world.device))
        triton_dist.barrier_all()
        assert len({int(triton_dist.peer(chosen, pe)) for pe in range(world.n_pes)}) == 1
        assert (out == int(chosen)).all()
        triton_dist.barrier_all()


def generated_code(world: Any) -> None:
    """torch.compile with inductor, with a number of rows that changes."""
    compiled = torch.compile(_block, fullgraph=True)
    for rows in (ROWS, ROWS // 2, ROWS // 4):
        x = torch.randn(rows, K, device=world.device).to(DTYPE)
        up, down = (torch.randn(shape, device=world.device).to(DTYPE) / 16 for shape in ((N, K), (K, N)))
        leaves = [[t.clone().requires_grad_() for t in (x, up, down)] for _ in "ab"]
        for call, mine in zip((_block, compiled), leaves, strict=True):
            call(*mine).float().square().sum().backward()
        for eager, traced in zip(*leaves, strict=True):
            close(traced.grad, eager.grad, world)


def graphs(world: Any) -> None:
    """Operators are captured in a CUDA graph once they have run."""
    x = torch.randn(ROWS, K, device=world.device).to(DTYPE)
    up, down = (torch.randn(shape, device=world.device).to(DTYPE) / 16 for shape in ((N, K), (K, N)))
    with torch.no_grad():
        expected = _block(x, up, down) + functional.all_reduce(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = _block(x, up, down) + functional.all_reduce(x)
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    close(found, expected, world)


def _block(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    hidden = torch.nn.functional.gelu(kernels.all_gather_gemm(x, up.t()))
    return functional.gemm_reduce_scatter(hidden, down.t()) + x


def main() -> int:
    checks: list[Callable[[Any], None]] = [gradients, weight_gradients, replicated]
    checks += [collectives, written_tensors, styles, serving, autotuning]
    if ON_GPU:
        pe, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        device = torch.device("cuda", pe % gpus)
        torch.cuda.set_device(device)
        if int(os.environ["LOCAL_WORLD_SIZE"]) > gpus:
            # NCCL refuses PEs that share a GPU, and PyTorch's own styles need its collectives on GPUs.
            distributed.init_process_group("gloo")
            checks.remove(styles)
        else:
            distributed.init_process_group("nccl", device_id=device)
        checks += [generated_code, graphs]
    else:
        distributed.init_process_group("gloo")
    with triton_dist.init() as world:
        run_checks(world, checks, sys.argv[1:])
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
