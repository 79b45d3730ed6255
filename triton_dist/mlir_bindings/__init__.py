"""MLIR's Python bindings, of whichever package has them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from triton_dist import environment

__all__ = ["PACKAGES", "add_dialects", "installed", "package"]

PACKAGES = ("mlir", "jaxlib.mlir", "iree.compiler")
"""What the bindings are called in mlir-python-bindings and in LLVM's own builds, in jaxlib, and in IREE's compiler."""


def installed() -> list[str]:
    """Those of PACKAGES that can be imported. None of them is imported by this."""
    return [name for name in PACKAGES if _is_installed(name)]


def package() -> str:
    """The one that is used: what ``TRITON_DIST_MLIR_BINDINGS`` says, else one that the program has imported, else the
    first that is installed.

    Raises:
        ImportError: there is none; the message says what to install.
    """
    chosen: str | None = environment.get("TRITON_DIST_MLIR_BINDINGS")
    found = installed()
    if chosen is not None:
        if chosen not in found:
            raise ImportError(f"TRITON_DIST_MLIR_BINDINGS={chosen}: this package is not installed")
        return chosen
    imported = [name for name in found if f"{name}.ir" in sys.modules]
    for name in (*imported, *found):
        return name
    raise ImportError(
        f"no package with MLIR's Python bindings is installed (looked for {', '.join(PACKAGES)}): pip install"
        " 'triton-dist[mlir]', or jaxlib, or iree-base-compiler"
    )


def add_dialects(context: Any) -> None:
    """Let a context know the dialects that its package has.

    Contexts of jaxlib know none until jaxlib's extension adds them, which JAX asks for only in its own contexts.
    """
    if package() == "jaxlib.mlir":
        registry = importlib.import_module("jaxlib.mlir.ir").DialectRegistry()
        importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(f"{name}.ir") is not None
    except (ImportError, ValueError):  # the package, or one around it, is not there
        return False
