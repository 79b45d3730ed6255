"""Prepared calls: eager, in CUDA graphs, with tensors that lie elsewhere and change, and beside ordinary ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch

import triton_dist
from ops.harness import check, expect_equal, rounds
from triton_dist import World, kernels, native_calls
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.local_launches import LocalLaunches
from triton_dist.kernels.native import NativeCalls
from triton_dist.kernels.prepared import Prepared
from triton_dist.process_state import of_process

N = 512


def _values(pe: int, seed: int, n: int = N) -> torch.Tensor:
    """Small integers that every PE can make again; sums of them are exact."""
    return torch.randint(-4, 5, (n,), generator=torch.Generator().manual_seed(100 * seed + pe)).to(torch.bfloat16)


def _sum(world: World, seed: int) -> torch.Tensor:
    return torch.stack([_values(pe, seed) for pe in range(world.n_pes)]).float().sum(0).to(torch.bfloat16)


def _prepared(group: object = None) -> int:
    return len(communicator_of(group).own(Prepared)._plans)


@check(maps_all=True)
def repeated_calls_find_what_they_are_given(world: World) -> None:
    symmetric = [triton_dist.zeros(N, dtype=torch.bfloat16) for _ in range(3)]
    plain = [torch.zeros(N, dtype=torch.bfloat16, device=world.device) for _ in range(3)]
    gathered = triton_dist.zeros(N * world.n_pes, dtype=torch.bfloat16)
    for i in range(rounds(30, 3)):
        for inputs in (symmetric, plain):
            source, out = inputs[i % 3], inputs[(i + 1) % 3]
            source.copy_(_values(world.pe, i))
            kernels.all_gather(gathered, source)
            kernels.all_reduce(source, out=out)
            expect_equal(out, _sum(world, i), f"all_reduce {i}")
            expected = torch.cat([_values(pe, i) for pe in range(world.n_pes)])
            expect_equal(gathered, expected, f"all_gather {i}")
    assert (_prepared() > 0) == (world.kind == "gpu")


@check(maps_all=True)
def communicators_are_not_mixed_up(world: World) -> None:
    x = triton_dist.zeros(N, dtype=torch.bfloat16)
    with Communicator() as first, Communicator() as second:
        for i in range(rounds(20, 2)):
            for group in (first, second, None):
                x.copy_(_values(world.pe, i))
                kernels.all_reduce(x, group=group)
                expect_equal(x, _sum(world, i), f"{group} {i}")


@check(gpu_only=True)
def prepared_calls_are_captured(world: World) -> None:
    x, out = (triton_dist.zeros(N, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        kernels.all_reduce(x, out=out)
    empty = torch.cuda.CUDAGraph()  # with the first graph torch allocates the state of its random numbers
    with torch.cuda.graph(empty):
        x.zero_()
    allocated = torch.cuda.memory_allocated()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.all_reduce(x, out=out)
    assert torch.cuda.memory_allocated() == allocated
    for i in range(20):
        x.copy_(_values(world.pe, i))
        if i % 3:
            graph.replay()
        else:
            kernels.all_reduce(x, out=out)
        expect_equal(out, _sum(world, i), f"call {i}")


@check(gpu_only=True, maps_all=True, own_gpu=True)
def calls_are_repeated_by_cpp(world: World) -> None:
    """Direct, on another stream and from a graph: what a call through Python computes."""
    if why := native_calls.why_not():
        assert "TRITON_DIST_NATIVE_CALLS" in why or "table of DLPack" in why or "not built" in why, why
        return
    n_pes, hopper = world.n_pes, torch.cuda.get_device_capability() == (9, 0) and world.n_pes <= 8
    x, y = (triton_dist.zeros(N * n_pes, dtype=torch.bfloat16) for _ in range(2))
    gathered = triton_dist.zeros(N * n_pes * n_pes, dtype=torch.bfloat16)
    part = torch.zeros(N, dtype=torch.bfloat16, device=world.device)
    a, b = (torch.zeros(*shape, dtype=torch.bfloat16, device=world.device) for shape in ((128 * n_pes, 256), (256, N)))
    out, few = (triton_dist.zeros(rows, N, dtype=torch.bfloat16) for rows in (128 * n_pes, 16))
    calls: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], dict[str, object]]] = {
        "all_reduce": (kernels.all_reduce, (x,), {"out": y}),
        "all_gather": (kernels.all_gather, (gathered, x), {}),
        "reduce_scatter": (kernels.reduce_scatter, (part, x), {}),
        "all_to_all": (kernels.all_to_all, (y, x), {}),
        "broadcast": (kernels.broadcast, (x,), {"root": n_pes - 1}),
        "gemm_all_reduce": (kernels.gemm_all_reduce, (a[:16], b, few), {"algorithm": "fused"}),
    }
    if hopper:
        calls |= {
            "gemm_reduce_scatter": (kernels.gemm_reduce_scatter, (a, b, out[:128]), {"algorithm": "ring"}),
            "gemm_all_scatter": (
                kernels.gemm_all_scatter,
                (a, b, triton_dist.zeros(128 * n_pes, N * n_pes, dtype=torch.bfloat16)),
                {"algorithm": "warp_specialized"},
            ),
        }
    native, own, side = of_process(NativeCalls), torch.Generator(world.device), torch.cuda.Stream()
    for name, (function, tensors, options) in calls.items():

        def fill(seed: int, name: str = name) -> None:
            own.manual_seed(1000 * seed + (0 if name == "gemm_all_scatter" else world.pe))
            x.copy_(_values(world.pe, seed, N * n_pes))
            a.copy_(torch.randint(-4, 5, a.shape, generator=own, device=world.device))
            b.copy_(torch.randint(-4, 5, b.shape, generator=own, device=world.device))

        def by_cpp(
            name: str = name,
            given: tuple[torch.Tensor, ...] = tensors,
            options: dict[str, object] = options,
        ) -> torch.Tensor:
            by_position = (*given, None)[:3] if name.startswith("gemm") else given
            result: torch.Tensor | None = native.call(name, by_position, options)
            assert result is not None, f"{name}: C++ has left the call to Python"
            return result

        expected = []
        for seed in range(8):
            fill(seed)
            communicator_of().own(Prepared).forget()
            expected.append(function(*tensors, **options).clone())
            triton_dist.barrier_all()
        for _ in range(2):
            function(*tensors, **options)
        for seed in range(8):
            fill(seed)
            expect_equal(by_cpp(), expected[seed], f"{name} {seed}")
            triton_dist.barrier_all()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            function(*tensors, **options)
            fill(3)
            expect_equal(by_cpp(), expected[3], f"{name}, on another stream")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function(*tensors, **options)
            captured = by_cpp()
        for seed in (5, 6):
            fill(seed)
            graph.replay()
            expect_equal(captured, expected[seed], f"{name} {seed}, from a graph")
            triton_dist.barrier_all()
        function(*tensors, **options)


@check(gpu_only=True, maps_all=True, own_gpu=True)
def calls_with_new_results_are_repeated_by_cpp(world: World) -> None:
    """Direct and from a graph: what a call through Python computes, in memory that no other result has."""
    if native_calls.why_not():  # the check in front says whether that is as it must be
        return
    generator = torch.Generator(world.device)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=world.device).to(torch.bfloat16)

    generator.manual_seed(1)  # the same on every PE
    weight, b, q = random(256), random(256, N), random(4, 8, 64)
    generator.manual_seed(2 + world.pe)
    rows, cache = random(16, 256), random(4, 64, 2, 64)
    lengths = torch.full((4,), 100, dtype=torch.int32, device=world.device)
    functional = kernels.functional
    calls: dict[str, tuple[Callable[..., object], tuple[torch.Tensor, ...]]] = {
        "all_reduce_norm": (partial(kernels.all_reduce_norm, algorithm="one_shot"), (rows, weight)),
        "flash_decode": (kernels.flash_decode, (q, cache, cache, lengths)),
        "norm_gemm": (kernels.norm_gemm, (rows, b, weight)),
        "functional.all_reduce": (functional.all_reduce, (rows,)),
        "functional.all_gather": (functional.all_gather, (rows,)),
        "functional.norm_gemm": (functional.norm_gemm, (rows, b, weight)),
        "functional.flash_decode": (functional.flash_decode, (q, cache, cache, lengths)),
    }
    native = of_process(NativeCalls)

    def tensors(result: object) -> list[torch.Tensor]:
        return [part for part in (result if isinstance(result, tuple) else (result,)) if part is not None]

    for name, (function, given) in calls.items():
        options = function.keywords if isinstance(function, partial) else {}
        communicator_of().own(Prepared).forget()
        world.own(LocalLaunches).close()
        expected = tensors(function(*given))
        for _ in range(7):
            function(*given)
        results = [expected]
        for i in range(8):
            result = native.call(sys.intern(name), given, options)
            assert result is not None, f"{name}: C++ has left the call to Python"
            results.append(tensors(result))
            for part, other in zip(results[-1], expected, strict=True):
                expect_equal(part, other, f"{name} {i}")
        addresses = [part.data_ptr() for parts in results for part in parts]
        assert len({*addresses}) == len(addresses), f"{name}: results share memory"
        if world.kind == "gpu":
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                function(*given)  # through Python, which orders the streams
                captured = native.call(sys.intern(name), given, options)
            for _ in range(3):
                graph.replay()
                for part, other in zip(tensors(captured), expected, strict=True):
                    expect_equal(part, other, f"{name}, from a graph")
            function(*given)
            torch.cuda.synchronize()


@check(gpu_only=True, maps_all=True, own_gpu=True)
def calls_of_several_parts_are_repeated_by_cpp(world: World) -> None:
    """Launches, copies beside them, PyTorch's GEMM, a collective behind it: what a call through Python computes; also
    from a graph."""
    if native_calls.why_not():  # an earlier check says whether that is as it must be
        return
    n_pes, device = world.n_pes, world.device
    hopper = torch.cuda.get_device_capability() == (9, 0) and n_pes <= 8
    x, y = (triton_dist.zeros(N * n_pes, dtype=torch.bfloat16) for _ in range(2))
    gathered = triton_dist.zeros(N * n_pes * n_pes, dtype=torch.bfloat16)
    a, b = (torch.zeros(*shape, dtype=torch.bfloat16, device=device) for shape in ((128 * n_pes, 256), (256, N)))
    own, all_rows = (torch.zeros(rows, N, dtype=torch.bfloat16, device=device) for rows in (128, 128 * n_pes * n_pes))
    summed, wide = (triton_dist.zeros(128 * n_pes, columns, dtype=torch.bfloat16) for columns in (N, N * n_pes))
    calls: list[tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], str]] = [
        (kernels.all_gather, (gathered, x), "copy_engine"),
        (kernels.all_to_all, (y, x), "copy_engine"),
        (kernels.all_gather_gemm, (a, b, all_rows), "bulk_synchronous"),
        (kernels.gemm_reduce_scatter, (a, b, own), "bulk_synchronous"),
        (kernels.gemm_all_reduce, (a, b, summed), "bulk_synchronous"),
        (kernels.gemm_all_scatter, (a, b, wide), "producer_consumer"),
        (kernels.gemm_all_scatter, (a, b, wide), "fused_sequential"),
    ]
    if hopper:
        calls += [
            (kernels.all_gather_gemm, (a, b, all_rows), "copy_engine"),
            (kernels.gemm_all_scatter, (a, b, wide), "copy_engine"),
        ]
    native, generator = of_process(NativeCalls), torch.Generator(device)
    for function, tensors, algorithm in calls:
        name = function.__name__
        what = f"{name}, {algorithm}"

        def fill(seed: int, name: str = name) -> None:
            generator.manual_seed(1000 * seed + (0 if name == "gemm_all_scatter" else world.pe))
            x.copy_(_values(world.pe, seed, N * n_pes))
            a.copy_(torch.randint(-4, 5, a.shape, generator=generator, device=device))
            b.copy_(torch.randint(-4, 5, b.shape, generator=generator, device=device))

        expected = []
        for seed in range(4):
            fill(seed)
            communicator_of().own(Prepared).forget()
            expected.append(function(*tensors, algorithm=algorithm).clone())
            triton_dist.barrier_all()
        for _ in range(2):
            function(*tensors, algorithm=algorithm)
        for seed in (2, 0, 3, 1):
            fill(seed)
            result = native.call(name, tensors, {"algorithm": algorithm})
            assert result is not None, f"{what}: C++ has left the call to Python"
            expect_equal(result, expected[seed], f"{what} {seed}")
            triton_dist.barrier_all()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function(*tensors, algorithm=algorithm)
            captured = function(*tensors, algorithm=algorithm)
        for seed in (3, 2):
            fill(seed)
            graph.replay()
            expect_equal(captured, expected[seed], f"{what} {seed}, from a graph")
            triton_dist.barrier_all()
        function(*tensors, algorithm=algorithm)
        torch.cuda.synchronize()


@check(gpu_only=True, maps_all=True, own_gpu=True)
def calls_of_experts_are_repeated_by_cpp(world: World) -> None:
    """The tokens come back as through Python, in tensors that no other result has."""
    if native_calls.why_not():
        return
    experts = 2 * world.n_pes
    generator = torch.Generator(world.device).manual_seed(world.pe)
    x = torch.randn(8, 512, generator=generator, device=world.device).to(torch.bfloat16)
    ids = torch.randint(0, experts, (8, 2), generator=generator, device=world.device)
    weights = torch.rand(8, 2, generator=generator, device=world.device)
    sizes = {"num_experts": experts, "max_tokens": 8}
    expected = moe.combine((received := moe.dispatch(x, ids, weights, **sizes)).x, received).clone()
    for _ in range(3):
        received = moe.dispatch(x, ids, weights, **sizes)
        moe.combine(received.x, received)
    native, memory = of_process(NativeCalls), set()
    for i in range(8):
        received = native.call("dispatch", (x, ids, weights), sizes)
        assert received is not None and received.routing.ids is ids, "C++ has left the dispatch to Python"
        returned = native.call("combine", (received.x, received), {})
        assert returned is not None, "C++ has left the combine to Python"
        expect_equal(returned, expected, f"tokens {i}")
        memory |= {received.x.data_ptr(), received.memory.data_ptr(), returned.data_ptr()}
    assert len(memory) >= 3


@check(gpu_only=True, maps_all=True, own_gpu=True)
def prepared_gemms_agree_with_ordinary_ones(world: World) -> None:
    """Bit for bit, with operands that lie elsewhere in each call."""
    n_pes, generator = world.n_pes, torch.Generator(world.device).manual_seed(world.pe)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator, device=world.device).to(torch.bfloat16)

    rows = 128 * n_pes
    for function, algorithm, m, shape, symmetric in (
        (kernels.gemm_all_reduce, "fused", 16, (16, 512), True),
        (kernels.gemm_all_reduce, "ring", rows, (rows, 512), True),
        (kernels.gemm_all_reduce, "direct", rows, (rows, 512), True),
        (kernels.gemm_reduce_scatter, "ring", rows, (128, 512), False),
        (kernels.gemm_reduce_scatter, "direct", rows, (128, 512), False),
        (kernels.all_gather_gemm, "copy_engine", 128, (rows, 512), False),
        (kernels.gemm_all_scatter, "warp_specialized", rows, (rows, 512 * n_pes), True),
        (kernels.gemm_all_scatter, "fused_producer_consumer", rows, (rows, 512 * n_pes), True),
        (kernels.gemm_all_reduce, "ring", 333, (333, 512), True),  # rows that fill no tile
        (kernels.gemm_reduce_scatter, "ring", 100 * n_pes, (100, 512), False),
        (kernels.all_gather_gemm, "copy_engine", 100, (100 * n_pes, 512), False),
        (kernels.all_gather_gemm, "push", 128, (rows, 512), False),
        (kernels.all_gather_gemm, "push", 100, (100 * n_pes, 512), False),
        (kernels.gemm_all_reduce, "bulk_synchronous", 16, (16, 512), True),  # several launches
        (kernels.gemm_reduce_scatter, "bulk_synchronous", rows, (128, 512), False),
        (kernels.all_gather_gemm, "bulk_synchronous", 100, (100 * n_pes, 512), False),
        (kernels.gemm_all_scatter, "bulk_synchronous", rows, (rows, 512 * n_pes), True),
    ):
        make = triton_dist.zeros if symmetric else torch.zeros
        where = {} if symmetric else {"device": world.device}
        out = make(*shape, dtype=torch.bfloat16, **where)
        reduces = function in (kernels.gemm_all_reduce, kernels.gemm_reduce_scatter)
        for i in range(12):
            a, b = matrix(m, 256), matrix(256, 512)
            if function is kernels.gemm_all_scatter:
                a = torch.ones_like(a)  # the same on every PE
            epilogue: dict[str, torch.Tensor] = {}
            if i >= 6:
                shared = torch.Generator(world.device).manual_seed(i)  # the same on every PE
                epilogue["bias"] = torch.randn(512, generator=shared, device=world.device)
                if reduces:
                    epilogue["residual"] = torch.randn(shape, generator=shared, device=world.device)
            call = partial(function, a, b, algorithm=algorithm, **epilogue)
            call(out=out)
            found = out.clone()
            triton_dist.barrier_all()
            communicator_of().own(Prepared).forget()
            call(out=out)
            expect_equal(out, found, f"{function.__name__}, {algorithm}, {[*epilogue]}")
            if not symmetric:
                expect_equal(call(), found, f"{function.__name__}, {algorithm}, {[*epilogue]}, new")
            triton_dist.barrier_all()


@check(gpu_only=True, maps_all=True)
def prepared_decode_and_experts_agree_with_ordinary_ones(world: World) -> None:
    """Bit for bit, direct and from a graph, with tensors that lie elsewhere and lengths that change."""
    n_pes, device = world.n_pes, world.device
    shared, own = (torch.Generator(device).manual_seed(seed) for seed in (7, 100 + world.pe))

    def values(*shape: int, generator: torch.Generator = own) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device).to(torch.bfloat16)

    sizes = {"num_experts": 4 * n_pes, "max_tokens": 16}
    large = 1 << 20
    gathered, exchanged = (triton_dist.zeros(n_pes * large, dtype=torch.bfloat16) for _ in range(2))

    def copies(x: torch.Tensor) -> list[torch.Tensor]:
        kernels.all_gather(gathered, x[:large], algorithm="copy_engine")
        kernels.all_to_all(exchanged, x, algorithm="copy_engine")
        return [gathered.clone(), exchanged.clone()]

    def halves(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
        received = moe.dispatch_receive(moe.dispatch_send(x, ids, weights, **sizes))
        routed = moe.gather_routing(ids, weights, **sizes)
        back = moe.combine_receive(moe.combine_send(received.x, received))
        return [back, received.counts, received.offsets, routed.counts, routed.offsets]

    for i in range(6):
        q, k, v = values(5, 8, 64, generator=shared), values(5, 256, 2, 64), values(5, 256, 2, 64)
        lengths = torch.randint(0, 256 * n_pes, (5,), generator=shared, device=device).int()
        weight, residual = values(512, 512), values(5, 512, generator=shared)
        a, b, norm = values(9, 512), values(512, 768), values(512)
        x, ids = values(16, 256), torch.randint(0, 4 * n_pes, (16, 2), generator=own, device=device)
        weights, parts = torch.rand(16, 2, generator=own, device=device), values(n_pes * large)
        calls: dict[str, Callable[[], Sequence[torch.Tensor]]] = {
            "flash_decode": partial(kernels.flash_decode, q, k, v, lengths),
            "flash_decode_projection": lambda: [
                kernels.flash_decode_projection(q, k, v, lengths, weight, residual=residual)  # noqa: B023
            ],
            "norm_gemm": lambda: [kernels.norm_gemm(a, b, norm)],  # noqa: B023
            "halves": partial(halves, x, ids, weights),
            "copies": partial(copies, parts),
        }
        for name, call in calls.items():
            found = [tensor.clone() for tensor in call()]
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = call()
            graph.replay()
            triton_dist.barrier_all()
            communicator_of().own(Prepared).forget()
            world.own(LocalLaunches).close()
            for ordinary, direct, replayed in zip(call(), found, captured, strict=True):
                expect_equal(direct, ordinary, f"{name}, {i}")
                expect_equal(replayed, ordinary, f"{name}, {i}, from a graph")
            triton_dist.barrier_all()


@check(gpu_only=True, maps_all=True, own_gpu=True)
def prepared_gemms_take_the_scales_of_the_call(world: World) -> None:
    """fp8 with scales of blocks and of whole operands, which lie elsewhere in each call: the bits of ordinary calls."""
    n_pes, generator = world.n_pes, torch.Generator(world.device).manual_seed(world.pe)
    rows, n, k, f8 = 128 * n_pes, 512, 256, torch.float8_e4m3fn
    hopper = torch.cuda.get_device_capability() == (9, 0) and n_pes <= 8

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, device=world.device)

    outs = {
        name: triton_dist.zeros(rows, columns, dtype=torch.bfloat16) for name, columns in (("", n), ("s", n * n_pes))
    }
    cases = [
        (kernels.gemm_all_reduce, "ring", rows, outs[""]),
        (kernels.gemm_all_reduce, "direct", rows, outs[""]),
        (kernels.gemm_reduce_scatter, "ring", rows, outs[""][:128]),
        (kernels.gemm_reduce_scatter, "direct", rows, outs[""][:128]),
        (kernels.all_gather_gemm, "copy_engine", 128, outs[""]),
        (kernels.all_gather_gemm, "push", 128, outs[""]),
        (kernels.gemm_all_scatter, "warp_specialized", rows, outs["s"]),
        (kernels.gemm_all_scatter, "fused_producer_consumer", rows, outs["s"]),
    ]
    cases = [case for case in cases if hopper] + [
        (kernels.gemm_all_reduce, "bulk_synchronous", rows, outs[""]),
        (kernels.all_gather_gemm, "bulk_synchronous", 128, outs[""]),
        (kernels.gemm_all_scatter, "fused_sequential", rows, outs["s"]),
    ]
    for function, algorithm, m, out in cases:
        for i in range(9):
            if i < 3 and algorithm == "push":
                continue  # it takes no scales of blocks
            a, b = (random(*shape).sub(0.5).to(f8) for shape in ((m, k), (n, k)))
            scales = (
                {"scale_a": random(m, k // 128), "scale_b": random(k // 128, n // 128)},
                {"scale_a": random(1), "scale_b": random(1)},
                {"scale_b": random(1)},
            )[i // 3]
            if function is kernels.gemm_all_scatter:  # the same on every PE
                a = torch.ones_like(a, dtype=torch.float32).to(f8)
                if "scale_a" in scales:
                    scales["scale_a"] = torch.full_like(scales["scale_a"], 0.5 + i)
            call = partial(function, a, b.t(), out, algorithm=algorithm, **scales)
            call()
            found = out.clone()
            triton_dist.barrier_all()
            communicator_of().own(Prepared).forget()
            call()
            expect_equal(out, found, f"{function.__name__}, {algorithm}, {i}")
            triton_dist.barrier_all()
