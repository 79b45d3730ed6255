"""The routing of all PEs' tokens on every PE, for experts of which every PE has a slice (tensor parallelism).

Ids and weights of all PEs are gathered; then every PE knows where each choice of each token has its row. Rows are
grouped by expert, within an expert by PE, then token, then choice: the order of a dispatch with all experts on one PE.

Choices are cut into chunks, none of which has choices of two PEs. A first kernel counts the experts of each chunk. A
second one adds up the counts of the chunks in front of a program's own, so the row of a choice is

    offset of the expert + rows of this expert from the chunks before + rank among those of its chunk

Both have a program for each chunk. Nothing waits for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import check_contiguous
from triton_dist.kernels.collectives.all_gather import all_gather
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.gradients import made_again, records_gradients, refuse_gradients
from triton_dist.kernels.local_launches import launch_again
from triton_dist.kernels.new_tensors import NewTensors, like
from triton_dist.kernels.options import check_int
from triton_dist.kernels.prepared import Launch, Nested, Part, Prepared, launch, steps
from triton_dist.kernels.protocols.members import Members
from triton_dist.kernels.protocols.workspace import symmetric_workspace

__all__ = [
    "GatheredRouting",
    "check_routing",
    "communicator_of",
    "gather",
    "gather_routing",
    "have_rows",
    "memory_words",
    "of_one_pe",
    "with_memory",
    "workspace",
]

_RANKED = tl.constexpr(64)
"""Choices that are compared with each other at a time."""

_CHUNKS = 128
_EXPERTS, _COUNTS = 2048, 16384
"""The most experts, and counts of all PEs together: blocks, whose sizes are powers of two, that a program holds in
registers."""


class GatheredRouting(NamedTuple):
    """Which rows the tokens of all PEs have; the same on every PE.

    R, the room for rows, is ``n_pes`` * ``max_tokens`` * ``top_k``. Rows behind the last hold anything.

    Attributes:
        memory: int32, of which the properties are views.
        n_tokens, top_k: of this PE's ids.
        members: the PEs. comm: their communicator; None while PyTorch traces.
        num_experts, max_tokens: as of :func:`gather_routing`.
        group: of functional forms: the size and the name of the group.
    """

    memory: torch.Tensor
    n_tokens: int
    top_k: int
    num_experts: int
    max_tokens: int
    members: Members
    comm: Communicator | None = None
    group: tuple[int, str] | None = None

    @property
    def rows(self) -> int:
        """R."""
        return self.members.size * self.max_tokens * self.top_k

    @property
    def parts(self) -> tuple[int, ...]:
        """Where the parts of ``memory`` begin, in words, at multiples of 16 bytes."""
        return _begins(_sizes(*self._layout))

    @property
    def counts(self) -> torch.Tensor:
        """[num_experts] int32, how many rows each expert has."""
        return self._part(0)

    @property
    def offsets(self) -> torch.Tensor:
        """[num_experts + 1] int32, where the rows of each expert begin; and the end of the last."""
        return self._part(1)

    @property
    def tokens_of_pes(self) -> torch.Tensor:
        """[n_pes] int32, how many tokens each PE has."""
        return self._part(2)

    @property
    def tokens(self) -> torch.Tensor:
        """[R] int32, the token of each row: rank * ``max_tokens`` + its number on its PE."""
        return self._part(4)

    @property
    def weights(self) -> torch.Tensor:
        """[R] float32, the weight of each row."""
        return self._part(5).view(torch.float32)

    @property
    def positions(self) -> torch.Tensor:
        """[n_pes, max_tokens, top_k] int32, the row of each choice; -1 where there is none."""
        return self._part(6).view(self.members.size, self.max_tokens, self.top_k)

    @property
    def _layout(self) -> tuple[int, int, int, int]:
        return self.members.size, self.max_tokens, self.top_k, self.num_experts

    def _part(self, i: int) -> torch.Tensor:
        return self.memory.narrow(0, self.parts[i], _sizes(*self._layout)[i])


def _sizes(n_pes: int, max_tokens: int, top_k: int, num_experts: int) -> tuple[int, ...]:
    """Words of the parts: counts, offsets, the tokens of each PE, where the rows of each PE begin among those of each
    expert [n_pes, num_experts], and by row or choice: tokens, weights, positions."""
    rows = n_pes * max_tokens * top_k
    return num_experts, num_experts + 1, n_pes, n_pes * num_experts, rows, rows, rows


def _begins(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Where parts of these sizes begin, at multiples of 16 bytes."""
    begins = [0]
    for size in sizes[:-1]:
        begins.append(begins[-1] + -(-size // 4) * 4)
    return tuple(begins)


def memory_words(n_pes: int, max_tokens: int, top_k: int, num_experts: int) -> int:
    """How many words the memory has."""
    sizes = _sizes(n_pes, max_tokens, top_k, num_experts)
    return _begins(sizes)[-1] + sizes[-1]


@triton.jit(do_not_specialize=["n_tokens"])
def moe_gather_routing_pack(
    packed, ids, weights, n_tokens, E: tl.constexpr, K: tl.constexpr, MAX_TOKENS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """[2 * MAX_TOKENS * K + 4]: ids, which are -1 behind the last token, weights, and how many tokens there are."""
    choices = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = choices < n_tokens * K
    given = tl.load(ids + choices, mask=there, other=-1)
    assert (given >= -1) & (given < E), "gather_routing: an expert id is not in [-1, num_experts)"
    exist = choices < MAX_TOKENS * K
    tl.store(packed + choices, given.to(tl.int32), mask=exist)
    weight = tl.load(weights + choices, mask=there, other=0.0)
    tl.store(packed + MAX_TOKENS * K + choices, weight.to(tl.int32, bitcast=True), mask=exist)
    if tl.program_id(0) == 0:
        tl.store(packed + 2 * MAX_TOKENS * K + tl.arange(0, 4), tl.zeros([4], tl.int32) + n_tokens)


@triton.jit
def _chunk(gathered, first, MAX_TOKENS: tl.constexpr, K: tl.constexpr, CHUNKS: tl.constexpr, SIZE: tl.constexpr):
    """The rank whose choices are this program's, a pointer to them, and the choices of a chunk from ``first`` on."""
    rank = tl.program_id(0) // CHUNKS
    choices = tl.program_id(0) % CHUNKS * SIZE + first + tl.arange(0, _RANKED)
    return rank, gathered + rank.to(tl.int64) * (2 * MAX_TOKENS * K + 4), choices, choices < MAX_TOKENS * K


@triton.jit
def moe_gather_routing_count(
    chunk_counts, gathered, E: tl.constexpr, K: tl.constexpr, MAX_TOKENS: tl.constexpr, CHUNKS: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    EP: tl.constexpr = triton.next_power_of_2(E)
    counted = tl.zeros([EP], tl.int32)
    for first in range(0, SIZE, _RANKED):
        _, source, choices, exist = _chunk(gathered, first, MAX_TOKENS, K, CHUNKS, SIZE)
        ids = tl.load(source + choices, mask=exist, other=-1)
        counted += tl.histogram(ids, EP, mask=(ids >= 0) & (ids < E))
    tl.store(chunk_counts + tl.program_id(0) * EP + tl.arange(0, EP), counted)


@triton.jit
def moe_gather_routing_place(
    chunk_counts, memory, gathered, N: tl.constexpr, E: tl.constexpr, K: tl.constexpr, MAX_TOKENS: tl.constexpr,
    CHUNKS: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    EP: tl.constexpr = triton.next_power_of_2(E)
    program = tl.program_id(0)
    experts = tl.arange(0, EP)
    before = tl.zeros([EP], tl.int32)
    counts = tl.zeros([EP], tl.int32)
    AT_A_TIME: tl.constexpr = min(8, max(1, 4096 // EP))
    for first in range(0, N * CHUNKS, AT_A_TIME):
        others = first + tl.arange(0, AT_A_TIME)
        at = chunk_counts + others[:, None] * EP + experts[None, :]
        found = tl.load(at, mask=(others < N * CHUNKS)[:, None], other=0)
        counts += tl.sum(found, axis=0)
        before += tl.sum(tl.where((others < program)[:, None], found, 0), axis=0)
    offsets = tl.cumsum(counts, axis=0) - counts
    begins = offsets + before
    if program == 0:
        tl.store(memory + PARTS[0] + experts, counts, mask=experts < E)
        tl.store(memory + PARTS[1] + experts, offsets, mask=experts < E)
        tl.store(memory + PARTS[1] + E, tl.sum(counts))
    if program % CHUNKS == 0:
        rank, source, _, _ = _chunk(gathered, 0, MAX_TOKENS, K, CHUNKS, SIZE)
        tl.store(memory + PARTS[2] + rank, tl.load(source + 2 * MAX_TOKENS * K))
        tl.store(memory + PARTS[3] + rank * E + experts, before, mask=experts < E)
    order = tl.arange(0, _RANKED)
    for first in range(0, SIZE, _RANKED):
        rank, source, choices, exist = _chunk(gathered, first, MAX_TOKENS, K, CHUNKS, SIZE)
        ids = tl.load(source + choices, mask=exist, other=-1)
        weights = tl.load(source + MAX_TOKENS * K + choices, mask=exist, other=0)
        same = (ids[:, None] == ids[None, :]) & (order[:, None] < order[None, :])
        made = exist & (ids >= 0) & (ids < E)
        rows = tl.gather(begins, tl.where(made, ids, 0), 0) + tl.sum(same.to(tl.int32), axis=0)
        tl.store(memory + PARTS[4] + rows, rank * MAX_TOKENS + choices // K, mask=made)
        tl.store(memory + PARTS[5] + rows, weights, mask=made)
        tl.store(memory + PARTS[6] + rank * (MAX_TOKENS * K) + choices, tl.where(made, rows, -1), mask=exist)
        begins += tl.histogram(ids, EP, mask=made)


@triton.jit
def have_rows(positions, tokens, n_tokens, begin, end, K: tl.constexpr):
    """Which of a PE's tokens, a block, have rows from ``begin`` to ``end``.

    ``positions`` points to those of the PE: the rows of each token, by choice.
    """
    choices = tl.arange(0, triton.next_power_of_2(K))
    at = positions + tokens[:, None] * K + choices[None, :]
    rows = tl.load(at, mask=(tokens < n_tokens)[:, None] & (choices < K)[None, :], other=-1)
    return tl.max(((rows >= begin) & (rows < end)).to(tl.int32), axis=1) != 0


# ---- the host's part


@made_again()
def gather_routing(
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    max_tokens: int,
    group: Any = None,
) -> GatheredRouting:
    """Tell every PE which experts this PE's tokens go to, and learn it of all tokens.

    *Collective*, on the current stream. Every PE calls it with the same sizes but for T, and may have no tokens at all.
    A call may be captured in a CUDA graph after it has run once for its sizes.

    Args:
        topk_ids: [T, top_k] int32 or int64, contiguous, in [0, num_experts), or -1 for a choice that is not made. An
            expert may be chosen twice.
        topk_weights: [T, top_k] float32, contiguous; by default 1.
        num_experts: of which every PE has a slice.
        max_tokens: how many tokens a PE may have.
        group: as of all functions of :mod:`triton_dist.kernels`.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how. RuntimeError: in the CPU
            world, an id is out of range, which on a GPU is a device-side assertion.
    """
    with calling("gather_routing", group) as comm:
        return gather(comm, topk_ids, topk_weights, num_experts, max_tokens)


def gather(
    comm: Communicator,
    ids: torch.Tensor,
    weights: torch.Tensor | None,
    num_experts: int,
    max_tokens: int,
    new: Callable[..., torch.Tensor] = torch.empty,
) -> GatheredRouting:
    """:func:`gather_routing`, inside a call; ``new`` makes the result, ``torch.empty`` or ``torch.zeros``."""
    prepared, signature = comm.own(Prepared), None
    if weights is not None and type(num_experts) is type(max_tokens) is int:
        signature = prepared.signature(("gather_routing", num_experts, max_tokens), ids, weights)
    sizes: _Words | None = prepared.details(signature)
    if sizes is not None and not records_gradients(weights):
        made = sizes.tensors(new, ids.device)
        if prepared.repeat(signature, ids, weights, *made):
            return GatheredRouting(made[0], ids.shape[0], ids.shape[1], num_experts, max_tokens, comm.members, comm)
    weights = _check(comm, ids, weights, num_experts, max_tokens)
    n_tokens, top_k = ids.shape
    compared = "gather_routing", ids.shape[1], num_experts, max_tokens
    comm.compare(*compared)
    sizes = _words_of(comm.n_pes, max_tokens, top_k, num_experts)
    memory, packed, chunk_counts = sizes.tensors(new, ids.device)
    routing = GatheredRouting(memory, n_tokens, top_k, num_experts, max_tokens, comm.members, comm)
    of_tokens = _pack(packed, ids, weights, routing)
    gathered = workspace(comm, max_tokens, top_k)
    all_gather(gathered, packed, group=comm)
    count, place = _place(chunk_counts, gathered, routing)
    parts: Sequence[Part] = (
        (of_tokens, lambda ids, weights, memory, packed, counts: (packed, ids, weights)),
        (Nested(lambda packed: all_gather(gathered, packed, group=comm), (gathered,)), lambda *call: call[3:4]),
        (count, lambda *call: call[4:]),
        (place, lambda *call: (call[4], call[2])),
    )
    made = memory, packed, chunk_counts
    made_anew = NewTensors(
        tuple(map(like, made)), ((2,), (3,), (4,)), (0,), partial(_routing, routing[1:]), lambda routing: routing[:1]
    )
    prepared.keep(signature, steps(*parts), *compared, details=sizes, new=made_anew)
    return routing


def of_one_pe(ids: torch.Tensor, num_experts: int, new: Callable[..., torch.Tensor] = torch.empty) -> GatheredRouting:
    """Which rows the choices ``ids`` [T, top_k] of one PE have, which tells nobody: in [0, num_experts), or -1. It has
    no weights. Launched again where an equal call was made."""
    n_tokens, top_k = ids.shape
    again = partial(launch_again, "group_by_expert")
    memory, packed, chunk_counts = _words_of(1, n_tokens, top_k, num_experts).tensors(new, ids.device)
    routing = with_memory(memory, ids.shape, num_experts)
    _pack(packed, ids, new(ids.shape, dtype=torch.float32, device=ids.device), routing, again)
    _place(chunk_counts, packed, routing, again)
    return routing


def with_memory(memory: torch.Tensor, choices: Sequence[int], num_experts: int) -> GatheredRouting:
    """The routing of one PE, by its memory, for ids of the shape ``choices``."""
    n_tokens, top_k = choices
    return GatheredRouting(memory, n_tokens, top_k, num_experts, n_tokens, Members(0, 1, 1))


def _pack(
    packed: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    routing: GatheredRouting,
    run: Callable[..., Launch | None] = launch,
) -> Launch | None:
    choices = routing.max_tokens * routing.top_k
    return run(
        moe_gather_routing_pack, (triton.cdiv(choices, 1024),), (packed, ids, weights), routing.n_tokens,
        routing.num_experts, routing.top_k, routing.max_tokens, 1024, debug=True, sanitize_overflow=False,
    )  # fmt: skip


def _place(
    chunk_counts: torch.Tensor,
    gathered: torch.Tensor,
    routing: GatheredRouting,
    run: Callable[..., Launch | None] = launch,
) -> tuple[Launch | None, Launch | None]:
    """Count the choices of each chunk, and give each its row."""
    n, choices, ranked = routing.members.size, routing.max_tokens * routing.top_k, int(_RANKED.value)
    chunks = _chunks_of(n, choices)
    cut = {"CHUNKS": chunks, "SIZE": triton.cdiv(choices, chunks * ranked) * ranked}
    common = {"E": routing.num_experts, "K": routing.top_k, "MAX_TOKENS": routing.max_tokens}
    count = run(moe_gather_routing_count, (n * chunks,), (chunk_counts,), gathered, **common, **cut)
    place = run(
        moe_gather_routing_place,
        (n * chunks,),
        (chunk_counts, routing.memory),
        gathered,
        n,
        **common,
        **cut,
        PARTS=routing.parts,
        num_warps=8,
    )
    return count, place


def _chunks_of(n_pes: int, choices: int) -> int:
    """Of each PE's choices."""
    return max(1, min(int(triton.cdiv(choices, 4 * _RANKED.value)), _CHUNKS // n_pes))


def _routing(rest: tuple[Any, ...], parts: tuple[Any, ...]) -> GatheredRouting:
    return GatheredRouting(*parts, *rest)


class _Words(NamedTuple):
    """How many words the tensors have that a call makes."""

    memory: int
    packed: int
    chunk_counts: int

    def tensors(
        self, new: Callable[..., torch.Tensor], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        memory = new(self.memory, dtype=torch.int32, device=device)
        return memory, memory.new_empty(self.packed), memory.new_empty(self.chunk_counts)


def _words_of(n_pes: int, max_tokens: int, top_k: int, num_experts: int) -> _Words:
    return _Words(
        memory_words(n_pes, max_tokens, top_k, num_experts),
        _packed_words(max_tokens, top_k),
        n_pes * _chunks_of(n_pes, max_tokens * top_k) * int(triton.next_power_of_2(num_experts)),
    )


def _packed_words(max_tokens: int, top_k: int) -> int:
    return 2 * max_tokens * top_k + 4


def workspace(comm: Communicator, max_tokens: int, top_k: int) -> torch.Tensor:
    """Symmetric memory for what all PEs tell. *Collective* when it is made."""
    words = comm.n_pes * _packed_words(max_tokens, top_k)
    return symmetric_workspace(comm, "moe: gathered routing", words)[:words]


def check_routing(function: str, routing: object) -> None:
    if not isinstance(routing, GatheredRouting):
        raise TypeError(f"{function}: routing must be what gather_routing returns, got {type(routing).__name__}")


def communicator_of(function: str, routing: GatheredRouting) -> Communicator:
    """The communicator that gathered ``routing``."""
    check_routing(function, routing)
    if routing.comm is None:
        raise ValueError(
            f"{function}: this routing was gathered by moe.functional.gather_routing: pass it to"
            f" moe.functional.{function}"
        )
    return routing.comm


def _check(
    comm: Communicator, ids: torch.Tensor, weights: torch.Tensor | None, num_experts: int, max_tokens: int
) -> torch.Tensor:
    """Check the arguments, all but the values of ``ids``, and return the weights."""
    refuse_gradients("gather_routing", weights)
    check_contiguous("gather_routing", topk_ids=ids)
    if ids.dim() != 2 or ids.dtype not in (torch.int32, torch.int64) or not 1 <= ids.shape[1] <= 64:
        raise ValueError(
            "gather_routing: topk_ids must be [T, top_k] of torch.int32 or torch.int64, with top_k in [1, 64]; got"
            f" shape {tuple(ids.shape)} and {ids.dtype}"
        )
    if weights is None:
        weights = torch.ones(ids.shape, dtype=torch.float32, device=ids.device)
    check_contiguous("gather_routing", topk_weights=weights)
    if weights.shape != ids.shape or weights.dtype != torch.float32:
        raise ValueError(
            f"gather_routing: topk_weights must be {tuple(ids.shape)} of torch.float32, as topk_ids is, got shape"
            f" {tuple(weights.shape)} and {weights.dtype}"
        )
    check_int("gather_routing", "num_experts", num_experts)
    check_int("gather_routing", "max_tokens", max_tokens, 1)
    if ids.shape[0] > max_tokens:
        raise ValueError(f"gather_routing: topk_ids has {ids.shape[0]} tokens, and max_tokens is {max_tokens}")
    pes = int(triton.next_power_of_2(comm.n_pes))
    if not 1 <= num_experts <= _EXPERTS or pes * int(triton.next_power_of_2(num_experts)) > _COUNTS:
        raise ValueError(
            f"gather_routing: num_experts must be in [1, {min(_EXPERTS, _COUNTS // pes)}] for {comm.n_pes} PEs, got"
            f" {num_experts}"
        )
    if comm.n_pes * max_tokens * ids.shape[1] >= 1 << 30:
        raise ValueError(
            f"gather_routing: {comm.n_pes} PEs * max_tokens {max_tokens} * top_k {ids.shape[1]} must be less than 2**30"
        )
    return weights
