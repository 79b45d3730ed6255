"""Functional calls that C++ makes again, where PyTorch's dispatcher would do nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from prepared_calls import calls as given
from prepared_calls.calls import CACHE, FEW, LENGTHS, NORM_WEIGHT, PLAIN, RESIDUAL, B, Q, X
from prepared_calls.decode import launches
from prepared_calls.native import learnt, leave_nothing
from prepared_calls.native_new import forget, parts_of
from prepared_calls.world import RECORDER, WORLD, calls, is_native, symmetric
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from triton_dist.kernels import Communicator, functional
from triton_dist.kernels.native import NativeCalls
from triton_dist.process_state import of_process

LARGE = torch.zeros(1 << 20, dtype=torch.bfloat16)
FUNCTIONAL: dict[str, Callable[[], Any]] = {
    "all_reduce": lambda: functional.all_reduce(PLAIN),
    "all_reduce, max": lambda: functional.all_reduce(FEW, "max"),
    "all_reduce, symmetric": lambda: functional.all_reduce(X, algorithm="two_shot"),
    "all_gather": lambda: functional.all_gather(FEW),
    "reduce_scatter": lambda: functional.reduce_scatter(FEW),
    "all_to_all": lambda: functional.all_to_all(FEW),
    "gemm_reduce_scatter": lambda: functional.gemm_reduce_scatter(FEW, B),
    "norm_gemm": lambda: functional.norm_gemm(FEW, B, FEW[0]),
    "norm_gemm, 3 dimensions": lambda: functional.norm_gemm(FEW.view(2, 8, 256), B, eps=1e-5, bias=given.BIAS),
    "all_reduce_norm": lambda: functional.all_reduce_norm(RESIDUAL, NORM_WEIGHT, given.FEW_RESIDUAL),
    "all_reduce_norm, token": lambda: functional.all_reduce_norm(RESIDUAL, quantize="token"),
    "reduce_scatter_norm": lambda: functional.reduce_scatter_norm(RESIDUAL, NORM_WEIGHT, algorithm="fused"),
    "norm_all_gather": lambda: functional.norm_all_gather(RESIDUAL, NORM_WEIGHT, algorithm="fused"),
    "flash_decode": lambda: functional.flash_decode(Q, CACHE, CACHE, LENGTHS),
}
BY_PYTHON: dict[str, Callable[[], Any]] = {
    "an operand that is copied": lambda: functional.all_gather(FEW, 1),
    "the same, transposed": lambda: functional.all_reduce(FEW.t()),
    "a result that is copied from symmetric memory": lambda: functional.all_reduce(LARGE),
    "numbers as scales": lambda: functional.flash_decode(Q, given.CACHE8, given.CACHE8, LENGTHS, k_scale=0.5),
    "a group by its name": lambda: functional.all_reduce(PLAIN, group=""),
}


def functional_calls_are_native() -> None:
    for name, call in FUNCTIONAL.items():
        forget()
        ordinary = call()
        forget()
        found = [launches(call) for _ in range(4)]
        assert found[0] == found[1] == found[2] == found[3], name
        assert is_native(call), name
        assert sum(calls(call).values()) == 1, name
        results = [call() for _ in range(8)]
        for part, expected in zip(parts_of(results[-1]), parts_of(ordinary), strict=True):
            how = [(x.shape, x.stride(), x.dtype, x.device, x.requires_grad, x.grad_fn) for x in (part, expected)]
            assert how[0] == how[1], name
        assert type(results[0]) is type(ordinary), name
        addresses = [part.data_ptr() for result in (ordinary, *results) for part in parts_of(result)]
        assert len({*addresses}) == len(addresses), f"{name}: results of calls are never the same memory"
        mine = {part.data_ptr() for part in parts_of(results[-1])}
        assert mine <= {x[1] for x in RECORDER.last[-1] if x[0] in ("at", "map")}, name


def what_is_more_than_a_launch_stays_with_python() -> None:
    for name, call in BY_PYTHON.items():
        forget()
        ordinary = launches(call)
        found = [calls(call) for _ in range(40)]
        assert not any(each.native for each in found), name
        assert launches(call) == ordinary, name
        tries = sum(each["Offer.arguments"] for each in found)
        assert tries <= 10, f"{name}: it is tried again and again"
    call = FUNCTIONAL["all_reduce"]
    for _ in range(64):
        call()
    assert is_native(call), "another way to write it was tried meanwhile"
    forget()


class _Seen(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _SeenToo(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def observed_functional_calls_go_through_the_dispatcher() -> None:
    forget()
    for name in ("all_reduce", "norm_gemm", "flash_decode", "all_reduce_norm"):
        call = learnt(FUNCTIONAL[name])
        for observer in (_Seen(), _SeenToo(), torch.profiler.profile(), forward_ad.dual_level()):
            with observer:
                assert not is_native(call), (name, observer)
            learnt(call)
    call = learnt(FUNCTIONAL["all_reduce"])
    native = of_process(NativeCalls)
    traced = make_fx(lambda x: functional.all_reduce(x))(PLAIN)
    assert "all_reduce" in str(traced.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls it once for each
        found = calls(lambda: torch.vmap(functional.all_reduce)(torch.zeros(2, 1024, dtype=torch.bfloat16)))
    assert not found.native and found.repeated == 2
    compiled = torch.compile(lambda x: functional.all_reduce(x) + 1, backend="eager", fullgraph=True)
    with mock.patch.object(torch.cuda, "is_available", return_value=False):  # else it asks the GPU for random numbers
        assert compiled(PLAIN).shape == PLAIN.shape
    assert is_native(call) and native.call is not None
    wants = PLAIN.float().requires_grad_()
    for _ in range(4):
        assert not is_native(lambda: functional.all_reduce(wants))
    assert functional.all_reduce(wants).grad_fn is not None
    with torch.no_grad():
        learnt(lambda: functional.all_reduce(wants))
    assert functional.all_reduce(wants).grad_fn is not None
    with torch.inference_mode():
        learnt(call)
        assert call().is_inference()


def functional_groups_are_those_of_the_call() -> None:
    call = learnt(FUNCTIONAL["all_reduce"])
    slots = RECORDER.pointers()[2]
    with Communicator() as other:
        by_name = learnt(lambda: functional.all_reduce(PLAIN, group=other))
        by_position = lambda: functional.all_reduce(PLAIN, "sum", other)  # noqa: E731
        for _ in range(3):
            assert not is_native(by_position)
        assert is_native(by_name) and RECORDER.pointers()[2] != slots
        call()  # the other communicator has allocated memory since
        assert is_native(call) and RECORDER.pointers()[2] == slots
    for group in (by_name, by_position):
        with pytest.raises((RuntimeError, ValueError), match=r"closed|no process group"):
            group()
    learnt(lambda: functional.all_reduce(PLAIN, group=WORLD.team_world))
    for wrong in (
        lambda: functional.all_reduce(PLAIN, "product"),
        lambda: functional.all_to_all(PLAIN[:1]),
        lambda: functional.all_gather(PLAIN, 3),
    ):
        for _ in range(3):
            with pytest.raises(ValueError, match=r"product|share equally|gather_dim"):
                wrong()


def results_do_not_depend_on_symmetric_arguments() -> None:
    """A symmetric operand is another plan's, which is seen when it was freed."""
    mine = symmetric(1024)
    call = learnt(lambda: functional.all_reduce(mine))
    assert is_native(call)
    symmetric(8)
    assert not is_native(call) and is_native(call)


def nothing_leaks_of_functional_calls() -> None:
    counted = PLAIN, FEW, B, RESIDUAL, NORM_WEIGHT, torch.bfloat16
    repeats = [learnt(FUNCTIONAL[name]) for name in ("all_reduce", "norm_gemm", "all_reduce_norm")]
    RECORDER.all.clear()
    leave_nothing(((call, 20_000) for call in repeats), counted)
