"""What the stress test calls: operations with their buffers, a few sets of inputs, and what must come out, bit by bit.

Inputs are small integers, so sums and products are exact in any order of summation.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import World, kernels
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE

__all__ = ["FACTORS", "GEMMS", "GPU", "SHAPES", "VARIANTS", "Case", "Cases", "Recipe", "exact_share", "gemm", "groups"]

GPU = triton_dist.kind() == "gpu"
VARIANTS = 3
"""Sets of inputs of a case."""

POISON = 77
PARTS = (1, 7, 1000, 4096, 100_003, 1 << 18) if GPU else (1, 5, 37, 300)
"""Elements for each PE."""
OP_PARTS = (1, 33, 4096, 20_001) if GPU else (1, 33, 200)
SHAPES = (
    ((128, 640, 512), (100, 328, 264), (77, 640, 512), (256, 1168, 512), (8, 512, 512))
    if GPU
    else ((3, 17, 9), (16, 40, 33))
)
"""Rows of each PE, columns of each PE, and K of each PE."""
OF_BLOCKS = ((256, 640, 256), (77, 336, 512), (8, 512, 512)) if GPU else ((3, 17, 128), (16, 150, 256))
"""The same, for scales of blocks."""

GEMMS = {
    "all_gather_gemm": (*GATHER, "auto"),
    "gemm_all_scatter": (*SCATTER, "auto"),
    "gemm_reduce_scatter": (*REDUCE, "auto"),
    "gemm_all_reduce": (*REDUCE, "auto"),
}
"""Functions, and their algorithms."""
MOVED = (torch.uint8, torch.int16, torch.float32)
SUMMED = (torch.bfloat16, torch.float16, torch.float32)
FACTORS = (torch.bfloat16, torch.float16) if GPU else (torch.bfloat16, torch.float16, torch.float32)

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Recipe:
    """A call that can be made in any world: its name, with all arguments, and how to make it."""

    name: str
    make: Callable[[Cases], Case]


@dataclass
class Case:
    """A call on buffers of one world.

    Attributes:
        inputs: each buffer, and what is copied there for each variant.
        out, expected: the result's buffer, and the result for each variant.
    """

    name: str
    call: Callable[[], object]
    inputs: list[tuple[torch.Tensor, Tensors]]
    out: torch.Tensor
    expected: Tensors

    def run(self, variant: int, wrong: torch.Tensor) -> None:
        """Put inputs into the buffers, call, and add to ``wrong`` how many elements are. All on the current stream."""
        self.out.fill_(POISON)
        for buffer, data in self.inputs:
            buffer.copy_(data[variant])
        self.call()
        wrong.add_((self.out != self.expected[variant]).sum())


class Cases:
    """Those of one world, and the buffers that they share: what one call has just read or written is the next one's."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.n_pes, self.pe, self.device = world, world.n_pes, world.pe, world.device
        self._seed = seed
        self._buffers: dict[tuple[object, ...], torch.Tensor] = {}
        self._made: dict[str, Case] = {}

    def __call__(self, recipe: Recipe) -> Case:
        """*Collective* the first time."""
        if recipe.name not in self._made:
            self._made[recipe.name] = recipe.make(self)
        return self._made[recipe.name]

    def buffer(self, role: str, shape: Sequence[int], dtype: torch.dtype, symmetric: bool = True) -> torch.Tensor:
        """*Collective* the first time."""
        key = role, tuple(shape), dtype, symmetric
        if key not in self._buffers:
            make = triton_dist.zeros if symmetric else torch.zeros
            where = {} if symmetric else {"device": self.device}
            self._buffers[key] = make(*shape, dtype=dtype, **where)
        return self._buffers[key]

    def data(
        self, name: str, shape: Sequence[int], dtype: torch.dtype, low: int = -1, high: int = 1, share: float = 1.0
    ) -> list[Tensors]:
        """Of each variant, the inputs of all PEs: integers from ``low`` to ``high``, of which a ``share`` is left, and
        the others are 0."""
        low = max(low, 0) if dtype == torch.uint8 else low
        found = []
        for variant in range(VARIANTS):
            generator = torch.Generator(self.device)  # PEs have the same GPUs, and draw the same there
            generator.manual_seed(random.Random(f"{self._seed} {name} {variant}").getrandbits(60))
            draw = {"generator": generator, "device": self.device}
            of_all = [torch.randint(low, high + 1, tuple(shape), dtype=torch.int64, **draw) for _ in range(self.n_pes)]
            if share < 1:
                of_all = [one * (torch.rand(tuple(shape), **draw) < share) for one in of_all]
            found.append([one.to(dtype) for one in of_all])
        return found

    def mine(self, data: list[Tensors]) -> Tensors:
        """This PE's of each variant."""
        return [of_all[self.pe] for of_all in data]


def summed(tensors: Tensors) -> torch.Tensor:
    return torch.stack(tensors).float().sum(0).to(tensors[0].dtype)


def exact_share(terms: int) -> float:
    """The share of an operand's elements that is not 0, so that sums of so many terms from -1 to 1 stay below 256."""
    return min(1.0, 2048 / terms)


def part(whole: torch.Tensor, cases: Cases) -> torch.Tensor:
    return whole.view(cases.n_pes, -1)[cases.pe]


# ---- collectives of triton_dist.kernels


def collective(function: str, algorithm: str, dtype: torch.dtype, n: int, symmetric: bool) -> Recipe:
    name = f"{function}({n} of {dtype} a part, algorithm={algorithm!r}, symmetric={symmetric})"

    def make(cases: Cases) -> Case:
        n_pes, one, all_ = cases.n_pes, (n,), (n * cases.n_pes,)
        shape = one if function in ("all_gather", "broadcast", "all_reduce") else all_
        data = cases.data(name, shape, dtype, -2, 2)
        source = cases.buffer("source", shape, dtype, symmetric)
        out_shape = all_ if function in ("all_gather", "all_to_all") else one
        out = cases.buffer("out", out_shape, dtype, symmetric)
        inputs = [(source, cases.mine(data))]
        if function == "all_gather":
            expected = [torch.cat(of_all) for of_all in data]
            call = lambda: kernels.all_gather(out, source, algorithm=algorithm)  # noqa: E731
        elif function == "all_to_all":
            expected = [torch.cat([part(theirs, cases) for theirs in of_all]) for of_all in data]
            call = lambda: kernels.all_to_all(out, source, algorithm=algorithm)  # noqa: E731
        elif function == "broadcast":
            root = n % n_pes
            expected = [of_all[root] for of_all in data]
            inputs = [(out, cases.mine(data))]
            call = lambda: kernels.broadcast(out, root, algorithm=algorithm)  # noqa: E731
        elif function == "reduce_scatter":
            expected = [part(summed(of_all), cases).clone() for of_all in data]
            call = lambda: kernels.reduce_scatter(out, source, algorithm=algorithm)  # noqa: E731
        elif n % 2:
            expected = [summed(of_all) for of_all in data]
            inputs = [(out, cases.mine(data))]
            call = lambda: kernels.all_reduce(out, algorithm=algorithm)  # noqa: E731 (in place)
        else:
            expected = [summed(of_all) for of_all in data]
            call = lambda: kernels.all_reduce(source, out=out, algorithm=algorithm)  # noqa: E731
        return Case(name, call, inputs, out, expected)

    return Recipe(name, make)


# ---- fused GEMMs


def scaled_by(data: list[Tensors], scales: list[Tensors], rows: int) -> list[Tensors]:
    """Matrices in float32, of which each block of so many rows and 128 columns is multiplied by its scale."""

    def scaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        whole = scale.repeat_interleave(rows, 0)[: x.shape[0]].repeat_interleave(128, 1)[:, : x.shape[1]]
        return x.float() * whole

    return [[scaled(*pair) for pair in zip(*of_all, strict=True)] for of_all in zip(data, scales, strict=True)]


def gemm(
    function: str,
    algorithm: str,
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    by_columns: bool,
    of_blocks: bool = False,
) -> Recipe:
    """A GEMM; ``of_blocks``: of fp8, with scales of blocks, 1 or 2 each."""
    rows, n, k = shape
    fp8 = dtype.itemsize == 1
    scaled = ", scales of blocks" if of_blocks else ""
    name = f"{function}({rows} rows a PE, n={n}, k={k}, {dtype}, {algorithm=}, {by_columns=}{scaled})"

    def make(cases: Cases) -> Case:
        n_pes, m = cases.n_pes, rows * cases.n_pes
        result = torch.float16 if of_blocks else torch.bfloat16 if fp8 else dtype
        exact = 2048 if of_blocks else 256  # integers up to here are numbers of the result's type
        scales: dict[str, Any] = {"scale_a": 0.5, "scale_b": 0.5} if fp8 and not of_blocks else {}
        by = 1 if of_blocks or not fp8 else 4
        a_rows = rows if function == "all_gather_gemm" else m
        share = exact_share(k * n_pes)
        a_data = cases.data(f"a {name}", (a_rows, k), dtype, share=share)
        b_data = cases.data(f"b {name}", (k, n), dtype)
        if function == "gemm_all_scatter":  # A is the same on all
            a_data = [[of_all[0]] * n_pes for of_all in a_data]
        a = cases.buffer("a", (a_rows, k), dtype, symmetric=False)
        b = cases.buffer("b by columns", (n, k), dtype, symmetric=False).t()
        if not by_columns:
            b = cases.buffer("b", (k, n), dtype, symmetric=False)
        inputs = [(a, cases.mine(a_data)), (b, cases.mine(b_data))]
        if of_blocks:
            of_a = cases.data(f"scales of a {name}", (a_rows, k // 128), torch.float32, 1, 2)
            of_b = cases.data(f"scales of b {name}", (k // 128, -(-n // 128)), torch.float32, 1, 2)
            if function == "gemm_all_scatter":
                of_a = [[of_all[0]] * n_pes for of_all in of_a]
            given = {"scale_a": of_a, "scale_b": of_b}
            for key, of in given.items():
                scales[key] = cases.buffer(key, of[0][0].shape, torch.float32, symmetric=False)
                inputs.append((scales[key], cases.mine(of)))
            a_data, b_data = scaled_by(a_data, of_a, 1), scaled_by(b_data, of_b, 128)
        pairs = list(zip(a_data, b_data, strict=True))

        def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.float() @ y.float() / by

        if function == "all_gather_gemm":
            out = cases.buffer("c", (m, n), result, symmetric=False)
            expected = [matmul(torch.cat(x), y[cases.pe]) for x, y in pairs]
        elif function == "gemm_all_scatter":
            out = cases.buffer("c everywhere", (m, n * n_pes), result)
            expected = [torch.cat([matmul(x[0], theirs) for theirs in y], 1) for x, y in pairs]
        else:
            sums = [torch.stack([matmul(*of_pe) for of_pe in zip(x, y, strict=True)]).sum(0) for x, y in pairs]
            assert all(total.abs().max() * by < exact for total in sums), "not exact"
            if function == "gemm_reduce_scatter":
                out = cases.buffer("c", (rows, n), result, symmetric=False)
                expected = [total[cases.pe * rows : (cases.pe + 1) * rows] for total in sums]
            else:
                out, expected = cases.buffer("c everywhere", (m, n), result), sums
        call = lambda: getattr(kernels, function)(a, b, out, algorithm=algorithm, **scales)  # noqa: E731
        return Case(name, call, inputs, out, [one.to(result) for one in expected])

    return Recipe(name, make)


# ---- ops in kernels of one program: none stores to a peer before that has come to the same kernel


@triton.jit(do_not_specialize=["n"])
def ring(out, slot, source, signal, count, n, BLOCK: tl.constexpr):
    """Put to the next PE with a signal, and wait for the one before."""
    number = tl.load(count) + 1
    dl.barrier_all()  # the slot has been read
    dl.putmem_signal(slot, source, n * 4, signal, 1, dl.SIGNAL_ADD, (dl.my_pe() + 1) % dl.n_pes())
    slot = dl.consume_token(slot, dl.signal_wait_until(signal, dl.CMP_GE, number))
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(slot + at, mask=at < n), mask=at < n)
    tl.store(count, number)


@triton.jit(do_not_specialize=["n"])
def fetch(out, source, n):
    """Get from the next PE."""
    dl.barrier_all()
    dl.getmem(out, source, n * 4, (dl.my_pe() + 1) % dl.n_pes())
    dl.barrier_all()


@triton.jit
def counted(out, table, BLOCK: tl.constexpr):
    """Every PE adds to a word of its own, and to one that all share, on every PE."""
    dl.barrier_all()
    me = dl.my_pe()
    for pe in range(dl.n_pes()):
        dl.atomic_add(table + me, me + 1, pe)
        dl.atomic_fetch_add(table + BLOCK - 1, 10, pe)
    dl.barrier_all()
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(table + at))


@triton.jit(do_not_specialize=["n", "root"])
def collected(out, source, n, root, HOW: tl.constexpr):
    """The collectives of the language."""
    dl.barrier_all()
    if HOW == "broadcast":
        dl.broadcast(dl.TEAM_WORLD, out, source, n, root)
    elif HOW == "fcollect":
        dl.fcollect(dl.TEAM_WORLD, out, source, n)
    elif HOW == "alltoall":
        dl.alltoall(dl.TEAM_WORLD, out, source, n)
    elif HOW == "sum_reduce":
        dl.sum_reduce(dl.TEAM_WORLD, out, source, n)
    else:
        dl.sum_reducescatter(dl.TEAM_WORLD, out, source, n)
    dl.barrier_all()


def op(how: str, n: int) -> Recipe:
    name = f"kernel {how}({n} of int32)"

    def make(cases: Cases) -> Case:
        before, after = (cases.pe - 1) % cases.n_pes, (cases.pe + 1) % cases.n_pes
        if how == "atomics":
            return atomics(cases, name)
        whole = how in ("alltoall", "sum_reducescatter")
        data = cases.data(name, (n * cases.n_pes,) if whole else (n,), torch.int32, -1000, 1000)
        source = cases.buffer("source", data[0][0].shape, torch.int32)
        out = cases.buffer("out", (n * cases.n_pes,) if how in ("fcollect", "alltoall") else (n,), torch.int32)
        inputs, root = [(source, cases.mine(data))], n % cases.n_pes
        call = lambda: collected[(1,)](out, source, n, root, HOW=how)  # noqa: E731
        if how == "put with signal":
            slot = cases.buffer("slot", (n,), torch.int32)
            signal = cases.buffer(f"signal {n}", (1,), torch.int64)
            count = cases.buffer(f"count {n}", (1,), torch.int64, symmetric=False)
            expected = [of_all[before] for of_all in data]
            call = lambda: ring[(1,)](out, slot, source, signal, count, n, BLOCK=256)  # noqa: E731
        elif how == "get":
            expected = [of_all[after] for of_all in data]
            call = lambda: fetch[(1,)](out, source, n)  # noqa: E731
        else:
            expected = combined(how, data, cases, root)
        return Case(name, call, inputs, out, expected)

    return Recipe(name, make)


def atomics(cases: Cases, name: str) -> Case:
    size = 128
    data = cases.data(name, (size,), torch.int64, -(10**12), 10**12)
    table, out = cases.buffer("table", (size,), torch.int64), cases.buffer("out", (size,), torch.int64)
    added = torch.zeros(size, dtype=torch.int64, device=cases.device)
    added[: cases.n_pes] = torch.arange(1, cases.n_pes + 1)
    added[-1] = 10 * cases.n_pes
    expected = [of_all[cases.pe] + added for of_all in data]
    return Case(name, lambda: counted[(1,)](out, table, BLOCK=size), [(table, cases.mine(data))], out, expected)


def combined(how: str, data: list[Tensors], cases: Cases, root: int) -> Tensors:
    """What a collective of OpenSHMEM's name makes of integers."""
    if how == "broadcast":
        return [of_all[root] for of_all in data]
    if how == "fcollect":
        return [torch.cat(of_all) for of_all in data]
    if how == "alltoall":
        return [torch.cat([part(theirs, cases) for theirs in of_all]) for of_all in data]
    sums = [torch.stack(of_all).sum(0).to(of_all[0].dtype) for of_all in data]
    return [part(total, cases).clone() for total in sums] if "scatter" in how else sums


# ---- operations that hosts start


def host(how: str, n: int) -> Recipe:
    name = f"triton_dist.{how}({n} of int32)"

    def make(cases: Cases) -> Case:
        before, after = (cases.pe - 1) % cases.n_pes, (cases.pe + 1) % cases.n_pes
        whole = how in ("alltoall", "reducescatter")
        data = cases.data(name, (n * cases.n_pes,) if whole else (n,), torch.int32, -1000, 1000)
        source = cases.buffer("source", data[0][0].shape, torch.int32)
        out = cases.buffer("out", (n * cases.n_pes,) if how in ("fcollect", "alltoall") else (n,), torch.int32)
        root = n % cases.n_pes

        def call() -> None:
            triton_dist.barrier()
            if how == "put":
                triton_dist.put(out, source, after)
            elif how == "get":
                triton_dist.get(out, source, after)
            elif how == "broadcast":
                triton_dist.broadcast(out, source, root)
            else:
                getattr(triton_dist, how)(out, source)
            triton_dist.barrier()

        if how in ("put", "get"):
            expected = [of_all[before if how == "put" else after] for of_all in data]
        else:
            expected = combined(how, data, cases, root)
        return Case(name, call, [(source, cases.mine(data))], out, expected)

    return Recipe(name, make)


def groups() -> list[list[Recipe]]:
    """The calls of every function with every algorithm."""
    found: list[list[Recipe]] = []
    for function, algorithms, dtypes in (
        ("all_gather", ("low_latency", "push", "copy_engine", "two_level", "auto"), MOVED),
        ("all_to_all", ("low_latency", "push", "copy_engine", "two_level", "auto"), MOVED),
        ("broadcast", ("low_latency", "push", "scatter", "two_level", "auto"), MOVED),
        ("reduce_scatter", ("low_latency", "exchange", "push", "two_level", "auto"), SUMMED),
        (
            "all_reduce",
            ("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct", "two_level", "auto"),
            SUMMED,
        ),
    ):
        for algorithm in algorithms:
            group = itertools.product(dtypes, PARTS, (True, False))
            found.append([collective(function, algorithm, *arguments) for arguments in group])
    types = (*FACTORS, torch.float8_e4m3fn)
    for function, algorithms in GEMMS.items():
        for algorithm in algorithms:
            group = itertools.product(types, SHAPES, (True, False))
            found.append([gemm(function, algorithm, *arguments) for arguments in group])
            group = itertools.product(types[-1:], OF_BLOCKS, (True, False), (True,))
            found.append([gemm(function, algorithm, *arguments) for arguments in group])
    for how in ("put with signal", "get", "broadcast", "fcollect", "alltoall", "sum_reduce", "sum_reducescatter"):
        found.append([op(how, n) for n in OP_PARTS])
    found.append([op("atomics", 128)])
    for how in ("put", "get", "broadcast", "fcollect", "alltoall", "reduce", "reducescatter"):
        found.append([host(how, n) for n in OP_PARTS])
    return found
