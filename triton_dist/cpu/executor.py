"""Run one kernel launch: arguments in, every program of the grid, errors out with the line they come from."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends import backends
from triton.runtime import interpreter as stock
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.cpu import location
from triton_dist.cpu.language_patch import LanguagePatch
from triton_dist.cpu.program import Program, running
from triton_dist.cpu.recorder import OutsideError
from triton_dist.cpu.scheduler import CannotGoOnError, Scheduler
from triton_dist.cpu.world import current, refuse_stale
from triton_dist.process_state import of_process

__all__ = ["Executor", "KernelError"]


class KernelError(InterpreterError, RuntimeError):  # type: ignore[misc]
    """A kernel failed. Says on which PE, in which kernel and program, and on which line."""

    def __str__(self) -> str:
        return str(self.args[0])


class Executor(stock.GridExecutor):  # type: ignore[misc]
    """Triton's executor, except that programs are coroutines and that memory on the CPU is used where it is.

    (Triton's copies tensors on the CPU onto themselves after a launch, which undoes what other PEs wrote meanwhile.)
    """

    def __call__(self, *args_dev: Any, **kwargs: Any) -> None:
        parameters = inspect.getfullargspec(self.fn).args
        options = {name: value for name, value in kwargs.items() if name not in parameters}
        for name in options.keys() - _launch_options():
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")  # as Triton's launch says it
        stock.interpreter_builder.num_ctas = options.get("num_ctas") or 1  # the other options matter to GPUs only
        kwargs = {name: value for name, value in kwargs.items() if name in parameters}
        args_hst, kwargs_hst = self._init_args_hst(args_dev, kwargs)
        for hook in self.pre_run_hooks:
            hook(*args_hst, **kwargs_hst)
        bound = inspect.getcallargs(self.fn, *args_hst, **kwargs_hst)
        grid = self.grid(bound) if callable(self.grid) else self.grid
        for name, arg in bound.items():
            _refuse_stale(name, arg)
        with of_process(LanguagePatch).applied(self.fn.__globals__):
            self._run(
                _three(grid),
                {name: arg if name in self.constexprs else _to_tensor(arg) for name, arg in bound.items()},
            )
        self._restore_args_dev(args_dev, args_hst, kwargs, kwargs_hst)

    def _run(self, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        builder = stock.interpreter_builder
        builder.set_grid_dim(*grid)

        def body(index: tuple[int, int, int]) -> None:
            recorder = None if world is None else world.recorder
            try:
                if recorder is not None:
                    recorder.started(running(), self.fn.__name__)
                with np.errstate(all="ignore"):  # as silent as a GPU; set here, because coroutines do not inherit it
                    self.fn(**arguments)
                if recorder is not None:
                    recorder.ended(running())
            except OutsideError:
                assert world is not None
                world.abort("touched memory of no symmetric tensor")  # which reports
                raise SystemExit(1) from None
            except Exception as error:
                raise self._failure(error, index) from error

        def enter(program: Program) -> None:
            builder.grid_idx = program.index

        world = current()
        x, y, z = map(range, grid)
        programs = (Program(index, functools.partial(body, index)) for index in itertools.product(x, y, z))
        try:
            with contextlib.nullcontext() if world is None else world.turn():
                Scheduler(enter, world).run(programs)
                if world is not None and world.recorder is not None:
                    world.recorder.launch_ended()
        except (CannotGoOnError, BrokenWorldError) as error:
            failure = KernelError(f"{self._where()}: {error}")
            if world is not None and isinstance(error, CannotGoOnError):
                world.abort(f"gave up. {failure}")
            raise failure from error
        finally:
            builder.grid_idx = None

    def _where(self) -> str:
        world = current()
        kernel = f"kernel {self.fn.__name__}"
        return kernel if world is None else f"PE {world.pe}, {kernel}"

    def _failure(self, error: Exception, index: tuple[int, int, int]) -> Exception:
        if triton.knobs.compilation.front_end_debugging:
            return error
        place = location.of_error(error)
        return KernelError(f"{self._where()}, program {index}, {place}: {type(error).__name__}: {error}")

    # ---- tensors elsewhere (a GPU's, when TRITON_INTERPRET is set there): Triton copies them to the host and back

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


def _three(grid: Sequence[Any]) -> tuple[int, int, int]:
    if not 1 <= len(grid) <= 3:
        raise ValueError(f"a grid has 1 to 3 dimensions, got {tuple(grid)}")
    x, y, z = (int(extent) for extent in [*grid, 1, 1][:3])
    return x, y, z


def _on_host(arg: Any) -> bool:
    if isinstance(arg, tuple):
        return all(map(_on_host, arg))
    if isinstance(arg, TensorDescriptor):
        return _on_host(arg.base)
    return not hasattr(arg, "data_ptr") or arg.device.type == "cpu"


def _refuse_stale(name: str, arg: Any) -> None:
    """Errors for an argument on symmetric memory that was given back: it would be read, or overwrite something else."""
    if isinstance(arg, tuple):
        for part in arg:
            _refuse_stale(name, part)
    elif isinstance(arg, TensorDescriptor):
        _refuse_stale(name, arg.base)
    elif isinstance(arg, torch.Tensor) and arg.device.type == "cpu":
        refuse_stale(f"argument {name}", arg)


def _to_tensor(arg: Any) -> Any:
    """What the kernel gets for an argument. Triton's own function, which leaves floats alone and fails on bools."""
    if isinstance(arg, bool):
        return tl.tensor(stock.TensorHandle(np.array([arg]), tl.int1), tl.int1)
    if isinstance(arg, float):
        return tl.tensor(stock.TensorHandle(np.array([arg], dtype=np.float32), tl.float32), tl.float32)
    return stock._implicit_cvt(arg)
