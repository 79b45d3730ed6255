"""Tables of measured times, and what they say of a size that was not measured itself.

A table is of one model of GPU and one number of PEs. Its entries have the times of an operation's algorithms for one
shape, on the slowest PE. Only entries count that have all algorithms that are asked for: what was not measured side by
side is not compared.

Of a GEMM the time of another number of rows, N or K jumps where tiles fill another number of rounds. So there a model's
estimate counts, corrected by a part of what it errs at the entries nearby: those of the same operation and dtype whose
other sizes (N and K) are the nearest, and whose first sizes (M) are on both sides. The farther the other sizes are, the
less; farthest away the model decides alone. Without a model times are interpolated, as those of collectives, which grow
with their bytes.
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
_APART = 1.0
"""How far the other sizes may be from those that were measured: by the sum of the logarithms to the base 2."""


_Point = tuple[int, Mapping[str, float]]
"""A first size, and times by algorithm."""

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
    counts.

    Args:
        trusted: what part of what a model errs at sizes that were measured counts beside them. All of it, unless the
            model was made for such GPUs.
    """

    def __init__(self, gpu: str, n_pes: int, entries: Iterable[Entry] = (), *, trusted: float = 1.0) -> None:
        self.gpu, self.n_pes, self.trusted = gpu, n_pes, trusted
        self.entries = {entry.case: entry.times for entry in entries}
        self._curves: dict[tuple[str, str], dict[tuple[int, ...], list[_Point]]] = {}
        for (operation, dtype, (first, *others)), times in sorted(self.entries.items(), key=lambda entry: entry[0]):
            curves = self._curves.setdefault((operation, dtype), {})
            curves.setdefault(tuple(others), []).append((first, times))

    def times(self, case: Case, algorithms: Sequence[str], model: Model | None = None) -> dict[str, float] | None:
        """Microseconds of these algorithms: measured, or by the ``model``, corrected, or interpolated. None if the
        table does not know all of them near ``case``."""
        first, others, wanted = case.sizes[0], case.sizes[1:], set(algorithms)
        known = self._curves.get((case.operation, case.dtype), {})
        for distance, sizes in sorted((_distance(sizes, others), sizes) for sizes in known):
            if distance > _APART:
                return None
            around = _around([point for point in known[sizes] if point[1].keys() >= wanted], first)
            if around is None:
                continue
            (low, at_low), (high, at_high) = around
            if sizes == others and first in (low, high):
                return {name: (at_low if first == low else at_high)[name] for name in algorithms}
            part = (first - low) / (high - low) if high > low else 0.0
            if model is None:
                return {name: at_low[name] + part * (at_high[name] - at_low[name]) for name in algorithms}
            weight = self.trusted * (1 - distance / _APART)
            here = model(case.sizes)
            below, above = _errors(at_low, model((low, *sizes))), _errors(at_high, model((high, *sizes)))
            return {
                name: 1e6 * here[name] * (below[name] ** (1 - part) * above[name] ** part) ** weight
                for name in algorithms
            }
        return None

    def in_order(self) -> Table:
        """The same entries, by case."""
        entries = [Entry(*entry) for entry in sorted(self.entries.items())]
        return Table(self.gpu, self.n_pes, entries, trusted=self.trusted)

    def merged(self, entries: Iterable[Entry]) -> Table:
        """This table with ``entries`` in the place of those of the same cases. If there are too many, the oldest are
        left out."""
        new = {entry.case: entry.times for entry in entries}
        merged = {case: times for case, times in self.entries.items() if case not in new} | new
        newest = list(merged.items())[-_ENTRIES:]
        return Table(self.gpu, self.n_pes, [Entry(case, times) for case, times in newest], trusted=self.trusted)


def _distance(sizes: Sequence[int], others: Sequence[int]) -> float:
    if len(sizes) != len(others):
        return math.inf
    return sum(abs(math.log2(one / other)) for one, other in zip(sizes, others, strict=True))


def _errors(times: Mapping[str, float], estimates: Mapping[str, float]) -> dict[str, float]:
    """What was measured by what is estimated."""
    return {name: times[name] / (1e6 * seconds) for name, seconds in estimates.items() if name in times}


def _around(points: Sequence[_Point], size: int) -> tuple[_Point, _Point] | None:
    """Of ``points`` at ascending sizes the last up to ``size`` and the first from there on, or one end twice. None if
    they are too far apart, or away."""
    below = next((point for point in reversed(points) if point[0] <= size), None)
    above = next((point for point in points if point[0] >= size), None)
    if below is not None and above is not None:
        return (below, above) if above[0] <= _BETWEEN * below[0] else None
    end = below or above
    if end is None or not end[0] <= _BEYOND * size <= _BEYOND**2 * end[0]:
        return None
    return end, end


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
    """The file of a table, the newest entries last; ``source`` says how it was measured."""
    head = {"format": _FORMAT, "gpu": table.gpu, "pes": table.n_pes, "source": source}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = ",\n".join(f"  {json.dumps(_plain(case, times))}" for case, times in table.entries.items())
    return "\n".join(["{", *lines, ' "entries": [', rows, " ]", "}", ""])


def _plain(case: Case, times: Mapping[str, float]) -> list[Any]:
    return [case.operation, case.dtype, list(case.sizes), {name: round(time, 2) for name, time in times.items()}]
