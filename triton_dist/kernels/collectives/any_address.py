"""Tensors that begin at any address, as views of flat buffers do, for kernels that move words of up to 4 bytes.

A symmetric output begins at the same address modulo 4 on all members, so its words are shortened alike on all of them.
Other tensors may begin at another address on each member. A member copies those to memory that begins where words do,
and copies results back; its call on the copies is an ordinary one, so the other members need not know of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from triton_dist.kernels.arguments import begin_in_words, in_words
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.protocols.workspace import is_symmetric

__all__ = ["through_copies", "unit_of_words"]


def unit_of_words(comm: Communicator, part_bytes: int, output: torch.Tensor) -> int:
    """The bytes of which the words of parts of ``part_bytes`` are made; the same on all members."""
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
