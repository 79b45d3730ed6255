"""The element types of OpenSHMEM's typed routines, and tensors of them that are compared bit for bit.

Values are made, kept and compared as bytes: torch computes little with unsigned types, and a copy keeps NaN's bits.
"""

from __future__ import annotations

import torch

from ops.harness import expect_equal, random_bytes, random_floats

SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ALL = (*SIGNED, *UNSIGNED, *FLOATS)
WORDS = (torch.int32, torch.uint32, torch.int64, torch.uint64)


def random_bits(n: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Any bits at all, NaN among them."""
    return random_bytes(n * dtype.itemsize, seed).view(dtype)


def random_values(n: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Any integers, or small finite floats."""
    return random_floats(n, seed=seed).to(dtype) if dtype in FLOATS else random_bits(n, dtype, seed)


def expect_bits(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """AssertionError unless the two hold the same bits. What differs is told as bytes."""
    expect_equal(found.cpu().contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8), what)


def integers(values: list[int], dtype: torch.dtype) -> torch.Tensor:
    """The numbers, modulo what ``dtype`` holds."""
    size = dtype.itemsize
    data = b"".join((value % (1 << 8 * size)).to_bytes(size, "little") for value in values)
    return torch.frombuffer(bytearray(data), dtype=dtype).clone()


def numbers(tensor: torch.Tensor) -> list[int]:
    """The other way: exact Python integers, of unsigned types, too."""
    dtype = tensor.dtype
    raw = tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    size = dtype.itemsize
    return [int.from_bytes(raw[i : i + size], "little", signed=dtype in SIGNED) for i in range(0, len(raw), size)]
