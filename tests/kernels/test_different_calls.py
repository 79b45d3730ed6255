"""Members of a group that call with different shapes: an error on every PE that names them, and no PE hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from forking import launch

from triton_dist.bootstrap.launch import Launch
from triton_dist.world.calls import CallComparison, CallsDifferError

ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_WAIT_TIMEOUT": "300", "TRITON_DIST_SYMMETRIC_SIZE": "16M"}
CALLS = {
    "shape": "kernels.all_reduce(torch.ones(8 + world.pe // 3), group=group)",
    "empty": "([kernels.all_reduce(torch.ones(0), group=group) for _ in range(3)], triton_dist.barrier_all())"
    " if world.pe < 3 else (triton_dist.barrier_all(), kernels.all_reduce(torch.ones(8), group=group))",
    "dtype": "kernels.all_reduce(torch.ones(8, dtype=torch.bfloat16 if world.pe == 3 else torch.float32), group=group)",
    "algorithm": "kernels.all_reduce(torch.ones(8), algorithm=('two_shot', 'one_shot')[world.pe // 3], group=group)",
    "op": "kernels.all_reduce(torch.ones(8), ('sum', 'max')[world.pe // 3], group=group)",
    "margin": "kernels.all_reduce(torch.ones(8), sm_margin=world.pe // 3, group=group)",
    "function": "kernels.broadcast(torch.ones(8), group=group) if world.pe == 3 else"
    " kernels.all_reduce(torch.ones(8), group=group)",
    "gemm": "kernels.gemm_reduce_scatter(torch.ones(4, 2 + world.pe // 3), torch.ones(2 + world.pe // 3, 4),"
    " group=group)",
    "shard": "kernels.all_gather_gemm(torch.ones(1 + (world.pe != 2), 2), torch.ones(2, 4), rows=7, group=group)",
    "rows": "kernels.all_gather_gemm(torch.ones(2, 2), torch.ones(2, 4), rows=(8, 7)[world.pe // 3], group=group)",
    "scattered rows": "kernels.gemm_reduce_scatter(torch.ones(7 + world.pe // 3, 2), torch.ones(2, 4), group=group)",
    "result": "kernels.gemm_reduce_scatter(*(torch.ones(4, 4).to(torch.float8_e4m3fn) for _ in range(2)),"
    " torch.ones(4 // group_size, 4, dtype=(torch.float32, torch.float16)[world.pe // 3]), group=group)",
    "gradients": "torch.ops.triton_dist.all_gather_gemm_gradients(torch.ones(8, 2), torch.ones(2, 4 + world.pe // 3),"
    " torch.ones(4 + world.pe // 3, 2), 0, *kernels.functional.resolve(group))",
    # Whose shapes are alike, as kernels see them.
    "gather_dim": "kernels.functional.all_gather(torch.ones(2, 2), world.pe // 3, group=group)",
    "scatter_dim": "kernels.functional.gemm_reduce_scatter(torch.ones(4, 4, 2), torch.ones(2, 4), 'sum',"
    " world.pe // 3, group=group)",
    # Whose results take workspace, which all members make.
    "workspace": "kernels.functional.all_reduce(torch.ones(200_000 + 100_000 * (world.pe // 3)), group=group)",
    "no workspace": "kernels.functional.all_reduce(torch.ones(8 if world.pe < 3 else 200_000), group=group)",
    "sums of operators": "kernels.functional.gemm_all_reduce(torch.ones(4 + world.pe // 3, 2), torch.ones(2, 4),"
    " algorithm='bulk_synchronous', group=group)",
    "bias": "kernels.gemm_all_reduce(torch.ones(4, 2), torch.ones(2, 4), bias=(torch.ones(4), None)[world.pe // 3],"
    " group=group)",
    "residual": "kernels.gemm_all_reduce(torch.ones(4, 2), torch.ones(2, 4),"
    " residual=torch.ones(4, 4, dtype=(torch.float32, torch.float16)[world.pe // 3]), group=group)",
    "activation": "kernels.gemm_all_reduce(torch.ones(4, 2), torch.ones(2, 4),"
    " activation=('silu', 'gelu')[world.pe // 3], group=group)",
    "norm": "kernels.all_reduce_norm(torch.ones(2 + world.pe // 3, 4), group=group)",
    "norm, shard": "kernels.norm_all_gather(torch.ones(1 + (world.pe != 2), 4), rows=7, group=group)",
    "norm, rows": "kernels.reduce_scatter_norm(torch.ones(7 + world.pe // 3, 4), group=group)",
    "decode": "kernels.flash_decode(torch.ones(1, 1, 16), torch.ones(1, 4, 1, 16), torch.ones(1, 4, 1, 16),"
    " torch.ones(1, dtype=torch.int32), window=1 + world.pe // 3, group=group)",
    "scale": "kernels.flash_decode(torch.ones(1, 1, 16), torch.ones(1, 4, 1, 16), torch.ones(1, 4, 1, 16),"
    " torch.ones(1, dtype=torch.int32), scale=1 + world.pe // 3, group=group)",
    "scales of rows": "kernels.moe.dispatch(torch.ones(3, 8), torch.zeros(3, 1).long(), num_experts=4, max_tokens=4,"
    " scales=torch.ones(3, 1 + world.pe // 3), group=group)",
    "buffer": "kernels.moe.dispatch(torch.ones(3, 8), torch.zeros(3, 1).long(), num_experts=4, max_tokens=4,"
    " buffer=world.pe // 3, group=group)",
    "weighted": "(lambda rows: kernels.moe.combine(rows.x, rows, weighted=world.pe != 3))(kernels.moe.dispatch("
    "torch.ones(3, 8), torch.zeros(3, 1).long(), num_experts=4, max_tokens=4, group=group))",
    "projection": "kernels.flash_decode_projection(torch.ones(1, 1, 16), torch.ones(1, 4, 1, 16),"
    " torch.ones(1, 4, 1, 16), torch.ones(1, dtype=torch.int32), torch.ones(16, 4 + world.pe // 3), group=group)",
    # Symmetric tensors that are not the same: peers would store to memory of another use.
    "tensor": "(lambda *outs: kernels.all_reduce(torch.ones(8), out=outs[world.pe // 3], algorithm='push',"
    " group=group))(triton_dist.empty(8), triton_dist.empty(8))",
    "part": "(lambda x: kernels.all_reduce(x[:8], out=x[8 * (1 + world.pe // 3):][:8], algorithm='direct',"
    " group=group))(triton_dist.zeros(24))",
    "gathered": "kernels.all_gather(triton_dist.empty(2, 8)[world.pe // 3][:2 * group_size], torch.ones(2),"
    " algorithm='push', group=group)",
    "exchanged": "kernels.all_to_all(triton_dist.empty(2, 8)[world.pe // 3], torch.ones(8), algorithm='push',"
    " group=group)",
    "sent": "kernels.broadcast(triton_dist.empty(2, 8)[world.pe // 3], algorithm='push', group=group)",
    "sums": "kernels.gemm_all_reduce(torch.ones(4, 2), torch.ones(2, 4), triton_dist.empty(2, 4, 4)[world.pe // 3],"
    " algorithm='bulk_synchronous', group=group)",
    "scattered": "kernels.gemm_all_scatter(torch.ones(4, 2), torch.ones(2, 4),"
    " triton_dist.empty(2, 4, 4 * group_size)[world.pe // 3], group=group)",
    "tokens": "kernels.moe.dispatch_tokens(torch.ones(3, 512), torch.zeros(3, 1).long(), num_experts=4, max_tokens=4,"
    " num_sms=2, out=triton_dist.empty(2, 16, 512)[world.pe // 3], capacity=16, group=group)",
}


QUICK = (
    "shape",
    "empty",
    "dtype",
    "function",
    "gemm",
    "gather_dim",
    "shard",
    "no workspace",
    "projection",
    "scales of rows",
    "part",
    "tokens",
)
"""Of the rest the arguments are compared as these are."""


@pytest.mark.parametrize(
    "differs", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CALLS]
)
@pytest.mark.parametrize("group", ["None", pytest.param("column", marks=pytest.mark.slow)])
def test_they_are_found_at_once(differs: str, group: str) -> None:
    """After calls that were alike. Waits in kernels would be reported after five minutes."""
    if group != "None" and differs in ("shard", "norm, shard"):
        pytest.skip("the rows of its shards are those of four PEs")
    program = f"""
import torch, triton_dist
from triton_dist import kernels
with triton_dist.init() as world:
    _, column = world.team_world.split_2d(2)
    group = {group}
    group_size = world.n_pes if group is None else group.n_pes
    for _ in range(3):
        kernels.all_reduce(torch.ones(8), group=group)
    {CALLS[differs]}
    triton_dist.barrier_all()
"""
    hopper = {"TRITON_DIST_CPU_CAPABILITY": "9.0"} if differs == "tokens" else {}  # where TMA stores to the tensor
    result = launch(["-c", program], 4, env=ENVIRONMENT | hopper, timeout=120)
    assert all(pe.returncode not in (0, None) for pe in result), result.report
    text = "\n".join(pe.stderr for pe in result)
    assert "the members of a group call different things: PE " in text, result.report
    named = {
        "shape": ("(8)", "(9,)"),
        "empty": ("(0,)", "(8,)"),
        "scale": ("1.0", "2.0"),
        "gather_dim": ("all_gather((2, 2)", "gather_dim 1"),
        "scatter_dim": ("gemm_reduce_scatter((16, 2)", "scatter_dim 1"),
        "dtype": ("torch.bfloat16", "torch.float32"),
        "shard": ("rows=7: of these PE",),
        "scattered rows": ("gemm_reduce_scatter((7, 2)", "gemm_reduce_scatter((8, 2)"),
        "scales of rows": ("scales of a row=1", "scales of a row=2"),
        "norm, shard": ("norm_all_gather(rows=7: of these PE",),
        "tensor": ("out from byte 0 of tensor",),
        "part": ("tensor from byte 0 of ", "out from byte 32 of ", "out from byte 64 of "),
        "gathered": ("output from byte 0 of ", "output from byte 32 of "),
        "exchanged": ("output from byte 0 of ", "output from byte 32 of "),
        "sent": ("tensor from byte 0 of ", "tensor from byte 32 of "),
        "workspace": ("all_reduce(result (200000,)", "all_reduce(result (300000,)"),
        "no workspace": ("all_reduce((8,)", "all_reduce(result (200000,)"),
        "sums of operators": ("gemm_all_reduce(result (4, 4)", "gemm_all_reduce(result (5, 4)"),
        "sums": ("out from byte 0 of ", "out from byte 64 of "),
        "scattered": ("out from byte 0 of ",),
        "tokens": ("out from byte 0 of ", "out from byte 32768 of "),
        "norm, rows": ("reduce_scatter_norm((7, 4)", "reduce_scatter_norm((8, 4)"),
    }.get(differs, ())
    named = named or {"result": ("result of torch.float16", "result of torch.float32")}.get(differs, ())
    for each in named:
        assert each.strip("()").rstrip(",") in text, result.report


def test_nothing_goes_on_after_it() -> None:
    """A PE that catches the error, and those that need not wait, get no result of a later call, which would be another
    call's of the others; and no process ends well."""
    program = """
import torch, triton_dist
from triton_dist import kernels
with triton_dist.init() as world:
    kernels.all_reduce(torch.ones(2, 6))
    for i in range(4):
        try:
            found = kernels.all_reduce(torch.full((2, 6) if world.pe == 0 else (3, 4), float(i)))
            print("returned", i, flush=True)
        except RuntimeError:
            pass
"""
    result = launch(["-c", program], 3, env=ENVIRONMENT, timeout=120)
    assert all(pe.returncode not in (0, None) for pe in result), result.report
    assert all("returned 1" not in pe.stdout for pe in result), result.report


@pytest.mark.parametrize(
    ("made", "call", "text"),
    [
        (
            "",
            "kernels.Communicator() if world.pe == 0 else kernels.all_reduce(torch.ones(3))",
            "opening the group of PEs",
        ),
        (
            "first, second = kernels.Communicator(), kernels.Communicator()",
            "kernels.all_reduce(torch.ones(3), group=second if world.pe == 0 else first)",
            "they wait for each other",
        ),
    ],
    ids=["one opens a communicator", "first calls"],
)
def test_different_communicators_are_found_at_once(made: str, call: str, text: str) -> None:
    """Whose members would wait for each other, each in its own."""
    program = f"""
import torch, triton_dist
from triton_dist import kernels
with triton_dist.init() as world:
    {made}
    {call}
"""
    result = launch(["-c", program], 3, env=ENVIRONMENT, timeout=60)
    assert all(pe.returncode not in (0, None) for pe in result), result.report
    assert any(text in pe.stderr for pe in result), result.report


class Store:
    """What PEs of two threads share."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key]

    def get_all(self, keys: list[str]) -> list[bytes]:
        return [self.values[key] for key in keys]


class Pe:
    """One of two PEs without shared memory: its calls, and what its comparison says."""

    def __init__(self, pe: int, store: Any) -> None:
        self.calls: list[str] = []
        self.gave_up: list[str] = []
        self.given_up = threading.Event()
        detector: Any = SimpleNamespace(raise_trouble=lambda doing: None)
        self.comparison = CallComparison(Launch(pe, 2, pe, 2, store, detector=detector), self.give_up)

    def give_up(self, what: str) -> None:
        self.gave_up.append(what)
        self.given_up.set()

    def made(self, number: int) -> str | None:
        return self.calls[number - 1] if number <= len(self.calls) else None

    def call(self, what: str, *, is_new: bool) -> None:
        self.calls.append(what)
        if is_new:
            self.comparison.compare("group 0:1:2", range(2), len(self.calls), what, self.made)


def both(first: Callable[[], None], second: Callable[[], None]) -> list[BaseException]:
    found: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except RuntimeError as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=[function], daemon=True) for function in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a PE waits for ever"
    return found


@pytest.fixture
def pes() -> Any:
    store = Store()
    made = [Pe(0, store), Pe(1, store)]
    yield made
    for pe in made:
        pe.comparison.close()


def test_new_calls_are_compared(pes: list[Pe]) -> None:
    assert not both(lambda: pes[0].call("f((8,))", is_new=True), lambda: pes[1].call("f((8,))", is_new=True))
    errors = both(lambda: pes[0].call("f((8,))", is_new=True), lambda: pes[1].call("f((9,))", is_new=True))
    assert len(errors) == 2 and all(isinstance(error, CallsDifferError) for error in errors)
    assert "PE 0: f((8,)); PE 1: f((9,))" in str(errors[0])


def test_one_that_has_gone_on_with_a_known_call_answers(pes: list[Pe]) -> None:
    """It is in its kernel, and its main thread says nothing."""
    errors = both(lambda: pes[0].call("f((8,))", is_new=True), lambda: pes[1].call("f((8,))", is_new=True))
    assert not errors
    errors = both(lambda: pes[0].call("f((9,))", is_new=True), lambda: pes[1].call("f((8,))", is_new=False))
    assert len(errors) == 1 and "PE 0: f((9,)); PE 1: f((8,))" in str(errors[0])
    assert pes[1].given_up.wait(60) and "PE 0: f((9,)); PE 1: f((8,))" in pes[1].gave_up[0]


def test_one_that_comes_late_is_waited_for(pes: list[Pe]) -> None:
    late = threading.Event()

    def second() -> None:
        assert late.wait(60)
        pes[1].call("f((8,))", is_new=True)

    threading.Timer(4, late.set).start()  # after the first has asked
    assert not both(lambda: pes[0].call("f((8,))", is_new=True), second)
    assert not pes[1].gave_up
