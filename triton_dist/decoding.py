"""Decoding of values from other processes: JSON of an expected shape.

A schema is a function that validates a parsed JSON value and returns it, or raises :class:`DecodingError`. Lists become
tuples. No name in the data is used to create an object.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["DecodingError", "Schema", "boolean", "decode", "integer", "optional", "record", "sequence", "text"]

Schema = Callable[[Any], Any]


class DecodingError(ValueError):
    """The data does not match its schema."""


def decode(data: bytes | str, schema: Schema, *, limit: int = 1 << 16) -> Any:
    """Parse ``data``, JSON of up to ``limit`` bytes or characters, and validate it.

    Raises:
        DecodingError: ``data`` is too long, is not JSON, or does not match ``schema``.
    """
    if len(data) > limit:
        raise DecodingError(f"{len(data)} bytes where up to {limit} are expected")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, not UTF-8, or a number of thousands of digits
        raise DecodingError(f"not JSON: {type(error).__name__}") from None
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
    """A text of up to ``limit`` characters. Control characters other than newline and tab are replaced."""

    def check(value: Any) -> str:
        if type(value) is not str or len(value) > limit:
            raise DecodingError(f"{_shown(value)} where a text of up to {limit} characters is expected")
        if value.isprintable():
            return value
        return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value)

    return check


def optional(schema: Schema) -> Schema:
    """A value that ``schema`` accepts, or null."""
    return lambda value: None if value is None else schema(value)


def sequence(schema: Schema, limit: int) -> Schema:
    """A list of up to ``limit`` values that ``schema`` accepts."""

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > limit:
            raise DecodingError(f"{_shown(value)} where a list of up to {limit} is expected")
        return tuple(map(schema, value))

    return check


def record(*schemas: Schema) -> Schema:
    """A list of one value for each schema."""

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(schemas):
            raise DecodingError(f"{_shown(value)} where a list of {len(schemas)} is expected")
        return tuple([schema(item) for schema, item in zip(schemas, value, strict=True)])

    return check


def _shown(value: Any) -> str:
    """An untrusted value in an error: short, and without control characters."""
    return ascii(value)[:60] if isinstance(value, (bool, int, float, type(None))) else f"a {type(value).__name__}"
