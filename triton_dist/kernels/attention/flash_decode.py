"""Flash decode: attention of new tokens' queries to a KV cache that lies on several PEs, split along the sequence.

One kernel. Each PE attends to its own keys, in blocks that are dealt to its programs (stream-K, ``work.py``). The parts
of a task are merged through this PE's memory, as a tree by the programs that finish last, and only one partial result
of each head is sent. The merged result is sent at once, with a flag beside each word (``exchange.py``), to all PEs, or
to the head's owner. When a program has computed all of its run, it combines the tasks that it sent, with what the other
PEs have sent meanwhile, and stores them.

Partial results are float32, and sums have a fixed order, so results are the same bits on all PEs and every time.

No program waits before it has sent all that it computes, and tasks are in the same order on all PEs. So the kernel
ends however few programs are resident: of the tasks that some PE has not sent, the first depends on no other.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.attention.arguments import (
    Call,
    First,
    Shape,
    are_passed_on,
    check,
    first_arguments,
    least_radix,
    most_programs,
    signature_of,
)
from triton_dist.kernels.attention.exchange import (
    HEADER,
    combined,
    half_of,
    launch_number,
    look_at_columns,
    look_at_ends,
    send_rows,
    sum_of_rows,
    weights_of,
)
from triton_dist.kernels.attention.partial import attend, load_queries, merge
from triton_dist.kernels.attention.work import run_of, task_at
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.dependent_launch import dependent, launch_options, let_next_begin, wait_for_previous
from triton_dist.kernels.device import sms
from triton_dist.kernels.new_tensors import NewTensors
from triton_dist.kernels.prepared import Launch, Part, Prepared, launch, steps
from triton_dist.kernels.protocols.members import Members, group_size, my_rank
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.kernels.tile_order import heads_in_step, tasks_in_step
from triton_dist.kernels.tracing.events import COMPUTE, SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["attend_locally", "flash_decode", "local_parts", "reserve_slots"]

_LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _store_part(parts, part, there, total, largest, weight):
    ROWS: tl.constexpr = total.shape[0]
    DV: tl.constexpr = total.shape[1]
    parts += part.to(tl.int64) * (ROWS * (DV + 2))
    heads = tl.arange(0, ROWS)
    tl.store(parts + heads[:, None] * DV + tl.arange(0, DV)[None, :], total, mask=there[:, None])
    tl.store(parts + ROWS * DV + heads, largest, mask=there)
    tl.store(parts + ROWS * (DV + 1) + heads, weight, mask=there)


@triton.jit
def _slot(starts_in, i):
    """Where part ``i`` of a task lies, which begins in program ``starts_in``: a program has parts of two tasks."""
    return 2 * (starts_in + i) + tl.where(i == 0, 1, 0)


@triton.jit
def _merged(parts, starts_in, first, step, n_parts, there, ROWS: tl.constexpr, DV: tl.constexpr, WAYS: tl.constexpr):
    """Every ``step``-th part of a task from part ``first`` on, so many, merged in a fixed order, ``WAYS`` at a time."""
    heads, inner = tl.arange(0, ROWS), tl.arange(0, DV)
    total = tl.zeros([ROWS, DV], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_parts, WAYS):
        i = start + tl.arange(0, WAYS)
        part = parts + _slot(starts_in, first + i * step).to(tl.int64) * (ROWS * (DV + 2))
        used = (i < n_parts)[:, None] & there[None, :]
        ends = part[:, None] + ROWS * DV + heads[None, :]
        places = part[:, None, None] + heads[None, :, None] * DV + inner[None, None, :]
        total, largest, weight = merge(
            total, largest, weight, tl.load(places, mask=used[:, :, None], other=0.0),
            tl.load(ends, mask=used, other=float("-inf")), tl.load(ends + ROWS, mask=used, other=0.0),
        )  # fmt: skip
    return total, largest, weight


@triton.jit
def _merge_parts(
    parts, counters, i, starts_in, n_parts, there, total, largest, weight, WAYS: tl.constexpr, RADIX: tl.constexpr
):
    """Hand over part ``i`` of a task, and merge what is complete: all of the task, where the last result is True.

    A tree: of ``RADIX`` neighbours, whichever program finishes last merges all, and goes on with the result as one of
    the next ``RADIX``. A short context has as many parts as a long one, of a block or two; one program would merge them
    all for longer than it takes to compute them. No program waits for another.
    """
    ROWS: tl.constexpr = total.shape[0]
    DV: tl.constexpr = total.shape[1]
    reach = 1  # how many parts lie in what is handed over
    last = n_parts > 1
    while last & (reach < n_parts):
        _store_part(parts, _slot(starts_in, i), there, total, largest, weight)
        first = i // (reach * RADIX) * (reach * RADIX)
        neighbours = tl.cdiv(tl.minimum(n_parts - first, reach * RADIX), reach)
        tl.debug_barrier()
        counter = counters + _slot(starts_in, first)
        last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == neighbours - 1
        tl.debug_barrier()
        if last:
            tl.store(counter, 0)
            total, largest, weight = _merged(parts, starts_in, first, reach, neighbours, there, ROWS, DV, WAYS)
            tl.debug_barrier()  # all threads have read the part that is overwritten next
        i = first
        reach *= RADIX
        counters += 2 * tl.num_programs(0)
    return total, largest, weight, last


@triton.jit
def _store_heads(out, lse, rows, there, total, largest, weight, v_scale, DV: tl.constexpr, first):
    divisor = tl.where(weight == 0.0, 1.0, weight)
    values = total * (v_scale / divisor)[:, None]
    places = out + rows.to(tl.int64)[:, None] * DV + first + tl.arange(0, total.shape[1])[None, :]
    tl.store(places, values.to(out.dtype.element_ty), mask=there[:, None])
    if lse is not None:
        tl.store(lse + rows, tl.where(weight == 0.0, float("-inf"), (largest + tl.log2(divisor)) * _LN_2), mask=there)


@triton.jit
def _scale_of(scales, head, step):
    if scales is None:
        return 1.0
    else:
        return tl.load(scales + head * step)


@triton.jit(do_not_specialize=["window", "interleave", "n_requests", "capacity", "pages"])
def flash_decode_kernel(
    q, k, v, lengths, table, out, lse, parts, k_scale, v_scale, slots, half, counters, trace, n_requests, scale,
    window, interleave, capacity, pages, page_size, k_scale_step, v_scale_step, q_request, q_head, k_page, k_token,
    k_head, v_page, v_token, v_head, table_request,
    QUERY_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr, DV: tl.constexpr,
    D: tl.constexpr, REST: tl.constexpr, BLOCK_N: tl.constexpr, REQUESTS: tl.constexpr, PAGED: tl.constexpr,
    PAGE: tl.constexpr, V_IN_K: tl.constexpr, SCATTER: tl.constexpr, PES: tl.constexpr, TOGETHER: tl.constexpr,
    COLUMNS: tl.constexpr, WAYS: tl.constexpr, RADIX: tl.constexpr, TILE_GROUPS: tl.constexpr,
    HEAD_GROUPS: tl.constexpr, MEMBERS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    wait_for_previous(DEPENDENT)
    SIZE: tl.constexpr = group_size(MEMBERS)
    SHARING: tl.constexpr = QUERY_HEADS // KV_HEADS
    GROUPS: tl.constexpr = TILE_GROUPS * HEAD_GROUPS
    EACH: tl.constexpr = TILES // TILE_GROUPS  # tiles of a KV head that a group of programs has
    TASKS: tl.constexpr = KV_HEADS // HEAD_GROUPS * EACH
    OWNED: tl.constexpr = QUERY_HEADS // SIZE if SCATTER else QUERY_HEADS
    lanes = tl.num_programs(0) // GROUPS
    lane, group = tl.program_id(0), 0
    if GROUPS > 1:
        lane, group = tl.program_id(0) % lanes, tl.program_id(0) // lanes
        parts += (group * lanes).to(tl.int64) * (2 * ROWS * (DV + 2))
        counters += 2 * group * lanes
    first_tile = group % TILE_GROUPS * EACH
    first_kv_head = group // TILE_GROUPS * (KV_HEADS // HEAD_GROUPS)
    rank = my_rank(MEMBERS) if SIZE > 1 else 0
    n_rows = n_requests * OWNED
    first, last, quota, ends = run_of(
        lengths, n_requests, rank, interleave, capacity, window, lane, lanes, TASKS, BLOCK_N, REQUESTS, SIZE
    )
    number = 0
    if first < last:  # else the launch may have ended its use of the number
        number = launch_number(slots)
    here = half_of(slots, number, half)
    finished = 0  # of the tasks that are not whole, bit 1: the one that began earlier; bit 2: the one that goes on
    block = first
    while block < last:
        began = clock(trace)
        request, task, start, blocks, begin, end = task_at(
            block, ends, lengths, rank, interleave, capacity, window, TASKS, BLOCK_N, SIZE
        )
        count = tl.minimum(last, start + blocks) - block
        kv_head = first_kv_head + task // EACH
        first_head = (first_tile + task % EACH) * ROWS
        where = (request * GROUPS + group) * TASKS + task
        heads = first_head + tl.arange(0, ROWS)
        there = heads < SHARING
        heads += kv_head * SHARING
        of_request = q + request.to(tl.int64) * q_request
        queries = load_queries(of_request, heads, there, q_head, 0, D)
        rest = queries
        if REST > 0:
            rest = load_queries(of_request, heads, there, q_head, D, REST)
        keys = begin + ((block - start) * BLOCK_N).to(tl.int32)
        place = 0 if PAGED else request.to(tl.int64)
        total, largest, weight = attend(
            queries, rest, k + place * k_page + kv_head.to(tl.int64) * k_head,
            v + place * v_page + kv_head.to(tl.int64) * v_head, table + request.to(tl.int64) * table_request,
            keys, tl.minimum(end, keys + (count * BLOCK_N).to(tl.int32)), pages, page_size, k_page, k_token, v_page,
            v_token, scale * _scale_of(k_scale, kv_head, k_scale_step), DV, D, REST, BLOCK_N, PAGED, PAGE, V_IN_K,
        )  # fmt: skip
        record_event(trace, COMPUTE, where, began)
        complete = count == blocks
        if count < blocks:
            starts_in = (start // quota).to(tl.int32)
            n_parts = ((start + blocks - 1) // quota).to(tl.int32) - starts_in + 1
            total, largest, weight, complete = _merge_parts(
                parts, counters, lane - starts_in, starts_in, n_parts, there, total, largest, weight, WAYS, RADIX
            )  # fmt: skip
            if complete:
                finished += tl.where(block == start, 2, 1)
        if complete:
            began = clock(trace)
            if SIZE == 1:
                rows = request * OWNED + heads
                _store_heads(
                    out, lse, rows, there, total, largest, weight, _scale_of(v_scale, kv_head, v_scale_step), DV, 0
                )
            else:
                rows = request * OWNED + heads % OWNED
                send_rows(here, rows, heads // OWNED, there, n_rows, total, largest, weight, number, SCATTER, MEMBERS)
            record_event(trace, SEND, where, began)
        block += count
    let_next_begin(DEPENDENT)
    if SIZE > 1:
        block = first
        tasks = 0
        while block < last:
            request, task, start, blocks, begin, end = task_at(
                block, ends, lengths, rank, interleave, capacity, window, TASKS, BLOCK_N, SIZE
            )
            count = tl.minimum(last, start + blocks) - block
            kv_head = first_kv_head + task // EACH
            first_head = (first_tile + task % EACH) * ROWS
            where = (request * GROUPS + group) * TASKS + task
            if (count == blocks) | ((finished & tl.where(block == start, 2, 1)) != 0):
                factor = _scale_of(v_scale, kv_head, v_scale_step)
                for tile in range(first_head, tl.minimum(first_head + ROWS, SHARING), TOGETHER):
                    heads = tile + tl.arange(0, TOGETHER)
                    there = heads < SHARING
                    heads += kv_head * SHARING
                    if SCATTER:
                        there = there & (heads // OWNED == rank)
                    rows = request * OWNED + heads % OWNED
                    row = (request * OWNED + (kv_head * SHARING + tile) % OWNED).to(tl.int64)
                    # Columns are asked for together with the ends, which are waited for first.
                    columns = look_at_columns(here, rows, there, n_rows, 0, DV, COLUMNS, PES, MEMBERS)
                    ends_found = look_at_ends(here, rows, there, n_rows, DV, PES, MEMBERS)
                    factors, largest, weight = weights_of(
                        ends_found, here, row, rows, there, n_rows, number, trace, where, DV, PES, MEMBERS
                    )
                    for column in range(0, DV, COLUMNS):
                        total = sum_of_rows(
                            columns, here, row, rows, there, n_rows, factors, column, number, trace, where, DV,
                            COLUMNS, MEMBERS,
                        )  # fmt: skip
                        if column + COLUMNS < DV:
                            columns = look_at_columns(
                                here, rows, there, n_rows, column + COLUMNS, DV, COLUMNS, PES, MEMBERS
                            )
                        _store_heads(out, lse, rows, there, total, largest, weight, factor, DV, column)
                tasks += 1
            block += count
        if tasks > 0:
            combined(slots, number, tasks, n_requests * TASKS * GROUPS)


def flash_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor | None,
    lengths: torch.Tensor,
    *,
    block_table: torch.Tensor | None = None,
    head_dim_v: int | None = None,
    scale: float | None = None,
    window: int | None = None,
    interleave: int | None = None,
    k_scale: torch.Tensor | float | None = None,
    v_scale: torch.Tensor | float | None = None,
    scatter_heads: bool = False,
    group: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one query for each request and head to a KV cache that is split along the sequence.

    Position p of a sequence lies on PE ``p // interleave % n_pes``, where it is key
    ``p // (interleave * n_pes) * interleave + p % interleave`` of its request. So ``interleave`` positions in a row lie
    on one PE. The default, all that a request's part of a cache holds, splits sequences into one piece for each PE.
    (With a group ``n_pes`` and ``my_pe`` are its size and this PE's rank.)

    Args:
        q: [B, HQ, D], float16, bfloat16 or float32; the same on every PE.
        k_cache: this PE's keys: [B, S, HKV, D], or with ``block_table`` pages [P, page_size, HKV, D]. Of ``q``'s dtype,
            float8_e4m3fn or float8_e5m2, with contiguous last dimension. HQ is a multiple of HKV. D is a power of two
            of at least 16, or the sum of two (MLA's 576).
        v_cache: [..., HKV, DV], like ``k_cache``; DV is a power of two up to 512. None if values are the first
            ``head_dim_v`` elements of keys, as in MLA; that is then D's larger power of two.
        lengths: [B], int32, on the device: how many positions each sequence has on all PEs together, 0 included; the
            same on every PE. Keys behind a PE's part of the cache do not exist.
        block_table: [B, pages of a request], int32: where this PE's keys lie; entries in use are in [0, P). Another
            is an error of the kernel in the CPU world, and on GPUs with ``TRITON_DEBUG=1``; without, GPUs do not look.
        scale: what logits are multiplied by; by default 1 / sqrt(D). The same on every PE.
        window: attend to the last ``window`` positions only.
        interleave: see above.
        k_scale, v_scale: what keys and values of fp8 are multiplied by: a number, or float32 tensors of one element or
            one for each KV head; the same on every PE.
        scatter_heads: leave each PE the heads ``[my_pe * HQ / n_pes, (my_pe + 1) * HQ / n_pes)`` only, and send no
            others to it.

    Returns:
        the output, of ``q``'s dtype, [B, HQ, DV], zero for a sequence of length 0; and the logarithm of the sum of the
        exponentials of the logits, float32 [B, HQ]. With ``scatter_heads`` of HQ / n_pes heads.

    *Collective*, on the current stream. When a call has ended on a PE, as far as that PE's stream is concerned, its
    results are complete there and its inputs may be overwritten. A call may be captured in a CUDA graph after it has
    run once for its shape; replays read ``lengths`` and ``block_table`` anew. Nothing need be symmetric. Launches are
    of up to 256 requests, and of as many as there are slots for.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    with calling("flash_decode", group) as comm:
        prepared = comm.own(Prepared)
        options = "flash_decode", head_dim_v, scale, window, interleave, scatter_heads
        given = q, k_cache, v_cache, lengths, block_table
        signature = signature_of(prepared, options, (k_scale, v_scale), *given)
        new: NewTensors | None = prepared.details(signature)
        if new is not None:
            out, lse, parts = new.tensors()
            if prepared.repeat(signature, *first_arguments(*given, out, lse, parts, k_scale, v_scale)):
                return out, lse
        call = check(
            "flash_decode", comm.n_pes, q, k_cache, v_cache, lengths, block_table, head_dim_v, scale, window,
            interleave, k_scale, v_scale, scatter_heads,
        )  # fmt: skip
        # Caches may hold a different number of keys or pages on each PE, but where that says which keys a PE has.
        sizes = *k_cache.shape[2:], call.head_dim_v, call.window, call.interleave
        factors = q.shape[2] ** -0.5 if scale is None else float(scale), *(() if call.v_scale is None else ("v_scale",))
        compared = "flash_decode", q.shape, q.dtype, *sizes, *factors, call.scatter
        comm.compare(*compared)
        heads = q.shape[1] // comm.n_pes if scatter_heads else q.shape[1]
        together, half = _slots_of(comm.n_pes, q.shape[0], heads, call.head_dim_v)
        cut = _cut(comm.members, call)
        out = q.new_empty(q.shape[0], heads, call.head_dim_v)
        lse = q.new_empty(q.shape[0], heads, dtype=torch.float32)
        parts = q.new_empty(cut.parts, dtype=torch.float32)
        first = first_arguments(q, k_cache, v_cache, lengths, block_table, out, lse, parts, call.k_scale, call.v_scale)
        made = _launches(comm, comm.members, call, cut, first, together, half)
        if are_passed_on(k_scale, v_scale):
            # One launch takes the tensors of a call as they are. Tensors are made of numbers in front of it.
            again = made[0][0] if len(made) == 1 else steps(*made)
            new = NewTensors.of(out, lse, at=First._fields.index("out"), kept=(parts,), returned=tuple)
            has_numbers = type(k_scale) in (int, float) or type(v_scale) in (int, float)
            prepared.keep(signature, again, *compared, details=new, new=None if has_numbers else new)
        return out, lse


_MOST_REQUESTS = 256


def local_parts(call: Call) -> int:
    """How many float32 :func:`attend_locally` wants for parts of tasks."""
    return _cut(_ONE_PE, call).parts


def attend_locally(comm: Communicator, call: Call, first: First) -> list[Part]:
    """Store attention to keys of which this PE has all to ``first.out``, [B, HQ, DV]. No peer is waited for.

    Returns:
        the launches; what they take of a call are its first tensors, like ``first``.
    """
    return _launches(comm, _ONE_PE, call, _cut(_ONE_PE, call), first, _MOST_REQUESTS, 0)


_ONE_PE = Members(0, 1, 1)
"""The same on every PE: the kernel asks for its rank only where there are several."""


def _half_words() -> int:
    """How many words each half of the slots may have."""
    return (8 << 20) if triton_dist.kind() == "gpu" else (64 << 10)


def _slots_of(n_pes: int, n_requests: int, heads: int, head_dim_v: int) -> tuple[int, int]:
    """How many of the requests a launch has at most, and how many words each half of the slots then has."""
    words = n_pes * heads * (head_dim_v + 2)  # of a request
    together = min(n_requests, _MOST_REQUESTS, max(1, _half_words() // words))
    return together, (1 << (together * words - 1).bit_length()) if n_pes > 1 else 0


def _workspace(comm: Communicator, half: int, programs: int, radix: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Slots with so many words in each half, and counters of parts of tasks. *Collective* when they are made."""
    slots = symmetric_workspace(comm, "flash_decode", HEADER.value + 2 * half, torch.int64)
    levels = math.ceil(math.log(max(programs, 2), radix)) + 1  # of the tree of parts, with one for rounding
    return slots, symmetric_workspace(comm, "flash_decode, counters", max(4096, levels * 2 * programs))


def reserve_slots(comm: Communicator, n_requests: int, heads: int, head_dim_v: int) -> None:
    """Make the slots of calls with up to so many requests, whatever their lengths. *Collective.*

    Args:
        heads: of queries whose results a PE gets. head_dim_v: elements of a value.
    """
    _, half = _slots_of(comm.n_pes, n_requests, heads, head_dim_v)
    _workspace(comm, half, most_programs(), least_radix(on_gpu=triton_dist.kind() == "gpu"))


class _Cut(NamedTuple):
    """How the programs of a launch share its work."""

    shape: Shape
    programs: int
    tile_groups: int
    head_groups: int
    parts: int
    """Elements of the memory for parts of tasks."""


def _cut(members: Members, call: Call) -> _Cut:
    shape = call.shape(members.size)
    programs = shape.per_sm * sms()
    tile_groups = tasks_in_step(shape.tiles, programs)
    head_groups = heads_in_step(call.kv_heads, programs // tile_groups)
    groups = tile_groups * head_groups
    programs = programs // groups * groups
    return _Cut(shape, programs, tile_groups, head_groups, 2 * programs * shape.rows * (call.head_dim_v + 2))


def _launches(
    comm: Communicator, members: Members, call: Call, cut: _Cut, first: First, together: int, half: int
) -> list[Part]:
    """Attention to the keys of ``members``, with the workspace of ``comm``, of which they are some: so many requests
    in a launch. What a launch takes of a call are its first tensors, like ``first``."""
    made: list[Part] = []
    for start in range(0, first.q.shape[0], max(1, together)):
        of_requests = partial(First.of_requests, slice(start, start + together), call.table is not None)
        taken = First.of_call if first.q.shape[0] <= together else of_requests
        made.append((_launch(comm, members, call, cut, First(*taken(*first)), half), taken))
    return made


def _launch(comm: Communicator, members: Members, call: Call, cut: _Cut, first: First, half: int) -> Launch | None:
    (n_requests, query_heads), shape, programs = first.q.shape[:2], cut.shape, cut.programs
    slots, counters = _workspace(comm, half, programs, shape.radix)
    half = (slots.numel() - HEADER.value) // 2
    tasks = n_requests * call.kv_heads * shape.tiles
    overlaps = dependent()
    return launch(
        flash_decode_kernel, (programs,), first, slots, half, counters,
        record("flash_decode", programs, 8 * triton.cdiv(tasks, programs) + 16), n_requests, call.scale, call.window,
        call.interleave, call.capacity, *first.k.shape[:2], *call.scale_steps, *first.q.stride()[:2],
        *first.k.stride()[:3], *first.v.stride()[:3], first.table.stride(0),
        QUERY_HEADS=query_heads, KV_HEADS=call.kv_heads, ROWS=shape.rows, TILES=shape.tiles, DV=call.head_dim_v,
        D=call.main, REST=call.rest, BLOCK_N=shape.block_n, REQUESTS=max(16, int(triton.next_power_of_2(n_requests))),
        PAGED=call.table is not None, PAGE=call.page, V_IN_K=call.v is None, SCATTER=call.scatter, PES=shape.pes,
        TOGETHER=shape.together, COLUMNS=shape.columns, WAYS=shape.ways, RADIX=shape.radix, TILE_GROUPS=cut.tile_groups,
        HEAD_GROUPS=cut.head_groups, MEMBERS=members, DEPENDENT=overlaps, num_warps=shape.warps,
        num_stages=shape.stages,
        **launch_options(dependent=overlaps),
    )  # fmt: skip
