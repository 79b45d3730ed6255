"""How events are written to a log: JSON, and the bounds of ranges behind it as 64-bit words.

A log is read by other processes than the one that writes it, so it is checked as it is read: an event has the items
that its kind has, of their types. A batch of events is

    length of the JSON, number of the words (both of 32 bits, little-endian) | JSON | words
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_dist.decoding import DecodingError, Schema, decode, integer, record, sequence

__all__ = ["LogError", "decode_batches", "encode_batch", "optional_ranges", "ranges"]

_HEAD = struct.Struct("<II")
_MAX_BYTES = (1 << 32) - 1
_WORD = np.dtype("<i8")


class LogError(RuntimeError):
    """A log holds what no checked run writes."""


def ranges(value: Any) -> Any:
    """The schema of ranges: in the JSON, their space and how many there are; begins and ends are in the words."""
    return _RANGES(value)


def optional_ranges(value: Any) -> Any:
    """The same, or None."""
    return None if value is None else _RANGES(value)


def encode_batch(events: Sequence[tuple[Any, ...]]) -> bytes:
    """The events as one batch."""
    words: list[NDArray[np.int64]] = []

    def plain(item: Any) -> Any:
        if isinstance(item, tuple) and len(item) == 3 and isinstance(item[1], np.ndarray):
            words.extend(item[1:])
            return item[0], len(item[1])
        return item

    listed = [[plain(item) for item in event] for event in events]
    text = json.dumps(listed, separators=(",", ":"), default=_number).encode()
    bounds = np.concatenate(words).astype(_WORD).tobytes() if words else b""
    return _HEAD.pack(len(text), len(bounds) // _WORD.itemsize) + text + bounds


def decode_batches(data: bytes, items: Mapping[int, Sequence[Schema]]) -> Iterator[tuple[Any, ...]]:
    """All events of a log, where an event of kind k has ``items[k]`` behind its number and its kind.

    Raises:
        LogError: it is none.
    """
    at = 0
    while at < len(data):
        try:
            size, count = _HEAD.unpack_from(data, at)
            begin = at + _HEAD.size
            end = begin + size + count * _WORD.itemsize
            if end > len(data):
                raise DecodingError("it ends in the middle of a batch")
            words = np.frombuffer(data, _WORD, count, begin + size).astype(np.int64, copy=False)
            yield from _decode_batch(data[begin : begin + size], words, items)
        except (DecodingError, struct.error) as error:
            raise LogError(f"the log of a checked run is damaged at byte {at}: {error}") from None
        at = end


def _decode_batch(
    text: bytes, words: NDArray[np.int64], items: Mapping[int, Sequence[Schema]]
) -> Iterator[tuple[Any, ...]]:
    used = 0
    for number, kind, *rest in decode(text, _EVENTS, limit=_MAX_BYTES):
        schemas = items.get(kind) if type(kind) is int else None
        if schemas is None or len(schemas) != len(rest):
            raise DecodingError(f"an event of kind {ascii(kind)[:20]} with {len(rest)} items")
        event = [_NUMBER(number), kind]
        for schema, item in zip(schemas, rest, strict=True):
            value = schema(item)
            if value is not None and schema in (ranges, optional_ranges):
                space, count = value
                begins, ends = words[used : used + count], words[used + count : used + 2 * count]
                used += 2 * count
                if len(ends) < count or (begins > ends).any() or (begins[1:] < begins[:-1]).any():
                    raise DecodingError("ranges that do not ascend")
                value = space, begins, ends
            event.append(value)
        yield tuple(event)
    if used != len(words):
        raise DecodingError("bounds of no range")


def _event(value: Any) -> list[Any]:
    if type(value) is not list or len(value) < 2:
        raise DecodingError("an event without number and kind")
    return value


_EVENTS = sequence(_event, 1 << 20)
_NUMBER = integer(0, (1 << 63) - 1)
_RANGES = record(integer(-(1 << 31), (1 << 31) - 1), integer(1, 1 << 28))


def _number(value: Any) -> int:
    """What ``json`` writes for a number of NumPy's."""
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    raise TypeError(f"an event holds {value!r}")
