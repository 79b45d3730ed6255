"""The choice: the stored table, the table of the package, then the caller's model, in this order.

It is a function of the case, the algorithms that are available, and the tables that the members of a communicator have
agreed on when it was made. So it is the same on all members, and takes the host some microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from triton_dist.kernels.choice.tables import Case, Entry, Model, Table
from triton_dist.kernels.communicator import Communicator

__all__ = ["Choices", "choose", "choose_by_model"]

_REMEMBERED = 4096
_Asked = tuple[Case, tuple[str, ...]]


class Choices:
    """The choices of one communicator: its tables, in the order in which they are asked, and what they have said."""

    def __init__(self, communicator: Communicator) -> None:
        self._tables: tuple[Table, ...] = communicator.tables
        self._made: dict[_Asked, str] = {}
        self._estimated: dict[_Asked, Mapping[str, float]] = {}

    def close(self) -> None:
        self._made.clear()
        self._estimated.clear()

    def learn(self, entries: Iterable[Entry]) -> None:
        """Take these entries, the same on all members, for the choices from now on."""
        tuned, *others = self._tables
        self._tables = (tuned.merged(entries), *others)
        self._made.clear()

    def choose(self, case: Case, algorithms: tuple[str, ...], model: Model, *, is_smooth: bool) -> str:
        """See :func:`choose`, whose times are smooth, and :func:`choose_by_model`."""
        asked = case, algorithms
        chosen = self._made.get(asked)
        if chosen is None:

            def estimated(sizes: tuple[int, ...]) -> Mapping[str, float]:
                """Measured sizes are asked for again and again, and a model of GEMMs takes 100 µs."""
                here = case._replace(sizes=sizes), algorithms
                if here not in self._estimated:
                    _remember(self._estimated, here, model(sizes))
                return self._estimated[here]

            chosen = _fastest(self._tables, case, algorithms, model if is_smooth else estimated, is_smooth)
            _remember(self._made, asked, chosen)
        return chosen


def choose(communicator: Communicator, case: Case, estimates: Mapping[str, float]) -> str:
    """The algorithm for ``case``, whose times grow smoothly with its size: the fastest by measured times, interpolated,
    or where no table knows it by ``estimates``.

    Args:
        estimates: seconds by a model, of the algorithms that are available, the same on all members and in the same
            order; of equals the first is taken.
    """
    if len(estimates) == 1:
        return next(iter(estimates))
    choices = communicator.own(Choices)
    return choices.choose(case, tuple(estimates), lambda sizes: estimates, is_smooth=True)


def choose_by_model(communicator: Communicator, case: Case, algorithms: Sequence[str], model: Model) -> str:
    """The algorithm for ``case``: the fastest by times that were measured of just this, or by the ``model``, corrected
    by what it errs where times are known.

    Args:
        algorithms: that are available, the same on all members and in the same order; of equals the first is taken.
        model: their estimated seconds, for these and other sizes of such a case.
    """
    if len(algorithms) == 1:
        return algorithms[0]
    return communicator.own(Choices).choose(case, tuple(algorithms), model, is_smooth=False)


def _fastest(tables: Sequence[Table], case: Case, algorithms: Sequence[str], model: Model, is_smooth: bool) -> str:
    for table in tables:
        if times := table.times(case, algorithms, None if is_smooth else model):
            return min(times, key=times.__getitem__)
    estimates = model(case.sizes)
    return min(estimates, key=estimates.__getitem__)


def _remember(known: dict[_Asked, Any], asked: _Asked, what: Any) -> None:
    if len(known) == _REMEMBERED:
        del known[next(iter(known))]
    known[asked] = what
