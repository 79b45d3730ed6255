"""Kernels that Triton warp-specialises (for Blackwell): no op in such a loop, and none that waits for its warps."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import triton.language as tl
from triton.backends.compiler import GPUTarget

import triton_dist.language as dl
from triton_dist.compiler import transport
from triton_dist.compiler.hooks import ShmemCompilationError

BLACKWELL = GPUTarget("cuda", 100, 32)
INSIDE, AFTER, BLOCK_AFTER, NO_OP = range(4)


def multiply(a, b, c, flag, K, WHERE: tl.constexpr):
    acc = tl.zeros((128, 64), tl.float32)
    for k in tl.range(0, K, 64, warp_specialize=True):
        if WHERE == 0:
            dl.signal_wait_until(flag, dl.CMP_GE, 1)  # inside
        acc = tl.dot(a.load([0, k]), b.load([0, k]).T, acc)
    c.store([0, 0], acc)
    if WHERE == 1:
        dl.signal_op(flag, dl.signal_fetch(flag), dl.SIGNAL_ADD, 0)
        dl.putmem(flag, flag, 8, 1, scope="warp")
    if WHERE == 2:
        dl.putmem(flag, flag, 8, 1)  # by a block


@pytest.fixture
def compile_multiply(compile_kernel: Callable[..., Any]) -> Callable[[int], Any]:
    types = {"a": "tensordesc<fp16[128,64]>", "b": "tensordesc<fp16[64,64]>", "c": "tensordesc<fp32[128,64]>"}
    types |= {"flag": "*i64", "K": "i32"}
    return lambda where: compile_kernel(multiply, types | {"WHERE": where}, target=BLACKWELL, num_stages=2)


def place(text: str) -> str:
    lines, first = inspect.getsourcelines(multiply)
    return re.escape(f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}:")


def test_an_op_inside_is_refused_with_its_line(compile_multiply: Callable[[int], Any]) -> None:
    message = rf"^{place('# inside')}\d+: shmem\.signal_wait_until stands in a warp-specialised region"
    with pytest.raises(ShmemCompilationError, match=message):
        compile_multiply(INSIDE)


def test_an_op_by_a_block_of_nvshmem_s_is_refused_with_its_line(compile_multiply: Callable[[int], Any]) -> None:
    message = rf"^{place('# by a block')}\d+: shmem\.putmem in a warp-specialised kernel: nvshmem's routine would wait"
    with pytest.raises(ShmemCompilationError, match=message):
        compile_multiply(BLOCK_AFTER)


@pytest.mark.parametrize("name", ["nvshmem", "p2p"])
def test_ops_outside_do_not_wait_for_the_warps_inside(compile_multiply: Callable[[int], Any], name: str) -> None:
    with transport.using(name):
        compiled = compile_multiply(AFTER)
    assert "ttg.warp_specialize(" in compiled.asm["ttgir"], "Triton did not specialise: this tests nothing"
    assert compiled.metadata.num_warps > 4
    barriers = _barriers(compiled)
    assert len(barriers) > 6
    # Triton 3.9 has barriers of all warps in front of the split, in kernels without ops, too.
    tritons = _of_all_warps(_barriers(compile_multiply(NO_OP)))
    assert _of_all_warps(barriers) == tritons, barriers


def _barriers(compiled: Any) -> list[str]:
    return re.findall(r"bar(?:rier)?\.(?:cta\.)?sync(?:\.aligned)?\s+0\b.*;", compiled.asm["ptx"])


def _of_all_warps(barriers: list[str]) -> list[str]:
    return [barrier for barrier in barriers if not re.search(r"\b0,\s+128;", barrier)]
