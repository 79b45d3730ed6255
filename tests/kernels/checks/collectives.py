"""Collectives against PyTorch: every algorithm, several types, any size, again and again in one workspace."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from harness import examples, noise, raises
from harness import main as run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from triton_dist.kernels.communicator import Communicator, communicator_of

together = settings(  # all PEs draw the same
    max_examples=examples(12),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
MOVED = (torch.uint8, torch.bfloat16, torch.float32, torch.int64)
SUMMED = (torch.float16, torch.bfloat16, torch.float32)
SIZES = st.one_of(st.integers(0, 40), st.integers(41, 5000))
_symmetric: dict[str, torch.Tensor] = {}


def place(name: str, numel: int, dtype: torch.dtype) -> torch.Tensor:
    """A piece of a symmetric tensor, with what other examples left in it."""
    if name not in _symmetric:
        _symmetric[name] = triton_dist.empty(1 << 18, dtype=torch.uint8)
    return _symmetric[name][: numel * dtype.itemsize].view(dtype)


def numbers(numel: int, dtype: torch.dtype, pe: int) -> torch.Tensor:
    """Small integers, whose sums any float holds exactly, so that the order of additions does not show."""
    return torch.randint(-8, 8, (numel,), generator=torch.Generator().manual_seed(pe)).to(dtype)


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8)), f"{found} is not {expected}"


def guarded(name: str, numel: int, dtype: torch.dtype) -> tuple[torch.Tensor, Callable[[], None]]:
    """A symmetric tensor, and a look that nothing behind it was written to."""
    tensor = place(name, numel, dtype)
    behind = _symmetric[name][tensor.numel() * dtype.itemsize :][:64]
    behind.fill_(77)
    triton_dist.barrier_all()

    def look() -> None:
        triton_dist.barrier_all()
        assert (behind == 77).all(), "elements behind the tensor were written to"

    return tensor, look


def each(*algorithms: str) -> Any:
    return st.sampled_from(algorithms)


def check_all_gather(world: Any) -> None:
    @together
    @given(SIZES, st.sampled_from(MOVED), each("low_latency", "push", "copy_engine", "two_level", "auto"))
    def example(n: int, dtype: torch.dtype, algorithm: str) -> None:
        n = min(n, 1000) if algorithm == "low_latency" else n
        output, look = guarded("output", n * world.n_pes, dtype)
        input = noise(n, dtype, world.pe)
        kernels.all_gather(output, input, algorithm=algorithm)
        same(output, torch.cat([noise(n, dtype, pe) for pe in range(world.n_pes)]))
        look()

    example()


def check_reduce_scatter(world: Any) -> None:
    @together
    @given(SIZES, st.sampled_from(SUMMED), each("low_latency", "exchange", "push", "two_level", "auto"))
    def example(n: int, dtype: torch.dtype, algorithm: str) -> None:
        n = min(n, 1000) if algorithm == "low_latency" else n
        input = place("input", n * world.n_pes, dtype)
        output, look = guarded("output", n, dtype)
        input.copy_(numbers(input.numel(), dtype, world.pe))
        kernels.reduce_scatter(output, input, algorithm=algorithm)
        input.zero_()  # it may be overwritten
        total = sum(numbers(n * world.n_pes, torch.float32, pe) for pe in range(world.n_pes))
        same(output, total.view(world.n_pes, n)[world.pe].to(dtype))
        look()

    example()


def check_all_reduce(world: Any) -> None:
    @together
    @given(
        SIZES,
        st.sampled_from(SUMMED),
        each("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct", "two_level", "auto"),
        st.booleans(),
    )
    def example(n: int, dtype: torch.dtype, algorithm: str, in_place: bool) -> None:
        n = min(n, 1000) if algorithm in ("one_shot", "two_shot") else n
        tensor, look = guarded("input", n, dtype)
        tensor.copy_(numbers(n, dtype, world.pe))
        out = None if in_place else place("output", n, dtype)
        result = kernels.all_reduce(tensor, out=out, algorithm=algorithm)
        assert result.data_ptr() == (tensor if in_place else out).data_ptr() or not n
        same(result, sum(numbers(n, torch.float32, pe) for pe in range(world.n_pes)).to(dtype))
        look()

    example()


def check_sums_are_rounded_once(world: Any) -> None:
    """What bfloat16 could not hold in between, and what float32 can."""
    parts = [256.0, 1.0, 1.0, 1.0][: world.n_pes]
    for algorithm in ("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct"):
        tensor = triton_dist.full((33,), parts[world.pe], dtype=torch.bfloat16)
        kernels.all_reduce(tensor, algorithm=algorithm)
        same(tensor, torch.full((33,), sum(parts)).bfloat16())
        triton_dist.free(tensor)


REDUCED = (*SUMMED, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64)


def edges(numel: int, dtype: torch.dtype, pe: int) -> torch.Tensor:
    """The least and greatest elements, -1, 0 and what lies between, in another order on every PE."""
    random = torch.Generator().manual_seed(pe)
    if dtype.is_floating_point:
        values = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, torch.nan, torch.inf, -torch.inf], dtype=dtype)
    else:
        least, greatest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        values = torch.tensor([least, least + 1, -1 % 256 if least == 0 else -1, 0, 1, greatest - 1, greatest])
        # -0.0 of every type of float, which the sentinel protocol reserves, and numbers of LL exchanges.
        words = [word for word in (-0x80000000, 0x8000, -0x7FFF8000, 2, 3) if least <= word <= greatest]
        values = torch.cat([values, torch.tensor(words, dtype=torch.int64)]).to(dtype)
    return values[torch.randint(0, len(values), (numel,), generator=random)]


def reduced(parts: list[torch.Tensor], op: str) -> torch.Tensor:
    """What torch makes of all PEs' tensors, in their own type if they are integers."""
    dtype = parts[0].dtype
    wide = dtype if not dtype.is_floating_point or dtype == torch.float64 else torch.float32
    if op in ("sum", "avg"):
        total = torch.stack(parts).to(wide).sum(0, dtype=wide)
        return (total / len(parts) if op == "avg" else total).to(dtype)
    combine = {"max": torch.fmax, "min": torch.fmin}[op]
    total = parts[0]
    for part in parts[1:]:
        total = combine(total, part)
    return total


def equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    """The same values; -0.0 is 0.0."""
    assert found.dtype == expected.dtype
    assert torch.allclose(found, expected, rtol=0, atol=0, equal_nan=True), f"{found} is not {expected}"


def check_every_type_is_reduced(world: Any) -> None:
    everybody = range(world.n_pes)

    @settings(together, max_examples=examples(18))
    @given(
        SIZES,
        st.sampled_from(REDUCED),
        each("sum", "max", "min", "avg"),
        each("one_shot", "two_shot", "push", "direct", "auto"),
        st.booleans(),
    )
    def example(n: int, dtype: torch.dtype, op: str, algorithm: str, at_edges: bool) -> None:
        if op == "avg" and not dtype.is_floating_point:
            op = "sum"
        small = algorithm in ("one_shot", "two_shot")
        n = min(n, 1000) if small else n
        of = edges if at_edges else numbers
        tensor, look = guarded("input", n, dtype)
        tensor.copy_(of(n, dtype, world.pe))
        kernels.all_reduce(tensor, op, algorithm=algorithm)
        equal(tensor, reduced([of(n, dtype, pe) for pe in everybody], op))
        look()
        input = of(n * world.n_pes, dtype, world.pe)
        output, look = guarded("output", n, dtype)
        kernels.reduce_scatter(output, input, op, algorithm="low_latency" if small else "auto" if at_edges else "push")
        whole = reduced([of(n * world.n_pes, dtype, pe) for pe in everybody], op)
        equal(output, whole.view(world.n_pes, n)[world.pe])
        look()

    example()


def check_nan(world: Any) -> None:
    """Of a NaN and a number the number; of NaNs a NaN, and no warning."""
    mine = [torch.nan, torch.nan if world.pe else 1.0, 2.0 if world.pe else torch.nan, -0.0] * 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for algorithm in ("one_shot", "two_shot", "push", "direct"):
            for op in ("max", "min"):
                tensor = triton_dist.from_tensor(torch.tensor(mine))
                found = kernels.all_reduce(tensor, op, algorithm=algorithm).view(8, 4)
                expected = torch.tensor([torch.nan, 1.0, 2.0 if world.n_pes > 1 else torch.nan, 0.0])
                equal(found, expected.expand(8, 4))
                triton_dist.barrier_all()
                triton_dist.free(tensor)


def check_bytes_of_every_value(world: Any) -> None:
    """Every byte with those at the edges, as one element or as parts of a word."""
    edge = torch.tensor([0, 1, 2, 13, 126, 127, 128, 129, 200, 254, 255])  # 11: each is at every place of a word
    pairs = torch.cartesian_prod(torch.arange(256), edge).t()
    for dtype in (torch.int8, torch.uint8):
        parts = [(pairs[pe % 2] + pe // 2).to(torch.uint8).view(dtype) for pe in range(world.n_pes)]
        for op in ("sum", "max", "min"):
            tensor = place("input", pairs.shape[1], dtype)
            tensor.copy_(parts[world.pe])
            triton_dist.barrier_all()
            kernels.all_reduce(tensor, op, algorithm="two_shot")
            same(tensor, reduced(parts, op))
            triton_dist.barrier_all()


def check_all_to_all(world: Any) -> None:
    @together
    @given(SIZES, st.sampled_from(MOVED), each("low_latency", "push", "copy_engine", "two_level", "auto"))
    def example(n: int, dtype: torch.dtype, algorithm: str) -> None:
        n = min(n, 1000) if algorithm == "low_latency" else n
        output, look = guarded("output", n * world.n_pes, dtype)
        kernels.all_to_all(output, noise(n * world.n_pes, dtype, world.pe), algorithm=algorithm)
        everybody = [noise(n * world.n_pes, dtype, pe).view(world.n_pes, n) for pe in range(world.n_pes)]
        same(output, torch.cat([parts[world.pe] for parts in everybody]))
        look()

    example()


def check_broadcast(world: Any) -> None:
    @together
    @given(
        SIZES, st.sampled_from(MOVED), each("low_latency", "push", "scatter", "two_level", "auto"), st.integers(0, 3)
    )
    def example(n: int, dtype: torch.dtype, algorithm: str, root: int) -> None:
        n, root = min(n, 500) if algorithm == "low_latency" else n, root % world.n_pes
        tensor, look = guarded("input", n, dtype)
        tensor.copy_(noise(n, dtype, world.pe))
        triton_dist.barrier_all()
        kernels.broadcast(tensor, root, algorithm=algorithm)
        same(tensor, noise(n, dtype, root))
        look()

    example()


def check_many_rounds(world: Any) -> None:
    """With few programs, so that they need several rounds, and use halves of the staging memory in turn."""
    from triton_dist.kernels import all_reduce, broadcast, reduce_scatter

    modules = {function.__module__: inspect.getmodule(function) for function in (all_reduce, broadcast, reduce_scatter)}
    all_reduce, broadcast, reduce_scatter = modules.values()
    comm = communicator_of()
    for times, programs in enumerate((3, 2)):
        tensor, part = place("input", 1500 * world.n_pes, torch.float32), place("output", 1500, torch.float32)
        tensor.copy_(numbers(tensor.numel(), torch.float32, world.pe + times))
        total = sum(numbers(tensor.numel(), torch.float32, pe + times) for pe in range(world.n_pes))
        reduce_scatter.push(comm, part, tensor, programs=programs)
        same(part, total.view(world.n_pes, -1)[world.pe])
        all_reduce.push(comm, tensor, tensor, programs=programs)
        same(tensor, total)
        triton_dist.barrier_all()
        root = times % world.n_pes
        tensor.copy_(noise(tensor.numel(), torch.float32, world.pe))
        triton_dist.barrier_all()
        broadcast.scatter(comm, tensor, root, programs=programs, rounds=3, block=64)
        same(tensor, noise(tensor.numel(), torch.float32, root))
        triton_dist.barrier_all()


def check_small_ones_need_no_symmetric_tensor(world: Any) -> None:
    n = 96
    here = numbers(n, torch.float32, world.pe)
    everybody = [numbers(n, torch.float32, pe) for pe in range(world.n_pes)]
    same(kernels.all_gather(torch.empty(world.n_pes * n), here), torch.cat(everybody))
    same(kernels.all_reduce(here.clone()), sum(everybody))
    same(kernels.broadcast(here.clone(), world.n_pes - 1), everybody[-1])
    if n % world.n_pes == 0:
        part = n // world.n_pes
        mine = slice(world.pe * part, (world.pe + 1) * part)
        same(kernels.reduce_scatter(torch.empty(part), here), sum(everybody)[mine])
        same(kernels.all_to_all(torch.empty(n), here), torch.cat([other[mine] for other in everybody]))


def check_empty_tensors_are_compared(world: Any) -> None:
    """No kernel waits for members whose tensors are not empty: without the comparison later calls would meet theirs."""
    x = torch.empty(0)
    calls = {
        "all_gather": (x, x),
        "all_to_all": (x, x),
        "broadcast": (x,),
        "reduce_scatter": (x, x),
        "all_reduce": (x,),
    }
    for name, tensors in calls.items():
        with mock.patch.object(Communicator, "compare") as compare:
            assert getattr(kernels, name)(*tensors) is tensors[0]
        compare.assert_called_once()
        assert compare.call_args.args[:2] == (name, x.shape)


def check_parts_of_two_gigabytes_have_offsets_of_64_bits(world: Any) -> None:
    """Of tensors without memory: which kernels would be launched."""
    comm, launched = communicator_of(), []

    def note(kernel: Any, grid: Any, tensors: Any, *others: Any, **named: Any) -> None:
        given = dict(zip(kernel.arg_names, (*tensors, *others), strict=False)) | named
        launched.append(given["WIDE"])

    n = world.n_pes
    for part, wide in (((1 << 31) - (1 << 26), False), ((1 << 31) - 1, True), (1 << 31, True)):
        x, whole = (torch.empty(size, dtype=torch.int8, device="meta") for size in (part, part * n))
        with ExitStack() as stack:
            for module in (all_gather, all_reduce, all_to_all, broadcast, reduce_scatter):
                stack.enter_context(mock.patch.object(module, "launch", note))
            all_gather.push(comm, whole, x)
            all_to_all.push(comm, whole, whole)
            broadcast.push(comm, x, 0)
            reduce_scatter.push(comm, x, whole)
            all_reduce.push(comm, whole, whole)
            all_reduce.direct(comm, whole, whole)
        assert launched == [wide] * 6, (part, launched)
        launched.clear()


def check_one_element_of_any_stride(world: Any) -> None:
    """It is contiguous, as a counter that is taken from a row."""
    n = world.n_pes
    for dtype in (torch.int64, torch.float64):
        counts = torch.full((1, 2), 1 + world.pe, dtype=dtype)
        kernels.all_reduce(counts[:, 1])
        assert counts.tolist() == [[1 + world.pe, n * (n + 1) // 2]]
        gathered = torch.zeros(n, dtype=dtype)
        kernels.all_gather(gathered, counts[:, 0])
        assert gathered.tolist() == list(range(1, n + 1))


def check_in_place_here_and_with_out_there(world: Any) -> None:
    """The same call, as long as peers store to the same symmetric tensor."""
    n = world.n_pes
    out = triton_dist.full((1 << 12,), 1.0 + world.pe)
    kernels.all_reduce(out if world.pe == 0 else out.clone(), out=out, algorithm="push")
    assert (out == n * (n + 1) / 2).all()


def check_mistakes(world: Any) -> None:
    n = world.n_pes
    big, small = torch.zeros(n << 18), torch.zeros(8)
    symmetric = triton_dist.zeros(8 * n)
    with raises(ValueError, "all_gather: output", "must be symmetric", rf"{n << 20} bytes"):
        kernels.all_gather(big, torch.zeros(1 << 18))
    with raises(ValueError, "all_reduce: tensor, of .* must be symmetric .* algorithm direct, and it was allocated"):
        kernels.all_reduce(small, algorithm="direct")
    freed = triton_dist.zeros(8)
    with raises(ValueError, "all_reduce: out, of .* must be symmetric .* algorithm push, and it was allocated"):
        kernels.all_reduce(freed, out=small, algorithm="push")
    triton_dist.free(freed)
    with raises(ValueError, "all_reduce: tensor, of .* must be symmetric .* and it was freed"):
        kernels.all_reduce(freed, algorithm="push")
    with raises(ValueError, f"all_gather: output must have {n} times the elements of input", r"\(8,\)"):
        kernels.all_gather(torch.zeros(8 * n + 1), small)
    with raises(ValueError, "input is of torch.float16, and output of torch.float32"):
        kernels.all_gather(symmetric, small.half())
    with raises(ValueError, "input must be contiguous, .*strides"):
        kernels.all_to_all(symmetric, torch.zeros(8 * n, 2)[:, 0])
    with raises(ValueError, "all_reduce: op must be 'sum', 'max', 'min', 'avg', got 'prod'"):
        kernels.all_reduce(small, "prod")
    with raises(ValueError, "sum is of torch.float16, .*torch.uint8, torch.int32, torch.int64, got torch.int16"):
        kernels.all_reduce(torch.zeros(8, dtype=torch.int16))
    with raises(ValueError, "reduce_scatter: avg is of torch.float16, .*, torch.float64, got torch.int64"):
        kernels.reduce_scatter(small.long(), symmetric.long(), "avg")
    with raises(ValueError, "algorithm must be auto, low_latency, exchange, push, two_level, got 'ring'"):
        kernels.reduce_scatter(small, symmetric, algorithm="ring")
    with raises(ValueError, rf"root must be in \[0, {n}\), got {n}"):
        kernels.broadcast(symmetric, n)
    with raises(TypeError, "tensor must be a torch.Tensor, got list"):
        kernels.all_reduce([1.0])
    with raises(ValueError, "too many for algorithm low_latency"):
        kernels.broadcast(big, algorithm="low_latency")


def view_of(flat: torch.Tensor, begin: int, values: torch.Tensor) -> torch.Tensor:
    """A view from an element on, with these values; others are 77."""
    flat.fill_(77)
    return flat[begin : begin + len(values)].copy_(values)


def check_views_that_begin_anywhere(world: Any) -> None:
    """Views of flat buffers, which need not begin at a multiple of 4 bytes: each PE's at another place, or at the same
    place of a symmetric buffer, where algorithms take it that store to peers."""
    n, me = world.n_pes, world.pe
    anywhere = {
        "all_gather": ("low_latency", "exchange", "two_level", "auto"),
        "reduce_scatter": ("low_latency", "exchange", "push", "auto"),
        "all_reduce": ("one_shot", "two_shot", "exchange", "two_level", "auto"),
        "all_to_all": ("low_latency", "auto"),
        "broadcast": ("low_latency", "two_level", "auto"),
    }
    by_stores = {
        "all_gather": ("push", "copy_engine", "exchange"),
        "all_reduce": ("push", "direct", "one_shot", "exchange"),
        "all_to_all": ("push", "copy_engine"),
        "broadcast": ("push", "scatter"),
    }
    for dtype in (torch.bfloat16, torch.uint8):
        own, flat = (torch.empty(64 * n + 8, dtype=dtype) for _ in range(2))
        symmetric = triton_dist.empty(64 * n + 8, dtype=dtype)
        values = [numbers(64 * n, torch.int64, pe).abs().to(dtype) for pe in range(n)]
        total = torch.stack([other.float() for other in values]).sum(0).to(dtype)
        calls = [(name, algorithm, flat, 1 + me % 3) for name in anywhere for algorithm in anywhere[name]]
        calls += [(name, algorithm, symmetric, 3) for name in by_stores for algorithm in (*by_stores[name], "auto")]
        for name, algorithm, output, begin in calls:
            if algorithm == "exchange" and not dtype.is_floating_point:
                continue
            input = view_of(own, 1 + (me + 1) % 3, values[me])
            if name == "all_gather":
                out = view_of(output, begin, values[me])
                kernels.all_gather(out, input[:64], algorithm=algorithm)
                expected = torch.cat([other[:64] for other in values])
            elif name == "reduce_scatter":
                out = view_of(output, begin, values[me][:64])
                kernels.reduce_scatter(out, input, algorithm=algorithm)
                expected = total.view(n, 64)[me]
            elif name == "all_to_all":
                out = view_of(output, begin, values[me])
                kernels.all_to_all(out, input, algorithm=algorithm)
                expected = torch.cat([other.view(n, 64)[me] for other in values])
            else:
                out = view_of(output, begin, values[me])
                if name == "all_reduce":
                    assert kernels.all_reduce(out, algorithm=algorithm) is out
                else:
                    assert kernels.broadcast(out, n - 1, algorithm=algorithm) is out
                expected = total if name == "all_reduce" else values[n - 1]
            same(out, expected)
            triton_dist.barrier_all()
            rest = torch.cat([output[:begin], output[begin + len(out) :]])
            assert (rest == 77).all(), f"{name}, {algorithm}: elements beside the view"


def check_no_algorithm_is_left_out(world: Any) -> None:
    source = inspect.getsource(inspect.getmodule(check_mistakes))
    for name in kernels.__all__:
        module = inspect.getmodule(getattr(kernels, name))
        if ".collectives." not in module.__name__:  # a GEMM or a norm: gemms.py, norms.py
            continue
        examples = source[source.index(f"def check_{name}(") :].split("\ndef ")[0]
        assert all(f'"{algorithm}"' in examples for algorithm in module.ALGORITHMS), name


if __name__ == "__main__":
    run(globals())
