"""Tables of measured times, and what they say of a shape that was not measured itself.

A table is of one model of GPU and one number of PEs. Its entries have the times of an operation's algorithms for one
shape, on the slowest PE. For another shape the entries of the same operation and dtype count whose other sizes (N and K
of a GEMM) are the nearest; between two of their first sizes (M, or bytes) times are interpolated. With other N and K
tiles fill the GPU differently, so a model's estimate of the shape is what counts there, times what was measured by what
the model says of the measured shape: the farther that is, the less. Farthest away the model decides alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from triton_dist.decoding import DecodingError, decode, fields, integer, mapping, matching, record, sequence, text

__all__ = ["BYTES", "Case", "Entry", "Model", "Table", "decoded", "encoded", "microseconds"]

BYTES = "bytes"
"""What stands for the dtype of operations whose times depend on the number of bytes only."""

_FORMAT = 1
_ENTRIES = 4096
_TABLE_BYTES = 4 << 20
_BETWEEN = 16.0
"""How many times a first size may be the one before, if times between them are interpolated."""
_BEYOND = 2.0
"""How many times the last first size, or what part of the first, takes that one's times."""
_APART = 2.0
"""How far the other sizes may be from those that were measured: by the sum of the logarithms to the base 2."""


Model = Callable[[tuple[int, ...]], Mapping[str, float]]
"""Estimated seconds of algorithms for the sizes of a case."""


class Case(NamedTuple):
    """What is to be computed.

    Attributes:
        operation: a function of this package, or a step of one.
        dtype: of the operands, as ``bfloat16``, or :data:`BYTES`.
        sizes: this PE's. Of a GEMM M, N and K, as ``a`` [M, K] and ``b`` [K, N] are passed; of a norm the rows and
            columns of ``x``; of a collective the bytes of what a PE passes.
    """

    operation: str
    dtype: str
    sizes: tuple[int, ...]


class Entry(NamedTuple):
    """Microseconds by algorithm."""

    case: Case
    times: Mapping[str, float]


class Table:
    """Measured times on ``n_pes`` GPUs of the model ``gpu``, as PyTorch names it. Of a case that occurs twice the last
    counts."""

    def __init__(self, gpu: str, n_pes: int, entries: Iterable[Entry] = ()) -> None:
        self.gpu, self.n_pes = gpu, n_pes
        self.entries = {entry.case: entry.times for entry in entries}
        self._curves: dict[tuple[str, str], dict[tuple[int, ...], dict[str, list[tuple[int, float]]]]] = {}
        for (operation, dtype, (first, *others)), times in sorted(self.entries.items()):
            curves = self._curves.setdefault((operation, dtype), {}).setdefault(tuple(others), {})
            for algorithm, time in times.items():
                curves.setdefault(algorithm, []).append((first, time))

    def times(self, case: Case, algorithms: Sequence[str], model: Model | None = None) -> dict[str, float] | None:
        """Microseconds of these algorithms; where other sizes were measured and there is a ``model``, its estimates
        with a part of what it errs there. None if the table does not know all of them near ``case``."""
        first, *others = case.sizes
        known = self._curves.get((case.operation, case.dtype), {})
        for measured in sorted(known, key=lambda sizes: (_distance(sizes, others), sizes)):
            if _distance(measured, others) > _APART:
                return None
            times = {algorithm: _at(known[measured].get(algorithm, ()), first) for algorithm in algorithms}
            found = {algorithm: time for algorithm, time in times.items() if time is not None}
            if len(found) == len(times):
                if model is None or measured == tuple(others):
                    return found
                there, here = model((first, *measured)), model(case.sizes)
                weight = 1 - _distance(measured, others) / _APART
                return {name: 1e6 * here[name] * (time / (1e6 * there[name])) ** weight for name, time in found.items()}
        return None

    def merged(self, entries: Iterable[Entry]) -> Table:
        """This table with ``entries`` in the place of those of the same cases."""
        merged = self.entries | {entry.case: entry.times for entry in entries}
        newest = list(merged.items())[-_ENTRIES:]
        return Table(self.gpu, self.n_pes, [Entry(case, times) for case, times in newest])


def _distance(sizes: Sequence[int], others: Sequence[int]) -> float:
    if len(sizes) != len(others):
        return math.inf
    return sum(abs(math.log2(one / other)) for one, other in zip(sizes, others, strict=True))


def _at(points: Sequence[tuple[int, float]], size: int) -> float | None:
    """The time at ``size``, from those at ascending sizes."""
    below = [point for point in points if point[0] <= size]
    above = [point for point in points if point[0] >= size]
    if below and above:
        (low, at_low), (high, at_high) = below[-1], above[0]
        if high == low:
            return at_low
        return at_low + (at_high - at_low) * (size - low) / (high - low) if high <= _BETWEEN * low else None
    if above:
        return above[0][1] if above[0][0] <= _BEYOND * size else None
    if below:
        return below[-1][1] if size <= _BEYOND * below[-1][0] else None
    return None


_NAME = matching(r"[a-z0-9_]{1,40}", "a name")


def microseconds(value: Any) -> float:
    """The schema of a time."""
    if type(value) not in (int, float) or not 0 < value < 1e9:
        raise DecodingError(f"{str(value)[:60]} where microseconds are expected")
    return float(value)


_SIZES = sequence(integer(1, 1 << 50), 3)


def _entry(value: Any) -> Entry:
    operation, dtype, sizes, times = record(_NAME, _NAME, _SIZES, mapping(_NAME, microseconds, 16))(value)
    if not sizes:
        raise DecodingError("a case without sizes")
    return Entry(Case(operation, dtype, sizes), times)


_TABLE = fields(
    format=integer(_FORMAT, _FORMAT),
    gpu=text(100),
    pes=integer(1, 1 << 16),
    source=text(1000),
    entries=sequence(_entry, _ENTRIES),
)


def decoded(data: bytes | str) -> Table:
    """The table that a file holds.

    Raises:
        DecodingError: it holds none.
    """
    found = decode(data, _TABLE, limit=_TABLE_BYTES)
    return Table(found["gpu"], found["pes"], found["entries"])


def encoded(table: Table, source: str) -> str:
    """The file of a table; ``source`` says how it was measured."""
    head = {"format": _FORMAT, "gpu": table.gpu, "pes": table.n_pes, "source": source}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = ",\n".join(f"  {json.dumps(_plain(case, times))}" for case, times in sorted(table.entries.items()))
    return "\n".join(["{", *lines, ' "entries": [', rows, " ]", "}", ""])


def _plain(case: Case, times: Mapping[str, float]) -> list[Any]:
    return [case.operation, case.dtype, list(case.sizes), {name: round(time, 2) for name, time in times.items()}]
