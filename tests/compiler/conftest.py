"""Compiling kernels for a GPU that is not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

import triton_dist  # noqa: F401  # before triton, so that the plugin is loaded without the start-up hook, too
from triton_dist.compiler import hooks

HOPPER = GPUTarget("cuda", 90, 32)


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    return tmp_path


@pytest.fixture
def compile_kernel(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``compile_kernel(function, signature, **options)`` → Triton's compiled kernel, for an H100/H200.

    ``signature`` maps arguments to types; a pointer's type ending in ``!`` is 16-byte aligned, and what is no string is
    the value of a constexpr.
    """
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    hooks.install()  # in the CPU world nobody else does

    def compile_(function: Any, signature: dict[str, Any], target: GPUTarget = HOPPER, **options: Any) -> Any:
        types = {k: v.rstrip("!") if isinstance(v, str) else "constexpr" for k, v in signature.items()}
        constants = {k: v for k, v in signature.items() if not isinstance(v, str)}
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, v in enumerate(signature.values())
            if isinstance(v, str) and v.endswith("!")
        }
        # In the CPU world @triton.jit makes interpreted functions; compiling needs the other kind.
        kernel = JITFunction(getattr(function, "fn", function))
        source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
        return triton.compile(source, target=target, options=options)

    return compile_
