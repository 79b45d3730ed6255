"""Exchanges of large parts between hosts: each PE puts a part to where a PE of its column on another host reads it.

A call begins with an *admission*: every PE signals its column that its memory for parts may be written. In an
*exchange* of distance d a PE puts a part to the d-th host behind its own, and awaits that of the d-th host in front.
Each program puts a share of the part, with a signal. Nothing else crosses but signals. The network reads and writes
memory by itself, so few programs suffice, and a kernel that computes may have the rest of the GPU.

A signal is the number of the call, which is kept in memory and grows, so launches and replays of CUDA graphs need no
host. Signals are compared for equality: a PE admits the next call behind its own exchanges of this one, which await
every put of its column, and a put follows the wait for the admission. So no signal has moved on when it is awaited.

All members make the same exchanges in a call, of distances 1 to H - 1 of H hosts, once each and in this order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace

__all__ = ["PROGRAMS", "admit", "exchange", "exchange_signals"]

PROGRAMS = 4
"""Programs of an exchange. Each posts a put and waits: several, since a transport may have a queue for each."""

_PROGRAMS = tl.constexpr(PROGRAMS)
_HEADER = tl.constexpr(16)  # int64 words before the signals, of which the first is the number of the call
_ALIGNED = 512  # bytes, at a multiple of which each program's share begins


def exchange_signals(communicator: Communicator) -> torch.Tensor:
    """The number; of each host a signal that it has admitted this one, and one of each program that puts from there."""
    words = _HEADER.value + communicator.grid.hosts * (1 + PROGRAMS)
    return symmetric_workspace(communicator, "exchanges between hosts", words, torch.int64)


@triton.jit
def host_exchange_admit(signals, COLUMN: tl.constexpr):
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    host = my_rank(COLUMN)
    number = tl.load(signals) + 1
    tl.debug_barrier()  # all threads have read the last call's
    tl.store(signals, number)
    for i in range(1, N_HOSTS):
        dl.signal_op(signals + _HEADER + host, number, dl.SIGNAL_SET, pe_of((host + i) % N_HOSTS, COLUMN))


@triton.jit(do_not_specialize=["nbytes", "share", "distance"])
def host_exchange_kernel(to, source, signals, nbytes, share, distance, COLUMN: tl.constexpr):
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    program, host = tl.program_id(0), my_rank(COLUMN)
    receiver, sender = (host + distance) % N_HOSTS, (host + N_HOSTS - distance) % N_HOSTS
    number = tl.load(signals)
    arrived = signals + _HEADER + N_HOSTS + program
    begin = tl.minimum(program.to(tl.int64) * share, nbytes)
    count = tl.minimum(nbytes - begin, share)
    dl.signal_wait_until(signals + _HEADER + receiver, dl.CMP_EQ, number)
    pe, signal = pe_of(receiver, COLUMN), arrived + host * _PROGRAMS
    if count > 0:
        dl.putmem_signal_nbi(to + begin, source + begin, count, signal, number, dl.SIGNAL_SET, pe)
    else:
        dl.signal_op(signal, number, dl.SIGNAL_SET, pe)
    dl.signal_wait_until(arrived + sender * _PROGRAMS, dl.CMP_EQ, number)
    dl.quiet()  # what follows on the stream may write the source


def admit(communicator: Communicator) -> Launch | None:
    """Tell the other hosts that memory may be written which the exchanges of this call put to. *Collective.*

    What has read it comes before on the stream.
    """
    return launch(host_exchange_admit, (1,), (), exchange_signals(communicator), communicator.grid.column, num_warps=1)


def exchange(communicator: Communicator, to: torch.Tensor, source: torch.Tensor, distance: int) -> Launch | None:
    """Put ``source`` to the host ``distance`` hosts behind this one, and await what that as far in front of it puts.
    *Collective*, behind :func:`admit`.

    Args:
        to: as large as ``source``: where it belongs on the PE of this column there. Both are symmetric and contiguous.
    """
    nbytes = source.nbytes
    share = -(-nbytes // (PROGRAMS * _ALIGNED)) * _ALIGNED
    there, here = (tensor.view(-1).view(torch.uint8) for tensor in (to, source))
    signals = exchange_signals(communicator)
    return launch(
        host_exchange_kernel, (PROGRAMS,), (), there, here, signals, nbytes, share, distance,
        communicator.grid.column, num_warps=4,
    )  # fmt: skip
