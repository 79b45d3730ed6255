"""What the supported versions of Triton have in common.

The modules ``v3_7``, ``v3_9``, … hold what differs between them.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from triton import knobs
from triton._C.libtriton import ir
from triton.compiler import CompiledKernel
from triton.language.core import TRITON_BUILTIN
from triton.runtime import driver, interpreter
from triton.runtime._async_compile import AsyncCompileMode
from triton.runtime.cache import get_cache_manager

from _triton_dist_loader import plugin_pass
from triton_dist.process_state import of_process

__all__ = [
    "LAUNCHER_ARGUMENTS",
    "Conversion",
    "WithPasses",
    "add_plugin_passes",
    "build_plugin_op",
    "cached_file",
    "current_device",
    "device_properties",
    "extend_compilation",
    "extend_loading",
    "guard_launches",
    "is_interpreting",
    "load",
    "mark_as_builtin",
    "on_module_load",
    "run_plugin_passes",
    "set_int_attribute",
    "warp_size",
    "with_global",
]

_Stage = Callable[[Any, dict[str, Any]], Any]

WithPasses = Callable[[Any, Mapping[str, list[str]]], Callable[..., Any]]
"""From a backend object, and passes of the plugin with their arguments, its step from TTGIR to LLVM IR."""

# ---- compilation


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What is added to the step of one kernel from TTGIR to LLVM IR."""

    passes: Mapping[str, list[str]]
    """Passes of the plugin that run behind Triton's own, with their arguments."""
    libraries: tuple[tuple[str, str], ...]
    """Names and files of the bitcode that the kernel is linked with."""
    needs_tritons_libraries: Callable[[], bool]
    """Whether the kernel is linked with Triton's own libraries, too; asked when the passes have run."""
    metadata: Mapping[str, Any]
    """What is kept with the kernel."""


def extend_compilation(
    cache_key: Callable[[], tuple[str, str, Any]],
    check: Callable[[Any, Any, str, int], None],
    conversion: Callable[[Any, Any, str, str], Conversion | None],
    pin: Callable[[], None],
    *,
    with_passes: WithPasses,
) -> None:
    """Take part in every compilation from now on. Threads may compile at the same time. A second call changes nothing.

    Args:
        cache_key: what tells our binaries from others, its digest, and what ``check`` and ``conversion`` get for the
            kernels that are compiled under that key. Triton asks at every launch.
        check: from that, a module before the step to TTGIR, its backend (``"cuda"`` or ``"hip"``) and how many CTAs a
            program has. What it raises ends the compilation.
        conversion: from that, a module in TTGIR, its backend and its architecture (``"sm_90"``, ``"gfx942"``), what is
            to be added to the step to LLVM IR; None for nothing.
        pin: called in the context of a compilation that Triton makes in another thread, before it starts: from then on
            ``cache_key`` answers there as at the launch that asked for it.
        with_passes: the step to LLVM IR of a backend object, with passes of the plugin behind Triton's conversion.
    """
    earlier = knobs.runtime.add_stages_inspection_hook
    if not isinstance(earlier, _StagesHook):
        knobs.runtime.add_stages_inspection_hook = _StagesHook(earlier, cache_key, check, conversion, with_passes)
    _carry_context_into_async_compilations(pin)


def run_plugin_passes(module: Any, added: Mapping[str, list[str]]) -> None:
    """Run passes of the plugin over a module: their names, with their arguments."""
    manager = ir.pass_manager(module.context)
    add_plugin_passes(manager, added)
    manager.run(module, "-".join(added))


def add_plugin_passes(manager: Any, added: Mapping[str, list[str]]) -> None:
    """Add passes of the plugin to what a pass manager runs."""
    for name, arguments in added.items():
        plugin_pass(name)(manager, arguments)


def set_int_attribute(module: Any, name: str, value: int) -> None:
    """Set an attribute of a module to a 32-bit integer."""
    module.set_attr(name, ir.builder(module.context).get_int32_attr(value))


class _StagesHook:
    """Triton calls it with the stages of a compilation, or with nothing (at every launch) to ask for its cache key.

    A compilation asks for the key and then, in the same thread, calls with the stages. What is compiled is what the key
    says, even if a world begins in between.
    """

    def __init__(
        self,
        earlier: Callable[..., tuple[str, str]] | None,
        cache_key: Callable[[], tuple[str, str, Any]],
        check: Callable[[Any, Any, str, int], None],
        conversion: Callable[[Any, Any, str, str], Conversion | None],
        with_passes: WithPasses,
    ) -> None:
        self._earlier = earlier
        self._cache_key = cache_key
        self._check = check
        self._conversion = conversion
        self._with_passes = with_passes
        self._thread = threading.local()

    def __call__(
        self, backend: Any = None, stages: Any = None, options: Any = None, language: Any = None, capability: Any = None
    ) -> tuple[str, str]:
        key, digest, keyed = self._cache_key()
        if self._earlier is not None:
            earlier_key, earlier_digest = self._earlier(backend, stages, options, language, capability)
            key, digest = earlier_key + key, earlier_digest + digest
        if stages is None:
            self._thread.keyed = keyed
        else:
            keyed = getattr(self._thread, "keyed", keyed)
            if "ttgir" in stages:
                stages["ttgir"] = _checked(stages["ttgir"], functools.partial(self._check, keyed), backend, options)
            _convert_in(backend, functools.partial(self._conversion, keyed), self._with_passes)
        return key, digest


def _checked(plain: _Stage, check: Callable[[Any, str, int], None], backend: Any, options: Any) -> _Stage:
    """The stage that makes TTGIR, behind ``check``."""

    def make_ttgir(module: Any, metadata: dict[str, Any]) -> Any:
        check(module, backend.target.backend, options.num_ctas)
        return plain(module, metadata)

    return make_ttgir


def _convert_in(
    backend: Any, conversion: Callable[[Any, str, str], Conversion | None], with_passes: WithPasses
) -> None:
    """Have the step to LLVM IR of one compilation extended: ``backend`` is the object that Triton made for it alone."""
    plain = backend.make_llir

    def make_llir(module: Any, metadata: dict[str, Any], options: Any, *capability: int) -> Any:
        architecture = f"sm_{capability[0]}" if capability else backend.target.arch  # AMD's backend is told none
        extension = conversion(module, backend.target.backend, architecture)
        if extension is None:
            return plain(module, metadata, options, *capability)
        metadata.update(extension.metadata)
        linked = dataclasses.replace(options)
        object.__setattr__(linked, "extern_libs", _Libraries(options.extern_libs, extension))
        return with_passes(backend, extension.passes)(module, metadata, linked, *capability)

    backend.make_llir = make_llir


def with_global(backend: Any, name: str, value: Any) -> Callable[..., Any]:
    """The ``make_llir`` of a backend object, for which a global name of its module means ``value``.

    All threads share the module, so the function is copied, with globals of its own.

    Raises:
        RuntimeError: the function does not use the name, so it is not Triton's.
    """
    function = type(backend).make_llir
    if name not in function.__code__.co_names:
        raise RuntimeError(
            f"{function.__module__}.{function.__qualname__} stands in the place of Triton's make_llir and does not look"
            f" at its instrumentation slot ({name}): kernels with shmem ops cannot be compiled with it"
        )
    copy = types.FunctionType(
        function.__code__,
        {**function.__globals__, name: value},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    return types.MethodType(copy, backend) if backend.target.backend == "cuda" else copy  # AMD's is static


class _Libraries(tuple[tuple[str, str], ...]):
    """Names and files of what a kernel is linked with: Triton's own libraries only if it calls them.

    Triton links all of its libraries into a kernel that calls any function, and to read libdevice takes longer than all
    else that an op costs. Whether it is needed is known when the passes have run, which is when Triton iterates.
    """

    _extension: Conversion

    def __new__(cls, tritons: tuple[tuple[str, str], ...], extension: Conversion) -> _Libraries:
        libraries = super().__new__(cls, (*tritons, *extension.libraries))
        libraries._extension = extension
        return libraries

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if self._extension.needs_tritons_libraries():
            return super().__iter__()
        return iter(self._extension.libraries)


def _carry_context_into_async_compilations(pin: Callable[[], None]) -> None:
    """``triton.AsyncCompileMode`` compiles in another thread: there, too, for what the launch asked.

    Triton also takes two launches of one kernel for the same compilation, whatever the stages hook says of them; so
    its key becomes part of what they are told apart by.
    """
    plain = AsyncCompileMode.submit
    if hasattr(plain, "carries_context"):
        return

    @functools.wraps(plain)
    def submit(self: Any, key: Any, compile_fn: Callable[[], Any], *others: Callable[[Any], None]) -> Any:
        context = contextvars.copy_context()
        context.run(pin)
        if knobs.runtime.add_stages_inspection_hook is not None:
            key = key, knobs.runtime.add_stages_inspection_hook()[0]
        return plain(self, key, functools.partial(context.run, compile_fn), *others)

    submit.carries_context = True  # type: ignore[attr-defined]
    AsyncCompileMode.submit = submit


def cached_file(key: str, name: str, make: Callable[[], bytes]) -> str:
    """The path of a file in Triton's cache, which ``make`` gives the content of when it is not there.

    Several processes may do this at once.
    """
    manager = get_cache_manager(key)
    path = manager.get_file(name)
    return str(path if path is not None else manager.put(make(), name, binary=True))


# ---- loading and launching

LAUNCHER_ARGUMENTS = 6
"""Between the grid and the kernel's arguments a launcher takes a stream, a function, metadata, and hooks."""

_loading = threading.RLock()


class StayingKernels:
    """Kernels whose modules stay loaded. One for each process, since a world writes to modules loaded before it."""

    def __init__(self) -> None:
        self.kernels: list[Any] = []


def extend_loading(loaded: Callable[[Any], None], stays: Callable[[Any], bool]) -> None:
    """Have ``loaded`` called with every kernel whose module was loaded, before its first launch.

    A kernel for which ``stays`` is true is never garbage, and so its module stays loaded: Triton 3.8 and later unload a
    module with its kernel. It is asked before the module is loaded.

    A second call changes nothing. One kernel is loaded at a time: a thread that launches one which another thread loads
    waits until that has been done, with all hooks.
    """
    plain = CompiledKernel._init_handles
    if hasattr(plain, "is_extended"):
        return

    @functools.wraps(plain)
    def init_handles(kernel: Any) -> None:
        if hasattr(kernel, "_triton_dist_loaded"):
            return
        with _loading:
            if hasattr(kernel, "_triton_dist_loaded"):
                return
            loaded_before = kernel.module is not None
            if stays(kernel):
                of_process(StayingKernels).kernels.append(kernel)
            plain(kernel)
            if not loaded_before:
                loaded(kernel)
            kernel._triton_dist_loaded = True

    init_handles.is_extended = True  # type: ignore[attr-defined]
    CompiledKernel._init_handles = init_handles


def load(kernel: Any) -> None:
    """Load a compiled kernel's module, as its first launch would."""
    kernel._init_handles()


def on_module_load(hook: Callable[..., None]) -> None:
    """Have ``hook(module, function, name, metadata_group, hash)`` called for every module that is loaded, once each."""
    knobs.runtime.kernel_load_end_hook.add(hook)


def guard_launches(hook: Callable[[Any], None], *, on: bool) -> None:
    """Have ``hook`` called with the metadata of every launch before it, or not any more.

    The list is replaced and not changed, since launches of other threads may be going through it.
    """
    chain = knobs.runtime.launch_enter_hook
    if on != (hook in chain.calls):
        chain.calls = [*chain.calls, hook] if on else [call for call in chain.calls if call != hook]


def current_device() -> int:
    """The number of the current GPU."""
    return int(driver.active.get_current_device())


def warp_size() -> int:
    """Of the current GPU."""
    return int(driver.active.get_current_target().warp_size)


@functools.cache
def device_properties(device: int) -> Mapping[str, int]:
    """What Triton's driver knows of a GPU: ``"multiprocessor_count"``, ``"max_shared_mem"`` (bytes for a program) …

    The driver is asked once: it tells the GPU's clocks, too, which takes a millisecond.
    """
    properties: Mapping[str, int] = driver.active.utils.get_device_properties(device)
    return properties


# ---- language


def mark_as_builtin(function: Callable[..., Any]) -> None:
    """Let kernels call ``function``, which is handed the semantic as ``_semantic``."""
    setattr(function, TRITON_BUILTIN, True)


def is_interpreting() -> bool:
    """Whether the interpreter of the CPU world runs a kernel now."""
    builder = interpreter.interpreter_builder
    return hasattr(builder, "shmem_op") and getattr(builder, "grid_idx", None) is not None


def build_plugin_op(
    semantic: Any, name: str, handles: list[Any], attributes: Sequence[int], result: Any, *, prefix: str
) -> Any:
    """The handle of the plugin op ``name``'s result, of dtype ``result``; None if that is None.

    ``prefix`` is what Triton puts before the name of the builder's method.

    Triton 3.7 drops the result of a plugin op on its way to Python, and no version tells a plugin the result type. The
    op is handed a *slot*, an op that is the identity in its first operand, which the plugin replaces by the result;
    Triton folds the rest away. The other side of the convention is lowering/lib/Plugin/OpBuilders.cpp.
    """
    builder = semantic.builder
    slots = []
    if result is not None:
        zero = semantic.scalar_constant(0, result).handle
        is_int = result.is_int()
        slots.append(builder.create_or(zero, zero) if is_int else builder.create_bitcast(zero, result.to_ir(builder)))
    getattr(builder, prefix + name)([*slots, *handles, *(builder.get_int32(attribute) for attribute in attributes)])
    return slots[0] if slots else None
