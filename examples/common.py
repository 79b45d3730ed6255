"""What the examples share: data that every PE can recompute, and the line that says how it went."""

from __future__ import annotations

import torch

import triton_dist


def random(*shape: int, pe: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """PE ``pe``'s random data, which any PE can make again to check what it got from there."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 + pe)).to(dtype)


def report(name: str, result: torch.Tensor, expected: torch.Tensor, tolerance: float, seconds: float) -> int:
    """Compare in double precision, gather the error of every PE, print one line on PE 0. Returns the exit status."""
    error = (result.cpu().double() - expected.double()).abs().max().item()
    mine = triton_dist.full(1, error, dtype=torch.float64)
    errors = torch.cat([triton_dist.peer(mine, pe).cpu() for pe in range(triton_dist.n_pes())])
    worst = errors.max().item()  # NaN, if there is one
    passed = worst <= tolerance
    if triton_dist.my_pe() == 0:
        where = f"{triton_dist.kind()} world, {triton_dist.n_pes()} PE{'s' * (triton_dist.n_pes() > 1)}"
        print(f"{'PASS' if passed else 'FAIL'} {name}: {where}, max error {worst:.1e}, {seconds:.2f} s", flush=True)
    return 0 if passed else 1
