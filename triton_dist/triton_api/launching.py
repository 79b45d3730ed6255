"""Launches that are made again: what Triton's ``JITFunction.run`` finds out for a call is kept and used for the next.

That is the compiled kernel, the grid and the arguments. Only the first arguments may be others, if Triton would find
the same kernel for them: tensors of the same dtype whose addresses are multiples of 16 alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime import driver

__all__ = ["PreparedLaunch", "direct_launcher", "prepare_launch"]


class DirectLauncher:
    """Triton's launcher for CUDA of a kernel without scratch memory: its function in C, without what allocates."""

    def __init__(self, launcher: Any) -> None:
        self._launcher = launcher
        self._launch = launcher.launch
        self._how = launcher.launch_cooperative_grid, launcher.launch_pdl
        self._arguments = None, None, launcher.arg_annotations, launcher.kernel_signature

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: int,
        packed: Any,
        told: Any,
        enter: Any,
        exit: Any,
        *args: Any,
    ) -> None:
        self._launch(x, y, z, stream, function, *self._how, packed, told, enter, exit, *self._arguments, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)


def direct_launcher(launcher: Any) -> Any:
    """A launcher that does the same in less time, if ``launcher`` is one of which that is known, or itself."""
    if type(launcher).__name__ != "CudaLauncher" or not isinstance(launcher, driver.active.launcher_cls):
        return launcher
    known = all(hasattr(launcher, name) for name in _OF_CUDA_LAUNCHERS)
    return (
        launcher
        if not known or launcher.global_scratch_size or launcher.profile_scratch_size
        else DirectLauncher(launcher)
    )


_OF_CUDA_LAUNCHERS = (
    *("launch", "launch_cooperative_grid", "launch_pdl", "arg_annotations", "kernel_signature"),
    *("global_scratch_size", "profile_scratch_size"),
)


class PreparedLaunch:
    """A launch of ``kernel`` as ``compiled``.

    Args:
        launcher: that of ``compiled``, with the launch checks in front.
        grid: of up to three dimensions.
        others: the kernel's arguments by position, but for the ``first`` ones, which calls bring.
        named: arguments by name; names that are none of the kernel's are options of its compilation.
    """

    __slots__ = ("_debug", "_grid", "_instrumentation", "_kernel", "_loaded", "_others", "_run", "_stages_hook")

    def __init__(
        self,
        kernel: Any,
        compiled: CompiledKernel,
        launcher: Any,
        grid: Sequence[int],
        first: int,
        others: Sequence[Any],
        named: Mapping[str, Any],
    ) -> None:
        x, y, z = (*grid, 1, 1)[:3]
        rest = kernel.params[first + len(others) :]
        self._kernel = kernel
        self._run = launcher
        self._grid = x, y, z
        self._loaded = compiled.function, compiled.packed_metadata, None, None, None  # no hooks, nor what they are told
        self._others = *others, *(named.get(parameter.name, parameter.default) for parameter in rest)
        self._stages_hook = knobs.runtime.add_stages_inspection_hook
        self._debug = knobs.runtime.__dict__.get("debug")
        self._instrumentation = knobs.compilation.__dict__.get("instrumentation_mode")

    def holds(self) -> bool:
        """Whether Triton would launch the same kernel, by its knobs as the program has set them, and call no hook.

        A hook on launches makes this false, so profilers and the guard of modules without state see every launch.
        Triton's environment variables are those of the first launch, and so are the globals that the kernel uses.
        """
        runtime = knobs.runtime
        return (
            not getattr(runtime.launch_enter_hook, "calls", True)
            and not getattr(runtime.launch_exit_hook, "calls", True)
            and not self._kernel.pre_run_hooks
            and runtime.add_stages_inspection_hook is self._stages_hook
            and runtime.__dict__.get("debug") == self._debug
            and knobs.compilation.__dict__.get("instrumentation_mode") == self._instrumentation
        )

    def __call__(self, stream: int, *tensors: Any) -> None:
        """Launch on the stream of this handle, which is one of the device that the kernel was loaded for."""
        self._run(*self._grid, stream, *self._loaded, *tensors, *self._others)


def prepare_launch(
    kernel: Any,
    compiled: Any,
    grid: Sequence[int],
    tensors: Sequence[Any],
    others: Sequence[Any],
    named: Mapping[str, Any],
    wrap: Callable[[Any], Any],
) -> PreparedLaunch | None:
    """The launch ``kernel[grid](*tensors, *others, **named)``, which returned ``compiled``, with other tensors.

    ``wrap`` is given the kernel's launcher and returns the one to be used.
    None if there is nothing to launch again: a kernel that is interpreted, or compiled in another thread.
    """
    if not isinstance(compiled, CompiledKernel):
        return None
    return PreparedLaunch(kernel, compiled, wrap(compiled.run), grid, len(tensors), others, named)
