"""All-to-all: chunk i of every PE's input goes to PE i, as the chunk of the sender. Bytes are moved, of any dtype.

``low_latency``, for small inputs: the LL protocol. ``push``, for larger ones: a barrier; every program loads blocks of
the chunks for all PEs and stores them to their outputs; a barrier. Every PE begins with another peer. ``copy_engine``:
the same with a copy for each peer between stream barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import begin_in_words, check_collective, check_tensors, need_symmetric, words
from triton_dist.kernels.choice.choose import choose
from triton_dist.kernels.choice.tables import BYTES, Case
from triton_dist.kernels.collectives import model
from triton_dist.kernels.collectives.any_address import through_copies, unit_of_words
from triton_dist.kernels.collectives.copies import copy_engine
from triton_dist.kernels.collectives.documentation import collective
from triton_dist.kernels.collectives.parts import is_wide, widened
from triton_dist.kernels.collectives.two_level.all_to_all import all_to_all as two_level
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import NO_LIMIT, check_sm_margin
from triton_dist.kernels.overlaps import refuse_overlap
from triton_dist.kernels.prepared import Launch, Prepared, Step, launch
from triton_dist.kernels.protocols.barrier import arrive, barrier, wait
from triton_dist.kernels.protocols.ll import (
    block_of,
    exchange_begin,
    exchange_end,
    fits,
    ll_slots,
    receive,
    send_rows,
    warps_of,
)
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.workspace import barrier_state, is_symmetric
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["ALGORITHMS", "all_to_all"]


@triton.jit
def all_to_all_low_latency(output, input, slots, trace, n, MEMBERS: tl.constexpr, BLOCK: tl.constexpr):
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    began = clock(trace)
    slice, number = exchange_begin(slots, program, MEMBERS)
    ranks = tl.arange(0, triton.next_power_of_2(N_PES))[:, None]
    places = ranks.to(tl.int64) * n + offsets[None, :]
    there = (ranks < N_PES) & (offsets < n)[None, :]
    send_rows(slice, number, tl.load(input + places, mask=there, other=0).to(tl.int32), MEMBERS)
    record_event(trace, SEND, 0, began)
    tl.store(output + places, receive(slice, number, BLOCK, MEMBERS, trace, 0).to(output.dtype.element_ty), mask=there)
    exchange_end(slice, number)


@triton.jit
def all_to_all_push(
    output, input, barriers, trace, n, MEMBERS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr = False
):
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    me = my_rank(MEMBERS)
    mine = output + me.to(tl.int64) * n
    n = widened(n, WIDE)
    number = arrive(barriers, program, MEMBERS)
    whole = n // BLOCK
    for block in range(program, whole, tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        words = ()
        for i in tl.static_range(1, N_PES + 1):  # all loads are in flight before the first store
            words = words + (tl.load(input + ((me + i) % N_PES).to(tl.int64) * n + offsets),)  # type: ignore[assignment]  # noqa: RUF005
        if block == program:  # the first loads need not wait for other PEs
            wait(barriers, program, number, MEMBERS, trace, 0)
        began = clock(trace)
        for i in tl.static_range(1, N_PES + 1):
            tl.store(at_rank(mine, (me + i) % N_PES, MEMBERS) + offsets, words[i - 1])
        record_event(trace, SEND, block, began)
    if program >= whole:
        wait(barriers, program, number, MEMBERS, trace, 0)
    if program == whole % tl.num_programs(0):  # the rest, less than a block
        began = clock(trace)
        offsets = whole * BLOCK + tl.arange(0, BLOCK)
        for i in tl.static_range(1, N_PES + 1):
            rank = (me + i) % N_PES
            few = tl.load(input + rank.to(tl.int64) * n + offsets, mask=offsets < n)
            tl.store(at_rank(mine, rank, MEMBERS) + offsets, few, mask=offsets < n)
        record_event(trace, SEND, whole, began)
    barrier(barriers, program, MEMBERS, trace, 1)


@collective
def all_to_all(
    output: torch.Tensor, input: torch.Tensor, *, algorithm: str = "auto", sm_margin: int = 0, group: Any = None
) -> torch.Tensor:
    """Chunk ``my_pe()`` of every PE's ``input``, in PE order, in ``output``.

    Args:
        output: with as many elements as ``input`` and its dtype; symmetric, except for ``low_latency`` and
            ``two_level``. It may not overlap ``input``.
        input: ``n_pes`` chunks of equal size one after the other; it need not be symmetric.
        algorithm: ``low_latency`` (up to 256 KiB a chunk or so), ``push``, ``copy_engine``, ``two_level`` or ``auto``.
        sm_margin: how many SMs are left to other kernels.

    Returns:
        ``output``.
    """
    with calling("all_to_all", group, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        signature = prepared.signature(("all_to_all", algorithm, sm_margin), output, input)
        if prepared.repeat(signature, output, input):
            return output
        check_tensors("all_to_all", output=output, input=input)
        n_pes = comm.n_pes
        if output.numel() != input.numel() or input.numel() % n_pes:
            raise ValueError(
                f"all_to_all: output and input must have the same number of elements, a multiple of {n_pes}, got shapes"
                f" {tuple(output.shape)} and {tuple(input.shape)}"
            )
        refuse_overlap("all_to_all", {"output": output}, {"input": input})
        algorithm = check_collective(comm, "all_to_all", algorithm, tuple(ALGORITHMS))
        limit = check_sm_margin("all_to_all", sm_margin)
        places: tuple[str, ...] = ()
        unit = unit_of_words(comm, input.nbytes // n_pes, output)
        if not begin_in_words(unit, output, input):
            again = partial(all_to_all, algorithm=algorithm, sm_margin=sm_margin, group=comm)
            return through_copies(unit, again, output, input)
        if input.numel():
            to, source = words("all_to_all", unit, output, input)
            if algorithm == "auto":
                algorithm = _choose(comm, to, source, limit)
            if algorithm not in ("low_latency", "two_level"):
                places = need_symmetric(comm, "all_to_all", algorithm, output=output)
        compared = "all_to_all", input.shape, input.dtype, algorithm, sm_margin, *places
        comm.compare(*compared)  # empty tensors, too, for which no kernel would wait
        if input.numel():
            made = ALGORITHMS[algorithm](comm, to, source, limit=limit)
            prepared.keep(signature, made, *compared)
        return output


def _choose(comm: Communicator, output: torch.Tensor, input: torch.Tensor, limit: int) -> str:
    n_pes = comm.n_pes
    sent = input.numel() * input.element_size() / n_pes * (n_pes - 1)
    estimates = {"push": model.direct(sent), "copy_engine": model.copy_engine(sent, n_pes - 1)}
    if fits(input.numel() // n_pes, n_pes, limit):
        estimates["low_latency"] = model.low_latency(sent)
        if not is_symmetric(comm, output):
            return "low_latency"
    return choose(comm, Case("all_to_all", BYTES, (input.numel() * input.element_size(),)), estimates)


def low_latency(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    *,
    limit: int = NO_LIMIT,
    block: int = 0,
    num_warps: int = 0,
) -> Launch | None:
    n_pes = comm.n_pes
    n = input.numel() // n_pes
    if not fits(n, n_pes, limit):
        raise ValueError(f"all_to_all: {n} words a part are too many for algorithm low_latency")
    block = block or block_of(n, n_pes, limit)
    programs = triton.cdiv(n, block)
    trace = record("all_to_all, low_latency", programs, 2)
    return launch(
        all_to_all_low_latency,
        (programs,),
        (output, input),
        ll_slots(comm),
        trace,
        n,
        comm.members,
        block,
        num_warps=num_warps or warps_of(block),
    )


def push(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    *,
    limit: int = NO_LIMIT,
    programs: int = 0,
    block: int = 2048,
    num_warps: int = 8,
) -> Launch | None:
    n_pes = comm.n_pes
    n = input.numel() // n_pes
    blocks = max(1, triton.cdiv(n, block))
    programs = programs or triton.cdiv(blocks, triton.cdiv(blocks, min(128, limit)))  # each as many blocks
    trace = record("all_to_all, push", programs, 4 + n // (block * programs))
    return launch(
        all_to_all_push, (programs,), (output, input), barrier_state(comm), trace, n, comm.members, block,
        WIDE=is_wide(n, block), num_warps=num_warps,
    )  # fmt: skip


ALGORITHMS: dict[str, Callable[..., Launch | Sequence[Step] | None]] = {
    "low_latency": low_latency,
    "push": push,
    "copy_engine": copy_engine,
    "two_level": two_level,
}
