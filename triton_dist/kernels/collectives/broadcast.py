"""Broadcast: PE ``root``'s tensor to all PEs. Bytes are moved, of any dtype.

``low_latency``, for small tensors: the LL protocol. ``push``, for larger ones: a barrier, the root stores its blocks to
all tensors, a barrier. ``scatter``, for large ones, where the root's link would carry everything n_pes - 1 times: the
root stores each block to one of the other PEs, which forwards it to the rest while the root sends the next rounds, so
the root's link carries everything once. The root waits for no PE between the rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import (
    begin_in_words,
    check_collective,
    check_tensors,
    in_words,
    need_symmetric,
    words,
)
from triton_dist.kernels.choice.choose import choose
from triton_dist.kernels.choice.tables import BYTES, Case
from triton_dist.kernels.collectives import model
from triton_dist.kernels.collectives.any_address import unit_of_words
from triton_dist.kernels.collectives.documentation import collective
from triton_dist.kernels.collectives.parts import is_wide, widened
from triton_dist.kernels.collectives.two_level.broadcast import broadcast as two_level
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import NO_LIMIT, check_sm_margin
from triton_dist.kernels.options import check_int
from triton_dist.kernels.prepared import Launch, Prepared, launch
from triton_dist.kernels.protocols.barrier import arrive, barrier, signal_all, wait, wait_for_rank
from triton_dist.kernels.protocols.ll import (
    block_of,
    exchange_begin,
    exchange_end,
    fits,
    ll_slots,
    receive,
    send,
    warps_of,
)
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.workspace import barrier_state, is_symmetric
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["ALGORITHMS", "broadcast"]


@triton.jit
def broadcast_low_latency(tensor, slots, trace, root, n, MEMBERS: tl.constexpr, BLOCK: tl.constexpr):
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    began = clock(trace)
    slice, number = exchange_begin(slots, program, MEMBERS)
    me = my_rank(MEMBERS)
    if me == root:
        words = tl.load(tensor + offsets, mask=offsets < n, other=0).to(tl.int32)
        for i in tl.static_range(1, N_PES + 1):
            send(slice, number, words, (me + i) % N_PES, MEMBERS)
    else:  # padding: every program sends to all PEs in every exchange (protocols/ll.py)
        for i in tl.static_range(1, N_PES + 1):
            send(slice, number, tl.zeros([BLOCK], tl.int32), (me + i) % N_PES, MEMBERS)
    record_event(trace, SEND, 0, began)
    received = receive(slice, number, BLOCK, MEMBERS, trace, 0)
    ranks = tl.arange(0, received.shape[0])[:, None]
    words = tl.sum(tl.where(ranks == root, received, 0), axis=0)
    if me != root:
        tl.store(tensor + offsets, words.to(tensor.dtype.element_ty), mask=offsets < n)
    exchange_end(slice, number)


@triton.jit
def broadcast_push(
    tensor, barriers, trace, root, n, MEMBERS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr = False
):
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    me = my_rank(MEMBERS)
    n = widened(n, WIDE)
    barrier(barriers, program, MEMBERS, trace, 0)
    if me == root:
        for block in range(program, tl.cdiv(n, BLOCK), tl.num_programs(0)):
            began = clock(trace)
            offsets = block * BLOCK + tl.arange(0, BLOCK)
            words = tl.load(tensor + offsets, mask=offsets < n)
            for i in tl.static_range(1, N_PES):
                tl.store(at_rank(tensor, (me + i) % N_PES, MEMBERS) + offsets, words, mask=offsets < n)
            record_event(trace, SEND, block, began)
    barrier(barriers, program, MEMBERS, trace, 1)


@triton.jit
def broadcast_scatter(tensor, barriers, trace, root, n, rounds, per_round, MEMBERS: tl.constexpr, BLOCK: tl.constexpr):
    """Of round r, program p has block ((r · per_round + j) · programs + p) · (N_PES - 1) + q for PE root + 1 + q."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    me = my_rank(MEMBERS)
    number = arrive(barriers, program, MEMBERS)
    wait(barriers, program, number, MEMBERS, trace, 0)
    for round in range(rounds):
        if me != root:
            wait_for_rank(barriers, program, number + 1 + round, root, MEMBERS, trace, round + 1)
        began = clock(trace)
        for j in range(per_round):
            first = ((round * per_round + j) * programs + program).to(tl.int64) * (N_PES - 1)
            if me == root:
                for q in tl.static_range(N_PES - 1):
                    offsets = (first + q) * BLOCK + tl.arange(0, BLOCK)
                    words = tl.load(tensor + offsets, mask=offsets < n)
                    tl.store(at_rank(tensor, (me + 1 + q) % N_PES, MEMBERS) + offsets, words, mask=offsets < n)
            else:
                q = (me - root - 1 + N_PES) % N_PES
                offsets = (first + q) * BLOCK + tl.arange(0, BLOCK)
                words = tl.load(tensor + offsets, mask=offsets < n)
                for i in tl.static_range(1, N_PES):
                    rank = (me + i) % N_PES
                    tl.store(at_rank(tensor, rank, MEMBERS) + offsets, words, mask=(offsets < n) & (rank != root))
        record_event(trace, SEND, round, began)
        if me == root:
            signal_all(barriers, program, number + 1 + round, MEMBERS)
    signal_all(barriers, program, number + 1 + rounds, MEMBERS)
    wait(barriers, program, number + 1 + rounds, MEMBERS, trace, rounds + 1)


@collective
def broadcast(
    tensor: torch.Tensor, root: int = 0, *, algorithm: str = "auto", sm_margin: int = 0, group: Any = None
) -> torch.Tensor:
    """PE ``root``'s ``tensor`` to all PEs.

    Args:
        tensor: symmetric, except for ``low_latency`` and ``two_level``.
        root: the PE whose tensor is sent, in ``[0, n_pes)``.
        algorithm: ``low_latency`` (up to 256 KiB or so), ``push``, ``scatter``, ``two_level`` or ``auto``.
        sm_margin: how many SMs are left to other kernels.

    Returns:
        ``tensor``.
    """
    with calling("broadcast", group, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        signature = prepared.signature(("broadcast", root, algorithm, sm_margin), tensor)
        if prepared.repeat(signature, tensor):
            return tensor
        check_tensors("broadcast", tensor=tensor)
        check_int("broadcast", "root", root, 0, comm.n_pes)
        algorithm = check_collective(comm, "broadcast", algorithm, tuple(ALGORITHMS))
        limit = check_sm_margin("broadcast", sm_margin)
        places: tuple[str, ...] = ()
        unit = unit_of_words(comm, tensor.nbytes, tensor)
        if not begin_in_words(unit, tensor):
            copy = in_words(tensor)
            return tensor.copy_(broadcast(copy, root, algorithm=algorithm, sm_margin=sm_margin, group=comm))
        if tensor.numel():
            (moved,) = words("broadcast", unit, tensor)
            if algorithm == "auto":
                algorithm = _choose(comm, moved, limit)
            if algorithm not in ("low_latency", "two_level"):
                places = need_symmetric(comm, "broadcast", algorithm, tensor=tensor)
        compared = "broadcast", tensor.shape, tensor.dtype, algorithm, root, sm_margin, *places
        comm.compare(*compared)  # empty tensors, too, for which no kernel would wait
        if tensor.numel():
            made = ALGORITHMS[algorithm](comm, moved, root, limit=limit)
            prepared.keep(signature, made, *compared)
        return tensor


def _choose(comm: Communicator, tensor: torch.Tensor, limit: int) -> str:
    n_pes = comm.n_pes
    nbytes = tensor.numel() * tensor.element_size()
    estimates = {"push": model.direct(nbytes * (n_pes - 1))}
    if n_pes > 2:
        estimates["scatter"] = model.direct(0) + model.direct(nbytes)
    if fits(tensor.numel(), n_pes, limit):
        estimates["low_latency"] = model.low_latency(nbytes * (n_pes - 1))
        if not is_symmetric(comm, tensor):
            return "low_latency"
    return choose(comm, Case("broadcast", BYTES, (nbytes,)), estimates)


def low_latency(
    comm: Communicator,
    tensor: torch.Tensor,
    root: int,
    *,
    limit: int = NO_LIMIT,
    block: int = 0,
    num_warps: int = 0,
) -> Launch | None:
    n, n_pes = tensor.numel(), comm.n_pes
    if not fits(n, n_pes, limit):
        raise ValueError(f"broadcast: {n} words are too many for algorithm low_latency")
    block = block or block_of(n, n_pes, limit)
    programs = triton.cdiv(n, block)
    trace = record("broadcast, low_latency", programs, 2)
    return launch(
        broadcast_low_latency,
        (programs,),
        (tensor,),
        ll_slots(comm),
        trace,
        root,
        n,
        comm.members,
        block,
        num_warps=num_warps or warps_of(block),
    )


def push(
    comm: Communicator,
    tensor: torch.Tensor,
    root: int,
    *,
    limit: int = NO_LIMIT,
    programs: int = 0,
    block: int = 4096,
    num_warps: int = 8,
) -> Launch | None:
    n = tensor.numel()
    programs = programs or min(128, max(1, triton.cdiv(n, block)), limit)
    trace = record("broadcast, push", programs, 3 + n // (block * programs))
    return launch(
        broadcast_push, (programs,), (tensor,), barrier_state(comm), trace, root, n, comm.members, block,
        WIDE=is_wide(n, block), num_warps=num_warps,
    )  # fmt: skip


_ROUNDS = 48
"""The last round is passed on when the root has nothing more to send; each takes the latency of a flag."""


def scatter(
    comm: Communicator,
    tensor: torch.Tensor,
    root: int,
    *,
    limit: int = NO_LIMIT,
    programs: int = 64,
    rounds: int = _ROUNDS,
    block: int = 4096,
    num_warps: int = 16,
) -> Launch | None:
    n, n_pes = tensor.numel(), comm.n_pes
    if n_pes < 3:
        return push(comm, tensor, root, limit=limit)
    blocks = triton.cdiv(n, block * (n_pes - 1))  # for each of the others
    programs = min(programs, blocks, limit)
    per_round = max(1, triton.cdiv(blocks, programs * rounds))
    rounds = triton.cdiv(blocks, programs * per_round)
    trace = record("broadcast, scatter", programs, 2 * rounds + 2)
    return launch(
        broadcast_scatter,
        (programs,),
        (tensor,),
        barrier_state(comm),
        trace,
        root,
        n,
        rounds,
        per_round,
        comm.members,
        block,
        num_warps=num_warps,
    )


ALGORITHMS: dict[str, Callable[..., Launch | None]] = {
    "low_latency": low_latency,
    "push": push,
    "scatter": scatter,
    "two_level": two_level,
}
