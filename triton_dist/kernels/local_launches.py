"""Prepared calls of operations that involve no other PE: a call that is one launch is launched again by its plan.

As in ``prepared.py``, but plans are the world's and not a communicator's, and no call is compared with those of others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import torch

from triton_dist import triton_api
from triton_dist.kernels.prepared import Launch
from triton_dist.torch_api import current_stream_handle
from triton_dist.world import World

__all__ = ["LocalLaunches"]

_PLANS = 1024
_DEPTH = 3
"""A launcher is called by a prepared launch, by :meth:`LocalLaunches.repeat`, by a host entry."""


class LocalLaunches:
    """The launches of one world's local operations, by signature."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plans: dict[Hashable, tuple[triton_api.PreparedLaunch, Any]] = {}

    def close(self) -> None:
        self._plans.clear()

    def signature(self, call: Hashable, *tensors: torch.Tensor | None) -> Hashable | None:
        """All that the host's decisions depend on; None if the call takes the ordinary path and leaves no plan.

        Args:
            call: the function's name and all that is no tensor.
            tensors: as the caller has passed them, unchecked.
        """
        if not self._world.repeats_launches():
            return None
        signature = [call]
        for tensor in tensors:
            if tensor is None:
                signature.append(None)
                continue
            if type(tensor) is not torch.Tensor or tensor.is_conj() or tensor.is_neg():
                return None
            try:
                signature += tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.data_ptr() & 15
                signature.append(tensor.requires_grad)
            except RuntimeError:  # sparse, for instance
                return None
        return tuple(signature)

    def details(self, signature: Hashable | None) -> Any:
        """What :meth:`keep` was given for this signature; None if the call must take the ordinary path."""
        try:
            plan = self._plans.get(signature)
        except TypeError:  # an option is not hashable, and is refused
            return None
        if plan is None:
            return None
        if not plan[0].holds():
            del self._plans[signature]
            return None
        return plan[1]

    def repeat(self, signature: Hashable, *tensors: torch.Tensor | None) -> None:
        """Launch on the current stream what left :meth:`details`, with these tensors as its first arguments."""
        launch = self._plans[signature][0]
        launch(current_stream_handle(self._world.device.index), *launch.arguments(tensors))

    def keep(self, signature: Hashable | None, made: Launch | None, details: Any) -> None:
        """Leave a plan of a call that was made, and what the host entry wants to know of it."""
        if signature is None or made is None:
            return
        symmetric: Sequence[bool] = [False] * len(made.tensors)
        wrap = partial(self._world.launcher_of_repeats, symmetric=symmetric, depth=_DEPTH)
        again = triton_api.prepare_launch(
            made.kernel, made.compiled, made.grid, made.tensors, made.others, made.named, wrap
        )
        if again is None:
            return
        if len(self._plans) == _PLANS:
            del self._plans[next(iter(self._plans))]
        self._plans[signature] = again, details
