"""All-reduce: every PE gets the sum, max, min or avg of all tensors, rounded once; the same bits on all PEs.

``one_shot``, for the smallest: every PE sends all of its tensor to all PEs by the LL protocol and reduces what it
receives; one latency. ``two_shot``, for those a little larger: PE i reduces chunk i only and sends the sum to all; two
latencies, but fewer bytes. ``exchange`` and ``two_exchanges``, for medium sums of floats: as ``one_shot`` and as
``two_shot``, without flags (exchange.py, two_exchanges.py).
``direct``, for medium ones: a barrier; every program loads its blocks of this PE's chunk from all tensors and stores
their sum to all of them; a barrier. ``push``, for large ones: chunks are stored to staging memory of the PEs that
reduce them, round by round, since stores are faster than loads, and every PE stores its sums to all tensors. The last
two may be done in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import (
    begin_in_words,
    check_collective,
    check_op,
    check_tensors,
    count_reduced_words,
    need_symmetric,
    places_of,
    reduced_words,
)
from triton_dist.kernels.choice.choose import choose
from triton_dist.kernels.choice.tables import BYTES, Case
from triton_dist.kernels.collectives import model
from triton_dist.kernels.collectives.any_address import through_copies
from triton_dist.kernels.collectives.documentation import collective
from triton_dist.kernels.collectives.exchange import exchange, fits_exchange, why_no_exchange
from triton_dist.kernels.collectives.parts import is_wide, part_of, widened
from triton_dist.kernels.collectives.reductions import begin, combine, finish, reduce_words, widen
from triton_dist.kernels.collectives.staging import (
    barrier_epoch,
    plan,
    push_round,
    reduce_block,
    staging,
    staging_barriers,
)
from triton_dist.kernels.collectives.two_exchanges import MESSAGES, two_exchanges
from triton_dist.kernels.collectives.two_level.all_reduce import all_reduce as two_level
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import NO_LIMIT, check_sm_margin
from triton_dist.kernels.overlaps import refuse_overlap, same_place
from triton_dist.kernels.prepared import Launch, Prepared, Step, launch
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.ll import (
    block_of,
    exchange_begin,
    exchange_end,
    fits,
    ll_slots,
    next_number,
    receive,
    send,
    send_rows,
    warps_of,
)
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.workspace import barrier_state, is_symmetric
from triton_dist.kernels.tracing.events import COMPUTE, SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["ALGORITHMS", "all_reduce", "launch_sum"]


@triton.jit
def all_reduce_one_shot(
    output,
    input,
    slots,
    trace,
    n,
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
    words = tl.load(input + offsets, mask=offsets < n, other=0).to(tl.int32)
    for i in tl.static_range(1, N_PES + 1):
        send(slice, number, words, (my_rank(MEMBERS) + i) % N_PES, MEMBERS)
    record_event(trace, SEND, 0, began)
    total = reduce_words(receive(slice, number, BLOCK, MEMBERS, trace, 0), N_PES, DTYPE, PER_WORD, OP)
    tl.store(output + offsets, total.to(output.dtype.element_ty), mask=offsets < n)
    exchange_end(slice, number)


@triton.jit
def all_reduce_two_shot(
    output,
    input,
    slots,
    trace,
    n,
    part,
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
    places = ranks * part + offsets[None, :]
    there = (ranks < N_PES) & (offsets < part)[None, :] & (places < n)
    send_rows(slice, number, tl.load(input + places, mask=there, other=0).to(tl.int32), MEMBERS)
    record_event(trace, SEND, 0, began)
    total = reduce_words(receive(slice, number, BLOCK, MEMBERS, trace, 0), N_PES, DTYPE, PER_WORD, OP)
    began = clock(trace)
    number = next_number(number)
    for i in tl.static_range(1, N_PES + 1):
        send(slice, number, total, (my_rank(MEMBERS) + i) % N_PES, MEMBERS)
    record_event(trace, SEND, 1, began)
    tl.store(output + places, receive(slice, number, BLOCK, MEMBERS, trace, 1).to(output.dtype.element_ty), mask=there)
    exchange_end(slice, number)


@triton.jit
def _load_reduced(ptr, offsets, mask, MEMBERS: tl.constexpr, OP: tl.constexpr):
    """The reduction over all PEs of a block of a symmetric tensor, with this PE's own elements last."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    total = begin(offsets.shape, ptr.dtype.element_ty, OP)
    for i in tl.static_range(1, N_PES + 1):
        there = at_rank(ptr, (me + i) % N_PES, MEMBERS)
        total = combine(total, widen(tl.load(there + offsets, mask=mask)), OP)
    return finish(total, OP, N_PES)


@triton.jit
def all_reduce_direct(
    output, input, barriers, trace, n, part, MEMBERS: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr,
    WIDE: tl.constexpr = False,
):  # fmt: skip
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    me = my_rank(MEMBERS)
    start = me.to(tl.int64) * part
    mine = tl.maximum(tl.minimum(n - start, part), 0)  # elements of my part; the last ones may be shorter
    barrier(barriers, program, MEMBERS, trace, 0)
    whole = mine // BLOCK if WIDE else (mine // BLOCK).to(tl.int32)
    for block in range(program, whole, tl.num_programs(0)):
        began = clock(trace)
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        total = _load_reduced(input + start, offsets, None, MEMBERS, OP).to(output.dtype.element_ty)
        record_event(trace, COMPUTE, block, began)
        began = clock(trace)
        for i in tl.static_range(1, N_PES + 1):
            tl.store(at_rank(output + start, (me + i) % N_PES, MEMBERS) + offsets, total)
        record_event(trace, SEND, block, began)
    if program == whole % tl.num_programs(0):  # the rest, less than a block
        began = clock(trace)
        offsets = whole * BLOCK + tl.arange(0, BLOCK)
        total = _load_reduced(input + start, offsets, offsets < mine, MEMBERS, OP).to(output.dtype.element_ty)
        record_event(trace, COMPUTE, whole, began)
        began = clock(trace)
        for i in tl.static_range(1, N_PES + 1):
            tl.store(at_rank(output + start, (me + i) % N_PES, MEMBERS) + offsets, total, mask=offsets < mine)
        record_event(trace, SEND, whole, began)
    barrier(barriers, program, MEMBERS, trace, 1)


@triton.jit(do_not_specialize_on_alignment=["rounds"])
def all_reduce_push(
    output,
    input,
    memory,
    barriers,
    trace,
    n,
    part,
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
    me = my_rank(MEMBERS)
    start = me.to(tl.int64) * part
    for round in range(rounds + 1):
        began = clock(trace)
        if round < rounds:
            push_round(memory, half + round, input, n, part, round, MEMBERS, BLOCK, PER_ROUND, SLOT, WIDE)
            record_event(trace, SEND, round, began)
            began = clock(trace)
        if round > 0:
            for j in range(PER_ROUND):
                block = widened(((round - 1) * PER_ROUND + j) * tl.num_programs(0) + program, WIDE)
                offsets = block * BLOCK + tl.arange(0, BLOCK)
                if (block + 1) * BLOCK <= tl.minimum(n - start, part):
                    total = reduce_block(
                        memory, half + round - 1, input + start, j, offsets, None, MEMBERS, OP, BLOCK, SLOT
                    )
                    for i in tl.static_range(1, N_PES + 1):
                        there = at_rank(output + start, (me + i) % N_PES, MEMBERS)
                        tl.store(there + offsets, total.to(output.dtype.element_ty))
                else:
                    used = (offsets < part) & (start + offsets < n)
                    total = reduce_block(
                        memory, half + round - 1, input + start, j, offsets, used, MEMBERS, OP, BLOCK, SLOT
                    )
                    for i in tl.static_range(1, N_PES + 1):
                        there = at_rank(output + start, (me + i) % N_PES, MEMBERS)
                        tl.store(there + offsets, total.to(output.dtype.element_ty), mask=used)
            record_event(trace, COMPUTE, round - 1, began)
        barrier(barriers, program, MEMBERS, trace, round)


@collective
def all_reduce(
    tensor: torch.Tensor,
    op: str = "sum",
    out: torch.Tensor | None = None,
    *,
    algorithm: str = "auto",
    sm_margin: int = 0,
    group: Any = None,
) -> torch.Tensor:
    """The sum, maximum, minimum or average of every PE's ``tensor``, in ``out``, or in place.

    Args:
        tensor: float16, bfloat16, float32, float64, int8, uint8, int32 or int64.
        op: ``"sum"``, ``"max"``, ``"min"`` or, of floats, ``"avg"``. Sums of integers wrap around. Of a NaN and a
            number ``max`` and ``min`` return the number, as NCCL does.
        out: of ``tensor``'s dtype and as many elements, on the same memory or memory that it does not overlap; by
            default the result replaces ``tensor``.
        algorithm: ``one_shot``, ``two_shot`` (up to 256 KiB or so, and ``n_pes`` times that); ``exchange``
            and ``two_exchanges``, sums and means of floats of up to 32 bits; ``push``, for which ``out`` must be
            symmetric; ``direct``, for which both must; ``two_level``; or ``auto``.
        sm_margin: how many SMs are left to other kernels.

    Returns:
        where the result is.
    """
    with calling("all_reduce", group, between_hosts=True) as comm:
        out = tensor if out is None else out
        prepared = comm.own(Prepared)
        signature = prepared.signature(("all_reduce", op, algorithm, sm_margin), out, tensor)
        if prepared.repeat(signature, out, tensor):
            return out
        check_tensors("all_reduce", tensor=tensor, out=out)
        if out.numel() != tensor.numel():
            raise ValueError(f"all_reduce: out has shape {tuple(out.shape)}, and tensor {tuple(tensor.shape)}")
        if not same_place(out, tensor):
            refuse_overlap("all_reduce", {"out": out}, {"tensor": tensor}, "; in place, out is tensor itself")
        check_op("all_reduce", op, tensor.dtype)
        algorithm = check_collective(comm, "all_reduce", algorithm, tuple(ALGORITHMS))
        limit = check_sm_margin("all_reduce", sm_margin)
        places: tuple[str, ...] = ()
        if tensor.numel():
            if algorithm == "auto":
                algorithm = _choose(comm, out, tensor, op, limit)
            if algorithm in _EXCHANGES and (why := why_no_exchange(tensor.dtype, op, algorithm)):
                raise ValueError(f"all_reduce: {why}")
            if algorithm in ("push", "direct"):
                need_symmetric(comm, "all_reduce", algorithm, **{"tensor" if out is tensor else "out": out})
                places = places_of(comm, out=out)  # under one name, whether it is in place
            if algorithm == "direct":
                places += need_symmetric(comm, "all_reduce", algorithm, tensor=tensor)
            if algorithm in ("one_shot", "two_shot") and not begin_in_words(tensor.nbytes, out, tensor):
                return _with_copies(comm, out, tensor, op=op, algorithm=algorithm, sm_margin=sm_margin)
        compared = "all_reduce", tensor.shape, tensor.dtype, op, algorithm, sm_margin, *places
        comm.compare(*compared)  # empty tensors, too, for which no kernel would wait
        if tensor.numel():
            made = ALGORITHMS[algorithm](comm, out, tensor, op, limit=limit)
            prepared.keep(signature, made, *compared)
        return out


def _with_copies(comm: Communicator, out: torch.Tensor, tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    """The call of tensors that do not begin where words do."""

    def again(out: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return all_reduce(tensor, out=out, group=comm, **options)

    return through_copies(tensor.nbytes, again, out, tensor)


def launch_sum(comm: Communicator, output: torch.Tensor, input: torch.Tensor) -> Launch | None:
    """Launch the sum of every member's ``input`` to ``output``, by the algorithm that ``auto`` takes on one host.

    It is a part of a call that has checked ``input`` and compared it with those of the other members.

    Args:
        output: symmetric on the members, and like ``input``, which has elements.
    """
    made = ALGORITHMS[_choose(comm, output, input, "sum", NO_LIMIT)](comm, output, input, "sum", limit=NO_LIMIT)
    assert made is None or isinstance(made, Launch), "only two_level has several"
    return made


def _choose(comm: Communicator, output: torch.Tensor, input: torch.Tensor, op: str, limit: int) -> str:
    n_pes = comm.n_pes
    nbytes = input.numel() * input.element_size()
    share = nbytes / n_pes * (n_pes - 1)
    estimates = {}
    words = count_reduced_words(input.numel(), input.element_size())
    if fits(words, n_pes, limit):
        estimates["one_shot"] = model.low_latency(nbytes * (n_pes - 1))
    if fits(part_of(words, n_pes), n_pes, limit):
        estimates["two_shot"] = model.low_latency(2 * share, hops=2)
    if why_no_exchange(input.dtype, op) is None:
        if fits_exchange(-(-nbytes // 4), n_pes, limit):
            estimates["exchange"] = model.exchanged(nbytes, n_pes)
        part = part_of(input.numel(), n_pes) * input.element_size()
        # Of 2 PEs it sends as many bytes as ``exchange``, with two latencies.
        if n_pes > 2 and fits_exchange(-(-part // 4), n_pes, limit, MESSAGES.value):
            estimates["two_exchanges"] = model.exchanged_twice(part, n_pes)
    if not estimates or is_symmetric(comm, output):
        estimates["push"] = model.staged(2 * share, barriers=2)
        if is_symmetric(comm, input):
            estimates["direct"] = model.pulled(2 * share)
    return choose(comm, Case("all_reduce", BYTES, (nbytes,)), estimates)


def one_shot(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    op: str = "sum",
    *,
    limit: int = NO_LIMIT,
    block: int = 0,
    num_warps: int = 0,
) -> Launch | None:
    n_pes = comm.n_pes
    (to, source), dtype, per_word = reduced_words("all_reduce", input.numel(), output, input)
    n = source.numel()
    if not fits(n, n_pes, limit):
        raise ValueError(f"all_reduce: {n} words are too many for algorithm one_shot")
    block = block or block_of(n, n_pes, limit)
    programs = triton.cdiv(n, block)
    trace = record("all_reduce, one_shot", programs, 2)
    return launch(
        all_reduce_one_shot,
        (programs,),
        (to, source),
        ll_slots(comm),
        trace,
        n,
        comm.members,
        dtype,
        per_word,
        op,
        block,
        num_warps=num_warps or warps_of(block),
    )


def two_shot(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    op: str = "sum",
    *,
    limit: int = NO_LIMIT,
    block: int = 0,
    num_warps: int = 0,
) -> Launch | None:
    n_pes = comm.n_pes
    (to, source), dtype, per_word = reduced_words("all_reduce", input.numel(), output, input)
    n = source.numel()
    part = part_of(n, n_pes)
    if not fits(part, n_pes, limit):
        raise ValueError(f"all_reduce: {n} words are too many for algorithm two_shot")
    block = block or block_of(part, n_pes, limit)
    programs = triton.cdiv(part, block)
    trace = record("all_reduce, two_shot", programs, 4)
    return launch(
        all_reduce_two_shot,
        (programs,),
        (to, source),
        ll_slots(comm),
        trace,
        n,
        part,
        comm.members,
        dtype,
        per_word,
        op,
        block,
        num_warps=num_warps or warps_of(block),
    )


def direct(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    op: str = "sum",
    *,
    limit: int = NO_LIMIT,
    programs: int = 0,
    block: int = 0,
    num_warps: int = 8,
) -> Launch | None:
    n, n_pes = input.numel(), comm.n_pes
    block = block or 4096 // input.element_size()
    part = part_of(n, n_pes)
    programs = programs or min(64, max(1, triton.cdiv(part, block)), limit)
    trace = record("all_reduce, direct", programs, 6 + 2 * (part // (block * programs)))
    return launch(
        all_reduce_direct,
        (programs,),
        (output.view(-1), input.view(-1)),
        barrier_state(comm),
        trace,
        n,
        part,
        comm.members,
        op,
        block,
        is_wide(part, block),
        num_warps=num_warps,
    )


def push(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, op: str = "sum", *, num_warps: int = 8, **tuning: int
) -> Launch | None:
    n, n_pes = input.numel(), comm.n_pes
    part = part_of(n, n_pes)
    cut = plan(part, n_pes, input.element_size(), **tuning)
    return launch(
        all_reduce_push,
        (cut.programs,),
        (output.view(-1), input.view(-1)),
        staging(comm, input.dtype),
        staging_barriers(comm),
        record("all_reduce, push", cut.programs, 3 * cut.rounds + 3),
        n,
        part,
        cut.rounds,
        comm.members,
        op,
        cut.block,
        cut.per_round,
        cut.slot,
        is_wide(part, cut.all_elements),
        num_warps=num_warps,
    )


_EXCHANGES = ("exchange", "two_exchanges")

ALGORITHMS: dict[str, Callable[..., Launch | Sequence[Step] | None]] = {
    "one_shot": one_shot,
    "two_shot": two_shot,
    "exchange": exchange,
    "two_exchanges": two_exchanges,
    "push": push,
    "direct": direct,
    "two_level": two_level,
}
