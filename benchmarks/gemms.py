"""Fused GEMMs with communication against cuBLAS with NCCL and torch's fused operators.

    torchrun --nproc-per-node 4 benchmarks/gemms.py [--only gemm_all_scatter …] [--algorithms] [--fp8] [--save FILE]
    torchrun --nproc-per-node 2 benchmarks/gemms.py --sweep 8192x28672 [--rows 1 100 …] --save sweep.json --plot .

The bound of each is the time of cuBLAS for the local GEMM, or that in which a copy engine sends the bytes that a PE
must send, whichever is longer; the efficiency is the bound by the time.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

os.environ.setdefault("TRITON_DIST_SYMMETRIC_SIZE", "12G")

import torch
import torch.distributed as dist
from harness import Bench, Contender, session

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import gemm as modules
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.all_gather_gemm import fits_push
from triton_dist.kernels.gemm.fp8 import ones
from triton_dist.kernels.gemm.small_m import fits_bands

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
operand_dtype = BF16  # or FP8, with B by columns; results are of bfloat16
# For 4 PEs; N of the first, N of the second and K of the others are shared by them.
FEW = (16, 64, 128)
SHAPES = {
    "gemm_all_scatter": ((4096, 8192, 8192), (8192, 4608, 36864), (8192, 8192, 30720), (8192, 36864, 4608)),
    "all_gather_gemm": (
        (4096, 57344, 8192),
        (8192, 57344, 8192),
        (8192, 28672, 4096),
        *((m, 57344, 8192) for m in FEW),
    ),
    "gemm_reduce_scatter": ((4096, 8192, 28672), (8192, 8192, 28672), *((m, 8192, 28672) for m in FEW)),
    "gemm_all_reduce": ((4096, 8192, 28672), (8192, 8192, 28672), *((m, 8192, 28672) for m in FEW)),
}
SWEEP = (1, 7, 16, 33, 64, 100, 128, 200, 256, 333, 512, 777, 1024, 2000, 2048, 4000, 4096, 8192, 16384)
"""Numbers of rows: of all PEs together, up to the next that they can share where each must have as many."""


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda", dtype=BF16)


def operand_a(m: int, k: int, seed: int) -> torch.Tensor:
    return random(m, k, seed=seed).to(operand_dtype)


def operand_b(k: int, n: int, seed: int) -> torch.Tensor:
    return random(k, n, seed=seed) if operand_dtype == BF16 else random(n, k, seed=seed).to(operand_dtype).t()


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By cuBLAS."""
    if operand_dtype == BF16:
        return a @ b
    return torch._scaled_mm(
        a, b, scale_a=ones(communicator_of()), scale_b=ones(communicator_of()), out_dtype=BF16, use_fast_accum=True
    )


def compared(result: torch.Tensor, exact: torch.Tensor, k: int, roundings: int) -> str | None:
    """What is wrong with a GEMM's result, of normally distributed numbers, that was rounded so many times on its way.

    Hopper's tensor cores keep 14 bits of a sum of fp8 products, which all libraries leave there for all of K.
    """
    eps = torch.finfo(BF16).eps if operand_dtype == BF16 else 0.02
    allowed = roundings * eps * (exact.abs() + 4 * k**0.5)
    excess = ((result.reshape(exact.shape).float() - exact).abs() / allowed).max().item()
    return None if excess <= 1 else f"an error is {excess:.2f} times what rounding allows"


def exact_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.float() @ b.float()


def symmetric_of_torch(bench: Bench) -> str:
    """The process group's name, with torch's symmetric memory on it."""
    import torch.distributed._symmetric_memory as symm_mem

    group = dist.group.WORLD.group_name
    symm_mem.enable_symm_mem_for_group(group)
    return str(group)


@contextmanager
def torch_native_asked_for() -> Iterator[None]:
    """Torch's fused operator then takes a kernel of its own that awaits its operand's parts."""
    os.environ["TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP"] = "1"
    try:
        yield
    finally:
        del os.environ["TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP"]


def algorithms(function: Callable[..., torch.Tensor], names: Any, wanted: bool, *args: Any) -> dict[str, Contender]:
    """Our function as it chooses by itself and, if wanted, each of its algorithms."""
    contenders: dict[str, Contender] = {"ours": lambda i: function(*args)}
    for name in names if wanted else ():
        contenders[f"ours, {name}"] = partial(lambda name, i: function(*args, algorithm=name), name)
    return contenders


def gemm_all_scatter(bench: Bench, m: int, n: int, k: int, rate: float, wanted: bool) -> None:
    from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS

    pe, n_pes = bench.world.pe, bench.world.n_pes
    a, b = operand_a(m, k, 0), operand_b(k, n // n_pes, 1 + pe)
    out, gathered = triton_dist.zeros(m, n, dtype=BF16), torch.empty(n_pes, m, n // n_pes, dtype=BF16, device="cuda")
    exact = torch.cat([exact_product(a, operand_b(k, n // n_pes, 1 + other)) for other in range(n_pes)], 1)

    def nccl(i: int) -> torch.Tensor:
        dist.all_gather_into_tensor(gathered, gemm(a, b))
        return gathered.permute(1, 0, 2)

    contenders = {"NCCL + cuBLAS": nccl, **algorithms(kernels.gemm_all_scatter, ALGORITHMS, wanted, a, b, out)}
    wire = m * (n // n_pes) * 2 * (n_pes - 1) / rate
    bound = max(bench.time_alone(lambda: gemm(a, b)), wire)
    bench.compare(
        f"gemm_all_scatter{kind()} M={m} N={n} K={k}",
        contenders,
        check=lambda r, i: compared(r, exact, k, 1),
        calls=calls_for(bound),
        bound=bound,
    )
    triton_dist.free(out)


def all_gather_gemm(bench: Bench, m: int, n: int, k: int, rate: float, wanted: bool) -> None:
    from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS

    pe, n_pes = bench.world.pe, bench.world.n_pes
    group = symmetric_of_torch(bench)
    a, b = operand_a(m // n_pes, k, 1 + pe), operand_b(k, n // n_pes, 100 + pe)
    whole = torch.cat([operand_a(m // n_pes, k, 1 + other) for other in range(n_pes)])
    out, gathered = torch.empty(m, n // n_pes, dtype=BF16, device="cuda"), torch.empty_like(whole)
    exact = exact_product(whole, b)

    def nccl(i: int) -> torch.Tensor:
        dist.all_gather_into_tensor(gathered.view(torch.uint8), a.view(torch.uint8))
        return gemm(gathered, b)

    def torch_fused(i: int) -> torch.Tensor:
        if operand_dtype == BF16:
            return torch.ops.symm_mem.fused_all_gather_matmul(a, [b], 0, group)[1][0]
        scaled = torch.ops.symm_mem.fused_all_gather_scaled_matmul
        return scaled(
            a, [b], ones(communicator_of()), [ones(communicator_of())], 0, group, [None], [None], [BF16], [True]
        )[1][0]

    def torch_native(i: int) -> torch.Tensor:
        with torch_native_asked_for():
            return torch_fused(i)

    names = [name for name in ALGORITHMS if possible(name, m)]
    contenders = {"NCCL + cuBLAS": nccl, "torch fused": torch_fused}
    if operand_dtype == BF16 and 2048 < m <= 4096:  # else it makes no difference
        contenders["torch fused, native"] = torch_native
    contenders |= algorithms(kernels.all_gather_gemm, names, wanted, a, b, out)
    bound = max(bench.time_alone(lambda: gemm(whole, b)), m // n_pes * k * a.itemsize * (n_pes - 1) / rate)
    bench.compare(
        f"all_gather_gemm{kind()} M={m} K={k} N/PE={n // n_pes}",
        contenders,
        check=lambda r, i: compared(r, exact, k, 1),
        calls=calls_for(bound),
        bound=bound,
    )


def gemm_reduce(all_reduce: bool, bench: Bench, m: int, n: int, k: int, rate: float, wanted: bool) -> None:
    pe, n_pes = bench.world.pe, bench.world.n_pes
    group = symmetric_of_torch(bench)
    all_operands = [(operand_a(m, k // n_pes, 1 + p), operand_b(k // n_pes, n, 100 + p)) for p in range(n_pes)]
    a, b = all_operands[pe]
    exact = sum(exact_product(*pair) for pair in all_operands)
    mine = slice(pe * (m // n_pes), (pe + 1) * (m // n_pes))
    part = torch.empty(m // n_pes, n, dtype=BF16, device="cuda")

    def nccl(i: int) -> torch.Tensor:
        whole = gemm(a, b)
        if all_reduce:
            dist.all_reduce(whole)
            return whole
        dist.reduce_scatter_tensor(part, whole)
        return part

    def torch_fused(i: int) -> torch.Tensor:
        if operand_dtype == BF16:
            return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, group)
        scaled = torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter
        return scaled(
            a,
            b,
            ones(communicator_of()),
            ones(communicator_of()),
            "sum",
            0,
            0,
            group,
            [m, n],
            out_dtype=BF16,
            use_fast_accum=True,
        )

    contenders: dict[str, Contender] = {"NCCL + cuBLAS": nccl}
    if all_reduce:
        contenders |= torch_all_reduces(a, b, group)
    else:
        contenders["torch fused"] = torch_fused
    module = modules.gemm_all_reduce if all_reduce else modules.gemm_reduce_scatter
    names = [name for name in module.ALGORITHMS if possible(name, m)]
    function = kernels.gemm_all_reduce if all_reduce else kernels.gemm_reduce_scatter
    out = triton_dist.zeros(m, n, dtype=BF16) if all_reduce else torch.empty_like(part)
    contenders |= algorithms(function, names, wanted, a, b, out)
    wire = m / n_pes * n * 2 * (n_pes - 1) * (2 if all_reduce else 1) / rate
    bound = max(bench.time_alone(lambda: gemm(a, b)), wire)
    expected = exact if all_reduce else exact[mine]
    bench.compare(
        f"{function.__name__}{kind()} M={m} K/PE={k // n_pes} N={n}",
        contenders,
        check=lambda r, i: compared(r, expected, k, n_pes),
        calls=calls_for(bound),
        bound=bound,
    )
    if all_reduce:
        triton_dist.free(out)


def torch_all_reduces(a: torch.Tensor, b: torch.Tensor, group: str) -> dict[str, Contender]:
    """cuBLAS, and torch's all-reduces in symmetric memory."""
    import torch.distributed._symmetric_memory as symm_mem

    whole = symm_mem.empty(a.shape[0], b.shape[1], dtype=BF16, device=a.device)
    symm_mem.rendezvous(whole, group)

    def one_shot(i: int) -> torch.Tensor:
        whole.copy_(gemm(a, b)) if operand_dtype == FP8 else torch.mm(a, b, out=whole)
        return torch.ops.symm_mem.one_shot_all_reduce(whole, "sum", group)

    def two_shot(i: int) -> torch.Tensor:
        whole.copy_(gemm(a, b)) if operand_dtype == FP8 else torch.mm(a, b, out=whole)
        return torch.ops.symm_mem.two_shot_all_reduce_(whole, "sum", group)

    return {"torch one-shot + cuBLAS": one_shot, "torch two-shot + cuBLAS": two_shot}


def possible(algorithm: str, m: int) -> bool:
    """Whether an algorithm can be asked for with so many rows of all PEs."""
    if algorithm == "fused":
        return operand_dtype == BF16 and fits_bands(m, triton_dist.n_pes())
    return algorithm != "push" or fits_push(m)


def kind() -> str:
    return "" if operand_dtype == BF16 else ", fp8,"


def calls_for(seconds: float) -> int:
    """A graph long enough that its launch does not count."""
    return max(2, min(16, int(2e-3 / seconds)))


BENCHMARKS: dict[str, Callable[..., None]] = {
    "gemm_all_scatter": gemm_all_scatter,
    "all_gather_gemm": all_gather_gemm,
    "gemm_reduce_scatter": partial(gemm_reduce, False),
    "gemm_all_reduce": partial(gemm_reduce, True),
}


def swept(size: str, only: Iterable[str], rows: Iterable[int] = SWEEP) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Operations and their M, N and K for a layer of ``hidden x intermediate`` that PEs share, all of them for one
    number of rows after the other: a run that is cut off has the smaller ones of each."""
    hidden, intermediate = map(int, size.split("x"))
    sizes = dict.fromkeys(BENCHMARKS, (hidden, intermediate)) | {"all_gather_gemm": (intermediate, hidden)}
    for m in rows:
        for name in only:
            n_pes = int(os.environ.get("WORLD_SIZE", "1"))
            shared = name in ("all_gather_gemm", "gemm_reduce_scatter")
            yield name, (-(-m // n_pes) * n_pes if shared else m, *sizes[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=tuple(BENCHMARKS), default=tuple(BENCHMARKS))
    parser.add_argument("--algorithms", action="store_true", help="also each of our algorithms")
    parser.add_argument("--rows", type=int, nargs="+", default=SWEEP, help="of a sweep")
    parser.add_argument("--fp8", action="store_true", help="with operands of float8_e4m3fn")
    parser.add_argument("--sweep", metavar="HIDDENxINTERMEDIATE", help="1 to 16384 rows of such a layer")
    parser.add_argument("--save", help="write JSON to this file, after each comparison")
    parser.add_argument("--plot", metavar="FOLDER", help="also draw what was saved")
    args = parser.parse_args()
    global operand_dtype
    operand_dtype = FP8 if args.fp8 else BF16
    torch.backends.cuda.matmul.allow_tf32 = False
    if args.plot and not args.save:
        parser.error("--plot draws what --save wrote")
    cases = [(name, shape) for name in args.only for shape in SHAPES[name]]
    if args.sweep:
        cases = list(swept(args.sweep, args.only, args.rows))
    with session("GEMMs", total=len(cases), save=args.save) as bench:
        rate = bench.copy_engine_rate()
        for name, shape in cases:
            BENCHMARKS[name](bench, *shape, rate, args.algorithms)
            torch.cuda.empty_cache()  # symmetric memory of torch and ours lies beside PyTorch's
        if args.plot and bench.world.pe == 0:
            from plots import draw

            draw(args.save, args.plot)


if __name__ == "__main__":
    main()
