"""Triton's software pipeliner and waits: no load that consumed a token is issued before the wait of its iteration."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import triton.language as tl

import triton_dist.language as dl

Compile = Callable[..., Any]
SIGNATURE = {"a": "*fp16!", "b": "*fp16!", "c": "*fp32!", "flags": "*i64", "steps": "i32"}


def gemm(a, b, c, flags, steps, STAGES: tl.constexpr, CONSUME: tl.constexpr):
    """C = A·B, where block k of A arrives from another PE, with a signal."""
    i = tl.arange(0, 128)
    k = tl.arange(0, 64)
    acc = tl.zeros((128, 128), tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        a_block = a + i[:, None] * 4096 + (step * 64 + k)[None, :]
        token = dl.signal_wait_until(flags + step, dl.CMP_GE, 1)
        if CONSUME:
            a_block = dl.consume_token(a_block, token)
        acc = tl.dot(tl.load(a_block), tl.load(b + (step * 64 + k)[:, None] * 128 + i[None, :]), acc)
    tl.store(c + i[:, None] * 128 + i[None, :], acc)


class Ir:
    """Enough of MLIR's text to follow values: who defines one, and from what."""

    def __init__(self, text: str) -> None:
        self.definitions: dict[str, str] = {}
        self.lines = text.splitlines()
        for line in self.lines:
            if match := re.match(r"\s*((?:%[\w#:]+(?:, )?)+) = (.*)", line):
                for name in re.findall(r"%\w+", match.group(1)):
                    self.definitions[name] = match.group(2)

    def depends_on(self, value: str, op: str) -> bool:
        seen, todo = set(), [value]
        while todo:
            name = todo.pop()
            definition = self.definitions.get(name, "")
            if op in definition:
                return True
            if name not in seen:
                seen.add(name)
                todo += re.findall(r"%\w+", definition)
        return False

    def count(self, op: str) -> int:
        return sum(op in line for line in self.lines)

    def copy_sources(self) -> list[str]:
        """The addresses of the asynchronous copies into shared memory that the pipeliner made."""
        found = [re.search(r"ttg\.async_copy_global_to_local (%\w+)", line) for line in self.lines]
        return [match.group(1) for match in found if match]


@pytest.mark.parametrize("stages", [3, 4])
def test_each_pipelined_load_has_its_wait_before_it(compile_kernel: Compile, stages: int) -> None:
    compiled = compile_kernel(gemm, {**SIGNATURE, "STAGES": stages, "CONSUME": True})
    ir = Ir(compiled.asm["ttgir"])
    sources = ir.copy_sources()
    assert len(sources) == 2 * stages, "the pipeliner copies A and B once per stage in flight, and in the loop"
    waited = [source for source in sources if ir.depends_on(source, "shmem.token_zero")]
    assert len(waited) == stages, "every copy of A depends on a wait, none of B does"
    # The pipeliner cloned the wait along with the copies: prologue and loop.
    assert ir.count("shmem.signal_wait_until") == stages


def test_waits_of_the_prologue_are_predicated(compile_kernel: Compile) -> None:
    """A loop of fewer iterations than stages must not wait for signals that nobody sends."""
    ir = Ir(compile_kernel(gemm, {**SIGNATURE, "STAGES": 3, "CONSUME": True}).asm["ttgir"])
    conditions = [re.search(r"scf\.if (%\w+)", line) for line in ir.lines]
    assert sum(ir.depends_on(m.group(1), "arith.cmpi") for m in conditions if m) == ir.count("shmem.signal_wait_until")


def test_without_the_token_the_pipeliner_issues_loads_early(compile_kernel: Compile) -> None:
    """Why consume_token exists: this is the mistake that it prevents."""
    ir = Ir(compile_kernel(gemm, {**SIGNATURE, "STAGES": 3, "CONSUME": False}).asm["ttgir"])
    sources = ir.copy_sources()
    assert sources and not any(ir.depends_on(source, "shmem.token_zero") for source in sources)
    assert ir.count("shmem.signal_wait_until") == 1


def test_one_stage_is_not_pipelined(compile_kernel: Compile) -> None:
    compiled = compile_kernel(gemm, {**SIGNATURE, "STAGES": 1, "CONSUME": True})
    ir = Ir(compiled.asm["ttgir"])
    assert not ir.copy_sources()
    loads = [re.search(r"tt\.load (%\w+)", line) for line in ir.lines]
    assert sum(ir.depends_on(m.group(1), "shmem.token_zero") for m in loads if m) == 1
    assert len(re.findall(r"call\.uni .*lookAtClock", compiled.asm["ptx"])) == 1, "one wait"


def test_consume_token_costs_nothing_and_keeps_vector_loads(compile_kernel: Compile) -> None:
    def kernel(x, y, sig):
        i = tl.arange(0, 4096)
        token = dl.signal_wait_until(sig, dl.CMP_GE, 1)
        tl.store(y + i, tl.load(dl.consume_token(x + i, token)))

    ptx = compile_kernel(kernel, {"x": "*fp32!", "y": "*fp32!", "sig": "*i64"}).asm["ptx"]
    assert "ld.global.v4.b32" in ptx
    assert "ld.shared" not in ptx  # the token's value itself is never read


def test_other_ops_may_stand_in_a_pipelined_loop(compile_kernel: Compile) -> None:
    def kernel(a, b, c, flags, steps, pe, STAGES: tl.constexpr):
        i = tl.arange(0, 128)
        k = tl.arange(0, 64)
        acc = tl.zeros((128, 128), tl.float32)
        for step in tl.range(0, steps, num_stages=STAGES):
            left = tl.load(a + i[:, None] * 4096 + (step * 64 + k)[None, :])
            right = tl.load(b + (step * 64 + k)[:, None] * 128 + i[None, :])
            acc = tl.dot(left, right, acc)
            dl.putmem(a, b, 64, pe)
            dl.signal_op(flags + step, 1, dl.SIGNAL_ADD, pe)
            dl.fence()
        tl.store(dl.symm_at(c, pe) + i[:, None] * 128 + i[None, :], acc)

    ir = Ir(compile_kernel(kernel, {**SIGNATURE, "pe": "i32", "STAGES": 3}).asm["ttgir"])
    assert ir.copy_sources()
    assert [ir.count(op) for op in ("shmem.putmem", "shmem.signal_op", "shmem.fence")] == [1, 1, 1]
