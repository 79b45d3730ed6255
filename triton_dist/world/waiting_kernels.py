"""Loaded kernels that wait: at which of their lines, launched from where, and how their waits report.

A wait that lasts too long reports numbers (``runtime/device/WaitReport.h``): that of the kernel, given here, and that
of the place in it, which the compiler lists in the kernel's metadata (``triton_dist.compiler.hooks``). Kernels outlive
worlds, so they are remembered: what was loaded before a world is told by it where to report, and what was told once
reports to the same memory for good, whether somebody reads it or not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import triton

from triton_dist import triton_api

__all__ = ["PlacedLauncher", "Site", "WaitingKernel", "bind", "find", "loaded", "unbind"]


@dataclass(frozen=True)
class Site:
    """A place that waits."""

    op: str
    type: str
    """Of what it compares: ``"u64"``."""
    lines: tuple[str, ...]
    """``file:line``, from the innermost function to the kernel."""

    @staticmethod
    def parse(words: Sequence[str]) -> Site:
        """What the compiler listed."""
        return Site(words[0], words[1], tuple(words[2:]))


@dataclass
class WaitingKernel:
    """A loaded kernel that waits."""

    number: int
    """What its reports say."""
    name: str
    module: int
    """Its CUmodule."""
    device: int
    """The GPU that it was loaded for."""
    sites: tuple[Site, ...]
    launched: tuple[CodeType, int] | None = None
    """The code that launched it last, and where in it."""

    def site(self, number: int) -> Site | None:
        """The place of a number, from 1."""
        return self.sites[number - 1] if 0 < number <= len(self.sites) else None

    def launch_line(self) -> str:
        """``file:line``, or nothing."""
        if self.launched is None:
            return ""
        code, at = self.launched
        line = next((line for begin, end, line in code.co_lines() if begin <= at < end), code.co_firstlineno)
        return f"{code.co_filename}:{line}"


_kernels: list[WaitingKernel] = []  # Triton unloads none
_fill: Callable[[WaitingKernel], None] | None = None  # the present world's


def bind(fill: Callable[[WaitingKernel], None]) -> None:
    """A world on a GPU began: ``fill`` tells a kernel where to report."""
    global _fill
    _fill = fill
    for kernel in tuple(_kernels):
        fill(kernel)


def unbind() -> None:
    """The world ended."""
    global _fill
    _fill = None


def find(number: int) -> WaitingKernel | None:
    """The kernel of a number."""
    return _kernels[number] if 0 <= number < len(_kernels) else None


def loaded(kernel: Any, sites: Sequence[Sequence[str]]) -> PlacedLauncher:
    """Triton has loaded ``kernel``, which waits at ``sites``; the launcher that it is to have instead of its own."""
    places = tuple(map(Site.parse, sites))
    waiting = WaitingKernel(len(_kernels), kernel.name, kernel.module, triton_api.current_device(), places)
    _kernels.append(waiting)
    if _fill is not None:
        _fill(waiting)
    return PlacedLauncher(kernel._run, waiting)


_PACKAGES = tuple(f"{Path(str(module.__file__)).parent}/" for module in (triton, sys.modules["triton_dist"]))
_inside: dict[str, bool] = {}  # by file: whether it is Triton's or ours


def _is_inside(file: str) -> bool:
    return _inside.setdefault(file, file.startswith(_PACKAGES))


class PlacedLauncher:
    """A launcher that remembers which of the user's lines launched its kernel last; it takes about half a µs."""

    def __init__(self, launcher: Any, kernel: WaitingKernel) -> None:
        self._launcher = launcher
        self._kernel = kernel

    def __call__(self, *arguments: Any) -> None:
        frame = sys._getframe(2)  # who called Triton's run(), which calls us
        code = frame.f_code
        while _is_inside(code.co_filename) if (known := _inside.get(code.co_filename)) is None else known:
            if frame.f_back is None:
                break
            frame = frame.f_back
            code = frame.f_code
        self._kernel.launched = code, frame.f_lasti
        self._launcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)
