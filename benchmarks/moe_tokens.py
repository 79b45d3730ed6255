"""Tokens once to each PE and back (``dispatch_tokens``, as DeepEP's ``Buffer`` does), for moe.py.

Against NCCL: an all_to_all_single of the rows for each PE, whose indices and splits are computed before, and not timed.
The bound is that of a dispatch: the bytes that cross, at a copy engine's rate.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from harness import Bench, Contender
from moe_cases import FP8, Case, Shape, wrong_tokens
from targets import share_of_bound

from triton_dist.kernels import moe

__all__ = ["TOKENS", "Tokens", "measure_tokens", "ours_both"]

TOKENS = tuple(
    Shape(f"tokens, {name}", 4096, hidden, experts, 8)
    for name, hidden, experts in (("DeepSeek-V3", 7168, 256), ("Qwen3-30B-A3B", 2048, 128))
)

DIRECT = "ours, to a symmetric result"


class Tokens:
    """Which tokens go to which PEs, of the routing of a case."""

    def __init__(self, case: Case) -> None:
        self.case, pe = case, case.world.pe
        there = torch.stack([
            (case.all_ids // case.local == rank).any(dim=-1) for rank in range(case.world.n_pes)
        ])  # [to, from, tokens]  # fmt: skip
        self.index = torch.cat([there[rank, pe].nonzero().flatten() for rank in range(case.world.n_pes)])
        self.sent: list[int] = there[:, pe].sum(dim=-1).tolist()
        self.received: list[int] = there[pe].sum(dim=-1).tolist()
        self.expected = torch.cat([case.tokens_of(source)[there[pe, source]] for source in range(case.world.n_pes)])
        self.pes = there[:, pe].sum(dim=0)[:, None]

    def nccl_dispatch(self) -> Contender:
        x = self.case.x.view(torch.uint8)
        received = x.new_empty(sum(self.received), x.shape[1])

        def step(_: int) -> torch.Tensor:
            dist.all_to_all_single(received, x[self.index], self.received, self.sent)
            return received.view(self.case.dtype)

        return step

    def nccl_combine(self, y: torch.Tensor) -> Contender:
        received = y.new_empty(len(self.index), y.shape[1])

        def step(_: int) -> torch.Tensor:
            dist.all_to_all_single(received, y, self.sent, self.received)
            total = torch.zeros(self.case.x.shape, dtype=torch.float32, device=y.device)
            return total.index_add_(0, self.index, received.float()).to(y.dtype)

        return step

    def check_rows(self, result: torch.Tensor, _: int) -> str | None:
        wrong = (result[: len(self.expected)].float() != self.expected.float()).sum().item()
        return f"{wrong} elements differ" if wrong else None

    def check_sums(self, result: torch.Tensor, _: int) -> str | None:
        return wrong_tokens(result, self.case.x.float() * self.pes, 0.02 * result.float().abs())


def _dispatched(case: Case, **options: Any) -> moe.DispatchedTokens:
    return moe.dispatch_tokens(case.x, case.ids, case.weights, **case.options, **options)


def _combining(case: Case, num_sms: int, **options: Any) -> Contender:
    """Of rows as they came."""
    found = _dispatched(case, num_sms=num_sms)
    return lambda _: moe.combine_tokens(found.x, found, **options)


def ours_both(case: Case, **options: Any) -> Contender:
    def step(_: int) -> torch.Tensor:
        found = _dispatched(case, **options)
        return moe.combine_tokens(found.x, found)

    return step


def measure_tokens(bench: Bench, shape: Shape, rate: float) -> None:
    numbers = 16, 20, 24, 64
    for dtype in (torch.bfloat16, FP8):
        case = Case(shape, bench.world, dtype)
        tokens = Tokens(case)
        name = f"{shape.name}, {shape.tokens} x {shape.hidden} {dtype}, top {shape.top_k} of {shape.num_experts}"
        out = bench.world.empty((bench.world.n_pes * shape.tokens, shape.hidden), dtype)
        contenders: dict[str, Contender] = {
            f"{name_of}, {n} SMs": lambda _, case=case, n=n, to=to: _dispatched(case, num_sms=n, out=to).x
            for name_of, to in (("ours", None), (DIRECT, out))
            for n in numbers
        }
        contenders["ours, by load and store, 24 SMs"] = lambda _, case=case: (
            _dispatched(case, num_sms=24, algorithm="portable").x
        )
        contenders["NCCL, permuted"] = tokens.nccl_dispatch()
        bound = case.sent_bytes() / rate
        entry = bench.compare(f"dispatch of {name}", contenders, check=tokens.check_rows, calls=8, bound=bound)
        for which in ("ours, 24 SMs", f"{DIRECT}, 24 SMs"):
            bench.say(share_of_bound(entry, 0.85, which, 3.0))
        if dtype == FP8:
            continue
        contenders = {f"ours, {n} SMs": _combining(case, n) for n in numbers}
        contenders["ours, by load and store, 24 SMs"] = _combining(case, 24, algorithm="portable")
        contenders["NCCL, permuted"] = tokens.nccl_combine(tokens.expected)
        back = case.received_bytes() / rate
        entry = bench.compare(f"combine of {name}", contenders, check=tokens.check_sums, calls=8, bound=back)
        bench.say(share_of_bound(entry, 0.85, "ours, 24 SMs", 3.0))
