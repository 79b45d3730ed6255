"""Arithmetic where Triton's interpreter differs from hardware, against torch. For one PE."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from harness import main

from triton_dist.cpu import bfloat16


@triton.jit
def dot(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    left, right = tl.load(a + m * K + k[None, :]), tl.load(b + k[:, None] * N + n)
    total = tl.zeros((M, N), dtype=tl.float32) + 1
    tl.store(c + m * N + n, tl.dot(left, right, total).to(c.dtype.element_ty))


def check_dot(world: Any) -> None:
    m, n, k = 32, 16, 64
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
        for out in (torch.float32, dtype):
            c = torch.zeros(m, n, dtype=out)
            dot[(1,)](a, b, c, m, n, k)
            expected = (a.double() @ b.double() + 1).to(out)
            # float32 accumulation: a sum in float16 would be off by 100 times as much
            torch.testing.assert_close(c, expected, rtol=1e-5 if out == torch.float32 else 1e-2, atol=1e-4)


@triton.jit
def dot_in_half(a, b, c, M: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, M)[None, :]
    product = tl.dot(tl.load(a + m * M + n), tl.load(b + m * M + n), out_dtype=tl.float16)
    tl.store(c + m * M + n, product)


def check_dot_with_half_result(world: Any) -> None:
    a, b = torch.randn(16, 16).half(), torch.randn(16, 16).half()
    c = torch.zeros(16, 16).half()
    dot_in_half[(1,)](a, b, c, 16)
    torch.testing.assert_close(c, (a.float() @ b.float()).half())


@triton.jit
def cast(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at).to(y.dtype.element_ty))


def check_casts(world: Any) -> None:
    """Every float32 that is next to a tie, the ends of the range, and what is not a number."""
    bits = np.arange(1 << 16, dtype=np.uint32) << 16
    ties = np.concatenate([bits + delta for delta in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).astype(np.uint32)
    values = torch.from_numpy(ties.view(np.float32))
    ours = torch.from_numpy(bfloat16.encode(values.numpy()).view(np.int16)).view(torch.bfloat16)
    nan = values.isnan()
    assert ours.isnan()[nan].all()
    assert torch.equal(ours.view(torch.int16)[~nan], values.bfloat16().view(torch.int16)[~nan])

    everything = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    everything = everything[everything.abs() < 100]
    everything = torch.cat([everything, everything.new_zeros(-len(everything) % 4096)]).view(-1, 4096)
    types = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int8)
    for chunk in everything[:: len(everything) // 3]:
        for dtype in types:
            y = torch.zeros(4096, dtype=dtype)
            cast[(1,)](chunk, y, 4096)
            assert torch.equal(y, chunk.to(dtype)), dtype
    for dtype in types:
        x = torch.arange(-64, 64).to(dtype)
        y = torch.zeros(128, dtype=torch.bfloat16)
        cast[(1,)](x, y, 128)
        assert torch.equal(y, x.bfloat16()), dtype


@triton.jit
def arithmetic(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + 0 * N + at, a + b)
    tl.store(out + 1 * N + at, a - b)
    tl.store(out + 2 * N + at, a * b)
    tl.store(out + 3 * N + at, a / b)
    tl.store(out + 4 * N + at, tl.abs(a))
    tl.store(out + 5 * N + at, -a)
    tl.store(out + 6 * N + at, tl.where(a < b, a, b))
    tl.store(out + 7 * N + at, tl.maximum(a, b))
    tl.store(out + 8 * N + at, a + tl.sum(b, axis=0))
    tl.store(out + 10 * N + at, tl.where(a > 0.125, a * 2.0 + 1.5, tl.zeros((N,), tl.bfloat16)))
    tl.store(out + 9 * N + at, tl.exp(a.to(tl.float32)).to(tl.bfloat16))


def check_bfloat16_arithmetic(world: Any) -> None:
    n = 64
    a, b = torch.randn(n).bfloat16(), torch.randn(n).bfloat16()
    out = torch.zeros(11, n, dtype=torch.bfloat16)
    arithmetic[(1,)](a, b, out, n)
    expected = [a + b, a - b, a * b, a / b, a.abs(), -a, torch.minimum(a, b), torch.maximum(a, b)]
    for i, row in enumerate(expected):
        assert torch.equal(out[i], row), i
    assert torch.equal(out[10], torch.where(a > 0.125, a * 2 + 1.5, 0.0))
    torch.testing.assert_close(out[8], a + b.sum(), rtol=0.02, atol=0.05)
    torch.testing.assert_close(out[9], a.float().exp().bfloat16())


@triton.jit
def through_float8(x, y, z, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))
    tl.store(z + i, tl.load(y + i).to(z.dtype.element_ty))


def check_float8_is_rounded_as_by_a_gpu(world: Any) -> None:
    """To nearest even; too large ones to the largest; and every value of eight bits is what it is."""
    for small in (torch.float8_e4m3fn, torch.float8_e5m2):
        limit = torch.finfo(small).max
        for wide in (torch.float32, torch.bfloat16, torch.float16):
            every = torch.arange(256, dtype=torch.uint8).view(small).to(wide)
            ties = (every[1:] + every[:-1]) / 2
            x = torch.cat([every, ties, torch.randn(511) * torch.logspace(-8, 4, 511), torch.tensor([5e4, -6e4])])
            x = x.to(wide)
            y, z = torch.empty(1024, dtype=small), torch.empty(1024, dtype=wide)
            through_float8[(1,)](x, y, z, 1024)
            expected = x.float().clamp(-limit, limit).to(small)
            torch.testing.assert_close(y.float(), expected.float(), rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(z, expected.to(wide), rtol=0, atol=0, equal_nan=True)


@triton.jit
def masked_by_a_number(out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, i + 1, mask=(n < 3) & (i < n))
    tl.store(out + N + i, tl.load(out + i, mask=(n == 2) & (i == 1), other=7))


def check_a_comparison_of_numbers_is_part_of_a_mask(world: Any) -> None:
    out = torch.zeros(32, dtype=torch.int32)
    masked_by_a_number[(1,)](out, 2, 16)
    assert out.tolist() == [1, 2] + [0] * 14 + [7, 2] + [7] * 14


@triton.jit
def clamp(x, ordinary, propagating):
    at = tl.arange(0, 4)
    tl.store(ordinary + at, tl.clamp(tl.load(x + at), 0.25, 1.0))
    tl.store(propagating + at, tl.clamp(tl.load(x + at), 0.25, 1.0, propagate_nan=tl.PropagateNan.ALL))


def check_clamps_of_nans(world: Any) -> None:
    """``max.f32`` and ``min.f32`` of a NaN and a number are the number."""
    for dtype in (torch.float32, torch.bfloat16):
        x, ordinary, propagating = (torch.zeros(4, dtype=dtype) for _ in range(3))
        x.copy_(torch.tensor([float("nan"), 0.0, 0.5, 2.0]))
        clamp[(1,)](x, ordinary, propagating)
        assert ordinary.tolist() == [0.25, 0.25, 0.5, 1.0], ordinary
        assert propagating[0].isnan() and propagating[1:].tolist() == [0.25, 0.5, 1.0], propagating


@triton.jit
def exchange_and_add(x, before, sums, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(before + at, tl.atomic_xchg(x + at, 2.5, mask=at < N - 1), mask=at < N - 1)
    for _ in range(3):
        tl.atomic_add(sums + at // 2, (at + 1).to(sums.dtype.element_ty), mask=at != 0)


def check_atomics_of_floats(world: Any) -> None:
    for dtype in (torch.float32, torch.float64):
        x, before = torch.arange(4, dtype=dtype), torch.zeros(4, dtype=dtype)
        sums = torch.ones(2, dtype=torch.bfloat16)
        exchange_and_add[(1,)](x, before, sums, 4)
        assert x.tolist() == [2.5, 2.5, 2.5, 3.0] and before.tolist() == [0.0, 1.0, 2.0, 0.0]
        assert sums.tolist() == [1 + 3 * 2, 1 + 3 * 7]


@triton.jit
def reduce_by_descriptor(x, KIND: tl.constexpr, N: tl.constexpr):
    into = tl.make_tensor_descriptor(x, [3, N], [N, 1], [2, N])  # its last block has one row of two
    for row in tl.static_range(0, 4, 2):
        value = tl.full([2, N], 3, into.dtype)
        if KIND == "add":
            into.atomic_add([row, 0], value)
        elif KIND == "min":
            into.atomic_min([row, 0], value)
        elif KIND == "max":
            into.atomic_max([row, 0], value)
        else:
            into.atomic_xor([row, 0], value)


def check_reductions_of_descriptors(world: Any) -> None:
    changes = {
        "add": lambda x: x + 3,
        "min": lambda x: x.clamp(max=3),
        "max": lambda x: x.clamp(min=3),
        "xor": lambda x: x ^ 3,
    }
    for kind, change in changes.items():
        memory = torch.arange(32, dtype=torch.int32) - 5
        expected = torch.cat([change(memory[:24]), memory[24:]])
        reduce_by_descriptor[(1,)](memory, kind, 8)
        assert torch.equal(memory, expected), kind
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        memory = torch.arange(32).to(dtype)
        reduce_by_descriptor[(1,)](memory, "add", 8)
        assert torch.equal(memory, torch.arange(32).to(dtype) + torch.tensor([3] * 24 + [0] * 8).to(dtype)), dtype


@triton.jit
def print_bits(x):
    tl.device_print("bits", tl.load(x + tl.arange(0, 2)), hex=True)


def check_bits_are_printed(world: Any) -> None:
    for values, text in ((torch.tensor([1.0, -2.0]), "0x3f800000 0xc0000000"), (torch.tensor([1, -1]), "0x01 0xff")):
        with redirect_stdout(StringIO()) as printed:
            print_bits[(1,)](values if values.is_floating_point() else values.to(torch.int8))
        assert text in printed.getvalue(), printed.getvalue()


if __name__ == "__main__":
    main(globals())
