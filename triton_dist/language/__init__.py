"""OpenSHMEM in a Triton kernel: ``import triton_dist.language as dl`` inside plain ``@triton.jit`` functions.

Triton has programs, not threads, so every operation acts **once per program** and is ordered with the program's own
loads and stores: what the program wrote before a signal is visible to a program that sees the signal, and what it reads
after a wait is not older than what the wait saw. Names, argument order and units are OpenSHMEM's.

The same functions build IR under Triton's compiler and act at once under its interpreter (the CPU world).
"""

from triton_dist.language import (
    atomics,
    collectives,
    constants,
    distributed_ops,
    ordering,
    point_to_point,
    query,
    rma,
    signal,
    tile,
    token,
)
from triton_dist.language.atomics import *
from triton_dist.language.collectives import *
from triton_dist.language.constants import *
from triton_dist.language.distributed_ops import *
from triton_dist.language.ordering import *
from triton_dist.language.point_to_point import *
from triton_dist.language.query import *
from triton_dist.language.rma import *
from triton_dist.language.signal import *
from triton_dist.language.tile import *
from triton_dist.language.token import *

__all__: list[str] = []
__all__ += atomics.__all__
__all__ += collectives.__all__
__all__ += constants.__all__
__all__ += distributed_ops.__all__
__all__ += ordering.__all__
__all__ += point_to_point.__all__
__all__ += query.__all__
__all__ += rma.__all__
__all__ += signal.__all__
__all__ += tile.__all__
__all__ += token.__all__
