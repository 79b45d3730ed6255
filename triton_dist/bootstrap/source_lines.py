"""Classification of source files: the user's, ours, an installed package's, or the standard library's.

The examples that an installed package holds are users' programs: their lines are what messages name.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

__all__ = ["is_library", "is_ours", "is_standard_library"]

_PACKAGE = Path(__file__).parents[1]
_OURS = tuple(f"{folder}/" for folder in {_PACKAGE, _PACKAGE.resolve()})
_EXAMPLES = tuple(f"{folder}examples/" for folder in _OURS)

_STANDARD = tuple(f"{directory}/" for directory in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_INSTALLED = tuple(f"{directory}/" for directory in {sysconfig.get_path(name) for name in ("purelib", "platlib")})


def is_standard_library(file: str) -> bool:
    """Whether ``file`` is of the standard library, such as contextlib. Its caller is then the line to report."""
    return file.startswith("<frozen ") or (file.startswith(_STANDARD) and not _is_installed(file))


def is_library(file: str) -> bool:
    """Whether ``file`` is of the standard library or of an installed package."""
    return is_standard_library(file) or _is_installed(file)


def is_ours(file: str) -> bool:
    """Whether ``file`` is a module of this package."""
    return file.startswith(_OURS) and not file.startswith(_EXAMPLES)


def _is_installed(file: str) -> bool:
    installed = file.startswith(_INSTALLED) or "/site-packages/" in file or "/dist-packages/" in file
    return installed and not file.startswith(_EXAMPLES)
