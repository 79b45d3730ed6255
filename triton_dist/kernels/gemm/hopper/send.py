"""The warp that sends finished tiles on their way, by TMA, while the others work on the next: to this PE's own memory,
to the next PE of a ring, or to everybody."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from triton_dist.kernels.gemm.hopper.flags import await_peers, clock, nanoseconds, raise_at, stores_complete
from triton_dist.kernels.gemm.hopper.layout import (
    ARRIVED,
    CHUNKS,
    DONE,
    ENTERED,
    EPOCH,
    GATHERED,
    K_BEGIN,
    K_END,
    PE,
    SLOT,
    TILE_COLUMN,
    TILE_ROW,
    TILES,
    UNIT,
)
from triton_dist.kernels.gemm.hopper.trace_events import MEET, SEND, TILE, note, time

__all__ = ["send_tiles"]

_IN_FLIGHT = gl.constexpr(3)  # blocks that a sending program has under way


@gluon.jit
def send_tiles(
    c, everywhere, following, ring, outgoing, schedule, trace, state, flags, chunks, distances, pes, tiles_n, pace, gap,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr, N_PES: gl.constexpr,
    OUT: gl.constexpr, GATHER: gl.constexpr, SENDERS: gl.constexpr, IN_FLIGHT: gl.constexpr,
):  # fmt: skip
    """OUT: "local": to ``c``. "chunks": also, and a chunk's last tile raises its flag, which the copy engine awaits.
    "senders": also, and each tile raises its flag, which the last ``SENDERS`` programs await to pass it on to all;
    or the tile has no flag, and goes to all from here.
    "scatter": to all. "ring": to the next PE's staging, and the PE's own to ``c``. "ring_all": but its own to all."""
    RING: gl.constexpr = OUT == "ring" or OUT == "ring_all"
    TO_ALL: gl.constexpr = OUT == "scatter" or OUT == "senders" or OUT == "ring_all"
    TO_PEERS: gl.constexpr = RING or TO_ALL
    c_blocks, c_ready, c_empty, _ = outgoing
    units, starts = schedule
    me, _ = pes
    ROWS: gl.constexpr = BLOCK_M // GROUPS
    program = gl.program_id(0)
    now = gl.load(state + EPOCH) + 1
    first, last = gl.load(starts + program), gl.load(starts + program + 1)

    if program == 0:
        # Peers may store here, now that all that this PE did with the memory before is over.
        for i in range(1, N_PES):
            pe = (me + i) % N_PES
            raise_at(flags + ENTERED + me, gl.load(distances + pe), now if TO_PEERS else 1)

    if SENDERS > 0 and program >= gl.num_programs(0) - SENDERS:
        pass_on(c, everywhere, ring, units, trace, first, last, flags, now, me, BLOCK_M, BLOCK_N, STAGES, GROUPS, N_PES)
    else:
        phase = 0
        welcome = False
        for unit in range(first, last):
            if gl.load(units + unit * UNIT + SLOT) < 0:
                tile_row = gl.load(units + unit * UNIT + TILE_ROW)
                tile_column = gl.load(units + unit * UNIT + TILE_COLUMN)
                pe = gl.load(units + unit * UNIT + PE)
                # Sending is spread over the time of the unit that is computed meanwhile.
                begin = gl.load(units + (unit + 1) * UNIT + K_BEGIN, mask=unit + 1 < last, other=0)
                end = gl.load(units + (unit + 1) * UNIT + K_END, mask=unit + 1 < last, other=0)
                times = (pace * (end - begin) >> 8, gl.where(begin < end, gap, 0))
                if TO_PEERS:
                    if not welcome and (OUT != "senders" or pe < 0):
                        began = time(trace)
                        await_peers(flags + ENTERED, now, me, N_PES)
                        note(trace, unit, MEET, began)
                        welcome = True
                began = time(trace)
                for group in gl.static_range(GROUPS):
                    mbarrier.wait(c_ready.index(group), phase)
                    if group == 0:
                        note(trace, unit, TILE, began)
                        began = time(trace)
                    row, column = tile_row * BLOCK_M + group * ROWS, tile_column * BLOCK_N
                    block = c_blocks.index(group)
                    if RING and pe != me:
                        send_to_peers(
                            (following, following), row, column, c_blocks, group, times, BLOCK_N, 2, IN_FLIGHT
                        )
                    elif OUT == "ring":
                        tma.async_copy_shared_to_global(c, [row % c.shape[0], column], block)
                    else:
                        tma.async_copy_shared_to_global(c, [row, column], block)
                        if TO_ALL and (OUT != "senders" or pe < 0):
                            send_to_peers(everywhere, row, column, c_blocks, group, times, BLOCK_N, N_PES, IN_FLIGHT)
                    tma.store_wait(0)
                    mbarrier.arrive(c_empty.index(group))
                phase ^= 1
                if RING:
                    if pe != me:
                        stores_complete()
                        flag = flags + TILES + tile_row * tiles_n + tile_column
                        raise_at(flag, gl.load(distances + (me + 1) % N_PES), now)
                elif OUT == "senders":
                    if pe >= 0:
                        stores_complete()
                        gl.atomic_xchg(state + pe, now, sem="release", scope="gpu")
                elif OUT == "chunks":
                    stores_complete()
                    finish_chunk_tile(pe, chunks, state)
                note(trace, unit, SEND, began)
    stores_complete()

    # The last program to come here speaks for all.
    if gl.atomic_add(state + ARRIVED, 1, sem="acq_rel", scope="gpu") == gl.num_programs(0) - 1:
        gl.store(state + ARRIVED, 0)
        gl.store(state + EPOCH, now)
        if GATHER:
            for pe in range(N_PES):
                gl.store(flags + GATHERED + pe, 0)
        if TO_ALL:
            for i in range(1, N_PES):
                pe = (me + i) % N_PES
                raise_at(flags + DONE + me, gl.load(distances + pe), now)
            began = time(trace)
            await_peers(flags + DONE, now, me, N_PES)
            if trace is not None:  # behind all units
                note(trace, gl.load(starts + gl.num_programs(0)), MEET, began)


@gluon.jit
def send_to_peers(
    everywhere, row, column, blocks, group, times,
    BLOCK_N: gl.constexpr, N_PES: gl.constexpr, IN_FLIGHT: gl.constexpr,
):  # fmt: skip
    """A block to all peers, in pieces as large as their tensor maps say.

    What NVLink cannot take at once would wait in the queue in which this program's TMA loads stand as well. So between
    two pieces lie the cycles in ``times``, and on average of a block its nanoseconds: a share of what is computed
    meanwhile, and what NVLink takes, which does not slow down when the GPU lowers its clock.
    """
    cycles, gap = times
    ROWS: gl.constexpr = everywhere[1].block_shape[0]
    COLUMNS: gl.constexpr = everywhere[1].block_shape[1]
    DOWN: gl.constexpr = blocks.shape[1] // ROWS
    ACROSS: gl.constexpr = BLOCK_N // COLUMNS
    pieces = blocks._reinterpret(blocks.dtype, [blocks.shape[0] * DOWN * ACROSS, ROWS, COLUMNS], everywhere[1].layout)
    due = nanoseconds()
    for number in range(DOWN * ACROSS):
        place = [row + number % DOWN * ROWS, column + number // DOWN * COLUMNS]
        for i in gl.static_range(1, N_PES):
            began = clock()
            tma.async_copy_shared_to_global(everywhere[i], place, pieces.index(group * (DOWN * ACROSS) + number))
            stores_complete(IN_FLIGHT - 1)
            due += gap
            while clock() - began < cycles:
                pass
            while nanoseconds() - due < 0:
                pass


@gluon.jit
def finish_chunk_tile(chunk, chunks, state):
    """One more tile of a chunk is in memory; if it is the last, tell the copy engine."""
    sizes, flags = chunks
    if gl.atomic_add(state + CHUNKS + chunk, 1, sem="acq_rel", scope="gpu") == gl.load(sizes + chunk) - 1:
        gl.store(state + CHUNKS + chunk, 0)
        gl.atomic_xchg(flags + chunk, 1, sem="release", scope="sys")


@gluon.jit
def pass_on(
    c, everywhere, ring, units, trace, first, last, flags, now, me,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """In a sending program: what ``load_tiles`` has fetched of C, to all peers (``everywhere`` begins with this PE)."""
    _, b_blocks, ready, empty = ring
    ROWS: gl.constexpr = BLOCK_M // GROUPS
    blocks = b_blocks._reinterpret(c.dtype, [STAGES, ROWS, BLOCK_N], c.layout)
    step = 0
    if first < last:
        began = time(trace)
        await_peers(flags + ENTERED, now, me, N_PES)
        note(trace, first, MEET, began)
    for unit in range(first, last):
        row = gl.load(units + unit * UNIT + TILE_ROW) * BLOCK_M
        column = gl.load(units + unit * UNIT + TILE_COLUMN) * BLOCK_N
        began = time(trace)
        for group in gl.static_range(GROUPS):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), step // STAGES & 1)
            if group == 0:
                note(trace, unit, TILE, began)
                began = time(trace)
            for i in gl.static_range(1, N_PES):
                tma.async_copy_shared_to_global(everywhere[i], [row + group * ROWS, column], blocks.index(stage))
            tma.store_wait((_IN_FLIGHT - 1) * (N_PES - 1))
            done = (step + STAGES - (_IN_FLIGHT - 1)) % STAGES
            mbarrier.arrive(empty.index(done), count=GROUPS, pred=step >= _IN_FLIGHT - 1)
            step += 1
        note(trace, unit, SEND, began)
