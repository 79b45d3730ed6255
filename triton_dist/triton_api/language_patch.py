"""What changes in ``triton.language`` while a kernel is interpreted, and only then.

A kernel is plain Python to the interpreter, so ``tl.load(…)`` must mean the interpreter's load. Triton's patch serves
kernels that call ``tl.<name>``, and is made anew for each launch and each call of a device function. Ours is worked out
once and also covers names imported from ``triton.language`` one by one, and the member functions of ``tl.tensor`` that
are ``@triton.jit`` functions when Triton was imported before its interpreter was asked for.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITCallable

from triton_dist.triton_api.replay import is_recorded, replayed

__all__ = ["LanguagePatch"]

_MISSING = object()

_PORTABLE, _NVIDIAS = tl.extra.libdevice, tl.extra.cuda.libdevice
"""The compiler replaces functions of the first module by those of its target. The CPU world uses NVIDIA's."""


class LanguagePatch:
    """What is patched now. One for each process, since all kernels of a process share ``triton.language``."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] | None = None
        """How to take back what is patched now; None when nothing is."""
        self._extended: set[int] = set()
        """Whose globals are patched now, by identity."""
        self.stays = False
        """Whether kernels leave the language patched: in a process that runs kernels of several PEs by turns."""
        self._staying = ExitStack()

    def is_applied(self) -> bool:
        """Whether a kernel is being interpreted."""
        return self._undo is not None

    @contextmanager
    def applied(self, kernel_globals: dict[str, Any], *, static_assert: Callable[..., None]) -> Iterator[None]:
        """Patch the language, and the names that a kernel's module imported from it.

        ``static_assert`` takes the place of Triton's.
        """
        if self.stays:
            if self._undo is None:
                self._staying.enter_context(self._patched(static_assert))
            self.extend(kernel_globals)
            yield
            return
        if self._undo is not None:
            raise RuntimeError("a kernel runs already: kernels cannot launch kernels, nor can two threads run one each")
        with self._patched(static_assert):
            self.extend(kernel_globals)
            yield

    @contextmanager
    def _patched(self, static_assert: Callable[..., None]) -> Iterator[None]:
        self._undo = []
        before = [(owner, _of(vars(owner), new)) for owner, new in _language_changes()]
        try:
            for owner, new in _language_changes():
                _set(owner, new)
            for module in (tl, tl.core):
                _set(module, {"static_assert": static_assert})
            yield
        finally:
            undo, self._undo = self._undo, None
            self._extended.clear()
            for step in reversed(undo):
                step()
            for owner, old in before:
                _set(owner, old)

    def extend(self, function_globals: dict[str, Any]) -> None:
        """Patch the names that the module of a called device function imported from the language."""
        if id(function_globals) in self._extended:
            return
        self._extended.add(id(function_globals))
        assert self._undo is not None
        for name, value in list(function_globals.items()):
            if not isinstance(value, types.FunctionType):
                continue
            if value.__module__.startswith("triton.language") and tl.core.is_builtin(value):
                function_globals[name] = _interpreted(value)
            elif value.__module__ == _PORTABLE.__name__:
                function_globals[name] = getattr(_PORTABLE, value.__name__)
            if function_globals[name] is not value:
                self._undo.append(functools.partial(function_globals.__setitem__, name, value))


def _of(attributes: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: attributes.get(name, _MISSING) for name in names}


def _set(owner: Any, attributes: dict[str, Any]) -> None:
    """Set attributes, of which the missing ones are deleted. Of modules, which have most, this is one call."""
    if isinstance(owner, types.ModuleType):
        vars(owner).update(attributes)
        attributes = {}
    for name, value in attributes.items():
        if value is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)


@functools.cache
def _interpreted(builtin: Callable[..., Any]) -> Callable[..., Any]:
    return replayed(builtin)


@functools.cache
def _language_changes() -> list[tuple[Any, dict[str, Any]]]:
    """What Triton's own patch would set, by the object, and the jitted member functions. Modules have all the names."""
    recorder = _Recorder()
    libdevices = _NVIDIAS, tl.extra.hip.libdevice
    for owner in (tl.core.tensor_descriptor_base, tl, tl.core, tl.math, tl.tensor, *libdevices):
        for name, member in inspect.getmembers(owner, tl.core.is_builtin):
            recorder.set_attr(owner, name, _interpreted(member))
    for name, function in vars(_PORTABLE).items():
        if isinstance(function, types.FunctionType):
            recorder.set_attr(_PORTABLE, name, _of_target(name))
    stock._patch_lang_tensor(tl.tensor, recorder)
    _, _, truth = recorder.changes[id(tl.tensor), "__bool__"]
    recorder.set_attr(tl.tensor, "__bool__", lambda self: is_recorded(self) or truth(self))  # true, as in the compiler
    for module in (tl, tl.core):
        stock._patch_lang_core(module, recorder)
        # Triton makes one function of both; interpreted loops distinguish them.
        for name in ("range", "static_range"):
            recorder.changes.pop((id(module), name))
    recorder.changes.pop((id(tl.tensor), "__index__"))  # the compiler has no tensor for a constant either
    for name, member in vars(tl.tensor).items():
        if isinstance(member, JITCallable):
            recorder.set_attr(tl.tensor, name, _as_method(member))
    changes: dict[int, tuple[Any, dict[str, Any]]] = {}
    for owner, name, value in recorder.changes.values():
        changes.setdefault(id(owner), (owner, {}))[1][name] = value
    return list(changes.values())


def _of_target(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(_PORTABLE, name))
    def call(*args: Any, **kwargs: Any) -> Any:
        if not hasattr(_NVIDIAS, name):
            raise NotImplementedError(f"NVIDIA's libdevice has no {name}, nor has the CPU world; AMD's may have it")
        return getattr(_NVIDIAS, name)(*args, **kwargs)

    return call


def _as_method(function: Any) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: function(self, *args, **kwargs)


class _Recorder(stock._LangPatchScope):  # type: ignore[misc]
    """Notes what Triton's patch would change instead of changing it."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: dict[tuple[int, str], tuple[Any, str, Any]] = {}

    def set_attr(self, obj: object, name: str, value: object) -> None:
        self.changes[id(obj), name] = (obj, name, value)
