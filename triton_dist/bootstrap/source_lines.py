"""Classification of source files: the user's, an installed package's, or the standard library's."""

from __future__ import annotations

import sysconfig

__all__ = ["is_library", "is_standard_library"]

_STANDARD = tuple(f"{directory}/" for directory in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_INSTALLED = tuple(f"{directory}/" for directory in {sysconfig.get_path(name) for name in ("purelib", "platlib")})


def is_standard_library(file: str) -> bool:
    """Whether ``file`` is of the standard library, such as contextlib. Its caller is then the line to report."""
    return file.startswith("<frozen ") or (file.startswith(_STANDARD) and not _is_installed(file))


def is_library(file: str) -> bool:
    """Whether ``file`` is of the standard library or of an installed package."""
    return is_standard_library(file) or _is_installed(file)


def _is_installed(file: str) -> bool:
    return file.startswith(_INSTALLED) or "/site-packages/" in file or "/dist-packages/" in file
