"""What Python's control flow computes in kernels, and libdevice: the same numbers in both worlds.

What the compiler refuses is in ``tests/compiler/test_constructs.py``.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

import triton_dist
from ops.harness import check, expect_equal
from triton_dist import World


@triton.jit
def greater(a, b):
    return (a > 0) and (b > 0)


@triton.jit(do_not_specialize=["m", "n"])
def conditions(out, ones, m, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 1, mask=(i >= m) and (i < n))
    tl.store(out + BLOCK + i, 1, mask=(i < m) or (i >= n) or False)
    tl.store(out + 2 * BLOCK + i, 1, mask=not (i < n) and True)
    tl.store(out + 3 * BLOCK + i, 1, mask=greater(i - m, n - i))
    tl.store(out + 4 * BLOCK + i, min(i, m) * 100 + max(i, n))
    found = (m > 100) and (tl.load(ones) == 1)
    tl.store(out + 5 * BLOCK, 7 if found else 9)
    tl.store(out + 5 * BLOCK + 1, (1 if m > n else 2) * 3)
    tl.store(out + 5 * BLOCK + 2, 5 if (m < n) and not (m > n) else 6)


@triton.jit(do_not_specialize=["n"])
def numbers(out, n):
    a, b = 7, 2
    tl.store(out, (b - a) // 2)  # of variables, which are tensors: towards zero
    for i in range(n):
        tl.store(out + 1 + i, (i - 4) // 3 * 100 + (i - 4) % 3)
    for i in tl.static_range(4):
        tl.store(out + 11 + i, (i - 4) // 3)  # of constants: Python's
    k = 0
    while k < n and k * k < 20:
        k += 1
    tl.store(out + 20, k)
    for i in range(n, 0, -3):
        tl.store(out + 20 + i, i)


@triton.jit
def functions(out, x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, libdevice.fast_expf(v))
    tl.store(out + BLOCK + i, libdevice.tanh(v))
    tl.store(out + 2 * BLOCK + i, libdevice.pow(v, 3))
    tl.store(out + 3 * BLOCK + i, libdevice.round(v))
    tl.store(out + 4 * BLOCK + i, libdevice.div_rd(v, 3.0))
    tl.store(out + 5 * BLOCK + i, libdevice.isnan(v / (v - v)).to(tl.float32))
    tl.store(out + 6 * BLOCK + i, libdevice.popc(i).to(tl.float32))
    tl.store(out + 7 * BLOCK + i, libdevice.float2int_rn(v).to(tl.float32))
    tl.store(out + 8 * BLOCK + i, libdevice.erfinv(v / 100))
    tl.store(out + 9 * BLOCK + i, libdevice.j0(v))
    tl.store(out + 10 * BLOCK + i, libdevice.fma_rz(v, v, 0.1))


@check
def conditions_of_blocks_and_numbers(world: World) -> None:
    block, m, n = 16, 4, 12
    out = torch.zeros(6 * block, dtype=torch.int32, device=world.device)
    conditions[(1,)](out, torch.ones(1, dtype=torch.int32, device=world.device), m, n, BLOCK=block)
    rows = [
        [int(m <= i < n) for i in range(block)],
        [int(i < m or i >= n) for i in range(block)],
        [int(i >= n) for i in range(block)],
        [int(i > m and n > i) for i in range(block)],
        [min(i, m) * 100 + max(i, n) for i in range(block)],
        [9, 6, 5] + [0] * (block - 3),
    ]
    expect_equal(out, torch.tensor(rows, dtype=torch.int32).flatten(), "conditions")


@check
def integers_of_variables_and_constants(world: World) -> None:
    n = 8
    out = torch.zeros(32, dtype=torch.int32, device=world.device)
    numbers[(1,)](out, n)
    expected = [0] * 32
    expected[0] = -2
    for i in range(n):
        expected[1 + i] = int((i - 4) / 3) * 100 + int(math.fmod(i - 4, 3))
    for i in range(4):
        expected[11 + i] = (i - 4) // 3
    expected[20] = 5
    for i in range(n, 0, -3):
        expected[20 + i] = i
    expect_equal(out, torch.tensor(expected, dtype=torch.int32), "numbers")


@check
def libdevice_functions(world: World) -> None:
    block = 16
    x = torch.linspace(-3.7, 4, block)  # no zero, which would be 0 / 0 once more
    out = torch.zeros(11, block, device=world.device)
    functions[(1,)](out, x.to(world.device), BLOCK=block)
    found, exact = out.double().cpu(), x.double()
    third, square = exact / 3, exact * exact + 0.1
    expected = [
        exact.exp(), exact.tanh(), exact**3, torch.trunc(exact + torch.copysign(torch.tensor(0.5), exact)), third,
        torch.zeros(block), torch.tensor([i.bit_count() for i in range(block)]), exact.round(),
        torch.erfinv(exact / 100), torch.special.bessel_j0(exact), square,
    ]  # fmt: skip
    for row, (got, want) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(got, want.double(), rtol=2e-6, atol=1e-6, msg=lambda text, row=row: f"{row}: {text}")
    assert (found[4] <= third).all(), "rounded down"
    assert (found[10] <= square).all(), "rounded towards zero"
    triton_dist.barrier_all()
