"""Calls of the kernel library that are made again without Python: the extension module ``_C/native_calls.abi3.so``.

It is C++ that imports nothing of this package, of Triton or of PyTorch (``native_calls/``). Of a communicator and its
prepared calls it reads four attributes by name (``Table.cpp``). All else it is told as data:

- a ``Launch``, a compiled kernel with its packed arguments, and which of these are a call's tensors;
- :class:`Guard` conditions on the state of Python objects, under which a call may be made again;
- a plan, the actions of a call one after the other (``native_calls/Action.h``): comparisons with the other members,
  launches, operations of streams, GEMMs by cuBLAS, and functions of Python;
- an ``Owner``, the communicator whose lock, number of calls and comparisons the calls use;
- a ``Table`` of calls by how they are written. ``call(name, args, kwargs)`` makes one again and returns its result, or
  None, and then has done nothing: what is unusual is for Python.

Tensors are read through DLPack's table for C, which newer versions of PyTorch have, and the driver's functions are
called by address, so the module links neither PyTorch nor CUDA. It is of the stable ABI, for every Python from 3.10 on
with a global lock. Where it cannot be used, calls go through Python, and :func:`why_not` says why.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from triton_dist import environment

__all__ = ["Guard", "library", "new_launch", "new_table", "why_not"]


class Guard(NamedTuple):
    """A condition on the state of a Python object. An error while it is read means that it does not hold."""

    object: Any
    reads: Literal["attributes", "item", "call"]
    """Attributes of the object, ``names`` one after the other; the item of a dict whose key is in ``names``, None if
    there is none; or what a call without arguments returns."""
    names: tuple[Any, ...]
    compares: Literal["is", "empty", "equal", "at least"]
    expected: Any = None


@functools.cache
def _loaded() -> Any:
    """The extension module, or why there is none."""
    try:
        return importlib.import_module("triton_dist._C.native_calls")
    except ImportError as error:
        return f"the module was not built, or this Python cannot load it ({error})"


def library() -> Any:
    """The extension module; None where it cannot be used."""
    return None if why_not() else _loaded()


def why_not() -> str:
    """Why calls go through Python; empty if they need not."""
    if not environment.get("TRITON_DIST_NATIVE_CALLS"):
        return "TRITON_DIST_NATIVE_CALLS is 0"
    return _loaded() if isinstance(_loaded(), str) else _lacks()


@functools.cache
def _lacks() -> str:
    try:
        new_table(str.isascii, 1)
        _driver_functions()
    except (ValueError, RuntimeError, OSError) as error:
        return str(error)
    return ""


def new_table(is_inside: Callable[[str], bool], most: int) -> Any:
    """A ``Table`` of up to ``most`` calls. ``is_inside`` says whether a file's lines are never the user's.

    Raises:
        RuntimeError: this PyTorch tells C nothing about tensors. ValueError: it does, by another version of DLPack.
    """
    from triton_dist.torch_api import tensors_for_c  # PyTorch is imported by those that need it

    return _loaded().Table(*tensors_for_c(), is_inside, most)


def new_launch(data: Any) -> Any:
    """A ``Launch`` of ``triton_api``'s ``PackedLaunch``."""
    patches = tuple((patch.offset, patch.tensor, patch.is_map) for patch in data.patches)
    return _loaded().Launch(
        _driver_functions(), data.function, data.grid, data.threads, data.shared, data.attributes, data.arguments,
        data.offsets, patches,
    )  # fmt: skip


_DRIVER = "cuLaunchKernelEx", "cuPointerGetAttribute", "cuCtxGetCurrent", "cuGetErrorString"
"""In the order of ``Driver`` of ``Launch.h``."""


@functools.cache
def _driver_functions() -> tuple[int, ...]:
    """The addresses of the driver's functions that launches call.

    Raises:
        OSError: there is no driver. RuntimeError: it is too old.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    if lacking := [name for name in _DRIVER if not hasattr(driver, name)]:
        raise RuntimeError(f"the CUDA driver is too old: libcuda.so.1 has no {', '.join(lacking)}")
    return tuple(ctypes.cast(getattr(driver, name), ctypes.c_void_p).value or 0 for name in _DRIVER)
