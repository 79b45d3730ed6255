"""Registry of loaded kernels that wait: their waits' source lines and their last launch.

A wait report contains two numbers (``runtime/device/WaitReport.h``): the kernel's, assigned in this module, and the
wait's, which indexes a list in the kernel's metadata (``triton_dist.compiler.hooks``). Kernels outlive worlds. A new
world enables the reports of all kernels that are loaded already. A kernel with enabled reports goes on writing them to
the same memory after the world has ended.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import triton

from triton_dist import triton_api
from triton_dist.bootstrap.source_lines import is_ours

__all__ = ["PlacedLauncher", "Site", "WaitingKernel", "WaitingKernels", "is_inside"]


@dataclass(frozen=True)
class Site:
    """A wait in a kernel."""

    op: str
    type: str
    """The compared type: ``"u64"``."""
    lines: tuple[str, ...]
    """``file:line``, from the innermost function to the kernel."""

    @staticmethod
    def parse(words: Sequence[str]) -> Site:
        """From the fields of the kernel's metadata."""
        return Site(words[0], words[1], tuple(words[2:]))


@dataclass
class WaitingKernel:
    """A loaded kernel that waits."""

    number: int
    """Identifies the kernel in its reports."""
    name: str
    module: int
    """Its CUmodule."""
    device: int
    """The GPU that it was loaded for."""
    sites: tuple[Site, ...]
    launched: tuple[CodeType, int] | None = None
    """The code object that launched it last, and the instruction offset."""

    def site(self, number: int) -> Site | None:
        """The wait with this number, from 1."""
        return self.sites[number - 1] if 0 < number <= len(self.sites) else None

    def launch_line(self) -> str:
        """``file:line`` of the last launch, or an empty text."""
        if self.launched is None:
            return ""
        code, at = self.launched
        line = next((line for begin, end, line in code.co_lines() if begin <= at < end), code.co_firstlineno)
        return f"{code.co_filename}:{line}"


class WaitingKernels:
    """All loaded kernels that wait. One for each process: Triton unloads none, and reports name them by number."""

    def __init__(self, kernels: Sequence[WaitingKernel] = ()) -> None:
        self._kernels = list(kernels)
        self._fill: Callable[[WaitingKernel], None] | None = None  # of the current world

    def bind(self, fill: Callable[[WaitingKernel], None]) -> None:
        """Begin of a GPU world: call ``fill``, which enables a kernel's reports, for loaded and future kernels."""
        self._fill = fill
        for kernel in tuple(self._kernels):
            fill(kernel)

    def unbind(self) -> None:
        """End of the world: kernels that are loaded later do not report."""
        self._fill = None

    def find(self, number: int) -> WaitingKernel | None:
        """The kernel with this number, or None."""
        return self._kernels[number] if 0 <= number < len(self._kernels) else None

    def loaded(self, kernel: Any, sites: Sequence[Sequence[str]]) -> PlacedLauncher:
        """Register a loaded ``kernel`` that waits at ``sites``. Returns the launcher that replaces its own."""
        places = tuple(map(Site.parse, sites))
        waiting = WaitingKernel(len(self._kernels), kernel.name, kernel.module, triton_api.current_device(), places)
        self._kernels.append(waiting)
        if self._fill is not None:
            self._fill(waiting)
        return PlacedLauncher(kernel._run, waiting)


_TRITON = f"{Path(str(triton.__file__)).parent}/"


@functools.cache
def is_inside(file: str) -> bool:
    """Whether a file belongs to Triton or to this package."""
    return is_ours(file) or file.startswith(_TRITON)


class PlacedLauncher:
    """A launcher that records the user's line of the last launch, which costs about half a µs.

    Args:
        depth: how many frames above its own certainly belong to Triton or to this package: Triton's run(), which calls
            it, by default.
    """

    def __init__(self, launcher: Any, kernel: WaitingKernel, depth: int = 1) -> None:
        self.launcher = launcher
        """The one behind this."""
        self.waiting = kernel
        """What gets the user's line."""
        self._first = depth + 1

    def below(self, depth: int, launcher: Any) -> PlacedLauncher:
        """A launcher that records for the same kernel, for callers that it is so deep below, in front of ``launcher``.

        (To step from frame to frame takes longer.)
        """
        return PlacedLauncher(launcher, self.waiting, depth)

    def __call__(self, *arguments: Any) -> None:
        self.place(1)
        self.launcher(*arguments)

    def place(self, below: int = 0) -> None:
        """Record the user's line.

        Args:
            below: how many frames there are between this and where the launcher would be called.
        """
        frame = sys._getframe(self._first + below)
        code = frame.f_code
        while is_inside(code.co_filename):
            if frame.f_back is None:
                break
            frame = frame.f_back
            code = frame.f_code
        self.waiting.launched = code, frame.f_lasti

    def __getattr__(self, name: str) -> Any:
        return getattr(self.launcher, name)
