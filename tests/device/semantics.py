"""What tests of the device library's semantics share: OpenSHMEM's constants, element types, and values."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from host_world import Pe

U64, SIZE = ctypes.c_uint64, ctypes.c_size_t
NONE = 2**64 - 1
EQ, NE, GT, GE, LT, LE = range(6)
SET, ADD = range(2)
SCOPES = ["", "_warp", "_block"]

INTEGERS = {
    name: np.dtype(name.replace("u", "uint") if name[0] == "u" else name.replace("i", "int"))
    for name in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
}
FLOATS = {"f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def values(pe: int, count: int, dtype: np.dtype, seed: int = 0) -> np.ndarray:
    """What every PE can make again: small numbers, so that products of four do not leave any type."""
    return np.random.default_rng(1000 * seed + pe).integers(1, 4, count).astype(dtype)


def only_pe_0(program: Any, pe: Pe) -> None:
    if pe.number == 0:
        program(pe)
