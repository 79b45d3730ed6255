"""Every public function is a range in PyTorch's profiles, also where it ends in an error."""

from __future__ import annotations

import contextlib
from types import FunctionType
from typing import Any

import pytest
import torch

from triton_dist import kernels
from triton_dist.kernels import moe

LOCAL = {"interleave_gate_up", "reserve", "tracing", "tune", "softmax_top_k", "group_limited_top_k"}
"""These launch nothing that a profile's reader looks for, or are called once."""


def functions(module: Any) -> dict[str, FunctionType]:
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: each for name, each in found.items() if isinstance(each, FunctionType) and name not in LOCAL}


CASES = {f"triton_dist::{name}": function for name, function in functions(kernels).items()}
CASES |= {
    f"triton_dist::{name if name.startswith('moe_') else f'moe_{name}'}": function
    for name, function in functions(moe).items()
}


@pytest.mark.parametrize("name", CASES)
def test_a_call_is_one_range(name: str) -> None:
    """There is no world, so each call ends in an error: of its range's name, one range."""
    x = torch.ones(2, 2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with contextlib.suppress(Exception):
            CASES[name](x, x)
        with torch.profiler.record_function("behind"):
            pass
    events = {event.name: event for event in profile.events() if event.name.startswith(("triton_dist::", "behind"))}
    assert events.keys() == {name, "behind"}
    assert events[name].time_range.end <= events["behind"].time_range.start
