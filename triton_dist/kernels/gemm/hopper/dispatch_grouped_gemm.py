"""Dispatch and grouped GEMM: tokens of all PEs to this PE's experts, whose tiles begin while others' tokens arrive.

x: [T, K] on every PE, 16-bit floats; B: a matrix for each of this PE's experts; C: [R, N], or [R, N / 2] after SwiGLU.

One persistent kernel. ``senders`` programs store this PE's tokens to the PEs of their experts, then copy what has
arrived into the order of experts, one peer after the other. The other programs copy this PE's own tokens into it. Then
all are warp-specialised programs of a grouped GEMM (``grouped_gemm.py``), which load these rows by TMA: TMA cannot
gather rows on Hopper. Rows lie in the order of arrival within each expert, so those of a tile follow each other.

Load warps draw tiles from a counter, in the order of arrival, since programs that send begin later. A tile waits until
all programs have copied the rows of its PE and part of the experts. The load warp tells the multiply groups what it has
drawn by words in memory of this GPU, behind the barrier of the tile's first stage. They store rows in the order of the
result, which differs from that of arrival by a rotation within the expert.

Copies are stores of the generic proxy, TMA loads are of the async proxy: a proxy fence follows each acquire.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import await_empty, await_full, make_operand_ring
from triton_dist.kernels.gemm.hopper.epochs import Peers, admit_peers, end_epoch, epoch_of, is_last_program
from triton_dist.kernels.gemm.hopper.expert_layout import (
    ARRIVED_ROWS,
    BEGIN,
    COPIED,
    DRAWN,
    MESSAGE,
    ROWS,
    TILE_END,
    TILE_FIRST,
    TURN,
    UNIT,
)
from triton_dist.kernels.gemm.hopper.expert_rows import Arrival, copy_arrived_rows, copy_own_rows, parts_of, send_tokens
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy
from triton_dist.kernels.gemm.hopper.grouped_gemm import (
    Groups,
    load_stages,
    operand_descriptors,
    store_rows,
    swiglu,
)
from triton_dist.kernels.gemm.hopper.launch import tile_map
from triton_dist.kernels.gemm.hopper.multiply import accumulate_steps
from triton_dist.kernels.gemm.hopper.warps import REGISTERS, specialize_without_store
from triton_dist.kernels.prepared import Launch, launch

__all__ = ["moe_dispatch_grouped_gemm_kernel", "run_dispatch"]


@gluon.jit(do_not_specialize=["n_tokens", "senders"])
def moe_dispatch_grouped_gemm_kernel(
    a, a_piece, b, b_half, c_map, c, x, gathered, rows, tokens, destinations, units, messages, state, peers,
    gathered_distances, n_tokens, senders, N, K, b_step,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr, L: gl.constexpr, WORDS: gl.constexpr,
    MAX_TOKENS: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    tiles = gl.allocate_shared_memory(c_map.dtype, [CONFIG.groups] + c_map.block_shape, c_map.layout)
    groups = Groups(None, None, None, L, gl.cdiv(N, CONFIG.c_columns), gl.cdiv(K, a.block_shape[1]), b_step)
    arrival = Arrival(x, gathered, rows, tokens, destinations, units, n_tokens, senders)
    epoch = epoch_of(state)
    program = gl.program_id(0)
    admit_peers(peers, epoch, N_PES)
    if program < senders:
        send_tokens(arrival, peers, gathered_distances, epoch, WORDS, MAX_TOKENS, N_PES)
        copy_arrived_rows(arrival, state, peers, L, WORDS, N_PES)
    else:
        copy_own_rows(
            arrival, state, program - senders, gl.num_programs(0) - senders, peers.me, L, WORDS, MAX_TOKENS
        )  # fmt: skip
    mine = messages + program * (MESSAGE * CONFIG.stages)
    specialize_without_store(
        _multiply, (operands, tiles, c_map, c, mine, groups, N, CONFIG, B_BY_COLUMNS),
        _load, (
            a, a_piece, b, b_half, operands, mine, units, state, peers, senders, epoch, groups, N, CONFIG,
            B_BY_COLUMNS, N_PES, L,
        ),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def _load(
    a, a_piece, b, b_half, operands, messages, units, state, peers, senders, epoch, groups, N,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr, L: gl.constexpr,
):  # fmt: skip
    """Draw tiles, and load the blocks of each when its rows have been copied; the last program ends the launch."""
    PARTS: gl.constexpr = parts_of(L)
    n_tiles = gl.load(units + (N_PES * L - 1) * UNIT + TILE_END) * groups.columns
    step = 0
    unit = 0
    first = 0  # rows of tiles before the unit
    whole = 0  # of how many distances all rows are known to be copied,
    parts = 0  # and how many parts of the next one's
    tile = gl.atomic_add(state + DRAWN, 1, sem="relaxed", scope="gpu")
    while tile < n_tiles:
        end = gl.load(units + unit * UNIT + TILE_END)
        while tile >= end * groups.columns:
            first = end
            unit += 1
            end = gl.load(units + unit * UNIT + TILE_END)
        words = units + unit * UNIT
        within = tile - first * groups.columns
        row = (gl.load(words + TILE_FIRST) + within % (end - first)) * CONFIG.block_m
        column = within // (end - first)
        distance = unit // L
        expert = unit % L
        rows = gl.load(words + ROWS)
        begin = gl.load(words + BEGIN)
        # Programs copy parts in their order: the last one is behind all others.
        while whole < distance:
            _await_copies(state, whole, PARTS - 1, senders, PARTS)
            whole += 1
            parts = 0
        if parts <= expert * PARTS // L:
            parts = expert * PARTS // L + 1
            _await_copies(state, distance, parts - 1, senders, PARTS)
        left = rows - row
        stage, full = await_empty(operands, step, CONFIG)
        message = messages + stage * MESSAGE
        gl.store(message, left)
        gl.store(message + 1, column)
        gl.store(message + 2, begin)
        gl.store(message + 3, gl.load(words + TURN) + row)
        gl.store(message + 4, rows)
        gl.barrier()  # all are stored before a thread arrives at the stage's barrier
        step = load_stages(
            a, a_piece, b, b_half, operands, groups, N, expert, begin + row, left, column, step, CONFIG, B_BY_COLUMNS
        )
        tile = gl.atomic_add(state + DRAWN, 1, sem="relaxed", scope="gpu")
    stage, full = await_empty(operands, step, CONFIG)
    gl.store(messages + stage * MESSAGE, 0)
    gl.barrier()
    mbarrier.arrive(full)
    if is_last_program(state):
        gl.store(state + DRAWN, 0)
        for i in range(N_PES * PARTS):
            gl.store(state + COPIED + i, 0)
        for i in range(N_PES):
            gl.store(peers.flags + ARRIVED_ROWS + i, 0)
        end_epoch(state, epoch)


@gluon.jit
def _await_copies(state, distance, part, senders, PARTS: gl.constexpr):
    """Wait until a part of the rows from a distance has been copied: this PE's own by the programs that do not send."""
    programs = gl.where(distance == 0, gl.num_programs(0) - senders, senders)
    acquire(state + COPIED + distance * PARTS + part, programs, "gpu")
    fence_async_proxy()


@gluon.jit
def _multiply(
    GROUP: gl.constexpr,
    operands,
    tiles,
    c_map,
    c,
    messages,
    groups,
    N,
    CONFIG: gl.constexpr,
    B_BY_COLUMNS: gl.constexpr,
):
    """Compute and store this group's rows of every tile that the load warp tells of.

    A group without rows multiplies all the same where the expert has other tiles, as in ``grouped_gemm.py``.
    """
    step = 0
    message = messages + await_full(operands, step, CONFIG) * MESSAGE
    rows_left = gl.load(message)
    while rows_left > 0:
        column = gl.load(message + 1)
        begin = gl.load(message + 2)
        turned = gl.load(message + 3) + GROUP * CONFIG.group_m
        rows = gl.load(message + 4)
        left = rows_left - GROUP * CONFIG.group_m
        if (left > 0) | (rows > CONFIG.block_m):
            sums, step = accumulate_steps(GROUP, operands, 0, groups.k_steps, step, CONFIG, B_BY_COLUMNS)
            if CONFIG.fold == 2:
                sums = swiglu(sums, c_map.dtype)
            if left > 0:
                store_rows(GROUP, sums, tiles, c_map, c, begin, turned % rows, rows, left, column * CONFIG.c_columns, N)
        else:
            for _ in range(groups.k_steps):
                mbarrier.arrive(operands.empty.index(await_full(operands, step, CONFIG)))
                step += 1
        message = messages + await_full(operands, step, CONFIG) * MESSAGE
        rows_left = gl.load(message)
    tma.store_wait(0)


def run_dispatch(
    x: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    gathered: torch.Tensor,
    tokens: torch.Tensor,
    plan: tuple[torch.Tensor, torch.Tensor],
    state: torch.Tensor,
    peers: Peers,
    gathered_distances: torch.Tensor,
    senders: int,
    config: Config,
    programs: int,
) -> Launch | None:
    """C of the rows of this PE's experts, on the current stream, by so many programs, of which ``senders`` send.

    Args:
        x: [T, K]. b: [L, K, N]. c: [R, N], or [R, N / 2] if the config folds.
        gathered: symmetric, of ``x``'s dtype, [n_pes, max_tokens, K].
        tokens: int32, which of these each row is of, for rows of all PEs' experts.
        plan: as ``moe/arrival_plan.py`` makes it.
        state: int32, zeros at first: ``COPIED`` words, and ``MOST_PARTS`` for each PE.
        gathered_distances: int64, bytes from this PE's ``gathered`` to each PE's.
    """
    n_pes, max_tokens, inner = gathered.shape
    units, destinations = plan
    rows = x.new_empty(c.shape[0], inner)
    a, a_piece, b_map, b_half, by_columns, b_step = operand_descriptors(rows, b, config)
    messages = torch.empty(programs * config.stages * int(MESSAGE.value), dtype=torch.int32, device=x.device)
    words = inner * x.element_size() // 4
    return launch(
        moe_dispatch_grouped_gemm_kernel, (programs,), (a, a_piece, b_map, b_half, tile_map(c, config), c),
        in_int32(x), in_int32(gathered), in_int32(rows), tokens, destinations, units, messages,
        state, peers, gathered_distances, x.shape[0], senders, c.shape[1], inner, b_step, config, by_columns, n_pes,
        b.shape[0], words, max_tokens, num_warps=4, maxnreg=REGISTERS[config.groups],
    )  # fmt: skip
