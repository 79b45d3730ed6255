"""Kernels as a user of Triton-distributed writes them: its decorator, its names, its notion of threads."""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, ld, st, tid


@triton_dist.jit
def pass_through_queue(
    rank: tl.constexpr,
    num_ranks: tl.constexpr,
    items_ptr,
    received_ptr,
    num_items: int,
    queue_ptr,
    turn_ptr,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRODUCERS: tl.constexpr,
    CONSUMERS: tl.constexpr,
):
    """Each rank sends blocks through a short queue in the next rank's memory; a slot's word counts its turns."""
    pid = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    if pid < PRODUCERS:
        target = (rank + 1) % num_ranks
        for item in range(pid, num_items, PRODUCERS):
            slot = item % SLOTS
            turn = item // SLOTS
            token = dl.wait(dl.symm_at(turn_ptr, target) + slot, 1, "sys", "acquire", waitValue=turn * 2)
            items_ptr = dl.consume_token(items_ptr, token)
            block = tl.load(items_ptr + item * BLOCK + lanes)
            tl.store(dl.symm_at(queue_ptr, target) + slot * BLOCK + lanes, block)
            __syncthreads()
            libshmem_device.fence()
            dl.notify(turn_ptr + slot, target, signal=turn * 2 + 1, sig_op="set", comm_scope="intra_node")
    elif pid < PRODUCERS + CONSUMERS:
        for item in range(pid - PRODUCERS, num_items, CONSUMERS):
            slot = item % SLOTS
            turn = item // SLOTS
            token = dl.wait(turn_ptr + slot, 1, "sys", "acquire", waitValue=turn * 2 + 1)
            queue_ptr = dl.consume_token(queue_ptr, token)
            tl.store(received_ptr + item * BLOCK + lanes, tl.load(queue_ptr + slot * BLOCK + lanes))
            __syncthreads()
            dl.notify(turn_ptr + slot, rank, signal=turn * 2 + 2, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def push_segment(buffer_ptr, ready_ptr, elements, itemsize, mark, rank, world_size, PUSHERS: tl.constexpr):
    """Each program sends this rank's segment to one other rank, with a signal behind it."""
    pid = tl.program_id(axis=0)
    if pid < PUSHERS:
        target = (rank + pid + 1) % world_size
        libshmem_device.putmem_signal_block(
            buffer_ptr + rank * elements,
            buffer_ptr + rank * elements,
            elements * itemsize,
            ready_ptr + rank,
            mark,
            libshmem_device.NVSHMEM_SIGNAL_SET,
            target,
        )


@triton_dist.jit(do_not_specialize=["rank", "mark"])
def gather_with_one_waiter(buffer_ptr, bytes_per_rank, ready_ptr, WORLD_SIZE: tl.constexpr, rank, mark):
    """As ``push_segment``; the program of this rank waits for all others, one thread for each."""
    pid = tl.program_id(0)
    thread = tid(0)
    if pid == rank:
        peer = thread
        if peer < WORLD_SIZE and peer != rank:
            libshmem_device.signal_wait_until(ready_ptr + peer, libshmem_device.NVSHMEM_CMP_EQ, mark)
        __syncthreads()
    else:
        peer = pid
        segment = tl.cast(buffer_ptr, tl.pointer_type(tl.int8)) + rank * bytes_per_rank
        libshmem_device.putmem_signal_block(
            segment, segment, bytes_per_rank, ready_ptr + rank, mark, libshmem_device.NVSHMEM_SIGNAL_SET, peer
        )


@triton.autotune(configs=[triton.Config({"ROWS": 4}, num_warps=4)], key=[])
@triton_dist.jit
def all_to_all(send_ptr, staged_ptr, recv_ptr, ready_ptr, rows, mark, rank, N: tl.constexpr, ROWS: tl.constexpr):
    """Program ``p`` stages the rows for rank ``p``, puts them there, signals, and waits for that rank's."""
    pid = tl.program_id(0)
    thread = tid(axis=0)
    lanes = tl.arange(0, ROWS)[:, None] * N + tl.arange(0, N)[None, :]
    for row in range(0, rows, ROWS):
        inside = (row + tl.arange(0, ROWS))[:, None] < rows
        offsets = (pid * rows + row) * N + lanes
        tl.store(staged_ptr + offsets, tl.load(send_ptr + offsets, mask=inside), mask=inside)
    libshmem_device.putmem_nbi_block(recv_ptr + rank * rows * N, staged_ptr + pid * rows * N, rows * N * 4, pid)
    libshmem_device.fence()
    if thread == 0:
        libshmem_device.signal_op(ready_ptr + rank, mark, libshmem_device.NVSHMEM_SIGNAL_ADD, pid)
        libshmem_device.signal_wait_until(ready_ptr + pid, libshmem_device.NVSHMEM_CMP_EQ, mark)
    __syncthreads()


@triton_dist.jit
def chunks_arrive(data_ptr, flags_ptr, sums_ptr, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    """Program 0 waits for a row of flags of its own GPU, which the other programs set with ``notify``."""
    pid = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    if pid == 0:
        token = dl.wait(flags_ptr, CHUNKS, "gpu", "acquire")
        data_ptr = dl.consume_token(data_ptr, token)
        total = tl.zeros((BLOCK,), tl.float32)
        for chunk in range(CHUNKS):
            total += tl.load(data_ptr + chunk * BLOCK + lanes)
        tl.store(sums_ptr + lanes, total)
    else:
        tl.store(data_ptr + (pid - 1) * BLOCK + lanes, pid + lanes * 0.5)
        dl.notify(flags_ptr + pid - 1, dl.rank(), comm_scope="gpu")


@triton_dist.jit
def meet_by_hand(words_ptr, rank, num_ranks):
    """A barrier of words: each thread greets one rank and waits for its greeting."""
    thread = tid(0)
    if thread < num_ranks:
        st(dl.symm_at(words_ptr, thread) + rank, 1, "sys", "release")
        while ld(words_ptr + thread, "sys", "acquire") != 1:
            pass
    __syncthreads()


@triton_dist.jit
def send_by_warps(words_ptr, counts_ptr, rank, num_ranks):
    """One warp for each rank, as low-latency kernels push.

    Word ``rank`` of each rank is set. Of the counts there, the first is of warps, the second of threads, the third of
    what the block does, and the fourth of warps in a loop.
    """
    thread = tid(0)
    warp = thread // 32
    if warp < num_ranks and warp != rank:
        libshmem_device.putmem_signal_nbi_warp(
            words_ptr + rank, words_ptr + rank, 4, counts_ptr, 1, libshmem_device.NVSHMEM_SIGNAL_ADD, warp
        )
        for _ in range(3):
            libshmem_device.putmem_signal_warp(
                words_ptr + rank, words_ptr + rank, 4, counts_ptr + 3, 1, libshmem_device.NVSHMEM_SIGNAL_ADD, warp
            )
        libshmem_device.signal_op(counts_ptr + 1, 1, libshmem_device.NVSHMEM_SIGNAL_ADD, warp)
    if thread >= 0:
        libshmem_device.putmem_signal_block(
            words_ptr + rank, words_ptr + rank, 4, counts_ptr + 2, 1, libshmem_device.NVSHMEM_SIGNAL_ADD, rank
        )
    libshmem_device.quiet()


@triton_dist.jit
def count_threads(total_ptr):
    """Adds one for each fourth thread, and one more."""
    thread = tid(0)
    if thread % 4 == 0:
        atomic_add(total_ptr, 1, "gpu", "relaxed")
    if thread == 0:
        atomic_add(total_ptr, 1, "gpu", "relaxed")
