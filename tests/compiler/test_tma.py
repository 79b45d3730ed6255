"""Tensor descriptors and ops: what TMA accesses is ordered as the program's other accesses are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import triton.language as tl
from triton.backends.compiler import GPUTarget

import triton_dist.language as dl
from triton_dist.compiler import transport

Compile = Callable[..., Any]

BARRIER, PROXY_FENCE = r"bar\.sync \t0;", r"fence\.proxy\.async\.global;"
RELEASE, ACQUIRE = r"fence\.release\.sys;", r"fence\.acquire\.sys;"
COMPLETE = r"cp\.async\.bulk\.wait_group 0;"
LOAD = r"cp\.async\.bulk\.tensor\.2d\.shared::cta\.global"
STORE, REDUCE = r"cp\.async\.bulk\.tensor\.2d\.global\.shared::cta", r"cp\.reduce\.async\.bulk\.tensor\.2d"
DESCRIPTOR = "tensordesc<fp32[16,16]>"

each_transport = pytest.mark.parametrize("name", ["p2p", "nvshmem"])


def assert_in_order(text: str, *patterns: str) -> None:
    assert re.search(".*?".join(patterns), text, flags=re.DOTALL), f"not in this order: {patterns}\n{text}"


@each_transport
def test_a_signal_comes_after_a_store(compile_kernel: Compile, name: str) -> None:
    def kernel(x, sig, pe):
        there = tl.make_tensor_descriptor(dl.symm_at(x, pe), [32, 32], [32, 1], [16, 16])
        there.store([0, 0], tl.full((16, 16), 3.0, tl.float32))
        dl.signal_op(sig, 1, dl.SIGNAL_SET, pe)

    with transport.using(name):
        ptx = compile_kernel(kernel, {"x": "*fp32!", "sig": "*i64!", "pe": "i32"}).asm["ptx"]
    assert_in_order(ptx, STORE, COMPLETE, BARRIER, RELEASE, r"\.sys\..*?\[|call")


def test_a_release_comes_after_a_reduction(compile_kernel: Compile) -> None:
    def kernel(x, flag, pe):
        x.atomic_add([0, 0], tl.full((16, 16), 3.0, tl.float32))
        dl.atomic_add(flag, 1, pe, sem="release")

    with transport.using("p2p"):
        ptx = compile_kernel(kernel, {"x": DESCRIPTOR, "flag": "*i32", "pe": "i32"}).asm["ptx"]
    assert_in_order(ptx, REDUCE, COMPLETE, BARRIER, RELEASE, r"(red|atom)\.")


def test_a_put_sends_what_was_stored(compile_kernel: Compile) -> None:
    def kernel(x, memory, pe):
        x.store([0, 0], tl.full((16, 16), 3.0, tl.float32))
        dl.putmem(memory, memory, 1024, pe)

    with transport.using("p2p"):
        ptx = compile_kernel(kernel, {"x": DESCRIPTOR, "memory": "*fp32!", "pe": "i32"}).asm["ptx"]
    assert_in_order(ptx, STORE, COMPLETE, BARRIER, r"ld\.global\.v4", r"st\.global\.v4", PROXY_FENCE)


@each_transport
def test_a_load_comes_after_a_wait(compile_kernel: Compile, name: str) -> None:
    def kernel(x, out, sig, row):
        token = dl.signal_wait_until(sig, dl.CMP_GE, 1)
        found = x.load([dl.consume_token(row, token), 0])
        tl.store(out + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :], found)

    with transport.using(name):
        ptx = compile_kernel(kernel, {"x": DESCRIPTOR, "out": "*fp32", "sig": "*i64", "row": "i32"}).asm["ptx"]
    assert_in_order(ptx, r"ld\.(relaxed|volatile)", ACQUIRE, BARRIER, PROXY_FENCE, LOAD)
    assert not re.search(COMPLETE, ptx), "a wait would hold up the stores of the tile before"


def test_a_load_comes_after_a_get(compile_kernel: Compile) -> None:
    def kernel(x, out, memory, pe):
        dl.getmem(memory, memory, 1024, pe)
        tl.store(out + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :], x.load([0, 0]))

    with transport.using("p2p"):
        ptx = compile_kernel(kernel, {"x": DESCRIPTOR, "out": "*fp32", "memory": "*fp32!", "pe": "i32"}).asm["ptx"]
    assert_in_order(ptx, r"st\.global\.v4", BARRIER, PROXY_FENCE, LOAD)


def pipelined(a, b, flags, free, steps, STAGES: tl.constexpr):
    acc = tl.zeros((128, 128), tl.float32)
    for k in tl.range(0, steps, num_stages=STAGES):
        token = dl.signal_wait_until(flags + k, dl.CMP_GE, 1)
        tile = a.load([0, dl.consume_token(k * 64, token)])
        dl.signal_op(free + k, 1, dl.SIGNAL_SET, 1)
        acc = tl.dot(tile, b.load([0, k * 64]).T, acc)
    tl.store(free + tl.arange(0, 128)[:, None] * 128 + tl.arange(0, 128)[None, :], acc.to(tl.int64))


@pytest.mark.parametrize("stages", [1, 3, 4])
def test_pipelined_loads_come_after_their_wait_and_before_their_release(compile_kernel: Compile, stages: int) -> None:
    tile = "tensordesc<fp16[128,64]>"
    signature = {"a": tile, "b": tile, "flags": "*i64", "free": "*i64", "steps": "i32", "STAGES": stages}
    with transport.using("p2p"):
        compiled = compile_kernel(pipelined, signature)
    # Of the two loads of an iteration one has a coordinate that depends on a wait: its own, by data.
    waited: set[str] = set()
    loads = 0
    for line in compiled.asm["ttgir"].splitlines():
        values = set(re.findall(r"%\w+", line))
        if "shmem.token_zero" in line or ("arith.addi" in line and values & waited):
            waited.add(re.findall(r"%\w+", line)[0])
        if "ttng.async_tma_copy_global_to_local" in line:
            loads += bool(values & waited)
    assert loads == stages
    # And the release waits, in the same basic block before it, for what was loaded.
    before, *rest = re.split(COMPLETE, compiled.asm["ptx"])
    assert len(rest) == 1
    assert "mbarrier.try_wait" in before.rpartition("$L__BB")[2], "the op begins before the load is complete"


def test_kernels_without_tma_have_none_of_it(compile_kernel: Compile) -> None:
    def kernel(x, y, sig, pe):
        i = tl.arange(0, 128)
        token = dl.signal_wait_until(sig, dl.CMP_GE, 1)
        tl.store(y + i, tl.load(dl.consume_token(x, token) + i))
        dl.putmem_signal(y, y, 512, sig, 1, dl.SIGNAL_SET, pe)
        dl.quiet()

    with transport.using("p2p"):
        ptx = compile_kernel(kernel, {"x": "*fp32", "y": "*fp32", "sig": "*i64", "pe": "i32"}).asm["ptx"]
    assert "bulk" not in ptx
    assert "proxy" not in ptx


def test_partitions_are_no_obstacle(compile_kernel: Compile) -> None:
    """A persistent GEMM for Blackwell, warp-specialised, whose last tile is told of."""

    def kernel(a, b, c, flag, K, tiles):
        for t in tl.range(0, tiles, warp_specialize=True):
            acc = tl.zeros((128, 64), tl.float32)
            for k in tl.range(0, K, 64):
                acc = tl.dot(a.load([t * 128, k]), b.load([0, k]).T, acc)
            c.store([t * 128, 0], acc)
        dl.signal_op(flag, 1, dl.SIGNAL_ADD, 0)

    types = {"a": "tensordesc<fp16[128,64]>", "b": "tensordesc<fp16[64,64]>", "c": "tensordesc<fp32[128,64]>"}
    types |= {"flag": "*i64", "K": "i32", "tiles": "i32"}
    with transport.using("p2p"):
        compiled = compile_kernel(kernel, types, target=GPUTarget("cuda", 100, 32), num_stages=2)
    assert "ttg.warp_specialize(" in compiled.asm["ttgir"]
    assert_in_order(compiled.asm["ptx"], COMPLETE, r"\b0, 128;", RELEASE)
