"""Each GEMM, collectives, training and graphs, whatever CUDA's and PyTorch's settings are: a PE's part.

    CUDA_LAUNCH_BLOCKING=1 torchrun --nproc-per-node 2 tests/gpu/worker_settings.py

With ``--own-gpu`` a process sees only its own GPU. Some settings change what is queued, and when it begins: a kernel
that waited for what cannot begin would hang. Then every PE prints where.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from worker_checks import matrix, run_checks

import triton_dist
from triton_dist import World, kernels
from triton_dist.kernels import functional
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE
from triton_dist.nn import MoE

HIDDEN, TOKENS = 2048, 512
HANG_SECONDS = 140  # of one check
BLOCKING = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"


Calls = dict[str, tuple[Callable[[], torch.Tensor], torch.Tensor]]


def gemms(world: World, rows: int) -> Calls:
    """By name, calls and what their results should be, of so many rows on each PE."""
    n, me = world.n_pes, world.pe
    whole, b = matrix(n * rows, 512, 1), [matrix(512, 512, 2 + pe) for pe in range(n)]
    own = slice(me * rows, (me + 1) * rows)
    gathered, total = whole @ b[me], torch.stack([(whole @ each).float() for each in b]).sum(0).to(torch.bfloat16)
    columns = torch.cat([whole @ each for each in b], 1)
    scattered = triton_dist.zeros(n * rows, n * 512, dtype=torch.bfloat16)
    summed = triton_dist.zeros(n * rows, 512, dtype=torch.bfloat16)
    calls: Calls = {}
    for name in ("auto", *GATHER):
        gather = partial(kernels.all_gather_gemm, whole[own], b[me], algorithm=name)
        calls[f"all_gather_gemm, {name}"] = gather, gathered
    for name in ("auto", *SCATTER):
        scatter = partial(kernels.gemm_all_scatter, whole, b[me], scattered, algorithm=name)
        calls[f"gemm_all_scatter, {name}"] = scatter, columns
    for name in ("auto", *(name for name in REDUCE if name != "fused")):
        reduce = partial(kernels.gemm_all_reduce, whole, b[me], summed, algorithm=name)
        share = partial(kernels.gemm_reduce_scatter, whole, b[me], algorithm=name)
        calls |= {f"gemm_all_reduce, {name}": (reduce, total), f"gemm_reduce_scatter, {name}": (share, total[own])}
    return calls


def gemms_of_every_algorithm(world: World) -> None:
    for rows in (40, 1000):
        for name, (call, expected) in gemms(world, rows).items():
            if BLOCKING and name == "all_gather_gemm, copy_engine":
                with pytest.raises(ValueError, match="CUDA_LAUNCH_BLOCKING"):
                    call()
            elif name != "all_gather_gemm, push" or rows > 40:
                for _ in range(2):  # the second one is prepared
                    assert torch.equal(call(), expected), f"{name}, {rows} rows"


def collectives(world: World) -> None:
    n = world.n_pes
    input = torch.full((1 << 20,), world.pe, dtype=torch.int32, device="cuda")
    for algorithm in ("low_latency", "push", "copy_engine"):
        part = input[: 1 << 12] if algorithm == "low_latency" else input
        output = triton_dist.zeros(n, part.numel(), dtype=torch.int32)
        for _ in range(2):
            kernels.all_gather(output, part, algorithm=algorithm)
        assert output.tolist()[-1][-1] == n - 1 and (output[:, 0] == torch.arange(n, device="cuda")).all()


def training(world: World) -> None:
    """Gradients whose operand is gathered beside a GEMM, and experts whose backward has kernels on two streams."""
    a, b = matrix(2048, HIDDEN, 1).requires_grad_(), matrix(HIDDEN, HIDDEN, 2).requires_grad_()
    layer = MoE(HIDDEN, 512, num_experts=8, top_k=2, max_tokens=TOKENS, device=world.device, dtype=torch.bfloat16)
    for _ in range(2):
        functional.all_gather_gemm(a, b).sum().backward()
        layer(matrix(TOKENS, HIDDEN, 3).requires_grad_()).sum().backward()
    assert a.grad is not None and b.grad is not None and layer.w13.grad is not None
    expected = 2 * world.n_pes * b.detach().float().sum(1)
    torch.testing.assert_close(a.grad[0].float(), expected, rtol=2e-2, atol=8)


def graphs(world: World) -> None:
    """Two graphs, replayed in another order than they were captured in."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") or torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        return  # a tensor of a capture cannot be made, or has memory during replays only
    calls = gemms(world, 1000)
    captured = {}
    for name in ("all_gather_gemm, auto", "gemm_all_reduce, auto"):
        call, expected = calls[name]
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = call()
        captured[name] = graph, found, expected
    for name in sorted(captured, reverse=True) * 2:
        graph, found, expected = captured[name]
        found.zero_()
        triton_dist.barrier_all()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(found, expected), name


def main() -> int:
    if "--own-gpu" in sys.argv:
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
    with triton_dist.init() as world:
        torch.cuda.set_device(world.device)
        run_checks(world, (gemms_of_every_algorithm, collectives, training, graphs), seconds=HANG_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
