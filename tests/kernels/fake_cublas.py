"""A cuBLAS that is not there (``fake_cublas.c``), and a PyTorch that says it has loaded it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from triton_dist import cublas

MAJOR = 13


class Called(NamedTuple):
    """A GEMM as cuBLAS gets it; its first operand is our second one."""

    handle: int
    stream: int
    workspace: int
    workspace_bytes: int
    transa: int
    m: int
    n: int
    k: int
    b: int
    a: int
    c: int
    type: int
    lda: int
    ldb: int
    ldc: int


CALLED: list[tuple[str, tuple[int, ...]]] = []
"""Each function that was called, but for the names of statuses, and its numbers; clear it."""


def gemms() -> list[Called]:
    """The GEMMs among what was called."""
    return [Called(*numbers) for name, numbers in CALLED if name == "gemm"]


@ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)
def _called(function: bytes, numbers: Any, n: int) -> None:
    CALLED.append((function.decode(), tuple(numbers[:n])))


def build(folder: Path) -> Path:
    """The library, which is not loaded."""
    made, source = folder / f"libcublas.so.{MAJOR}", Path(__file__).with_name("fake_cublas.c")
    command = ["cc", "-shared", "-fPIC", "-O2", f"-Wl,-soname,{made.name}", "-o", str(made), str(source)]
    subprocess.run(command, check=True)
    return made


def load(made: Path) -> ctypes.CDLL:
    """Load it, as PyTorch would by a path of its own, under no name that others look for."""
    library = ctypes.CDLL(str(made), mode=ctypes.RTLD_LOCAL)
    library.fake_report_cublas_to(_called)
    return library


@contextmanager
def pytorch_for_cuda(version: str | None = f"{MAJOR}.0") -> Iterator[None]:
    """PyTorch is one for this version of CUDA."""
    with mock.patch.object(torch.version, "cuda", version):
        cublas.library.cache_clear()
        try:
            yield
        finally:
            cublas.library.cache_clear()
