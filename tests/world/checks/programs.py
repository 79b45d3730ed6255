"""The programs of a grid as coroutines, and how Triton's decorators behave here. For one PE."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import triton
import triton.language as tl
from harness import main, place, raises
from triton.language import load as imported_load
from triton.runtime.interpreter import InterpreterBuilder
from triton.tools.tensor_descriptor import TensorDescriptor

import triton_dist
import triton_dist.language as dl
from triton_dist.cpu.runtime.backoff import Backoff


@triton.jit
def wait_for_next(signals, out):
    """Program i waits for program i + 1; only the last can go on at once."""
    i = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    last = tl.num_programs(0) * tl.num_programs(1) - 1
    if i < last:
        dl.signal_wait_until(signals + i, dl.CMP_EQ, i + 1)
    tl.store(out + i, i)
    if i > 0:
        dl.signal_op(signals + i - 1, i, dl.SIGNAL_SET, dl.my_pe())


def check_waiting_for_later_programs(world: Any) -> None:
    out, signals = torch.full((600,), -1), triton_dist.zeros(600, dtype=torch.int64)
    wait_for_next[(20, 30)](signals, out)
    assert out.tolist() == list(range(600))


@triton.jit
def spin_on_atomics(flags, out, HOW: tl.constexpr):
    """The same chain with flags in plain memory, looked at in several ways."""
    i = tl.program_id(0)
    if i + 1 < tl.num_programs(0):
        if HOW == "cas":
            while tl.atomic_cas(flags + i, 1, 2) != 1:
                pass
        elif HOW == "add":
            while tl.atomic_add(flags + i, 0) != 1:
                pass
        elif HOW == "volatile":
            while tl.load(flags + i, volatile=True) != 1:
                pass
        elif HOW == "atomic_load":
            while tl.atomic_load(flags + i) != 1:
                pass
        elif HOW == "atomic_poll":
            tl.device_assert(tl.atomic_poll(flags + i, 1))
        else:
            while tl.load(flags + i) != 1:
                pass
    tl.store(out + i, i)
    if i > 0:
        tl.atomic_xchg(flags + i - 1, 1)


def check_spinning_on_plain_memory(world: Any) -> None:
    since_3_9 = ("atomic_load", "atomic_poll") if hasattr(tl, "atomic_poll") else ()
    for how in ("cas", "add", "volatile", "plain", *since_3_9):
        flags, out = torch.zeros(20, dtype=torch.int32), torch.zeros(20, dtype=torch.int32)
        spin_on_atomics[(20,)](flags, out, how)
        assert out.tolist() == list(range(20))


@triton.jit
def locked_increment(lock, counter, times):
    for _ in range(times):
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        tl.store(counter, tl.load(counter) + 1)
        tl.atomic_xchg(lock, 0)


@triton.jit
def arrive_and_wait_block(flags, out, N: tl.constexpr):
    """A barrier of all programs that looks at all flags in one load."""
    i = tl.program_id(0)
    tl.store(flags + i, 1)
    while tl.sum(tl.load(flags + tl.arange(0, N), volatile=True), axis=0) < N:
        pass
    tl.store(out + i, 1)


def check_locks_and_barriers_of_programs(world: Any) -> None:
    lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    locked_increment[(8,)](lock, counter, 25)
    assert counter.item() == 200
    flags, out = torch.zeros(16, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    arrive_and_wait_block[(16,)](flags, out, 16)
    assert out.sum() == 16


class Pair(NamedTuple):
    first: Any
    second: Any


@triton.jit
def pair_of(x):
    return Pair(x, Pair(x + 1, 2))


@triton.jit
def take_apart(out, x):
    pair = pair_of(x)
    tl.store(out, pair.first)
    tl.store(out + 1, pair.second.first * pair.second.second)


def check_named_tuples_keep_their_names(world: Any) -> None:
    out = torch.zeros(2, dtype=torch.int32)
    take_apart[(1,)](out, 5)
    assert out.tolist() == [5, 12]


@triton.jit
def count(out):
    tl.atomic_add(out, 1)


def check_large_grids_start_programs_one_by_one(world: Any) -> None:
    from triton_dist.cpu.program import Program

    alive, most = [], []

    class Counting(Program):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            alive[:] = [program for program in alive if not program.dead] + [self]
            most.append(len(alive))

    out = torch.zeros(1, dtype=torch.int32)
    with mock.patch("triton_dist.cpu.executor.Program", Counting):
        count[(10, 20, 5)](out)
    assert out.item() == len(most) == 1000 and max(most) == 1


@triton.jit
def never(signals, flag):
    i = tl.program_id(0)
    if i == 0:
        dl.signal_wait_until(signals + 2, dl.CMP_GE, 41)  # HERE 0
    elif i == 1:
        wait_in_a_function(signals)
    elif i == 2:
        while tl.atomic_add(flag, 0) == 7:  # HERE 2
            pass
    else:
        tl.store(signals + 7, 1)


@triton.jit
def wait_in_a_function(signals):
    dl.signal_wait_until(signals, dl.CMP_LT, 3)  # HERE 1


def check_report_of_a_kernel_that_cannot_go_on(world: Any) -> None:
    """And meanwhile it sleeps, for 0.2 ms each time, after some looks in a row."""
    pauses = 0

    class Counting:
        def __init__(self) -> None:
            self.backoff = Backoff()

        def pause(self) -> None:
            nonlocal pauses
            pauses += 1
            self.backoff.pause()

        def reset(self) -> None:
            self.backoff.reset()

    signals = triton_dist.full((8,), 5, dtype=torch.int64)
    flag = torch.full((1,), 7, dtype=torch.int32)
    begin = time.monotonic()
    with (
        mock.patch("triton_dist.cpu.scheduler.Backoff", Counting),
        mock.patch.dict(os.environ, TRITON_DIST_WAIT_TIMEOUT="1.5"),
        raises(
            RuntimeError,
            r"^PE 0, kernel never: no program could go on for 1.5 s \(TRITON_DIST_WAIT_TIMEOUT\)\n",
            rf"program \(0, 0, 0\) at \S*{place('0')} waits in signal_wait_until: {signals[2:].data_ptr():#x} \("
            rf"element 2 of the symmetric tensor \(\(8,\), torch.int64\) on PE 0\) >= 41, seen 5\n",
            rf"program \(1, 0, 0\) at \S*{place('1')} waits in signal_wait_until: .*element 0.* < 3, seen 5\n",
            rf"program \(2, 0, 0\) at \S*{place('2')} waits in a loop around tl.atomic_add: {flag.data_ptr():#x} "
            r"\(not symmetric\), which stays \[7\]$",
        ),
    ):
        never[(4,)](signals, flag)
    assert time.monotonic() - begin > 1.4 and signals[7] == 1
    assert 0 < pauses < 1.5 / 0.2e-3 + 100


@triton.jit
def fail(x, n):
    if tl.program_id(1) == 1:
        helper(x, n)


@triton.jit
def helper(x, n):
    assert n > 100, "n is too small"  # HERE helper


def check_errors_name_their_place(world: Any) -> None:
    text = rf"kernel fail, program \(0, 1, 0\), \S*{place('helper')}: AssertionError: n is too small"
    with raises(RuntimeError, text):
        fail[(1, 2)](torch.zeros(1), 3)


@triton.jit
def chained(x, calls, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, (1 < tl.load(x + i) < 5).to(tl.int32))
    if 0 <= tl.atomic_add(calls, 1) < S <= 8:
        tl.store(out, 50)
    if 8 < S < tl.atomic_add(calls, 1):
        tl.store(out, 60)


def check_chained_comparisons_are_what_the_compiler_makes_of_them(world: Any) -> None:
    """Since Triton 3.9: the middle operand is evaluated once, and none behind a constant that is false."""
    x, calls, out = torch.arange(8), torch.zeros(1, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
        with raises(triton.runtime.errors.InterpreterError, "simultaneous multiple comparison is not supported"):
            chained[(1,)](x, calls, out, S=8)
        return
    chained[(1,)](x, calls, out, S=8)
    assert out.tolist() == [50, 0, 1, 1, 1, 0, 0, 0] and calls.item() == 1


@triton.jit
def through_tuples(x, values):
    doubled = [2 * value for value in values]
    for i in tl.static_range(3):
        tl.store(x + i, doubled[i])


@triton.jit
def through_a_range(x):
    numbers = [i for i in range(3)]  # noqa: C416
    tl.store(x, numbers[2])


def check_comprehensions_go_through_tuples(world: Any) -> None:
    x = torch.zeros(3, dtype=torch.int32)
    through_tuples[(1,)](x, (3, 4, 5))
    assert x.tolist() == [6, 8, 10]
    with raises(triton.runtime.errors.InterpreterError, "only tuple comprehensions are supported"):
        through_a_range[(1,)](x)


@triton.autotune([triton.Config({"B": 4}, num_warps=2), triton.Config({"B": 8})], key=["n"], reset_to_zero=["calls"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@triton.jit
def tuned(x, calls, n, B: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, B * 10 + EVEN, mask=at < n)
    tl.atomic_add(calls, 1)


def check_autotune_takes_the_first(world: Any) -> None:
    x, calls = torch.zeros(16, dtype=torch.int32), torch.full((1,), 5, dtype=torch.int32)
    tuned[lambda meta: (triton.cdiv(meta["n"], meta["B"]),)](x, calls, 16)
    assert x.tolist() == [41] * 16
    assert calls.item() == 4  # reset once, as tuning would, and run once
    tuned[lambda meta: (triton.cdiv(meta["n"], meta["B"]),)](x, calls, 16)
    assert calls.item() == 8


@triton.autotune([triton.Config({"B": 4}), triton.Config({"B": 8})], key=["n"], use_cuda_graph=True)
@triton.jit
def tuned_in_a_graph(out, n, B: tl.constexpr):
    tl.store(out, B)


def check_autotune_needs_no_cuda_graph(world: Any) -> None:
    out = torch.zeros(1)
    tuned_in_a_graph[(1,)](out, 16)
    assert out.item() == 4


@triton.autotune(
    [triton.Config({"B": 4}), triton.Config({"B": 8})],
    key=[],
    prune_configs_by={"early_config_prune": lambda configs, named_args, **kwargs: configs[1:]},
)
@triton.jit
def pruned(x, B: tl.constexpr):
    tl.store(x, B)


def check_autotune_heeds_pruning(world: Any) -> None:
    x = torch.zeros(1, dtype=torch.int32)
    pruned[(1,)](x)
    assert x.item() == 8


@triton.jit
def arguments(out, flag, scale, pair, C: tl.constexpr):
    if flag:
        tl.store(out, (imported_load(out) * scale).to(tl.float32) + pair[0] + pair[1] + C)


def check_arguments(world: Any) -> None:
    """Bools, floats, tuples and names imported one by one."""
    out = torch.full((1,), 3.0)
    arguments[(1,)](out, False, 0.5, (1, 2), 4, num_warps=8)
    assert out.item() == 3
    arguments[(1,)](out, True, 0.5, (1, 2), 4)
    assert out.item() == 8.5
    with raises(RuntimeError, "outside of the scope of a kernel"):
        helper(out, 3)


@triton.jit
def transposed_tiles(described, out, N: tl.constexpr):
    target = tl.make_tensor_descriptor(dl.symm_at(out, dl.my_pe()), [N, N], [N, 1], [16, 16])
    for i in tl.range(0, N // 16, num_stages=2):
        for j in range(N // 16):
            target.store([j * 16, i * 16], described.load([i * 16, j * 16]).T)


@triton.jit
def masked_tiles(x, out, n, N: tl.constexpr):
    source = tl.make_block_ptr(x, (n, n), (N, 1), (0, 0), (16, 16), (1, 0))
    target = tl.make_block_ptr(out, (N, N), (N, 1), (0, 0), (16, 16), (1, 0))
    tl.store(target, tl.load(source, boundary_check=(0, 1), padding_option="zero"))


def check_descriptors_and_block_pointers(world: Any) -> None:
    x, out = torch.randn(32, 32).bfloat16(), triton_dist.zeros(32, 32, dtype=torch.bfloat16)
    transposed_tiles[(1,)](TensorDescriptor.from_tensor(x, [16, 16]), out, 32)
    assert torch.equal(out, x.t())
    if not hasattr(InterpreterBuilder, "create_make_block_ptr"):
        return  # Triton 3.8 removed block pointers
    out.zero_()
    masked_tiles[(1,)](x, out, 7, 32)
    x[7:], x[:, 7:] = 0, 0
    assert torch.equal(out, x)


def check_arguments_are_used_where_they_are(world: Any) -> None:
    """Copied onto itself after the launch, as Triton does it, a tensor would lose what peers write to it meanwhile."""
    out = torch.zeros(1, dtype=torch.int32)
    with mock.patch.object(torch.UntypedStorage, "copy_", side_effect=AssertionError("copied")):
        count[(2,)](out)
    assert out.item() == 2


def check_language_is_patched_in_kernels_only(world: Any) -> None:
    count[(1,)](torch.zeros(1, dtype=torch.int32))
    with raises(ValueError, "jit"):
        tl.program_id(0)
    with raises(ValueError, "jit"):
        imported_load(None)
    as_started = b"TRITON_INTERPRET=" in Path("/proc/self/environ").read_bytes()
    assert ("TRITON_INTERPRET" in os.environ) == as_started, "it must not leak to child processes"


if __name__ == "__main__":
    main(globals())
