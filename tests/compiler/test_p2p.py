"""Kernels for worlds where PEs reach each other by load and store: all ops compile to machine code without any library
but ours, for NVIDIA's and AMD's GPUs."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import triton.language as tl
from op_examples import EXAMPLES, SIGNATURE
from spelling import ATOM_SYS
from triton._C.libtriton import llvm
from triton.backends.compiler import GPUTarget
from triton.language.extra import libdevice

import triton_dist.language as dl
from triton_dist._C.op_table import OPS
from triton_dist.compiler import transport
from triton_dist.compiler.hooks import ShmemCompilationError

Compile = Callable[..., Any]

SECTIONS = sorted({op.section for op in OPS.values() if op.name in EXAMPLES})
TARGETS = {
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
}


@pytest.fixture(autouse=True)
def _p2p() -> Iterator[None]:
    with transport.using("p2p"):
        yield


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A kernel for each section of the op table, with the example of each op."""
    lines = ["import triton.language as tl", "import triton_dist.language as dl"]
    for number, section in enumerate(SECTIONS):
        lines.append(f"def section_{number}({', '.join(SIGNATURE)}):")
        lines += [f"    {EXAMPLES[op.name]}" for op in OPS.values() if op.section == section and op.name in EXAMPLES]
    file = tmp_path_factory.mktemp("kernels") / "all_ops.py"
    file.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("all_ops", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("number", range(len(SECTIONS)), ids=[re.sub(r"\W+", "_", name) for name in SECTIONS])
@pytest.mark.parametrize("target", TARGETS)
def test_every_op_compiles_to_machine_code(
    compile_kernel: Compile, kernels: ModuleType, target: str, number: int
) -> None:
    compiled = compile_kernel(getattr(kernels, f"section_{number}"), dict(SIGNATURE), target=TARGETS[target])
    binary = "cubin" if target.startswith("sm") else "hsaco"
    assert len(compiled.asm[binary]) > 1000
    assert not re.search(r"declare .*@(triton_dist|nvshmem|rocshmem)", compiled.asm["llir"]), "not linked"


def test_a_put_is_inlined(compile_kernel: Compile) -> None:
    def kernel(dst, src, n, sig, pe):
        dl.putmem_signal(dst, src, n, sig, 1, dl.SIGNAL_ADD, pe)

    compiled = compile_kernel(kernel, {"dst": "*u8", "src": "*u8", "n": "i64", "sig": "*i64", "pe": "i32"})
    ptx = compiled.asm["ptx"]
    assert ".func" not in ptx
    assert re.search("ld.global.v4.b32.*" * 8 + "st.global.v4.b32.*" * 8, ptx, flags=re.DOTALL)
    assert re.search(rf"bar\.sync \t0;.*fence\.release\.sys;.*{ATOM_SYS}add\.u64", ptx, flags=re.DOTALL)
    assert len(re.findall(r"fence|membar", ptx)) == 1, "one fence is what a put with a signal needs"
    assert "st.relaxed" not in ptx, "the other kind of signal is still there"


def test_a_put_of_whole_vectors_is_nothing_else(compile_kernel: Compile) -> None:
    """What need not be compiled is most of what a put costs a small kernel's compilation."""

    def kernel(dst, src, n, pe):
        dl.putmem(dst + tl.program_id(0) * 1024, src, n * 2, pe)

    for ending, has_rest in {"": True, "!": False}.items():
        signature = {"dst": f"*fp16{ending}", "src": f"*fp16{ending}", "n": f"i32{ending}", "pe": "i32"}
        ptx = compile_kernel(kernel, signature).asm["ptx"]
        assert ("ld.global.b8" in ptx) == has_rest
        assert ("ld.global.b64" in ptx) == has_rest


def test_the_loop_of_a_put_of_whole_vectors(compile_kernel: Compile) -> None:
    """Loads, stores and a comparison for each, and what counts: ptxas moves nothing for each access."""

    def by_warp(dst, src, pe):
        dl.putmem(dst, src, 1 << 20, pe, scope="warp")

    def by_block(dst, src, pe):
        dl.putmem(dst, src, 1 << 20, pe)

    for kernel in (by_warp, by_block):
        sass = compile_kernel(kernel, {"dst": "*fp16!", "src": "*fp16!", "pe": "i32"}).asm["sass"]
        assert sass.count("LDG.E.128") == sass.count("STG.E.128") == 8
        assert "R2UR" not in sass, "the descriptor of memory lies in a register that no access takes"


def test_the_state_is_what_the_world_looks_for(compile_kernel: Compile) -> None:
    from triton_dist.gpu import p2p

    def kernel(x):
        dl.p(x, 1.0, dl.my_pe())

    ptx = compile_kernel(kernel, {"x": "*fp32"}).asm["ptx"]
    assert re.search(
        rf"^\.visible \.const \.align 8 \.b8 {p2p.state_symbol()}\[{len(p2p.state(0, [0], 0))}\]", ptx, re.M
    )


def test_the_size_of_a_program_is_a_constant(compile_kernel: Compile) -> None:
    """Copies divide the work by it. Known, it makes addresses a register and a number."""

    def kernel(dst, src, n, pe):
        dl.putmem(dst, src, n, pe)

    signature = {"dst": "*u8", "src": "*u8", "n": "i64", "pe": "i32"}
    for warps in (1, 8):
        ptx = compile_kernel(kernel, signature, num_warps=warps).asm["ptx"]
        assert f"add.s64 \t%rd{{}}, {warps * 32 * 16};" in re.sub(r"add.s64 \t%rd\d+, %rd\d+,", "add.s64 \t%rd{},", ptx)
        assert "%ntid" not in ptx
        assert "program_threads" not in ptx, "the function is still there"
    compiled = compile_kernel(kernel, signature, target=TARGETS["gfx942"])
    assert "global_load_dwordx4" in compiled.asm["amdgcn"]
    assert not re.search(r"hidden_group_size_x|program_threads", compiled.asm["amdgcn"])


def test_a_program_beside_partitions_meets_without_them(compile_kernel: Compile) -> None:
    """The threads of a warp-specialised kernel's partitions wait elsewhere: a barrier of all threads would hang."""

    def kernel(a, c, sig, K, PUT):
        tiles = tl.make_tensor_descriptor(a, [128, K], [K, 1], [128, 64])
        total = tl.zeros((128, 128), dtype=tl.float32)
        for k in tl.range(0, K, 64, warp_specialize=True):
            tile = tiles.load([0, k])
            total = tl.dot(tile, tile.T, total)
        tl.store(c + tl.arange(0, 128)[:, None] * 128 + tl.arange(0, 128)[None, :], total)
        if PUT:
            dl.putmem_signal(c, c, 128 * 128 * 4, sig, 1, dl.SIGNAL_ADD, 1)

    signature = {"a": "*fp16!", "c": "*fp32!", "sig": "*i64", "K": "i32!", "PUT": True}
    options = {"target": GPUTarget("cuda", 100, 32), "num_stages": 3}
    compiled = compile_kernel(kernel, signature, **options)
    plain = compile_kernel(kernel, {**signature, "PUT": False}, **options)
    assert "ttg.warp_specialize" in compiled.asm["ttgir"]
    barriers, tritons = (Counter(re.findall(r"bar\.sync \t0(.*?);", kernel.asm["ptx"])) for kernel in (compiled, plain))
    assert set(barriers - tritons) == {", 128"}
    with transport.using("nvshmem"), pytest.raises(ShmemCompilationError, match="warp-specialised kernel: nvshmem's"):
        compile_kernel(kernel, signature, **options)


def test_puts_in_a_gemm_are_no_function_calls(compile_kernel: Compile) -> None:
    """Around calls, ptxas lets no multiplication run behind another (wgmma)."""

    def kernel(a, c, n, sig):
        i = tl.arange(0, 64)
        total = tl.zeros((64, 64), dtype=tl.float32)
        for k in range(0, n, 64):
            tile = tl.load(a + i[:, None] * 64 + i[None, :] + k)
            total = tl.dot(tile, tile, total)
        tl.store(c + i[:, None] * 64 + i[None, :], total)
        for pe in tl.static_range(4):
            dl.putmem(c, c, 64 * 64 * 4, pe)
            dl.putmem_signal(c, c, n, sig, 1, dl.SIGNAL_ADD, pe)

    ptx = compile_kernel(kernel, {"a": "*fp16!", "c": "*fp32!", "n": "i32!", "sig": "*i64"}).asm["ptx"]
    assert "wgmma" in ptx
    assert not re.search(r"^\s*call", ptx, flags=re.MULTILINE)


def test_libdevice_is_linked_where_it_is_called(compile_kernel: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton would parse all of it for every kernel that calls anything."""
    linked: list[list[str]] = []
    link = llvm.link_extern_libs
    monkeypatch.setattr(
        llvm,
        "link_extern_libs",
        lambda module, paths: linked.append([Path(p).name for p in paths]) or link(module, paths),
    )

    def plain(x, pe):
        dl.putmem(x, x, 16, pe)

    def mathematical(x, pe):
        tl.store(x, libdevice.tgamma(tl.load(x)))
        dl.putmem(x, x, 16, pe)

    signature = {"x": "*fp32", "pe": "i32"}
    compile_kernel(plain, signature)
    assert linked == [["p2p.bc"]]
    ptx = compile_kernel(mathematical, signature).asm["ptx"]
    assert linked[1:] == [["libdevice.10.bc", "p2p.bc"]]
    assert "__nv_tgammaf" not in re.sub(r"//.*", "", ptx), "not linked"
