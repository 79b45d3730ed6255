"""Which PEs a kernel works on: start, stride and size, as of an OpenSHMEM team, known when the kernel is compiled.

A kernel takes them as one argument, ``MEMBERS: tl.constexpr``. It numbers the PEs that it works with from 0, as ranks
of the group, and turns a rank into a PE where it names one to the language (``dl.symm_at``, ``dl.putmem``). For the
members of the whole world both numbers agree, and nothing is left of the difference in the compiled kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

import triton_dist.language as dl

__all__ = ["Members", "at_rank", "group_size", "my_rank", "pe_of", "stride_of"]


class Members(NamedTuple):
    """A group's members in the order of their ranks: the PEs ``start``, ``start + stride``, …, ``size`` of them.

    With ``one_of_many`` several such groups lie side by side from ``start`` on, as the rows or columns of a grid, and
    the calling PE's is meant: one compiled kernel serves them all.
    """

    start: int
    stride: int
    size: int
    one_of_many: bool = False


@triton.constexpr_function
def group_size(members):
    """How many members there are, a constant."""
    return members[2]


@triton.constexpr_function
def stride_of(members):
    """How far apart neighbouring ranks' PEs are, a constant."""
    return members[1]


@triton.constexpr_function
def _one_of_many(members):
    return len(members) > 3 and members[3]


@triton.jit
def my_rank(MEMBERS: tl.constexpr):
    """This PE's number among the members."""
    if _one_of_many(MEMBERS):
        return (dl.my_pe() - MEMBERS[0]) // MEMBERS[1] % MEMBERS[2]
    else:
        return (dl.my_pe() - MEMBERS[0]) // MEMBERS[1]


@triton.jit
def pe_of(rank, MEMBERS: tl.constexpr):
    """The PE, by its number in the world, whose rank among the members is ``rank``."""
    if _one_of_many(MEMBERS):
        return dl.my_pe() + MEMBERS[1] * (rank - my_rank(MEMBERS))
    else:
        return MEMBERS[0] + MEMBERS[1] * rank


@triton.jit
def at_rank(ptr, rank, MEMBERS: tl.constexpr):
    """Where the symmetric object that ``ptr`` points to lies on the member ``rank``."""
    return dl.symm_at(ptr, pe_of(rank, MEMBERS))
