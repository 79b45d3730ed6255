"""What reaches the GPU: election, barriers and fences where design.md wants them, and nothing where no op is used."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import triton
import triton.language as tl
from spelling import ATOM_SYS

import triton_dist.language as dl

Compile = Callable[..., Any]

ELECTION = r"mov\.u32 \t(%r\d+), %tid\.x;.*?bar\.sync \t0;.*?setp\.ne\.b32 \t(%p\d+), \1, 0;.*?@\2 bra "
BARRIER = r"bar\.sync \t0;"
RELEASE, ACQUIRE = r"fence\.release\.sys;", r"fence\.acquire\.sys;"


def body(compiled: Any) -> str:
    """The kernel's own PTX, without the functions that it calls."""
    entry = re.search(r"\.visible \.entry .*?\n\}\n", compiled.asm["ptx"], flags=re.DOTALL)
    assert entry
    return entry.group()


def assert_in_order(text: str, *patterns: str) -> None:
    assert re.search(".*?".join(patterns), text, flags=re.DOTALL), f"not in this order: {patterns}\n{text}"


def test_signal_op_is_elected_and_published(compile_kernel: Compile) -> None:
    def kernel(x, sig, pe):
        tl.store(x + tl.arange(0, 128), 1.0)
        dl.signal_op(sig, 1, dl.SIGNAL_ADD, pe)

    ptx = body(compile_kernel(kernel, {"x": "*fp32", "sig": "*i64", "pe": "i32"}))
    assert_in_order(
        ptx, r"st\.global", BARRIER, r"@%p\d+ bra", RELEASE, ATOM_SYS + r"add\.u64 \t%rd\d+, \[%rd\d+\], 1;"
    )
    assert_in_order(ptx, ELECTION, RELEASE, ATOM_SYS + "add", BARRIER)
    assert len(re.findall(ATOM_SYS, ptx)) == 1
    assert "acq_rel" not in ptx, "acquiring drops what the SM has cached"


def test_wait_acquires_for_every_thread(compile_kernel: Compile) -> None:
    def kernel(x, y, sig):
        i = tl.arange(0, 128)
        seen = dl.signal_wait_until(sig, dl.CMP_GE, 7)
        tl.store(y + i, tl.load(x + i) + seen)

    compiled = compile_kernel(kernel, {"x": "*i64", "y": "*i64", "sig": "*i64"})
    # One thread polls, fences, and hands on what it saw; the others read both behind the barrier.
    assert_in_order(body(compiled), ELECTION, r"ld\.relaxed\.sys\.global\.b64", ACQUIRE, r"st\.shared\.b64")
    assert_in_order(body(compiled), r"st\.shared\.b64", BARRIER, r"ld\.shared\.b64")
    assert_in_order(body(compiled), r"st\.shared\.b64", BARRIER, r"ld\.global")
    assert compiled.metadata.shared == 16
    assert "release" not in body(compiled), "it would wait for all stores of the program"
    # What happens in a wait that lasts too long stands in a function of its own.
    assert len(re.findall(r"call\.uni .*lookAtClock", body(compiled))) == 1
    assert "globaltimer" not in body(compiled) and compiled.asm["ptx"].count("%globaltimer;") == 1


def test_result_slot_lies_behind_the_kernels_own_shared_memory(compile_kernel: Compile) -> None:
    def kernel(a, c, sig):
        i = tl.arange(0, 64)
        seen = dl.signal_wait_until(sig, dl.CMP_EQ, 7)
        tile = tl.load(a + i[:, None] * 64 + i[None, :])
        tl.store(c + i[:, None] * 64 + i[None, :], tl.dot(tile, tile) + seen)

    def without(a, c, sig):
        i = tl.arange(0, 64)
        tile = tl.load(a + i[:, None] * 64 + i[None, :])
        tl.store(c + i[:, None] * 64 + i[None, :], tl.dot(tile, tile))

    signature = {"a": "*fp16!", "c": "*fp32!", "sig": "*i64"}
    own = compile_kernel(without, signature).metadata.shared
    compiled = compile_kernel(kernel, signature)
    assert own > 0
    assert compiled.metadata.shared == -(-own // 16) * 16 + 16
    assert f"st.shared.b64 \t[global_smem+{-(-own // 16) * 16}]" in body(compiled)


def test_put_runs_on_all_threads_behind_the_programs_stores(compile_kernel: Compile) -> None:
    def kernel(dst, src, n, pe):
        tl.store(src + tl.arange(0, 128), 1.0)
        dl.putmem(dst, src, n, pe)

    ptx = body(compile_kernel(kernel, {"dst": "*fp32", "src": "*fp32", "n": "i64", "pe": "i32"}))
    assert_in_order(ptx, r"st\.global", BARRIER, r"ld\.const\.b64 \t%rd\d+, \[nvshmemi_device_state_d")


def test_block_collective_publishes_and_acquires_on_all_threads(compile_kernel: Compile) -> None:
    def kernel(x, y):
        i = tl.arange(0, 128)
        tl.store(x + i, 1.0)
        dl.barrier_all()
        tl.store(y + i, tl.load(x + i))

    ptx = body(compile_kernel(kernel, {"x": "*fp32", "y": "*fp32"}))
    assert_in_order(ptx, r"st\.global", BARRIER, RELEASE, r"nvshmemi_", ACQUIRE, BARRIER, r"ld\.global")


@pytest.mark.parametrize(("dtype", "vector"), [("fp32", "v4.b32"), ("fp16", "v4.b32"), ("i8", "v4.b32")])
def test_symm_at_keeps_16_byte_stores(compile_kernel: Compile, dtype: str, vector: str) -> None:
    def kernel(x, y, pe):
        i = tl.arange(0, 4096)
        tl.store(dl.symm_at(y, pe) + i, tl.load(x + i))

    ptx = body(compile_kernel(kernel, {"x": f"*{dtype}!", "y": f"*{dtype}!", "pe": "i32"}))
    assert f"st.global.{vector}" in ptx
    assert not re.search(r"st\.global\.(b32|b16|b8)", ptx)


def test_symm_at_does_not_invent_alignment(compile_kernel: Compile) -> None:
    """A pointer that is not aligned here is not aligned there: a 16-byte store would fault."""

    def kernel(x, y, pe):
        i = tl.arange(0, 4096)
        tl.store(dl.symm_at(y + 1, pe) + i, tl.load(x + i))

    ptx = body(compile_kernel(kernel, {"x": "*fp32!", "y": "*fp32!", "pe": "i32"}))
    assert "st.global.v" not in ptx
    assert "st.global.b32" in ptx


def test_sizes_are_64_bit_from_the_first_multiplication(compile_kernel: Compile) -> None:
    def kernel(dst, src, n, pe):
        dl.put(dst, src, n, pe)

    compiled = compile_kernel(kernel, {"dst": "*fp32", "src": "*fp32", "n": "i32", "pe": "i32"})
    extension = compiled.asm["ttir"].index("arith.extsi %n")
    assert extension < compiled.asm["ttir"].index("arith.muli")


def test_kernels_without_ops_compile_byte_for_byte_as_before(
    compile_kernel: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def kernel(x, y, n):
        i = tl.program_id(0) * 128 + tl.arange(0, 128)
        tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

    signature = {"x": "*fp32", "y": "*fp32", "n": "i32"}
    ours = compile_kernel(kernel, signature)
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "plain"))
    plain = compile_kernel(kernel, signature)
    assert ours.asm.keys() == plain.asm.keys()
    for stage in ours.asm:
        assert ours.asm[stage] == plain.asm[stage], stage


def test_only_the_part_of_the_library_that_is_called_is_linked(compile_kernel: Compile) -> None:
    def kernel(sig):
        dl.signal_wait_until(sig, dl.CMP_NE, dl.my_pe())

    ptx = compile_kernel(kernel, {"sig": "*i64"}).asm["ptx"]
    assert ".const .align 8 .b8 triton_dist_wait_state" in ptx
    assert "triton_dist_p2p_state" not in ptx
    assert ".const .align 8 .b8 nvshmemi_device_state_d" in ptx  # what the world fills
    (function,) = set(re.findall(r"^\.func .*?(\w+)\(?$", ptx, flags=re.MULTILINE))
    assert "lookAtClock" in function
