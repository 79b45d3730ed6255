"""What new numbers of rows cost on a GPU that is not there (``fake_gpu.py``): ``bucket_calls.py FOLDER``.

Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_gpu
import pytest
import torch
from triton.runtime.jit import JITFunction

from triton_dist import kernels
from triton_dist.kernels import moe, tuning
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.plan_cache import PlanCache

DRIVER = fake_gpu.load_driver(Path(sys.argv[1]))
fake_gpu.use_torch_without_a_gpu()
fake_gpu.use_a_driver_s_streams(DRIVER)
WORLD = fake_gpu.begin_world(2)

HIDDEN, MOST = 512, 1024
BF16 = torch.bfloat16
B = torch.zeros(64, HIDDEN, dtype=BF16)
A = torch.zeros(MOST, 64, dtype=BF16)
X = torch.zeros(MOST, HIDDEN, dtype=BF16)
C: torch.Tensor = WORLD.empty((MOST, HIDDEN), BF16)
WIDE: torch.Tensor = WORLD.empty((MOST, 2 * HIDDEN), BF16)
SOURCE: torch.Tensor = WORLD.empty((MOST, HIDDEN), BF16)
RESULT: torch.Tensor = WORLD.empty((2 * MOST, HIDDEN), BF16)
OWN = torch.zeros(MOST, HIDDEN, dtype=BF16)


@contextmanager
def compiled() -> Iterator[list[str]]:
    """The kernels that are compiled, or looked for on disk."""
    found: list[str] = []
    plain = JITFunction._do_compile

    def counting(self: Any, *arguments: Any, **options: Any) -> Any:
        found.append(self.__name__)
        return plain(self, *arguments, **options)

    JITFunction._do_compile = counting
    try:
        yield found
    finally:
        JITFunction._do_compile = plain


@contextmanager
def capturing() -> Iterator[None]:
    plain = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: True  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = plain


def all_reduce(m: int) -> None:
    kernels.all_reduce(SOURCE[:m], out=RESULT[:m])


def all_reduce_norm(algorithm: str) -> Callable[[int], object]:
    return lambda m: kernels.all_reduce_norm(X[:m], residual=X[:m], algorithm=algorithm)


CALLS: dict[str, tuple[Callable[[int], object], list[range]]] = {
    # By name: the call, and its buckets: within one of these no M compiles or allocates, if another one has run.
    "gemm_all_reduce, fused": (
        lambda m: kernels.gemm_all_reduce(A[:m], B, C[:m], algorithm="fused"),
        [range(17, 33), range(33, 48), range(48, 65), range(65, 112), range(112, 129)],
    ),
    "gemm_reduce_scatter, fused": (
        lambda m: kernels.gemm_reduce_scatter(A[:m], B, OWN[: -(-m // 2)], algorithm="fused"),
        [range(33, 63), range(65, 127)],
    ),
    "gemm_all_reduce, fused, residual": (
        lambda m: kernels.gemm_all_reduce(A[:m], B, C[:m], algorithm="fused", residual=OWN[:m]),
        [range(17, 33), range(33, 48), range(48, 65), range(65, 112), range(112, 129)],
    ),
    "gemm_reduce_scatter, fused, residual": (
        lambda m: kernels.gemm_reduce_scatter(A[:m], B, OWN[: -(-m // 2)], algorithm="fused", residual=X[: -(-m // 2)]),
        [range(33, 63), range(65, 127)],
    ),
    "gemm_all_reduce, bulk_synchronous, residual": (
        lambda m: kernels.gemm_all_reduce(A[:m], B, C[:m], algorithm="bulk_synchronous", residual=OWN[:m]),
        [range(1, 65), range(65, 129), range(897, 1025)],
    ),
    "gemm_all_reduce, ring": (
        lambda m: kernels.gemm_all_reduce(A[:m], B, C[:m], algorithm="ring"),
        [range(1, 129), range(129, 257), range(897, 1025)],
    ),
    "gemm_all_reduce, direct": (
        lambda m: kernels.gemm_all_reduce(A[:m], B, C[:m], algorithm="direct"),
        [range(1, 129), range(129, 257), range(897, 1025)],
    ),
    "gemm_all_reduce, ring, residual": (
        lambda m: kernels.gemm_all_reduce(A[:m], B, C[:m], algorithm="ring", residual=OWN[:m]),
        [range(1, 129), range(129, 257), range(897, 1025)],
    ),
    "gemm_reduce_scatter, ring, residual": (
        lambda m: kernels.gemm_reduce_scatter(A[:m], B, OWN[: -(-m // 2)], algorithm="ring", residual=X[: -(-m // 2)]),
        [range(1, 257), range(257, 513), range(769, 1025)],
    ),
    "gemm_reduce_scatter, direct": (
        lambda m: kernels.gemm_reduce_scatter(A[:m], B, OWN[: -(-m // 2)], algorithm="direct"),
        [range(1, 257), range(257, 513), range(769, 1025)],
    ),
    "all_gather_gemm, copy_engine": (
        lambda m: kernels.all_gather_gemm(A[:m], B, RESULT[: 2 * m], algorithm="copy_engine"),
        [range(1, 33), range(33, 65), range(65, 129), range(961, 1025)],
    ),
    "all_gather_gemm, copy_engine, shards that differ": (
        lambda m: kernels.all_gather_gemm(A[: -(-m // 2)], B, RESULT[:m], algorithm="copy_engine", rows=m),
        [range(1, 65), range(65, 129), range(897, 1025)],
    ),
    "all_gather_gemm, push": (
        lambda m: kernels.all_gather_gemm(A[:m], B, RESULT[: 2 * m], algorithm="push"),
        [range(33, 65), range(65, 129), range(961, 1025)],
    ),
    "all_gather_gemm, push, shards that differ": (
        lambda m: kernels.all_gather_gemm(A[: -(-m // 2)], B, RESULT[:m], algorithm="push", rows=m),
        [range(65, 129), range(897, 1025)],
    ),
    "gemm_all_scatter, bulk_synchronous": (
        lambda m: kernels.gemm_all_scatter(A[:m], B, WIDE[:m], algorithm="bulk_synchronous"),
        [range(2, 65), range(65, 129), range(129, 257)],
    ),
    "gemm_all_scatter, warp_specialized": (
        lambda m: kernels.gemm_all_scatter(A[:m], B, WIDE[:m], algorithm="warp_specialized"),
        [range(1, 65), range(65, 129), range(129, 257), range(897, 1025)],
    ),
    "gemm_all_scatter, fused_producer_consumer": (
        lambda m: kernels.gemm_all_scatter(A[:m], B, WIDE[:m], algorithm="fused_producer_consumer"),
        [range(129, 257), range(897, 1025)],
    ),
    "gemm_all_scatter, fused_sequential": (
        lambda m: kernels.gemm_all_scatter(A[:m], B, WIDE[:m], algorithm="fused_sequential"),
        [range(1, MOST + 1)],
    ),
    "all_reduce_norm, one_shot": (all_reduce_norm("one_shot"), [range(1, MOST + 1)]),
    "all_reduce_norm, two_shot": (all_reduce_norm("two_shot"), [range(1, MOST + 1)]),
    "reduce_scatter_norm": (
        lambda m: kernels.reduce_scatter_norm(X[:m], algorithm="fused"),
        [range(1, MOST + 1)],
    ),
    "norm_all_gather": (lambda m: kernels.norm_all_gather(X[:m], algorithm="fused"), [range(1, MOST // 2 + 1)]),
    "norm_all_gather, shards that differ": (
        lambda m: kernels.norm_all_gather(X[: -(-m // 2)], algorithm="fused", rows=m),
        [range(1, MOST + 1)],
    ),
    "all_reduce, one_shot": (
        lambda m: kernels.all_reduce(SOURCE[:m], out=RESULT[:m], algorithm="one_shot"),
        [range(1, 33), range(33, 257)],
    ),
    "all_reduce, direct": (
        lambda m: kernels.all_reduce(SOURCE[:m], out=RESULT[:m], algorithm="direct"),
        [range(1, MOST + 1)],
    ),
    "all_reduce, push": (
        lambda m: kernels.all_reduce(SOURCE[:m], out=RESULT[:m], algorithm="push"),
        [range(2, 1025)],
    ),
    "all_gather, push": (
        lambda m: kernels.all_gather(RESULT[: 2 * m], X[:m], algorithm="push"),
        [range(1, 1024)],
    ),
}


def some(bucket: range, seed: int) -> list[int]:
    """Ends, primes and multiples of 16 of a bucket."""
    inner = random.Random(seed).sample(bucket, min(5, len(bucket)))
    return [bucket[0], bucket[-1], *inner, *[m for m in bucket if m % 16 == 0][:2]]


def a_new_m_in_a_prepared_bucket_compiles_nothing() -> None:
    for name, (call, buckets) in CALLS.items():
        for bucket in buckets:
            call(bucket[len(bucket) // 2])
            with compiled() as found:
                for m in some(bucket, 1):
                    call(m)
            assert not found, f"{name}, {bucket}: {found}"


def a_new_m_in_a_prepared_bucket_is_captured() -> None:
    """Nothing is made while a graph is captured, so that nothing refuses."""
    for name, (call, buckets) in CALLS.items():
        for bucket in buckets:
            call(bucket[len(bucket) // 2])
            before = WORLD._bindings.used
            with capturing():
                for m in some(bucket, 2):  # others than have run
                    call(m)
            assert WORLD._bindings.used == before, name


def memory() -> tuple[int, int]:
    return WORLD._bindings.used, communicator_of().workspace_bytes


def a_thousand_ms_grow_by_nothing() -> None:
    """Once reserved: no symmetric memory is made, and there are no more plans than rows of tiles."""
    made = kernels.reserve(max_tokens=MOST, hidden=HIDDEN)
    assert sum(made.values()) > 0 and set(kernels.reserve(max_tokens=MOST, hidden=HIDDEN).values()) == {0}
    before = memory()
    plans = communicator_of().own(PlanCache).plans
    calls: tuple[Callable[[int], object], ...] = (
        all_reduce,
        lambda m: kernels.gemm_all_scatter(A[:m], B, WIDE[:m]),
        lambda m: kernels.gemm_all_reduce(A[:m], B, C[:m]),
        lambda m: kernels.all_reduce_norm(X[:m]),
        lambda m: kernels.gemm_reduce_scatter(A[:m], B, OWN[: -(-m // 2)]),
        lambda m: kernels.gemm_all_reduce(A[:m], B, C[:m], residual=OWN[:m]),
        lambda m: kernels.all_gather_gemm(A[: -(-m // 2)], B, RESULT[:m], rows=m),
    )
    for i, m in enumerate(random.Random(2).sample(range(1, MOST + 1), 1000)):
        calls[i % len(calls)](m)
    assert memory() == before
    assert len(plans) < 8 * (MOST // 128 + 1), len(plans)


def serves(
    operations: tuple[str, ...], sizes: dict[str, Any], calls: dict[str, Callable[[int], object]], prepared: list[int]
) -> None:
    """Once reserved and prepared, 1,000 numbers of tokens or requests compile nothing, make no memory, and may be
    captured."""
    most = sizes["max_tokens"]
    made = kernels.reserve(*operations, **sizes)
    assert sum(made.values()) > 0 and set(kernels.reserve(*operations, **sizes).values()) == {0}
    before = memory()
    for call in calls.values():
        for count in prepared:
            call(count)
    assert memory() == before, "the first calls make no memory either"
    numbers = [random.Random(3).randrange(most + 1) for _ in range(1000)]
    with compiled() as found, capturing():
        for name, call in calls.items():
            for count in numbers:
                call(count)
            assert not found, f"{name}: {found}"
    assert memory() == before


def a_thousand_numbers_of_tokens_of_experts_grow_by_nothing() -> None:
    most, ids = 256, torch.zeros(256, 2, dtype=torch.int32)
    of = {"num_experts": 8, "max_tokens": most}
    tokens, tokens8 = torch.zeros(most, HIDDEN, dtype=BF16), torch.zeros(most, HIDDEN).to(torch.float8_e4m3fn)
    weights, scales = torch.ones(most, 2), torch.ones(most, HIDDEN // 128)
    up, down = torch.zeros(8, HIDDEN, 64, dtype=BF16), torch.zeros(8, 64, HIDDEN, dtype=BF16)

    def there_and_back(t: int, **how: Any) -> None:
        received = moe.dispatch(tokens[:t], ids[:t], weights[:t], **of, **how)
        moe.combine(received.x, received)

    def slices(t: int) -> None:
        routed = moe.gather_routing(ids[:t], weights[:t], **of)
        rows = moe.all_gather_grouped_gemm(tokens[:t], up, routed)
        moe.grouped_gemm_reduce_scatter(rows, down, routed)

    sizes = {**of, "hidden": HIDDEN, "top_k": 2}
    exchange, grouped = ("dispatch", "combine"), ("all_gather_grouped_gemm", "grouped_gemm_reduce_scatter")
    serves(exchange, sizes, {"one kernel each way": there_and_back}, [5])
    serves(("gather_routing", *grouped), sizes, {"slices": slices}, [5])
    serves(exchange, {**sizes, "num_sms": 24}, {"rounds": lambda t: there_and_back(t, num_sms=24)}, [5])

    def fp8(t: int) -> None:
        moe.dispatch(tokens8[:t], ids[:t], weights[:t], scales=scales[:t], **of)

    sizes |= {"dtype": torch.float8_e4m3fn, "scales": HIDDEN // 128}
    serves(("dispatch",), sizes, {"fp8": fp8}, [5])


def fused_layers_on_hopper_compile_once() -> None:
    """Any number of tokens takes the warp-specialised kernels, also in a capture, once one has run."""
    w13, w2 = torch.zeros(4, 512, 512, dtype=BF16), torch.zeros(4, 512, 256, dtype=BF16)

    def call(n: int) -> None:
        ids, sizes = torch.zeros(n, 2, dtype=torch.int32), {"num_experts": 8, "max_tokens": 64}
        assert moe.moe_layer(X[:n], ids, ids.float(), w13, w2, algorithm="fused_hopper", **sizes).shape == (n, HIDDEN)

    with compiled() as names:
        call(5)
    assert {"moe_dispatch_grouped_gemm_kernel", "moe_grouped_gemm_combine_kernel"} <= set(names)
    before = memory()
    with compiled() as names, capturing():
        for n in (1, 0, 64, 17):
            call(n)
    assert not names and memory() == before


def a_thousand_numbers_of_requests_grow_by_nothing() -> None:
    """Of any lengths: these are on the device."""
    most, heads, dim = 300, 8, 64
    q, pages = torch.zeros(most, heads, dim, dtype=BF16), torch.zeros(16, 32, 2, dim, dtype=BF16)
    lengths, table = torch.zeros(most, dtype=torch.int32), torch.zeros(most, 12, dtype=torch.int32)

    def paged(n: int, **how: Any) -> None:
        kernels.flash_decode(q[:n], pages, pages, lengths[:n], block_table=table[:n], interleave=16, **how)

    sizes = {"max_tokens": most, "heads": heads, "head_dim": dim}
    calls = {"all heads": paged, "own heads": lambda n: paged(n, scatter_heads=True)}
    serves(("flash_decode",), sizes, calls, [16, 32, 64, 128, 256])


def more_than_was_reserved_is_refused_in_a_capture_only() -> None:
    big = torch.zeros(4 * MOST, HIDDEN, dtype=BF16)
    with capturing(), pytest.raises(RuntimeError, match="cannot be made while a CUDA graph is captured"):
        kernels.all_reduce_norm(big, algorithm="unfused")
    kernels.all_reduce_norm(big, algorithm="unfused")


def auto_times_nothing() -> None:
    plain, torch.cuda.CUDAGraph = torch.cuda.CUDAGraph, None  # type: ignore[misc, assignment]
    try:
        for m in (16, 512):
            kernels.gemm_all_reduce(A[:m], B, C[:m])
            kernels.gemm_all_scatter(A[:m], B, WIDE[:m])
            kernels.all_reduce_norm(X[:m])
            all_reduce(m)
    finally:
        torch.cuda.CUDAGraph = plain  # type: ignore[misc]


def what_was_tuned_is_taken_at_once_and_by_later_communicators() -> None:
    def instead(comm: Any, ways: dict[str, Any]) -> dict[str, float]:
        return {name: 1.0 if name == fastest else 2.0 for name in ways}

    plain, tuning.measure = tuning.measure, instead
    try:
        for fastest in ("bulk_synchronous", "fused"):
            kernels.gemm_all_reduce(A[:16], B, C[:16])
            found = kernels.tune("gemm_all_reduce", max_tokens=16, weights=[(64, HIDDEN)])
            assert set(found) == {"gemm_all_reduce", "local_gemm"}
            for comm in (None, kernels.Communicator()):
                launched: list[str] = []
                run = JITFunction.run

                def noting(self: Any, *given: Any, names: list[str] = launched, run: Any = run, **options: Any) -> Any:
                    names.append(self.__name__)
                    return run(self, *given, **options)

                JITFunction.run = noting
                try:
                    kernels.gemm_all_reduce(A[:16], B, C[:16], group=comm)
                finally:
                    JITFunction.run = run
                assert ("gemm_small_m" in launched) == (fastest == "fused"), (fastest, comm, launched)
    finally:
        tuning.measure = plain


CHECKS = (
    a_new_m_in_a_prepared_bucket_compiles_nothing,
    a_new_m_in_a_prepared_bucket_is_captured,
    a_thousand_ms_grow_by_nothing,
    a_thousand_numbers_of_tokens_of_experts_grow_by_nothing,
    a_thousand_numbers_of_requests_grow_by_nothing,
    fused_layers_on_hopper_compile_once,
    more_than_was_reserved_is_refused_in_a_capture_only,
    auto_times_nothing,
    what_was_tuned_is_taken_at_once_and_by_later_communicators,
)


if __name__ == "__main__":
    fake_gpu.run_checks(CHECKS)
