"""Broadcast: PE ``root``'s tensor to all PEs. Bytes are moved, of any dtype.

``low_latency``, for small tensors: the LL protocol. ``push``, for larger ones: a barrier, the root stores its blocks to
all tensors, a barrier. ``scatter``, for large ones, where the root's link would carry everything n_pes - 1 times: the
root stores each block to one of the other PEs, which forwards it to the rest while the root sends the next rounds, so
the root's link carries everything once. The root waits for no PE between the rounds.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.arguments import check_algorithm, check_tensors, need_symmetric, words
from triton_dist.kernels.collectives import model
from triton_dist.kernels.collectives.documentation import collective
from triton_dist.kernels.protocols.barrier import arrive, barrier, signal_all, wait, wait_for_pe
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
from triton_dist.kernels.protocols.workspace import barrier_state, is_symmetric
from triton_dist.kernels.tracing.events import SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["broadcast"]


@triton.jit
def _exchange(tensor, slots, trace, root, n, N_PES: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    began = clock(trace)
    slice, number = exchange_begin(slots, program, N_PES)
    me = dl.my_pe()
    if me == root:
        words = tl.load(tensor + offsets, mask=offsets < n, other=0).to(tl.int32)
        for i in tl.static_range(1, N_PES + 1):
            send(slice, number, words, (me + i) % N_PES, N_PES)
    else:  # padding: every program sends to all PEs in every exchange (protocols/ll.py)
        for i in tl.static_range(1, N_PES + 1):
            send(slice, number, tl.zeros([BLOCK], tl.int32), (me + i) % N_PES, N_PES)
    record_event(trace, SEND, 0, began)
    received = receive(slice, number, BLOCK, N_PES, trace, 0)
    pes = tl.arange(0, received.shape[0])[:, None]
    words = tl.sum(tl.where(pes == root, received, 0), axis=0)
    if me != root:
        tl.store(tensor + offsets, words.to(tensor.dtype.element_ty), mask=offsets < n)
    exchange_end(slice, number)


@triton.jit
def _push(tensor, barriers, trace, root, n, N_PES: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    me = dl.my_pe()
    barrier(barriers, program, N_PES, trace, 0)
    if me == root:
        for block in range(program, tl.cdiv(n, BLOCK), tl.num_programs(0)):
            began = clock(trace)
            offsets = block * BLOCK + tl.arange(0, BLOCK)
            words = tl.load(tensor + offsets, mask=offsets < n)
            for i in tl.static_range(1, N_PES):
                tl.store(dl.symm_at(tensor, (me + i) % N_PES) + offsets, words, mask=offsets < n)
            record_event(trace, SEND, block, began)
    barrier(barriers, program, N_PES, trace, 1)


@triton.jit
def _scatter(tensor, barriers, trace, root, n, rounds, per_round, N_PES: tl.constexpr, BLOCK: tl.constexpr):
    """Of round r, program p has block ((r · per_round + j) · programs + p) · (N_PES - 1) + q for PE root + 1 + q."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    me = dl.my_pe()
    number = arrive(barriers, program, N_PES)
    wait(barriers, program, number, N_PES, trace, 0)
    for round in range(rounds):
        if me != root:
            wait_for_pe(barriers, program, number + 1 + round, root, trace, round + 1)
        began = clock(trace)
        for j in range(per_round):
            first = ((round * per_round + j) * programs + program).to(tl.int64) * (N_PES - 1)
            if me == root:
                for q in tl.static_range(N_PES - 1):
                    offsets = (first + q) * BLOCK + tl.arange(0, BLOCK)
                    words = tl.load(tensor + offsets, mask=offsets < n)
                    tl.store(dl.symm_at(tensor, (me + 1 + q) % N_PES) + offsets, words, mask=offsets < n)
            else:
                q = (me - root - 1 + N_PES) % N_PES
                offsets = (first + q) * BLOCK + tl.arange(0, BLOCK)
                words = tl.load(tensor + offsets, mask=offsets < n)
                for i in tl.static_range(1, N_PES):
                    pe = (me + i) % N_PES
                    tl.store(dl.symm_at(tensor, pe) + offsets, words, mask=(offsets < n) & (pe != root))
        record_event(trace, SEND, round, began)
        if me == root:
            signal_all(barriers, program, number + 1 + round, N_PES)
    signal_all(barriers, program, number + 1 + rounds, N_PES)
    wait(barriers, program, number + 1 + rounds, N_PES, trace, rounds + 1)


@collective
def broadcast(tensor: torch.Tensor, root: int = 0, *, algorithm: str = "auto") -> torch.Tensor:
    """PE ``root``'s ``tensor`` to all PEs.

    Args:
        tensor: symmetric, except for ``low_latency``.
        root: the PE whose tensor is sent, in ``[0, n_pes)``.
        algorithm: ``low_latency`` (up to 256 KiB or so), ``push``, ``scatter`` or ``auto``.

    Returns:
        ``tensor``.
    """
    check_tensors("broadcast", tensor=tensor)
    if not 0 <= root < triton_dist.n_pes():
        raise ValueError(f"broadcast: root {root} is out of range [0, {triton_dist.n_pes()})")
    check_algorithm("broadcast", algorithm, tuple(_ALGORITHMS))
    if tensor.numel():
        (moved,) = words("broadcast", tensor.numel() * tensor.element_size(), tensor)
        if algorithm == "auto":
            algorithm = _choose(moved)
        if algorithm != "low_latency":
            need_symmetric("broadcast", algorithm, tensor=tensor)
        _ALGORITHMS[algorithm](moved, root)
    return tensor


def _choose(tensor: torch.Tensor) -> str:
    n_pes = triton_dist.n_pes()
    nbytes = tensor.numel() * tensor.element_size()
    estimates = {"push": model.direct(nbytes * (n_pes - 1))}
    if n_pes > 2:
        estimates["scatter"] = model.direct(0) + model.direct(nbytes)
    if fits(tensor.numel(), n_pes):
        estimates["low_latency"] = model.low_latency(nbytes * (n_pes - 1))
        if not is_symmetric(tensor):
            return "low_latency"
    return model.fastest(estimates)


def low_latency(tensor: torch.Tensor, root: int, *, block: int = 0, num_warps: int = 0) -> None:
    n, n_pes = tensor.numel(), triton_dist.n_pes()
    if not fits(n, n_pes):
        raise ValueError(f"broadcast: {n} words are too many for algorithm low_latency")
    block = block or block_of(n, n_pes)
    programs = triton.cdiv(n, block)
    trace = record("broadcast, low_latency", programs, 2)
    _exchange[(programs,)](
        tensor, ll_slots(n_pes), trace, root, n, n_pes, block, num_warps=num_warps or warps_of(block)
    )


def push(tensor: torch.Tensor, root: int, *, programs: int = 0, block: int = 4096, num_warps: int = 8) -> None:
    n, n_pes = tensor.numel(), triton_dist.n_pes()
    programs = programs or min(128, max(1, triton.cdiv(n, block)))
    trace = record("broadcast, push", programs, 3 + n // (block * programs))
    _push[(programs,)](tensor, barrier_state(), trace, root, n, n_pes, block, num_warps=num_warps)


_ROUNDS = 48
"""The last round is passed on when the root has nothing more to send; each takes the latency of a flag."""


def scatter(
    tensor: torch.Tensor,
    root: int,
    *,
    programs: int = 64,
    rounds: int = _ROUNDS,
    block: int = 4096,
    num_warps: int = 16,
) -> None:
    n, n_pes = tensor.numel(), triton_dist.n_pes()
    if n_pes < 3:
        return push(tensor, root)
    blocks = triton.cdiv(n, block * (n_pes - 1))  # for each of the others
    programs = min(programs, blocks)
    per_round = max(1, triton.cdiv(blocks, programs * rounds))
    rounds = triton.cdiv(blocks, programs * per_round)
    trace = record("broadcast, scatter", programs, 2 * rounds + 2)
    _scatter[(programs,)](tensor, barrier_state(), trace, root, n, rounds, per_round, n_pes, block, num_warps=num_warps)


_ALGORITHMS: dict[str, Callable[..., None]] = {"low_latency": low_latency, "push": push, "scatter": scatter}
