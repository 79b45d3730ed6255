"""Autotuning of kernels that communicate: the same choice on every PE."""

from __future__ import annotations

import json
import logging
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from triton import Config

from triton_dist import triton_api
from triton_dist.decoding import DecodingError, Schema, boolean, decode, optional, sequence, text
from triton_dist.world.base import World
from triton_dist.world.current import current_world

__all__ = ["autotune"]

_log = logging.getLogger("triton_dist")

_NEVER = float("inf")
_ESTIMATES = 5


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], triton_api.Autotuner]:
    """``triton.autotune`` for kernels that PEs launch together: all PEs choose the same configuration.

    A launch with new values of ``key`` is *collective*: all PEs launch the kernel with the same values. Every
    configuration is measured by all PEs at the same time, with the same number of launches, so that kernels may wait
    for each other. Its time is that of the slowest PE, and it is left out if one PE cannot run it. In the CPU world,
    where times mean nothing, the first configuration is chosen.

    Args:
        configs, key, prune_configs_by, reset_to_zero, restore_value, pre_hook, post_hook: as of ``triton.autotune``.
            Pruning has the same result on all PEs.
        warmup, rep: milliseconds of launches before and while a configuration is measured; by default 25 and 100.
        use_cuda_graph: False; the number of launches in Triton's graphs differs between PEs.
        do_bench: measures instead: ``do_bench(launch, quantiles=...)``. It launches equally often on all PEs.
        cache_results: keep times on disk. PE 0 decides whether its file is used, and what it says.

    Raises:
        ValueError: ``use_cuda_graph`` is True.
        RuntimeError: (from a launch) there is no world, or PEs measure different configurations.
    """
    if use_cuda_graph:
        raise ValueError(
            "triton_dist.autotune: use_cuda_graph must be False: PEs would not launch the kernel equally often"
        )

    def decorate(fn: Any) -> triton_api.Autotuner:
        return _Autotuner(
            fn,
            fn.arg_names,
            list(configs),
            key,
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            do_bench=do_bench or _Measure(25 if warmup is None else warmup, 100 if rep is None else rep),
            cache_results=cache_results,
        )

    return decorate


class _Autotuner(triton_api.Autotuner):  # type: ignore[misc]
    def _bench(self, *args: Any, config: Config, **meta: Any) -> list[float]:
        world = current_world()
        what = f"autotune({self.base_fn.__name__}, {config})"[:300]
        can_run = world.device.type == "cpu" or self._loads(*args, **{**meta, **config.all_kwargs()})
        if not all(_exchange(world, f"{what}: loaded", can_run, boolean)):
            return [_NEVER] * 3
        times = [float(time) for time in super()._bench(*args, config=config, **meta)]
        slowest = [max(of_pes) for of_pes in zip(*_exchange(world, what, times, sequence(_number, 3)), strict=True)]
        _log.debug("%s takes %.4g ms on the slowest PE, %.4g ms on PE %d", what, slowest[0], times[0], world.pe)
        return slowest

    def _loads(self, *args: Any, **options: Any) -> bool:
        """Compile and load a configuration without a launch, which other PEs would wait for."""
        try:
            triton_api.load(self.fn.run(*args, **{**options, "warmup": True}))
        except triton_api.UNUSABLE:
            return False
        return True

    def check_disk_cache(self, tuning_key: Any, configs: Sequence[Config], bench_fn: Callable[[], None]) -> bool:
        world = current_world()
        what = f"autotune({self.base_fn.__name__}): cached"
        if world.pe == 0:
            measured = []

            def measure() -> None:
                measured.append(True)
                _exchange(world, what, None, optional(text(300)))
                bench_fn()

            hit = bool(super().check_disk_cache(tuning_key, configs, measure))
            if not measured:
                _exchange(world, what, str(self.cache[tuning_key])[:300], optional(text(300)))
            return hit
        chosen = _exchange(world, what, None, optional(text(300)))[0]
        if chosen is None:
            bench_fn()
            return False
        found = [config for config in configs if str(config)[:300] == chosen]
        if not found:
            raise RuntimeError(f"{what}: PE 0 chose {chosen}, which PE {world.pe} does not have")
        self.cache[tuning_key] = found[0]
        return True

    def run(self, *args: Any, **kwargs: Any) -> Any:
        known = len(self.cache)
        result = super().run(*args, **kwargs)
        if len(self.cache) > known and current_world().pe == 0:
            _log.info("autotune: %s runs with %s", self.base_fn.__name__, self.best_config)
        return result


class _Measure:
    """Measures a kernel on a GPU with as many launches on every PE. *Collective.*"""

    def __init__(self, warmup: float, rep: float) -> None:
        self._warmup, self._rep = warmup, rep

    def __call__(self, launch: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
        world = current_world()
        launch()
        world.barrier_all()
        estimate = statistics.mean(self._times(launch, _ESTIMATES))
        longest = max(*_exchange(world, "autotune: estimate", max(estimate, 1e-3), _number), 1e-3)
        for _ in range(max(1, int(self._warmup / longest))):
            launch()
        world.barrier_all()
        times = self._times(launch, max(1, int(self._rep / longest)))
        return [float(time) for time in np.quantile(times, quantiles)]

    @staticmethod
    def _times(launch: Callable[[], Any], count: int) -> list[float]:
        """Milliseconds of each of ``count`` launches, each with a cold cache."""
        cache = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
        event: Callable[..., Any] = partial(torch.cuda.Event, enable_timing=True)
        events = [(event(), event()) for _ in range(count)]
        for begin, end in events:
            cache.zero_()
            begin.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) for begin, end in events]


def _exchange(world: World, call: str, value: Any, schema: Schema) -> list[Any]:
    """Every PE's value. *Collective.*"""
    return [decode(said, schema) for said in world.together(world.team_world, call, json.dumps(value))]


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise DecodingError(f"{str(value)[:60]} where a number is expected")
    return float(value)
