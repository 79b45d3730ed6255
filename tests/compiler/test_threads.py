"""Kernels that are compiled at the same time: by threads of the user's, and by Triton's own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import triton.backends.nvidia.compiler as nvidia
from limits import HANG_SECONDS
from triton.runtime.jit import JITFunction

from triton_dist.compiler import hooks, transport

Compile = Callable[..., Any]
SIGNATURE = {"x": "*fp32", "sig": "*i64", "pe": "i32"}
THREADS = 16
HAS_SLOT = hasattr(nvidia.CUDABackend, "instrumentation")
"""Triton 3.9 has a list of callbacks in its place, which we leave alone: our passes are not put there."""


@pytest.fixture(autouse=True)
def _one_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 counts the depth of ``ast.parse`` for all threads together, and at times finds it wrong."""
    parse, lock = JITFunction.parse, threading.Lock()

    def parse_alone(function: JITFunction) -> Any:
        with lock:
            return parse(function)

    monkeypatch.setattr(JITFunction, "parse", parse_alone)


@pytest.fixture
def kernels(tmp_path: Path) -> list[Callable[..., None]]:
    """With and without shmem ops, in turns; all different."""
    source = "import triton.language as tl\nimport triton_dist.language as dl\n"
    for number in range(2 * THREADS):
        ops = [f"tl.store(x + 1, {number}.0)"]
        if number % 2:  # NVSHMEM's library and, for the wait, our own
            ops += [
                f"dl.signal_op(sig, {number}, dl.SIGNAL_SET, pe)",
                f"dl.signal_wait_until(sig, dl.CMP_GE, {number})",
            ]
        source += "\n    ".join([f"def kernel{number}(x, sig, pe):", *ops]) + "\n"
    file = tmp_path / "kernels_of_threads.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [getattr(module, f"kernel{number}") for number in range(2 * THREADS)]


def in_threads(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


def test_each_kernel_gets_what_it_needs_and_no_other(compile_kernel: Compile, kernels: list[Any]) -> None:
    ptx = in_threads(lambda kernel: compile_kernel(kernel, SIGNATURE).asm["ptx"], kernels)
    for symbol in ("nvshmemi_device_state_d", "triton_dist_wait_state"):
        assert [symbol in text for text in ptx] == [False, True] * THREADS
    if HAS_SLOT:
        assert nvidia.CUDABackend.instrumentation is None


@pytest.mark.skipif(not HAS_SLOT, reason="this Triton has no slot for instrumentation")
def test_the_instrumentation_of_others_sees_each_kernel(
    compile_kernel: Compile, kernels: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot is an attribute of a class, which Triton's profiler sets."""
    seen: list[tuple[int, str]] = []

    class Theirs:
        def load_dialects(self, context: Any) -> None:
            pass

        def patch(self, point: str, manager: Any, context: Any) -> None:
            assert nvidia.CUDABackend.instrumentation is theirs
            seen.append((threading.get_ident(), point))

    theirs = Theirs()
    monkeypatch.setattr(nvidia.CUDABackend, "instrumentation", theirs)
    in_threads(lambda kernel: compile_kernel(kernel, SIGNATURE), kernels)
    assert Counter(point for _, point in seen) == {"ttgpuir_to_llvmir": 2 * THREADS, "llvmir_to_llvm": 2 * THREADS}


def test_each_thread_has_its_transport(compile_kernel: Compile, kernels: list[Any]) -> None:
    together = threading.Barrier(THREADS)
    names = ["p2p", "nvshmem"] * (THREADS // 2)

    def compiled(job: tuple[str, Any]) -> str:
        name, kernel = job
        with transport.using(name):
            together.wait()
            ptx = compile_kernel(kernel, SIGNATURE).asm["ptx"]
            together.wait()
        return "p2p" if "triton_dist_p2p_state" in ptx else "nvshmem" if "nvshmemi_device_state_d" in ptx else "none"

    assert in_threads(compiled, list(zip(names, kernels[1::2], strict=True))) == names
    assert transport.current() == "nvshmem"


def test_a_world_that_begins_meanwhile_does_not_change_what_is_compiled(
    compile_kernel: Compile, kernels: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transport is not the one in the key under which the binary is kept."""

    def begin(module: Any) -> bool:
        transport.choose("p2p", 2)
        return has_shmem_ops(module)

    has_shmem_ops = hooks._has_shmem_ops
    monkeypatch.setattr(hooks, "_has_shmem_ops", begin)
    try:
        assert "nvshmemi_device_state_d" in compile_kernel(kernels[1], SIGNATURE).asm["ptx"]
    finally:
        transport.choose(None)


ASYNCHRONOUS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import torch, triton
import triton_dist
import triton_dist.language as dl
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction
from triton_dist.compiler import transport

class Driver:
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0
    def get_current_target(self): return GPUTarget("cuda", 90, 32)

type(triton.runtime.driver).active = Driver()

@triton.jit
def kernel(sig, pe, N: triton.language.constexpr):
    dl.signal_op(sig, N, dl.SIGNAL_SET, pe)

compiled = []
parse, lock = JITFunction.parse, threading.Lock()

def parse_alone(function):
    with lock:
        return parse(function)

JITFunction.parse = parse_alone
begin = threading.Event()
with ThreadPoolExecutor(4) as pool:
    for _ in range(4):
        pool.submit(begin.wait)  # so that nothing is compiled before everything is asked for
    with triton.AsyncCompileMode(pool):
        for n in range(4):
            for name in ("p2p", "nvshmem"):
                with transport.using(name):
                    compiled.append(kernel.warmup(torch.int64, 1, n + 5, grid=(1,)))
        transport.choose("p2p", 2)  # a world begins
        begin.set()
for future in compiled:
    ptx = future.asm["ptx"]
    print("p2p" if "triton_dist_p2p_state" in ptx else "nvshmem" if "nvshmemi_device_state_d" in ptx else "none")
"""


def test_what_triton_compiles_in_other_threads_is_what_the_launch_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "asynchronous.py"
    file.write_text(ASYNCHRONOUS)
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    run = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert run.stdout.split() == ["p2p", "nvshmem"] * 4, run.stdout + run.stderr
