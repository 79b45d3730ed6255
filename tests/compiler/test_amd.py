"""Kernels for AMD GPUs, down to complete machine code. No AMD GPU runs any of it: see docs/amd.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import amd
import pytest
import triton.language as tl
from op_examples import EXAMPLES, SIGNATURE, as_kernels

import triton_dist.language as dl
from triton_dist._C.op_table import OPS, Op
from triton_dist.compiler import transport
from triton_dist.compiler.hooks import ShmemCompilationError

Compile = Callable[..., Any]
ARCHITECTURES = [
    amd.ARCHITECTURES[0],
    *(pytest.param(other, marks=pytest.mark.slow) for other in amd.ARCHITECTURES[1:]),
]
LIT = Path(__file__).parents[1] / "lowering/rocshmem"


@pytest.fixture(scope="module")
def rocshmem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return amd.build_rocshmem(tmp_path_factory.mktemp("rocshmem") / "home")


@pytest.fixture(scope="module")
def rocshmem_6(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return amd.build_rocshmem(tmp_path_factory.mktemp("rocshmem_6") / "home", rocm=6)


@pytest.fixture
def with_rocshmem(rocshmem: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROCSHMEM_HOME", str(rocshmem))
    return rocshmem


def exchange(x, y, sig, nbytes, pe):
    """Copies in every scope, signals, a pipelined load, direct access to a peer."""
    i = tl.arange(0, 256)
    tl.store(y + i, tl.load(x + i) + dl.my_pe() + dl.n_pes())
    dl.putmem(x, y, nbytes, pe)
    dl.putmem_nbi(x, y, nbytes, pe, scope="warp")
    dl.getmem(y, x, nbytes, pe, scope="thread")
    dl.getmem_nbi(y, x, nbytes, pe)
    dl.fence()
    dl.putmem_signal(x, y, nbytes, sig, 1, dl.SIGNAL_ADD, pe)
    dl.putmem_signal_nbi(x, y, nbytes, sig, 1, dl.SIGNAL_SET, pe)
    dl.signal_op(sig, 2, dl.SIGNAL_SET, pe)
    dl.quiet()
    token = dl.signal_wait_until(sig, dl.CMP_GE, 7)
    tl.store(dl.symm_at(y, pe) + i, tl.load(dl.consume_token(x, token) + i) + dl.signal_fetch(sig))
    dl.barrier_all()
    dl.sync_all(scope="warp")


def elements(x, flags, indices, status, pe, TYPE: tl.constexpr):
    """p, g, atomics, waits and tests."""
    value = dl.g(x, pe) + dl.atomic_fetch_add(flags, 1, pe)
    dl.p(x, value.to(TYPE), pe)
    dl.atomic_set(flags, 3, pe, sem="release", scope="gpu")
    dl.atomic_inc(flags, pe)
    swapped = dl.atomic_compare_swap(flags, 3, dl.atomic_fetch_inc(flags, pe), pe) + dl.atomic_fetch_xor(flags, 1, pe)
    dl.wait_until(flags, dl.CMP_NE, swapped)
    dl.wait_until_all(flags, 4, status, dl.CMP_GT, 0)
    some = dl.wait_until_some_vector(flags, 4, indices, status, dl.CMP_LE, flags)
    tl.store(indices, some + dl.wait_until_any(flags, 4, None, dl.CMP_EQ, 1) + dl.test(flags, dl.CMP_LT, 9))


def collectives(x, y, n):
    dl.barrier(dl.TEAM_WORLD)
    dl.sync(dl.TEAM_WORLD, scope="thread")
    dl.broadcast(dl.TEAM_WORLD, x, y, n, 0)
    dl.fcollect(dl.TEAM_WORLD, x, y, n)
    dl.alltoall(dl.TEAM_WORLD, x, y, n)
    dl.sum_reduce(dl.TEAM_WORLD, x, y, n)
    tl.store(x, dl.team_my_pe(dl.TEAM_WORLD) + dl.team_n_pes(dl.TEAM_WORLD))


EXCHANGE = {"x": "*fp32!", "y": "*fp32!", "sig": "*i64", "nbytes": "i64", "pe": "i32"}
ELEMENTS = {"x": "*fp32", "flags": "*i32", "indices": "*i64", "status": "*i32", "pe": "i32", "TYPE": tl.float32}
KERNELS = [(exchange, EXCHANGE), (elements, ELEMENTS), (collectives, {"x": "*fp32", "y": "*fp32", "n": "i64"})]


@pytest.mark.parametrize("name", ["rocshmem", "p2p"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("kernel", "signature"), KERNELS)
def test_kernels_are_complete(
    kernel: Any,
    signature: dict[str, Any],
    architecture: str,
    name: str,
    compile_kernel: Compile,
    with_rocshmem: Path,
    tmp_path: Path,
) -> None:
    with transport.using(name):
        compiled = compile_kernel(kernel, signature, target=amd.target(architecture))
    amd.assert_complete(compiled.asm["hsaco"], architecture, tmp_path)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return as_kernels(tmp_path_factory.mktemp("examples"))


SHOWN = [op for op in OPS.values() if op.name in EXAMPLES]
LACKING = [
    op for op in SHOWN if op.caller and not op.routines["rocshmem"] and op.name != "is_reachable"
]  # unused, so gone


@pytest.mark.parametrize("op", [op for op in SHOWN if op.routines["rocshmem"]], ids=lambda op: op.name)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_op_of_rocshmem_is_complete(
    op: Op, architecture: str, compile_kernel: Compile, examples: ModuleType, with_rocshmem: Path, tmp_path: Path
) -> None:
    with transport.using("rocshmem"):
        compiled = compile_kernel(getattr(examples, op.name), SIGNATURE, target=amd.target(architecture))
    amd.assert_complete(compiled.asm["hsaco"], architecture, tmp_path)


@pytest.mark.parametrize("op", LACKING, ids=lambda op: op.name)
def test_every_op_that_rocshmem_lacks_is_named(
    op: Op, compile_kernel: Compile, examples: ModuleType, with_rocshmem: Path
) -> None:
    with transport.using("rocshmem"), pytest.raises(ShmemCompilationError) as error:
        compile_kernel(getattr(examples, op.name), SIGNATURE, target=amd.target("gfx942"))
    assert f"shmem.{op.name} is not available on transport rocshmem" in str(error.value)


def test_rocm_6(compile_kernel: Compile, rocshmem_6: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def kernel(x, sig, pe):
        dl.putmem_signal(x, x, 1024, sig, 1, dl.SIGNAL_ADD, pe)
        dl.barrier_all()

    monkeypatch.setenv("ROCSHMEM_HOME", str(rocshmem_6))
    with transport.using("rocshmem-6"):
        compiled = compile_kernel(kernel, {"x": "*fp32", "sig": "*i64", "pe": "i32"}, target=amd.target("gfx942"))
    assert "_ZN8rocshmem23rocshmem_wg_barrier_allEv" in compiled.asm["amdgcn"]
    amd.assert_complete(compiled.asm["hsaco"], "gfx942", tmp_path)


def test_every_wave_publishes_its_stores(compile_kernel: Compile) -> None:
    # Wave 0's fence waits for the stores of wave 0: each wave must have waited for its own before they meet.
    def kernel(x, sig, pe):
        tl.store(x + tl.arange(0, 256), 1.0)
        dl.signal_op(sig, 1, dl.SIGNAL_ADD, pe)

    with transport.using("p2p"):
        code = compile_kernel(kernel, {"x": "*fp32", "sig": "*i64", "pe": "i32"}, target=amd.target("gfx942"))
    pattern = (
        r"_store_dword.*?s_waitcnt vmcnt\(0\).*?s_barrier.*?s_and_saveexec.*?buffer_wbl2 sc0 sc1.*?global_atomic_add"
    )
    assert re.search(pattern, code.asm["amdgcn"], flags=re.DOTALL), code.asm["amdgcn"]


def test_peers_are_written_16_bytes_at_a_time(compile_kernel: Compile) -> None:
    def kernel(x, y, pe):
        i = tl.arange(0, 1024)
        tl.store(dl.symm_at(x, pe) + i, tl.load(y + i))

    with transport.using("p2p"):
        code = compile_kernel(kernel, {"x": "*fp32!", "y": "*fp32!", "pe": "i32"}, target=amd.target("gfx950"))
    assert re.search(r"_store_dwordx4", code.asm["amdgcn"]), code.asm["amdgcn"]


def test_a_type_that_rocshmem_lacks(compile_kernel: Compile, with_rocshmem: Path) -> None:
    def kernel(x, pe):
        dl.atomic_add(x, 1.0, pe)

    with transport.using("rocshmem"), pytest.raises(ShmemCompilationError) as error:
        compile_kernel(kernel, {"x": "*fp32", "pe": "i32"}, target=amd.target("gfx942"))
    line = r"test_amd\.py:\d+:\d+: "
    assert re.search(line + "shmem.atomic_add is not available for f32 on transport rocshmem", str(error.value))


def test_a_team_that_is_not_the_world(compile_kernel: Compile, with_rocshmem: Path) -> None:
    def kernel(team):
        dl.barrier(team)

    with transport.using("rocshmem"), pytest.raises(ShmemCompilationError) as error:
        compile_kernel(kernel, {"team": "i32"}, target=amd.target("gfx942"))
    assert "shmem.barrier takes no team but the constant TEAM_WORLD on transport rocshmem" in str(error.value)


def test_without_rocshmem(compile_kernel: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def kernel():
        dl.quiet()

    monkeypatch.setenv("ROCSHMEM_HOME", str(tmp_path))
    with transport.using("rocshmem"), pytest.raises(FileNotFoundError) as error:
        compile_kernel(kernel, {}, target=amd.target("gfx942"))
    assert "librocshmem_device_gfx942.bc was not found" in str(error.value)
    assert "set ROCSHMEM_HOME" in str(error.value)


@pytest.mark.parametrize("rocm", [7, 6])
def test_the_lit_tests_call_what_clang_compiles(rocm: int, rocshmem: Path, rocshmem_6: Path) -> None:
    """The symbols that the lit tests expect, for every op, type and scope, are those that the compiler gives the
    declarations of ROCSHMEM: nobody typed them twice."""
    files = [LIT / "rocm6.mlir"] if rocm == 6 else [file for file in LIT.glob("*.mlir") if file.name != "rocm6.mlir"]
    expected = {symbol for file in files for symbol in re.findall(r"call @(_ZN8rocshmem\w+)", file.read_text())}
    home = rocshmem_6 if rocm == 6 else rocshmem
    defined = amd.defined_symbols(home / "lib/librocshmem_device_gfx942.bc")
    assert expected <= defined, sorted(expected - defined)
    assert len(expected) >= (3 if rocm == 6 else 200)
