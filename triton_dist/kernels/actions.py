"""What a prepared call does, one part after the other, as data for C++ (``native_calls/Action.h``).

A plan (``prepared.py``) says what its parts take of a call's tensors by functions of Python. Here it is seen once, in a
call that Python repeats, where that lies: so many bytes behind one of the tensors that the plan is given, which a part
of the call's signature says alike for every such call; or in memory that the plan itself keeps, as the workspace. What
is neither, as a tensor that a function has made anew, is not known, and then C++ cannot make the call.

Functions of Python are called by C++ with the tensors that the plan is given. Calls that they make are calls like the
user's: C++ may make them again as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from triton_dist import native_calls, stream_operations, triton_api
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.cuda import succeed
from triton_dist.kernels.overlaps import span_of
from triton_dist.kernels.protocols.gemm_work import GemmWork
from triton_dist.kernels.protocols.side_stream import SideStreams
from triton_dist.kernels.protocols.stream_work import PlacedWork, StreamWork
from triton_dist.native_calls import Guard

__all__ = ["Actions", "Learnable", "Nested", "Parts", "Repeated"]

_Place = tuple[int | None, int] | None
"""As ``Action.h`` has it: the number of a tensor that is given, and an offset; or None, and an address."""


class Actions(NamedTuple):
    """What C++ does for calls of a plan."""

    plan: tuple[Any, ...]
    """For C++: the actions, what the streams are, and memory in which arguments lie. One object as long as it is the
    same."""
    taken: frozenset[int]
    """Which of the tensors that are given decide on it."""
    has_functions: bool
    """Whether it calls functions of Python, which take tensors as they are, and not only where they lie."""
    conditions: tuple[Guard, ...]
    """What must hold, besides what the launches ask."""
    allocations: tuple[Guard, ...]
    """That nothing was allocated or freed, where operations depend on that."""
    flags: tuple[Guard, ...]
    """That GEMMs go to cuBLAS, or are calls of Python, as when this was found: PyTorch's flags decide."""
    launches: tuple[triton_api.PreparedLaunch, ...]
    lie: dict[int, int]
    """Of tensors that must lie where they lay: the number, and the address."""

    def are_of(self, given: Sequence[Any]) -> bool:
        """Whether it is what calls of these tensors do."""
        lie = all(given[i].data_ptr() == address for i, address in self.lie.items())
        lie = lie and all(guard.object.changes == guard.expected for guard in self.allocations)
        return lie and all(flag.object() == flag.expected for flag in self.flags)

    def guards(self) -> Sequence[Guard]:
        """What must hold, of Triton as it is now."""
        of_launches = (guard for launch in self.launches for guard in launch.guards())
        every = (*self.conditions, *self.allocations, *self.flags, *of_launches)
        return [*{(id(guard.object), *guard[1:4], id(guard.expected)): guard for guard in every}.values()]


Parts = Sequence[tuple[Any, Callable[..., Any], Sequence[tuple[Any, Callable[..., Any]]]]]
"""The work of each part of a plan, what it takes, and such pairs beside it."""


class Nested(NamedTuple):
    """Work that is another call of the same communicator, and nothing else, so that its plan is a part of this one."""

    call: Callable[..., object]
    memory: tuple[torch.Tensor, ...]
    """What that call is given besides tensors of this one: memory that does not move as long as the plan holds."""

    def __call__(self, *given: Any) -> None:
        self.call(*given)


class Repeated(NamedTuple):
    """A call that was made again by a plan, of these tensors."""

    plan: Any
    tensors: Sequence[Any]


class _Unknown(Exception):  # noqa: N818 (it never leaves this module)
    """It is not known where an argument lies, or how Triton passes it."""


class Learnable:
    """What of a plan C++ may make, which is found out in a call that Python repeats.

    Args:
        communicator: None of a local operation, which has neither operations of streams nor parts beside others.
        named: makes of the tensors that are given the one argument of what says what parts take.
        also: how many of the last tensors stand among launches' other arguments.
    """

    def __init__(
        self,
        communicator: Communicator | None,
        parts: Parts,
        compared: tuple[Any, ...] = (),
        named: Callable[..., Any] | None = None,
        also: int = 0,
    ) -> None:
        self._communicator = communicator
        self._parts = parts
        self._compared = compared
        self._named = named
        self._also = also
        self._found: Actions | None = None
        self._is_unknown = False
        self.has_nested = any(type(work) is Nested for work, *_ in parts)

    def actions(self, given: Sequence[Any], nested: Sequence[Repeated | None] = ()) -> Actions | None:
        """What calls do whose plan is ``given`` such tensors; None if C++ cannot do it.

        Args:
            nested: of each part that is a call, in their order, what was made again; None, if it is not known.
        """
        if self._is_unknown or (self._found is not None and self._found.are_of(given)):
            return self._found
        try:
            finder = _Finder(self._communicator, given, self._named, self._also)
            finder.add(self._parts, self._compared, nested)
            self._found = finder.actions()
        except _Unknown:
            self._is_unknown, self._found = True, None
        return self._found


class _Finder:
    """Finds the actions of one call."""

    def __init__(
        self, communicator: Communicator | None, given: Sequence[Any], named: Callable[..., Any] | None, also: int
    ) -> None:
        self._communicator = communicator
        self._given = given
        self._spans = [span_of(tensor) if isinstance(tensor, torch.Tensor) else (0, 0) for tensor in given]
        self._named = named
        self._also = given[len(given) - also :]
        self._actions: list[tuple[Any, ...]] = []
        self._taken: set[int] = set()
        self._has_functions = False
        self._uses_streams = False
        self._conditions: list[Guard] = []
        self._allocations: list[Guard] = []
        self._flags: list[Guard] = []
        self._launches: list[triton_api.PreparedLaunch] = []
        self._lie: dict[int, int] = {}
        self._kept: list[Any] = []

    def actions(self) -> Actions:
        plan = tuple(self._actions), self._streams(), tuple(self._kept)
        return Actions(
            plan, frozenset(self._taken), self._has_functions, tuple(self._conditions), tuple(self._allocations),
            tuple(self._flags), tuple(self._launches), self._lie,
        )  # fmt: skip

    def add(self, parts: Parts, compared: tuple[Any, ...], nested: Sequence[Repeated | None] = ()) -> None:
        """Add what is compared with the other members, and what is done then."""
        if compared:
            self._actions.append(("compare", compared))
        calls = iter(nested)
        for work, taken, beside in parts:
            if type(work) is Nested and not beside and self._add_call(next(calls, None), work.memory):
                continue
            if not beside:
                self._add(work, taken, on_side=False)
                continue
            self._uses_streams = True
            self._actions.append(("fork",))
            self._add(work, taken, on_side=False)
            for other, taken_beside in beside:
                self._add(other, taken_beside, on_side=True)
            self._actions.append(("join",))
            # What is captured has side streams of its own.
            self._conditions.append(Guard(torch.cuda.is_current_stream_capturing, "call", (), "is", False))

    def _add(self, work: Any, taken: Callable[..., Any], *, on_side: bool) -> None:
        if isinstance(work, PlacedWork):
            self._add_placed(work, taken, on_side=on_side)
        elif type(work) is triton_api.PreparedLaunch:
            native = work.native(native_calls)
            if native is None:
                raise _Unknown
            found, again = (self._found(taken)[: work.takes] for _ in range(2))
            places = self._places((*found, *self._also), (*again, *self._also))
            self._actions.append(("launch", on_side, native.launch, native.encode, places, work.waiting))
            self._launches.append(work)
        elif type(work) is StreamWork:
            self._put(work, self._places(self._found(taken), self._found(taken)), on_side=on_side)
        elif isinstance(work, GemmWork) and not on_side and work.is_direct():
            places = self._places(self._found(taken)[:3], self._found(taken)[:3])
            self._actions.append(("multiply", work.data, places))
            self._flags += work.flags
            self._kept.append(work)
        else:
            if isinstance(work, GemmWork) and not on_side:
                # The call is Python's until the GEMM is direct again, as when a flag is set back.
                self._flags.append(Guard(work.is_direct, "call", (), "is", False))
            self._has_functions = True
            self._actions.append(("call", *self._called(work, taken)))

    def _called(
        self, work: Callable[..., object], taken: Callable[..., Any]
    ) -> tuple[Callable[..., object], tuple[Any, ...]]:
        """A function, and what it is called with: numbers of tensors that are given, and objects that are the same in
        all calls. If ``work`` takes anything else, the function finds that in each call."""
        arguments = []
        for value, same in zip(self._found(taken), self._found(taken), strict=True):
            number = self._number_of(value)
            if number is None and value is not same:
                everything = tuple((i, None) for i in range(len(self._given)))
                self._taken.update(range(len(self._given)))
                return partial(_call, work, taken, self._named), everything
            arguments.append((number, None if number is not None else value))
        self._taken.update(number for number, _ in arguments if number is not None)
        return work, tuple(arguments)

    def _add_placed(self, work: PlacedWork, taken: Callable[..., Any], *, on_side: bool) -> None:
        """Work that is known as long as a tensor lies there, and nothing is allocated or freed."""
        placed, *addresses = self._found(taken)
        number = self._number_of(placed)
        if number is None or self._communicator is None:
            raise _Unknown
        self._lie[number] = placed.data_ptr()
        self._taken.add(number)
        for allocation in (self._communicator.world.registry, self._communicator.world.group_memory):
            self._allocations.append(Guard(allocation, "attributes", ("changes",), "equal", allocation.changes))
        self._put(work.at(placed), self._places(addresses, self._found(taken)[1:]), on_side=on_side)

    def _add_call(self, call: Repeated | None, memory: Sequence[torch.Tensor]) -> bool:
        """Add the plan of another call, which is given tensors of this one's or ``memory``. False: a tensor is neither,
        or the plan cannot be made by C++, and nothing was added."""
        if call is None:
            return False
        plan, tensors = call
        inner = _Finder(self._communicator, tensors, plan.named, plan.also)
        try:
            inner.add(plan.steps, plan.compared)
            where = [self._place_of_call(tensor, memory) for tensor in tensors]
        except _Unknown:
            return False
        if inner._has_functions:
            return False
        for i in (*plan.fixed, *inner._lie):
            place = where[i]
            if place is not None and place[0] is not None:
                self._lie[place[0]] = self._given[place[0]].data_ptr()
        self._actions += [_moved(action, where) for action in inner._actions]
        self._uses_streams |= inner._uses_streams
        self._conditions += inner._conditions
        self._allocations += inner._allocations
        self._flags += inner._flags
        self._launches += inner._launches
        self._kept += *memory, *inner._kept
        return True

    def _place_of_call(self, tensor: Any, memory: Sequence[torch.Tensor]) -> _Place:
        if tensor is None:
            return None
        spans = [span_of(whole) for whole in memory]
        if any(begin <= tensor.data_ptr() < end for begin, end in spans):
            return None, tensor.data_ptr()
        return self._place(tensor, None)

    def _put(self, work: StreamWork, places: tuple[_Place, ...], *, on_side: bool) -> None:
        self._uses_streams = True
        self._actions.append(("put", on_side, work.data, places))

    def _found(self, taken: Callable[..., Any]) -> Sequence[Any]:
        found: Sequence[Any] = taken(*(self._given if self._named is None else (self._named(*self._given),)))
        return found

    def _number_of(self, value: Any) -> int | None:
        """Which of the tensors that are given it is, if it is one."""
        return next((i for i, tensor in enumerate(self._given) if tensor is value and value is not None), None)

    def _places(self, found: Sequence[Any], again: Sequence[Any]) -> tuple[_Place, ...]:
        """Where each of ``found`` lies, tensors or addresses, which were found ``again``."""
        if len(found) != len(again):
            raise _Unknown
        return tuple(self._place(value, same) for value, same in zip(found, again, strict=True))

    def _place(self, value: Any, again: Any) -> _Place:
        if value is None and again is None:
            return None
        number = self._number_of(value)
        if number is not None:
            self._taken.add(number)
            return number, 0
        if not isinstance(value, (int, torch.Tensor)):
            raise _Unknown
        address = value if isinstance(value, int) else value.data_ptr()
        for i, (begin, end) in enumerate(self._spans):
            # If it is within several, these share memory, and their distance is a part of the signature.
            if begin <= address < end:
                self._taken.add(i)
                return i, address - begin
        if value is not again or isinstance(value, int):
            raise _Unknown
        self._kept.append(value)
        return None, address

    def _streams(self) -> tuple[Any, ...] | None:
        if not self._uses_streams or self._communicator is None:
            return None
        streams = self._communicator.own(SideStreams)
        direct = streams.direct or streams.open_direct()
        return *stream_operations.library().addresses, succeed, direct.handle, direct.event


_PLACES = {"launch": 4, "put": 3, "multiply": 2}
"""Where places stand in an action."""


def _moved(action: tuple[Any, ...], where: Sequence[_Place]) -> tuple[Any, ...]:
    """The action of another call, whose tensors lie there."""
    if action[0] not in _PLACES:
        return action
    at = _PLACES[action[0]]
    return *action[:at], tuple(_place_in(where, place) for place in action[at]), *action[at + 1 :]


def _place_in(where: Sequence[_Place], place: _Place) -> _Place:
    if place is None or place[0] is None:
        return place
    found = where[place[0]]
    return found and (found[0], found[1] + place[1])


def _call(
    work: Callable[..., object], taken: Callable[..., Any], named: Callable[..., Any] | None, *given: Any
) -> None:
    """Do a part's work as ``prepared.py`` does."""
    work(*taken(*(given if named is None else (named(*given),))))
