"""Kernels and a language that were decorated before anybody asked for the interpreter. For one PE.

Here Triton comes first, and everything is a JITFunction.
"""

# ruff: noqa: E402
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def combine(a, b):
    return a * 2 + b


@triton.jit
def early(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    row = tl.load(x + at)
    tl.store(out + 0, tl.sum(row, axis=0))
    tl.store(out + 1, row.max(axis=0))
    tl.store(out + 2, tl.min(row))
    tl.store(out + 3, row.argmax(axis=0))
    tl.store(out + 4, tl.reduce(row, 0, combine))
    tl.store(out + 5, combine(tl.cdiv(N, 3), 1))
    tl.store(out + 8 + at, tl.softmax(row))
    tl.store(out + 8 + N + at, tl.cumsum(row, axis=0))
    tl.store(out + 8 + 2 * N + at, tl.sigmoid(row))
    tl.store(out + 8 + 3 * N + at, tl.flip(tl.sort(row), 0))


@triton.autotune([triton.Config({"B": 4}), triton.Config({"B": 8})], key=[])
@triton.jit
def early_tuned(x, B: tl.constexpr):
    tl.store(x, B)


from triton.runtime.jit import JITFunction

assert isinstance(early, JITFunction) and isinstance(tl.sum, JITFunction)

from harness import main

import triton_dist
import triton_dist.language as dl


@triton.jit
def late(x, out, signal):
    if dl.my_pe() == 0:
        dl.signal_op(signal, 3, dl.SIGNAL_SET, 0)
        dl.signal_wait_until(signal, dl.CMP_EQ, 3)
        tl.store(out, combine(tl.load(x), tl.zeros_like(tl.load(x))))


def check_standard_library(world: Any) -> None:
    n = 16
    x, out = torch.randn(n), torch.zeros(8 + 4 * n)
    early[(1,)](x, out, n)
    reduced = 0.0
    for i, value in enumerate(x.tolist()):
        reduced = value if i == 0 else reduced * 2 + value
    torch.testing.assert_close(
        out[:6], torch.tensor([x.sum(), x.max(), x.min(), float(x.argmax()), reduced, 13.0]), rtol=1e-4, atol=1e-4
    )
    expected = [x.softmax(0), x.cumsum(0), x.sigmoid(), x.sort(descending=True).values]
    torch.testing.assert_close(out[8:].view(4, n), torch.stack(expected))


def check_autotune(world: Any) -> None:
    x = torch.zeros(1)
    early_tuned[(1,)](x)
    assert x.item() == 4


def check_mixed_with_late_kernels(world: Any) -> None:
    x, out = torch.full((1,), 4.0), torch.zeros(1)
    late[(1,)](x, out, triton_dist.zeros(1, dtype=torch.int64))
    assert out.item() == 8


if __name__ == "__main__":
    main(globals())
