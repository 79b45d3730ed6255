"""OpenSHMEM in a Triton kernel: ``import triton_dist.language as dl`` inside plain ``@triton.jit`` functions.

Triton has programs, not threads, so every operation acts **once per program** and is ordered with the program's own
loads and stores: what the program wrote before a signal is visible to whoever sees the signal, and what it reads
after a wait is not older than what the wait saw. Names, argument order and units are OpenSHMEM's.

The same functions build IR under Triton's compiler and act at once under its interpreter (the CPU world).
"""

from triton_dist.language.constants import (
    CMP_EQ,
    CMP_GE,
    CMP_GT,
    CMP_LE,
    CMP_LT,
    CMP_NE,
    SIGNAL_ADD,
    SIGNAL_SET,
)
from triton_dist.language.ordering import barrier_all, fence, quiet, sync_all
from triton_dist.language.query import my_pe, n_pes, symm_at
from triton_dist.language.rma import get, getmem, getmem_nbi, put, putmem, putmem_nbi
from triton_dist.language.signal import putmem_signal, putmem_signal_nbi, signal_op, signal_wait_until
from triton_dist.language.token import consume_token

__all__ = [
    "CMP_EQ",
    "CMP_GE",
    "CMP_GT",
    "CMP_LE",
    "CMP_LT",
    "CMP_NE",
    "SIGNAL_ADD",
    "SIGNAL_SET",
    "barrier_all",
    "consume_token",
    "fence",
    "get",
    "getmem",
    "getmem_nbi",
    "my_pe",
    "n_pes",
    "put",
    "putmem",
    "putmem_nbi",
    "putmem_signal",
    "putmem_signal_nbi",
    "quiet",
    "signal_op",
    "signal_wait_until",
    "symm_at",
    "sync_all",
]
