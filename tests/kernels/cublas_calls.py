"""Checks of local GEMMs that go to cuBLAS, where neither a GPU nor cuBLAS is (``fake_gpu.py``, ``fake_cublas.py``):
``cublas_calls.py FOLDER CHECKS…``.

Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import fake_gpu
import pytest
import torch
from fake_cublas import CALLED, MAJOR, build, gemms, load, pytorch_for_cuda
from prepared_calls.native import errors_of_threads, leave_nothing
from prepared_calls.world import Calls, calls, symmetric

from triton_dist import cublas, kernels
from triton_dist.kernels.actions import _moved
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.gemm import cublas as gemm_cublas
from triton_dist.kernels.gemm.cublas import Cublas, cublas_gemm
from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.gemm.local_gemm import local_ways
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.native import NativeCalls
from triton_dist.kernels.prepared import Prepared
from triton_dist.kernels.protocols.workspace import Workspace
from triton_dist.process_state import of_process
from triton_dist.torch_api import matmul_flags

ROWS, K, N = 24, 64, 32
FOLDER = Path(sys.argv[1])
BUILT = build(FOLDER)
OPEN = ctypes.CDLL

Call = Callable[[], Any]


def numbers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Integers so small that every sum of a GEMM is exact, in any order."""
    return torch.randint(-3, 4, shape).to(dtype)


B = numbers(K, N)
OUT = {
    kernels.all_gather_gemm: torch.zeros(2 * ROWS, N).bfloat16(),
    kernels.gemm_reduce_scatter: torch.zeros(ROWS // 2, N).bfloat16(),
    kernels.gemm_all_reduce: symmetric(ROWS * N).view(ROWS, N),
    kernels.gemm_all_scatter: symmetric(ROWS * 2 * N).view(ROWS, 2 * N),
}


def gemm_call(function: Callable[..., Any], a: torch.Tensor, b: torch.Tensor, comm: Any = None, **options: Any) -> Call:
    """A call whose local GEMM is cuBLAS'."""
    out = OUT[function]
    return partial(function, a, b, out, algorithm="bulk_synchronous", group=comm, **options)


def of_torch(call: Call) -> int:
    """How many GEMMs a call leaves to ``torch.mm``."""
    with mock.patch.object(torch, "mm", wraps=torch.mm) as multiply:
        call()
    return int(multiply.call_count)


def of_cublas(call: Call) -> int:
    CALLED.clear()
    call()
    return len(gemms())


def is_by_cpp(call: Call) -> bool:
    """Whether nothing of a call is Python's but the public function, and questions that C++ asks once."""
    found: Calls = calls(call)
    return not found["Communicator.begin"] and not found["CublasGemm.__call__"]


def learnt(call: Call) -> Call:
    for _ in range(3):
        call()
    assert is_by_cpp(call), dict(calls(call))
    return call


@contextmanager
def failing(function: str, status: int) -> Iterator[None]:
    name, none, library = ctypes.c_char_p(function.encode()), ctypes.c_char_p(b""), ctypes.CDLL(str(BUILT))
    library.fake_fail_cublas(name, status)
    try:
        yield
    finally:
        library.fake_fail_cublas(none, 0)


def _at(matrix: torch.Tensor, offset: int, shape: tuple[int, int], strides: tuple[int, int]) -> torch.Tensor:
    return matrix.view(-1).as_strided(shape, strides, offset)


def layouts_are_those_of_torch() -> None:
    """Results are ``torch.mm``'s, memory between rows stays as it was, and cuBLAS gets what PyTorch gives it."""
    with Communicator() as comm:
        for dtype, kind in ((torch.bfloat16, 14), (torch.float16, 2)):
            large = numbers(64, 64, dtype=dtype)
            for (m, k, n), a, b, c, expected in (
                ((6, 8, 10), (8, 1), (10, 1), (10, 1), (0, 10, 8, 10)),
                ((6, 8, 10), (8, 1), (1, 8), (10, 1), (1, 8, 8, 10)),  # b by columns
                ((6, 8, 10), (11, 1), (13, 1), (17, 1), (0, 13, 11, 17)),  # parts of rows
                ((6, 8, 10), (11, 1), (1, 13), (17, 1), (1, 13, 11, 17)),
                ((1, 8, 10), (3, 1), (10, 1), (5, 1), (0, 10, 8, 10)),  # one row, whose stride says nothing
                ((6, 8, 1), (8, 1), (1, 1), (1, 1), (0, 1, 8, 1)),  # one column
                ((6, 8, 1), (8, 1), (7, 1), (9, 1), (0, 7, 8, 9)),
                ((6, 1, 10), (1, 1), (10, 1), (10, 1), (0, 10, 1, 10)),  # K is 1
                ((6, 1, 10), (5, 1), (1, 3), (10, 1), (1, 3, 5, 10)),
                ((1, 1, 1), (1, 1), (1, 1), (1, 1), (0, 1, 1, 1)),
            ):
                of_a, of_b = _at(large, 0, (m, k), a), _at(large, 1024, (k, n), b)
                out = torch.full((40, 40), 77.0).to(dtype)
                of_c = _at(out, 3, (m, n), c)
                work = cublas_gemm(Operands(comm, of_a, of_b, of_c))
                assert work is not None
                CALLED.clear()
                work(of_a, of_b, of_c, None)
                (gemm,) = gemms()
                assert (gemm.transa, gemm.lda, gemm.ldb, gemm.ldc) == expected, (m, k, n, a, b, c)
                assert (gemm.m, gemm.n, gemm.k, gemm.type) == (n, m, k, kind)
                assert (gemm.a, gemm.b, gemm.c) == (of_a.data_ptr(), of_b.data_ptr(), of_c.data_ptr())
                correct = torch.full((40, 40), 77.0).to(dtype)
                _at(correct, 3, (m, n), c).copy_(torch.mm(of_a, of_b))
                assert torch.equal(out, correct), (m, k, n, a, b, c)


def what_cublas_does_not_take_is_torch_s() -> None:
    with Communicator() as comm:
        a, b, c = numbers(6, 8), numbers(8, 10), torch.zeros(6, 10).bfloat16()
        for what, operands in {
            "float32": (a.float(), b.float(), c.float()),
            "a result of float32": (a, b, c.float()),
            "no rows": (a[:0], b, c[:0]),
            "no columns of a": (a[:, :0], b[:0], c),
            "no columns": (a, b[:, :0], c[:, :0]),
            "rows that are one": (a, b[:1].expand(8, 10), c),
            "rows of a that are one": (a[:1].expand(6, 8), b, c),
            "rows that overlap": (a, _at(numbers(16, 16), 0, (8, 10), (4, 1)), c),
            "every second column": (a, numbers(8, 20)[:, ::2], c),
            "a by columns": (numbers(8, 6).t(), b, c),
            "c by columns": (a, b, torch.zeros(10, 6).bfloat16().t()),
            "rows that are far apart": (torch.empty(6, 1 << 31, dtype=a.dtype, device="meta")[:, :8], b, c),
        }.items():
            assert cublas_gemm(Operands(comm, *operands)) is None, what
        gemm = Operands(comm, a, b, c)
        assert cublas_gemm(gemm) is not None
        for version in (None, f"{MAJOR - 1}.4", f"{MAJOR}0.1"):
            with pytorch_for_cuda(version):
                assert cublas.library() is None and cublas_gemm(gemm) is None, version
        with mock.patch.dict(cublas._FUNCTIONS, cublasOfTomorrow=()):
            cublas.library.cache_clear()
            assert cublas.library() is None, "a function is not there"
        cublas.library.cache_clear()
        prefers = mock.Mock(return_value="_BlasBackend.Cublaslt")
        with mock.patch.object(torch.backends.cuda, "preferred_blas_library", prefers):
            assert cublas_gemm(gemm) is None
        empty = gemm._replace(a=a[:, :0], b=b[:0], c=c.fill_(1))
        assert of_torch(local_ways(empty)["cublas"]) == 1 and not c.any(), "sums of nothing"
        assert of_torch(local_ways(gemm)["cublas"]) == 0 and torch.equal(c, torch.mm(a, b))
        assert gemm.epilogue is EMPTY and gemm.scale is None
        assert of_torch(lambda: local_ways(gemm._replace(c=c.float()))) == 0


def a_library_that_is_not_loaded_is_not_used() -> None:
    """This check is the first: the library stays loaded."""
    found = mock.Mock(side_effect=lambda name, mode: OPEN(str(FOLDER / name), mode=mode))  # as on the loader's path
    with pytorch_for_cuda(), mock.patch.object(ctypes, "CDLL", found), Communicator() as comm:
        assert cublas.library() is None and found.call_args.args == (BUILT.name,)
        call = gemm_call(kernels.gemm_all_reduce, numbers(ROWS, K), B, comm)
        for _ in range(4):
            assert of_torch(call) == 1
        assert Cublas not in comm._owned


def cpp_makes_the_call_again() -> None:
    """An ordinary call, one that Python repeats, and those of C++ give cuBLAS the same; new operands are the call's."""
    for function in OUT:
        a, others = numbers(ROWS, K), (numbers(ROWS, K), numbers(K, N))
        with Communicator() as comm:
            call = gemm_call(function, a, B, comm)
            found = []
            for _ in range(5):
                CALLED.clear()
                call()
                found.append([*CALLED])
            assert [name for name, _ in found[0]] == ["create", "stream", "workspace", "gemm"]
            assert found[1] == found[0][1:] and found[1] == found[2] == found[3] == found[4]
            (gemm,) = gemms()
            mine = comm.own(Cublas)
            assert (gemm.handle, gemm.stream) == (mine.handle, 7)
            assert (gemm.workspace, gemm.workspace_bytes) == mine.workspace
            assert is_by_cpp(call), (function.__name__, dict(calls(call)))
            assert of_torch(call) == 0
            again = gemm_call(function, *others, comm)
            CALLED.clear()
            assert is_by_cpp(again)
            (gemm,) = gemms()
            assert gemm.b == others[1].data_ptr()
            assert (gemm.a == others[0].data_ptr()) == (function is not kernels.all_gather_gemm)
            multiplied = others[0]
            if function is kernels.all_gather_gemm:
                multiplied = gathered(comm, 2 * ROWS)
                assert gemm.a == multiplied.data_ptr() and gemm.c == OUT[function].data_ptr()
                multiplied.copy_(numbers(2 * ROWS, K))
                again()
            result = torch.empty(*multiplied.shape[:1], N).bfloat16()
            ctypes.memmove(result.data_ptr(), gemm.c, result.nbytes)
            assert gemm.ldc == N or function is kernels.gemm_all_scatter
            assert gemm.ldc != N or torch.equal(result, torch.mm(multiplied, others[1])), function.__name__


def gathered(comm: Communicator, rows: int) -> torch.Tensor:
    """The memory of an all-gather of A."""
    memory = comm.own(Workspace).tensors["matrix: gathered"]
    return memory[: rows * K * 2].view(torch.bfloat16).view(rows, K)


def layouts_of_calls_are_theirs() -> None:
    """A call with B by columns is not mistaken for one with B by rows, by C++ neither."""
    square, a = numbers(K, K), numbers(ROWS, K)
    out = symmetric(ROWS * K).view(ROWS, K)
    with Communicator() as comm:
        for b in (square, square.t(), numbers(K, 2 * K)[:, K:]):
            call = partial(kernels.gemm_all_reduce, a, b, out, algorithm="bulk_synchronous", group=comm)
            learnt(call)
            CALLED.clear()
            call()
            (gemm,) = gemms()
            by_columns = b.stride(0) == 1
            assert (gemm.transa, gemm.lda) == (int(by_columns), b.stride(1 if by_columns else 0))
            result = torch.empty(ROWS, K).bfloat16()
            ctypes.memmove(result.data_ptr(), gemm.c, result.nbytes)
            assert torch.equal(result, torch.mm(a, b))


def streams_are_those_of_the_call() -> None:
    with Communicator() as comm:
        call = learnt(gemm_call(kernels.gemm_all_reduce, numbers(ROWS, K), B, comm))
        for stream in (9, 7):
            fake_gpu.STREAM[0] = stream
            try:
                CALLED.clear()
                assert not is_by_cpp(call), "Python orders it behind the work on the other stream"
                assert is_by_cpp(call)
                assert [gemm.stream for gemm in gemms()] == [stream] * 2
            finally:
                fake_gpu.STREAM[0] = 7


def flags_are_read_in_each_call() -> None:
    matmul: Any = torch.backends.cuda.matmul

    def change(name: str) -> Callable[[bool], None]:
        return lambda on: setattr(matmul, name, on)

    carveout: Any = torch._C
    changes: dict[str, tuple[Callable[[bool], object], torch.dtype]] = {
        "sums of bfloat16": (lambda on: change("allow_bf16_reduced_precision_reduction")(not on), torch.bfloat16),
        "sums of a split K": (
            lambda on: setattr(matmul, "allow_bf16_reduced_precision_reduction", (not on, not on)),
            torch.bfloat16,
        ),
        "sums of float16": (lambda on: change("allow_fp16_reduced_precision_reduction")(not on), torch.float16),
        "accumulation in float16": (change("allow_fp16_accumulation"), torch.float16),
        "deterministic": (torch.use_deterministic_algorithms, torch.bfloat16),
        "fewer SMs": (lambda on: carveout._set_sm_carveout_experimental(8 if on else None), torch.bfloat16),
    }
    for name, (turn, dtype) in changes.items():
        a, b = numbers(ROWS, K, dtype=dtype), numbers(K, N, dtype=dtype)
        out = symmetric(ROWS * N, dtype).view(ROWS, N)
        with Communicator() as comm:
            call = partial(kernels.gemm_all_reduce, a, b, out, algorithm="bulk_synchronous", group=comm)
            for times in (1, 2, 3):  # made by its plan, learnt by C++, made by C++
                comm.own(Prepared).forget()
                for _ in range(times):
                    assert of_cublas(call) == 1
                turn(True)
                try:
                    for _ in range(4):
                        CALLED.clear()
                        assert of_torch(call) == 1, (name, times)
                        assert not CALLED, (name, times)
                    assert not calls(call)["Prepared.repeat"], f"{name}: C++ calls torch.mm"
                finally:
                    turn(False)
                for _ in range(4):
                    assert of_cublas(call) == 1 and of_torch(call) == 0, (name, times)
                assert is_by_cpp(call), f"{name}: set back, after {times} calls"
            # From the first call on.
            comm.own(Prepared).forget()
            turn(True)
            try:
                assert [of_torch(call) for _ in range(4)] == [1] * 4
            finally:
                turn(False)
            for _ in range(4):
                assert of_cublas(call) == 1 and of_torch(call) == 0, name
            assert is_by_cpp(call), f"{name}: set back, learnt with it"
    other = matmul_flags(torch.bfloat16)
    matmul.allow_fp16_accumulation = True
    try:
        assert all(read() == default for read, default in other), "of another dtype"
    finally:
        matmul.allow_fp16_accumulation = False


def errors_are_those_of_python() -> None:
    with Communicator() as comm:
        call = gemm_call(kernels.gemm_all_reduce, numbers(ROWS, K), B, comm)
        for reported, function in (
            ("stream", "cublasSetStream_v2"),
            ("workspace", "cublasSetWorkspace_v2"),
            ("gemm", "cublasGemmEx"),
        ):
            for status, name in ((13, "EXECUTION_FAILED"), (15, "NOT_SUPPORTED")):
                said = []
                for times in (0, 1, 3):
                    comm.own(Prepared).forget()
                    for _ in range(times):
                        call()
                    fake_gpu.DONE.clear()
                    with failing(reported, status), pytest.raises(RuntimeError) as error:
                        call()
                    said.append(str(error.value))
                    assert not fake_gpu.DONE, "what comes behind it is left out"
                assert said == [f"CUDA error: CUBLAS_STATUS_{name} when calling `{function}`"] * 3
                learnt(call)  # the communicator is free again


def without_a_handle_gemms_are_torch_s() -> None:
    """Where cuBLAS makes none for lack of memory, or PyTorch has none for the workspace: then it is not asked again."""
    no_workspace = mock.patch.object(gemm_cublas, "_workspace_bytes", side_effect=torch.OutOfMemoryError)
    for lack in (failing("create", 3), no_workspace):
        with Communicator() as comm:
            call = gemm_call(kernels.gemm_all_reduce, numbers(ROWS, K), B, comm)
            with lack:
                assert of_torch(call) == 1
            cublas = comm.own(Cublas)
            assert not cublas.handle and cublas._workspace is None
            assert [of_torch(call) for _ in range(4)] == [1] * 4 and of_cublas(call) == 0


def nothing_waits_for_kernels_of_an_aborted_world() -> None:
    with Communicator() as comm:
        gemm_call(kernels.gemm_all_reduce, numbers(ROWS, K), B, comm)()
        cublas = comm.own(Cublas)
        assert cublas.handle
        CALLED.clear()
        with mock.patch.object(comm.world, "aborted", True):
            cublas.close()
        assert not CALLED and cublas.handle, "cuBLAS waits when it destroys a handle"
    assert [name for name, _ in CALLED] == ["destroy"]


def communicators_have_handles_of_their_own() -> None:
    CALLED.clear()
    a = numbers(ROWS, K)
    with Communicator() as first:
        with Communicator() as second:
            outs = [symmetric(ROWS * N).view(ROWS, N) for _ in range(2)]
            repeats = [
                learnt(partial(kernels.gemm_all_reduce, a, B, out, algorithm="bulk_synchronous", group=group))
                for out, group in zip(outs, (first, second), strict=True)
            ]
            owned = [comm.own(Cublas) for comm in (first, second)]
            assert owned[0].handle != owned[1].handle and owned[0].workspace[0] != owned[1].workspace[0]
            assert [name for name, _ in CALLED if name in ("create", "destroy")] == ["create"] * 2
            CALLED.clear()
            assert not errors_of_threads(repeats, 50)
            used = {(gemm.handle, gemm.workspace) for gemm in gemms()}
            assert used == {(one.handle, one.workspace[0]) for one in owned} and len(gemms()) == 100
            handle, learnt_before = owned[1].handle, len(of_process(NativeCalls))
            CALLED.clear()
        assert [*CALLED] == [("destroy", (handle,))]
        assert len(of_process(NativeCalls)) == learnt_before - 1, "C++ has forgotten the handle"
        second.close()
        assert [name for name, _ in CALLED] == ["destroy"], "once"
        with pytest.raises(RuntimeError, match="was closed"):
            repeats[1]()
        assert is_by_cpp(repeats[0])
    owned[1].close()
    assert [name for name, _ in CALLED].count("destroy") == 2
    assert owned[0]._workspace is None and owned[1]._workspace is None


def nothing_is_made_in_captures() -> None:
    with Communicator() as comm:
        call = gemm_call(kernels.gemm_all_reduce, numbers(ROWS, K), B, comm)
        torch_s = gemm_call(kernels.gemm_all_reduce, numbers(ROWS, K), B, comm)
        torch.use_deterministic_algorithms(True)
        try:
            torch_s()  # which makes what the collective needs
        finally:
            torch.use_deterministic_algorithms(False)
        CALLED.clear()
        fake_gpu.CAPTURING[0] = True
        try:
            for _ in range(2):
                assert of_torch(call) == 1
        finally:
            fake_gpu.CAPTURING[0] = False
        assert not CALLED and not comm.own(Cublas).handle
        assert of_torch(call) == 0
        for _ in range(4):  # by Python, then by C++
            fake_gpu.CAPTURING[0] = True
            try:
                assert of_cublas(call) == 1 and "create" not in dict(CALLED)
            finally:
                fake_gpu.CAPTURING[0] = False
        fake_gpu.CAPTURING[0] = True
        try:
            assert is_by_cpp(call)
        finally:
            fake_gpu.CAPTURING[0] = False


def threads_run_while_a_gemm_waits() -> None:
    """By C++, too, Python's lock is free."""
    with Communicator() as comm:
        call = learnt(gemm_call(kernels.gemm_all_reduce, numbers(ROWS, K), B, comm))
        library = load(BUILT)
        library.fake_fill_cublas(1)
        multiplying = threading.Thread(target=call)
        began = time.monotonic()
        multiplying.start()
        refused = ""
        try:
            while not refused and time.monotonic() - began < 5:
                time.sleep(0.001)
                try:
                    kernels.all_reduce(OUT[kernels.gemm_all_reduce], algorithm="none", group=comm)
                except RuntimeError as error:
                    refused = str(error)
                except ValueError:  # the thread has not come to its call
                    continue
        finally:
            library.fake_fill_cublas(0)
            multiplying.join()
        assert "another thread is in a call" in refused
        assert time.monotonic() - began < 5, "it was the GEMM that had ended"
        assert is_by_cpp(call)


def workspaces_are_as_large_as_pytorch_s() -> None:
    a, b, c = numbers(6, 8), numbers(8, 10), torch.zeros(6, 10).bfloat16()
    for config, capability, nbytes in (
        (None, (9, 0), 32 << 20),
        (None, (10, 0), 32 << 20),
        (None, (8, 9), (2 * 4096 + 8 * 16) << 10),
        (":4096:8", (8, 0), 32 << 20),
        (":4096:2:16:8", (9, 0), (2 * 4096 + 8 * 16) << 10),
        (":16:8", (9, 0), 128 << 10),
        (":0:0", (9, 0), 0),
        ("much", (9, 0), 32 << 20),
    ):
        gpu = mock.Mock(capability=capability)
        changed = {} if config is None else {"CUBLAS_WORKSPACE_CONFIG": config}
        with (
            mock.patch.dict("os.environ", changed),
            mock.patch("triton_dist.kernels.gemm.cublas.gpu", lambda gpu=gpu: gpu),
            Communicator() as comm,
        ):
            work = cublas_gemm(Operands(comm, a, b, c))
            assert work is not None
            CALLED.clear()
            work(a, b, c)
            (gemm,) = gemms()
            assert gemm.workspace_bytes == nbytes, config
            assert bool(gemm.workspace) == bool(nbytes)


def gemms_within_other_calls_are_cublas_s() -> None:
    """The projection of many requests, which is another call; a GEMM behind a norm."""
    requests = 600  # more than ``fused`` takes
    q, cache = torch.zeros(requests, 8, 64).bfloat16(), torch.zeros(4, 64, 2, 64).bfloat16()
    lengths, pages, weight = torch.ones(requests).int(), torch.zeros(requests, 2, dtype=torch.int32), numbers(8 * 64, N)
    a, rows, norm = numbers(ROWS, K), numbers(200, K), numbers(K)
    project = partial(kernels.flash_decode_projection, q, cache, cache, lengths, weight, block_table=pages)
    for call in (project, lambda: kernels.norm_gemm(rows, B, norm), lambda: kernels.functional.all_gather_gemm(a, B)):
        assert [of_cublas(call) for _ in range(4)] == [1] * 4, call
        assert of_torch(call) == 0, call
    normalised = torch.rms_norm(rows, norm.shape, norm)
    assert torch.allclose(kernels.norm_gemm(rows, B, norm), torch.mm(normalised, B), rtol=0.02, atol=0.02)


def gemms_of_another_call_lie_where_its_tensors_do() -> None:
    places = (0, 2), None, (None, 5)
    moved = _moved(("multiply", b"gemm", places), [(3, 10)])
    assert moved == ("multiply", b"gemm", ((3, 12), None, (None, 5)))


def wrong_gemms_are_refused() -> None:
    a, comm = numbers(8, 8), communicator_of()
    kernels.gemm_all_reduce(a, a, symmetric(64).view(8, 8), algorithm="bulk_synchronous")
    table, owner = of_process(NativeCalls)._table, comm.own(Prepared)._owner
    size = ctypes.sizeof(cublas.Gemm)
    place = (0, 0)
    for action, kind, text in (
        (("multiply",), TypeError, "3 arguments"),
        (("multiply", bytes(size), None), TypeError, "tuple"),
        (("multiply", bytes(size - 1), (place,) * 3), ValueError, "another size"),
        (("multiply", bytes(size), (place,) * 2), ValueError, "not three"),
    ):
        with pytest.raises(kind, match=text):
            table.learn("x", (a,), {}, owner, ((action,), None, ()), (a,), a, (), None, ())
    for places in ((place, place, None), (place, place, (1, 0))):
        action = "multiply", bytes(size), places
        assert not table.learn("x", (a,), {}, owner, ((action,), None, ()), (a,), a, (), None, ())


def nothing_leaks_of_gemms() -> None:
    with Communicator() as comm:
        a = numbers(ROWS, K)
        call, library = learnt(gemm_call(kernels.gemm_all_reduce, a, B, comm)), load(BUILT)
        library.fake_report_cublas_to(None)

        def refused() -> None:
            with failing("gemm", 13), pytest.raises(RuntimeError):
                call()

        try:
            leave_nothing(
                ((call, 2_000), (refused, 1_000)), (a, B, OUT[kernels.gemm_all_reduce], comm, comm.own(Cublas))
            )
        finally:
            load(BUILT)


def _with_cublas(check: Call) -> Call:
    """A check in a process in which PyTorch has loaded cuBLAS."""

    @functools.wraps(check)
    def checked() -> None:
        load(BUILT)
        with pytorch_for_cuda():
            check()

    return checked


CHECKS = (
    a_library_that_is_not_loaded_is_not_used,
    *map(
        _with_cublas,
        (
            layouts_are_those_of_torch,
            what_cublas_does_not_take_is_torch_s,
            cpp_makes_the_call_again,
            layouts_of_calls_are_theirs,
            streams_are_those_of_the_call,
            flags_are_read_in_each_call,
            errors_are_those_of_python,
            without_a_handle_gemms_are_torch_s,
            nothing_waits_for_kernels_of_an_aborted_world,
            communicators_have_handles_of_their_own,
            nothing_is_made_in_captures,
            threads_run_while_a_gemm_waits,
            workspaces_are_as_large_as_pytorch_s,
            gemms_within_other_calls_are_cublas_s,
            gemms_of_another_call_lie_where_its_tensors_do,
            wrong_gemms_are_refused,
            nothing_leaks_of_gemms,
        ),
    ),
)


if __name__ == "__main__":
    torch.manual_seed(0)
    fake_gpu.run_checks(CHECKS)
