"""Fused GEMMs over several hosts by slices of hosts: scales, epilogues and margins, direct and in CUDA graphs, in turn
with bulk-synchronous calls, whose workspace is another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import triton_dist
from ops.harness import GPU, check
from ops.kernel_epilogues import E4M3, by_columns, expect, expect_close, fractions, matrix
from triton_dist import World, kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.device import sms
from triton_dist.kernels.gemm.operation import BETWEEN_HOSTS

CASES = ((256, 1168, 512), (13, 130, 128), (1024, 4096, 384)) if GPU else ((3, 18, 128),)
"""Rows of a PE, columns and K."""


def refused(call: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="needs a group over several hosts"):
        call(algorithm="two_level")


def powers(*shape: int, seed: int, world: World) -> torch.Tensor:
    return 2.0 ** matrix(*shape, seed, torch.float32, world)


@check(own_gpu=True)
def gemms_by_slices_of_hosts(world: World) -> None:
    """fp8 with scales of rows and of blocks, bias, residual, SwiGLU, and a margin of multiprocessors."""
    n_pes, two_level = world.n_pes, communicator_of().grid.hosts > 1
    for rows, n, k in CASES:
        m, own = rows * n_pes, slice(rows * world.pe, rows * (world.pe + 1))
        parts = [(matrix(m, k, 2 * i, E4M3, world), matrix(k, n, 2 * i + 1, E4M3, world)) for i in range(n_pes)]
        of_a = [powers(m, 1, seed=40 + i, world=world) for i in range(n_pes)]
        of_b = [powers(1, n, seed=80 + i, world=world) for i in range(n_pes)]
        a, b = parts[world.pe][0], by_columns(parts[world.pe][1])
        bias, residual = (fractions(*s, seed=5, dtype=torch.float32, world=world) for s in ((n,), (m, n)))
        f32 = torch.float32
        part, local = (torch.empty(size, n, dtype=f32, device=world.device) for size in (rows, m))
        folded = torch.empty(m, n // 2, dtype=torch.bfloat16, device=world.device)
        whole = triton_dist.empty(m, n, dtype=f32)
        if not two_level:
            for call in (
                partial(kernels.all_gather_gemm, a[own], b, local),
                partial(kernels.gemm_reduce_scatter, a, b, part),
                partial(kernels.gemm_all_reduce, a, b, whole),
            ):
                refused(call)
            triton_dist.free(whole)
            continue
        pairs = zip(parts, of_a, of_b, strict=True)
        total = torch.stack([(x.double() * p) @ (y.double() * q) for (x, y), p, q in pairs]).sum(0)
        gathered = torch.cat([(parts[i][0].double() * of_a[i])[rows * i : rows * (i + 1)] for i in range(n_pes)])
        sums = gathered @ (parts[world.pe][1].double() * of_b[world.pe])
        gate, up = (sums + bias.double())[:, ::2], (sums + bias.double())[:, 1::2]
        for algorithm in (*BETWEEN_HOSTS, "auto"):
            for margin in (0, sms() // 2) if GPU else (0, 1):
                what = f"{algorithm}, {rows} rows, margin of {margin}"
                how: dict[str, Any] = {"algorithm": algorithm, "sm_margin": margin, "scale_b": of_b[world.pe]}
                mine, everything = (
                    how | {"scale_a": of_a[world.pe][own]},
                    how | {"scale_a": of_a[world.pe], "bias": bias},
                )
                expect(partial(kernels.all_gather_gemm, a[own], b, local, **mine), local, sums, what)
                call = partial(kernels.all_gather_gemm, a[own], b, folded, activation="swiglu", bias=bias, **mine)
                expect_close(call, folded, torch.nn.functional.silu(gate) * up, what)
                scatter = partial(kernels.gemm_reduce_scatter, a, b, part, residual=residual[own], **everything)
                expect(scatter, part, (total + bias.double() + residual.double())[own], what)
                reduce = partial(kernels.gemm_all_reduce, a, b, whole, residual=residual, **everything)
                expect(reduce, whole, total + bias.double() + residual.double(), what)
        triton_dist.free(whole)


@check(own_gpu=True)
def gemms_between_hosts_in_turn(world: World) -> None:
    """Calls of all functions and algorithms, with rows that change, one after the other without a pause."""
    if communicator_of().grid.hosts == 1:
        ones = partial(torch.ones, device=world.device)
        refused(partial(kernels.gemm_reduce_scatter, ones(2 * world.n_pes, 2), ones(2, 2)))
        return
    n_pes, (n, k) = world.n_pes, (640, 256) if GPU else (20, 8)
    most = 300 if GPU else 5
    dtype = torch.bfloat16
    pairs = [
        (matrix(most * n_pes, k, 2 * i, dtype, world), matrix(k, n, 2 * i + 1, dtype, world)) for i in range(n_pes)
    ]
    total = torch.stack([a.double() @ b.double() for a, b in pairs]).sum(0)
    a, b = pairs[world.pe]
    whole = triton_dist.empty(most * n_pes, n, dtype=dtype)
    found = []
    for i, rows in enumerate(torch.randint(1, most, (12,), generator=torch.Generator().manual_seed(1)).tolist()):
        how = {"algorithm": BETWEEN_HOSTS[i % 3 == 2]}
        m = rows * n_pes
        part = kernels.gemm_reduce_scatter(a[:m], b, **how)
        kernels.gemm_all_reduce(a[:m], b, whole[:m], **how)
        found.append((rows, part, whole[:m].clone(), kernels.all_gather_gemm(a[:rows], b, **how)))
    for rows, part, summed, local in found:
        m = rows * n_pes
        gathered = torch.cat([x[:rows] for x, _ in pairs]).double() @ b.double()
        assert torch.equal(part, total[rows * world.pe : rows * (world.pe + 1)].to(dtype)), rows
        assert torch.equal(summed, total[:m].to(dtype)), rows
        assert torch.equal(local, gathered.to(dtype)), rows
    triton_dist.barrier_all()
    triton_dist.free(whole)
