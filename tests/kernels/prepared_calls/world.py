"""A world with a GPU that is not there, and what a call in it does: launches, calls of Python, plans."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_gpu
import torch
import triton

import triton_dist
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.few_columns import few_columns
from triton_dist.kernels.prepared import Prepared

DRIVER = fake_gpu.load_driver(Path(sys.argv[1]))
fake_gpu.use_torch_without_a_gpu()
fake_gpu.use_a_driver_s_streams(DRIVER)
WORLD = fake_gpu.begin_world(2, int(os.environ.get("FAKE_GPU_PE", "0")))
RECORDER = fake_gpu.Recorder(DRIVER)


def symmetric(n: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    tensor: torch.Tensor = WORLD.empty((n,), dtype)
    return tensor.zero_()


def columns_of_scatter(rows: int, columns: int) -> torch.Tensor:
    """The product of the last gemm_all_scatter without overlap: bfloat16, before a kernel sends it."""
    return few_columns(communicator_of()).view(torch.bfloat16)[: rows * columns].view(rows, columns)


PACKAGES = tuple(f"{Path(str(package.__file__)).parent}/" for package in (triton, triton_dist))


class Calls(Counter[str]):
    """How often functions of this package and of Triton were called."""

    native = 0
    """Launches by C++."""

    @property
    def repeated(self) -> int:
        """Launches by plans."""
        return self["PreparedLaunch.__call__"] + self.native


def calls(function: Callable[[], object]) -> Calls:
    """What ``function`` calls."""
    found = Calls()
    by_others = DRIVER.fake_launches() - RECORDER.by_triton

    def note(frame: Any, event: str, callee: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGES):
            found[frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name] += 1

    gc.disable()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    found.native = DRIVER.fake_launches() - RECORDER.by_triton - by_others
    return found


def is_prepared(function: Callable[[], object]) -> bool:
    """Whether a call launches once, without Triton's binder."""
    found = _of_one_launch(function)
    return not found["JITFunction.run"] and found.repeated == 1


def is_native(function: Callable[[], object]) -> bool:
    """Whether a call launches once, by C++."""
    return _of_one_launch(function).native == 1


def _of_one_launch(function: Callable[[], object]) -> Calls:
    before = DRIVER.fake_launches()
    found = calls(function)
    assert DRIVER.fake_launches() == before + 1, "a call is one launch"
    return found


def plans(comm: Any = None) -> dict[Any, Any]:
    return communicator_of(comm).own(Prepared)._plans


def forget_plans(comm: Any = None) -> None:
    """The next call is an ordinary one."""
    communicator_of(comm).own(Prepared).forget()
