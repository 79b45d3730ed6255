"""All-gather: every PE's input, in PE order, in every PE's output. Bytes are moved, of any dtype.

``low_latency``, for small inputs: the LL protocol, through slots of every PE to the output; one latency in all. It can
also put matrices side by side (``row``), as GEMMs whose columns are shared want it.
``exchange``, for medium GEMM operands: without flags or barriers (gather_exchange.py).
``push``, for larger inputs: a barrier; every program loads its blocks of the input once and stores them to all outputs;
a barrier. Every PE begins its rounds of stores with another peer, so that no PE is stored to by all. ``copy_engine``:
the same with a copy for each peer between stream barriers, which leaves the multiprocessors free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import (
    begin_in_words,
    check_collective,
    check_part,
    check_tensors,
    need_symmetric,
    word_bytes,
    words,
)
from triton_dist.kernels.choice.choose import choose
from triton_dist.kernels.choice.tables import BYTES, Case
from triton_dist.kernels.collectives import model
from triton_dist.kernels.collectives.any_address import through_copies, unit_of_words
from triton_dist.kernels.collectives.copies import copy_engine
from triton_dist.kernels.collectives.documentation import collective
from triton_dist.kernels.collectives.exchange import fits_exchange
from triton_dist.kernels.collectives.gather_exchange import gather_exchange, why_not_gathered
from triton_dist.kernels.collectives.parts import are_in_part, is_wide, length_of_part, widened
from triton_dist.kernels.collectives.two_level.all_gather import all_gather as two_level
from triton_dist.kernels.collectives.two_level.all_gather import gather_parts
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import NO_LIMIT, check_sm_margin
from triton_dist.kernels.overlaps import is_part_of, refuse_overlap
from triton_dist.kernels.prepared import Launch, Prepared, Step, launch
from triton_dist.kernels.protocols.barrier import arrive, barrier, wait
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

__all__ = ["ALGORITHMS", "all_gather", "all_gather_parts", "operand_algorithm", "without_barriers"]


@triton.jit
def all_gather_low_latency(output, input, slots, trace, n, total, row, MEMBERS: tl.constexpr, BLOCK: tl.constexpr):
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    began = clock(trace)
    slice, number = exchange_begin(slots, program, MEMBERS)
    words = tl.load(input + offsets, mask=are_in_part(offsets, my_rank(MEMBERS), n, total), other=0).to(tl.int32)
    for i in tl.static_range(1, N_PES + 1):
        send(slice, number, words, (my_rank(MEMBERS) + i) % N_PES, MEMBERS)
    record_event(trace, SEND, 0, began)
    gathered = receive(slice, number, BLOCK, MEMBERS, trace, 0)
    ranks = tl.arange(0, gathered.shape[0])[:, None]
    there = (ranks < N_PES) & are_in_part(offsets[None, :], ranks, n, total)
    if row is None:
        places = ranks.to(tl.int64) * n + offsets[None, :]
    else:  # of each rank's row i the row i of the output
        places = (offsets // row * row)[None, :] * N_PES + ranks * row + (offsets % row)[None, :]
    tl.store(output + places, gathered.to(output.dtype.element_ty), mask=there)
    exchange_end(slice, number)


@triton.jit
def all_gather_push(
    output, input, barriers, trace, part, total, MEMBERS: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr = False
):
    N_PES: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    me = my_rank(MEMBERS)
    mine = output + me.to(tl.int64) * part
    n = widened(length_of_part(me, part, total), WIDE)
    number = arrive(barriers, program, MEMBERS)
    whole = n // BLOCK
    for block in range(program, whole, tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        words = tl.load(input + offsets)
        if block == program:  # the first loads need not wait for other PEs
            wait(barriers, program, number, MEMBERS, trace, 0)
        began = clock(trace)
        for i in tl.static_range(1, N_PES + 1):
            tl.store(at_rank(mine, (me + i) % N_PES, MEMBERS) + offsets, words)
        record_event(trace, SEND, block, began)
    if program >= whole:
        wait(barriers, program, number, MEMBERS, trace, 0)
    if program == whole % tl.num_programs(0):  # the rest, less than a block
        began = clock(trace)
        offsets = whole * BLOCK + tl.arange(0, BLOCK)
        words = tl.load(input + offsets, mask=offsets < n)
        for i in tl.static_range(1, N_PES + 1):
            tl.store(at_rank(mine, (me + i) % N_PES, MEMBERS) + offsets, words, mask=offsets < n)
        record_event(trace, SEND, whole, began)
    barrier(barriers, program, MEMBERS, trace, 1)


@collective
def all_gather(
    output: torch.Tensor, input: torch.Tensor, *, algorithm: str = "auto", sm_margin: int = 0, group: Any = None
) -> torch.Tensor:
    """Every PE's ``input``, in PE order, in every PE's ``output``.

    Args:
        output: with ``n_pes`` times the elements of ``input`` and its dtype; symmetric, except for ``low_latency``,
            ``exchange`` and ``two_level``.
        input: need not be symmetric. It may be this PE's own part of ``output``; no other overlap of the two is taken.
        algorithm: ``low_latency`` (up to 256 KiB or so), ``push``, ``copy_engine``, ``two_level`` or ``auto``; or
            ``exchange``, of floats of up to 32 bits, by which a -0.0 may arrive as 0.0, and which ``auto`` does not
            take.
        sm_margin: how many SMs are left to other kernels.

    Returns:
        ``output``.
    """
    with calling("all_gather", group, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        signature = prepared.signature(("all_gather", algorithm, sm_margin), output, input)
        if prepared.repeat(signature, output, input):
            return output
        check_tensors("all_gather", output=output, input=input)
        check_part(comm, "all_gather", output, input, ("output", "input"))
        if not is_part_of(input, output, comm.my_rank):
            but = f"; in place, input is this PE's own part of output, number {comm.my_rank}"
            refuse_overlap("all_gather", {"output": output}, {"input": input}, but)
        algorithm = check_collective(comm, "all_gather", algorithm, (*ALGORITHMS, "exchange"))
        limit = check_sm_margin("all_gather", sm_margin)
        places: tuple[str, ...] = ()
        # Words of an exchange have 4 bytes, and it stores to no peer's tensor.
        unit = input.nbytes if algorithm == "exchange" else unit_of_words(comm, input.nbytes, output)
        if not begin_in_words(unit, output, input):
            again = partial(all_gather, algorithm=algorithm, sm_margin=sm_margin, group=comm)
            return through_copies(unit, again, output, input)
        if input.numel():
            to, part = words("all_gather", unit, output, input)
            if algorithm == "auto":
                algorithm = _choose(comm, to, part, limit)
            elif algorithm == "exchange" and (why := why_not_gathered(input.dtype, input.nbytes)):
                raise ValueError(f"all_gather: {why}")
            if algorithm not in ("low_latency", "exchange", "two_level"):
                places = need_symmetric(comm, "all_gather", algorithm, output=output)
        compared = "all_gather", input.shape, input.dtype, algorithm, sm_margin, *places
        comm.compare(*compared)  # empty tensors, too, for which no kernel would wait
        if input.numel():
            made = _run_of(algorithm, input.dtype)(comm, to, part, limit=limit)
            prepared.keep(signature, made, *compared)
        return output


def all_gather_parts(
    output: torch.Tensor,
    input: torch.Tensor,
    part: int,
    *,
    algorithm: str = "auto",
    sm_margin: int = 0,
    group: Any = None,
) -> None:
    """As :func:`all_gather`, of parts that may be shorter: each has ``part`` elements, or those that are left of
    ``output``, which may be none. *Collective.*

    Args:
        output: symmetric, and with all parts.
        input: this PE's part.
        algorithm: as of :func:`all_gather`, but for ``copy_engine``; parts are of whole elements.
    """
    with calling("all_gather", group, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        signature = prepared.signature(("all_gather_parts", part, algorithm, sm_margin), output, input)
        if prepared.repeat(signature, output, input):
            return
        algorithm = check_collective(comm, "all_gather", algorithm, ("low_latency", "exchange", "push", "two_level"))
        limit = check_sm_margin("all_gather", sm_margin)
        compared = "all_gather, parts", output.shape, part, output.dtype, algorithm, sm_margin
        size = output.element_size()
        to, source = words("all_gather", math.gcd(part, output.numel()) * size, output, input)
        comm.compare(*compared)
        n = part * size // to.element_size()
        if algorithm == "auto":
            sent = part * size * (comm.n_pes - 1)
            estimates = {"push": model.direct(sent)}
            if fits(n, comm.n_pes, limit):
                estimates["low_latency"] = model.low_latency(sent)
            algorithm = choose(comm, Case("all_gather", BYTES, (part * size,)), estimates)
        elif algorithm == "exchange" and (why := why_not_gathered(output.dtype, math.gcd(part, output.numel()) * size)):
            raise ValueError(f"all_gather: {why}")
        if algorithm == "two_level":
            made: Any = gather_parts(comm, to, source, n, in_place=False, limit=limit)
        else:
            made = _run_of(algorithm, output.dtype)(comm, to, source, limit=limit, part=n)
        prepared.keep(signature, made, *compared)


def without_barriers(
    dtype: torch.dtype, part_bytes: int, unit: int, n_pes: int, limit: int = NO_LIMIT
) -> dict[str, float]:
    """Estimated seconds of the algorithms that gather operands and results of GEMMs without barriers, of those that
    take parts of so many bytes, multiples of ``unit`` bytes, from each PE."""
    found = {}
    if fits(part_bytes // word_bytes(unit), n_pes, limit):
        found["low_latency"] = model.low_latency(part_bytes * (n_pes - 1))
    if why_not_gathered(dtype, unit) is None and fits_exchange(part_bytes // 4, n_pes, limit):
        found["exchange"] = model.exchanged(part_bytes, n_pes)
    return found


def operand_algorithm(
    comm: Communicator, dtype: torch.dtype, part_bytes: int, whole_bytes: int, sm_margin: int = 0
) -> str:
    """The algorithm that gathers a GEMM's operand in parts of so many bytes: ``exchange`` or ``auto``.

    Args:
        whole_bytes: of all parts, of which the last may be shorter.
    """
    limit, n_pes = check_sm_margin("all_gather", sm_margin), comm.n_pes
    found = without_barriers(dtype, part_bytes, math.gcd(part_bytes, whole_bytes), n_pes, limit)
    if "exchange" not in found or comm.grid.hosts > 1 or n_pes == 1:
        return "auto"
    sent = part_bytes * (n_pes - 1)
    others = model.direct(sent), model.copy_engine(sent, n_pes - 1)
    return "exchange" if found.pop("exchange") < min(*others, *found.values()) else "auto"


def _run_of(algorithm: str, dtype: torch.dtype) -> Callable[..., Launch | Sequence[Step] | None]:
    """What launches an algorithm with words of elements of ``dtype``."""
    return partial(gather_exchange, dtype=dtype) if algorithm == "exchange" else ALGORITHMS[algorithm]


def _choose(comm: Communicator, output: torch.Tensor, input: torch.Tensor, limit: int) -> str:
    n_pes = comm.n_pes
    sent = input.numel() * input.element_size() * (n_pes - 1)
    estimates = {"push": model.direct(sent), "copy_engine": model.copy_engine(sent, n_pes - 1)}
    if fits(input.numel(), n_pes, limit):
        estimates["low_latency"] = model.low_latency(sent)
        if not is_symmetric(comm, output):
            return "low_latency"
    return choose(comm, Case("all_gather", BYTES, (input.numel() * input.element_size(),)), estimates)


def low_latency(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    *,
    limit: int = NO_LIMIT,
    block: int = 0,
    num_warps: int = 0,
    part: int = 0,
    row: int | None = None,
) -> Launch | None:
    """Of words. With ``row`` inputs are matrices of so many columns, which lie side by side in ``output``."""
    n, n_pes = part or input.numel(), comm.n_pes
    if not fits(n, n_pes, limit):
        raise ValueError(f"all_gather: {n} words are too many for algorithm low_latency")
    block = block or block_of(n, n_pes, limit)
    programs = triton.cdiv(n, block)
    trace = record("all_gather, low_latency", programs, 2)
    return launch(
        all_gather_low_latency,
        (programs,),
        (output, input),
        ll_slots(comm),
        trace,
        n,
        output.numel() if part else None,
        row,
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
    block: int = 0,
    num_warps: int = 0,
    part: int = 0,
) -> Launch | None:
    n = part or input.numel()
    large = n >= 1 << 18
    block = block or (8192 if large else 2048)
    num_warps = num_warps or (16 if large else 8)
    programs = programs or min(128 if large else 64, max(1, triton.cdiv(n, block)), limit)
    trace = record("all_gather, push", programs, 4 + n // (block * programs))
    total = output.numel() if part else None
    return launch(
        all_gather_push, (programs,), (output, input), barrier_state(comm), trace, n, total, comm.members, block,
        WIDE=is_wide(n, block), num_warps=num_warps,
    )  # fmt: skip


ALGORITHMS: dict[str, Callable[..., Launch | Sequence[Step] | None]] = {
    "low_latency": low_latency,
    "push": push,
    "copy_engine": copy_engine,
    "two_level": two_level,
}
