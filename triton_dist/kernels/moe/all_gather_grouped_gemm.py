"""All-gather and grouped GEMM: the rows of all PEs' tokens times this PE's columns of their experts' matrices.

``out[r] = x[r] · b[e]`` for the rows r of expert e; x[r] is the token of row r, of any PE, and ``b`` [E, K, N] has this
PE's columns of every expert's matrix (tensor parallelism). Rows are as of ``gathered_routing.py``.

One persistent kernel. All programs copy this PE's tokens to the memory of gathered ones. The first few then send them
to one PE after the other, first to the one for which this PE is at distance 1: so a PE receives from one PE at a time.
A flag for each source and sending program says that its tokens have arrived. The other programs take tiles meanwhile;
senders join them when they are done.

A tile's rows are those of one expert, beginning with this PE's tokens and continuing with those of the PEs at distance
1, 2, …; it is computed when the tokens of its last row's PE are there. Tiles are taken in the order of that distance,
then of experts. So a PE begins with its own tokens, no tile waits for a later PE's, and there are no more tiles than
without communication. Each row is stored where it belongs, whatever its place in a tile.

With ``WHOLE`` a PE has some experts, with all their columns (expert parallelism): it gets those tokens that have rows
of its experts, and computes these rows. That is the dispatch of ``whole_experts.py``.

Programs draw tiles from a counter that is never reset: each draws one number that is too large, so a launch draws as
many numbers as it has tiles and programs. Senders begin when the program of the same number of every PE has entered
the kernel: that PE has then read what the last call gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.collectives.gather_during import gather_during
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import check_sm_margin, sms
from triton_dist.kernels.gradients import made_again, refuse_gradients
from triton_dist.kernels.moe.arguments import ROWS, check_offsets, check_rows
from triton_dist.kernels.moe.gathered_routing import GatheredRouting, communicator_of, have_rows
from triton_dist.kernels.moe.grouped_gemm import (
    as_multiplied,
    check_group_scales,
    check_groups,
    check_result,
    product_of_rows,
    tile_of,
)
from triton_dist.kernels.moe.swiglu import swiglu_of_pairs
from triton_dist.kernels.new_tensors import NewTensors, like
from triton_dist.kernels.overlaps import refuse_overlap
from triton_dist.kernels.prepared import Launch, Prepared, launch
from triton_dist.kernels.protocols.barrier import arrive, wait
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank, pe_of
from triton_dist.kernels.protocols.workspace import barrier_state, symmetric_workspace
from triton_dist.language._poll import no_polls, poll

__all__ = [
    "all_gather_grouped_gemm",
    "gather_and_multiply",
    "gather_tokens_during",
    "gathered_tokens",
    "groups_of",
    "options_of",
    "rows_up_to",
    "senders_of",
    "tiles_up_to",
    "workspace",
]

_GATHERED = "moe: gathered tokens"
"""The name of the workspace."""


@triton.jit
def _copy(to, source, n, first, step, BLOCK: tl.constexpr):
    """Copy blocks ``first``, ``first + step``, … of n words."""
    for block in range(first, tl.cdiv(n, BLOCK), step):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(to + offsets, tl.load(source + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def _copy_tokens(
    to, source, positions, n_tokens, begin, end, first, step, K: tl.constexpr, WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy this PE's tokens with rows from ``begin`` to ``end``: batches ``first``, ``first + step``, …"""
    COLUMNS: tl.constexpr = min(BLOCK, triton.next_power_of_2(WORDS))
    B: tl.constexpr = BLOCK // COLUMNS
    for batch in range(first, tl.cdiv(n_tokens, B), step):
        tokens = batch * B + tl.arange(0, B)
        wanted = have_rows(positions, tokens, n_tokens, begin, end, K)
        for column in range(0, WORDS, COLUMNS):
            columns = column + tl.arange(0, COLUMNS)
            mask = wanted[:, None] & (columns < WORDS)[None, :]
            at = tokens.to(tl.int64)[:, None] * WORDS + columns[None, :]
            tl.store(to + at, tl.load(source + at, mask=mask), mask=mask)


@triton.jit
def _send(
    a, a_scales, gathered, gathered_scales, flags, number, senders, barriers, n_tokens, memory, MEMBERS: tl.constexpr,
    E: tl.constexpr, K: tl.constexpr, MAX_TOKENS: tl.constexpr, PARTS: tl.constexpr, WORDS: tl.constexpr,
    S: tl.constexpr, FLAGS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """This program's part of copying this PE's tokens to all PEs, each time followed by its flag.

    With ``WHOLE`` a PE gets those tokens that have rows of its experts.
    """
    N: tl.constexpr = group_size(MEMBERS)
    program = tl.program_id(0)
    me = my_rank(MEMBERS)
    mine = gathered + me.to(tl.int64) * (MAX_TOKENS * WORDS)
    scales = gathered_scales + me * (MAX_TOKENS * S)
    sends = (program < senders) & (N > 1)
    entered = 0
    if sends:
        entered = arrive(barriers, program, MEMBERS)
    _copy(mine, a, n_tokens * WORDS, program, tl.num_programs(0), BLOCK)
    if S:
        _copy(scales, a_scales, n_tokens * S, program, tl.num_programs(0), BLOCK)
    tl.debug_barrier()
    tl.atomic_xchg(flags + me * FLAGS + program, number, sem="release", scope="gpu")
    if sends:
        wait(barriers, program, entered, MEMBERS)
        for distance in range(1, N):
            to = (me - distance + N) % N
            there = at_rank(mine, to, MEMBERS)
            if WHOLE:
                positions = memory + PARTS[6] + me * (MAX_TOKENS * K)
                begin = tl.load(memory + PARTS[1] + to * (E // N))
                end = tl.load(memory + PARTS[1] + (to + 1) * (E // N))
                _copy_tokens(there, a, positions, n_tokens, begin, end, program, senders, K, WORDS, BLOCK)
                if S:
                    there = at_rank(scales, to, MEMBERS)
                    _copy_tokens(there, a_scales, positions, n_tokens, begin, end, program, senders, K, S, BLOCK)
            else:
                _copy(there, a, n_tokens * WORDS, program, senders, BLOCK)
                if S:
                    _copy(at_rank(scales, to, MEMBERS), a_scales, n_tokens * S, program, senders, BLOCK)
            tl.debug_barrier()  # what other threads of the program stored comes before the release, too
            tl.atomic_xchg(at_rank(flags + me * FLAGS + program, to, MEMBERS), number, sem="release", scope="sys")


@triton.jit
def _await_tokens(flags, source, count, number, MEMBERS: tl.constexpr, FLAGS: tl.constexpr):
    """Wait for the flags of ``count`` programs of a source."""
    programs = tl.arange(0, FLAGS)
    row = flags + source * FLAGS
    missing = True
    polls = no_polls()
    while missing:
        seen = tl.load(row + programs, mask=programs < count, other=0, volatile=True)
        polls = poll(polls, row, dl.CMP_GE, number, pe_of(source, MEMBERS), 1, count, FLAGS, 1)
        missing = tl.min(tl.where(programs < count, seen - number, 0)) < 0
    tl.atomic_add(row + programs, 0, mask=programs < count, sem="acquire", scope="sys")
    tl.debug_barrier()  # no thread continues before the one that acquired


@triton.jit
def rows_up_to(begins, counts, me, distance, expert, mask, N: tl.constexpr, E: tl.constexpr):
    """How many rows of an expert the PEs at distances below ``distance`` have, from 0 to N."""
    own = tl.load(begins + me * E + expert, mask=mask, other=0)
    until = tl.load(begins + (me + distance) % N * E + expert, mask=mask, other=0)
    return until - own + tl.where(me + distance >= N, tl.load(counts + expert, mask=mask, other=0), 0)


@triton.jit
def tiles_up_to(begins, counts, me, distance, expert, mask, N: tl.constexpr, E: tl.constexpr, BLOCK_M: tl.constexpr):
    """How many tiles of an expert have rows of PEs at distances below ``distance`` only."""
    rows = rows_up_to(begins, counts, me, distance, expert, mask, N, E)
    return tl.where(distance == N, tl.cdiv(rows, BLOCK_M), rows // BLOCK_M)


@triton.jit
def _tile_ends(begins, counts, me, N: tl.constexpr, E: tl.constexpr, L: tl.constexpr, BLOCK_M: tl.constexpr):
    """Rows of tiles by distance and expert, in this order: [NP * LP], how many there are up to each pair's end."""
    NP: tl.constexpr = triton.next_power_of_2(N)
    LP: tl.constexpr = triton.next_power_of_2(L)
    distance = tl.arange(0, NP)[:, None]
    expert = tl.arange(0, LP)[None, :]
    mask = (distance < N) & (expert < L)
    until = tiles_up_to(begins, counts, me, distance + 1, expert, mask, N, E, BLOCK_M)
    before = tiles_up_to(begins, counts, me, distance, expert, mask, N, E, BLOCK_M)
    return tl.cumsum(tl.where(mask, until - before, 0).reshape([NP * LP]), axis=0)


@triton.jit(do_not_specialize=["n_tokens", "senders"])
def moe_all_gather_grouped_gemm(
    a, b, out, memory, a_scales, b_scales, n_tokens, senders, capacity, gathered, gathered_scales, state, barriers,
    N_COLUMNS, INNER, b_step, b_row, b_column, MEMBERS: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
    MAX_TOKENS: tl.constexpr, PARTS: tl.constexpr, WORDS: tl.constexpr, S: tl.constexpr, FLAGS: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SCALES: tl.constexpr,
    WHOLE: tl.constexpr, SWIGLU: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    L: tl.constexpr = E // N if WHOLE else E
    LP: tl.constexpr = triton.next_power_of_2(L)
    program = tl.program_id(0)
    me = my_rank(MEMBERS)
    first_expert, first_row = 0, 0
    if WHOLE:  # this PE's experts, whose rows follow each other
        first_expert = me * L
        first_row = tl.load(memory + PARTS[1] + first_expert)
        assert tl.load(memory + PARTS[1] + first_expert + L) - first_row <= capacity, (
            "dispatch_grouped_gemm: more rows arrive than capacity"
        )
    # Of each program: how many launches there were, and how many numbers they drew.
    launches, drawn, counter, flags = state, state + FLAGS, state + 2 * FLAGS, state + 3 * FLAGS
    number = tl.load(launches + program) + 1
    base = tl.load(drawn + program)
    words = gathered.to(tl.pointer_type(tl.int32), bitcast=True)
    _send(
        a, a_scales, words, gathered_scales, flags, number, senders, barriers, n_tokens, memory, MEMBERS, E, K,
        MAX_TOKENS, PARTS, WORDS, S, FLAGS, BLOCK, WHOLE,
    )  # fmt: skip
    counts, begins = memory + PARTS[0] + first_expert, memory + PARTS[3] + first_expert
    ends = _tile_ends(begins, counts, me, N, E, L, BLOCK_M)
    columns_of_tiles = tl.cdiv(N_COLUMNS, BLOCK_N)
    n_tiles = tl.max(ends) * columns_of_tiles
    awaited = 0  # of how many PEs the tokens are known to be there
    tile = tl.atomic_add(counter, 1, sem="relaxed", scope="gpu") - base
    while tile < n_tiles:
        behind = ends * columns_of_tiles > tile
        pair = tl.sum(tl.where(behind, 0, 1))
        first = tl.max(tl.where(behind, 0, ends))
        height = tl.min(tl.where(behind, ends, 0x7FFFFFFF)) - first
        distance, expert = pair // LP, pair % LP
        within = tile - first * columns_of_tiles
        row = tiles_up_to(begins, counts, me, distance, expert, expert < L, N, E, BLOCK_M) + within % height
        column = within // height
        while awaited <= distance:
            source = (me + awaited) % N
            _await_tokens(flags, source, senders if awaited > 0 else tl.num_programs(0), number, MEMBERS, FLAGS)
            awaited += 1
        n_rows = tl.load(counts + expert)
        rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
        # From this PE's first row on, around. Rows behind the last are the first once more.
        places = (tl.load(begins + me * E + expert) + rows) % n_rows
        places += tl.load(memory + PARTS[1] + first_expert + expert)
        tokens = tl.load(memory + PARTS[4] + places)
        sums = product_of_rows(
            gathered, b, gathered_scales, b_scales, expert, tokens, column, N_COLUMNS, INNER, INNER, b_step, b_row,
            b_column, BLOCK_M, BLOCK_N, BLOCK_K, SCALES, SWIGLU,
        )  # fmt: skip
        to = (places - first_row).to(tl.int64)[:, None]
        if SWIGLU:
            hidden = swiglu_of_pairs(sums, out.dtype.element_ty)
            columns = column * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
            at = out + to * (N_COLUMNS // 2) + columns[None, :]
            mask = (rows < n_rows)[:, None] & (columns < N_COLUMNS // 2)[None, :]
            tl.store(at, hidden.to(out.dtype.element_ty), mask=mask)
        else:
            columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
            at = out + to * N_COLUMNS + columns[None, :]
            tl.store(at, sums.to(out.dtype.element_ty), mask=(rows < n_rows)[:, None] & (columns < N_COLUMNS)[None, :])
        tile = tl.atomic_add(counter, 1, sem="relaxed", scope="gpu") - base
    tl.debug_barrier()  # all threads have read the numbers
    tl.store(launches + program, number)
    tl.store(drawn + program, base + n_tiles + tl.num_programs(0))


# ---- the host's part


@made_again(lambda a, b, routing, *args, **kwargs: routing.comm)
def all_gather_grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    routing: GatheredRouting,
    *,
    out: torch.Tensor | None = None,
    a_scales: torch.Tensor | None = None,
    b_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    num_sms: int = 0,
    sm_margin: int = 0,
) -> torch.Tensor:
    """Gather the tokens of all PEs, and multiply the rows of each expert by its matrix, while tokens arrive.

    *Collective* over the group of ``routing``, on the current stream. A call may be captured in a CUDA graph after it
    has run once for its sizes.

    Args:
        a: [T, K], this PE's tokens, contiguous: bfloat16, float16, float32, float8_e4m3fn or float8_e5m2. A row is a
            multiple of 16 bytes.
        b: [num_experts, K, N], this PE's columns of each expert's matrix, of the same dtype (of either, if fp8); its
            rows or columns are contiguous.
        routing: what :func:`~triton_dist.kernels.moe.gather_routing` has returned on this PE.
        out: [R, N], contiguous; by default a new tensor. It may not overlap another tensor of the call. Rows behind the
            last are left as they are.
        a_scales, b_scales: for fp8, both or none, contiguous float32, as of
            :func:`~triton_dist.kernels.moe.grouped_gemm`; those of ``a`` are of this PE's tokens, and are gathered.
        out_dtype: bfloat16 (the default for fp8), float16 or float32; by default ``out``'s or ``a``'s.
        num_sms: how many programs send; 0 for a sixth of them.
        sm_margin: how many SMs are left to other kernels.

    Returns:
        ``out``, whose rows are grouped by expert: ``routing.offsets`` and ``routing.counts`` say where. Sums are
        float32, in the same order every time.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how. RuntimeError: a CUDA
            graph is captured before a first run of the same sizes.
    """
    return gather_and_multiply(
        "all_gather_grouped_gemm", a, b, routing, out=out, a_scales=a_scales, b_scales=b_scales, out_dtype=out_dtype,
        num_sms=num_sms, sm_margin=sm_margin,
    )  # fmt: skip


def gather_and_multiply(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    routing: GatheredRouting,
    *,
    out: torch.Tensor | None,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    num_sms: int,
    sm_margin: int,
    whole: bool = False,
    swiglu: bool = False,
    capacity: int | None = None,
    hopper: ModuleType | None = None,
) -> torch.Tensor:
    """:func:`all_gather_grouped_gemm`; or, with ``whole``, of this PE's experts only, with room for ``capacity`` rows.

    With ``swiglu`` columns of ``b`` are gates and as many others, and the result has half as many. With ``hopper``,
    ``whole_experts_hopper``, the warp-specialised kernel computes what it takes.
    """
    refuse_gradients(function, a, b, a_scales, b_scales, out)
    with calling(function, communicator_of(function, routing)) as comm:
        prepared = comm.own(Prepared)
        given = [tensor for tensor in (a, b, routing.memory, a_scales, b_scales, out) if tensor is not None]
        options = (
            function, swiglu, capacity, out is None, a_scales is None, out_dtype, num_sms, sm_margin, hopper is None,
            *routing[1:5],
        )  # fmt: skip
        signature = prepared.signature(options, *given)
        known = prepared.details(signature)
        if known is not None:
            result = a.new_empty(known[0], dtype=known[1]) if out is None else out
            scales = (result if a_scales is None else a_scales, result if b_scales is None else b_scales)
            if prepared.repeat(signature, a, b, result, routing.memory, *scales):
                return result
        check_rows(function, "a", a, ROWS)
        n_tokens, inner, columns = check_groups(function, a, b, *groups_of(function, comm, routing, whole))
        if n_tokens != routing.n_tokens:
            raise ValueError(f"{function}: a has {n_tokens} rows, and routing is of {routing.n_tokens} tokens")
        kind = check_group_scales(function, a, b, a_scales, b_scales)
        n_words = routing.max_tokens * max(
            a.shape[1] * a.element_size() // 4, 0 if a_scales is None else a_scales.shape[1]
        )
        check_offsets(function, f"max_tokens ({routing.max_tokens}) rows of a", n_words)
        rows = routing.rows if capacity is None else capacity
        result = check_result(function, a, (rows, columns // 2 if swiglu else columns), out, out_dtype)
        tensors = {"a": a, "b": b, "routing.memory": routing.memory, "a_scales": a_scales, "b_scales": b_scales}
        refuse_overlap(function, {"out": out}, tensors)
        compared = function, inner, a.dtype, kind, routing.max_tokens, num_sms, sm_margin, hopper is None
        n_programs, n_senders = senders_of(function, num_sms, sm_margin)
        comm.compare(*compared)
        if hopper is not None and hopper.fits(comm, a, b, result, kind):
            hopper.dispatch(comm, a, b, result, routing, swiglu, n_programs, n_senders)
            return result
        made = _launch(comm, a, b, result, routing, a_scales, b_scales, kind, n_programs, n_senders, whole, swiglu)
        new = new_tensors(result, a_scales, b_scales, is_given=out is not None)
        prepared.keep(signature, made, *compared, details=(result.shape, result.dtype), new=new)
        return result


def new_tensors(
    result: torch.Tensor,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
    *kept: torch.Tensor,
    is_given: bool,
) -> NewTensors:
    """Those of a call, whose plan is given a, b, the result, the routing's memory, both scales, or the result in their
    place, and what is ``kept``; the result is the call's ``out`` if that ``is_given``."""
    if is_given:
        return NewTensors.besides(2, *kept, at=6)
    places = 2, *(at for at, scales in ((4, a_scales), (5, b_scales)) if scales is None)
    others = tuple((at,) for at in range(6, 6 + len(kept)))
    return NewTensors(tuple(map(like, (result, *kept))), (places, *others))


def _launch(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    routing: GatheredRouting,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
    kind: str,
    n_programs: int,
    n_senders: int,
    whole: bool,
    swiglu: bool,
) -> Launch | None:
    tile = tile_of(a.dtype, out.dtype, kind)
    (n_tokens, inner), n_scales = a.shape, 0 if a_scales is None else a_scales.shape[1]
    a, b = as_multiplied(a, b)
    words = inner * a.element_size() // 4
    gathered, scales, state, barriers = workspace(comm, routing.max_tokens, words, n_scales, n_programs)
    flags = int(triton.next_power_of_2(n_programs))
    tensors = (
        in_int32(a), b, out, routing.memory, out if a_scales is None else a_scales,
        out if b_scales is None else b_scales,
    )  # fmt: skip
    return launch(
        moe_all_gather_grouped_gemm, (n_programs,), tensors, n_tokens, n_senders, out.shape[0], gathered.view(a.dtype),
        scales, state, barriers, b.shape[2], inner, *b.stride(), MEMBERS=comm.members,
        E=routing.num_experts, K=routing.top_k, MAX_TOKENS=routing.max_tokens, PARTS=routing.parts, WORDS=words,
        S=n_scales, FLAGS=flags, BLOCK=8192, **tile, SCALES=kind, WHOLE=whole, SWIGLU=swiglu, num_warps=8, num_stages=3,
        **options_of(routing, out.shape[0]),
    )  # fmt: skip


def groups_of(
    function: str, comm: Communicator, routing: GatheredRouting, whole: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets and counts of the experts that are multiplied here: all, or, with ``whole``, this PE's."""
    if not whole:
        return routing.offsets, routing.counts
    if routing.num_experts % comm.n_pes:
        raise ValueError(
            f"{function}: num_experts must be a multiple of the {comm.n_pes} PEs, each of which has as many, got"
            f" {routing.num_experts}"
        )
    local = routing.num_experts // comm.n_pes
    first = comm.my_rank * local
    return routing.offsets.narrow(0, first, local + 1), routing.counts.narrow(0, first, local)


def options_of(routing: GatheredRouting, capacity: int) -> dict[str, bool]:
    """Of launches. ``debug`` keeps the kernel's assertion, where fewer rows have room than may come."""
    return {"debug": True, "sanitize_overflow": False} if capacity < routing.rows else {}


def gather_tokens_during(
    comm: Communicator, function: str, tokens: torch.Tensor, work: Callable[[], object]
) -> torch.Tensor:
    """All PEs' ``tokens``, gathered while what ``work()`` launches runs (:func:`gather_during`).

    *Collective*, in a call of ``function`` with ``comm``. The next :func:`all_gather_grouped_gemm` overwrites the
    result.

    Args:
        tokens: [max_tokens, K], contiguous, of dtypes and rows that :func:`all_gather_grouped_gemm` takes.
    """
    return gather_during(comm, function, _gathered, tokens, work)


def _gathered(comm: Communicator, tokens: torch.Tensor) -> torch.Tensor:
    return gathered_tokens(comm, len(tokens), tokens)


def gathered_tokens(comm: Communicator, max_tokens: int, like: torch.Tensor) -> torch.Tensor:
    """Memory for as many tokens of each PE, [n_pes * max_tokens, K], of the K and dtype of ``like``. *Collective* when
    it is made.

    Behind an :func:`all_gather_grouped_gemm`, in the same call, those that have rows are in it.
    """
    words = comm.n_pes * max_tokens * like.shape[1] * like.element_size() // 4
    return symmetric_workspace(comm, _GATHERED, words)[:words].view(like.dtype).view(-1, like.shape[1])


def workspace(
    comm: Communicator, max_tokens: int, words: int, n_scales: int, n_programs: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Memory for all tokens, of so many words, and their scales, or the same again; state of the programs, and of their
    barriers. *Collective* when it is made."""
    tokens = comm.n_pes * max_tokens
    gathered = scales = symmetric_workspace(comm, _GATHERED, tokens * words)
    if n_scales:
        found = symmetric_workspace(comm, "moe: scales of gathered tokens", tokens * n_scales)
        scales = found.view(torch.float32)
    each = int(triton.next_power_of_2(n_programs)) * (3 + comm.n_pes)
    state = symmetric_workspace(comm, f"moe: gathering by {n_programs} programs", each)
    return gathered, scales, state, barrier_state(comm, "moe: gathering")


def senders_of(function: str, num_sms: int, sm_margin: int) -> tuple[int, int]:
    """How many programs a launch has, and how many of them move rows between PEs: ``num_sms``, or a sixth if it is 0.

    At least one program is left that multiplies all the time.
    """
    n_programs = min(sms(), check_sm_margin(function, sm_margin))
    if type(num_sms) is not int:
        raise TypeError(f"{function}: num_sms must be an int, got {type(num_sms).__name__}")
    if not 0 <= num_sms < max(n_programs, 2):
        raise ValueError(f"{function}: num_sms must be in [0, {n_programs}), where 0 is for a default, got {num_sms}")
    return n_programs, num_sms or max(1, n_programs // 6)
