"""Small-M GEMMs, up to 128 rows, fused with reduce-scatter or all-reduce: they take as long as loading B from memory.

One kernel. A program computes a tile of all rows and some columns, and so streams its part of B with as many loads in
flight as shared memory holds. The tile is sent from registers by the sentinel protocol: each PE's rows go to that PE,
which adds what all have sent and, for the all-reduce, sends the sum to all. No kernel reads C again. What follows the
last block of B is one remote write, or two, and the time of the bytes.

There may be a few bands of 128 rows, each with tiles of its own: for an all-reduce, where any PE may add up any rows,
of rows that follow each other, for a reduce-scatter of as many rows of each PE. The last one ends with the last row, so
it shares some with the band in front, which stores these.
"""

from __future__ import annotations

from itertools import takewhile

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.collectives.reductions import reduce_words
from triton_dist.kernels.collectives.sums import elements_of, words_of
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.dependent_launch import dependent, launch_options, let_next_begin, wait_for_previous
from triton_dist.kernels.device import gpu, has_gpu_sizes
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.epilogue import finish
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.small_m_tile import Cut, multiply, store_tile, tile_operands
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.sentinel import SLOTS, clear, order_messages, receive, send
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.kernels.tracing.events import COMPUTE, SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = [
    "MAX_BANDS",
    "MAX_ROWS",
    "cut_for",
    "fits_bands",
    "fits_small_m",
    "reserve_slots",
    "small_m_gemm",
    "stages_for",
]

MAX_ROWS = 128
MAX_BANDS = 4
"""Of so many rows, of an all-reduce."""

_HOPPERS = 227 << 10
"""Shared memory of a program on a Hopper GPU, in bytes: what a model of one takes."""

# A program's slots begin with words: the number of the next slot, and a count for fences.
_HEADER = tl.constexpr(32)


@triton.jit
def _exchange(
    total, c, epilogue, slot, previous, trace, tile, first, begin, column, each, mine, M, N, c_step,
    TO_ALL: tl.constexpr, MEMBERS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Send each PE its rows of a tile, add what is received, and store ``mine`` of it, or send it to all PEs first.

    The tile has rows from ``first`` on; those in front of ``begin`` are not stored.

    The epilogue is applied where a sum is complete, by the PE that adds it up. Meanwhile the slot of the tile before is
    cleared, ``previous`` words behind this one.
    """
    N_PES: tl.constexpr = group_size(MEMBERS)
    PES: tl.constexpr = triton.next_power_of_2(N_PES)
    DTYPE: tl.constexpr = c.dtype.element_ty
    ROWS: tl.constexpr = total.shape[0]
    COLUMNS: tl.constexpr = total.shape[1]
    ranks = tl.arange(0, PES)
    distances = tl.zeros(ranks.shape, tl.int64)
    for rank in tl.static_range(N_PES):
        words_there = at_rank(slot, rank, MEMBERS).to(tl.int64)
        distances = tl.where(ranks == rank, (words_there - slot.to(tl.int64)) // 4, distances)
    distances = tl.multiple_of(distances, 16)[:, None]  # else words would be stored one by one
    exist = (ranks < N_PES)[:, None]
    words = tl.arange(0, WORDS)[None, :]
    there = slot + my_rank(MEMBERS) * WORDS + distances + words
    here = slot + tl.minimum(ranks, N_PES - 1)[:, None] * WORDS + words  # of those that do not exist, the last one's
    began = clock(trace)
    send(there, words_of(total.reshape([PES, ROWS // PES * COLUMNS]), DTYPE), exist, DTYPE)
    record_event(trace, SEND, tile, began)
    clear(here + previous, exist)
    PER_WORD: tl.constexpr = 32 // DTYPE.primitive_bitwidth
    received = receive(here, slot, MEMBERS, DTYPE, trace, tile)
    if epilogue.bias is not None or epilogue.residual is not None or epilogue.activation is not None:
        sums = tl.sum(tl.where(exist, elements_of(received, DTYPE), 0.0), axis=0).reshape([ROWS // PES, COLUMNS])
        own = tl.arange(0, ROWS // PES)
        if TO_ALL:
            rows = tl.where(own < each, first + my_rank(MEMBERS) * each + own, M)  # M: not of this PE
        else:
            rows = tl.where(first + own < mine, first + own, M)
        sums = finish(sums, epilogue, rows, M if TO_ALL else mine, column + tl.arange(0, COLUMNS))
        summed = words_of(sums.reshape([1, ROWS // PES * COLUMNS]), DTYPE)
    else:
        summed = reduce_words(received, N_PES, DTYPE, PER_WORD, "sum").reshape([1, WORDS])
    if TO_ALL:
        second = SLOTS * N_PES * WORDS
        began = clock(trace)
        send(there + second, tl.broadcast_to(summed, [PES, WORDS]), exist, DTYPE)
        record_event(trace, SEND, tile, began)
        clear(here + second + previous, exist)
        received = receive(here + second, slot + second, MEMBERS, DTYPE, trace, tile)
        rows = elements_of(received, DTYPE).reshape([ROWS, COLUMNS])
        store_tile(c, rows, first, begin, column, each, M, N, c_step, PES)
    else:
        own_rows = elements_of(summed, DTYPE).reshape([ROWS // PES, COLUMNS])
        store_tile(c, own_rows, first, begin, column, mine, mine, N, c_step, 1)


@triton.jit(do_not_specialize=["M", "each", "mine"])
def gemm_small_m(
    a, b, c, slots, epilogue, trace, M, N, K, each, mine, a_step, b_row, b_column, c_step,
    TO_ALL: tl.constexpr, MEMBERS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    WORDS: tl.constexpr, TURNED: tl.constexpr, A_TMA: tl.constexpr, B_TMA: tl.constexpr, B_BY_COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr, DEPENDENT: tl.constexpr, BANDS: tl.constexpr,
):  # fmt: skip
    N_PES: tl.constexpr = group_size(MEMBERS)
    wait_for_previous(DEPENDENT)
    BLOCK: tl.constexpr = BLOCK_M // triton.next_power_of_2(N_PES)
    slots += tl.program_id(0) * (_HEADER + 2 * SLOTS * N_PES * WORDS)
    number = tl.load(slots)
    tiles = tl.cdiv(N, BLOCK_N) * BANDS
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        began = clock(trace)
        # Bands of the same columns of B are computed together.
        begin, across = tile % BANDS * (BLOCK_M if TO_ALL else BLOCK), tile // BANDS
        first = begin
        if BANDS > 1:  # rows of a tile that A does not have would take TMA longer than others
            first = tl.minimum(begin, M - BLOCK_M if TO_ALL else each - BLOCK)
        left = each if TO_ALL else each - first
        total = multiply(
            a, b, None, 0.0, first, across, M, N, K, each, left, a_step, b_row, b_column, BLOCK, BLOCK_M, BLOCK_N,
            BLOCK_K, TURNED, A_TMA, B_TMA, B_BY_COLUMNS, WHOLE,
        )  # fmt: skip
        record_event(trace, COMPUTE, tile, began)
        if tile + tl.num_programs(0) >= tiles:
            let_next_begin(DEPENDENT)
        slot = slots + _HEADER + number * (N_PES * WORDS)
        previous = tl.where(number == 0, SLOTS - 1, -1) * (N_PES * WORDS)
        _exchange(
            total, c, epilogue, slot, previous, trace, tile, first, begin, across * BLOCK_N, each, mine, M, N, c_step,
            TO_ALL, MEMBERS, WORDS,
        )  # fmt: skip
        number = tl.where(number == SLOTS - 1, 0, number + 1)
        if tile + tl.num_programs(0) < tiles:
            order_messages(slots + 1)
    tl.store(slots, number)


def fits_small_m(rows: int, n_pes: int) -> bool:
    """Whether a GEMM of so many rows, in equal shards or with fewer in the last ones, fits in a tile. Its operands must
    be of the result's dtype."""
    return _block_m(rows, n_pes) <= MAX_ROWS


def fits_bands(rows: int, n_pes: int) -> bool:
    """Whether a GEMM of so many rows, for a reduce-scatter in equal shards, fits in a tile, or in a few bands of tiles,
    of each of which every PE adds up as many rows."""
    return fits_small_m(rows, n_pes) or (n_pes & (n_pes - 1) == 0 and n_pes > 1 and rows <= MAX_BANDS * MAX_ROWS)


def small_m_gemm(gemm: Operands, *, to_all: bool) -> Launch | None:
    """c = the sum of a · b over PEs, after the epilogue: this PE's shard of its rows, or all on every PE. *Collective*
    when a shape is first used.

    Args:
        gemm: ``fits_small_m`` or ``fits_bands`` says how many rows ``a`` may have; ``c`` is the shard, or all of it,
            [M, N].
    """
    comm, a, b, c, _, epilogue, sm_margin, _ = gemm
    n_pes = comm.n_pes
    (m, k), n = a.shape, b.shape[1]
    bands = 1 if fits_small_m(gemm.each * n_pes, n_pes) else triton.cdiv(m, MAX_ROWS)
    block_m = _block_m(gemm.each * n_pes, n_pes) if bands == 1 else MAX_ROWS
    shards = 1 if to_all or bands == 1 else n_pes
    cut = _cut_here(block_m, n, a.element_size(), portable.programs(sm_margin), bands)
    out = "all" if to_all else "scatter"
    slots, words = _slots(comm, out, block_m, cut, a.element_size())
    # Where all PEs get all rows, any of them may add up any: M changes nothing if each takes the rows of a block.
    each = block_m // int(triton.next_power_of_2(n_pes)) if to_all else gemm.each
    of_tile = tile_operands(a, b, block_m, cut, rows_follow=each * n_pes == block_m, shards=shards)
    tiles = triton.cdiv(n, cut.block_n) * bands
    programs = min(tiles, portable.programs(sm_margin))  # all wait for those of other PEs, and so run at one time
    overlaps = dependent()
    return launch(
        gemm_small_m, (programs,), (of_tile.a, of_tile.b, c), slots, epilogue,
        record(f"small-M GEMM, {out}", programs, 5 * (1 + tiles // programs)),
        m, n, k, each, c.shape[0], a.stride(0), *b.stride(), c.stride(0), TO_ALL=to_all, MEMBERS=comm.members,
        WORDS=words, **of_tile.constants, DEPENDENT=overlaps, BANDS=bands, num_warps=cut.warps,
        num_stages=_stages_here(block_m, cut, a.element_size()), **launch_options(dependent=overlaps),
    )  # fmt: skip


def reserve_slots(comm: Communicator, rows: int, n: int, itemsize: int, *, to_all: bool) -> None:
    """Make the slots of GEMMs with up to so many rows, and ``n`` columns. *Collective.*"""
    most = min(_block_m(rows, comm.n_pes), MAX_ROWS)
    sizes = [(size, 1) for size in takewhile(lambda size: size <= most, (16, 32, 64, 128))]
    most_bands = min(triton.cdiv(rows, MAX_ROWS), MAX_BANDS)
    sizes += [(MAX_ROWS, bands) for bands in range(2, most_bands + 1) if fits_bands(bands * MAX_ROWS, comm.n_pes)]
    for block_m, bands in sizes:
        cut = _cut_here(block_m, n, itemsize, portable.programs(), bands)
        _slots(comm, "all" if to_all else "scatter", block_m, cut, itemsize)


def _slots(comm: Communicator, out: str, block_m: int, cut: Cut, itemsize: int) -> tuple[torch.Tensor, int]:
    """The slots of an operation, and how many words a PE sends of a tile. Each operation has its own: a program clears,
    of the tile before, the slot that it uses itself."""
    words = block_m // int(triton.next_power_of_2(comm.n_pes)) * cut.block_n * itemsize // 4
    size = portable.programs() * (_HEADER.value + 2 * SLOTS.value * comm.n_pes * words)
    return symmetric_workspace(comm, f"small M, {out}, {words} words", size), words


def _block_m(rows: int, n_pes: int) -> int:
    """Rows of a tile in which every PE's are a block of the same size, a power of two."""
    pes = int(triton.next_power_of_2(n_pes))
    return max(16, pes * int(triton.next_power_of_2(triton.cdiv(rows, n_pes))))


def cut_for(block_m: int, n: int, itemsize: int, programs: int, bands: int = 1) -> Cut:
    """The cut of a GEMM with ``n`` columns, and so many bands of rows, on a GPU that runs so many programs at a time.

    All programs should have a part of B; the wider its tiles, the less often A is loaded.
    """
    block_n = 64
    while triton.cdiv(n, block_n) * bands > programs and block_n < 256:
        block_n *= 2
    block_k = (256 if block_m <= 64 and block_n <= 128 else 128) // itemsize
    return Cut(block_n, block_k, 4 if block_m * block_n * itemsize <= 32768 else 8, itemsize == 2)


def _cut_here(block_m: int, n: int, itemsize: int, programs: int, bands: int = 1) -> Cut:
    if has_gpu_sizes():
        return cut_for(block_m, n, itemsize, programs, bands)
    return Cut(min(16, 1024 // block_m), 32, 4, block_m <= 16)  # a load of more than 4 KiB is not taken for a poll


def stages_for(block_m: int, cut: Cut, itemsize: int, shared_memory: int) -> int:
    """How many blocks along K can be in flight, in so many bytes of shared memory; more than 8 are of no use."""
    return max(1, min(8, (shared_memory - 2048) // ((block_m + cut.block_n) * cut.block_k * itemsize)))


def _stages_here(block_m: int, cut: Cut, itemsize: int) -> int:
    if not has_gpu_sizes():
        return 1
    shared_memory = _HOPPERS if triton_dist.kind() == "cpu" else gpu().shared_memory
    return stages_for(block_m, cut, itemsize, shared_memory)
