"""``triton.autotune``: its class, what it takes for an unusable configuration, and which kernel it measures."""

from __future__ import annotations

import contextvars
import functools
from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources, PTXASError

__all__ = ["UNUSABLE", "Autotuner", "autotuned_kernel", "extend_autotuning"]

UNUSABLE = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
"""What compiling and loading a configuration raises that cannot be used. The autotuner leaves it out."""

_autotuned: contextvars.ContextVar[str | None] = contextvars.ContextVar("autotuned", default=None)


def extend_autotuning() -> None:
    """Have :func:`autotuned_kernel` tell what ``triton.autotune`` measures from now on. Again, it changes nothing."""
    plain = Autotuner._bench
    if hasattr(plain, "is_extended"):
        return

    @functools.wraps(plain)
    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        token = _autotuned.set(self.base_fn.__name__ if type(self) is Autotuner else None)
        try:
            return plain(self, *args, config=config, **meta)
        finally:
            _autotuned.reset(token)

    bench.is_extended = True  # type: ignore[attr-defined]
    Autotuner._bench = bench


def autotuned_kernel() -> str | None:
    """The name of the kernel that ``triton.autotune`` itself, and no class made from its, is measuring here."""
    return _autotuned.get()
