"""The collectives of triton_dist.kernels on GPUs: all algorithms and sizes, without a pause, and in CUDA graphs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch

import triton_dist
from ops.harness import GPU, check, rounds
from triton_dist import World, kernels
from triton_dist.kernels.collectives.exchange import why_no_exchange
from triton_dist.kernels.collectives.gather_exchange import FLOATS as GATHERED
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.device import sms

LARGEST = 3_000_000  # elements of a part
SMALL = 40_000  # bytes of a part that fit into mailboxes
MOVED = ((1, torch.int64), (37, torch.uint8), (4096, torch.bfloat16), (100_001, torch.uint8), (LARGEST, torch.bfloat16))
SUMMED = (
    *((1, torch.float32), (37, torch.float16), (4096, torch.bfloat16), (4096, torch.float32)),
    *((100_001, torch.float16), (LARGEST, torch.bfloat16)),
)


def numbers(numel: int, dtype: torch.dtype, pe: int, seed: int) -> torch.Tensor:
    """Small integers that every PE can make again on its GPU; sums of them are exact."""
    generator = torch.Generator("cuda").manual_seed(100 * seed + pe)
    return torch.randint(0, 8, (numel,), generator=generator, device="cuda").to(dtype)


def algorithms(name: str, dtype: torch.dtype, op: str = "sum") -> list[str]:
    """Those that take it: reductions have exchanges, and all-gathers of floats."""
    if communicator_of().grid.hosts > 1:
        return ["two_level", "auto"]
    refused = ("exchange", "two_exchanges") if why_no_exchange(dtype, op) else ()
    every = [*sys.modules[f"triton_dist.kernels.collectives.{name}"].ALGORITHMS, "auto"]
    if name == "all_gather" and dtype in GATHERED:
        return [*every, "exchange"]
    return [algorithm for algorithm in every if algorithm not in refused]


def unless_between_hosts(algorithm: str) -> str:
    return "two_level" if communicator_of().grid.hosts > 1 else algorithm


def is_small(algorithm: str) -> bool:
    return algorithm in ("low_latency", "one_shot", "two_shot")


def elements_of_input(name: str, n: int, n_pes: int) -> int:
    """Of a call with parts of ``n`` elements."""
    return n if name in ("all_gather", "broadcast") else n * n_pes


def expected_of(name: str, inputs: list[torch.Tensor], me: int, root: int) -> torch.Tensor:
    """This PE's result of all PEs' inputs."""
    if name == "all_gather":
        return torch.cat(inputs)
    if name == "all_to_all":
        return torch.cat([other.chunk(len(inputs))[me] for other in inputs])
    if name == "broadcast":
        return inputs[root]
    total = torch.stack(inputs).float().sum(0).to(inputs[me].dtype)
    return total if name == "all_reduce" else total.chunk(len(inputs))[me]


class Case:
    """Symmetric memory that all cases share, and one collective's call and expected result."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.input = triton_dist.empty(2 * LARGEST * world.n_pes, dtype=torch.uint8)
        self.output = triton_dist.empty(2 * LARGEST * world.n_pes, dtype=torch.uint8)

    def __call__(self, n: int, dtype: torch.dtype, algorithm: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Fill the input on the current stream, launch, and return the result beside what it should be."""
        n_pes, me, root = self.world.n_pes, self.world.pe, seed % self.world.n_pes
        whole = elements_of_input(self.name, n, n_pes)
        input, output = self.input.view(dtype)[:whole], self.output.view(dtype)
        inputs = [numbers(whole, dtype, pe, seed) for pe in range(n_pes)]
        input.copy_(inputs[me])
        if self.name == "all_reduce":
            found = kernels.all_reduce(input, out=output[:whole] if seed % 2 else None, algorithm=algorithm)
        elif self.name == "broadcast":
            found = kernels.broadcast(input, root, algorithm=algorithm)
        else:
            output = output[: n if self.name == "reduce_scatter" else n * n_pes]
            found = getattr(kernels, self.name)(output, input, algorithm=algorithm)
        return found, expected_of(self.name, inputs, me, root)

    def free(self) -> None:
        triton_dist.barrier_all()
        triton_dist.free(self.input)
        triton_dist.free(self.output)


def _each(name: str) -> Callable[[World], None]:
    def collective(world: World) -> None:
        """Launched one after the other with nothing in between but PyTorch's own kernels."""
        case = Case(world, name)
        cases = SUMMED if "reduce" in name else MOVED
        wrong = []
        calls = ((n, dtype, algorithm) for n, dtype in cases for algorithm in algorithms(name, dtype))
        for seed, (n, dtype, algorithm) in enumerate(calls):
            if is_small(algorithm) and n * dtype.itemsize > SMALL:
                continue
            found, expected = case(n, dtype, algorithm, seed)
            wrong.append(((found != expected).sum(), f"{name} of {n} {dtype} by {algorithm}"))
        for count, what in wrong:
            assert count.item() == 0, f"{what}: {count.item()} elements differ"
        case.free()

    collective.__name__ = f"kernels_{name}"
    return collective


for name in kernels.__all__:
    if hasattr(sys.modules.get(f"triton_dist.kernels.collectives.{name}"), "ALGORITHMS"):
        check(_each(name), gpu_only=True)


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)


def edges(numel: int, dtype: torch.dtype, world: World, pe: int) -> torch.Tensor:
    """The least and greatest elements, -1, 0 and, of floats, NaN, in another order on every PE."""
    if dtype.is_floating_point:
        values = [0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), -float("inf")]
    else:
        least, greatest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        values = [least, least + 1, 0, 1, greatest - 1, greatest, *([-1, -128] if least else [128])]
    order = torch.randint(len(values), (numel,), generator=torch.Generator().manual_seed(pe))
    return torch.tensor(values, dtype=dtype)[order].to(world.device)


def reduced(parts: list[torch.Tensor], op: str) -> torch.Tensor:
    """What torch makes of all PEs' tensors: floats in float32 or float64, integers in their own type."""
    dtype = parts[0].dtype
    wide = dtype if not dtype.is_floating_point or dtype == torch.float64 else torch.float32
    if op in ("sum", "avg"):
        total = torch.stack(parts).to(wide).sum(0, dtype=wide)
        return (total / len(parts) if op == "avg" else total).to(dtype)
    combine = {"max": torch.fmax, "min": torch.fmin}[op]
    total = parts[0]
    for part in parts[1:]:
        total = combine(total, part)
    return total


def _reducing(name: str, op: str, dtypes: tuple[torch.dtype, ...]) -> Callable[[World], None]:
    def reduce(world: World) -> None:
        """All algorithms, with elements at the edges of the type and sums that wrap around."""
        wrong = []
        for n, dtype in itertools.product((37, rounds(100_000, 304)), dtypes):
            everybody = [edges(n * world.n_pes, dtype, world, pe) for pe in range(world.n_pes)]
            expected = reduced(everybody, op)
            mine = expected.view(world.n_pes, n)[world.pe]
            tensor, output = triton_dist.from_tensor(everybody[world.pe]), torch.empty_like(mine)
            for name in ("reduce_scatter", "all_reduce"):
                for algorithm in algorithms(name, dtype, op):
                    if is_small(algorithm) and n * dtype.itemsize > SMALL:
                        continue
                    if name == "all_reduce":
                        found = kernels.all_reduce(tensor, op, algorithm=algorithm)
                    else:
                        found = kernels.reduce_scatter(output, tensor, op, algorithm=algorithm)
                    if not torch.allclose(found, expected if found is tensor else mine, rtol=0, atol=0, equal_nan=True):
                        wrong.append(f"{name} of {n} {dtype} by {algorithm}")
                    tensor.copy_(everybody[world.pe])
            triton_dist.barrier_all()
            triton_dist.free(tensor)
        assert not wrong, f"{op}: {wrong}"

    reduce.__name__ = f"kernels_reduce_{name}"
    return reduce


for name, op, dtypes in (
    ("sum_of_floats", "sum", FLOATS),
    ("sum_of_integers", "sum", INTEGERS),
    ("max", "max", (torch.uint8, torch.bfloat16, torch.int64)),
    ("min", "min", (torch.float32, torch.float64, torch.int8, torch.int32)),
    ("avg", "avg", FLOATS),
):
    check(_reducing(name, op, dtypes))


@check
def kernels_with_sm_margins(world: World) -> None:
    """Every algorithm with fewer programs, and with all of them again, in one workspace."""
    n_pes, total = world.n_pes, sms()
    margins = (1, 0, total - 1, 0, total // 2) if GPU else (total - 1, 0)  # all: tests/kernels/checks/sm_margin.py
    wrong = []
    for n in (96 // n_pes, rounds(300_000, 300)):
        everybody = [edges(n * n_pes, torch.int32, world, pe) for pe in range(n_pes)]
        mine = everybody[world.pe]
        chunks = torch.stack([tensor.view(n_pes, n)[world.pe] for tensor in everybody])
        tensor, gathered = triton_dist.from_tensor(mine), triton_dist.empty(n * n_pes * n_pes, dtype=torch.int32)
        expected = {
            "all_reduce": reduced(everybody, "sum"),
            "reduce_scatter": reduced(list(chunks), "sum"),
            "all_gather": torch.cat(everybody),
            "all_to_all": chunks.flatten(),
            "broadcast": everybody[0],
        }
        for (name, whole), margin in itertools.product(expected.items(), margins):
            for algorithm in algorithms(name, torch.int32):
                if is_small(algorithm) and n * n_pes > 96:
                    continue
                how = {"algorithm": algorithm, "sm_margin": margin}
                tensor.copy_(mine)
                triton_dist.barrier_all()
                if name == "all_reduce":
                    found = kernels.all_reduce(tensor, **how)
                elif name == "broadcast":
                    found = kernels.broadcast(tensor, **how)
                elif name == "reduce_scatter":
                    found = kernels.reduce_scatter(torch.empty_like(mine[:n]), mine, **how)
                else:
                    out = gathered if name == "all_gather" else gathered[: n * n_pes]
                    found = getattr(kernels, name)(out, mine, **how)
                if not torch.equal(found, whole):
                    wrong.append(f"{name} of {n} by {algorithm} with a margin of {margin} of {total}")
        triton_dist.barrier_all()
        triton_dist.free(tensor)
        triton_dist.free(gathered)
    assert not wrong, wrong


@check(gpu_only=True)
def kernels_in_graphs(world: World) -> None:
    """Every replay works on new data, while eager launches use the same workspace in between."""
    n, n_pes = 5_000, world.n_pes
    ours = triton_dist.zeros(n)
    gathered, shuffled = triton_dist.zeros(n * n_pes), triton_dist.zeros(n * n_pes)

    def work() -> None:
        ours.add_(1 + world.pe)
        kernels.all_gather(gathered, ours, algorithm=unless_between_hosts("low_latency"))
        kernels.all_to_all(shuffled, gathered, algorithm=unless_between_hosts("push"))
        kernels.all_reduce(shuffled, algorithm=unless_between_hosts("two_shot"))

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    for _ in range(200):
        graph.replay()
        kernels.all_reduce(ours.clone(), algorithm=unless_between_hosts("one_shot"))
    torch.cuda.synchronize()
    rounds = 201
    # Part q of everybody's gathered tensor is rounds * (1 + q); PE p keeps part p of each PE, and all add that up.
    expected = torch.full((n_pes * n,), float(rounds * sum(1 + pe for pe in range(n_pes))), device=world.device)
    assert torch.equal(shuffled, expected), f"{shuffled.unique().tolist()}, expected {expected[0].item()}"
    triton_dist.barrier_all()


class OfViews:
    """A collective whose output is a view of a flat symmetric buffer, and its input one of a flat buffer, which begins
    at another address on each PE."""

    BEGIN = 3  # of the output; an odd number of bytes of uint8

    def __init__(self, world: World, name: str, algorithm: str, n: int, dtype: torch.dtype) -> None:
        self.world, self.name, self.algorithm = world, name, algorithm
        whole = elements_of_input(name, n, world.n_pes)
        self.input = torch.empty(whole + 3, dtype=dtype, device=world.device)[1 + world.pe % 3 :][:whole]
        self.flat = triton_dist.empty(n * world.n_pes + 8, dtype=dtype).fill_(77)
        length = {"reduce_scatter": n, "broadcast": n}.get(name, n * world.n_pes)
        self.output = self.flat[self.BEGIN :][:length]

    def fill(self, seed: int) -> None:
        inputs = [numbers(len(self.input), self.input.dtype, pe, seed) for pe in range(self.world.n_pes)]
        self.input.copy_(inputs[self.world.pe])
        self.expected = expected_of(self.name, inputs, self.world.pe, root=self.world.n_pes - 1)

    def call(self) -> None:
        if self.name in ("all_reduce", "broadcast"):
            self.output.copy_(self.input)
        if self.name == "all_reduce":
            kernels.all_reduce(self.output, algorithm=self.algorithm)
        elif self.name == "broadcast":
            kernels.broadcast(self.output, self.world.n_pes - 1, algorithm=self.algorithm)
        else:
            getattr(kernels, self.name)(self.output, self.input, algorithm=self.algorithm)

    def wrong(self) -> torch.Tensor:
        """How many elements are, in the view and beside it."""
        beside = torch.cat([self.flat[: self.BEGIN], self.flat[self.BEGIN + len(self.output) :]])
        return (self.output != self.expected).sum() + (beside != 77).sum()


@check(gpu_only=True)
def kernels_of_views_that_begin_anywhere(world: World) -> None:
    """Direct calls, then a graph of all of them, replayed with other elements."""
    found: list[tuple[torch.Tensor, str]] = []
    for n, dtype in ((61, torch.uint8), (64, torch.bfloat16), (50_002, torch.bfloat16), (50_002, torch.uint8)):
        cases = [
            OfViews(world, name, algorithm, n, dtype)
            for name in ("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter")
            for algorithm in algorithms(name, dtype)
            if not is_small(algorithm) or n * dtype.itemsize <= SMALL
        ]
        triton_dist.barrier_all()
        graph = torch.cuda.CUDAGraph()
        for seed in range(4):
            for case in cases:
                case.fill(seed)
            if seed == 1:
                torch.cuda.synchronize()
                with torch.cuda.graph(graph):
                    for case in cases:
                        case.call()
            if seed:
                graph.replay()
            else:
                for case in cases:
                    case.call()
            found += [(case.wrong(), f"{case.name} of {n} {dtype} by {case.algorithm}, {seed=}") for case in cases]
        torch.cuda.synchronize()
        del graph
        triton_dist.barrier_all()
        for case in cases:
            triton_dist.free(case.flat)
    for count, what in found:
        assert count.item() == 0, f"{what}: {count.item()} elements differ"


@check(gpu_only=True, maps_all=True)
def kernels_give_the_same_bits_every_time(world: World) -> None:
    for numel, algorithm in (
        *((20_000, "one_shot"), (200_000, "two_shot"), (900_001, "exchange"), (900_001, "two_exchanges")),
        (5_000_000, "direct"),
    ):
        input = triton_dist.empty(numel, dtype=torch.bfloat16)
        input.copy_(torch.randn(numel, generator=torch.Generator("cuda").manual_seed(world.pe), device="cuda"))
        out = triton_dist.empty(numel, dtype=torch.bfloat16)
        first = kernels.all_reduce(input, out=out, algorithm=algorithm).clone()
        everywhere = triton_dist.from_tensor(first)
        for _ in range(20):
            assert torch.equal(kernels.all_reduce(input, out=out, algorithm=algorithm), first)
        assert torch.equal(triton_dist.peer(everywhere, (world.pe + 1) % world.n_pes), first), "PEs differ"
        triton_dist.barrier_all()
        for tensor in (input, out, everywhere):
            triton_dist.free(tensor)
