"""Run one kernel launch: arguments in, every program of the grid, errors out with the line they come from."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.cpu import location
from triton_dist.cpu.kernel_python import static_assert
from triton_dist.cpu.program import Program, running
from triton_dist.cpu.recorder import OutsideError
from triton_dist.cpu.scheduler import CannotGoOnError, Scheduler
from triton_dist.cpu.unfinished import mark_unfinished
from triton_dist.cpu.world import current, refuse_stale
from triton_dist.process_state import of_process
from triton_dist.triton_api import interpreter, is_descriptor
from triton_dist.triton_api.language_patch import LanguagePatch

__all__ = ["Executor", "KernelError"]


class KernelError(interpreter.InterpreterError, RuntimeError):  # type: ignore[misc]
    """A kernel failed. Says on which PE, in which kernel and program, and on which line."""

    def __str__(self) -> str:
        return str(self.args[0])


class Executor(interpreter.Launch):
    """Runs the programs of one launch as coroutines."""

    def run(self, grid: Sequence[Any], arguments: dict[str, Any], options: Mapping[str, Any]) -> None:
        _refuse_warps(self.fn.__name__, options.get("num_warps"))
        for name, arg in arguments.items():
            _refuse_stale(name, arg)
        with of_process(LanguagePatch).applied(self.fn.__globals__, static_assert=static_assert):
            self._run(
                _three(grid),
                {name: arg if name in self.constexprs else _to_tensor(name, arg) for name, arg in arguments.items()},
                options.get("num_ctas") or 1,
                options.get("num_stages") or 0,  # the other options matter to GPUs only
                self._partition(options.get("num_warps") or 4),
            )

    def _partition(self, num_warps: int) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """What a program runs in: of a Gluon kernel the warps of the launch."""
        if not getattr(self.fn, "is_gluon", False):
            return contextlib.nullcontext
        from triton_dist.cpu.gluon import chance, partition  # here, since few processes run such kernels

        return functools.partial(partition.begin, num_warps, chance.new_chance())

    def _run(
        self,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Any],
        num_ctas: int,
        num_stages: int,
        partition: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        builder = interpreter.builder()

        def body(index: tuple[int, int, int]) -> None:
            recorder = None if world is None else world.recorder
            if recorder is not None:
                recorder.started(running(), self.fn.__name__)
            if world is None or world.runs(index, grid):
                with partition():
                    self.fn(**arguments)
            if recorder is not None:
                recorder.ended(running())

        def guard(part: Callable[[], None]) -> None:
            try:
                with np.errstate(all="ignore"):  # as silent as a GPU; here, since coroutines do not inherit it
                    part()
            except OutsideError:
                assert world is not None
                world.break_world("touched memory of no symmetric tensor")  # which reports
                raise SystemExit(1) from None
            except Exception as error:
                raise self._failure(error, running()) from error

        def enter(program: Program) -> None:
            builder.set_grid_dim(*grid)  # each time: another PE of this process may have run its grid meanwhile
            builder.num_ctas, builder.num_stages = num_ctas, num_stages
            builder.grid_idx = program.index

        world = current()
        x, y, z = map(range, grid)
        programs = (Program(index, functools.partial(body, index), guard) for index in itertools.product(x, y, z))
        try:
            with contextlib.nullcontext() if world is None else world.turn():
                Scheduler(enter, world).run(programs)
                if world is not None:
                    world.heap.quiet()
                if world is not None and world.recorder is not None:
                    world.recorder.launch_ended()
        except (CannotGoOnError, BrokenWorldError) as error:
            failure = KernelError(f"{self._where()}: {error}")
            if world is not None and isinstance(error, CannotGoOnError):
                world.break_world(f"gave up. {failure}")
            mark_unfinished(failure)
            raise failure from error
        except BaseException as error:
            mark_unfinished(error)
            raise
        finally:
            builder.grid_idx = None

    def _where(self) -> str:
        world = current()
        kernel = f"kernel {self.fn.__name__}"
        return kernel if world is None else f"PE {world.pe}, {kernel}"

    def _failure(self, error: Exception, program: Program) -> Exception:
        if triton.knobs.compilation.front_end_debugging:
            return error
        place = location.of_error(error)
        return KernelError(f"{self._where()}, {program}, {place}: {type(error).__name__}: {error}")


def _three(grid: Sequence[Any]) -> tuple[int, int, int]:
    if not 1 <= len(grid) <= 3:
        raise ValueError(f"a grid has 1 to 3 dimensions, got {tuple(grid)}")
    x, y, z = (int(extent) for extent in [*grid, 1, 1][:3])
    return x, y, z


def _refuse_warps(kernel: str, num_warps: int | None) -> None:
    """Errors for what Triton's compilers refuse, here too, so that it does not come out on a GPU only."""
    if num_warps is not None and (num_warps < 1 or num_warps & (num_warps - 1)):
        raise ValueError(f"{kernel}: num_warps must be a power of 2, got {num_warps}")


def _refuse_stale(name: str, arg: Any) -> None:
    """Errors for an argument on symmetric memory that was given back: it would be read, or overwrite something else."""
    if isinstance(arg, tuple):
        for part in arg:
            _refuse_stale(name, part)
    elif is_descriptor(arg):
        _refuse_stale(name, arg.base)
    elif isinstance(arg, torch.Tensor) and arg.device.type == "cpu":
        refuse_stale(f"argument {name}", arg)


_NO_ARGUMENTS = (np.ndarray, np.generic, list, dict, set, str, bytes, complex)
"""Types of which a compiled kernel takes no argument either."""


def _to_tensor(name: str, arg: Any) -> Any:
    """What the kernel gets for argument ``name``. Triton's own function converts no floats and fails on bools."""
    if isinstance(arg, bool):
        return tl.tensor(interpreter.TensorHandle(np.array([arg]), tl.int1), tl.int1)
    if isinstance(arg, float):
        return tl.tensor(interpreter.TensorHandle(np.array([arg], dtype=np.float32), tl.float32), tl.float32)
    if is_descriptor(arg) and not isinstance(arg, TensorDescriptor):  # Gluon's
        from triton_dist.cpu.gluon import tma  # here, since few processes run such kernels

        return tma.Descriptor(arg)
    if isinstance(arg, _NO_ARGUMENTS):
        raise TypeError(
            f"argument {name} is of type {type(arg).__module__}.{type(arg).__qualname__}: kernels take tensors, None,"
            " Python's bool, int and float, and tuples of these; all else is for tl.constexpr"
        )
    try:
        return interpreter.as_tensor(arg)
    except KeyError:  # of a table of dtypes
        kind = getattr(arg, "dtype", type(arg).__name__)
        raise TypeError(f"argument {name} is a tensor of {kind}, which Triton's kernels do not take") from None
