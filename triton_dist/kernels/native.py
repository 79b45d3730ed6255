"""Prepared calls that are made again without Python, by ``triton_dist.native_calls``.

A call that was made again by its plan (``prepared.py``), and is one launch and nothing else, is *learnt*: how the
caller wrote it, and what was known of its tensors. From then on a call that is written alike goes from the public
function to C++, and from there to the driver. C++ makes the checks of :meth:`Communicator.begin`,
:meth:`Prepared.signature` and :meth:`Prepared.repeat`, and compares the call with those of the other members. If one of
them says no, nothing was done, and the call goes through Python, which knows why.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import get_ident
from typing import Any, NamedTuple, Protocol

from triton_dist import native_calls, triton_api
from triton_dist.kernels.communicator import Communicator
from triton_dist.native_calls import Guard
from triton_dist.process_state import of_process
from triton_dist.world.current import Current

__all__ = ["Arguments", "NativeCalls", "Offer"]

_CALLS = 1024


class Arguments(NamedTuple):
    """A call as it was written, and its result."""

    function: str
    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any
    fixed: tuple[Any, ...] = ()
    """Tensors that later calls must have at the same addresses."""


class _Plans(Protocol):
    """``Prepared``, which knows this module."""

    _communicator: Communicator

    def learn(self, offer: Offer, tensors: Sequence[Any], arguments: Arguments) -> bool: ...


class Offer(NamedTuple):
    """A call that was made again by its plan, to be learnt by the public function that it is a call of. It keeps no
    tensor alive."""

    thread: int
    prepared: _Plans
    signature: Any
    plan: Any
    made: int
    """How many calls of the communicator there were."""
    tensors: Sequence[int]
    """By ``id``: those that the launch takes, in its order."""
    fixed: Sequence[int]
    """Those of the call whose addresses are a part of the signature."""


class NativeCalls:
    """The calls that C++ makes again. One for each process, as public functions are; calls end with communicators."""

    def __init__(self) -> None:
        self.call: Any = None
        """``call(function, args, kwargs)``: the result of a call that was made again, or None. None itself, as long as
        nothing was learnt."""
        self.functions: set[str] = set()
        """The names of the public functions that take offers."""
        self.offered: Offer | None = None
        self._table: Any = None

    def owner(self, communicator: Communicator, plans: Any, symmetric: dict[int, bool]) -> Any:
        """What C++ has to know of a communicator; None if calls go through Python.

        Args:
            plans: counts in ``_changes`` for which allocations ``symmetric`` holds, which says which addresses are.
        """
        world = communicator.world
        guards = world.guards_of_repeats()
        library = native_calls.library() if guards else None
        if library is None:
            return None
        if self._table is None:
            self._table = native_calls.new_table(world.is_internal_file, _CALLS)
        return library.Owner(
            communicator,
            communicator._calls.acquire,
            communicator._calls.release,
            communicator.current_stream,
            communicator.n_pes > 1,
            communicator._equal,
            communicator._last,
            symmetric,
            plans,
            (world.registry, world.group_memory),
            (Guard(of_process(Current), "attributes", ("world",), "is", world), *guards),
        )

    def take(self, function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> None:
        """Learn the call that was :attr:`offered`, if it is this one of ``function``, which has returned ``result``."""
        offer, self.offered = self.offered, None
        if offer is None or self._table.knew() or offer.thread != get_ident() or offer.signature[0][0] != function:
            return
        if offer.made != offer.prepared._communicator._made:  # this call was made otherwise: an earlier one was offered
            return
        given = {id(value): value for value in (*args, *kwargs.values(), result)}
        if not given.keys() >= {*offer.tensors, *offer.fixed}:  # a tensor was made of the arguments
            return
        fixed = tuple(given[each] for each in offer.fixed)
        tensors = tuple(given[each] for each in offer.tensors)
        if offer.prepared.learn(offer, tensors, Arguments(function, args, kwargs, result, fixed)):
            self.call = self._table.call

    def learn(
        self,
        owner: Any,
        launch: triton_api.NativeLaunch,
        tensors: Sequence[Any],
        arguments: Arguments,
        new: Callable[[], Any] | None,
        compared: tuple[Hashable, ...],
        waiting: Any,
        guards: Sequence[Guard],
    ) -> bool:
        """The ``launch`` of these ``tensors`` is the call that was written so, under ``guards``. False, if C++ cannot
        make it: it has a tensor of which the launch knows nothing."""
        function, args, kwargs, result, fixed = arguments
        learnt: bool = self._table.learn(
            function, args, kwargs, owner, launch.launch, tensors, launch.encode, result, fixed, new,
            compared or None, waiting, guards,
        )  # fmt: skip
        return learnt

    def forget(self, owner: Any) -> None:
        """Drop all calls of a communicator."""
        if owner is not None:
            self._table.forget(owner)

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table)
