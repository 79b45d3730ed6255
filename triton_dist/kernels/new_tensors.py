"""The new tensors of a call, as data: so that C++ can make them, too (``native.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import torch

__all__ = ["NewTensors", "like"]


class NewTensors(NamedTuple):
    """What a later call of a signature makes anew."""

    makers: tuple[Callable[[], torch.Tensor], ...]
    places: tuple[tuple[int, ...], ...]
    """Which of the launch's tensors each is."""
    results: tuple[int | tuple[int] | None, ...] = (0,)
    """Those that the call returns, in order; in a tuple the number of a tensor that the plan is given, which is one of
    the call's; None where it returns None."""
    returned: Callable[[tuple[Any, ...]], Any] | None = None
    """Makes the result of a tuple of these; None: it is the one tensor."""
    apart: Callable[[Any], tuple[Any, ...]] | None = None
    """Makes the tuple of the result again; None: that is one."""

    @classmethod
    def of(
        cls,
        *tensors: torch.Tensor | None,
        at: int,
        kept: Sequence[torch.Tensor] = (),
        returned: Callable[[tuple[Any, ...]], Any] | None = None,
    ) -> NewTensors:
        """Those of a call that has made and returned ``tensors``, and ``kept`` others to itself. The launch takes them
        in this order, from its tensor number ``at`` on."""
        made = [(place, tensor) for place, tensor in enumerate((*tensors, *kept), at) if tensor is not None]
        numbers = {place: number for number, (place, _) in enumerate(made)}
        results = tuple(numbers.get(place) for place in range(at, at + len(tensors)))
        return cls(tuple(like(tensor) for _, tensor in made), tuple((place,) for place, _ in made), results, returned)

    @classmethod
    def besides(cls, result: int, *kept: torch.Tensor, at: int = 0) -> NewTensors:
        """Those of a call that returns the tensor number ``result`` of those that its plan is given, and has made the
        ``kept`` ones, which it takes from number ``at`` on."""
        places = tuple((place,) for place in range(at, at + len(kept)))
        return cls(tuple(map(like, kept)), places, ((result,),), itemgetter(0), lambda result: (result,))

    def parts_of(self, result: Any) -> tuple[Any, ...]:
        """What :attr:`results` says, of a result."""
        if self.returned is None:
            return (result,)
        if self.apart is not None:
            return self.apart(result)
        return result if isinstance(result, tuple) else ()

    def tensors(self) -> list[torch.Tensor]:
        """New tensors, in their order."""
        made = []
        for maker in self.makers:  # no comprehension, which is a call in Python 3.11
            made.append(maker())
        return made

    def new(self) -> Any:
        """The result of a call that returns its new tensors, and no other."""
        made = []
        for which in self.results:
            made.append(self.makers[which]() if isinstance(which, int) else None)
        return made[0] if self.returned is None else self.returned(tuple(made))


def like(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A function that makes tensors of this shape, with these strides, of this dtype and device.

    With strides and without torch.Size: PyTorch takes half as long.
    """
    return partial(torch.empty_strided, tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
