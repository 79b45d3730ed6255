"""torch.compile with its own backend: generated code around the operators, with a number of rows that changes."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run

from triton_dist.kernels import functional

torch._inductor.config.compile_threads = 1


def check_inductor(world: Any) -> None:
    def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(functional.all_gather_gemm(x, up.t()) * 2)
        return functional.gemm_reduce_scatter(hidden, down.t()) + x

    compiled = torch.compile(mlp, fullgraph=True)
    for rows in (3, 5):
        shapes = ((rows, 4), (6, 4), (4, 6))
        leaves = [
            [torch.linspace(-1, 1 + world.pe, x * y).view(x, y).requires_grad_() for x, y in shapes] for _ in "ab"
        ]
        expected, found = mlp(*leaves[0]), compiled(*leaves[1])
        torch.testing.assert_close(found, expected)
        expected.square().sum().backward()
        found.square().sum().backward()
        for eager, traced in zip(*leaves, strict=True):
            torch.testing.assert_close(traced.grad, eager.grad, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    run(globals())
