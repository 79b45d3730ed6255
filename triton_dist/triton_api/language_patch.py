"""What changes in ``triton.language`` while a kernel is interpreted, and only then.

A kernel is plain Python to the interpreter, so ``tl.load(…)`` must mean the interpreter's load. Triton's patch serves
kernels that call ``tl.<name>``, and is made anew for each launch and each call of a device function. Ours is worked out
once and also covers names imported from ``triton.language`` one by one, and the member functions of ``tl.tensor`` that
are ``@triton.jit`` functions when Triton was imported before anybody asked for its interpreter.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITCallable

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

    def is_applied(self) -> bool:
        """Whether a kernel is being interpreted."""
        return self._undo is not None

    @contextmanager
    def applied(self, kernel_globals: dict[str, Any], *, static_assert: Callable[..., None]) -> Iterator[None]:
        """Patch the language, and the names that a kernel's module imported from it.

        ``static_assert`` takes the place of Triton's.
        """
        if self._undo is not None:
            raise RuntimeError("a kernel runs already: kernels cannot launch kernels, nor can two threads run one each")
        self._undo = []
        try:
            for owner, name, value in _language_changes():
                self._set(owner, name, value)
            for module in (tl, tl.core):
                self._set(module, "static_assert", static_assert)
            self.extend(kernel_globals)
            yield
        finally:
            undo, self._undo = self._undo, None
            self._extended.clear()
            for step in reversed(undo):
                step()

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

    def _set(self, owner: Any, name: str, value: Any) -> None:
        assert self._undo is not None
        original = vars(owner).get(name, _MISSING)
        self._undo.append(
            functools.partial(delattr, owner, name)
            if original is _MISSING
            else functools.partial(setattr, owner, name, original)
        )
        setattr(owner, name, value)


@functools.cache
def _interpreted(builtin: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(builtin)
    def call(*args: Any, **kwargs: Any) -> Any:
        return builtin(*args, **kwargs | {"_semantic": stock.interpreter_semantic})

    return call


@functools.cache
def _language_changes() -> list[tuple[Any, str, Any]]:
    """What Triton's own patch would set, and the jitted member functions, each once."""
    recorder = _Recorder()
    stock._patch_builtin(tl.core.tensor_descriptor_base, stock.interpreter_builder, recorder)
    for module in (tl, tl.core, tl.math):
        stock._patch_builtin(module, stock.interpreter_builder, recorder)
    stock._patch_builtin(tl.tensor, stock.interpreter_builder, recorder)
    for module in (_NVIDIAS, tl.extra.hip.libdevice):
        stock._patch_builtin(module, stock.interpreter_builder, recorder)
    for name, function in vars(_PORTABLE).items():
        if isinstance(function, types.FunctionType):
            recorder.set_attr(_PORTABLE, name, _of_target(name))
    stock._patch_lang_tensor(tl.tensor, recorder)
    for module in (tl, tl.core):
        stock._patch_lang_core(module, recorder)
        # Triton makes one function of both; interpreted loops distinguish them.
        for name in ("range", "static_range"):
            recorder.changes.pop((id(module), name))
    recorder.changes.pop((id(tl.tensor), "__index__"))  # the compiler has no tensor for a constant either
    for name, member in vars(tl.tensor).items():
        if isinstance(member, JITCallable):
            recorder.set_attr(tl.tensor, name, _as_method(member))
    return list(recorder.changes.values())


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
