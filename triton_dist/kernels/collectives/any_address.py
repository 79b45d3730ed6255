"""Tensors that begin anywhere, as views of flat buffers do, for kernels that move words of up to 4 bytes.

What peers store to begins at the same place on all members, so its words are as short as that needs. Of other tensors
every member may have another place: elements are copied to memory that begins where words do, and results are copied
back. The other members see nothing of it: the call in between is that of a member whose tensors begin there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from triton_dist.kernels.arguments import begin_in_words, in_words
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.protocols.workspace import is_symmetric

__all__ = ["in_place_through_a_copy", "through_copies", "unit_of_words"]


def unit_of_words(comm: Communicator, part_bytes: int, output: torch.Tensor) -> int:
    """Of how many bytes words are made that parts of ``part_bytes`` are sent in. The same on all members."""
    if begin_in_words(part_bytes, output) or not is_symmetric(comm, output):
        return part_bytes
    return math.gcd(part_bytes, output.data_ptr())


def through_copies(
    unit: int, call: Callable[[torch.Tensor, torch.Tensor], object], output: torch.Tensor, input: torch.Tensor
) -> torch.Tensor:
    """``call(output, input)`` with copies of those that do not begin where words of such a unit do; ``output``."""
    if begin_in_words(unit, output):
        call(output, in_words(input))
        return output
    copy = torch.empty_like(output, memory_format=torch.contiguous_format)
    call(copy, in_words(input))
    return output.copy_(copy)


def in_place_through_a_copy(call: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> torch.Tensor:
    """``call(tensor)``, which replaces it, with a copy."""
    copy = tensor.clone(memory_format=torch.contiguous_format)
    call(copy)
    return tensor.copy_(copy)
