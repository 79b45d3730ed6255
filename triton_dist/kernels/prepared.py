"""Prepared calls: what the host finds out in a call of a collective is kept, and used by the next one like it.

A call that is one launch leaves a plan: the compiled kernel, its grid, and all arguments but the caller's tensors. So
does a call of several steps, one after the other, each of which is a launch, operations of a stream, as copies by the
copy engine, or a function, as another call or one of PyTorch; and what a side stream does beside it. The communicator
keeps it under the call's *signature*, which holds all that the host's decisions depend on: the function and its
options; of each tensor the shape, strides, dtype, device, whether it is symmetric on the members, and its address
modulo 16; and which of them share memory (``overlaps.py``). A later call of this signature passes the same checks, so
it looks nothing up but the plan, compares the call with those of the other members, and launches. Whatever is unusual
takes the ordinary path: tensors of a subclass, but for parameters, tracing, hooks on Triton's launches, another
transport for a while, workspace that was made since the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from triton_dist import triton_api
from triton_dist.kernels.actions import Learnable, Nested, Parts, Repeated
from triton_dist.kernels.communicator import Communicator, is_communicator_of
from triton_dist.kernels.dependent_launch import DependentLaunches
from triton_dist.kernels.native import Arguments, NativeCalls, Offer, places
from triton_dist.kernels.new_tensors import NewTensors
from triton_dist.kernels.overlaps import sharing
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.stream_work import PlacedWork, StreamWork
from triton_dist.kernels.protocols.workspace import Workspace, is_symmetric
from triton_dist.kernels.tracing.recorder import Tracing
from triton_dist.native_calls import Guard
from triton_dist.process_state import of_process
from triton_dist.world.current import find_world

__all__ = [
    "PLAIN",
    "Launch",
    "Nested",
    "Part",
    "Prepared",
    "Second",
    "Step",
    "Taken",
    "Work",
    "everything",
    "launch",
    "nothing",
    "place_of",
    "steps",
]

PLAIN = torch.Tensor, torch.nn.Parameter
"""Tensors of these types are what lies in memory. (A parameter that is a DTensor is of that type.)"""
_ABSENT = "absent"
_PLANS = 1024
_ADDRESSES = 4096
_DEPTH = 3
"""A launcher is called by a prepared launch, by :meth:`Prepared.repeat`, by a host entry: three frames of ours."""


class Launch(NamedTuple):
    """A launch that was made; the arguments are those of :func:`launch`."""

    kernel: Any
    compiled: Any
    grid: Sequence[int]
    tensors: Sequence[Any]
    others: Sequence[Any]
    named: Mapping[str, Any]
    again: Sequence[int] = ()
    """Of which tensors the last of ``tensors`` are second arguments."""


class Second(NamedTuple):
    """A second argument of a kernel that is made of one of its ``tensors``, as a descriptor of other blocks."""

    of: int
    argument: Any


def launch(kernel: Any, grid: Sequence[int], tensors: Sequence[Any], *others: Any, **named: Any) -> Launch | None:
    """Launch ``kernel[grid](*tensors, *others, **named)``; None where kernels are interpreted.

    An algorithm whose whole work this is returns the result, and its calls are prepared.

    Args:
        tensors: the caller's, or descriptors of them, in the order in which the host entry names them to
            :class:`Prepared`; of the last ones there may be none. Behind them may stand :class:`Second` ones.
        others: the same in all calls of a signature.
    """
    seconds = [given for given in tensors if type(given) is Second]
    arguments = (*tensors[: len(tensors) - len(seconds)], *(second.argument for second in seconds))
    world = find_world()
    if world is not None and world.host_streams is not None:
        world.host_streams.launch(lambda: kernel[grid](*arguments, *others, **named))
        return None
    compiled = kernel[grid](*arguments, *others, **named)
    if compiled is None:
        return None
    return Launch(kernel, compiled, grid, arguments, others, named, again=tuple(second.of for second in seconds))


Work = Launch | StreamWork | PlacedWork | Nested | Callable[..., object]
"""A launch that was made; operations of a stream, which are called with its handle; or a function that does the same
again with the tensors it is called with, as one that is another call."""


Taken = Callable[..., Sequence[Any]]
"""What work is given, of the call's tensors, or of what they are by name if the host entry names them: tensors, or
where they lie. It depends on nothing but the tensors' shapes, strides and places, and makes no memory."""


class Step(NamedTuple):
    """One part of a call. Work of a call is of its caller's tensors only where ``tensors`` takes them."""

    work: Work
    tensors: Taken
    beside: tuple[tuple[Work, Taken], ...] = ()
    """What is done at the same time as the work, on a side stream, in this order: launches, and operations of it."""


Part = tuple[Any, ...]
"""A step, if it can be made again: the work, or None, and what it takes; then work beside it, each such a pair."""


def nothing(*given: object) -> Sequence[torch.Tensor]:
    """What work is given that takes no tensor of the call."""
    return ()


def everything(*given: Any) -> Sequence[Any]:
    """What work is given that takes all tensors of the call."""
    return given


def place_of(out: torch.Tensor | None) -> int | None:
    """The address of a result to which peers store, as a part of a signature; None of what has none, and of tensors for
    which :meth:`Prepared.signature` is None."""
    if out is None or type(out) not in PLAIN or out.layout is not torch.strided:
        return None
    return out.data_ptr()


def steps(*parts: Part) -> tuple[Step, ...] | None:
    """A call of these parts, in this order; None, if one of them cannot be made again."""
    if any(work is None for part in parts for work in (part[0], *(beside[0] for beside in part[2:]))):
        return None
    return tuple(Step(part[0], part[1], part[2:]) for part in parts)


class _Plan(NamedTuple):
    launch: triton_api.PreparedLaunch | None
    """The one launch; None: the call has ``steps``."""
    is_plain: bool
    """Whether the call is that launch, of all tensors as they are, and nothing else."""
    takes: int
    """How many of the call's first tensors it takes, by descriptors or beside others; 0 if it takes all tensors as they
    are."""
    also: int
    """How many of the call's last tensors stand among the launches' other arguments."""
    compared: tuple[Any, ...]
    """What is compared between the members."""
    workspace: int
    """How much workspace had been made: a later one may have replaced what the plan uses, on all members alike."""
    refused: dict[str, int]
    """By public function, how often C++ did not learn a call of it."""
    named: Callable[..., Any] | None = None
    """Makes of the call's tensors the one argument of the steps; None: all tensors are."""
    details: Any = None
    """What the host entry keeps for itself, for :meth:`Prepared.details`."""
    steps: Parts = ()
    """What is done with which of the call's tensors, one after the other, and what beside it."""
    launches: Sequence[triton_api.PreparedLaunch] = ()
    """Those of the steps, and beside them; none where there is one ``launch``."""
    fixed: tuple[int, ...] = ()
    """Which of the call's tensors lie where they lay, by a part of the signature."""
    learnable: Learnable | None = None
    """What C++ may make: a call of nothing but the plan's launch or steps, of the caller's tensors and those of
    ``new``."""
    new: NewTensors | None = None
    """Those that a call makes, if the plan takes them and nothing but this decides on them."""
    conditions: tuple[Guard, ...] = ()
    """What the host entry asks before it makes a call again."""

    def holds(self) -> bool:
        """Whether Triton would launch the same kernels. (Functions find out by themselves.)"""
        if self.launch is not None:
            return self.launch.holds()
        for launch in self.launches:  # noqa: SIM110 (a generator takes longer)
            if not launch.holds():
                return False
        return True


class Prepared:
    """The plans of one communicator's calls, by signature. Used within ``calling``, by one thread at a time."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._world = communicator.world
        self._tracing = communicator.world.own(Tracing)
        self._workspace = communicator.own(Workspace)
        self._dependent = communicator.world.own(DependentLaunches)
        self._plans: dict[Hashable, _Plan] = {}
        self._symmetric: dict[int, bool] = {}  # addresses of tensors, as long as nothing is allocated or freed
        self._changes = -1  # read by native_calls/Table.cpp
        self._seen: list[Repeated] | None = None
        """The calls that were made again within a step of another, while it is of interest."""
        self._native = of_process(NativeCalls)
        shared = self._native.shared(communicator, self, self._symmetric)
        self._owner = self._native.owner(communicator.world, communicator.current_stream, shared)

    def close(self) -> None:
        self.forget()
        self._owner = None
        self._symmetric.clear()

    def forget(self) -> None:
        """Drop all plans: what ``auto`` takes has changed."""
        self._plans.clear()
        self._native.forget(self._owner)

    def signature(self, call: Hashable, *tensors: torch.Tensor | None) -> Hashable | None:
        """The signature of a call, or None: it takes the ordinary path and leaves no plan.

        Args:
            call: the function's name and all that is no tensor.
            tensors: as the caller has passed them, unchecked; None for those that it has not.
        """
        world = self._world
        if self._tracing.session is not None or not world.repeats_launches():
            return None
        changes = world.registry.changes + world.group_memory.changes
        if changes != self._changes:
            self._symmetric.clear()
            self._changes = changes
        signature = [call, self._dependent.on]
        spans = []
        known = self._symmetric
        previous = None
        for tensor in tensors:
            if tensor is None:
                signature.append(_ABSENT)
                continue
            if tensor is previous:
                signature.append(None)
                continue
            previous = tensor
            if type(tensor) not in PLAIN or tensor.is_conj() or tensor.is_neg():
                return None
            try:
                address = tensor.data_ptr()
                strides = tensor.is_contiguous() or tensor.stride()
                end = address + tensor.nbytes
                if strides is not True:  # as span_of, of which a call would cost as much
                    end = address + tensor.itemsize
                    for size, step in zip(tensor.shape, strides, strict=True):
                        end += (size - 1) * step * tensor.itemsize
                spans.append((address, end))
            except RuntimeError:  # sparse, for instance
                return None
            symmetric = known.get(address)
            if symmetric is None:
                symmetric = self.is_symmetric(tensor)
            signature += tensor.shape, strides, tensor.dtype, tensor.device, address & 15, symmetric
        end = 0
        for begin, behind in sorted(spans):  # here, since a call of a function costs as much
            if begin < end:
                signature.append(sharing(spans))
                break
            end = behind
        return tuple(signature)

    def is_symmetric(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is symmetric on the members, which is noted for its address."""
        if len(self._symmetric) > _ADDRESSES:
            self._symmetric.clear()
        found = self._symmetric[tensor.data_ptr()] = is_symmetric(self._communicator, tensor)
        return found

    def repeat(self, signature: Hashable | None, *tensors: Any) -> bool:
        """Make the call again that left a plan under ``signature``; False if the call must take the ordinary path."""
        try:
            plan = self._plans.get(signature)
        except TypeError:  # an option is none, and is refused
            return False
        if plan is None:
            return False
        launch = plan.launch
        if plan.workspace != self._workspace.made or not (plan.holds() if launch is None else launch.holds()):
            del self._plans[signature]
            return False
        self._world.check_live()
        if plan.compared:
            self._communicator.compare(*plan.compared)
        depth = self._communicator._depth
        nested: Sequence[Repeated | None] = ()
        if launch is None:
            nested = self._repeat_steps(plan, tensors)
        elif plan.is_plain:
            launch(self._communicator.stream_handle(), *tensors)
        else:
            first = launch.arguments(tensors[: plan.takes]) if plan.takes else tensors
            also = tensors[-plan.also :] if plan.also else ()
            launch(self._communicator.stream_handle(), *first, also=also)
        if depth == 1:
            if plan.learnable is not None:
                self._offer(signature, plan, tensors, nested)
        elif depth == 2 and self._seen is not None:
            self._seen.append(Repeated(plan, tensors))
        return True

    def _offer(self, signature: Any, plan: _Plan, tensors: Sequence[Any], nested: Sequence[Repeated | None]) -> None:
        """Offer a call that was made of these tensors to C++; ``nested`` are the calls in it."""
        assert plan.learnable is not None
        actions = plan.learnable.actions(tensors, nested)
        if actions is not None:
            taken = [place if i in actions.taken else None for i, place in enumerate(places(tensors))]
            fixed = places([tensors[i] for i in (*plan.fixed, *actions.lie)])
            self._native.offered = Offer(
                self, signature[0][0], (plan, actions, signature[1]), plan.new, taken, plan.refused, fixed,
                self._communicator._made, as_they_are=actions.has_functions,
            )  # fmt: skip

    def learn(self, offer: Offer, arguments: Arguments) -> bool:
        """Let C++ know an offered call. True, if C++ has it now."""
        plan, actions, on = offer.plan
        if offer.made != self._communicator._made:  # this call was made otherwise: an earlier one was offered
            return False
        whose = is_communicator_of(self._communicator, arguments.group)
        if not whose:
            return False
        guards = (
            Guard(self._tracing, "attributes", ("session",), "is", None),
            Guard(self._dependent, "attributes", ("on",), "is", on),
            Guard(self._workspace, "attributes", ("made",), "equal", plan.workspace),
            *whose,
            *plan.conditions,
            *actions.guards(),
        )
        return self._native.learn(self._owner, actions.plan, arguments, guards)

    def _repeat_steps(self, plan: _Plan, tensors: Sequence[torch.Tensor]) -> Sequence[Repeated | None]:
        """Returns for each step that is a call what :meth:`Learnable.actions` wants to know of it, if it is asked."""
        also = tensors[-plan.also :] if plan.also else ()
        given = tensors if plan.named is None else (plan.named(*tensors),)
        is_asked = plan.learnable is not None and plan.learnable.has_nested and self._communicator._depth == 1
        nested: list[Repeated | None] = []
        for work, taken, beside in plan.steps:
            if beside:
                with side_stream(self._communicator) as side:
                    self._do(work, taken, given, also)
                    for other, taken_beside in beside:
                        self._do(other, taken_beside, given, also, side.cuda_stream)
            elif is_asked and type(work) is Nested:
                seen: list[Repeated] = []
                self._seen = seen
                try:
                    self._do(work, taken, given, also)
                finally:
                    self._seen = None
                nested.append(seen[0] if len(seen) == 1 else None)
            else:
                self._do(work, taken, given, also)
        return nested

    def _do(self, work: Any, taken: Taken, given: Sequence[Any], also: Sequence[Any], side: int | None = None) -> None:
        """Do work of a step on the current stream, or the ``side`` one."""
        found = () if taken is nothing else taken(*given)
        if type(work) is triton_api.PreparedLaunch:
            stream = self._communicator.stream_handle() if side is None else side
            work(stream, *(work.arguments(found) if found else ()), also=also)
        elif isinstance(work, (StreamWork, PlacedWork)):
            work(self._communicator.stream_handle() if side is None else side, *found)
        else:
            work(*found)

    def details(self, signature: Hashable | None) -> Any:
        """What :meth:`keep` was given for calls of this signature, from which new tensors for results are made: pass
        them to :meth:`repeat`. None without a plan."""
        try:
            plan = self._plans.get(signature)
        except TypeError:
            return None
        return None if plan is None else plan.details

    def keep(
        self,
        signature: Any,
        made: Launch | Sequence[Step] | None,
        *compared: Any,
        details: Any = None,
        also: Sequence[torch.Tensor] = (),
        named: Callable[..., Any] | None = None,
        fixed: tuple[int, ...] = (),
        new: NewTensors | None = None,
        conditions: tuple[Guard, ...] = (),
    ) -> None:
        """Leave a plan of a call that was made: its one launch or its steps, and what was compared between the members.

        Args:
            details: what :meth:`details` returns.
            also: the call's last tensors, if they stand among launches' other arguments, as scales and an epilogue's
                do. If one of them is there twice, there is no plan: which of the two stands where cannot be told.
            named: makes of a call's tensors what its steps are called with: one object that says which tensor is what.
            fixed: which of the call's tensors lie where they lay, since their addresses are a part of ``signature``.
            new: the call's new tensors, if its result is made of them, as the host entry makes them for
                :meth:`repeat`.
            conditions: what the host entry asks before it calls :meth:`repeat`, as data.
        """
        if signature is None or made is None or len({id(tensor) for tensor in also}) < len(also):
            return
        workspace = self._workspace.made
        is_learnable = self._owner is not None and signature[0][0] in self._native.functions
        is_learnable = is_learnable and (details is None or new is not None)
        if isinstance(made, Launch):
            again = self._prepared(made, _DEPTH, also)
            if again is None:
                return
            own = made.tensors[: len(made.tensors) - len(made.again)]
            takes = len(own) if also or any(map(triton_api.is_descriptor, own)) else 0
            parts: Parts = [(again, everything, ())]
            launches: list[triton_api.PreparedLaunch] = []
            named = None
            is_plain = not (takes or also)
        else:
            parts = []
            for step in made:
                work = self._again(step.work, also)
                others = [(self._again(other, also), taken) for other, taken in step.beside]
                if work is None or any(other is None for other, _ in others):
                    return
                parts.append((work, step.tensors, others))
            works = [work for work, _, others in parts for work in (work, *(other for other, _ in others))]
            launches = [work for work in works if type(work) is triton_api.PreparedLaunch]
            again, is_plain, takes = None, False, 0
        told = (*compared, *self._communicator.described)  # C++ compares no more than it is given here
        learnable = Learnable(self._communicator, parts, told, named, len(also)) if is_learnable else None
        plan = _Plan(
            again, is_plain, takes, len(also), compared, workspace, {}, named, details, parts, launches, fixed,
            learnable, new, conditions,
        )  # fmt: skip
        if len(self._plans) == _PLANS:
            del self._plans[next(iter(self._plans))]
        self._plans[signature] = plan

    def _again(self, work: Work, also: Sequence[torch.Tensor]) -> Any:
        """What a step does in a later call; None, if its launch cannot be made again."""
        return self._prepared(work, _DEPTH + 2, also) if isinstance(work, Launch) else work

    def _is_symmetric(self, tensor: torch.Tensor) -> bool:
        """Whether a launch's tensor is, in every call of the signature: it is one of the call's, a view of such, as the
        columns of a result that are this PE's, or memory that the plan keeps."""
        known = self._symmetric.get(tensor.data_ptr())
        return self.is_symmetric(tensor) if known is None else known

    def _prepared(self, made: Launch, depth: int, also: Sequence[torch.Tensor]) -> triton_api.PreparedLaunch | None:
        symmetric = [x is not None and not triton_api.is_descriptor(x) and self._is_symmetric(x) for x in made.tensors]
        wrap = partial(self._world.launcher_of_repeats, symmetric=symmetric, depth=depth)
        return triton_api.prepare_launch(
            made.kernel, made.compiled, made.grid, made.tensors, made.others, made.named, wrap, also, made.again
        )
