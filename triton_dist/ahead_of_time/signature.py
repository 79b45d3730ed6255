"""What ``--signature`` says of a kernel's arguments, in the notation of ``triton.tools.compile``.

A list with commas, an entry for each argument of the function: a type (``*fp32``, ``i32``), with ``:16`` where the
value is a multiple of 16 at every launch, or a constant that is compiled into the kernel.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import triton.language as tl

__all__ = ["Signature", "SignatureError", "parse"]

_TYPE = re.compile(
    r"(?P<type>\*?(?:i1|[iu](?:8|16|32|64)|fp16|bf16|fp32|fp64|fp8e4nv|fp8e5|fp8e4b8|fp8e5b16|fp8e4b15))"
    r"(?P<hint>:(?P<divisor>[^:]*))?"
)


class SignatureError(ValueError):
    """A signature does not fit the kernel."""


@dataclass(frozen=True)
class Signature:
    """The arguments of a kernel, by name and in order."""

    types: dict[str, str]
    """``"constexpr"`` of constants."""
    constants: dict[str, Any]
    aligned: frozenset[str]
    """Those that are multiples of 16."""


def parse(text: str, names: list[str], constexprs: frozenset[str], kernel: str) -> Signature:
    """The signature of ``kernel``, whose arguments have ``names``; those in ``constexprs`` are ``tl.constexpr``.

    Raises:
        SignatureError: what is wrong, with the argument's name.
    """
    entries = _split(text)
    listed = ", ".join(f"{name}: constexpr" if name in constexprs else name for name in names)
    if len(entries) != len(names):
        raise SignatureError(f"the signature has {len(entries)} entries, and {kernel} takes {len(names)}: ({listed})")
    types, constants, aligned = {}, {}, set()
    for name, entry in zip(names, entries, strict=True):
        found = _TYPE.fullmatch(entry)
        if found and name in constexprs:
            raise SignatureError(f"{name} of {kernel} is a tl.constexpr and needs a value, not the type {entry}")
        if found:
            if found["hint"] and found["divisor"] != "16":
                raise SignatureError(f"{name}: {entry}: only :16 can be said of an argument (a multiple of 16)")
            types[name] = found["type"]
            if found["hint"]:
                aligned.add(name)
        else:
            types[name], constants[name] = "constexpr", _constant(name, entry)
    return Signature(types, constants, frozenset(aligned))


def _split(text: str) -> list[str]:
    """The entries; a comma inside of brackets or quotes is part of an entry."""
    entries, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            entries.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*entries, last] if last or entries else []


def _constant(name: str, entry: str) -> Any:
    """The value of an entry that is no type: a Python literal, or a dtype such as ``tl.bfloat16``."""
    if entry.startswith("tl.") and isinstance(dtype := getattr(tl, entry.removeprefix("tl."), None), tl.dtype):
        return dtype
    try:
        value = ast.literal_eval(entry)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = ...
    if not isinstance(value, (int, float, str, bool, tuple, type(None))):
        raise SignatureError(
            f"{name}: {entry!r} is neither a type (*fp32, i32:16, …) nor a constant (1024, 0.5, True, None, 'text', "
            "tl.bfloat16)"
        )
    return value
