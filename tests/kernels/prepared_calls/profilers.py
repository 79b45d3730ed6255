"""Profilers see calls that C++ or Python would repeat: ranges of the host, and launches by their kernels' names."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from prepared_calls.calls import CALLS, NEW_RESULTS
from prepared_calls.native import learnt
from prepared_calls.world import is_native
from triton.profiler.hooks import HookManager
from triton.profiler.hooks import launch as launch_hook


def ranges_of(profile: torch.profiler.profile) -> dict[str, int]:
    return {event.key: event.count for event in profile.key_averages() if event.key.startswith("triton_dist::")}


def profiled_calls_are_ranges_and_native() -> None:
    for name in ("all_gather", "all_reduce, out=", "gemm_all_reduce, fused"):
        call = learnt(CALLS[name])
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(3):
                assert is_native(call), name
        assert ranges_of(profile) == {f"triton_dist::{name.partition(',')[0]}": 3}


def proton_sees_every_launch() -> None:
    """Its own hook is told the operation's kernel, as long as it is there. (Only its session needs a GPU.)"""
    hook, expected = (
        launch_hook.LaunchHook(),
        {
            "all_gather": ["all_gather_low_latency"],
            "all_gather, push": ["all_gather_push"],
            "gemm_all_reduce, fused": ["gemm_small_m"],
            "gemm_all_reduce, ring": ["gemm_all_reduce_kernel"],
            "combine": ["moe_combine_one_round"],
            "combine, many": ["moe_combine_many"],
            "dispatch, rounds": ["moe_dispatch_rounds"],
            "flash_decode": ["flash_decode_kernel"],
        },
    )
    for name, kernels in expected.items():
        call = (CALLS | NEW_RESULTS)[name]
        for _ in range(3):
            call()
        with mock.patch.object(launch_hook, "libproton", spec=launch_hook.libproton) as libproton:
            HookManager.register(hook, session=0)
            try:
                for _ in range(2):
                    assert not is_native(call), name
            finally:
                HookManager.unregister(0)
            told: list[Any] = [call.args[1] for call in libproton.enter_op.call_args_list]
            assert told == 2 * kernels, (name, told)
            assert libproton.exit_op.call_count == len(told)
            call()
            assert libproton.enter_op.call_count == len(told), "the hook is gone"
    learnt(CALLS["all_gather"])
