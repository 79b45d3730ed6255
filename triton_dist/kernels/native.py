"""Prepared calls that are made again without Python, by ``triton_dist.native_calls``.

A call that was made again by its plan (``prepared.py``) is *learnt*: how the caller wrote it, what was known of its
tensors, and what the plan does with them (``actions.py``). From then on a call that is written alike goes from the
public function to C++, and from there to the driver. C++ makes the checks of :meth:`Communicator.begin`,
:meth:`Prepared.signature` and :meth:`Prepared.repeat`, and compares the call with those of the other members. If one of
them says no, nothing was done, and the call goes through Python, which knows why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import get_ident
from typing import Any, NamedTuple, Protocol

import torch

from triton_dist import native_calls
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.new_tensors import NewTensors, like
from triton_dist.native_calls import Guard
from triton_dist.process_state import of_process
from triton_dist.world import World
from triton_dist.world.current import Current

__all__ = ["Arguments", "NativeCalls", "Offer", "places"]

_CALLS = 1024
_TRIES = 8
"""How many calls of a plan by one public function are looked at, before it is rarely tried: they may be written in
several ways, of which one cannot be learnt."""


Place = tuple[int, int]
"""The ``id`` of a tensor, and its address. It keeps no tensor alive."""


def places(tensors: Iterable[Any]) -> list[Place | None]:
    """None of what is no tensor."""
    return [None if tensor is None else (id(tensor), tensor.data_ptr()) for tensor in tensors]


class Arguments(NamedTuple):
    """A call as it was written, and what the plan takes of it."""

    function: str
    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any
    """The result, if nothing is new."""
    tensors: tuple[Any, ...]
    """What the plan takes, in its order: tensors of the call, numbers of new ones, or None."""
    fixed: tuple[Any, ...]
    """Tensors that later calls must have at the same addresses."""
    new: NewTensors | None
    group: Any
    """Whose members make the call."""
    guards: tuple[Guard, ...]
    """What must hold besides what the plan says."""


class _Plans(Protocol):
    """``Prepared`` or ``LocalLaunches``, which know this module."""

    def learn(self, offer: Offer, arguments: Arguments) -> bool: ...


class Offer:
    """A call that was made again by its plan, to be learnt by the public function that it is a call of."""

    def __init__(
        self,
        prepared: _Plans,
        function: str,
        plan: Any,
        new: NewTensors | None,
        tensors: Sequence[Place | None],
        refused: dict[str, int],
        fixed: Sequence[Place | None] = (),
        made: int = 0,
        *,
        as_they_are: bool = False,
    ) -> None:
        self.thread = get_ident()
        self.prepared = prepared
        self.function = function
        self.plan = plan
        self.new = new
        self.tensors = tensors
        """Those that the plan takes, in its order."""
        self.refused = refused
        """How often calls of the plan by which public function could not be learnt."""
        self.fixed = fixed
        """Those of the call whose addresses are a part of the signature."""
        self.made = made
        """How many calls of the communicator there were."""
        self.as_they_are = as_they_are
        """Whether the plan takes tensors as the call has them, and not only where they lie."""

    def arguments(
        self,
        function: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        group: Any,
        guards: tuple[Guard, ...],
        *,
        may_be_new: bool,
    ) -> Arguments | None:
        """The call as ``function`` was called, which has returned ``result``. None if one of the plan's tensors is
        none of its arguments and none that is made anew.

        Args:
            may_be_new: whether the result may be a tensor that ``function`` has made, and not the launch's host entry.
        """
        given = [*_tensors((*args, *kwargs.values()))]
        by_identity = {id(value): value for value in given}
        # A tensor that was made of an argument and lies where that lies is its memory: all of them are alive.
        by_address = {value.data_ptr(): value for value in reversed(given) if value.numel()}
        new = self.new
        if new is not None and not self._is_made_of_new(result):
            new = None
        if new is None and may_be_new:
            new = self._only_new(result, given)
        if new is None and self.new is not None:
            return None
        as_they_are = self.as_they_are or (new is not None and any(isinstance(which, tuple) for which in new.results))
        numbers = {} if new is None else {place: i for i, which in enumerate(new.places) for place in which}
        found: list[Any] = []
        for i, place in enumerate(self.tensors):
            if i in numbers:
                found.append(numbers[i])
            elif place is None:
                found.append(None)
            elif place[0] in by_identity:
                found.append(by_identity[place[0]])
            elif place[1] in by_address and not as_they_are:
                found.append(by_address[place[1]])
            else:
                return None
        fixed = [by_identity.get(place[0]) if place is not None else None for place in self.fixed]
        if any(tensor is None for tensor in fixed):
            return None
        return Arguments(function, args, kwargs, result, tuple(found), tuple(fixed), new, group, guards)

    def _only_new(self, result: Any, given: Sequence[torch.Tensor]) -> NewTensors | None:
        """``result``, if it is a new tensor that the launch takes, and has its memory for itself."""
        if type(result) is not torch.Tensor or not result.numel() or result.storage_offset():
            return None
        memory = result.untyped_storage()
        if any(memory.data_ptr() == tensor.untyped_storage().data_ptr() for tensor in given):
            return None
        last = sum((size - 1) * step for size, step in zip(result.shape, result.stride(), strict=True))
        if memory.nbytes() != (last + 1) * result.itemsize:
            return None
        at = tuple(i for i, place in enumerate(self.tensors) if place is not None and place[1] == result.data_ptr())
        return NewTensors((like(result),), (at,)) if at else None

    def _is_made_of_new(self, result: Any) -> bool:
        """Whether ``result`` is what the new tensors of the call say."""
        new = self.new
        assert new is not None
        parts = new.parts_of(result)
        if len(parts) != len(new.results):
            return False
        made: list[Place | None] = []
        for which in new.results:
            if isinstance(which, tuple):
                made.append(self.tensors[which[0]])
            else:
                made.append(None if which is None else self.tensors[new.places[which][0]])
        return [place and place[0] for place in made] == [None if part is None else id(part) for part in parts]


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those among arguments, also in tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)


class NativeCalls:
    """The calls that C++ makes again. One for each process, as public functions are; calls end with communicators."""

    def __init__(self) -> None:
        self.call: Any = None
        """``call(function, args, kwargs)``: the result of a call that was made again, or None. None itself, as long as
        nothing was learnt."""
        self.functions: set[str] = set()
        """The names of the public functions that take offers."""
        self.offered: Any = None
        """The :class:`Offer` of the last call that was made again by its plan, if it was not taken."""
        self._table: Any = None

    def owner(self, world: World, current_stream: Callable[[], int], shared: tuple[Any, ...] | None = None) -> Any:
        """What C++ has to know of those whose calls they are; None if calls go through Python.

        Args:
            shared: :meth:`shared`, of a communicator's calls.
        """
        guards = world.guards_of_repeats()
        library = native_calls.library() if guards else None
        if library is None:
            return None
        if self._table is None:
            self._table = native_calls.new_table(world.is_internal_file, _CALLS)
        current = Guard(of_process(Current), "attributes", ("world",), "is", world)
        return library.Owner(current_stream, (current, *guards), shared)

    @staticmethod
    def shared(communicator: Communicator, plans: Any, symmetric: dict[int, bool]) -> tuple[Any, ...]:
        """What the calls of a communicator share.

        Args:
            plans: counts in ``_changes`` for which allocations ``symmetric`` holds, which says which addresses are, and
                finds it out of a tensor at another one by ``is_symmetric``.
        """
        world = communicator.world
        return (
            communicator,
            communicator._calls.acquire,
            communicator._calls.release,
            communicator.n_pes > 1,
            communicator._equal,
            communicator._last,
            symmetric,
            plans.is_symmetric,
            plans,
            (world.registry, world.group_memory),
        )

    def take(
        self,
        function: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: object,
        kernel: str = "",
        conditions: Callable[..., tuple[Any, tuple[Guard, ...]] | None] | None = None,
    ) -> None:
        """Learn the call that was :attr:`offered`, if it is this one of ``function``, which has returned ``result``.

        Args:
            kernel: the function that ``function`` calls for this, if it is not that itself, and may have made the
                result. Then ``conditions(*args, **kwargs)`` are the group and what must hold besides; None: never.
        """
        offer, self.offered = self.offered, None
        if offer is None or self._table.knew() or offer.thread != get_ident() or offer.function != (kernel or function):
            return
        offer.refused[function] = refused = offer.refused.get(function, 0) + 1
        if refused > _TRIES and refused & (refused - 1):  # then once in twice as many
            return
        found = (kwargs.get("group"), ()) if conditions is None else conditions(*args, **kwargs)
        arguments = found and offer.arguments(function, args, kwargs, result, *found, may_be_new=bool(kernel))
        if arguments and offer.prepared.learn(offer, arguments):
            offer.refused[function] = 0
            self.call = self._table.call

    def learn(
        self,
        owner: Any,
        plan: tuple[Any, ...],
        arguments: Arguments,
        guards: Sequence[Guard],
    ) -> bool:
        """The ``plan``, of :class:`~triton_dist.kernels.actions.Actions`, is the call that was written so, under
        ``guards``. False, if C++ cannot make it: it has a tensor of which the plan knows nothing."""
        function, args, kwargs, result, tensors, fixed, new, _, more = arguments
        made = None if new is None else (new.makers, new.results, new.returned)
        learnt: bool = self._table.learn(
            function, args, kwargs, owner, plan, tensors, result, fixed, made, (*guards, *more),
        )  # fmt: skip
        return learnt

    def forget(self, owner: Any) -> None:
        """Drop all calls of a communicator, or of local operations."""
        if owner is not None:
            self._table.forget(owner)

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table)
