"""Collectives by the sentinel protocol: rounds, slots that they share, any float."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from harness import main, on_pe, raises, some

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.collectives.all_gather import all_gather_parts
from triton_dist.kernels.collectives.exchange import cut_of, reserve_exchange
from triton_dist.kernels.collectives.gather_exchange import FLOATS
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.protocols.workspace import Workspace

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OF_ALL = ("exchange", "two_exchanges")


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


def reduced_alike(x: torch.Tensor, op: str, algorithm: str, comm: Communicator, *, in_place: bool) -> torch.Tensor:
    """The result on this PE, which is the same bits on all."""
    given = x.clone()
    out = given if in_place else torch.full_like(given, 77)
    assert kernels.all_reduce(given, op, out=out, algorithm=algorithm, group=comm) is out
    if not in_place:
        assert torch.equal(bits(given), bits(x)), "the input was written to"
    shown = triton_dist.empty(out.nbytes, dtype=torch.uint8).copy_(bits(out))
    triton_dist.barrier_all()
    assert all(torch.equal(on_pe(shown, of), shown) for of in range(comm.n_pes)), "PEs differ"
    triton_dist.free(shown)
    return out


def check_rounds(world: Any) -> None:
    """Several rounds and few, one after the other in the same slots, of private memory; sums of integers are exact."""
    n_pes, pe = world.n_pes, world.pe
    with Communicator() as comm:
        for dtype in (torch.bfloat16, torch.float32):
            per_word = 4 // dtype.itemsize
            long = cut_of(1, per_word, n_pes, NO_LIMIT, 2).block * 8 + 501  # 4 programs on a CPU
            for n in (1, 15 * n_pes, long, 7, long // 3):
                parts = [torch.arange(n_pes * n).add(3 * i).remainder(17).to(dtype) for i in range(n_pes)]
                total = sum(part.float() for part in parts).to(dtype)
                for algorithm in OF_ALL:
                    for in_place in some((n % 2 == 0, n % 2 == 1)):
                        found = reduced_alike(parts[pe], "sum", algorithm, comm, in_place=in_place)
                        assert torch.equal(found, total), (n, dtype, algorithm, in_place)
                found = kernels.reduce_scatter(torch.empty(n, dtype=dtype), parts[pe], algorithm="exchange", group=comm)
                assert torch.equal(found, total.view(n_pes, n)[pe]), (n, dtype)
                cut = cut_of(n, per_word, n_pes, NO_LIMIT, 2)
                assert n < long or cut.blocks > 2 * cut.programs, "there are several rounds"
        names = {name for name in comm.own(Workspace).tensors if name.startswith("exchange")}
        assert names == {"exchange, 1 × 512 words, 512 programs", "exchange, 2 × 512 words, 512 programs"}


def check_sizes(world: Any) -> None:
    """Tensors that few programs take at once, that more do, and larger ones, in turn; all slots are reserved before."""
    n_pes, pe = world.n_pes, world.pe
    with Communicator() as comm:
        reserve_exchange(comm, 4 * 600_000)
        names = {name for name in comm.own(Workspace).tensors if name.startswith("exchange, 1")}
        sizes = (512, 512), (512, 1024), (2048, 512)
        assert names == {f"exchange, 1 × {words} words, {most} programs" for words, most in sizes}
        for n in (262_145, 1000, 524_289):
            parts = [torch.arange(n).add(3 * i).remainder(17).to(torch.float32) for i in range(n_pes)]
            found = kernels.all_reduce(parts[pe], out=torch.empty(n), algorithm="exchange", group=comm)
            assert torch.equal(found, torch.stack(parts).sum(0)), n
        assert {name for name in comm.own(Workspace).tensors if name.startswith("exchange, 1")} == names
        reserve_exchange(comm, 4 * 300_000, 2)
        names = {name for name in comm.own(Workspace).tensors if name.startswith("exchange, 2")}
        assert names == {f"exchange, 2 × 512 words, {most} programs" for most in (512, 1024)}
        if n_pes == 3:  # with 2 it is not offered by auto, and more take long
            for n in (262_145 * n_pes, 1000):
                parts = [torch.arange(n).add(3 * i).remainder(17).to(torch.float32) for i in range(n_pes)]
                found = kernels.all_reduce(parts[pe], out=torch.empty(n), algorithm="two_exchanges", group=comm)
                assert torch.equal(found, torch.stack(parts).sum(0)), n


def check_every_float(world: Any) -> None:
    """NaN, infinities, what overflows, the smallest, and -0.0, which the protocol reserves; in either place."""
    with Communicator() as comm:
        for dtype in DTYPES:
            greatest, tiny = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal
            values = [0.0, -0.0, 1.0, -1.0, torch.nan, torch.inf, -torch.inf, greatest, -greatest, tiny, -tiny / 2]
            pairs = torch.cartesian_prod(*[torch.tensor(values, dtype=dtype)] * 2).flatten()
            parts = [pairs, pairs.flip(0), pairs.roll(1), pairs.roll(7)][: world.n_pes]
            for op in ("sum", "avg"):
                total = torch.zeros(len(pairs))
                for part in parts:
                    total += part.float()
                expected = (total / len(parts) if op == "avg" else total).to(dtype)
                for algorithm in OF_ALL:
                    found = reduced_alike(parts[world.pe], op, algorithm, comm, in_place=False)
                    assert torch.allclose(found, expected, rtol=0, atol=0, equal_nan=True), (dtype, op, algorithm)


def check_gathered(world: Any) -> None:
    """Parts of any length, of all types, in the slots of the sums, and between these; whole and ragged parts."""
    n_pes, pe = world.n_pes, world.pe
    with Communicator() as comm:
        for dtype in some(tuple(FLOATS)):
            per_word = 4 // dtype.itemsize
            for n in (per_word, 1000 * per_word, 4 * per_word * 2_503, 3 * per_word):
                generator = torch.Generator().manual_seed(n)
                whole = torch.randn(n_pes * n, generator=generator).to(dtype)
                part = whole[pe * n :][:n].clone()
                found = kernels.all_gather(torch.empty_like(whole), part, algorithm="exchange", group=comm)
                assert torch.equal(bits(found), bits(whole)), (dtype, n)
                x = torch.full([n_pes * 40], float(pe))
                kernels.all_reduce(x, algorithm="exchange", group=comm)
                assert torch.equal(x, torch.full_like(x, sum(range(n_pes)))), (dtype, n)
                for rows in (1, n_pes, 2 * n_pes + 1):
                    each = -(-rows // n_pes)
                    matrix = torch.randn(rows, n, generator=generator).to(dtype)
                    own, out = matrix[pe * each :][:each].contiguous(), torch.empty_like(matrix)
                    all_gather_parts(out, own, each * n, algorithm="exchange", group=comm)
                    assert torch.equal(bits(out), bits(matrix)), (dtype, n, rows)


def check_gathered_zeros(world: Any) -> None:
    """A -0.0 may arrive as 0.0, and nothing else changes: NaNs keep their bits."""
    for dtype in some(tuple(FLOATS)):
        every = torch.arange(256, dtype=torch.uint8)
        part = torch.cartesian_prod(every, every).flatten().roll(world.pe).view(dtype)
        found = kernels.all_gather(torch.empty(world.n_pes * len(part), dtype=dtype), part, algorithm="exchange")
        for source, of_pe in enumerate(found.view(world.n_pes, -1)):
            sent = torch.cartesian_prod(every, every).flatten().roll(source).view(dtype)
            integers = {4: torch.int32, 2: torch.int16, 1: torch.int8}[dtype.itemsize]
            differ = of_pe.view(integers) != sent.view(integers)
            assert not (differ & ~((sent.float() == 0) & (of_pe.float() == 0))).any(), dtype


def check_refusals(world: Any) -> None:
    x, y = torch.zeros(8 * world.n_pes), torch.zeros(8)
    why = "takes sum and avg of torch.float16, torch.bfloat16, torch.float32, got"
    refused: tuple[tuple[Callable[..., object], torch.Tensor, str, str], ...] = (
        (kernels.all_reduce, x, "max", "max of torch.float32"),
        (kernels.all_reduce, x.double(), "sum", "sum of torch.float64"),
        (kernels.all_reduce, x.int(), "sum", "sum of torch.int32"),
    )
    for algorithm in OF_ALL:
        for function, tensor, op, what in refused:
            with raises(ValueError, f"all_reduce: algorithm {algorithm} {why} {what}"):
                function(tensor, op, algorithm=algorithm)
    with raises(ValueError, f"reduce_scatter: algorithm exchange {why} min of torch.float32"):
        kernels.reduce_scatter(y, x, "min", algorithm="exchange")
    floats = "torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2"
    with raises(ValueError, f"all_gather: algorithm exchange takes {floats}, got torch.int32"):
        kernels.all_gather(x.int(), y.int(), algorithm="exchange")
    with raises(ValueError, "all_gather: algorithm exchange takes parts of whole words of 4 bytes, got 6 bytes"):
        kernels.all_gather(x[: 3 * world.n_pes].half(), y[:3].half(), algorithm="exchange")


if __name__ == "__main__":
    main(globals())
