"""What the stress test calls of ``kernels.moe``: dispatch and combine, by choices and by tokens, slices of experts,
layers in two kernels.

Rows that only move, and sums of small integers, are compared with PyTorch's bit by bit. Results of GEMMs whose sums are
rounded are compared as those of attention are (``stress_library.verified``).
"""

from __future__ import annotations

from typing import Any

import torch
from stress_cases import GPU, VARIANTS, Case, Cases, Recipe
from stress_library import BF16, verified

from triton_dist.kernels import moe

__all__ = ["groups"]

FP8 = torch.float8_e4m3fn
EXPERTS = (
    ((128, 7168, 8, 32, 0), (5, 1024, 2, 4, 0), (1500, 2048, 8, 32, 16))
    if GPU
    else ((6, 64, 3, 2, 0), (9, 64, 2, 2, 2))
)
"""Tokens of a PE, hidden size, choices, experts of a PE, and how many SMs for rounds."""
ONCE = (
    ((700, 7168, 6, 16, 24), (33, 512, 3, 5, 7), (1501, 2048, 8, 32, 64))
    if GPU
    else ((6, 64, 3, 2, 1), (9, 64, 2, 2, 2))
)
"""As ``EXPERTS``, of tokens once to each PE."""
BOTH = False, True
SLICES = (
    ((128, 2048, 256, 8, 64, 0), (9, 512, 64, 2, 5, 3), (700, 1024, 384, 2, 8, 32))
    if GPU
    else ((6, 32, 16, 2, 3, 0), (9, 16, 40, 1, 2, 2))
)
"""Tokens of a PE, hidden size, columns between both matrices on each PE, choices, experts, and how many SMs send."""
WHOLE = (
    ((128, 2048, 768, 8, 8, 0), (9, 512, 64, 2, 3, 3), (700, 1024, 384, 4, 16, 32))
    if GPU
    else ((6, 32, 16, 2, 2, 0), (9, 16, 40, 1, 1, 2))
)
"""Tokens of a PE, hidden size, intermediate size, choices, experts of a PE, and how many SMs move rows."""


def experts(
    tokens: int, hidden: int, top_k: int, local: int, num_sms: int, columns: int = 0, *, once: bool = False,
    direct: bool = False,
) -> Recipe:  # fmt: skip
    """Dispatch and combine; of fp8, with a scale for so many columns of a token each, if there are ``columns``.

    once: a token goes once to each PE, not for each of its choices. direct: to a symmetric result.
    """
    scaled = f", fp8 with scales of {columns}" if columns else ""
    of_what = "dispatch and combine" + (" of tokens" if once else "") + (" to results" if direct else "")
    name = f"{of_what}({tokens} tokens × {hidden}, {top_k} of {local} a PE, {num_sms=}{scaled})"

    def make(cases: Cases) -> Case:
        n = cases.n_pes
        x_data = cases.mine(cases.data(f"x {name}", (tokens, hidden), BF16, -8, 8))
        id_data = cases.mine(cases.data(f"ids {name}", (tokens, top_k), torch.int64, -1, n * local - 1))
        w_data = cases.mine(cases.data(f"weights {name}", (tokens, top_k), torch.float32, 1, 4))
        x = cases.buffer("tokens", (tokens, hidden), FP8 if columns else BF16, symmetric=False)
        ids = cases.buffer("ids", (tokens, top_k), torch.int64, symmetric=False)
        weights = cases.buffer("weights", (tokens, top_k), torch.float32, symmetric=False)
        out = cases.buffer("combined", (tokens, hidden), BF16, symmetric=False)
        inputs = [(x, [of_x.to(x.dtype) for of_x in x_data]), (ids, id_data), (weights, w_data)]
        options: dict[str, Any] = {"num_experts": n * local, "max_tokens": tokens, "num_sms": num_sms}
        if columns:
            s_data = cases.mine(cases.data(f"scales {name}", (tokens, hidden // columns), torch.float32, 1, 4))
            options["scales"] = cases.buffer("scales", s_data[0].shape, torch.float32, symmetric=False)
            inputs.append((options["scales"], s_data))
            pairs = zip(x_data, s_data, strict=True)
            x_data = [of_x * of_scales.repeat_interleave(columns, 1) for of_x, of_scales in pairs]

        received = None
        if direct:
            received = cases.buffer("received", (n * tokens, hidden), FP8 if columns else BF16, symmetric=True)

        def multiplied(found: Any, factor: torch.Tensor) -> torch.Tensor:
            computed: torch.Tensor = found.x.float() * factor[:, None]
            if found.scales is not None:
                computed *= found.scales.repeat_interleave(columns, 1)
            return computed.to(BF16)

        def call() -> None:
            """Expert e multiplies by e mod 4 + 1."""
            found = moe.dispatch(x, ids, weights, **options)
            rows = torch.arange(len(found.x), device=cases.device)
            expert = cases.pe * local + torch.searchsorted(found.offsets[1:].long(), rows, right=True)
            out.copy_(moe.combine(multiplied(found, expert % 4 + 1), found))

        def call_once() -> None:
            """Experts of a PE multiply its row, by their weights, too, and add up."""
            found = moe.dispatch_tokens(x, ids, weights, **options, out=received)
            assert found.topk_ids is not None and found.topk_weights is not None
            factors = found.topk_weights * ((cases.pe * local + found.topk_ids) % 4 + 1)
            factor = torch.where(found.topk_ids >= 0, factors, 0.0).sum(1)
            out.copy_(moe.combine_tokens(multiplied(found, factor), found))

        expected = []
        for of_x, of_ids, of_weights in zip(x_data, id_data, w_data, strict=True):
            total = torch.zeros(tokens, hidden, device=cases.device)
            for pe in range(n):
                there = (of_ids >= 0) & (of_ids // local == pe)
                factor = torch.where(there, of_weights * (of_ids % 4 + 1), 0.0).sum(1, keepdim=True)
                total += (of_x.float() * factor).to(BF16).float()
            expected.append(total.to(BF16))
        return Case(name, call_once if once else call, inputs, out, expected)

    return Recipe(name, make)


def slices(tokens: int, hidden: int, inner: int, top_k: int, n_experts: int, num_sms: int) -> Recipe:
    name = f"slices of experts({tokens} tokens × {hidden}, {inner} columns, {top_k} of {n_experts}, num_sms={num_sms})"

    def make(cases: Cases) -> Case:
        x_data = cases.mine(cases.data(f"x {name}", (tokens, hidden), BF16))
        id_data = cases.mine(cases.data(f"ids {name}", (tokens, top_k), torch.int64, -1, n_experts - 1))
        w_data = cases.mine(cases.data(f"weights {name}", (tokens, top_k), torch.float32, 1, 4))
        up_data = cases.data(f"up {name}", (n_experts, hidden, inner), BF16)
        down_data = cases.data(f"down {name}", (n_experts, inner, hidden), BF16)
        x = cases.buffer("tokens", (tokens, hidden), BF16, symmetric=False)
        ids = cases.buffer("ids", (tokens, top_k), torch.int64, symmetric=False)
        weights = cases.buffer("weights", (tokens, top_k), torch.float32, symmetric=False)
        up = cases.buffer("up", (n_experts, hidden, inner), BF16, symmetric=False)
        down = cases.buffer("down", (n_experts, inner, hidden), BF16, symmetric=False)
        out = cases.buffer("combined", (tokens, hidden), BF16, symmetric=False)

        def call() -> None:
            routing = moe.gather_routing(ids, weights, num_experts=n_experts, max_tokens=tokens)
            rows = moe.all_gather_grouped_gemm(x, up, routing, num_sms=num_sms)
            moe.grouped_gemm_reduce_scatter(rows, down, routing, num_sms=num_sms, out=out)

        references = []
        for variant in range(VARIANTS):
            total = torch.zeros(tokens, hidden, dtype=torch.float64, device=cases.device)
            for of_up, of_down in zip(up_data[variant], down_data[variant], strict=True):
                for expert in range(n_experts):
                    rows = (x_data[variant].float() @ of_up[expert].float()).to(BF16)
                    factor = torch.where(id_data[variant] == expert, w_data[variant], 0.0).sum(1, keepdim=True)
                    total += factor * (rows.float() @ of_down[expert].float())
            references.append(total)
        inputs = [(x, x_data), (ids, id_data), (weights, w_data), (up, cases.mine(up_data))]
        inputs.append((down, cases.mine(down_data)))
        return verified(Case(name, call, inputs, out, []), name, references)

    return Recipe(name, make)


def whole(tokens: int, hidden: int, inner: int, top_k: int, local: int, num_sms: int, how: str, hopper: bool) -> Recipe:
    """Dispatch with GEMM and GEMM with combine, with and without SwiGLU between them, or the layer that calls both.

    hopper: by the warp-specialised kernels, where there are Hopper GPUs.
    """
    kernels = "hopper" if hopper else "portable"
    sizes = f"{tokens} tokens × {hidden}, {inner} columns, {top_k} of {local} a PE, {num_sms=}"
    name = f"experts in two {kernels} kernels, {how}({sizes})"
    gated = how != "plain"

    def make(cases: Cases) -> Case:
        n = cases.n_pes
        x_data = cases.data(f"x {name}", (tokens, hidden), BF16)
        id_data = cases.data(f"ids {name}", (tokens, top_k), torch.int64, -1, n * local - 1)
        w_data = cases.data(f"weights {name}", (tokens, top_k), torch.float32, 1, 4)
        up_data = cases.data(f"up {name}", (local, 2 * inner if gated else inner, hidden), BF16)
        down_data = cases.data(f"down {name}", (local, hidden, inner), BF16)
        x = cases.buffer("tokens", (tokens, hidden), BF16, symmetric=False)
        ids = cases.buffer("ids", (tokens, top_k), torch.int64, symmetric=False)
        weights = cases.buffer("weights", (tokens, top_k), torch.float32, symmetric=False)
        up = cases.buffer("up", up_data[0][0].shape, BF16, symmetric=False)
        down = cases.buffer("down", down_data[0][0].shape, BF16, symmetric=False)
        out = cases.buffer("combined", (tokens, hidden), BF16, symmetric=False)
        options: dict[str, Any] = {"num_experts": n * local, "max_tokens": tokens}

        def call() -> None:
            if how == "layer":
                arguments = x, ids, weights, up, down
                algorithm = "fused_hopper" if hopper else "fused"
                out.copy_(moe.moe_layer(*arguments, **options, num_sms=num_sms, algorithm=algorithm))
                return
            routing = moe.gather_routing(ids, weights, **options)
            by: dict[str, Any] = {"num_sms": num_sms, "algorithm": kernels}
            rows = moe.dispatch_grouped_gemm(x, up.transpose(1, 2), routing, swiglu=gated, **by)
            moe.grouped_gemm_combine(rows, down.transpose(1, 2), routing, out=out, **by)

        references = []
        for variant in range(VARIANTS):
            total = torch.zeros(tokens, hidden, dtype=torch.float64, device=cases.device)
            for expert in range(n * local):
                of_up, of_down = (data[variant][expert // local][expert % local] for data in (up_data, down_data))
                rows = x_data[variant][cases.pe].float() @ of_up.float().t()
                if gated:
                    gate, other = rows.to(BF16).float().chunk(2, 1)
                    rows = torch.nn.functional.silu(gate) * other
                chosen = id_data[variant][cases.pe] == expert
                factor = torch.where(chosen, w_data[variant][cases.pe], 0.0).sum(1, keepdim=True)
                total += factor * (rows.to(BF16).float() @ of_down.float().t())
            references.append(total)
        given = (x, x_data), (ids, id_data), (weights, w_data), (up, up_data), (down, down_data)
        inputs = [(buffer, cases.mine(data)) for buffer, data in given]
        return verified(Case(name, call, inputs, out, []), name, references)

    return Recipe(name, make)


def groups() -> list[list[Recipe]]:
    """The calls of every function."""
    found = [[experts(*sizes) for sizes in EXPERTS], [slices(*sizes) for sizes in SLICES]]
    for columns in (128, 0) if GPU else (16, 0):  # of a scale; 0: all of a token
        for rounds in (False, True):
            sizes = [each for each in EXPERTS if bool(each[4]) == rounds]
            found.append([experts(*each, columns or each[1]) for each in sizes])
        found += [[experts(*each, columns or each[1], once=True, direct=direct) for each in ONCE] for direct in BOTH]
    found += [[experts(*each, once=True, direct=direct) for each in ONCE] for direct in BOTH]
    ways = [(how, hopper) for how in ("plain", "gated", "layer") for hopper in (False, True)]
    return found + [[whole(*sizes, how, hopper) for sizes in WHOLE] for how, hopper in ways]
