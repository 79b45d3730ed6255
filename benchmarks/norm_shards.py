"""The two halves of a sequence-parallel layer: reduce-scatter + norm, and norm + all-gather; part of norm.py.

Each PE keeps its shard of the rows of the residual. The peers are NCCL's collective and the norm as one kernel of
torch.compile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from harness import compiled

from triton_dist import World, kernels

__all__ = ["SHARDED", "Sharded"]

Step = Callable[[int], torch.Tensor]


class Sharded(ABC):
    """Sets of rows of all PEs together, [m, h], where n_pes divides m, and this PE's shards of residuals."""

    name: str
    algorithms = ("fused", "unfused")

    def __init__(self, world: World, m: int, h: int, eps: float) -> None:
        self.world, self.m, self.h, self.eps = world, max(m, world.n_pes), h, eps
        self.each = self.m // world.n_pes
        self.sets = max(2, min(16, (128 << 20) // (self.m * h * 4))) if world.kind == "gpu" else 1
        self.sent = self.m * h * 2 * (world.n_pes - 1) / world.n_pes
        """Bytes that a PE sends, and that it receives, at least."""
        self.weight = self.random(h, seed=7)
        self.residual = [self.random(self.each, h, seed=1000 * world.pe + i + 8) for i in range(self.sets)]

    def random(self, *shape: int, seed: int) -> torch.Tensor:
        device = self.world.device
        generator = torch.Generator(device).manual_seed(seed)
        return torch.randn(*shape, generator=generator, device=device).bfloat16()

    def norm(self, rows: torch.Tensor) -> torch.Tensor:
        return rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()

    def check(self, result: torch.Tensor, i: int) -> str | None:
        expected = self.expected(i)
        error = (result.float() - expected).abs().max().item() / expected.abs().max().item()
        return None if error <= 0.03 else f"an error is {error:.3f} of the largest value"

    def contenders(self) -> dict[str, Step]:
        contenders: dict[str, Step] = {"ours": partial(self.ours, "auto")}
        return contenders | {f"ours {algorithm}": partial(self.ours, algorithm) for algorithm in self.algorithms}

    @abstractmethod
    def expected(self, i: int) -> torch.Tensor: ...

    @abstractmethod
    def ours(self, algorithm: str, i: int) -> torch.Tensor: ...

    @abstractmethod
    def peers(self, add_norm: Callable[..., Any]) -> dict[str, Step]:
        """NCCL beside ``add_norm(total, residual, weight, None)``, the norm and the sum, which torch compiles."""


class ReduceScatterNorm(Sharded):
    """This PE's rows of the norm of the sum of every PE's partial sums and the residual."""

    name = "reduce_scatter_norm"

    def __init__(self, world: World, m: int, h: int, eps: float) -> None:
        super().__init__(world, m, h, eps)
        self.x = [self.partial_sums(world.pe, i) for i in range(self.sets)]

    def partial_sums(self, pe: int, i: int) -> torch.Tensor:
        return self.random(self.m, self.h, seed=1000 * pe + i + 500)

    def expected(self, i: int) -> torch.Tensor:
        mine = slice(self.world.pe * self.each, (self.world.pe + 1) * self.each)
        total = sum(self.partial_sums(pe, i)[mine].float() for pe in range(self.world.n_pes))
        return self.norm(total + self.residual[i].float())

    def ours(self, algorithm: str, i: int) -> torch.Tensor:
        found = kernels.reduce_scatter_norm(self.x[i], self.weight, self.residual[i], eps=self.eps, algorithm=algorithm)
        return found.output

    def peers(self, add_norm: Callable[..., Any]) -> dict[str, Step]:
        one_kernel = compiled(add_norm)

        def nccl(i: int) -> torch.Tensor:
            total = self.residual[i].new_empty(self.each, self.h)
            dist.reduce_scatter_tensor(total, self.x[i])
            result: torch.Tensor = one_kernel(total, self.residual[i], self.weight, None)[0]
            return result

        return {"NCCL + torch.compile": nccl}


class NormAllGather(Sharded):
    """Every PE's rows of the norm of this PE's rows and the residual."""

    name = "norm_all_gather"

    def __init__(self, world: World, m: int, h: int, eps: float) -> None:
        super().__init__(world, m, h, eps)
        self.x = [self.rows_of(world.pe, i) for i in range(self.sets)]

    def rows_of(self, pe: int, i: int) -> torch.Tensor:
        return self.random(self.each, self.h, seed=1000 * pe + i + 500)

    def expected(self, i: int) -> torch.Tensor:
        pes = range(self.world.n_pes)
        residuals = [self.random(self.each, self.h, seed=1000 * pe + i + 8) for pe in pes]
        return torch.cat([self.norm(self.rows_of(pe, i).float() + residuals[pe].float()) for pe in pes])

    def ours(self, algorithm: str, i: int) -> torch.Tensor:
        found = kernels.norm_all_gather(self.x[i], self.weight, self.residual[i], eps=self.eps, algorithm=algorithm)
        return found.output

    def peers(self, add_norm: Callable[..., Any]) -> dict[str, Step]:
        one_kernel = compiled(add_norm)

        def nccl(i: int) -> torch.Tensor:
            mine = one_kernel(self.x[i], self.residual[i], self.weight, None)[0]
            whole = mine.new_empty(self.m, self.h)
            dist.all_gather_into_tensor(whole, mine)
            return whole

        return {"NCCL + torch.compile": nccl}


SHARDED: tuple[type[Sharded], ...] = (ReduceScatterNorm, NormAllGather)
