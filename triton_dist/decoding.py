"""Decoding of values from other processes: JSON of an expected shape.

A schema is a function that validates a parsed JSON value and returns it, or raises :class:`DecodingError`. Lists become
tuples. No name in the data is used to create an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

__all__ = [
    "DecodingError",
    "Schema",
    "boolean",
    "decode",
    "fields",
    "integer",
    "mapping",
    "matching",
    "optional",
    "record",
    "sequence",
    "text",
]

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


def fields(**schemas: Schema) -> Schema:
    """An object with exactly these members; a dict. An error names the member."""

    def check(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise DecodingError(f"{_shown(value)} where an object with {', '.join(schemas)} is expected")
        if missing := schemas.keys() - value.keys():
            raise DecodingError(f"there is no {min(missing)}")
        if unknown := value.keys() - schemas.keys():
            raise DecodingError(f"there is an unknown member {ascii(min(unknown))[:60]}")
        return {name: _member(name, schema, value[name]) for name, schema in schemas.items()}

    return check


def mapping(key: Schema, value: Schema, limit: int) -> Schema:
    """An object of up to ``limit`` members with names that ``key`` and values that ``value`` accept; a dict."""

    def check(members: Any) -> dict[str, Any]:
        if type(members) is not dict or len(members) > limit:
            raise DecodingError(f"{_shown(members)} where an object of up to {limit} members is expected")
        return {key(name): _member(name, value, member) for name, member in members.items()}

    return check


def matching(pattern: str, what: str) -> Schema:
    """A text that a regular expression matches as a whole; ``what`` it is, for errors."""

    def check(value: Any) -> str:
        if type(value) is not str or not re.fullmatch(pattern, value):
            raise DecodingError(
                f"{ascii(value)[:60] if type(value) is str else _shown(value)} where {what} is expected"
            )
        return value

    return check


def _member(name: str, schema: Schema, value: Any) -> Any:
    try:
        return schema(value)
    except DecodingError as error:
        raise DecodingError(f"{name}: {error}") from None


def _shown(value: Any) -> str:
    """An untrusted value in an error: short, and without control characters."""
    return ascii(value)[:60] if isinstance(value, (bool, int, float, type(None))) else f"a {type(value).__name__}"
