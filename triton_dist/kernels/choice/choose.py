"""The choice: the stored table, the table of the package, then the caller's model, in this order.

It is a function of the case, the algorithms that are available, and the tables that the members of a communicator have
agreed on when it was made. So it is the same on all members, and takes the host some microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from triton_dist.kernels.choice.tables import Case, Entry, Model, Table
from triton_dist.kernels.communicator import Communicator

__all__ = ["Choices", "choose"]

_REMEMBERED = 4096


class Choices:
    """The choices of one communicator: its tables, in the order in which they are asked, and what they have said."""

    def __init__(self, communicator: Communicator) -> None:
        self._tables: tuple[Table, ...] = communicator.tables
        self._made: dict[tuple[Case, tuple[str, ...]], str] = {}

    def close(self) -> None:
        self._made.clear()

    def learn(self, entries: Iterable[Entry]) -> None:
        """Take these entries, the same on all members, for the choices from now on."""
        tuned, *others = self._tables
        self._tables = (tuned.merged(entries), *others)
        self._made.clear()

    def choose(
        self,
        case: Case,
        estimates: Mapping[str, float],
        model: Model | None = None,
    ) -> str:
        """See :func:`choose`."""
        asked = case, tuple(estimates)
        chosen = self._made.get(asked)
        if chosen is None:
            chosen = _fastest(self._tables, case, estimates, model)
            if len(self._made) == _REMEMBERED:
                del self._made[next(iter(self._made))]
            self._made[asked] = chosen
        return chosen


def choose(
    communicator: Communicator,
    case: Case,
    estimates: Mapping[str, float],
    model: Model | None = None,
) -> str:
    """The algorithm for ``case``: the fastest by measured tables or, where these do not know it, by ``estimates``.

    Args:
        estimates: seconds by a model, of the algorithms that are available, the same on all members and in the same
            order; of equals the first is taken.
        model: estimates for other sizes, by which times that were measured there are scaled.
    """
    if len(estimates) == 1:
        return next(iter(estimates))
    return communicator.own(Choices).choose(case, estimates, model)


def _fastest(tables: Sequence[Table], case: Case, estimates: Mapping[str, float], model: Model | None) -> str:
    for table in tables:
        if times := table.times(case, tuple(estimates), model):
            return min(times, key=times.__getitem__)
    return min(estimates, key=estimates.__getitem__)
