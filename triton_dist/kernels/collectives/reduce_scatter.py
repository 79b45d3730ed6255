"""Reduce-scatter: PE i gets the sum, max, min or avg over PEs of chunk i, rounded once.

``low_latency``, for small inputs: every PE sends chunk i to PE i by the LL protocol. ``exchange``, for medium sums of
floats: the same without flags (exchange_chunks.py). ``push``, for larger inputs: every program stores blocks of chunk i
to PE i's staging memory; a barrier; then each PE reduces what it has received. No tensor need be symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import (
    begin_in_words,
    check_collective,
    check_op,
    check_part,
    check_tensors,
    count_reduced_words,
    reduced_words,
)
from triton_dist.kernels.choice.choose import choose
from triton_dist.kernels.choice.tables import BYTES, Case
from triton_dist.kernels.collectives import model
from triton_dist.kernels.collectives.any_address import through_copies
from triton_dist.kernels.collectives.documentation import collective
from triton_dist.kernels.collectives.exchange import fits_exchange, why_no_exchange
from triton_dist.kernels.collectives.exchange_chunks import exchange_chunks
from triton_dist.kernels.collectives.parts import are_in_part, is_wide, length_of_part, widened
from triton_dist.kernels.collectives.reductions import reduce_words
from triton_dist.kernels.collectives.staging import (
    barrier_epoch,
    plan,
    push_round,
    reduce_block,
    staging,
    staging_barriers,
)
from triton_dist.kernels.collectives.two_level.reduce_scatter import reduce_parts
from triton_dist.kernels.collectives.two_level.reduce_scatter import reduce_scatter as two_level
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import NO_LIMIT, check_sm_margin
from triton_dist.kernels.overlaps import is_part_of, refuse_overlap
from triton_dist.kernels.prepared import Launch, Prepared, launch
from triton_dist.kernels.protocols.barrier import barrier
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
from triton_dist.kernels.protocols.members import group_size, my_rank
from triton_dist.kernels.tracing.events import COMPUTE, SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["ALGORITHMS", "reduce_scatter", "reduce_scatter_parts"]


@triton.jit
def reduce_scatter_low_latency(
    output,
    input,
    slots,
    trace,
    n,
    total,
    MEMBERS: tl.constexpr,
    DTYPE: tl.constexpr,
    PER_WORD: tl.constexpr,
    OP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    began = clock(trace)
    slice, number = exchange_begin(slots, program, MEMBERS)
    ranks = tl.arange(0, triton.next_power_of_2(N_PES))[:, None]
    there = (ranks < N_PES) & are_in_part(offsets[None, :], ranks, n, total)
    words = tl.load(input + ranks.to(tl.int64) * n + offsets[None, :], mask=there, other=0).to(tl.int32)
    send_rows(slice, number, words, MEMBERS)
    record_event(trace, SEND, 0, began)
    result = reduce_words(receive(slice, number, BLOCK, MEMBERS, trace, 0), N_PES, DTYPE, PER_WORD, OP)
    own = are_in_part(offsets, my_rank(MEMBERS), n, total)
    tl.store(output + offsets, result.to(output.dtype.element_ty), mask=own)
    exchange_end(slice, number)


@triton.jit(do_not_specialize_on_alignment=["rounds"])
def reduce_scatter_push(
    output,
    input,
    memory,
    barriers,
    trace,
    part,
    total,
    rounds,
    MEMBERS: tl.constexpr,
    OP: tl.constexpr,
    BLOCK: tl.constexpr,
    PER_ROUND: tl.constexpr,
    SLOT: tl.constexpr,
    WIDE: tl.constexpr = False,
):
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    half = barrier_epoch(barriers, program)
    mine = input + my_rank(MEMBERS).to(tl.int64) * part
    own = length_of_part(my_rank(MEMBERS), part, total)
    for round in range(rounds + 1):
        began = clock(trace)
        if round < rounds:
            n = tl.cast(part, tl.int64) * N_PES if total is None else total
            push_round(memory, half + round, input, n, part, round, MEMBERS, BLOCK, PER_ROUND, SLOT, WIDE)
            record_event(trace, SEND, round, began)
            began = clock(trace)
        if round > 0:
            for j in range(PER_ROUND):
                block = widened(((round - 1) * PER_ROUND + j) * tl.num_programs(0) + program, WIDE)
                offsets = block * BLOCK + tl.arange(0, BLOCK)
                if (block + 1) * BLOCK <= own:
                    result = reduce_block(memory, half + round - 1, mine, j, offsets, None, MEMBERS, OP, BLOCK, SLOT)
                    tl.store(output + offsets, result.to(output.dtype.element_ty))
                else:
                    there = offsets < own
                    result = reduce_block(memory, half + round - 1, mine, j, offsets, there, MEMBERS, OP, BLOCK, SLOT)
                    tl.store(output + offsets, result.to(output.dtype.element_ty), mask=there)
            record_event(trace, COMPUTE, round - 1, began)
        if round < rounds:
            barrier(barriers, program, MEMBERS, trace, round)


@collective
def reduce_scatter(
    output: torch.Tensor,
    input: torch.Tensor,
    op: str = "sum",
    *,
    algorithm: str = "auto",
    sm_margin: int = 0,
    group: Any = None,
) -> torch.Tensor:
    """The sum, maximum, minimum or average over all PEs of chunk ``my_pe()`` of their ``input``, in ``output``.

    Args:
        output: float16, bfloat16, float32, float64, int8, uint8, int32 or int64. It may be this PE's own chunk of
            ``input``; no other overlap of the two is taken.
        input: with ``n_pes`` times the elements of ``output`` and its dtype. Neither need be symmetric.
        op: ``"sum"``, ``"max"``, ``"min"`` or ``"avg"``, as of :func:`~triton_dist.kernels.all_reduce`.
        algorithm: ``low_latency`` (up to 256 KiB a chunk or so), ``exchange``, sums and means of floats of up to 32
            bits; ``push``, ``two_level`` or ``auto``.
        sm_margin: how many SMs are left to other kernels.

    Returns:
        ``output``.
    """
    with calling("reduce_scatter", group, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        signature = prepared.signature(("reduce_scatter", op, algorithm, sm_margin), output, input)
        if prepared.repeat(signature, output, input):
            return output
        check_tensors("reduce_scatter", output=output, input=input)
        check_part(comm, "reduce_scatter", input, output, ("input", "output"))
        if not is_part_of(output, input, comm.my_rank):
            but = f"; in place, output is this PE's own chunk of input, number {comm.my_rank}"
            refuse_overlap("reduce_scatter", {"output": output}, {"input": input}, but)
        check_op("reduce_scatter", op, output.dtype)
        algorithm = check_collective(comm, "reduce_scatter", algorithm, tuple(ALGORITHMS))
        limit = check_sm_margin("reduce_scatter", sm_margin)
        if output.numel() and algorithm == "auto":
            algorithm = _choose(comm, output, output.numel(), output.numel(), op, limit)
        if algorithm == "low_latency" and not begin_in_words(output.nbytes, output, input):
            again = partial(reduce_scatter, op=op, algorithm=algorithm, sm_margin=sm_margin, group=comm)
            return through_copies(output.nbytes, again, output, input)
        compared = "reduce_scatter", output.shape, output.dtype, op, algorithm, sm_margin
        comm.compare(*compared)  # empty tensors, too, for which no kernel would wait
        if output.numel():
            made = ALGORITHMS[algorithm](comm, output, input, op, limit=limit)
            prepared.keep(signature, made, *compared)
        return output


def reduce_scatter_parts(
    output: torch.Tensor,
    input: torch.Tensor,
    part: int,
    op: str = "sum",
    *,
    algorithm: str = "auto",
    sm_margin: int = 0,
    group: Any = None,
) -> None:
    """As :func:`reduce_scatter`, of chunks that may be shorter: each has ``part`` elements, or those that are left of
    ``input``, which may be none. *Collective.*

    Args:
        output: this PE's chunk.
        input: with all chunks.
        algorithm: as of :func:`reduce_scatter`.
    """
    with calling("reduce_scatter", group, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        signature = prepared.signature(("reduce_scatter_parts", part, op, algorithm, sm_margin), output, input)
        if prepared.repeat(signature, output, input):
            return
        algorithm = check_collective(comm, "reduce_scatter", algorithm, tuple(ALGORITHMS))
        limit = check_sm_margin("reduce_scatter", sm_margin)
        compared = "reduce_scatter, parts", input.shape, part, input.dtype, op, algorithm, sm_margin
        comm.compare(*compared)
        if algorithm == "auto":
            algorithm = _choose(comm, input, part, math.gcd(part, input.numel()), op, limit)
        if algorithm == "two_level":
            made = reduce_parts(comm, output.view(-1), input.view(-1), op, part, in_place=False, limit=limit)
        else:
            made = ALGORITHMS[algorithm](comm, output, input, op, limit=limit, part=part)
        prepared.keep(signature, made, *compared)


def _choose(comm: Communicator, like: torch.Tensor, part: int, divisor: int, op: str, limit: int) -> str:
    """The algorithm for parts of so many elements as ``like`` has. Words hold ``divisor`` of them without a rest."""
    n_pes = comm.n_pes
    nbytes = part * like.element_size()
    n_words = part // divisor * count_reduced_words(divisor, like.element_size())
    estimates = {"push": model.staged(nbytes * (n_pes - 1), barriers=1)}
    if fits(n_words, n_pes, limit):
        estimates["low_latency"] = model.low_latency(nbytes * (n_pes - 1))
    if fits_exchange(-(-nbytes // 4), n_pes, limit) and why_no_exchange(like.dtype, op) is None:
        estimates["exchange"] = model.exchanged(nbytes, n_pes)
    return choose(comm, Case("reduce_scatter", BYTES, (nbytes * n_pes,)), estimates)


def low_latency(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    op: str = "sum",
    *,
    limit: int = NO_LIMIT,
    block: int = 0,
    num_warps: int = 0,
    part: int = 0,
) -> Launch | None:
    n_pes = comm.n_pes
    divisor = math.gcd(part, input.numel()) if part else output.numel()
    (to, source), dtype, per_word = reduced_words("reduce_scatter", divisor, output, input)
    n = part * input.element_size() // to.element_size() if part else to.numel()
    if not fits(n, n_pes, limit):
        raise ValueError(f"reduce_scatter: {n} words are too many for algorithm low_latency")
    block = block or block_of(n, n_pes, limit)
    programs = triton.cdiv(n, block)
    trace = record("reduce_scatter, low_latency", programs, 2)
    return launch(
        reduce_scatter_low_latency,
        (programs,),
        (to, source),
        ll_slots(comm),
        trace,
        n,
        source.numel() if part else None,
        comm.members,
        dtype,
        per_word,
        op,
        block,
        num_warps=num_warps or warps_of(block),
    )


def push(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    op: str = "sum",
    *,
    num_warps: int = 16,
    part: int = 0,
    **tuning: int,
) -> Launch | None:
    total, part, n_pes = input.numel() if part else None, part or output.numel(), comm.n_pes
    cut = plan(part, n_pes, output.element_size(), **{"block_bytes": 8192} | tuning)
    return launch(
        reduce_scatter_push,
        (cut.programs,),
        (output.view(-1), input.view(-1)),
        staging(comm, output.dtype),
        staging_barriers(comm),
        record("reduce_scatter, push", cut.programs, 3 * cut.rounds + 3),
        part,
        total,
        cut.rounds,
        comm.members,
        op,
        cut.block,
        cut.per_round,
        cut.slot,
        is_wide(part, cut.all_elements),
        num_warps=num_warps,
    )


ALGORITHMS: dict[str, Callable[..., Launch | None]] = {
    "low_latency": low_latency,
    "exchange": exchange_chunks,
    "push": push,
    "two_level": two_level,
}
