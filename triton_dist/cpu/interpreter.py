"""Make Triton run kernels in the CPU world, whether they were decorated before or after triton_dist was imported.

``triton.jit`` chooses between compiler and interpreter when it decorates, and ``triton.language`` is decorated when
Triton is imported. So a :class:`JITFunction` made earlier hands its work to an interpreted function, made when needed.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import triton
from triton.runtime import interpreter as stock
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from triton_dist.cpu import bfloat16
from triton_dist.cpu.builder import CpuBuilder
from triton_dist.cpu.executor import Executor
from triton_dist.cpu.kernel_source import rewritten
from triton_dist.cpu.language_patch import LanguagePatch
from triton_dist.process_state import of_process

__all__ = ["install"]


def install(*, compilable: bool = False) -> None:
    """Interpret every kernel of this process in the CPU world from now on. Idempotent.

    ``compilable``: functions that ``triton.jit`` makes from now on can also be compiled.
    """
    if stock.interpreter_builder.__class__ is CpuBuilder:
        return
    if not compilable:
        # Bypasses the knob's setter, which would also set TRITON_INTERPRET for child processes.
        triton.knobs.runtime.__dict__["interpret"] = True
    stock.interpreter_builder.__class__ = CpuBuilder
    # Triton would compute whether each sum of integers overflows, for an assertion that is off: half of the time.
    stock.interpreter_builder.options = dataclasses.replace(stock.interpreter_builder.options, sanitize_overflow=False)
    stock.ReduceOps.generic_reduce = _combining(stock.ReduceOps.generic_reduce)
    stock.ScanOps.generic_scan = _combining(stock.ScanOps.generic_scan)
    stock.ReduceScanOpInterface.apply = bfloat16.reducing(stock.ReduceScanOpInterface.apply)

    stock.InterpretedFunction.rewrite = _rewrite
    stock.InterpretedFunction.run = _run
    stock.InterpretedFunction.__call__ = _call
    JITFunction.run = lambda self, *args, **kwargs: _interpreted(self).run(*args, **kwargs)
    JITFunction.__call__ = lambda self, *args, **kwargs: _interpreted(self)(*args, **kwargs)

    Autotuner._bench = _same_time
    Autotuner.prune_configs = _prune
    Autotuner.check_disk_cache = lambda self, key, configs, bench: bench()


def _rewrite(self: stock.InterpretedFunction) -> Any:
    if self.fn not in self.rewritten_fn:
        self.rewritten_fn[self.fn] = rewritten(self.fn, getattr(self, "transform", None))
    return self.rewritten_fn[self.fn]


def _run(self: stock.InterpretedFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    if not warmup:
        Executor(self.rewrite(), self.arg_names, grid, self.pre_run_hooks)(*args, **kwargs)


def _call(self: stock.InterpretedFunction, *args: Any, **kwargs: Any) -> Any:
    """A call from a kernel. Unlike Triton's, it neither patches the language again nor wraps the error again."""
    patch = of_process(LanguagePatch)
    if not patch.is_applied():
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    patch.extend(self.fn.__globals__)
    return self.rewrite()(*args, **kwargs)


def _combining(method: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction or a scan whose function is a device function like any other."""

    def call(self: Any, input: Any) -> Any:
        combine = stock.InterpretedFunction(self.combine_fn.fn)
        self.combine_fn = types.SimpleNamespace(fn=functools.partial(_call, combine))
        return method(self, input)

    return call


def _interpreted(function: JITFunction) -> stock.InterpretedFunction:
    if not hasattr(function, "_triton_dist_interpreted"):
        function._triton_dist_interpreted = stock.InterpretedFunction(function.fn)
        function._triton_dist_interpreted.pre_run_hooks = function.pre_run_hooks
        function._triton_dist_interpreted.transform = getattr(function, "transform", None)
    return function._triton_dist_interpreted


# ---- @triton.autotune: times mean nothing here, and taking them needs a GPU. All configurations take the same time, so
# the first one that the kernel's author does not prune wins.


def _same_time(self: Autotuner, *args: Any, config: Any, **meta: Any) -> list[float]:
    return [0.0, 0.0, 0.0]


def _prune(self: Autotuner, kwargs: dict[str, Any]) -> list[Any]:
    if self.early_config_prune is None:
        return list(self.configs)
    return list(self.early_config_prune(self.configs, self.nargs, **kwargs))  # a perf_model would ask for the GPU
