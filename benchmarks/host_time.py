"""Host time of a call: ours, NCCL's, that of torch's symmetric memory operators, and that of an empty Triton kernel.

    torchrun --nproc-per-node 2 benchmarks/host_time.py [--rounds N] [--save FILE]

Calls are eager, with the launch checks on. What is timed is how long the host takes to put a call on the stream: the
median of rounds of so few calls that the stream takes them without waiting, on the slowest PE. Contenders take turns.

With TRITON_DIST_ALLOW_SHARED_GPU=1 it runs on one GPU, too, without NCCL, which refuses that: the host does the same
work for a call, whichever PE has the GPU meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import triton
from harness import Bench, machine, session

import triton_dist
from triton_dist import kernels, native_calls
from triton_dist.kernels import Communicator, moe

CALLS, ROUNDS, WARM_UP = 64, 25, 8
BF16 = torch.bfloat16

Call = Callable[[], object]


@triton.jit
def _empty(x):
    pass


def collectives(bench: Bench) -> dict[str, Call]:
    n_pes, device = bench.world.n_pes, bench.world.device
    x, y = triton_dist.zeros(4096, dtype=BF16), triton_dist.zeros(4096, dtype=BF16)
    large, there = triton_dist.zeros(1 << 20, dtype=BF16), triton_dist.zeros(1 << 20, dtype=BF16)
    gathered = triton_dist.zeros(4096 * n_pes, dtype=BF16)
    all_large = triton_dist.zeros(n_pes << 20, dtype=BF16)
    plain = torch.zeros(4096, dtype=BF16, device=device)
    wide = torch.zeros(4096 * n_pes, dtype=BF16, device=device)
    return {
        "empty Triton kernel": lambda: _empty[(1,)](plain),
        "ours all_reduce, 8 KiB, in place": lambda: kernels.all_reduce(x),
        "ours all_reduce, 8 KiB, out=": lambda: kernels.all_reduce(x, out=y),
        "ours all_reduce, 2 MiB, out=": lambda: kernels.all_reduce(large, out=there),
        "ours all_gather, 8 KiB": lambda: kernels.all_gather(gathered, x),
        "ours reduce_scatter, 8 KiB": lambda: kernels.reduce_scatter(x, gathered),
        "ours all_to_all, 8 KiB": lambda: kernels.all_to_all(y, x),
        "ours broadcast, 8 KiB": lambda: kernels.broadcast(x),
        "ours all_gather, 2 MiB, copy_engine": lambda: kernels.all_gather(all_large, large, algorithm="copy_engine"),
        "ours all_to_all, 2 MiB, copy_engine": lambda: kernels.all_to_all(there, large, algorithm="copy_engine"),
        "NCCL all_reduce, 8 KiB": lambda: dist.all_reduce(plain),
        "NCCL all_gather, 8 KiB": lambda: dist.all_gather_into_tensor(wide, plain),
        "NCCL reduce_scatter, 8 KiB": lambda: dist.reduce_scatter_tensor(plain, wide),
    }


def by_python(bench: Bench) -> dict[str, Call]:
    """Calls of a communicator for which C++ makes none."""
    os.environ["TRITON_DIST_NATIVE_CALLS"] = "0"
    n_pes, device, group = bench.world.n_pes, bench.world.device, Communicator()
    x, y = triton_dist.zeros(4096, dtype=BF16), triton_dist.zeros(4096, dtype=BF16)
    gathered = triton_dist.zeros(4096 * n_pes, dtype=BF16)
    few, b = torch.zeros(16, 512, dtype=BF16, device=device), torch.zeros(512, 512, dtype=BF16, device=device)
    few_out = triton_dist.zeros(16, 512, dtype=BF16)
    large, all_large = triton_dist.zeros(1 << 20, dtype=BF16), triton_dist.zeros(n_pes << 20, dtype=BF16)
    contenders: dict[str, Call] = {
        "by Python all_reduce, 8 KiB, out=": lambda: kernels.all_reduce(x, out=y, group=group),
        "by Python all_gather, 8 KiB": lambda: kernels.all_gather(gathered, x, group=group),
        "by Python gemm_all_reduce, 16 rows, fused": lambda: kernels.gemm_all_reduce(
            few, b, few_out, algorithm="fused", group=group
        ),
        "by Python gemm_all_reduce, 16 rows, bulk_synchronous": lambda: kernels.gemm_all_reduce(
            few, b, few_out, algorithm="bulk_synchronous", group=group
        ),
        "by Python all_gather, 2 MiB, copy_engine": lambda: kernels.all_gather(
            all_large, large, algorithm="copy_engine", group=group
        ),
    }
    for call in contenders.values():
        call()  # the first one asks the environment
    del os.environ["TRITON_DIST_NATIVE_CALLS"]
    return contenders


def gemms(bench: Bench) -> dict[str, Call]:
    n_pes, device = bench.world.n_pes, bench.world.device

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.zeros(rows, columns, dtype=BF16, device=device)

    rows, k, n = 128 * n_pes, 512, 512
    few, a, b, own = matrix(16, k), matrix(rows, k), matrix(k, n), matrix(rows // n_pes, n)
    few_out, few_own = triton_dist.zeros(16, n, dtype=BF16), matrix(16 // n_pes, n)
    out, wide = triton_dist.zeros(rows, n, dtype=BF16), triton_dist.zeros(rows, n * n_pes, dtype=BF16)
    mine, product = a[: rows // n_pes], matrix(rows, n)
    contenders: dict[str, Call] = {
        "ours gemm_all_reduce, 16 rows, fused": lambda: kernels.gemm_all_reduce(few, b, few_out, algorithm="fused"),
        "ours gemm_all_reduce, 16 rows, bulk_synchronous": lambda: kernels.gemm_all_reduce(
            few, b, few_out, algorithm="bulk_synchronous"
        ),
        "ours gemm_all_reduce, ring": lambda: kernels.gemm_all_reduce(a, b, out, algorithm="ring"),
        "ours gemm_reduce_scatter, ring": lambda: kernels.gemm_reduce_scatter(a, b, own, algorithm="ring"),
        "ours gemm_all_scatter, warp_specialized": lambda: kernels.gemm_all_scatter(
            a, b, wide, algorithm="warp_specialized"
        ),
        "ours gemm_all_scatter, copy_engine": lambda: kernels.gemm_all_scatter(a, b, wide, algorithm="copy_engine"),
        "ours gemm_all_scatter, producer_consumer": lambda: kernels.gemm_all_scatter(
            a, b, wide, algorithm="producer_consumer"
        ),
        "ours all_reduce_norm, 16 rows": lambda: kernels.all_reduce_norm(few, residual=few),
        "ours all_gather_gemm, copy_engine": lambda: kernels.all_gather_gemm(mine, b, product, algorithm="copy_engine"),
        "ours all_gather_gemm, push": lambda: kernels.all_gather_gemm(mine, b, product, algorithm="push"),
        "ours all_gather_gemm, bulk_synchronous": lambda: kernels.all_gather_gemm(
            mine, b, product, algorithm="bulk_synchronous"
        ),
    }
    if 16 % n_pes == 0:
        contenders["ours gemm_reduce_scatter, 16 rows, fused"] = lambda: kernels.gemm_reduce_scatter(
            few, b, few_own, algorithm="fused"
        )

    def matmul_and_all_reduce() -> None:
        torch.mm(a, b, out=product)
        dist.all_reduce(product)

    return contenders | {
        "cuBLAS, local GEMM": lambda: torch.mm(a, b, out=product),
        "cuBLAS and NCCL all_reduce": matmul_and_all_reduce,
    }


def decoding(bench: Bench) -> dict[str, Call]:
    """A step of decode: 8 requests, 8 heads of 128 with one KV head, 1024 keys on each PE."""
    device = bench.world.device

    def tensor(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype, device=device)

    q, cache, lengths = tensor(8, 8, 128), tensor(8, 1024, 1, 128), tensor(8, dtype=torch.int32)
    pages, table = tensor(512, 16, 1, 128), tensor(8, 64, dtype=torch.int32)
    rows, weight, norm, residual = tensor(8, 1024), tensor(1024, 1024), tensor(1024), tensor(8, 1024)
    return {
        "ours flash_decode": lambda: kernels.flash_decode(q, cache, cache, lengths),
        "ours flash_decode, pages": lambda: kernels.flash_decode(q, pages, pages, lengths, block_table=table),
        "ours flash_decode_projection": lambda: kernels.flash_decode_projection(
            q, cache, cache, lengths, weight, residual=residual
        ),
        "ours norm_gemm, 8 rows": lambda: kernels.norm_gemm(rows, weight, norm),
    }


def experts(bench: Bench) -> dict[str, Call]:
    """8 tokens of 1024 elements for 2 of 8 experts on each PE."""
    n_pes, device = bench.world.n_pes, bench.world.device
    x = torch.zeros(8, 1024, dtype=BF16, device=device)
    ids = torch.arange(16, device=device).view(8, 2) % (8 * n_pes)
    weights = torch.ones(8, 2, device=device)
    w13 = torch.zeros(8, 1024, 1024, dtype=BF16, device=device)
    w2 = torch.zeros(8, 1024, 512, dtype=BF16, device=device)
    sizes = {"num_experts": 8 * n_pes, "max_tokens": 8}
    received = moe.dispatch(x, ids, weights, **sizes)

    def layer(algorithm: str) -> Call:
        return lambda: moe.moe_layer(x, ids, weights, w13, w2, algorithm=algorithm, **sizes)

    return {
        "ours dispatch": lambda: moe.dispatch(x, ids, weights, **sizes),
        "ours dispatch, in halves": lambda: moe.dispatch_receive(moe.dispatch_send(x, ids, weights, **sizes)),
        "ours combine": lambda: moe.combine(received.x, received),
        "ours combine, in halves": lambda: moe.combine_receive(moe.combine_send(received.x, received)),
        "ours gather_routing": lambda: moe.gather_routing(ids, weights, **sizes),
        "ours moe_layer, separate": layer("separate"),
        "ours moe_layer, fused": layer("fused"),
    }


def operators(bench: Bench) -> dict[str, Call]:
    """The operators ``torch.ops.triton_dist``, which make new tensors."""
    x = torch.zeros(4096, dtype=BF16, device=bench.world.device)
    rows, norm = x.view(4, 1024), x[:1024]
    weight = torch.zeros(1024, 512, dtype=BF16, device=bench.world.device)
    return {
        "ours functional.all_reduce, 8 KiB": lambda: kernels.functional.all_reduce(x),
        "ours functional.norm_gemm, 4 rows": lambda: kernels.functional.norm_gemm(rows, weight, norm),
    }


def of_torch(bench: Bench) -> dict[str, Call]:
    """torch's symmetric memory operators, on its own memory."""
    import torch.distributed._symmetric_memory as symm_mem

    device, group = bench.world.device, dist.group.WORLD.group_name
    symm_mem.enable_symm_mem_for_group(group)
    x = symm_mem.empty(4096, dtype=BF16, device=device).zero_()
    symm_mem.rendezvous(x, group)
    rows = 128 * bench.world.n_pes
    a, b = torch.zeros(rows, 512, dtype=BF16, device=device), torch.zeros(512, 512, dtype=BF16, device=device)
    mine = a[:128]
    ops = torch.ops.symm_mem
    return {
        "torch one_shot_all_reduce, 8 KiB": lambda: ops.one_shot_all_reduce(x, "sum", group),
        "torch fused_all_gather_matmul": lambda: ops.fused_all_gather_matmul(mine, [b], 0, group),
        "torch fused_matmul_reduce_scatter": lambda: ops.fused_matmul_reduce_scatter(a, b, "sum", 0, group),
    }


def host_seconds(call: Call) -> float:
    """Of one of some calls. All PEs begin together, and the stream is empty."""
    torch.cuda.synchronize()
    triton_dist.barrier_all()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    took = time.perf_counter() - begin
    torch.cuda.synchronize()
    return took / CALLS


def usable(bench: Bench, contenders: dict[str, Call]) -> dict[str, Call]:
    """The contenders that run here, warmed up; says why others do not."""
    found = {}
    for name, call in contenders.items():
        problem = ""
        try:
            for _ in range(WARM_UP):
                call()
            torch.cuda.synchronize()
        except Exception as error:
            problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
        if problem := bench.agree(problem):
            bench.say(f"    {name:<48} {problem}")
        else:
            found[name] = call
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", metavar="FILE", type=Path, help="write the figures as JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each contender is timed")
    arguments = parser.parse_args()
    with session("host_time", shared=True) as bench:
        why_not = native_calls.why_not()
        bench.say(f"calls that were made before are repeated by {f'Python: {why_not}' if why_not else 'C++'}")
        contenders = collectives(bench) | gemms(bench) | decoding(bench) | experts(bench) | operators(bench)
        contenders |= {} if why_not else by_python(bench)
        if bench.shared:
            contenders = {name: call for name, call in contenders.items() if "NCCL" not in name}
        contenders = usable(bench, contenders)
        try:
            theirs = of_torch(bench)
        except Exception as error:
            theirs, problem = {}, f"{type(error).__name__}: {error}"
            bench.say(f"    torch's operators: {problem[:160]}")
        contenders |= usable(bench, theirs)
        names, times = list(contenders), {name: [] for name in contenders}
        for round_ in range(arguments.rounds):
            first = round_ % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(host_seconds(contenders[name]))
        slowest = torch.tensor([times[name] for name in names], device="cpu" if bench.shared else bench.world.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        figures = {name: row.median().item() * 1e6 for name, row in zip(names, slowest.cpu(), strict=True)}
        bench.say("µs of host time a call, eager:")
        for name, figure in figures.items():
            bench.say(f"    {name:<48} {figure:7.1f}")
        if arguments.save is not None and bench.world.pe == 0:
            how = why_not or "by C++"
            found = {
                "benchmark": bench.name, "machine": machine(bench.world), "native calls": how, "µs a call": figures,
            }  # fmt: skip
            arguments.save.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
