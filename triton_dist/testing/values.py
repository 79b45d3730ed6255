"""Values that processes hand to each other without pickle: plain Python values and tensors, as JSON and raw bytes.

What is read back is checked: a text that :func:`dumps` did not write is a ValueError, and nothing in it is run.
"""

from __future__ import annotations

import ctypes
import json
import struct
from math import prod
from typing import Any

import torch

__all__ = ["dumps", "loads"]

_HEAD = struct.Struct("<Q")  # length of the JSON text
_SCALARS = (type(None), bool, int, float, str)


def dumps(value: Any) -> bytes:
    """``value`` as bytes.

    Args:
        value: None, bool, int, float, str, bytes, a dense tensor, or a list, tuple or dict of such.

    Raises:
        TypeError: it holds something else.
    """
    blob = bytearray()
    text = json.dumps(_tree(value, blob)).encode()
    return _HEAD.pack(len(text)) + text + blob


def loads(data: bytes) -> Any:
    """The value; tensors are on the CPU and have no gradients.

    Raises:
        ValueError: ``data`` is not what :func:`dumps` returns.
    """
    try:
        (length,) = _HEAD.unpack_from(data)
        tree = json.loads(data[_HEAD.size : _HEAD.size + length])
        return _value(tree, memoryview(data)[_HEAD.size + length :])
    except (struct.error, TypeError, KeyError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"{data[:60]!r}… is not a value of testing.spawn: {error}") from None


def _tree(value: Any, blob: bytearray) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_quantized or value.layout is not torch.strided:
            raise TypeError(f"only dense tensors pass between processes, got {value.dtype}, {value.layout}")
        plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()  # the bytes are then the values
        begin = len(blob)
        blob += ctypes.string_at(plain.data_ptr(), plain.nbytes) if plain.nbytes else b""
        return {"tensor": [str(plain.dtype).removeprefix("torch."), list(plain.shape), begin]}
    if isinstance(value, bytes):
        blob += value
        return {"bytes": [len(blob) - len(value), len(value)]}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_tree(item, blob) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_tree(key, blob), _tree(item, blob)] for key, item in value.items()]}
    if type(value) in _SCALARS:
        return value
    raise TypeError(
        "values between processes are None, bool, int, float, str, bytes, tensors, and lists, tuples and dicts of them;"
        f" got {type(value).__name__}: {str(value)[:60]}"
    )


def _value(tree: Any, blob: memoryview) -> Any:
    if type(tree) in _SCALARS:
        return tree
    if not (isinstance(tree, dict) and len(tree) == 1):
        raise ValueError(f"{str(tree)[:60]} is no value")
    ((kind, content),) = tree.items()
    if not isinstance(content, list):
        raise ValueError(f"{str(tree)[:60]} is no value")
    if kind == "tensor":
        dtype_name, shape, begin = content
        return _tensor(dtype_name, shape, begin, blob)
    if kind == "bytes":
        begin, length = content
        return bytes(_slice(blob, begin, length))
    if kind in ("list", "tuple"):
        items = [_value(item, blob) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_value(key, blob): _value(item, blob) for key, item in content}
    raise ValueError(f"{kind!r} is no kind of value")


def _tensor(dtype_name: Any, shape: Any, begin: Any, blob: memoryview) -> torch.Tensor:
    dtype = getattr(torch, dtype_name, None) if isinstance(dtype_name, str) else None
    if not isinstance(dtype, torch.dtype) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{dtype_name!r}, {shape!r} are no dtype and shape")
    data = _slice(blob, begin, prod(shape) * dtype.itemsize)
    tensor = torch.empty(shape, dtype=dtype, device="cpu")
    if data.nbytes:
        ctypes.memmove(tensor.data_ptr(), bytes(data), data.nbytes)
    return tensor


def _slice(blob: memoryview, begin: Any, length: Any) -> memoryview:
    if type(begin) is not int or type(length) is not int or not 0 <= begin <= begin + length <= len(blob):
        raise ValueError(f"{length!r} bytes at {begin!r} are not in {len(blob)} bytes")
    return blob[begin : begin + length]
