"""Results that share memory with operands: in place where it is allowed, else one error that names both."""

from __future__ import annotations

import random
from typing import Any

import torch
from harness import main as run
from harness import raises

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.collectives import all_gather, all_reduce, reduce_scatter
from triton_dist.kernels.overlaps import overlap, sharing, span_of


def elements(tensor: torch.Tensor) -> set[int]:
    """The addresses of all bytes."""
    places = torch.zeros(tensor.shape, dtype=torch.int64)
    for size, step, dim in zip(tensor.shape, tensor.stride(), range(tensor.dim()), strict=True):
        shape = [1] * tensor.dim()
        shape[dim] = size
        places = places + (torch.arange(size) * step).view(shape)
    size = tensor.element_size()
    return {tensor.data_ptr() + place * size + byte for place in places.flatten().tolist() for byte in range(size)}


def check_overlap_is_exact(world: Any) -> None:
    """Beside what a search through all bytes finds, for operands of any strides."""
    draw = random.Random(7)
    memory = torch.zeros(600, dtype=torch.int16)
    found = set()
    for _ in range(400):
        dims = draw.randint(0, 3)
        shape = [draw.randint(0, 4) for _ in range(dims)]
        strides = [draw.choice((0, 1, 2, 5, 16, 40)) for _ in range(dims)]
        operand = memory.as_strided(shape, strides, draw.randint(0, 100))
        begin = draw.randint(0, 150)
        result = memory[begin : begin + draw.randint(0, 6)]
        expected = bool(elements(result) & elements(operand))
        assert overlap(result, operand) == expected, (begin, result.shape, shape, strides)
        found.add((expected, bool(sharing([span_of(result), span_of(operand)]))))
    assert found == {(True, True), (False, True), (False, False)}, "what overlaps is a part of signatures, always"
    assert sharing([(0, 4), (8, 12), (4, 8)]) == ()
    assert sharing([(0, 4), (8, 12), (3, 8), (8, 12)]) == ((0, 2, 3), (1, 3, 0))


def check_collectives_in_place(world: Any) -> None:
    n, me = 24, world.pe
    whole = triton_dist.empty(world.n_pes * n, dtype=torch.float32)
    part = whole.view(world.n_pes, n)[me]
    for algorithm in all_gather.ALGORITHMS:
        for number in range(3):
            whole.fill_(-1)
            part.copy_(torch.arange(n) + 100 * me + number)
            triton_dist.barrier_all()
            assert kernels.all_gather(whole, part, algorithm=algorithm) is whole
            expected = torch.arange(n) + 100 * torch.arange(world.n_pes)[:, None] + number
            assert torch.equal(whole.view(-1, n), expected.float()), algorithm
            triton_dist.barrier_all()
    for algorithm in reduce_scatter.ALGORITHMS:
        for number in range(3):
            whole.copy_(torch.arange(len(whole)) + number + me)
            triton_dist.barrier_all()
            others = [torch.arange(len(whole)) + number + pe for pe in range(world.n_pes)]
            expected = torch.stack(others).sum(0).view(-1, n)[me].float()
            kernels.reduce_scatter(part, whole, algorithm=algorithm)
            assert torch.equal(part, expected), algorithm
            triton_dist.barrier_all()
    for algorithm in all_reduce.ALGORITHMS:
        whole.fill_(me + 1)
        triton_dist.barrier_all()
        kernels.all_reduce(whole, out=whole.view(-1)[:], algorithm=algorithm)
        assert torch.equal(whole, torch.full_like(whole, sum(range(1, world.n_pes + 1)))), algorithm


def check_collectives_that_overlap(world: Any) -> None:
    n_pes, n = world.n_pes, 24
    memory = triton_dist.zeros(2 * n_pes * n, dtype=torch.float32)
    whole, other = memory[: n_pes * n], (world.pe + 1) % n_pes * n
    for shift in (other, world.pe * n + 1, n_pes * n - 1):
        with raises(ValueError, "all_gather: output and input overlap in memory", "own part of output"):
            kernels.all_gather(whole, memory[shift : shift + n])
        with raises(ValueError, "reduce_scatter: output and input overlap", "own chunk of input"):
            kernels.reduce_scatter(memory[shift : shift + n], whole)
    with raises(ValueError, "all_to_all: output and input overlap"):
        kernels.all_to_all(whole, whole)
    with raises(ValueError, "all_reduce: out and tensor overlap", "out is tensor itself"):
        kernels.all_reduce(whole, out=memory[1 : n_pes * n + 1])
    kernels.all_gather(whole, memory[n_pes * n :][:n])  # side by side


def check_gemms_that_overlap(world: Any) -> None:
    n_pes, m, k = world.n_pes, 4 * world.n_pes, 16
    memory = triton_dist.zeros(m * 32 * n_pes, dtype=torch.float32)
    b = torch.ones(k, 8)
    wide = memory[: m * 8 * n_pes].view(m, 8 * n_pes)
    with raises(ValueError, "gemm_all_scatter: out and a overlap in memory", "Pass another tensor as out"):
        kernels.gemm_all_scatter(wide.view(-1)[: m * k].view(m, k), b, wide)
    full = memory[: m * 8].view(m, 8)
    with raises(ValueError, "gemm_all_reduce: out and b overlap"):
        kernels.gemm_all_reduce(torch.ones(m, k), memory[m * 8 - 1 :][: k * 8].view(k, 8), full)
    with raises(ValueError, "gemm_all_reduce: out and bias overlap"):
        kernels.gemm_all_reduce(torch.ones(m, k), b, full, bias=full[1])
    with raises(ValueError, "gemm_all_reduce: out and residual overlap", "out is residual itself"):
        kernels.gemm_all_reduce(torch.ones(m, k), b, full, residual=memory[1:][: m * 8].view(m, 8))
    shard = memory[: m // n_pes * 8].view(-1, 8)
    with raises(ValueError, "gemm_reduce_scatter: out and a overlap"):
        kernels.gemm_reduce_scatter(memory[: m * k].view(m, k), b, shard)
    local = torch.zeros(m, 64)
    with raises(ValueError, "all_gather_gemm: out and a overlap"):
        kernels.all_gather_gemm(local.view(-1)[: m // n_pes * k].view(-1, k), torch.ones(k, 64), local)
    with raises(ValueError, "all_gather_gemm: out and a overlap"):  # a result in gaps of A, and one element in it
        columns = torch.zeros(4, 200)[:, :k]
        inside = torch.as_strided(columns, (4 * n_pes, 8), (8, 1), k - 1)
        kernels.all_gather_gemm(columns, torch.ones(k, 8), inside)
    inside = torch.as_strided(columns, (4 * n_pes, 8), (8, 1), k)
    assert 32 * n_pes <= 200 - k or n_pes > 5
    kernels.all_gather_gemm(columns, torch.ones(k, 8), inside)


def check_experts_that_overlap(world: Any) -> None:
    n, memory = world.n_pes, torch.zeros(4096)
    a, b = memory[:64].view(4, 16), torch.ones(n, 16, 16)
    offsets, counts = torch.zeros(n + 1, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)
    with raises(ValueError, "grouped_gemm: out and a overlap"):
        moe.grouped_gemm(a, b, offsets, counts, out=memory[60:][:64].view(4, 16))
    ids = torch.zeros(4, 1, dtype=torch.int64)
    routing = moe.gather_routing(ids, num_experts=n, max_tokens=4)
    with raises(ValueError, "all_gather_grouped_gemm: out and a overlap"):
        moe.all_gather_grouped_gemm(a, b, routing, out=memory[: routing.rows * 16].view(-1, 16))
    with raises(ValueError, "grouped_gemm_reduce_scatter: out and a overlap"):
        rows = memory[: routing.rows * 16].view(-1, 16)
        moe.grouped_gemm_reduce_scatter(rows, b, routing, out=memory[: 4 * 16].view(4, 16))
    triton_dist.barrier_all()


if __name__ == "__main__":
    run(globals())
