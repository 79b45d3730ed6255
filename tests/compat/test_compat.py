"""Kernels and scripts of Triton-distributed: its tutorials' patterns run in the CPU world and compile for a GPU."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import triton
import triton.language as tl
from forking import launch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITFunction

import triton_dist
import triton_dist.language as dl
from triton_dist.compat import threads
from triton_dist.compiler import hooks, transport
from triton_dist.language.extra import language_extra, libshmem_device
from triton_dist.language.extra.language_extra import tid
from triton_dist.testing import Result

HERE = Path(__file__).parent


# ---- run

PATTERNS = ["queue", "all_gather", "all_to_all", "local_flags", "words", "warps"]


@functools.cache
def tutorials(world: str, n_pes: int) -> Result:
    environment = {"TRITON_DIST_WORLD": world, "TRITON_DIST_WAIT_TIMEOUT": "600", "TRITON_DIST_SYMMETRIC_SIZE": "64M"}
    return launch([HERE / "tutorials.py"], n_pes, env=environment)


@pytest.mark.parametrize("n_pes", [2, pytest.param(4, marks=pytest.mark.slow)], ids="{}pes".format)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_runs(pattern: str, n_pes: int) -> None:
    assert_passed(tutorials("cpu", n_pes), pattern)


@pytest.mark.gpu(2)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_runs_on_gpus(pattern: str, n_gpus: int) -> None:
    assert_passed(tutorials("gpu", n_gpus), pattern)


def assert_passed(result: Result, pattern: str) -> None:
    missing = [pe.pe for pe in result if f"passed: {pattern}\n" not in pe.stdout]
    if missing:
        pytest.fail(f"{pattern} did not pass on PE {missing}\n{result.report}", pytrace=False)


# ---- compiled

KERNELS = {
    "pass_through_queue": {
        "rank": 0,
        "num_ranks": 4,
        "items_ptr": "*fp32",
        "received_ptr": "*fp32",
        "num_items": "i32",
        "queue_ptr": "*fp32",
        "turn_ptr": "*i64",
        "SLOTS": 8,
        "BLOCK": 128,
        "PRODUCERS": 16,
        "CONSUMERS": 4,
    },
    "push_segment": {
        "buffer_ptr": "*fp16",
        "ready_ptr": "*i64",
        "elements": "i32",
        "itemsize": "i32",
        "mark": "i32",
        "rank": "i32",
        "world_size": "i32",
        "PUSHERS": 4,
    },
    "gather_with_one_waiter": {
        "buffer_ptr": "*i8",
        "bytes_per_rank": "i32",
        "ready_ptr": "*i64",
        "WORLD_SIZE": 8,
        "rank": "i32",
        "mark": "i32",
    },
    "all_to_all": {
        "send_ptr": "*fp32",
        "staged_ptr": "*fp32",
        "recv_ptr": "*fp32",
        "ready_ptr": "*i64",
        "rows": "i32",
        "mark": "i32",
        "rank": "i32",
        "N": 64,
        "ROWS": 4,
    },
    "chunks_arrive": {"data_ptr": "*fp32", "flags_ptr": "*i64", "sums_ptr": "*fp32", "CHUNKS": 3, "BLOCK": 128},
    "meet_by_hand": {"words_ptr": "*i32", "rank": "i32", "num_ranks": "i32"},
    "send_by_warps": {"words_ptr": "*i32", "counts_ptr": "*i64", "rank": "i32", "num_ranks": "i32"},
    "count_threads": {"total_ptr": "*i32"},
}


@pytest.fixture(scope="module")
def compiled_kernels() -> ModuleType:
    """The kernels as they are decorated where kernels are compiled."""
    spec = importlib.util.spec_from_file_location("compiled_kernels", HERE / "kernels.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    knob = triton.knobs.runtime.__dict__
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(knob, "interpret", False)
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def compile_(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    hooks.install()

    def compile_(kernel: Any, signature: dict[str, Any], **options: Any) -> Any:
        kernel = getattr(kernel, "fn", kernel) if not isinstance(kernel, JITFunction) else kernel
        types = {name: kind if isinstance(kind, str) else "constexpr" for name, kind in signature.items()}
        constants = {name: value for name, value in signature.items() if not isinstance(value, str)}
        aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types.values()) if kind.startswith("*")}
        source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)

    return compile_


@pytest.mark.parametrize("transport_name", ["nvshmem", "p2p"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_compiles(
    name: str, transport_name: str, compiled_kernels: ModuleType, compile_: Callable[..., Any]
) -> None:
    with transport.using(transport_name):
        compiled = compile_(getattr(compiled_kernels, name), KERNELS[name])
    assert compiled.asm["cubin"]
    assert "%tid.x" not in compiled.asm["ttir"]  # no operation under a condition on which threads differ


@pytest.mark.parametrize("transport_name", ["nvshmem", "p2p"])
def test_waits_in_a_pipelined_loop(transport_name: str, compile_: Callable[..., Any]) -> None:
    def kernel(a, b, c, ready, n):
        i = tl.arange(0, 64)
        tile = i[:, None] * 64 + i[None, :]
        acc = tl.zeros((64, 64), tl.float32)
        for k in range(n):
            token = dl.wait(ready + k * 2, 2, "sys", "acquire", waitValue=k)
            left = tl.load(dl.consume_token(a, token) + k * 4096 + tile)
            acc = tl.dot(left, tl.load(b + k * 4096 + tile), acc)
        tl.store(c + tile, acc)

    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "ready": "*i32", "n": "i32"}
    with transport.using(transport_name):
        assert "cp.async" in compile_(JITFunction(kernel), signature, num_stages=4).asm["ptx"]


# ---- threads as loops


def as_loops(function: Callable[..., Any]) -> str:
    tree = ast.parse(inspect.getsource(function).strip())
    return "\n".join(ast.unparse(threads.as_loops(tree, function)).splitlines()[1:])


def test_one_thread_needs_no_loop() -> None:
    # fmt: off
    def kernel(flag):
        thread = tid(0)
        if thread == 0:
            dl.fence()
    # fmt: on
    assert as_loops(kernel) == "    _thread_0 = 0\n    dl.fence()"


def test_a_bound_is_the_loop_s() -> None:
    def kernel(flag, n, rank):
        peer = tid(axis=0) + 1
        if tid(0) < n and peer != rank:
            dl.fence()

    expected = """\
    for _thread_0 in range(0, n):
        if _thread_0 < n and _thread_0 + 1 != rank:
            dl.fence()"""
    assert as_loops(kernel) == expected


def test_without_a_bound_all_threads_take_part() -> None:
    def kernel(flag):
        if language_extra.tid(0) % 32 == 0:
            dl.fence()
        else:
            dl.quiet()

    expected = """\
    for _thread_0 in range(0, language_extra.tid(count=True)):
        if _thread_0 % 32 == 0:
            dl.fence()
        else:
            dl.quiet()"""
    assert as_loops(kernel) == expected


def test_what_a_warp_does_together_is_done_once() -> None:
    def kernel(x, n):
        warp = tid(0) // 32
        if warp < n:
            libshmem_device.putmem_warp(x, x, 4, warp)
            libshmem_device.putmem(x, x, 4, warp)
        else:
            libshmem_device.putmem_block(x, x, 4, n)

    expected = """\
    _warp_1 = 0
    _block_2 = 0
    for _thread_0 in range(0, tid(count=True)):
        if _thread_0 % tid(warp_size=True) == 0:
            _warp_1 = 0
        if _thread_0 // 32 < n:
            if _warp_1 == 0:
                libshmem_device.putmem_warp(x, x, 4, _thread_0 // 32)
            libshmem_device.putmem(x, x, 4, _thread_0 // 32)
            _warp_1 = 1
        else:
            if _block_2 == 0:
                libshmem_device.putmem_block(x, x, 4, n)
            _block_2 = 1"""
    assert as_loops(kernel) == expected


def test_what_one_thread_is_chosen_for_needs_no_count() -> None:
    def kernel(x):
        if tid(0) == 33:
            libshmem_device.putmem_block(x, x, 4, 0)

    assert as_loops(kernel) == "    _thread_0 = 33\n    libshmem_device.putmem_block(x, x, 4, 0)"


def test_a_name_is_a_thread_s_where_it_was_assigned_so() -> None:
    def kernel(n, pid):
        if pid == 0:
            peer = tid(0)
            if peer < n:
                dl.fence()
        else:
            peer = pid
            dl.p(n, peer, 0)

    assert "dl.p(n, peer, 0)" in as_loops(kernel)
    assert "if _thread_0 < n" in as_loops(kernel)


def stores_at_the_index(x):
    dl.p(x + tid(0), 1, 0)


def loops_over_the_index(x):
    for _ in range(tid(0)):
        dl.fence()


def returns_alone(x):
    if tid(0) == 0:
        return


def is_it_or_not(x, n):
    peer = n
    if n:
        peer = tid(0)
    if peer == 0:
        dl.fence()


def depends_on_what_changes(x, n):
    n = n + 1
    peer = tid(0) + n
    if peer == 0:
        dl.fence()


@triton.jit
def sends_by_warp(x):
    libshmem_device.putmem_warp(x, x, 4, 0)


@triton.jit
def sends_by_way_of_another(x):
    sends_by_warp(x)


def hides_a_warp_s_put(x, n):
    if tid(0) // 32 < n:
        sends_by_way_of_another(x)


def puts_in_an_expression(x, n):
    if tid(0) // 32 < n:
        done = libshmem_device.putmem_warp(x, x, 4, 0)  # noqa: F841


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (stores_at_the_index, "nowhere else"),
        (loops_over_the_index, "nowhere else"),
        (returns_alone, "cannot leave"),
        (is_it_or_not, "on some ways"),
        (depends_on_what_changes, "more than once"),
        (hides_a_warp_s_put, "sends_by_way_of_another calls libshmem_device.putmem_warp, .* call .* itself"),
        (puts_in_an_expression, "putmem_warp under a thread's condition must be a statement of its own"),
    ],
)
def test_what_cannot_be_a_loop_is_an_error_with_its_line(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        as_loops(function)


def test_a_descriptor_cannot_carry_a_token(compile_: Callable[..., Any]) -> None:
    def kernel(x, flag):
        descriptor = tl.make_tensor_descriptor(x, [64, 64], [64, 1], [16, 16])
        token = dl.wait(flag, 1, "gpu", "acquire")
        tl.store(x, tl.sum(dl.consume_token(descriptor, token).load([0, 0])))

    with pytest.raises(CompilationError, match="offset of the load"):
        compile_(JITFunction(kernel), {"x": "*fp32", "flag": "*i32"})


def test_plain_jit_says_which_decorator_to_use(compile_: Callable[..., Any]) -> None:
    with pytest.raises(CompilationError, match="@triton_dist"):
        compile_(JITFunction(stores_at_the_index), {"x": "*i32"})


# ---- names


def test_jit_takes_triton_s_arguments() -> None:
    decorated = triton_dist.jit(do_not_specialize=["x"], debug=True)(stores_at_the_index)
    assert decorated.fn is stores_at_the_index


SHMEM_OPS = ["putmem", "putmem_nbi", "getmem", "getmem_nbi", "putmem_signal", "putmem_signal_nbi"]


@pytest.mark.parametrize("suffix", ["", "_warp", "_block", "_wave", "_wg"])
@pytest.mark.parametrize("op", SHMEM_OPS)
def test_every_copy_exists_for_every_scope(op: str, suffix: str) -> None:
    parameters = list(inspect.signature(getattr(libshmem_device, op + suffix)).parameters)
    assert parameters[:3] == ["dest", "source", "bytes"]


def test_constants_are_symbolic() -> None:
    assert libshmem_device.NVSHMEM_SIGNAL_ADD is dl.SIGNAL_ADD
    assert libshmem_device.NVSHMEM_CMP_LE is libshmem_device.ROCSHMEM_CMP_LE is dl.CMP_LE
