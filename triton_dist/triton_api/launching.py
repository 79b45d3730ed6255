"""Launches that are made again: what Triton's ``JITFunction.run`` finds out for a call is kept and used for the next.

That is the compiled kernel, the grid and the arguments. Only the first arguments, and tensors that are named
beforehand, alone or in tuples, may be others, if Triton would find the same kernel for them: tensors of the same dtype
whose addresses are multiples of 16 alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from triton import knobs
from triton.backends.nvidia import driver as nvidia
from triton.compiler import CompiledKernel
from triton.runtime import driver

from triton_dist.native_calls import Guard
from triton_dist.triton_api.of_line import descriptor_arguments, tensor_map_bytes
from triton_dist.triton_api.packing import PackedLaunch, Patch, packed

__all__ = ["NativeLaunch", "PreparedLaunch", "direct_launcher", "prepare_launch"]


class _Address:
    """Stands for a tensor in a descriptor, where only its address counts."""

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        return self._address


class _Encoded(NamedTuple):
    """A descriptor as the arguments that Triton's launcher makes of it."""

    arguments: list[Any]


class DirectLauncher:
    """Triton's launcher for CUDA of a kernel without scratch memory: its function in C, without what allocates.

    Descriptors may be passed encoded, by :meth:`encoded`, which takes longer than all else in a launch.
    """

    def __init__(self, launcher: Any, kernel: CompiledKernel) -> None:
        self._launcher = launcher
        self._launch = driver.active.utils.launch
        self.how = launcher.launch_cooperative_grid, launcher.launch_pdl
        """Whether the grid is cooperative, and whether the kernel may begin while the one in front ends."""
        self.kernel_signature: bytes = launcher.kernel_signature
        """Of each argument that is no constant, how Triton's function in C takes it."""
        self._arguments = None, None, launcher.arg_annotations, launcher.kernel_signature
        places = [i for i, type in enumerate(kernel.src.signature.values()) if str(type).startswith("tensordesc")]
        how = getattr(kernel.metadata, "tensordesc_meta", None) or [None] * len(places)
        self._descriptors = tuple(zip(reversed(places), reversed(how), strict=True))
        self.expands = bool(self._descriptors)
        """Whether a kernel's arguments are others than those that its caller names."""

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
        leave: Any,
        *args: Any,
    ) -> None:
        if self.expands:
            args = self.expanded(args)
        self._launch(x, y, z, stream, function, *self.how, packed, told, enter, leave, *self._arguments, args)

    def by_tuple(self, loaded: tuple[Any, ...]) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Triton's function in C, and its arguments between the stream and the tuple of the kernel's, of which
        ``loaded`` are a launcher's. Where it :attr:`expands` arguments, :meth:`expanded` makes that tuple."""
        function, *told = loaded
        return self._launch, (function, *self.how, *told, *self._arguments)

    def encoded(self, position: int, descriptor: Any) -> _Encoded:
        """The kernel's argument at ``position``, a descriptor, which may be passed any number of times."""
        return _Encoded(descriptor_arguments(descriptor, dict(self._descriptors)[position]))

    def expanded(self, arguments: Sequence[Any]) -> Any:
        """A kernel's arguments as the function in C takes them."""
        expanded = list(arguments)
        for place, how in self._descriptors:  # the last first
            argument = expanded[place]
            known = type(argument) is _Encoded
            expanded[place : place + 1] = argument.arguments if known else descriptor_arguments(argument, how)
        return expanded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)


def direct_launcher(launcher: Any, kernel: Any) -> Any:
    """A launcher that does the same as ``launcher`` of ``kernel`` in less time; itself, if it is not known how."""
    if type(launcher) is not getattr(nvidia, "CudaLauncher", None) or not hasattr(nvidia, "make_tensordesc_arg"):
        return launcher
    known = all(hasattr(launcher, name) for name in _OF_CUDA_LAUNCHERS)
    if not known or launcher.global_scratch_size or launcher.profile_scratch_size:
        return launcher
    if getattr(launcher, "gsan_enabled", False) or _has_descriptors_in_tuples(kernel):  # both from Triton 3.8 on
        return launcher
    return DirectLauncher(launcher, kernel)


def _has_descriptors_in_tuples(kernel: Any) -> bool:
    return any(isinstance(type, tuple) and "tensordesc" in str(type) for type in kernel.src.signature.values())


_OF_CUDA_LAUNCHERS = (
    *("launch", "launch_cooperative_grid", "launch_pdl", "arg_annotations", "kernel_signature"),
    *("global_scratch_size", "profile_scratch_size"),
)


def is_descriptor(argument: Any) -> bool:
    """Whether a kernel's argument is a TMA descriptor of Triton's or Gluon's."""
    return type(argument).__name__ == "TensorDescriptor" and hasattr(argument, "base")


def _moved(descriptor: Any, address: int) -> Any:
    """The descriptor of a tensor like that of ``descriptor``, at another address, which it does not keep alive."""
    moved = object.__new__(type(descriptor))
    moved.__dict__.update(descriptor.__dict__, base=_Address(address))
    return moved


class PreparedLaunch:
    """A launch of ``kernel`` as ``compiled``.

    Args:
        launcher: that of ``compiled``, with the launch checks in front.
        grid: of up to three dimensions.
        first: the first arguments, which calls bring. Where one is a descriptor, they bring the tensor.
        others: the kernel's arguments by position behind these. The tensors of descriptors are not kept alive.
        named: arguments by name; names that are none of the kernel's are options of its compilation.
        also: tensors among the others, or in tuples of these, which calls bring as well. They are not kept alive.
        again: of which of the tensors that calls bring the last of ``first`` are second arguments.
    """

    __slots__ = (
        *("_after", "_again", "_alone", "_before", "_debug", "_descriptors", "_direct", "_encode", "_encoded"),
        *("_compiled", "_instrumentation", "_kept_alive", "_kernel", "_native", "_others", "_place", "_places", "_run"),
        *("_stages_hook", "takes", "waiting"),
    )

    def __init__(
        self,
        kernel: Any,
        compiled: CompiledKernel,
        launcher: Any,
        grid: Sequence[int],
        first: Sequence[Any],
        others: Sequence[Any],
        named: Mapping[str, Any],
        also: Sequence[Any] = (),
        again: Sequence[int] = (),
    ) -> None:
        x, y, z = (*grid, 1, 1)[:3]
        rest = kernel.params[len(first) + len(others) :]
        arguments = *others, *(named.get(parameter.name, parameter.default) for parameter in rest)
        self._kernel = kernel
        self._compiled = compiled
        self._native: NativeLaunch | bool | None = False
        self._place = getattr(launcher, "place", None)
        self.waiting: Any = getattr(launcher, "waiting", None)
        """What gets the user's line of each launch."""
        self._run = launcher if self._place is None else launcher.launcher
        self._direct = self._run if type(self._run) is DirectLauncher else None
        self._before = x, y, z
        self._after = compiled.function, compiled.packed_metadata, None, None, None  # no hooks, nor what they are told
        if self._direct is not None:
            self._run, self._after = self._direct.by_tuple(self._after)
        self.takes = len(first) - len(again)
        """How many tensors calls bring at least, without ``also``."""
        self._again = tuple(again)
        self._encode = getattr(launcher, "encoded", None)
        self._encoded: dict[tuple[int, int], Any] = {}
        self._descriptors = {
            i: _moved(argument, argument.base.data_ptr()) for i, argument in enumerate(first) if is_descriptor(argument)
        }
        self._places = tuple(
            (i, places) for i, argument in enumerate(arguments) if (places := _places_of(argument, also))
        )
        self._alone = tuple(
            (i, which)
            for i, argument in enumerate(arguments)
            for which, tensor in enumerate(also)
            if argument is tensor
        )
        kept = list(arguments)
        for i, places in self._places:
            kept[i] = tuple(None if k in dict(places) else part for k, part in enumerate(kept[i]))
        for i, _ in self._alone:
            kept[i] = None
        self._kept_alive = [argument for argument in kept if not is_descriptor(argument)]
        self._others = tuple(
            self._at(i, argument, argument.base.data_ptr())
            if is_descriptor(argument)
            else (argument if self._direct is None else _by_address(argument))
            for i, argument in enumerate(kept, len(first))
        )
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

    def guards(self) -> tuple[Guard, ...]:
        """What :meth:`holds` asks, as data."""
        runtime, compilation = knobs.runtime, knobs.compilation
        return (
            Guard(knobs, "attributes", ("runtime",), "is", runtime),
            Guard(knobs, "attributes", ("compilation",), "is", compilation),
            Guard(runtime, "attributes", ("launch_enter_hook", "calls"), "empty"),
            Guard(runtime, "attributes", ("launch_exit_hook", "calls"), "empty"),
            Guard(self._kernel, "attributes", ("pre_run_hooks",), "empty"),
            Guard(runtime, "attributes", ("add_stages_inspection_hook",), "is", self._stages_hook),
            Guard(runtime.__dict__, "item", ("debug",), "equal", self._debug),
            Guard(compilation.__dict__, "item", ("instrumentation_mode",), "equal", self._instrumentation),
        )

    def native(self, library: Any) -> NativeLaunch | None:
        """The same launch by ``library``, ``triton_dist.native_calls``; None if it goes through Triton only.

        Its calls bring the tensors that calls of this one bring, those of ``also`` behind the others.
        """
        if self._native is False:
            data = self.packed()
            try:
                self._native = None if data is None else NativeLaunch(library, data, self)
            except ValueError:  # it has more arguments than the library takes
                self._native = None
        return self._native  # type: ignore[return-value]

    def packed(self) -> PackedLaunch | None:
        """The launch as data; None if it is not known how Triton passes it to the driver."""
        if self._direct is None:
            return None
        tensors: dict[int, tuple[int, Sequence[Any] | None]] = {
            i: (i if i < self.takes else self._again[i - self.takes], None)
            for i in range(self.takes + len(self._again))
        }
        for i, descriptor in self._descriptors.items():
            encoded = self._descriptor(i, descriptor.base.data_ptr())
            tensors[i] = tensors[i][0], encoded.arguments
        first = len(tensors)
        places: dict[tuple[int, int | None], int] = {(first + i, None): self.takes + which for i, which in self._alone}
        places |= {(first + i, k): self.takes + which for i, found in self._places for k, which in found}
        arguments = *(None for _ in tensors), *self._others
        return packed(
            [*self._compiled.src.signature.values()],
            self._direct.kernel_signature,
            self._compiled.packed_metadata,
            self._direct.how,
            self._compiled.function,
            self._before,
            arguments,
            tensors,
            places,
        )

    def map_bytes(self, position: int, address: int) -> bytes:
        """The TMA descriptor that is the first argument at ``position``, of a tensor at ``address``."""
        return tensor_map_bytes(self._descriptor(position, address).arguments[0])

    def __call__(self, stream: int, *tensors: Any, also: Sequence[Any] = ()) -> None:
        """Launch on the stream of this handle, which is one of the device that the kernel was loaded for.

        Args:
            tensors: the first arguments.
            also: the tensors among the others, in the order in which they were named.
        """
        others = self._with(also) if self._alone or self._places else self._others
        if self._place is not None:
            self._place()
        direct = self._direct
        if direct is None:
            self._run(*self._before, stream, *self._after, *tensors, *others)
            return
        arguments: Any = (*tensors, *others)
        self._run(*self._before, stream, *self._after, direct.expanded(arguments) if direct.expands else arguments)

    def _with(self, also: Sequence[Any]) -> Sequence[Any]:
        others = list(self._others)
        for i, which in self._alone:
            others[i] = also[which]
        for i, places in self._places:
            parts = list(others[i])
            for k, which in places:
                parts[k] = also[which]
            others[i] = tuple(parts)
        return others

    def arguments(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """The first arguments of a call with these tensors, of which there may be more: they, or their descriptors."""
        found = list(tensors[: self.takes])
        for i in self._again:
            found.append(found[i])
        for i in self._descriptors:
            found[i] = self._descriptor(i, found[i].data_ptr())
        return found

    def _descriptor(self, position: int, address: int) -> Any:
        found = self._encoded.get((position, address))
        if found is None:
            if len(self._encoded) >= _ENCODED:  # more, where threads have added some at a time
                self._encoded.clear()
            found = self._encoded[position, address] = self._at(position, self._descriptors[position], address)
        return found

    def _at(self, position: int, descriptor: Any, address: int) -> Any:
        moved = _moved(descriptor, address)
        return self._encode(position, moved) if self._encode else moved


class NativeLaunch:
    """A launch of the library."""

    def __init__(self, library: Any, data: PackedLaunch, made: PreparedLaunch) -> None:
        self._made = made
        self._patches: Sequence[Patch] = data.patches
        self.launch: Any = library.new_launch(data)

    def encode(self, patch: int, address: int) -> bytes:
        """The descriptor of a tensor at ``address`` in a place of the arguments, for the library, which keeps it."""
        return self._made.map_bytes(self._patches[patch].position, address)


def _by_address(argument: Any) -> Any:
    """A tensor as its address, also in tuples: Triton's function in C asks the driver about each tensor, in every
    launch, whether the GPU can use its address. It was asked about this one when the launch was made first."""
    if isinstance(argument, tuple):
        parts = [_by_address(part) for part in argument]
        return type(argument)(*parts) if hasattr(argument, "_fields") else tuple(parts)
    return argument.data_ptr() if hasattr(argument, "data_ptr") else argument


def _places_of(argument: Any, tensors: Sequence[Any]) -> Sequence[tuple[int, int]]:
    """Where in ``argument``, if it is a tuple, which of the ``tensors`` stand."""
    if not isinstance(argument, tuple):
        return ()
    return [(k, which) for k, part in enumerate(argument) for which, tensor in enumerate(tensors) if part is tensor]


_ENCODED = 256
"""Descriptors that a launch keeps: of as many addresses of its tensors."""


def prepare_launch(
    kernel: Any,
    compiled: Any,
    grid: Sequence[int],
    first: Sequence[Any],
    others: Sequence[Any],
    named: Mapping[str, Any],
    wrap: Callable[[Any], Any],
    also: Sequence[Any] = (),
    again: Sequence[int] = (),
) -> PreparedLaunch | None:
    """The launch ``kernel[grid](*first, *others, **named)``, which returned ``compiled``, with other first arguments,
    and other tensors in place of those of ``also`` that stand among the others, alone or in tuples. The last of the
    first arguments are second ones of those that ``again`` names.

    ``wrap`` is given the kernel's launcher and returns the one to be used. None if there is nothing to launch again: a
    kernel that is interpreted, or compiled in another thread.
    """
    if not isinstance(compiled, CompiledKernel):
        return None
    launcher = wrap(direct_launcher(compiled.run, compiled))
    return PreparedLaunch(kernel, compiled, launcher, grid, first, others, named, also, again)
