"""Senders and receivers: how dispatch and combine of many tokens share out their work between programs.

Stores to peers wait for the link in the order of a multiprocessor's memory accesses, so a program that copies rows
beside one that sends waits for the link as well. Here some programs do nothing but send, and the others do all that is
local: they count ids, move rows that stay, and take rows as they arrive.

A sender waits for nothing, not even for counts: a row goes to the slot of its token. Receivers wait for senders of all
PEs, for counts of all PEs, and for headers and counts that receivers of their own PE send before they wait. So a launch
ends once all of its programs are resident. A multiprocessor has registers for as many as ``Plan.per_sm`` says
(``Plan.options``), and kernels beside it, which wait for nothing, end.

Rows use the sentinel protocol, and slots are used again as ``rows.py`` says: in every exchange each PE sends each PE a
message that its receivers wait for. What a result says of rows is by source and token, as of rounds.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import check_sm_margin, has_gpu_sizes, sms
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.exchange import block_of
from triton_dist.kernels.moe.rows import scalar_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace

__all__ = [
    *("Plan", "Work", "batch_of_peers", "block_for", "goes_to", "ids_of", "multiprocessors", "of_choice", "role"),
    *("senders_of", "work_of", "workspace"),
]

_REGISTERS = 65536
"""Of a multiprocessor."""


class Plan(NamedTuple):
    """How a launch shares out its work.

    Attributes:
        sms: how many programs a layer has; of which ``senders`` send. per_sm: how many layers there are.
        batch, block: how many rows, and words of each, a program moves at a time.
    """

    sms: int
    senders: int
    per_sm: int
    num_warps: int
    batch: int
    block: int

    @property
    def programs(self) -> int:
        return self.sms * self.per_sm

    @property
    def options(self) -> dict[str, int]:
        """Of a launch. All programs run at the same time, since receivers wait for senders."""
        registers = min(_REGISTERS // (32 * self.num_warps * self.per_sm) // 8 * 8, 255)
        return {"num_warps": self.num_warps, "maxnreg": registers}


class Work(NamedTuple):
    """Rows that are moved for a token of each PE, on average, if every choice is of any expert alike.

    Attributes:
        leaves: the share of tokens with a choice on another PE. crosses: rows that go to other PEs.
        stays: the share of tokens with a choice on their own PE.
    """

    leaves: float
    crosses: float
    stays: float


def work_of(n_pes: int, top_k: int) -> Work:
    others = (n_pes - 1) / n_pes
    stays = 1 - others**top_k  # which is the share of tokens with a choice on any PE
    return Work(1 - (1 / n_pes) ** top_k, (n_pes - 1) * stays, stays)


ARRIVES = 3
"""How often a receiver moves the words of a row that arrives: it polls them, reads them, and clears their slot."""


def senders_of(sent: float, received: float, n_sms: int) -> int:
    """How many of ``n_sms`` send, of which all move ``sent`` and ``received`` rows for a token.

    Each program moves as much as the others. At least so many send as it takes to fill the link, 24 of an H100's 132
    multiprocessors, and at most half of all.
    """
    if n_sms < 3 or not sent:
        return 1
    return max(1, min(max(round(n_sms * sent / (sent + received)), n_sms * 2 // 11), n_sms // 2))


def multiprocessors(function: str, sm_margin: int) -> tuple[int, int]:
    """How many multiprocessors work, and how many programs each may have.

    An idle GPU spreads few programs over all of its multiprocessors, so where some are left to other kernels each of
    the rest has one program.
    """
    per_sm = 4 if has_gpu_sizes() and not sm_margin else 1  # interpreted programs hide no latency
    return min(sms(), check_sm_margin(function, sm_margin)), per_sm


def block_for(words: int, most: int, batch: int) -> int:
    """How many words of each of ``batch`` rows, of so many words, are moved at a time."""
    return block_of(int(triton.next_power_of_2(words)) * batch, most * batch) // batch


def workspace(
    comm: Communicator, what: str, routing: Routing, plan: Plan, row: int, message: int, buffer: int
) -> tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The memory of exchanges. *Collective* the first time.

    Returns:
        Its name; slots [2, n_pes, max_tokens, row] int32; messages [2, n_pes, message] int64, from every PE to every
        PE; and the number of the last exchange, of each program.
    """
    n_pes, programs = routing.members.size, plan.programs
    name = f"moe by senders: {what}, {routing.max_tokens} tokens, buffer {buffer}, {programs} programs"
    header = -(-programs // 32) * 32
    # A batch may end behind the last token.
    memory = symmetric_workspace(comm, name, header + (2 * n_pes * routing.max_tokens + plan.batch) * row)
    messages = symmetric_workspace(comm, f"{name}, messages", 2 * n_pes * message, torch.int64)
    return name, memory[header:], messages, memory[:programs]


# ---- device code. B rows are moved at a time, BLOCK words of each; blocks of ids are [B, KP].


@triton.jit
def role(senders, SMS: tl.constexpr):
    """Whether this program sends, whether it receives, and its number and how many there are of its kind.

    The first programs of a launch and its last one receive, for they count ids. Of fewer than three each does both, one
    after the other.
    """
    program = tl.program_id(0)
    if SMS < 3:
        return True, True, program, tl.num_programs(0)
    else:
        sm, layer, layers = program % SMS, program // SMS, tl.num_programs(0) // SMS
        first = SMS - 1 - senders
        sends = (sm >= first) & (sm < SMS - 1)
        receiver = layer * (SMS - senders) + tl.minimum(sm, first)
        index = tl.where(sends, layer * senders + sm - first, receiver)
        receives = (sm < first) | (sm == SMS - 1)
        return sends, receives, index, tl.where(sends, senders, SMS - senders) * layers


@triton.jit
def ids_of(ids, tokens, n_tokens, K: tl.constexpr, KP: tl.constexpr):
    choices = tl.arange(0, KP)
    mask = (tokens < n_tokens)[:, None] & (choices < K)[None, :]
    return tl.load(ids + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=mask, other=-1).to(tl.int32)


@triton.jit
def goes_to(ids, pe, L: tl.constexpr):
    """Which tokens of a block of ids have an expert on ``pe``: [B, 1]."""
    return (tl.max((tl.where(ids >= 0, ids // L, -1) == pe).to(tl.int32), axis=1) != 0)[:, None]


@triton.jit
def of_choice(block, k):
    """Column k of a block: [B, 1], or a number if there is one row."""
    KP: tl.constexpr = block.shape[1]
    if block.shape[0] == 1:
        return scalar_of(block.reshape([KP]), k)
    else:
        return tl.sum(tl.where((tl.arange(0, KP) == k)[None, :], block, 0), axis=1)[:, None]


@triton.jit
def batch_of_peers(i, batches_of, me, N: tl.constexpr, B: tl.constexpr):
    """The source of number i of the batches of peers, its first token, and whether it exists."""
    OTHERS: tl.constexpr = max(N - 1, 1)
    source = (me + 1 + i % OTHERS) % N
    return source, i // OTHERS * B, (N > 1) & (i // OTHERS < scalar_of(batches_of, source))
