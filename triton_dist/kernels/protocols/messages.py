"""Messages between hosts: each program puts data to the programs of its number on the PEs of its column, with a signal.

A message is one ``putmem_signal``: the network carries its data once, and the signal tells that they have arrived. The
signal is the message's number, which counts the messages of the program; all members of the column send one with each
number to all others, if only a signal.

The receiver has slots for four messages of each sender, and as many signals: message n uses slot n mod 4. A program
sends message n + 1 before it reads message n, so that one is in flight while it works on the other. Message n + 4 then
follows its receipt of message n + 2 from every host, which that host sent after it had read message n. So no slot is
overwritten before it is read, without acknowledgements, and no order between messages is needed: two of them have
different signals. Numbers live in memory and only grow, so launches and replays of CUDA graphs need no host. They are
compared for equality, since a slot's signal changes only after its message was read, and may wrap around.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.kernels.tracing.events import WAIT, clock, record_event

__all__ = ["SLOTS", "await_message", "last_number", "message_signals", "send_message", "store_number"]

SLOTS = tl.constexpr(4)
"""Messages of each sender for which a program has memory."""

_HEADER = tl.constexpr(16)  # int64 words before the signals, of which the first is the number of the last message


def message_signals(communicator: Communicator, programs: int) -> torch.Tensor:
    """Signals and numbers of so many programs' messages. *Collective* the first time."""
    words = programs * (_HEADER.value + SLOTS.value * communicator.grid.hosts)
    return symmetric_workspace(communicator, "messages between hosts", words, torch.int64)


@triton.jit
def _row(signals, COLUMN: tl.constexpr):
    return signals + tl.program_id(0) * (_HEADER + SLOTS * group_size(COLUMN))


@triton.jit
def _signal(signals, number, sender, COLUMN: tl.constexpr):
    slot = (number & (SLOTS - 1)).to(tl.int32)
    return _row(signals, COLUMN) + _HEADER + slot * group_size(COLUMN) + sender


@triton.jit
def last_number(signals, COLUMN: tl.constexpr):
    """The number of this program's last message, an int64."""
    return tl.load(_row(signals, COLUMN))


@triton.jit
def store_number(signals, number, COLUMN: tl.constexpr):
    """After the last message of a launch, which had this number."""
    tl.debug_barrier()  # all threads have read the last launch's
    tl.store(_row(signals, COLUMN), number)


@triton.jit
def send_message(signals, number, dst, src, nbytes, host, COLUMN: tl.constexpr):
    """Put ``nbytes`` bytes to the PE of this column on ``host``; with none, send the signal only.

    Args:
        dst: the slot, of :data:`SLOTS` by ``number``.
        src: symmetric memory, which is not written before ``dl.quiet()``.
    """
    signal, pe = _signal(signals, number, my_rank(COLUMN), COLUMN), pe_of(host, COLUMN)
    if nbytes > 0:
        dl.putmem_signal_nbi(dst, src, nbytes, signal, number, dl.SIGNAL_SET, pe)
    else:
        dl.signal_op(signal, number, dl.SIGNAL_SET, pe)


@triton.jit
def await_message(signals, number, host, COLUMN: tl.constexpr, trace=None, tile=0):
    """Wait for message ``number`` of ``host``. The wait is recorded in ``trace``, as ``tile``."""
    began = clock(trace)
    dl.signal_wait_until(_signal(signals, number, host, COLUMN), dl.CMP_EQ, number)
    record_event(trace, WAIT, tile, began)
