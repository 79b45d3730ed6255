"""Prepared calls of operations that involve no other PE: a call that is one launch is launched again by its plan.

As in ``prepared.py``, but plans are the world's and not a communicator's, and no call is compared with those of others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from triton_dist import triton_api
from triton_dist.kernels.actions import Learnable
from triton_dist.kernels.dependent_launch import DependentLaunches
from triton_dist.kernels.native import Arguments, NativeCalls, Offer, places
from triton_dist.kernels.new_tensors import NewTensors
from triton_dist.kernels.prepared import PLAIN, Launch, launch
from triton_dist.native_calls import Guard
from triton_dist.process_state import of_process
from triton_dist.torch_api import current_stream_handle, stream_handles
from triton_dist.world import World
from triton_dist.world.current import current_world

__all__ = ["LocalLaunches", "launch_again"]

_PLANS = 1024
_DEPTH = 3
"""A launcher is called by a prepared launch, by :meth:`LocalLaunches.repeat`, by a host entry."""


class _Plan(NamedTuple):
    launch: triton_api.PreparedLaunch
    function: str
    details: Any
    """What the host entry wanted to know of the call."""
    new: NewTensors | None
    """The call's new tensors, if C++ can make it: it is this launch, and nothing else."""
    refused: dict[str, int]
    """By function, how often C++ did not learn a call of it."""
    learnable: Learnable


class LocalLaunches:
    """The launches of one world's local operations, by signature."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dependent = world.own(DependentLaunches)
        self._plans: dict[Hashable, _Plan] = {}
        self._native = of_process(NativeCalls)
        self._owner = self._native.owner(world, stream_handles(world.device.index)) if world.kind == "gpu" else None

    def close(self) -> None:
        self._plans.clear()
        self._native.forget(self._owner)

    def signature(self, call: Hashable, *tensors: torch.Tensor | None) -> Hashable | None:
        """All that the host's decisions depend on; None if the call takes the ordinary path and leaves no plan.

        Args:
            call: the function's name and all that is no tensor.
            tensors: as the caller has passed them, unchecked.
        """
        if not self._world.repeats_launches():
            return None
        signature = [call, self._dependent.on]
        for tensor in tensors:
            if tensor is None:
                signature.append(None)
                continue
            if type(tensor) not in PLAIN or tensor.is_conj() or tensor.is_neg():
                return None
            try:
                signature += tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.data_ptr() & 15
                signature.append(tensor.requires_grad)
            except RuntimeError:  # sparse, for instance
                return None
        return tuple(signature)

    def find(self, signature: Hashable | None) -> _Plan | None:
        """The plan under this signature, for :meth:`repeat`; None if the call must take the ordinary path."""
        try:
            plan = self._plans.get(signature)
        except TypeError:  # an option is not hashable, and is refused
            return None
        if plan is None or plan.launch.holds():
            return plan
        self._plans.pop(signature, None)  # another thread may have been first
        return None

    def repeat(self, plan: _Plan, *tensors: torch.Tensor | None, also: Sequence[torch.Tensor] = ()) -> None:
        """Launch on the current stream what left the plan, with these tensors as its first arguments, and ``also`` in
        place of those that :meth:`keep` was told of."""
        launch = plan.launch
        launch(current_stream_handle(self._world.device.index), *launch.arguments(tensors), also=also)
        if plan.new is not None and self._owner is not None:
            given = *tensors, *also
            actions = plan.learnable.actions(given)
            if actions is not None:
                how = plan, actions, self._dependent.on
                self._native.offered = Offer(self, plan.function, how, plan.new, places(given), plan.refused)

    def learn(self, offer: Offer, arguments: Arguments) -> bool:
        """Let C++ know an offered call. True, if C++ has it now."""
        _, actions, on = offer.plan
        guards = Guard(self._dependent, "attributes", ("on",), "is", on), *actions.guards()
        return self._native.learn(self._owner, actions.plan, arguments, guards)

    def keep(
        self,
        signature: Any,
        made: Launch | None,
        details: Any,
        also: Sequence[torch.Tensor] = (),
        new: NewTensors | None = None,
    ) -> None:
        """Leave a plan of a call that was made, and what the host entry wants to know of it.

        Args:
            also: the call's tensors that stand among the launch's other arguments, or in tuples of these.
            new: the call's new tensors, if it is nothing but this launch.
        """
        if signature is None or made is None:
            return
        symmetric: Sequence[bool] = [False] * len(made.tensors)
        wrap = partial(self._world.launcher_of_repeats, symmetric=symmetric, depth=_DEPTH)
        again = triton_api.prepare_launch(
            made.kernel, made.compiled, made.grid, made.tensors, made.others, made.named, wrap, also, made.again
        )
        if again is None:
            return
        while len(self._plans) >= _PLANS:  # other threads may add and drop some meanwhile
            self._plans.pop(next(iter(self._plans), None), None)
        learnable = Learnable(None, [(again, lambda *given: given, ())], also=len(also))
        self._plans[signature] = _Plan(again, signature[0][0], details, new, {}, learnable)


def launch_again(
    function: str, kernel: Any, grid: Sequence[int], tensors: Sequence[torch.Tensor], *others: Any, **named: Any
) -> None:
    """Launch ``kernel[grid](*tensors, *others, **named)`` on the current stream, by the plan that an equal launch has
    left, if there is one.

    Args:
        function: the public function whose launch it is.
        others: may have tensors among them.
    """
    known = current_world().own(LocalLaunches)
    also = [other for other in others if isinstance(other, torch.Tensor)]
    values = tuple(None if isinstance(other, torch.Tensor) else other for other in others)
    signature = known.signature((function, kernel, tuple(grid), values, *named.items()), *tensors, *also)
    if plan := known.find(signature):
        known.repeat(plan, *tensors, also=also)
    else:
        known.keep(signature, launch(kernel, grid, tensors, *others, **named), None, also)
