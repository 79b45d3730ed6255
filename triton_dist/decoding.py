"""Values that come from other processes: JSON of an expected shape, and nothing else.

A schema is a function that takes what ``json`` has read and returns it checked, or raises :class:`DecodingError`. Lists
become tuples. Nothing here makes objects by names that stand in the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["DecodingError", "Schema", "boolean", "decode", "integer", "optional", "record", "sequence", "text"]

Schema = Callable[[Any], Any]


class DecodingError(ValueError):
    """The data is not what its schema says."""


def decode(data: bytes | str, schema: Schema, *, limit: int = 1 << 16) -> Any:
    """The value that ``data``, JSON of up to ``limit`` bytes or characters, holds.

    Raises:
        DecodingError: it holds no such value.
    """
    if len(data) > limit:
        raise DecodingError(f"{len(data)} bytes where up to {limit} are expected")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, no UTF-8, a number of thousands of digits
        raise DecodingError(f"no JSON: {type(error).__name__}") from None
    return schema(value)


def integer(low: int, high: int) -> Schema:
    """A whole number from ``low`` to ``high``."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise DecodingError(f"{_shown(value)} where a whole number from {low} to {high} is expected")
        return value

    return check


def boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise DecodingError(f"{_shown(value)} where true or false is expected")
    return value


def text(limit: int) -> Schema:
    """A text of up to ``limit`` characters. Those that a terminal would act on are replaced."""

    def check(value: Any) -> str:
        if type(value) is not str or len(value) > limit:
            raise DecodingError(f"{_shown(value)} where a text of up to {limit} characters is expected")
        if value.isprintable():
            return value
        return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value)

    return check


def optional(schema: Schema) -> Schema:
    """What ``schema`` takes, or null."""
    return lambda value: None if value is None else schema(value)


def sequence(schema: Schema, limit: int) -> Schema:
    """Up to ``limit`` values, each of which ``schema`` takes."""

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > limit:
            raise DecodingError(f"{_shown(value)} where a list of up to {limit} is expected")
        return tuple(map(schema, value))

    return check


def record(*schemas: Schema) -> Schema:
    """As many values as there are schemas, one for each."""

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(schemas):
            raise DecodingError(f"{_shown(value)} where a list of {len(schemas)} is expected")
        return tuple([schema(item) for schema, item in zip(schemas, value, strict=True)])

    return check


def _shown(value: Any) -> str:
    """A value of the other side's in an error: short, and harmless on a terminal."""
    return ascii(value)[:60] if isinstance(value, (bool, int, float, type(None))) else f"a {type(value).__name__}"
