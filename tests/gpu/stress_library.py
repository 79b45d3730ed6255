"""What the stress test calls besides collectives and plain GEMMs: epilogues, norms, flash decode.

Products and sums are of small integers and exact. Results of norms and of attention are rounded: the first ones are
compared with PyTorch's in float64, and all later ones with the first, bit by bit.
"""

from __future__ import annotations

import itertools
import sys

import torch
from stress_cases import FACTORS, GPU, SHAPES, VARIANTS, Case, Cases, Recipe, exact_share

from triton_dist import kernels
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE

__all__ = ["BF16", "groups", "verified"]

BF16 = torch.bfloat16
ROWS = ((1, 4096), (7, 1024), (64, 7168), (300, 4096)) if GPU else ((1, 64), (3, 96))
"""Of a norm on each PE; and columns."""
CACHES = ((1, 8, 4, 3000), (16, 2, 8, 300), (70, 1, 16, 40)) if GPU else ((2, 1, 2, 9),)
"""Requests, KV heads, queries of each, and keys of a PE."""
HEAD = 128 if GPU else 16
COLUMNS = (4096, 1000, 512) if GPU else (24,)
"""Of the projections of these."""


def close(found: torch.Tensor, expected: torch.Tensor, name: str) -> None:
    if not expected.numel():
        return
    error = (found.double() - expected).abs().max().item()
    assert error <= 2**-5 * max(expected.abs().max().item(), 1.0), f"{name}: an error of {error:.3g} in the first call"


def verified(case: Case, name: str, references: list[torch.Tensor]) -> Case:
    """The case, whose expected results are those of its first calls, if they are close to ``references``."""
    synchronize = torch.cuda.synchronize if GPU else lambda: None
    synchronize()  # the last operation was on another stream
    for variant, reference in enumerate(references):
        for buffer, data in case.inputs:
            buffer.copy_(data[variant])
        case.call()
        close(case.out, reference, name)
        case.expected.append(case.out.clone())
    synchronize()
    return case


def with_bias(
    function: str, algorithm: str, dtype: torch.dtype, shape: tuple[int, int, int], new: bool = False
) -> Recipe:
    """A GEMM with an epilogue; ``new``: its result is a new tensor. From the second call on both are prepared."""
    rows, n, k = shape
    name = f"{function}({rows} rows a PE, n={n}, k={k}, {dtype}, {algorithm=}, {new=}, bias, residual)"
    gathers = function == "all_gather_gemm"

    def make(cases: Cases) -> Case:
        m = rows * cases.n_pes
        share = exact_share(k * cases.n_pes)
        a_data = cases.data(f"a {name}", (rows if gathers else m, k), dtype, share=share)
        b_data = cases.data(f"b {name}", (k, n), dtype)
        bias_data = [[of_all[0]] * cases.n_pes for of_all in cases.data(f"bias {name}", (n,), dtype, -9, 9)]
        a = cases.buffer("a", a_data[0][0].shape, dtype, symmetric=False)
        b = cases.buffer("b", (k, n), dtype, symmetric=False)
        bias = cases.buffer("bias", (n,), dtype, symmetric=False)
        everywhere = function == "gemm_all_reduce"
        out = cases.buffer(
            "c everywhere" if everywhere else "c", (m if everywhere or gathers else rows, n), dtype, everywhere
        )
        inputs = [(a, cases.mine(a_data)), (b, cases.mine(b_data)), (bias, cases.mine(bias_data))]
        if gathers:
            exact = [torch.cat(x).float() @ y[cases.pe].float() for x, y in zip(a_data, b_data, strict=True)]
            options = {"bias": bias}
        else:
            pairs = zip(a_data, b_data, strict=True)
            exact = [
                sum((x.float() @ y.float() for x, y in zip(*of_pes, strict=True)), torch.zeros(())) for of_pes in pairs
            ]
            if not everywhere:
                exact = [total[cases.pe * rows : (cases.pe + 1) * rows] for total in exact]
            r_data = cases.data(f"residual {name}", exact[0].shape, dtype, -9, 9)
            ours = [of_all[0 if everywhere else cases.pe] for of_all in r_data]
            residual = cases.buffer("residual", exact[0].shape, dtype, symmetric=False)
            inputs.append((residual, ours))
            exact = [total + one.float() for total, one in zip(exact, ours, strict=True)]
            options = {"bias": bias, "residual": residual}
        exact = [total + of_all[0].float() for total, of_all in zip(exact, bias_data, strict=True)]
        assert all(total.abs().max() < 256 for total in exact), "not exact"

        def call() -> None:
            found = getattr(kernels, function)(a, b, None if new else out, algorithm=algorithm, **options)
            if new:
                out.copy_(found)

        return Case(name, call, inputs, out, [total.to(dtype) for total in exact])

    return Recipe(name, make)


def norm(function: str, algorithm: str, shape: tuple[int, int]) -> Recipe:
    rows, columns = shape
    name = f"{function}({rows} × {columns} a PE, algorithm={algorithm!r})"

    def make(cases: Cases) -> Case:
        m = rows if function == "norm_all_gather" else rows * cases.n_pes
        data = cases.data(name, (m, columns), BF16, -8, 8)
        weights = [[of_all[0]] * cases.n_pes for of_all in cases.data(f"weight {name}", (columns,), BF16, 1, 4)]
        x = cases.buffer("x of a norm", (m, columns), BF16, symmetric=False)
        weight = cases.buffer("weight of a norm", (columns,), BF16, symmetric=False)
        gathered = function != "reduce_scatter_norm"
        out = cases.buffer("normed", (rows * cases.n_pes if gathered else rows, columns), BF16, symmetric=False)

        def call() -> None:
            out.copy_(getattr(kernels, function)(x, weight, algorithm=algorithm).output)

        references = []
        for of_all, w in zip(data, weights, strict=True):
            total = torch.cat(of_all).double() if function == "norm_all_gather" else torch.stack(of_all).double().sum(0)
            total = total.bfloat16().double()
            normed = total / (total.pow(2).mean(1, keepdim=True) + 1e-6).sqrt() * w[0].double()
            references.append(normed if gathered else normed[cases.pe * rows : (cases.pe + 1) * rows])
        inputs = [(x, cases.mine(data)), (weight, cases.mine(weights))]
        return verified(Case(name, call, inputs, out, []), name, references)

    return Recipe(name, make)


def decode(requests: int, heads: int, group: int, keys: int) -> Recipe:
    name = f"flash_decode({requests} requests, {heads} × {group} heads, {keys} keys a PE)"

    def make(cases: Cases) -> Case:
        n = cases.n_pes
        k_data = cases.data(f"k {name}", (requests, keys, heads, HEAD), BF16)
        v_data = cases.data(f"v {name}", (requests, keys, heads, HEAD), BF16)
        q_data = [of_all[0] for of_all in cases.data(f"q {name}", (requests, heads * group, HEAD), BF16)]
        l_data = [of_all[0] for of_all in cases.data(f"lengths {name}", (requests,), torch.int32, 0, keys * n)]
        k, v = (cases.buffer(f"cache of {one}", k_data[0][0].shape, BF16, symmetric=False) for one in "kv")
        q = cases.buffer("q", q_data[0].shape, BF16, symmetric=False)
        lengths = cases.buffer("lengths", (requests,), torch.int32, symmetric=False)
        out = cases.buffer("attended", q_data[0].shape, BF16, symmetric=False)

        def call() -> None:
            out.copy_(kernels.flash_decode(q, k, v, lengths)[0])

        references = []
        for variant in range(VARIANTS):
            every_k, every_v = (torch.cat(data[variant], 1).float() for data in (k_data, v_data))
            logits = (
                torch.einsum("bhgd,bthd->bhgt", q_data[variant].float().view(requests, heads, group, HEAD), every_k)
                * HEAD**-0.5
            )
            seen = torch.arange(keys * n, device=cases.device) < l_data[variant][:, None]
            logits = logits.masked_fill(~seen[:, None, None, :], float("-inf"))
            attended = torch.einsum("bhgt,bthd->bhgd", logits.softmax(-1).nan_to_num(0.0), every_v)
            references.append(attended.reshape(out.shape).double())
        inputs = [(k, cases.mine(k_data)), (v, cases.mine(v_data)), (q, q_data), (lengths, l_data)]
        return verified(Case(name, call, inputs, out, []), name, references)

    return Recipe(name, make)


def projection(requests: int, heads: int, group: int, keys: int, columns: int) -> Recipe:
    name = f"flash_decode_projection({requests} requests, {heads} × {group} heads a PE, {keys} keys, {columns} columns)"

    def make(cases: Cases) -> Case:
        k_data = cases.data(f"k {name}", (requests, keys, heads, HEAD), BF16)
        v_data = cases.data(f"v {name}", (requests, keys, heads, HEAD), BF16, -4, 4)
        q_data = cases.data(f"q {name}", (requests, heads * group, HEAD), BF16)
        w_data = cases.data(f"weight {name}", (heads * group * HEAD, columns), BF16)
        l_data = [of_all[0] for of_all in cases.data(f"lengths {name}", (requests,), torch.int32, 0, keys)]
        b_data, r_data = (
            [of_all[0] for of_all in cases.data(f"{what} {name}", shape, BF16, -9, 9)]
            for what, shape in (("bias", (columns,)), ("residual", (requests, columns)))
        )
        k, v = (cases.buffer(f"cache of {one}", k_data[0][0].shape, BF16, symmetric=False) for one in "kv")
        q, weight, bias, residual = (
            cases.buffer(role, like.shape, BF16, symmetric=False)
            for role, like in (("q", q_data[0][0]), ("b", w_data[0][0]), ("bias", b_data[0]), ("residual", r_data[0]))
        )
        lengths = cases.buffer("lengths", (requests,), torch.int32, symmetric=False)
        out = cases.buffer("projected", (requests, columns), BF16, symmetric=False)

        def call() -> None:
            out.copy_(kernels.flash_decode_projection(q, k, v, lengths, weight, bias=bias, residual=residual))

        references = []
        for variant in range(VARIANTS):
            total = b_data[variant].double() + r_data[variant].double()
            for pe in range(cases.n_pes):
                one = q_data[variant][pe].float().view(requests, heads, group, HEAD)
                logits = torch.einsum("bhgd,bthd->bhgt", one, k_data[variant][pe].float()) * HEAD**-0.5
                seen = torch.arange(keys, device=cases.device) < l_data[variant][:, None]
                shares = logits.masked_fill(~seen[:, None, None, :], float("-inf")).softmax(-1).nan_to_num(0.0)
                attended = torch.einsum("bhgt,bthd->bhgd", shares, v_data[variant][pe].float()).reshape(requests, -1)
                total = total + attended.double() @ w_data[variant][pe].double()
            references.append(total)
        inputs = [(k, cases.mine(k_data)), (v, cases.mine(v_data)), (q, cases.mine(q_data)), (lengths, l_data)]
        inputs += [(weight, cases.mine(w_data)), (bias, b_data), (residual, r_data)]
        return verified(Case(name, call, inputs, out, []), name, references)

    return Recipe(name, make)


def groups() -> list[list[Recipe]]:
    found = []
    for function, algorithms in (
        ("all_gather_gemm", GATHER),
        ("gemm_reduce_scatter", REDUCE),
        ("gemm_all_reduce", REDUCE),
    ):
        for algorithm in (*algorithms, "auto"):
            found.append([with_bias(function, algorithm, *chosen) for chosen in itertools.product(FACTORS, SHAPES)])
            if function != "gemm_all_reduce":
                group = itertools.product(FACTORS, SHAPES, (True,))
                found.append([with_bias(function, algorithm, *chosen) for chosen in group])
    for function in ("all_reduce_norm", "reduce_scatter_norm", "norm_all_gather"):
        algorithms = sys.modules[f"triton_dist.kernels.norm.{function}"].ALGORITHMS
        for algorithm in (*algorithms, "auto"):
            found.append([norm(function, algorithm, shape) for shape in ROWS])
    found.append([decode(*cache) for cache in CACHES])
    found.append([projection(*cache, columns) for cache, columns in zip(CACHES, COLUMNS, strict=True)])
    return found
