"""New tensors of a program are by default on another device: the library's own are where it needs them.

    torchrun --nproc-per-node 2 tests/kernels/checks/default_device.py

Runs in both worlds.
"""

from __future__ import annotations

from typing import Any

import torch
from running import main as run

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional, moe
from triton_dist.nn import MoE

ROWS, HIDDEN = 8, 32


def check_symmetric_memory(world: Any) -> None:
    for tensor in (
        triton_dist.zeros(3, dtype=torch.int32),
        triton_dist.full((3,), 0),
        triton_dist.from_tensor(torch.zeros(3, device="cpu")),
    ):
        assert tensor.device.type == world.device.type and tensor.tolist() == [0, 0, 0]
    gathered = triton_dist.empty(2 * world.n_pes, dtype=torch.int32)
    own = triton_dist.full((2,), world.pe, dtype=torch.int32)
    triton_dist.fcollect(gathered, own)
    assert gathered.tolist() == [pe for pe in range(world.n_pes) for _ in range(2)]


def check_kernels(world: Any) -> None:
    n = world.n_pes
    kernels.reserve(max_tokens=n * ROWS, hidden=HIDDEN, dtype=torch.float32, functional=True)
    x = torch.ones(n * ROWS, HIDDEN, device=world.device)
    weight, norm = torch.eye(HIDDEN, device=world.device), torch.ones(HIDDEN, device=world.device)
    assert torch.equal(functional.all_reduce(x), n * x)
    assert torch.equal(functional.reduce_scatter(x), n * x[:ROWS])
    assert torch.equal(functional.all_gather(x), x.repeat(n, 1))
    assert torch.equal(functional.all_to_all(x), x)
    assert torch.equal(functional.all_gather_gemm(x, weight), x.repeat(n, 1))
    assert torch.equal(functional.gemm_reduce_scatter(x, weight), n * x[:ROWS])
    assert torch.equal(functional.gemm_all_reduce(x, weight), n * x)
    normed = functional.all_reduce_norm(x, norm).output
    torch.testing.assert_close(normed, x, rtol=1e-5, atol=1e-5)


def check_experts(world: Any) -> None:
    x = torch.ones(ROWS, HIDDEN, device=world.device)
    ids = torch.arange(ROWS, device=world.device, dtype=torch.int32)[:, None] % (2 * world.n_pes)
    sizes: dict[str, Any] = {"num_experts": 2 * world.n_pes, "max_tokens": ROWS}
    rows = moe.dispatch(x, ids, **sizes)
    assert torch.equal(moe.combine(rows.x, rows), x)
    once = moe.dispatch_tokens(x, ids, **sizes)
    assert torch.equal(moe.combine_tokens(once.x, once), x)
    for parallel in ("expert", "tensor"):
        layer = MoE(HIDDEN, HIDDEN, **sizes, top_k=1, parallel=parallel, device=world.device)
        layer(x.clone().requires_grad_()).sum().backward()
        assert layer.w13.grad is not None and layer.w13.grad.device.type == world.device.type


if __name__ == "__main__":
    torch.set_default_device("meta")
    run(globals())
