"""Calls that C++ makes again and whose results are new tensors: of kernels, and local ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import fake_gpu
import pytest
import torch
from prepared_calls import calls as given
from prepared_calls.calls import CACHE, CACHE8, FEW, LENGTHS, NEW_RESULTS, NORM_WEIGHT, RESIDUAL, B, Q
from prepared_calls.decode import launches
from prepared_calls.native import learnt, leave_nothing
from prepared_calls.world import DRIVER, RECORDER, WORLD, calls, forget_plans, is_native
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs

from triton_dist import kernels, native_calls
from triton_dist.compiler import transport
from triton_dist.kernels import Normed
from triton_dist.kernels.dependent_launch import DependentLaunches
from triton_dist.kernels.local_launches import LocalLaunches
from triton_dist.kernels.native import NativeCalls
from triton_dist.process_state import of_process

LOCAL: dict[str, Callable[[], Any]] = {
    "norm_gemm": lambda: kernels.norm_gemm(FEW, B, FEW[0]),
    "norm_gemm, bias": lambda: kernels.norm_gemm(FEW, B, FEW[0], bias=given.BIAS, activation="silu"),
    "norm_gemm, swiglu": lambda: kernels.norm_gemm(a=FEW, b=B, activation="swiglu"),
}
NEW: dict[str, Callable[[], Any]] = LOCAL | {
    name: call for name, call in NEW_RESULTS.items() if name.startswith(("all_", "reduce_", "norm_", "flash_"))
}
del NEW["all_gather_grouped_gemm"], NEW["all_gather_grouped_gemm, out="], NEW["all_gather_grouped_gemm, fp8"]


def forget() -> None:
    forget_plans()
    WORLD.own(LocalLaunches).close()


def parts_of(result: Any) -> list[torch.Tensor]:
    return [part for part in (result if isinstance(result, tuple) else (result,)) if part is not None]


def new_tensors_of_native_calls_are_those_of_ordinary_ones() -> None:
    """The first call is an ordinary one, the second is repeated by Python, the third by C++."""
    for name, call in NEW.items():
        forget()
        ordinary = call()
        forget()
        found = [launches(call) for _ in range(4)]
        assert found[0] == found[1] == found[2] == found[3], name
        assert is_native(call), name
        results = [call() for _ in range(8)]
        for result in results:
            assert type(result) is type(ordinary), name
            for part, expected in zip(parts_of(result), parts_of(ordinary), strict=True):
                how = [(x.shape, x.stride(), x.dtype, x.device, x.requires_grad) for x in (part, expected)]
                assert how[0] == how[1], name
        if isinstance(ordinary, Normed):
            assert [x is None for x in ordinary] == [x is None for x in results[0]], name
        addresses = [part.data_ptr() for result in (ordinary, *results) for part in parts_of(result)]
        assert len({*addresses}) == len(addresses), f"{name}: results of calls are never the same memory"
        mine = [part.data_ptr() for part in parts_of(results[-1])]
        assert [x for x in RECORDER.pointers() if x in mine] == mine, f"{name}: in the kernel's order"


def options_of_native_calls_are_not_mixed_up() -> None:
    for first, second in (
        (lambda: kernels.all_reduce_norm(RESIDUAL, eps=1e-6), lambda: kernels.all_reduce_norm(RESIDUAL, eps=1e-5)),
        (lambda: kernels.all_reduce_norm(RESIDUAL, NORM_WEIGHT), lambda: kernels.all_reduce_norm(RESIDUAL)),
        (
            lambda: kernels.all_reduce_norm(RESIDUAL, bias=NORM_WEIGHT),
            lambda: kernels.all_reduce_norm(RESIDUAL, norm_bias=NORM_WEIGHT),
        ),
        (
            lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS, scale=0.5),
            lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS, scale=0.25),
        ),
        (LOCAL["norm_gemm"], lambda: kernels.norm_gemm(FEW, B, FEW[0], eps=0.5)),
        (LOCAL["norm_gemm"], lambda: kernels.norm_gemm(FEW, B)),
    ):
        forget()
        learnt(first)
        ordinary = launches(second)
        assert not is_native(second)
        second()
        assert is_native(second) and launches(second) == ordinary != launches(first)


def numbers_as_scales_of_a_cache_stay_with_python() -> None:
    forget()
    for k_scale in (0.5, 0.5, 0.5, 2.0, 2.0, 2.0):
        assert not is_native(lambda: kernels.flash_decode(Q, CACHE8, CACHE8, LENGTHS, k_scale=k_scale))  # noqa: B023
        assert of_process(NativeCalls).offered is None


def errors_of_calls_with_new_results_are_those_of_python() -> None:
    for name in ("all_reduce_norm, one_shot", "flash_decode", "norm_gemm"):
        learnt(NEW[name])
    wants = FEW.clone().requires_grad_()
    wrong: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ValueError, "lengths must be of", lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS.long())),
        (ValueError, "window must be in", lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS, window=0)),
        (ValueError, "norm_weight must be 256", lambda: kernels.norm_gemm(FEW, B, FEW[0, :128])),
        (ValueError, "norm_gemm: a tensor requires a gradient", lambda: kernels.norm_gemm(wants, B, FEW[0])),
        (ValueError, "eps must be", lambda: kernels.norm_gemm(FEW, B, FEW[0], eps=-1.0)),
        (ValueError, "norm must be", lambda: kernels.all_reduce_norm(RESIDUAL, NORM_WEIGHT, norm="l1")),
        (ValueError, "weight must have shape", lambda: kernels.all_reduce_norm(RESIDUAL, NORM_WEIGHT[:8])),
    ]
    for kind, text, call in wrong:
        for _ in range(3):
            with pytest.raises(kind, match=re.escape(text)):
                call()
    with torch.no_grad():
        learnt(lambda: kernels.norm_gemm(wants, B, FEW[0]))
    with torch.inference_mode():
        assert NEW["norm_gemm"]().is_inference()
        learnt(NEW["norm_gemm"])
        assert NEW["norm_gemm"]().is_inference()
    assert not NEW["norm_gemm"]().is_inference()
    for name in ("all_reduce_norm, one_shot", "norm_gemm"):
        call = learnt(NEW[name])
        said = []
        for native in (True, False):
            assert is_native(call) == native or not native
            if not native:
                forget()
            DRIVER.fake_fail_launches(700)
            with pytest.raises(RuntimeError) as error:
                call()
            said.append(str(error.value))
            DRIVER.fake_fail_launches(0)
        assert said[0] == said[1]


class _Wrapped(torch.Tensor):
    pass


class _Mode(TorchDispatchMode):
    """Sees what is made, and gives something else for it."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if "empty" in str(func):
            self.seen += 1
            return made.as_subclass(_Wrapped)
        return made


def unusual_calls_with_new_results_go_through_python() -> None:
    for name in ("all_reduce_norm, one_shot", "flash_decode", "norm_gemm"):
        call = learnt(NEW[name])
        with _Mode() as mode:
            assert not is_native(call), name
            assert mode.seen
        assert is_native(call), name
        with transport.using("p2p"):
            assert not is_native(call), name
        with mock.patch.object(WORLD.own(DependentLaunches), "on", True):
            assert not is_native(call), name
        seen: list[Any] = []
        knobs.runtime.launch_enter_hook.add(seen.append)
        assert not is_native(call), name
        knobs.runtime.launch_enter_hook.remove(seen.append)
        learnt(call)
        with mock.patch.object(fake_gpu, "DEVICE", [1]):
            assert not is_native(call), name
        with mock.patch.object(WORLD, "finalized", True), pytest.raises(RuntimeError):
            call()
        learnt(call)
    subclass = FEW.clone().as_subclass(_Wrapped)
    for _ in range(3):
        assert not is_native(lambda: kernels.norm_gemm(subclass, B, FEW[0]))
    odd = torch.zeros(16 * 256 + 1, dtype=torch.bfloat16)[1:].view(16, 256)  # where no address is a multiple of 16
    elsewhere = learnt(lambda: kernels.norm_gemm(odd, B, FEW[0]))
    assert is_native(elsewhere) and is_native(NEW["norm_gemm"])


def local_calls_work_on_the_current_stream() -> None:
    call = learnt(LOCAL["norm_gemm"])
    fake_gpu.STREAM[0] = 9
    try:
        assert is_native(call) and RECORDER.stream == 9
    finally:
        fake_gpu.STREAM[0] = 7
    assert is_native(call) and RECORDER.stream == 7
    native = of_process(NativeCalls)
    before = len(native)
    WORLD.own(LocalLaunches).close()
    assert len(native) < before and not is_native(call)
    learnt(call)
    local = WORLD.own(LocalLaunches)
    (plan,) = local._plans.values()
    made, learn = plan.launch.native(native_calls), native._table.learn
    launch = "launch", False, made.launch, made.encode, ((0, 0),), None
    for new, action, text in (
        (None, ("compare", ("x",)), "compared with none"),
        (((), (0,), tuple), launch, "not so many new tensors"),
        (((int,), (0, 0), None), launch, "is one tensor"),
        (((int,) * 17, (0,), None), launch, "too many new tensors"),
    ):
        with pytest.raises(ValueError, match=text):
            learn("x", (FEW,), {}, local._owner, ((action,), None, ()), (FEW,), FEW, (), new, ())
    plan_of_one = (launch,), None, ()
    assert not learn("x", (FEW,), {}, local._owner, plan_of_one, (FEW,), FEW, (), None, ()), (
        "the launch takes more tensors"
    )


def nothing_leaks_of_new_results() -> None:
    """Neither references nor memory nor tensors, of calls that are made, or end in an error."""
    counted = (*(Q, CACHE, LENGTHS, RESIDUAL, NORM_WEIGHT, FEW, B), Normed, torch.bfloat16, given.BIAS)
    repeats = {name: learnt(NEW[name]) for name in ("all_reduce_norm, two_shot", "flash_decode", "norm_gemm, bias")}
    failing = repeats["all_reduce_norm, two_shot"]

    def fails() -> None:
        DRIVER.fake_fail_launches(700)
        with pytest.raises(RuntimeError):
            failing()
        DRIVER.fake_fail_launches(0)

    RECORDER.all.clear()
    leave_nothing((*((call, 20_000) for call in repeats.values()), (fails, 200)), counted)
    assert all(sum(calls(call).values()) == 1 for call in repeats.values()), "the public function's only"
