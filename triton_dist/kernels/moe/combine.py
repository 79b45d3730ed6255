"""Combine: the rows that experts have computed return to the PEs of their tokens, weighted and summed. Low latency.

The reverse of :mod:`~triton_dist.kernels.moe.dispatch`. A PE sums, in float32 and in the order of the token's choices,
the rows that it has of a token, each multiplied by its weight, and sends one row of partial sums to the token's PE, in
the dtype of the rows. That PE sums what it gets from each PE, in float32 and in the order of PEs, and rounds once more.
So the result depends on nothing but the rows and the routing.

One kernel: here all programs send, then receive. Rows go to the slot of their token in the sentinel protocol. Every PE
also sends every PE an arrival flag, so that slots may be used again (``rows.py``). After a dispatch of many tokens some
programs send, and the others do everything else (``combine_many.py``); after one in rounds, so is this (``rounds.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import check_sm_margin
from triton_dist.kernels.gradients import made_again, records_gradients, refuse_gradients
from triton_dist.kernels.moe import between_hosts
from triton_dist.kernels.moe.arguments import (
    ALGORITHMS,
    Routing,
    check_rows,
    refuse_halves_of_rounds,
)
from triton_dist.kernels.moe.combine_by_tma import combine_by_tma, plan_of_combine
from triton_dist.kernels.moe.combine_by_tma import make_slots as make_slots_by_tma
from triton_dist.kernels.moe.combine_many import combine_many
from triton_dist.kernels.moe.combine_many import make_slots as make_slots_of_many
from triton_dist.kernels.moe.exchange import Cut, Exchange, block_of, cut_of, open_exchange
from triton_dist.kernels.moe.halves import Combining, new_sums, of_routing, rows_and_memory
from triton_dist.kernels.moe.results import Dispatched, check_ids, parts_of
from triton_dist.kernels.moe.rounds import combine_rounds, combine_slots
from triton_dist.kernels.moe.rounds_plan import CombinePlan
from triton_dist.kernels.moe.rows import element, look_at, scalar_of, send_words, take_words, word_of
from triton_dist.kernels.new_tensors import NewTensors
from triton_dist.kernels.options import check_bool, check_int, check_one_of
from triton_dist.kernels.prepared import Launch, Prepared, Step, launch, steps
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.language._poll import no_polls, poll

__all__ = ["combine", "combine_receive", "combine_send", "make_slots", "run"]

_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@triton.jit
def _partial_sum(
    y, memory, message, offsets, K: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Words of the sum of the rows that a message's token has here, in the order of its choices."""
    lower = tl.zeros(offsets.shape, tl.float32)
    upper = tl.zeros(offsets.shape, tl.float32)
    for k in tl.static_range(K):
        position = tl.load(memory + PARTS[4] + message * K + k)
        there = (position >= 0) & (offsets < WORDS)
        words = tl.load(y + position.to(tl.int64) * WORDS + offsets, mask=there, other=0)
        weight = 1.0
        if WEIGHTED:
            weight = tl.load(memory + PARTS[5] + message * K + k).to(tl.float32, bitcast=True)
            weight = tl.where(position >= 0, weight, 0.0)
        lower += weight * element(words, False, DTYPE)
        upper += weight * element(words, True, DTYPE)
    return word_of(lower, upper, DTYPE)


@triton.jit
def _send(
    y, memory, flags, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr, MAX_TOKENS: tl.constexpr,
    WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
    OWN: tl.constexpr, BY_TOKEN: tl.constexpr = False,
):  # fmt: skip
    """``OWN``: whether this PE's own tokens go through slots, too. ``BY_TOKEN``: as :attr:`Routing.by_tokens`."""
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    ranks = tl.arange(0, triton.next_power_of_2(N))
    choices = tl.arange(0, triton.next_power_of_2(K))
    number = next_number(tl.load(numbers + tl.program_id(0)))
    half = ((number & 1) * N + me).to(tl.int64)
    if tl.program_id(0) == 0:
        for pe in tl.static_range(N):
            tl.store(dl.symm_at(flags + half, pe_of(pe, MEMBERS)), number.to(tl.int64))
    messages = tl.load(memory + PARTS[2] + ranks, mask=ranks < N, other=0)
    # Peers first, in turn from the next on; what stays here is here soon.
    OTHERS: tl.constexpr = max(N - 1, 1)
    theirs = tl.max(tl.where(ranks == me, 0, messages)) * (N - 1)
    own = scalar_of(messages, me) if OWN else 0
    for i in range(tl.program_id(0), theirs + own, tl.num_programs(0)):
        source = tl.where(i < theirs, (me + 1 + i % OTHERS) % N, me)
        index = tl.where(i < theirs, i // OTHERS, i - theirs)
        message = source * MAX_TOKENS + index
        sends = index < scalar_of(messages, source)
        token = index
        if BY_TOKEN:
            position = tl.load(memory + PARTS[4] + message * K + choices, mask=(choices < K) & sends, other=-1)
            sends = tl.max(position) >= 0
        if sends:
            if not BY_TOKEN:
                token = tl.load(memory + PARTS[3] + message)
            place = slots + (half * MAX_TOKENS + token) * WORDS
            place = dl.symm_at(place, pe_of(source, MEMBERS))
            for first in tl.static_range(0, WORDS, BLOCK):
                offsets = first + tl.arange(0, BLOCK)
                words = _partial_sum(y, memory, message, offsets, K, WORDS, PARTS, DTYPE, WEIGHTED)
                send_words(place + offsets, words, offsets < WORDS)
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + tl.program_id(0), number)


@triton.jit
def _receive(
    y, memory, out, ids, n_tokens, flags, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr, L: tl.constexpr,
    MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr, WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """``OWN`` as of :func:`_send`; if it is not set, this PE's part of a sum is computed here."""
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    ranks = tl.arange(0, triton.next_power_of_2(N))
    choices = tl.arange(0, triton.next_power_of_2(K))
    number = next_number(tl.load(numbers + tl.program_id(0)))
    half = (number & 1).to(tl.int64) * N
    for token in range(tl.program_id(0), n_tokens, tl.num_programs(0)):
        mine = tl.load(ids + tl.cast(token, tl.int64) * K + choices, mask=choices < K, other=-1).to(tl.int32)
        homes = tl.where(mine >= 0, mine // L, -1)
        place = slots + (half * MAX_TOKENS + token) * WORDS
        is_here = tl.max((homes == me).to(tl.int32)) != 0
        for first in range(0, WORDS, BLOCK):
            offsets = first + tl.arange(0, BLOCK)
            seen = ()
            for pe in tl.static_range(N):  # all loads are in flight before the first wait
                arrives = (tl.max((homes == pe).to(tl.int32)) != 0) & (OWN | (pe != me))
                mask = arrives & (offsets < WORDS)
                seen = seen + (look_at(place + pe * (MAX_TOKENS * WORDS) + offsets, mask),)  # type: ignore[assignment]  # noqa: RUF005
            own = tl.zeros([BLOCK], tl.int32)
            if not OWN:  # noqa: SIM102 (a constant)
                if is_here:
                    message = tl.load(memory + PARTS[8] + token)
                    own = _partial_sum(y, memory, message, offsets, K, WORDS, PARTS, DTYPE, WEIGHTED)
            lower = tl.zeros([BLOCK], tl.float32)
            upper = tl.zeros([BLOCK], tl.float32)
            for pe in tl.static_range(N):
                arrives = (tl.max((homes == pe).to(tl.int32)) != 0) & (OWN | (pe != me))
                mask = arrives & (offsets < WORDS)
                slot = place + pe * (MAX_TOKENS * WORDS)
                sender = pe_of(pe, MEMBERS)
                words = take_words(
                    seen[pe], slot + offsets, mask, slot + first, sender, tl.minimum(BLOCK, WORDS - first)
                )
                words = tl.where(mask, words, tl.where(pe == me, own, 0))
                lower += element(words, False, DTYPE)
                upper += element(words, True, DTYPE)
            at = out + tl.cast(token, tl.int64) * WORDS + offsets
            tl.store(at, word_of(lower, upper, DTYPE), mask=offsets < WORDS)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        polls = no_polls()
        missing = True
        while missing:
            arrived = tl.load(flags + half + ranks, mask=ranks < N, other=number, volatile=True).to(tl.int32)
            words = (flags + half).to(tl.pointer_type(tl.int32), bitcast=True)
            polls = poll(polls, words, dl.CMP_EQ, number, pe_of(0, MEMBERS), N, 1, 2, 2)
            missing = tl.max((arrived != number).to(tl.int32)) != 0
    tl.debug_barrier()
    tl.store(numbers + tl.program_id(0), number)


@triton.jit
def moe_combine_send(
    y, memory, flags, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr, MAX_TOKENS: tl.constexpr,
    WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
    BY_TOKEN: tl.constexpr,
):  # fmt: skip
    _send(
        y, memory, flags, slots, numbers, MEMBERS, K, MAX_TOKENS, WORDS, PARTS, DTYPE, WEIGHTED, BLOCK, True, BY_TOKEN
    )  # fmt: skip


@triton.jit(do_not_specialize=["n_tokens"])
def moe_combine_receive(
    out, ids, n_tokens, flags, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr, L: tl.constexpr,
    MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, DTYPE: tl.constexpr, TAKEN: tl.constexpr,
):  # fmt: skip
    _receive(
        out, ids, out, ids, n_tokens, flags, slots, numbers, MEMBERS, K, L, MAX_TOKENS, WORDS, (), DTYPE, False, TAKEN,
        True,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n_tokens"])
def moe_combine_one_round(
    y, memory, ids, out, n_tokens, flags, slots, sent_numbers, received_numbers, MEMBERS: tl.constexpr,
    K: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr,
    DTYPE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr, TAKEN: tl.constexpr,
):  # fmt: skip
    _send(y, memory, flags, slots, sent_numbers, MEMBERS, K, MAX_TOKENS, WORDS, PARTS, DTYPE, WEIGHTED, BLOCK, False)
    _receive(
        y, memory, out, ids, n_tokens, flags, slots, received_numbers, MEMBERS, K, L, MAX_TOKENS, WORDS, PARTS, DTYPE,
        WEIGHTED, TAKEN, False,
    )  # fmt: skip


@made_again(lambda y, dispatched, *args, **kwargs: dispatched.routing.comm)
def combine(
    y: torch.Tensor,
    dispatched: Dispatched,
    *,
    weighted: bool = True,
    buffer: int = 0,
    sm_margin: int = 0,
    algorithm: str = "auto",
) -> torch.Tensor:
    """Return the experts' rows to the PEs of their tokens: the sum over a token's choices of weight x row.

    *Collective*, on the current stream. It may be captured in a CUDA graph after it has run once for its sizes.

    Args:
        y: [R, hidden], contiguous: bfloat16, float16 or float32, the result of the experts for the rows of
            ``dispatched.x``. ``hidden`` need not be that of the dispatch. A row is a multiple of 16 bytes.
        dispatched: what :func:`dispatch` has returned on this PE.
        weighted: multiply each row by its weight.
        buffer, sm_margin: as of :func:`dispatch`.
        algorithm: of rounds: ``auto``, on Hopper GPUs by TMA, for what :func:`dispatch` says, or ``portable``, by load
            and store. The results are the same bits.

    Returns:
        [T, hidden] of ``y``'s dtype. Partial sums that PEs exchange have that dtype; all are added in float32. So have
        those of hosts, which are added behind those of their PEs. Tokens without an expert are 0.

    Raises:
        TypeError, ValueError, RuntimeError: as :func:`dispatch`.
    """
    routing = _routing_of("combine", dispatched)
    with calling("combine", routing.comm, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        call = ("combine", weighted, buffer, sm_margin, algorithm, *routing[3:8], routing.num_sms, routing.halves)
        signature = prepared.signature(call, y, dispatched.memory, routing.ids)
        known = prepared.details(signature)
        if known is not None and not (known[0] and known[0].is_in_flight()) and not records_gradients(y):
            out = _result(routing, y.dtype, y.shape[1])
            if prepared.repeat(signature, y, dispatched.memory, routing.ids, out):
                return out
        check_bool("combine", "weighted", weighted)
        check_one_of("combine", "algorithm", algorithm, ALGORITHMS)
        _check_as_many("combine", y, dispatched)
        out, exchange, made, compared = _run("combine", y, dispatched, weighted, buffer, sm_margin, algorithm)
        prepared.keep(
            signature, made, *compared, details=(exchange,),
            new=NewTensors.of(out, at=3) if routing.hosts == 1 else None,
            conditions=exchange.is_free() if exchange is not None else (),
        )  # fmt: skip
        return out


@made_again(lambda y, dispatched, *args, **kwargs: dispatched.routing.comm)
def combine_send(
    y: torch.Tensor, dispatched: Dispatched, *, weighted: bool = True, buffer: int = 0, sm_margin: int = 0
) -> Combining:
    """The first half of :func:`combine`, with its arguments: send, and wait for nothing.

    Returns:
        what :func:`combine_receive` takes, once, before the next combine in the same slots.

    Raises:
        RuntimeError: a combine is in flight in these slots. And what :func:`combine` raises.
    """
    routing = _routing_of("combine_send", dispatched)
    with calling("combine_send", routing.comm, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        sizes = *routing[3:8], routing.num_sms, routing.top_k, routing.halves
        call = ("combine_send", weighted, buffer, sm_margin, *sizes)
        given = y, dispatched.memory, routing.ids, routing.weights
        signature = prepared.signature(call, *given)
        exchange = prepared.details(signature)
        sendable = exchange is not None and not exchange.is_in_flight() and not records_gradients(y)
        if not sendable or not prepared.repeat(signature, *given):
            check_bool("combine_send", "weighted", weighted)
            _check_as_many("combine_send", y, dispatched)
            if routing.num_sms:
                refuse_halves_of_rounds("combine_send")
            compared = _compare("combine_send", y, routing, weighted, buffer, sm_margin)
            within = _inside_host(dispatched)
            exchange, constants = _prepare("combine_send", y, within, weighted, buffer, sm_margin)
            del constants["L"], constants["TAKEN"]
            made = launch(
                moe_combine_send, (exchange.programs,), (in_int32(y), dispatched.memory), exchange.messages,
                exchange.slots, exchange.sent, BY_TOKEN=within.routing.by_tokens, **constants,
                **_cut(within.routing, constants["WORDS"]).options,
            )  # fmt: skip
            exchange.send()
            again = exchange.sending(made, rows_and_memory, of_routing)
            new = new_sums(exchange, routing, y, (buffer, sm_margin)) if routing.hosts == 1 else None
            prepared.keep(
                signature, again, *compared, details=exchange, new=new,
                conditions=exchange.is_free(),
            )  # fmt: skip
        number = exchange.in_flight.last
    return Combining(exchange, routing, y.dtype, y.shape[1], dispatched.memory, (buffer, sm_margin), number)


def combine_receive(sent: Combining) -> torch.Tensor:
    """The second half of :func:`combine`: wait for the partial sums, and add them.

    Raises:
        RuntimeError: they have been received already.
    """
    if not isinstance(sent, Combining):
        raise TypeError(f"combine_receive: sent must be what combine_send returns, got {type(sent).__name__}")
    exchange, routing = sent.exchange, sent.routing
    with calling("combine_receive", routing.comm, between_hosts=True) as comm:
        exchange.receive("combine_receive", sent.number)
        prepared = comm.own(Prepared)
        sizes = exchange.name, routing.local_experts, sent.dtype, sent.hidden
        of_hosts = (sent.memory,) if routing.hosts > 1 else ()
        signature = prepared.signature(("combine_receive", *sizes), routing.ids, *of_hosts)
        out = _result(routing, sent.dtype, sent.hidden)
        if prepared.repeat(signature, out, routing.ids, *of_hosts):
            return out
        prepared.keep(signature, _receive_half(sent, out))
    return out


def _receive_half(sent: Combining, out: torch.Tensor) -> Launch | Sequence[Step] | None:
    exchange, routing = sent.exchange, sent.routing
    dispatched = Dispatched(out, None, sent.memory, routing)
    within, sums = _inside_host(dispatched).routing, out
    if routing.hosts > 1:
        assert routing.comm is not None
        sums = between_hosts.sums_of_host(routing.comm, routing, sent.dtype, sent.hidden, sent.options[0])
    constants = _constants(within, sent.dtype, sent.hidden)
    del constants["BLOCK"]
    made = launch(
        moe_combine_receive, (exchange.programs,), (in_int32(sums), within.ids), within.n_tokens,
        exchange.messages, exchange.slots, exchange.received, **constants, **_cut(within, constants["WORDS"]).options,
    )  # fmt: skip
    if routing.hosts == 1:
        return made
    added = between_hosts.add_hosts("combine_receive", sums, constants["DTYPE"], dispatched, out, *sent.options)
    find = between_hosts.host_ids_of(routing)
    return steps(
        (made, lambda out, ids, memory: (sums, find(memory))),
        (added, lambda out, ids, memory: (memory, ids, out)),
    )


def _inside_host(dispatched: Dispatched) -> Dispatched:
    """What a group on several hosts combines inside each of them; else as it is."""
    if dispatched.routing.hosts == 1:
        return dispatched
    return dispatched._replace(routing=between_hosts.inside_host(dispatched.routing, dispatched.memory))


def _routing_of(function: str, dispatched: object) -> Routing:
    """The routing of what a dispatch has returned, with its communicator."""
    if not isinstance(dispatched, Dispatched):
        raise TypeError(f"{function}: dispatched must be what moe.dispatch returns, got {type(dispatched).__name__}")
    if dispatched.routing.comm is None:
        raise ValueError(
            f"{function}: dispatched is of functional.dispatch: call functional.combine of triton_dist.kernels.moe"
        )
    check_ids(function, dispatched.memory, dispatched.routing.ids)
    return dispatched.routing


def _check_as_many(function: str, y: torch.Tensor, dispatched: Dispatched) -> None:
    refuse_gradients(function, y)
    check_rows(function, "y", y, tuple(_TYPES))
    if y.shape[0] != dispatched.routing.capacity:
        raise ValueError(
            f"{function}: y must have a row for each of the {dispatched.routing.capacity} of dispatched.x, got shape"
            f" {tuple(y.shape)}"
        )


def run(
    function: str, y: torch.Tensor, dispatched: Dispatched, weighted: bool, buffer: int = 0, algorithm: str = "auto"
) -> torch.Tensor:
    """Combine, with or without gradients. ``y`` may end behind the last row that has come."""
    return _run(function, y, dispatched, weighted, buffer, 0, algorithm)[0]


def _run(
    function: str,
    y: torch.Tensor,
    dispatched: Dispatched,
    weighted: bool,
    buffer: int,
    sm_margin: int,
    algorithm: str = "auto",
) -> tuple[torch.Tensor, Exchange | None, Launch | Sequence[Step] | None, tuple[Any, ...]]:
    """The result, what was launched, and what was compared."""
    check_rows(function, "y", y, tuple(_TYPES))
    routing = dispatched.routing
    if routing.num_sms and sm_margin:
        raise ValueError(f"{function}: as many SMs work as num_sms of the dispatch says: leave out sm_margin")
    compared = _compare(function, y, routing, weighted, buffer, sm_margin, algorithm)
    assert routing.comm is not None
    out = _result(routing, y.dtype, y.shape[1])
    if routing.hosts == 1:
        return out, *_launch(function, y, dispatched, out, weighted, buffer, sm_margin, algorithm), compared
    sums = between_hosts.sums_of_host(routing.comm, routing, y.dtype, y.shape[1], buffer)
    exchange, made = _launch(function, y, _inside_host(dispatched), sums, weighted, buffer, sm_margin, algorithm)
    added = between_hosts.add_hosts(function, sums, _TYPES[y.dtype], dispatched, out, buffer, sm_margin)
    find = between_hosts.host_ids_of(routing)
    return (
        out,
        exchange,
        steps(
            (made, lambda y, memory, ids, out: (y, memory, find(memory), sums)),
            (added, lambda y, memory, ids, out: (memory, ids, out)),
        ),
        compared,
    )


def _launch(
    function: str,
    y: torch.Tensor,
    dispatched: Dispatched,
    out: torch.Tensor,
    weighted: bool,
    buffer: int,
    sm_margin: int,
    algorithm: str,
) -> tuple[Exchange | None, Launch | None]:
    """Combine into ``out`` inside a host."""
    routing = dispatched.routing
    if (plan := _plan_of(y, routing, algorithm)) is not None:
        return None, combine_by_tma(plan, y, dispatched, out, weighted, buffer)
    if routing.num_sms:
        return None, combine_rounds(y, dispatched, out, _TYPES[y.dtype], weighted, buffer)
    if routing.by_tokens:
        return None, combine_many(function, y, dispatched, out, _TYPES[y.dtype], weighted, buffer, sm_margin)
    exchange, constants = _prepare(function, y, dispatched, weighted, buffer, sm_margin)
    tensors = in_int32(y), dispatched.memory, routing.ids, in_int32(out)
    made = launch(
        moe_combine_one_round, (exchange.programs,), tensors, routing.n_tokens, exchange.messages, exchange.slots,
        exchange.sent, exchange.received, **constants, **_cut(routing, constants["WORDS"]).options,
    )  # fmt: skip
    return exchange, made


def _prepare(
    function: str, y: torch.Tensor, dispatched: Dispatched, weighted: bool, buffer: int, sm_margin: int
) -> tuple[Exchange, dict[str, Any]]:
    routing = dispatched.routing
    assert routing.comm is not None
    constants = _constants(routing, y.dtype, y.shape[1])
    words = constants["WORDS"]
    exchange = _open(function, routing, words, buffer, sm_margin)
    return exchange, constants | {"WEIGHTED": weighted, "PARTS": parts_of(routing)[:9]}


def _open(function: str, routing: Routing, words: int, buffer: int, sm_margin: int) -> Exchange:
    assert routing.comm is not None
    what, cut = f"combine of {words} words", _cut(routing, words)
    return open_exchange(routing.comm, function, routing, what, words, 1, buffer, sm_margin, cut)


def _cut(routing: Routing, words: int) -> Cut:
    return cut_of(words, routing.max_tokens, 2048)


def make_slots(comm: Communicator, function: str, y: torch.Tensor, routing: Routing) -> None:
    """Make the slots of combines with this routing's sizes, of rows like those of ``y``. *Collective.*"""
    words = y.shape[1] * y.element_size() // 4
    if routing.hosts > 1:
        between_hosts.sums_slots(comm, function, y, routing)
        routing = between_hosts.inside_host(routing, None)
    if (plan := _plan_of(y, routing, "auto")) is not None:
        make_slots_by_tma(plan, routing, words * 4)
    elif routing.num_sms:
        combine_slots(routing, words, routing.num_sms)
    elif routing.by_tokens:
        make_slots_of_many(function, routing, words)
    else:
        _open(function, routing, words, 0, 0)


def _plan_of(y: torch.Tensor, routing: Routing, algorithm: str) -> CombinePlan | None:
    """How TMA combines rows like those of ``y``, if it does."""
    return plan_of_combine(routing, y.shape[1] * y.element_size()) if algorithm == "auto" else None


def _compare(
    function: str,
    y: torch.Tensor,
    routing: Routing,
    weighted: bool,
    buffer: int,
    sm_margin: int,
    algorithm: str = "auto",
) -> tuple[Any, ...]:
    """Compare a call with those of the other members, by name: all but the rows. What this PE alone refuses comes
    before. Returns what was compared."""
    check_int(function, "buffer", buffer, 0)
    check_sm_margin(function, sm_margin)
    compared = (
        function,
        f"hidden={y.shape[1]}",
        y.dtype,
        f"top_k={routing.top_k}",
        f"max_tokens={routing.max_tokens}",
        f"weighted={weighted}",
        f"buffer={buffer}",
        f"sm_margin={sm_margin}",
        f"num_sms={routing.num_sms}",
        f"rows by token: {routing.by_tokens}",
        _plan_of(y, routing, algorithm),
    )
    assert routing.comm is not None
    routing.comm.compare(*compared)
    return compared


def _constants(routing: Routing, dtype: torch.dtype, hidden: int) -> dict[str, Any]:
    words = hidden * dtype.itemsize // 4
    pes = int(triton.next_power_of_2(routing.members.size))
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "L": routing.local_experts, "MAX_TOKENS": routing.max_tokens,
        "WORDS": words, "DTYPE": _TYPES[dtype], "BLOCK": _cut(routing, words).block,
        "TAKEN": block_of(words, max(256, min(_cut(routing, words).block, 8192 // pes))),
    }  # fmt: skip


def _result(routing: Routing, dtype: torch.dtype, hidden: int) -> torch.Tensor:
    return routing.ids.new_empty(routing.n_tokens, hidden, dtype=dtype)
