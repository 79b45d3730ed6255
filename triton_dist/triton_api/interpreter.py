"""Triton's interpreter: what the CPU world takes from it, and how it is told to run kernels in another way.

All of this is the same in the version lines of Triton that are known.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.backends import backends
from triton.runtime import interpreter as stock
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import TensorHandle
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_dist.process_state import of_process
from triton_dist.triton_api.language_patch import LanguagePatch

__all__ = [
    "Builder",
    "Interpretation",
    "InterpreterError",
    "Launch",
    "TensorHandle",
    "as_tensor",
    "atomic_op",
    "builder",
    "handle",
    "interpret",
    "numpy_dtype",
    "relaxed_everywhere",
    "rewrite_imported",
    "rounds_to_nearest",
    "semantic",
    "widened_float8",
]

Builder = stock.InterpreterBuilder
"""The class to extend: its methods do one operation each, on :class:`TensorHandle`, a numpy array with its dtype."""


def builder() -> Any:
    """The builder that kernels of this process run with."""
    return stock.interpreter_builder


def semantic() -> Any:
    """What checks the operands of operations and calls :func:`builder`."""
    return stock.interpreter_semantic


def numpy_dtype(dtype: tl.dtype) -> np.dtype[Any]:
    """What a dtype is kept as in numpy."""
    kept_as: np.dtype[Any] = np.dtype(stock._get_np_dtype(dtype))
    return kept_as


def as_tensor(argument: Any) -> Any:
    """What a kernel gets for an argument of a launch."""
    return stock._implicit_cvt(argument)


def handle(data: NDArray[Any], dtype: tl.dtype) -> TensorHandle:
    """A :class:`TensorHandle` of elements that are known to be no wider than ``dtype``: it is not looked at again."""
    made = object.__new__(TensorHandle)
    made.data, made.dtype, made.attr = data, dtype, {}
    return made


def rounds_to_nearest(rounding_mode: Any) -> bool:
    """Whether a conversion rounds to nearest, ties to even. That is the default."""
    return rounding_mode in (None, stock._ir.ROUNDING_MODE.RTNE)


def widened_float8(data: NDArray[Any], dtype: tl.dtype) -> NDArray[np.float16]:
    """The values of an array of 8-bit floats, which float16 holds exactly."""
    widened: NDArray[np.float16] = stock._convert_float(data, dtype, tl.float16, None).view(np.float16)
    return widened


def atomic_op(name: str) -> Any:
    """The operation ``name`` of ``create_atomic_rmw``."""
    return getattr(stock._ir.ATOMIC_OP, name)


def relaxed_everywhere() -> tuple[Any, Any]:
    """The semantics and scope of atomics that order nothing, and are atomic for all of the machine."""
    return stock._ir.MEM_SEMANTIC.RELAXED, stock._ir.MEM_SYNC_SCOPE.SYSTEM


# ---- launches


class Launch(stock.GridExecutor):  # type: ignore[misc]
    """One launch of a kernel ``fn``. A subclass runs the programs; arguments are brought to the host, and back.

    Memory on the CPU is used where it is. (Triton's copies tensors on the CPU onto themselves after a launch, which
    undoes what other PEs wrote meanwhile.) Tensors are elsewhere where ``TRITON_INTERPRET`` is set on a GPU's machine.
    """

    def __init__(self, fn: Callable[..., Any], arg_names: Sequence[str], grid: Any, pre_run_hooks: Any = ()) -> None:
        super().__init__(fn, arg_names, grid, pre_run_hooks)
        # As ``JITFunction`` finds them. Triton's interpreter knows tl.constexpr by its name only, not Gluon's.
        self.constexprs = [name for name in arg_names if "constexpr" in str(fn.__annotations__.get(name))]

    @abstractmethod
    def run(self, grid: Sequence[Any], arguments: dict[str, Any], options: Mapping[str, Any]) -> None:
        """Run all programs. ``arguments`` are by the kernel's names, ``options`` those of the launch."""

    def __call__(self, *args_dev: Any, **kwargs: Any) -> None:
        parameters = self.arg_names
        options = {name: value for name, value in kwargs.items() if name not in parameters}
        for name in options.keys() - _launch_options():
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")  # as Triton's launch says it
        kwargs = {name: value for name, value in kwargs.items() if name in parameters}
        args_hst, kwargs_hst = self._init_args_hst(args_dev, kwargs)
        for hook in self.pre_run_hooks:
            hook(*args_hst, **kwargs_hst)
        bound = inspect.getcallargs(self.fn, *args_hst, **kwargs_hst)
        self.run(self.grid(bound) if callable(self.grid) else self.grid, bound, options)
        self._restore_args_dev(args_dev, args_hst, kwargs, kwargs_hst)

    def _init_args_hst(self, args_dev: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if all(map(_on_host, [*args_dev, *kwargs.values()])):
            return list(args_dev), dict(kwargs)
        args_hst, kwargs_hst = super()._init_args_hst(args_dev, kwargs)
        return (
            [dev if _on_host(dev) else hst for dev, hst in zip(args_dev, args_hst, strict=True)],
            {name: dev if _on_host(dev) else kwargs_hst[name] for name, dev in kwargs.items()},
        )

    def _restore_args_dev(
        self, args_dev: Sequence[Any], args_hst: Sequence[Any], kwargs: Mapping[str, Any], kwargs_hst: Mapping[str, Any]
    ) -> None:
        pairs = [*zip(args_dev, args_hst, strict=True), *((kwargs[name], kwargs_hst[name]) for name in kwargs)]
        copied = [(dev, hst) for dev, hst in pairs if not _on_host(dev)]
        super()._restore_args_dev([dev for dev, _ in copied], [hst for _, hst in copied], {}, {})


@functools.cache
def _launch_options() -> frozenset[str]:
    """The names of what a launch takes besides the kernel's arguments, on any backend."""
    modules = [sys.modules[backend.compiler.__module__] for backend in backends.values()]
    kinds = [kind for module in modules for kind in vars(module).values() if dataclasses.is_dataclass(kind)]
    return frozenset(field.name for kind in kinds for field in dataclasses.fields(kind))


def _on_host(arg: Any) -> bool:
    if isinstance(arg, tuple):
        return all(map(_on_host, arg))
    if isinstance(arg, TensorDescriptor):
        return _on_host(arg.base)
    return not hasattr(arg, "data_ptr") or arg.device.type == "cpu"


# ---- kernels are interpreted


@dataclasses.dataclass(frozen=True)
class Interpretation:
    """How kernels are interpreted, where that is not as in Triton."""

    builder: type[Any]
    """A subclass of :data:`Builder`."""
    launch: type[Launch]
    rewrite: Callable[[Callable[..., Any], Callable[..., Any] | None, bool], Callable[..., Any]]
    """The function that is called for a kernel or a device function, which may come with a transformation of its syntax
    tree, and which may be one of Gluon."""
    reducing: Callable[[Callable[..., Any]], Callable[..., Any]]
    """The function that is called for a reduction or a scan of tensors, from Triton's."""


def interpret(how: Interpretation, *, compilable: bool = False) -> None:
    """Interpret every kernel of this process from now on. A second call changes nothing.

    ``triton.jit`` chooses between compiler and interpreter when it decorates, and ``triton.language`` is decorated when
    Triton is imported. So a ``JITFunction`` made earlier hands its work to an interpreted function, made when needed.

    ``compilable``: functions that ``triton.jit`` makes from now on can also be compiled.
    """
    if stock.interpreter_builder.__class__ is how.builder:
        return
    if not compilable:
        # Bypasses the knob's setter, which would also set TRITON_INTERPRET for child processes.
        triton.knobs.runtime.__dict__["interpret"] = True
    stock.interpreter_builder.__class__ = how.builder
    # Assertions are on, as Python's. Triton would compute whether each sum of integers overflows: half of the time.
    stock.interpreter_builder.options = dataclasses.replace(
        stock.interpreter_builder.options, debug=True, sanitize_overflow=False
    )
    stock._get_np_dtype = _remembering(stock._get_np_dtype)
    stock.ReduceOps.generic_reduce = _combining(stock.ReduceOps.generic_reduce)
    stock.ReduceOps.min_max = _without_warnings(stock.ReduceOps.min_max)
    stock.ScanOps.generic_scan = _combining(stock.ScanOps.generic_scan)
    stock.ReduceScanOpInterface.apply = how.reducing(stock.ReduceScanOpInterface.apply)

    def rewrite(self: stock.InterpretedFunction) -> Any:
        if self.fn not in self.rewritten_fn:
            self.rewritten_fn[self.fn] = how.rewrite(
                self.fn, getattr(self, "transform", None), getattr(self, "is_gluon", False)
            )
        return self.rewritten_fn[self.fn]

    def run(self: stock.InterpretedFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if not warmup:
            how.launch(self.rewrite(), self.arg_names, grid, self.pre_run_hooks)(*args, **kwargs)

    stock.InterpretedFunction.rewrite = rewrite
    stock.InterpretedFunction.run = run
    stock.InterpretedFunction.__call__ = _call
    JITFunction.run = lambda self, *args, **kwargs: _interpreted(self).run(*args, **kwargs)
    JITFunction.__call__ = lambda self, *args, **kwargs: _interpreted(self)(*args, **kwargs)

    Autotuner._bench = _same_time
    Autotuner.prune_configs = _prune
    Autotuner.check_disk_cache = lambda self, key, configs, bench: bench()


def rewrite_imported() -> None:
    """Rewrite the kernels of all imported modules, so that forks of this process have them rewritten.

    Without :func:`interpret` there are none. A kernel that cannot be rewritten is left: its launch says why.
    """
    if stock.InterpretedFunction.__call__ is not _call:
        return
    for module in list(sys.modules.values()):
        is_language = getattr(module, "__name__", "").startswith("triton.language")
        for value in list(getattr(module, "__dict__", {}).values()):
            if is_language and type(value) is JITFunction:
                value = _interpreted(value)
            if type(value) is stock.InterpretedFunction:  # isinstance would ask objects that warn of their use
                with suppress(Exception):
                    value.rewrite()


def _remembering(numpy_dtype_of: Callable[[tl.dtype], np.dtype[Any]]) -> Callable[[tl.dtype], np.dtype[Any]]:
    """Triton's function makes a table of all dtypes at each call: a tenth of the time of an interpreted kernel."""
    found: dict[str, np.dtype[Any]] = {}

    def remembered(dtype: tl.dtype) -> np.dtype[Any]:
        element = dtype.scalar
        name = "a pointer" if element.is_ptr() else element.name
        if name not in found:
            found[name] = numpy_dtype_of(element)
        return found[name]

    return remembered


def _call(self: stock.InterpretedFunction, *args: Any, **kwargs: Any) -> Any:
    """A call from a kernel. Unlike Triton's, it neither patches the language again nor wraps the error again."""
    patch = of_process(LanguagePatch)
    if not patch.is_applied():
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    patch.extend(self.fn.__globals__)
    return self.rewrite()(*args, **kwargs)


def _without_warnings(method: Callable[..., Any]) -> Callable[..., Any]:
    """``min_max``, silent where all elements are NaN, as a GPU is."""
    silent = {np.nanmax: np.fmax.reduce, np.nanmin: np.fmin.reduce}

    def call(self: Any, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        return method(self, input, silent.get(val_reduce_op, val_reduce_op), idx_reduce_op)

    return call


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
        function._triton_dist_interpreted.is_gluon = function.is_gluon()
    return function._triton_dist_interpreted


# ---- @triton.autotune: times mean nothing here, and taking them needs a GPU. All configurations take the same time, so
# the first one that the kernel's author does not prune wins.


def _same_time(self: Autotuner, *args: Any, config: Any, **meta: Any) -> list[float]:
    return [0.0, 0.0, 0.0]


def _prune(self: Autotuner, kwargs: dict[str, Any]) -> list[Any]:
    if self.early_config_prune is None:
        return list(self.configs)
    return list(self.early_config_prune(self.configs, self.nargs, **kwargs))  # a perf_model would ask for the GPU
