"""Collectives on symmetric tensors against NCCL, torch's symmetric memory operators and the copy engine.

    torchrun --nproc-per-node 4 benchmarks/collectives.py [--only all_gather all_reduce …] [--save FILE]

Sizes are bytes of one PE's input. The bound is the time in which a copy engine sends the bytes that a PE must send.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from harness import Bench, Contender, session

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.protocols.ll import fits

KIB, MIB = 1 << 10, 1 << 20
SIZES = (8 * KIB, 64 * KIB, 512 * KIB, 4 * MIB, 64 * MIB, 256 * MIB)
ROWS = (1024, 32768)  # of 7168 bfloat16, what a mixture of experts sends
ALGORITHMS = {
    "all_gather": ("low_latency", "exchange", "push", "copy_engine"),
    "reduce_scatter": ("low_latency", "exchange", "push"),
    "all_reduce": ("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct"),
    "all_to_all": ("low_latency", "push", "copy_engine"),
    "broadcast": ("low_latency", "push", "scatter"),
}


class Buffers:
    """Sets of an input and an output, and the inputs of all PEs, made again where they are needed to check."""

    def __init__(self, bench: Bench, n_in: int, n_out: int, dtype: torch.dtype) -> None:
        self.bench, self.world, self.dtype, self.n_in = bench, bench.world, dtype, n_in
        self.sets = max(3, min(24, 256 * MIB // ((n_in + n_out) * dtype.itemsize)))
        self.inputs = triton_dist.empty(self.sets, n_in, dtype=dtype)
        self.outputs = triton_dist.zeros(self.sets, n_out, dtype=dtype)
        for i in range(self.sets):
            self.inputs[i] = self.input_of(self.world.pe, i)
        triton_dist.barrier_all()

    def input_of(self, pe: int, i: int) -> torch.Tensor:
        generator = torch.Generator(self.world.device).manual_seed(1000 * pe + i)
        return torch.randn(self.n_in, generator=generator, device=self.world.device).to(self.dtype)

    def all_inputs(self, i: int) -> list[torch.Tensor]:
        return [self.input_of(pe, i) for pe in range(self.world.n_pes)]

    def parts(self, i: int) -> list[torch.Tensor]:
        """Every PE's part for this PE."""
        return [whole.view(self.world.n_pes, -1)[self.world.pe] for whole in self.all_inputs(i)]

    def free(self) -> None:
        torch.cuda.synchronize()
        triton_dist.free(self.inputs)
        triton_dist.free(self.outputs)


def moved(result: torch.Tensor, expected: torch.Tensor) -> str | None:
    """What is wrong with bytes that should have been moved."""
    wrong = (result.view(-1) != expected).sum().item()
    return f"{wrong} of {expected.numel()} elements differ" if wrong else None


def summed(result: torch.Tensor, terms: list[torch.Tensor]) -> str | None:
    """What is wrong with a sum that may have been rounded after each addition."""
    exact = sum(term.double() for term in terms)
    size = sum(term.double().abs() for term in terms)
    allowed = len(terms) * torch.finfo(result.dtype).eps * size + torch.finfo(result.dtype).tiny
    excess = ((result.view(-1).double() - exact).abs() / allowed).max().item()
    return None if excess <= 1 else f"an error is {excess:.2f} times what rounding allows"


def ours(name: str, mailed: int, call: Callable[..., torch.Tensor]) -> dict[str, Contender]:
    """Our function as it chooses by itself, and its algorithms; those that use mailboxes if ``mailed`` bytes fit."""
    contenders: dict[str, Contender] = {"ours": lambda i: call(i, algorithm="auto")}
    for algorithm in ALGORITHMS[name]:
        words = {"low_latency": mailed, "one_shot": mailed, "two_shot": mailed / triton_dist.n_pes()}.get(algorithm, 0)
        if fits(int(words) // 4, triton_dist.n_pes()):
            contenders[f"ours {algorithm}"] = partial(call, algorithm=algorithm)
    return contenders


class Registered:
    """Tensors for NCCL's kernels on symmetric memory: from its own allocator, registered with the communicator."""

    def __init__(self, bench: Bench, wanted: bool) -> None:
        self.device = bench.world.device
        self.problem, self._pools = "" if wanted else "not asked for", []
        if not wanted:
            return
        try:
            self._backend = dist.group.WORLD._get_backend(self.device)
            self.empty(1, torch.float32)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
        self.problem = bench.agree(self.problem)

    def empty(self, numel: int, dtype: torch.dtype) -> torch.Tensor:
        if self.problem:
            raise RuntimeError(self.problem)
        pool = torch.cuda.MemPool(self._backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(numel, dtype=dtype, device=self.device)
        self._backend.register_mem_pool(pool, symm=True)
        self._pools.append(pool)
        return tensor

    def close(self) -> None:
        """Before the communicator is gone, which the memory refers to."""
        torch.cuda.synchronize()
        for pool in self._pools:
            self._backend.deregister_mem_pool(pool)
        self._pools.clear()


def beside_nccl(
    b: Buffers, registered: Registered, call: Callable[[torch.Tensor, torch.Tensor], Any], *, symmetric: bool = True
) -> dict[str, Contender]:
    """NCCL's ``call(output, input)``, on ordinary memory and on memory that is registered with it."""
    contenders: dict[str, Contender] = {}

    def add(name: str, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
        inputs.copy_(b.inputs)

        def contender(i: int) -> torch.Tensor:
            call(outputs[i], inputs[i])
            return outputs[i]

        contenders[name] = contender

    add("NCCL", torch.empty_like(b.inputs), torch.empty_like(b.outputs))
    if symmetric and not registered.problem:
        inputs, outputs = (registered.empty(like.numel(), b.dtype).view_as(like) for like in (b.inputs, b.outputs))
        add("NCCL, symmetric memory", inputs, outputs)
    return contenders


def torch_symmetric(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of torch's symmetric memory."""
    import torch.distributed._symmetric_memory as symmetric_memory

    tensor = symmetric_memory.empty(*shape, dtype=dtype, device=device)
    symmetric_memory.rendezvous(tensor, dist.group.WORLD.group_name)
    return tensor


def all_gather(bench: Bench, nbytes: int, rate: float, registered: Registered) -> None:
    n_pes = bench.world.n_pes
    b = Buffers(bench, nbytes // 2, nbytes // 2 * n_pes, torch.bfloat16)
    contenders = ours(
        "all_gather", nbytes, lambda i, algorithm: kernels.all_gather(b.outputs[i], b.inputs[i], algorithm=algorithm)
    )
    contenders |= beside_nccl(b, registered, dist.all_gather_into_tensor)
    bench.compare(
        f"all_gather {label(nbytes)} a PE",
        contenders,
        check=lambda result, i: moved(result, torch.cat(b.all_inputs(i))),
        sets=b.sets,
        bound=nbytes * (n_pes - 1) / rate,
    )
    b.free()


def reduce_scatter(bench: Bench, nbytes: int, rate: float, registered: Registered) -> None:
    n_pes = bench.world.n_pes
    b = Buffers(bench, nbytes // 2, nbytes // 2 // n_pes, torch.bfloat16)
    contenders = ours(
        "reduce_scatter",
        nbytes // n_pes,
        lambda i, algorithm: kernels.reduce_scatter(b.outputs[i], b.inputs[i], algorithm=algorithm),
    )
    contenders |= beside_nccl(b, registered, dist.reduce_scatter_tensor)
    bench.compare(
        f"reduce_scatter {label(nbytes)} a PE",
        contenders,
        check=lambda result, i: summed(result, b.parts(i)),
        sets=b.sets,
        bound=nbytes / n_pes * (n_pes - 1) / rate,
    )
    b.free()


def all_reduce(bench: Bench, nbytes: int, rate: float, registered: Registered) -> None:
    n_pes, group = bench.world.n_pes, dist.group.WORLD.group_name
    b = Buffers(bench, nbytes // 2, nbytes // 2, torch.bfloat16)
    contenders = ours(
        "all_reduce",
        nbytes,
        lambda i, algorithm: kernels.all_reduce(b.inputs[i], out=b.outputs[i], algorithm=algorithm),
    )
    in_place: list[torch.Tensor] = []  # what each peer that works in place works on

    def with_place(tensor: torch.Tensor, call: Callable[[torch.Tensor], Any]) -> Contender:
        place = tensor.view_as(b.inputs)
        in_place.append(place)

        def contender(i: int) -> torch.Tensor:
            call(place[i])
            return place[i]

        return contender

    contenders["NCCL"] = with_place(torch.empty_like(b.inputs), dist.all_reduce)
    if not registered.problem:
        contenders["NCCL, symmetric memory"] = with_place(registered.empty(b.inputs.numel(), b.dtype), dist.all_reduce)
    try:
        work = [torch_symmetric((b.n_in,), b.dtype, b.world.device) for _ in range(b.sets)]
    except Exception as error:
        bench.say(f"torch's symmetric memory: {error}")
    else:
        for i, tensor in enumerate(work):
            tensor.copy_(b.inputs[i])
        places = [torch_symmetric((b.n_in,), b.dtype, b.world.device) for _ in range(b.sets)]

        def one_shot(i: int) -> torch.Tensor:
            return torch.ops.symm_mem.one_shot_all_reduce(work[i], "sum", group)

        def two_shot(i: int) -> torch.Tensor:
            return torch.ops.symm_mem.two_shot_all_reduce_(places[i], "sum", group)

        contenders |= {"torch one-shot": one_shot, "torch two-shot": two_shot}

    def fresh() -> None:
        for place in in_place:
            place.copy_(b.inputs)
        if "torch two-shot" in contenders:
            for i, place in enumerate(places):
                place.copy_(b.inputs[i])

    bench.compare(
        f"all_reduce {label(nbytes)}",
        contenders,
        check=lambda result, i: summed(result, b.all_inputs(i)),
        sets=b.sets,
        bound=2 * nbytes / n_pes * (n_pes - 1) / rate,
        fresh=fresh,
    )
    b.free()


def all_to_all(bench: Bench, nbytes: int, rate: float, registered: Registered) -> None:
    n_pes = bench.world.n_pes
    b = Buffers(bench, nbytes // 2, nbytes // 2, torch.bfloat16)
    contenders = ours(
        "all_to_all",
        nbytes // n_pes,
        lambda i, algorithm: kernels.all_to_all(b.outputs[i], b.inputs[i], algorithm=algorithm),
    )
    contenders |= beside_nccl(b, registered, dist.all_to_all_single)
    rows = nbytes // (7168 * 2)
    bench.compare(
        f"all_to_all {f'{rows} × 7168' if rows * 7168 * 2 == nbytes else label(nbytes)}",
        contenders,
        check=lambda result, i: moved(result, torch.cat(b.parts(i))),
        sets=b.sets,
        bound=nbytes / n_pes * (n_pes - 1) / rate,
    )
    b.free()


def broadcast(bench: Bench, nbytes: int, rate: float, registered: Registered) -> None:
    b = Buffers(bench, nbytes // 2, nbytes // 2, torch.bfloat16)
    contenders = ours("broadcast", nbytes, lambda i, algorithm: kernels.broadcast(b.outputs[i], algorithm=algorithm))
    plain = torch.empty_like(b.outputs)

    def nccl(i: int) -> torch.Tensor:
        dist.broadcast(plain[i], 0)
        return plain[i]

    def fresh() -> None:  # of which only the root's count
        b.outputs.copy_(b.inputs)
        plain.copy_(b.inputs)

    contenders["NCCL"] = nccl
    bench.compare(
        f"broadcast {label(nbytes)}",
        contenders,
        check=lambda result, i: moved(result, b.input_of(0, i)),
        sets=b.sets,
        bound=nbytes / rate,
        fresh=fresh,
    )
    b.free()


def label(nbytes: int) -> str:
    return f"{nbytes // KIB} KB" if nbytes % MIB else f"{nbytes // MIB} MB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS), help="which collectives")
    parser.add_argument("--sizes", nargs="+", type=int, help="bytes of one PE's input")
    parser.add_argument("--largest", type=int, default=1 << 40, help="leave larger sizes out")
    parser.add_argument("--no-nccl-symmetric", action="store_true", help="leave NCCL on symmetric memory out")
    parser.add_argument("--save", help="where to write the figures, as JSON")
    args = parser.parse_args()
    os.environ.setdefault("TRITON_DIST_SYMMETRIC_SIZE", "8G")
    sizes: dict[str, list[int]] = {name: [n for n in args.sizes or SIZES if n <= args.largest] for name in ALGORITHMS}
    if not args.sizes:
        sizes["all_to_all"] = [rows * 7168 * 2 for rows in ROWS]
    with session("collectives", total=sum(len(sizes[name]) for name in args.only)) as bench:
        rate = bench.copy_engine_rate()
        registered = Registered(bench, not args.no_nccl_symmetric)
        if registered.problem:
            bench.say(f"NCCL on symmetric memory: {registered.problem}")
        for name in args.only:
            for nbytes in sizes[name]:
                globals()[name](bench, nbytes, rate, registered)
                if args.save:
                    bench.save(args.save)
        registered.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
