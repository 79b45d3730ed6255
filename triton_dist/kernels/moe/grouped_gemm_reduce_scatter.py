"""Grouped GEMM and reduce-scatter: the weighted sums of the experts' rows return to the PEs of their tokens.

A PE has columns of the experts' inputs, ``a`` [R, K], and the rows of their matrices that these are multiplied by,
``b`` [E, K, N] (tensor parallelism). Token t gets the sum over PEs of the sum over its choices of
weight · (a[row] · b[e]). Rows are as of ``gathered_routing.py``.

One persistent kernel, which goes through the columns of the result in chunks. Most programs multiply: they take the
tiles of all experts in the first chunk of columns, then those of the next one. A tile is multiplied by the weights of
its rows and stored to local memory. The first few programs add up each token's rows of a chunk when all tiles of it are
there, store these partial sums to the token's PE, and add what has come for this PE's tokens, while the others multiply
the next chunk. A program that multiplies says how many chunks it is done with.

Partial sums lie in two halves of memory, used in turn. Program p sums the same tokens on all PEs, so it needs a barrier
with program p of the others only, one a chunk, between its stores and its loads. Behind the barrier of chunk c + 1 all
have loaded what they had of chunk c: no other is needed before chunk c + 2, nor between launches.

With ``WHOLE`` a PE has some experts, with all their rows (expert parallelism): it has partial sums of those tokens that
have rows of its experts, and stores no others. That is the combine of ``whole_experts.py``.

Every sum is float32, in one order: a token's choices, then PEs. Products of rows and partial sums are rounded to the
result's dtype where they are stored. Rows are multiplied by their weights before, or, with ``WHOLE``, when they are
added up, as by ``combine.py``.
"""

from __future__ import annotations

from types import ModuleType

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.gradients import made_again, refuse_gradients
from triton_dist.kernels.moe.all_gather_grouped_gemm import groups_of, new_tensors, options_of, senders_of
from triton_dist.kernels.moe.arguments import check_offsets
from triton_dist.kernels.moe.gathered_routing import GatheredRouting, communicator_of, have_rows
from triton_dist.kernels.moe.grouped_gemm import (
    as_multiplied,
    check_group_scales,
    check_groups,
    check_result,
    product_of_rows,
    tile_of,
)
from triton_dist.kernels.overlaps import refuse_overlap
from triton_dist.kernels.prepared import Launch, Prepared, launch
from triton_dist.kernels.protocols.barrier import ROW, barrier
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.workspace import barrier_state, symmetric_workspace
from triton_dist.language._poll import no_polls, poll

__all__ = ["grouped_gemm_reduce_scatter", "multiply_and_scatter", "workspace"]

_ROW = tl.constexpr(ROW)


@triton.jit
def _publish(progress, chunks):
    """Say that this program has multiplied all its tiles of so many chunks, of all launches."""
    tl.debug_barrier()  # what other threads of the program stored comes before the release, too
    tl.atomic_xchg(progress + tl.program_id(0), chunks, sem="release", scope="gpu")


@triton.jit
def _await_products(progress, first, chunks, PROGRAMS: tl.constexpr):
    """Wait until all programs from ``first`` on are done with so many chunks."""
    programs = first + tl.arange(0, PROGRAMS)
    mask = programs < tl.num_programs(0)
    missing = True
    polls = no_polls()
    while missing:
        seen = tl.load(progress + programs, mask=mask, other=0, volatile=True)
        polls = poll(polls, progress + first, dl.CMP_GE, chunks, dl.my_pe(), 1, tl.num_programs(0) - first, PROGRAMS, 1)
        missing = tl.min(tl.where(mask, seen - chunks, 0)) < 0
    tl.atomic_add(progress + programs, 0, mask=mask, sem="acquire", scope="gpu")
    tl.debug_barrier()  # no thread continues before the one that acquired


@triton.jit
def _multiply(
    a, b, products, memory, first_expert, first_row, a_scales, b_scales, progress, base, first_program, N, K, a_step,
    b_step, b_row, b_column, L: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr, WEIGHTED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SCALES: tl.constexpr,
):  # fmt: skip
    """Every tile of L experts, times the weights of its rows if ``WEIGHTED``, to ``products``."""
    experts = tl.arange(0, triton.next_power_of_2(L))
    counts = tl.load(memory + PARTS[0] + first_expert + experts, mask=experts < L, other=0)
    ends = tl.cumsum(tl.cdiv(counts, BLOCK_M), axis=0)
    height_of_all = tl.max(ends)
    columns_of_tiles = tl.cdiv(N, BLOCK_N)
    width_of_chunk: tl.constexpr = CHUNK // BLOCK_N
    chunk = 0
    tile = tl.program_id(0) - first_program
    while tile < height_of_all * columns_of_tiles:
        at_chunk = tile // (height_of_all * width_of_chunk)
        if at_chunk > chunk:
            _publish(progress, base + at_chunk)
            chunk = at_chunk
        inside = tile - chunk * height_of_all * width_of_chunk
        width = tl.minimum(width_of_chunk, columns_of_tiles - chunk * width_of_chunk)
        behind = ends * width > inside
        expert = tl.sum(tl.where(behind, 0, 1))
        first = tl.max(tl.where(behind, 0, ends))
        height = tl.min(tl.where(behind, ends, 0x7FFFFFFF)) - first
        within = inside - first * width
        column = chunk * width_of_chunk + within // height
        rows = within % height * BLOCK_M + tl.arange(0, BLOCK_M)
        n_rows = tl.load(memory + PARTS[0] + first_expert + expert)
        # Behind the last row are the first ones once more.
        places = tl.load(memory + PARTS[1] + first_expert + expert) - first_row + rows % n_rows
        sums = product_of_rows(
            a, b, a_scales, b_scales, expert, places, column, N, K, a_step, b_step, b_row, b_column, BLOCK_M, BLOCK_N,
            BLOCK_K, SCALES,
        )  # fmt: skip
        if WEIGHTED:
            sums *= tl.load(memory + PARTS[5] + first_row + places).to(tl.float32, bitcast=True)[:, None]
        columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
        at = products + places.to(tl.int64)[:, None] * N + columns[None, :]
        tl.store(at, sums.to(products.dtype.element_ty), mask=(rows < n_rows)[:, None] & (columns < N)[None, :])
        tile += tl.num_programs(0) - first_program
    _publish(progress, base + tl.cdiv(columns_of_tiles, width_of_chunk))


@triton.jit
def _send_sums(
    products, memory, first_row, end_row, slots, half, chunk, reducers, N_COLUMNS, MEMBERS: tl.constexpr,
    K: tl.constexpr, MAX_TOKENS: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr, WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Partial sums of a chunk of columns to all PEs, for the tokens that are this program's.

    With ``WHOLE`` this PE has the rows from ``first_row`` to ``end_row``, and tokens without one of them have no sum
    here; with ``WEIGHTED``, too, rows are multiplied by their weights now.
    """
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    mine = slots + (half * N + me).to(tl.int64) * (MAX_TOKENS * CHUNK)
    for i in range(1, N + 1):  # this PE's own last
        rank = (me + i) % N
        there = at_rank(mine, rank, MEMBERS)
        n_tokens = tl.load(memory + PARTS[2] + rank)
        for batch in range(tl.program_id(0), tl.cdiv(n_tokens, B), reducers):
            tokens = batch * B + tl.arange(0, B)
            positions = memory + PARTS[6] + rank * MAX_TOKENS * K
            choices = positions + tokens * K
            sends = tokens < n_tokens
            if WHOLE:
                sends = have_rows(positions, tokens, n_tokens, first_row, end_row, K)
            for first in range(0, CHUNK, BLOCK):
                inside = first + tl.arange(0, BLOCK)
                columns = chunk * CHUNK + inside
                sums = tl.zeros([B, BLOCK], tl.float32)
                for k in tl.static_range(K):
                    row = tl.load(choices + k, mask=tokens < n_tokens, other=-1)
                    if WHOLE:
                        row = tl.where((row >= first_row) & (row < end_row), row - first_row, -1)
                    at = products + row.to(tl.int64)[:, None] * N_COLUMNS + columns[None, :]
                    made = (row >= 0)[:, None] & (columns < N_COLUMNS)[None, :]
                    value = tl.load(at, mask=made, other=0.0).to(tl.float32)
                    if WHOLE and WEIGHTED:
                        weight = tl.load(memory + PARTS[5] + first_row + row, mask=row >= 0, other=0)
                        value *= weight.to(tl.float32, bitcast=True)[:, None]
                    sums += value
                to = there + tokens[:, None] * CHUNK + inside[None, :]
                stored = sends[:, None] & (columns < N_COLUMNS)[None, :]
                tl.store(to, sums.to(slots.dtype.element_ty), mask=stored)


@triton.jit
def _receive_sums(
    out, memory, slots, half, chunk, reducers, n_tokens, N_COLUMNS, MEMBERS: tl.constexpr, E: tl.constexpr,
    K: tl.constexpr, MAX_TOKENS: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr, WHOLE: tl.constexpr,
    B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add what all PEs have sent of a chunk of columns, for those of this PE's tokens that are this program's."""
    N: tl.constexpr = group_size(MEMBERS)
    positions = memory + PARTS[6] + my_rank(MEMBERS) * (MAX_TOKENS * K)
    for batch in range(tl.program_id(0), tl.cdiv(n_tokens, B), reducers):
        tokens = batch * B + tl.arange(0, B)
        for first in range(0, CHUNK, BLOCK):
            inside = first + tl.arange(0, BLOCK)
            columns = chunk * CHUNK + inside
            mask = (tokens < n_tokens)[:, None] & (columns < N_COLUMNS)[None, :]
            sums = tl.zeros([B, BLOCK], tl.float32)
            for rank in tl.static_range(N):
                source = slots + (half * N + rank).to(tl.int64) * (MAX_TOKENS * CHUNK)
                sent = mask
                if WHOLE:
                    begin = tl.load(memory + PARTS[1] + rank * (E // N))
                    end = tl.load(memory + PARTS[1] + (rank + 1) * (E // N))
                    sent = mask & have_rows(positions, tokens, n_tokens, begin, end, K)[:, None]
                sums += tl.load(source + tokens[:, None] * CHUNK + inside[None, :], mask=sent, other=0.0).to(tl.float32)
            at = out + tokens.to(tl.int64)[:, None] * N_COLUMNS + columns[None, :]
            tl.store(at, sums.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n_tokens", "reducers"])
def moe_grouped_gemm_reduce_scatter(
    a, b, out, memory, a_scales, b_scales, products, n_tokens, reducers, capacity, slots, progress, barriers,
    N_COLUMNS, INNER, a_step, b_step, b_row, b_column, MEMBERS: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
    MAX_TOKENS: tl.constexpr, PARTS: tl.constexpr, CHUNK: tl.constexpr, PROGRAMS: tl.constexpr,
    WEIGHTED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, SCALES: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    L: tl.constexpr = E // group_size(MEMBERS) if WHOLE else E
    program = tl.program_id(0)
    first_expert, first_row, end_row = 0, 0, 0
    if WHOLE:  # this PE's experts, whose rows follow each other
        first_expert = my_rank(MEMBERS) * L
        first_row = tl.load(memory + PARTS[1] + first_expert)
        end_row = tl.load(memory + PARTS[1] + first_expert + L)
        assert end_row - first_row <= capacity, "grouped_gemm_combine: a has fewer rows than have come"
    base = tl.load(progress + program)  # the same in all programs: as many chunks as all launches had
    # Programs with low numbers wait for others: they are resident whenever those are.
    if program >= reducers:
        _multiply(
            a, b, products, memory, first_expert, first_row, a_scales, b_scales, progress, base, reducers, N_COLUMNS,
            INNER, a_step, b_step, b_row, b_column, L, PARTS, CHUNK, WEIGHTED and not WHOLE, BLOCK_M, BLOCK_N, BLOCK_K,
            SCALES,
        )  # fmt: skip
    else:
        n_chunks = tl.cdiv(N_COLUMNS, CHUNK)
        for chunk in range(n_chunks):
            _await_products(progress, reducers, base + chunk + 1, PROGRAMS)
            half = tl.load(barriers + program * _ROW + (_ROW - 1)) & 1  # of the number of barriers before
            _send_sums(
                products, memory, first_row, end_row, slots, half, chunk, reducers, N_COLUMNS, MEMBERS, K, MAX_TOKENS,
                PARTS, CHUNK, WHOLE, WEIGHTED, B, BLOCK,
            )  # fmt: skip
            barrier(barriers, program, MEMBERS)
            _receive_sums(
                out, memory, slots, half, chunk, reducers, n_tokens, N_COLUMNS, MEMBERS, E, K, MAX_TOKENS, PARTS,
                CHUNK, WHOLE, B, BLOCK,
            )  # fmt: skip
        tl.debug_barrier()  # all threads have read the number
        tl.store(progress + program, base + n_chunks)


# ---- the host's part


@made_again(lambda a, b, routing, *args, **kwargs: routing.comm)
def grouped_gemm_reduce_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    routing: GatheredRouting,
    *,
    weighted: bool = True,
    out: torch.Tensor | None = None,
    a_scales: torch.Tensor | None = None,
    b_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    num_sms: int = 0,
    sm_margin: int = 0,
) -> torch.Tensor:
    """Multiply each expert's rows by its matrix, and return to each PE the sums of its tokens' rows over all PEs.

    *Collective* over the group of ``routing``, on the current stream. A call may be captured in a CUDA graph after it
    has run once for its sizes.

    Args:
        a: [R, K], with contiguous rows, this PE's columns of the rows: bfloat16, float16, float32, float8_e4m3fn or
            float8_e5m2. Rows are those of :func:`~triton_dist.kernels.moe.all_gather_grouped_gemm`.
        b: [num_experts, K, N], this PE's rows of each expert's matrix, of the same dtype (of either, if fp8); its rows
            or columns are contiguous.
        routing: what :func:`~triton_dist.kernels.moe.gather_routing` has returned on this PE.
        weighted: multiply each row by its weight.
        out: [T, N], contiguous; by default a new tensor. It may not overlap another tensor of the call.
        a_scales, b_scales: for fp8, as of :func:`~triton_dist.kernels.moe.grouped_gemm`.
        out_dtype: bfloat16 (the default for fp8), float16 or float32; by default ``out``'s or ``a``'s.
        num_sms: how many programs add up and send; 0 for a sixth of them.
        sm_margin: how many SMs are left to other kernels.

    Returns:
        ``out``: for each of this PE's tokens the sum over PEs of the sum over its choices. All sums are float32, in
        this order every time; a row's product and a PE's sum are rounded to ``out``'s dtype. Tokens without an expert
        are 0.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how. RuntimeError: a CUDA
            graph is captured before a first run of the same sizes.
    """
    return multiply_and_scatter(
        "grouped_gemm_reduce_scatter", a, b, routing, weighted=weighted, out=out, a_scales=a_scales,
        b_scales=b_scales, out_dtype=out_dtype, num_sms=num_sms, sm_margin=sm_margin,
    )  # fmt: skip


def multiply_and_scatter(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    routing: GatheredRouting,
    *,
    weighted: bool,
    out: torch.Tensor | None,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    num_sms: int,
    sm_margin: int,
    whole: bool = False,
    hopper: ModuleType | None = None,
) -> torch.Tensor:
    """:func:`grouped_gemm_reduce_scatter`; or, with ``whole``, of the rows of this PE's experts, as many as ``a`` has
    room for. With ``hopper``, ``whole_experts_hopper``, the warp-specialised kernel computes what it takes."""
    refuse_gradients(function, a, b, a_scales, b_scales, out)
    with calling(function, communicator_of(function, routing)) as comm:
        prepared = comm.own(Prepared)
        given = [tensor for tensor in (a, b, routing.memory, a_scales, b_scales, out) if tensor is not None]
        options = (
            function, weighted, out is None, a_scales is None, out_dtype, num_sms, sm_margin, hopper is None,
            *routing[1:5],
        )  # fmt: skip
        signature = prepared.signature(options, *given)
        known = prepared.details(signature)
        if known is not None:
            result = a.new_empty(known[0], dtype=known[1]) if out is None else out
            products = result.new_empty(a.shape[0], result.shape[1])
            scales = (result if a_scales is None else a_scales, result if b_scales is None else b_scales)
            if prepared.repeat(signature, a, b, result, routing.memory, *scales, products):
                return result
        n_rows, _, columns = check_groups(function, a, b, *groups_of(function, comm, routing, whole))
        if n_rows != routing.rows and not whole:
            raise ValueError(f"{function}: a has {n_rows} rows, and routing has room for {routing.rows}")
        kind = check_group_scales(function, a, b, a_scales, b_scales)
        result = check_result(function, a, (routing.n_tokens, columns), out, out_dtype)
        chunk = _chunk_of(columns, max(128, tile_of(a.dtype, result.dtype, kind)["BLOCK_N"]))
        what = f"max_tokens ({routing.max_tokens}) rows of chunks of {chunk} columns"
        check_offsets(function, what, routing.max_tokens * chunk)
        tensors = {"a": a, "b": b, "routing.memory": routing.memory, "a_scales": a_scales, "b_scales": b_scales}
        refuse_overlap(function, {"out": out}, tensors)
        n_programs, n_reducers = senders_of(function, num_sms, sm_margin)
        if n_programs < 2:
            raise ValueError(f"{function}: sm_margin must leave two SMs or more, got {sm_margin}")
        compared = function, columns, result.dtype, weighted, routing.max_tokens, num_sms, sm_margin, hopper is None
        comm.compare(*compared)
        if hopper is not None and hopper.fits(comm, a, b, result, kind):
            chunk = _chunk_of(columns, 128)
            hopper.multiply_and_combine(comm, a, b, result, routing, weighted, chunk, n_programs, n_reducers)
            return result
        made = _launch(comm, a, b, result, routing, a_scales, b_scales, kind, weighted, n_programs, n_reducers, whole)
        kept = () if made is None else made.tensors[6:]
        new = new_tensors(result, a_scales, b_scales, *kept, is_given=out is not None)
        prepared.keep(signature, made, *compared, details=(result.shape, result.dtype), new=new)
        return result


def _launch(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    routing: GatheredRouting,
    a_scales: torch.Tensor | None,
    b_scales: torch.Tensor | None,
    kind: str,
    weighted: bool,
    n_programs: int,
    n_reducers: int,
    whole: bool,
) -> Launch | None:
    tile = tile_of(a.dtype, out.dtype, kind)
    a, b = as_multiplied(a, b)
    columns = b.shape[2]
    products = out.new_empty(a.shape[0], columns)
    chunk, slots, progress, barriers = workspace(
        comm, routing.max_tokens, columns, a.dtype, out.dtype, kind, n_programs, n_reducers
    )
    tensors = (
        a, b, out, routing.memory, out if a_scales is None else a_scales, out if b_scales is None else b_scales,
        products,
    )  # fmt: skip
    return launch(
        moe_grouped_gemm_reduce_scatter, (n_programs,), tensors, routing.n_tokens, n_reducers, a.shape[0], slots,
        progress, barriers, columns, a.shape[1], a.stride(0), *b.stride(),
        MEMBERS=comm.members, E=routing.num_experts, K=routing.top_k, MAX_TOKENS=routing.max_tokens,
        PARTS=routing.parts, CHUNK=chunk, PROGRAMS=int(triton.next_power_of_2(n_programs)), WEIGHTED=weighted, B=4,
        BLOCK=min(512, chunk), **tile, SCALES=kind, WHOLE=whole, num_warps=8, num_stages=3,
        **options_of(routing, a.shape[0]),
    )  # fmt: skip


def workspace(
    comm: Communicator,
    max_tokens: int,
    columns: int,
    operands: torch.dtype,
    result: torch.dtype,
    scales: str,
    n_programs: int,
    n_reducers: int,
) -> tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of how many columns a chunk is; slots for the sums of a chunk; the progress of programs, and state of their
    barriers. *Collective* when it is made."""
    chunk = _chunk_of(columns, tile_of(operands, result, scales)["BLOCK_N"])
    name = f"moe: sums of {max_tokens} tokens, chunks of {chunk} {result} by {n_reducers} programs"
    slots = symmetric_workspace(comm, name, 2 * comm.n_pes * max_tokens * chunk, result)
    progress = symmetric_workspace(comm, f"moe: progress of {n_programs} programs, {n_reducers} reduce", n_programs)
    return chunk, slots, progress, barrier_state(comm, f"moe: scattering by {n_reducers} programs")


def _chunk_of(columns: int, block_n: int) -> int:
    """Of how many columns a chunk is: tiles, a power of two of them, about a quarter of all."""
    most = 8 if triton_dist.kind() == "gpu" else 2
    return block_n * min(most, int(triton.next_power_of_2(-(-columns // (4 * block_n)))))
