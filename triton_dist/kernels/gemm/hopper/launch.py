"""The host's side of the kernel: the memory that its launches keep, and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import triton_dist
from triton_dist.kernels.device import gpu
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import K_BYTES, Config, block_k, choose
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.gemm.hopper import layout as words
from triton_dist.kernels.gemm.hopper import trace_events as notes
from triton_dist.kernels.gemm.hopper.kernel import multiply
from triton_dist.kernels.gemm.schedule import Schedule, Tile, grouped, make_schedule
from triton_dist.kernels.tracing.recorder import Event, claim

__all__ = ["REGISTERS", "Launcher", "all_tiles", "everywhere", "fits"]

_RESULTS = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
_TYPES = _RESULTS | {torch.float8_e4m3fn: gl.float8e4nv, torch.float8_e5m2: gl.float8e5}
_PIECE = (16, 64)
"""What is sent at a time: 2 KB in rows of 128 bytes, two of them on their way from each program."""
_TAKEN = 320e9
"""Bytes in a second that NVLink takes of an H200's programs that also compute, without being in the way of what they
load, within a few percent; if they only send, it takes 10 to 15 % more."""
_ALL = 16  # pieces on their way: no limit
_FLOPS_A_CYCLE = 4096
"""What a multiprocessor multiplies with 16-bit floats."""
REGISTERS = {1: 232, 2: 168}
"""Registers of a thread, by groups: all that a multiprocessor has."""


def fits(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    """Whether the kernel computes c = a · b: a Hopper GPU, few PEs, a result of 16-bit floats, factors of these or of
    fp8, in rows that TMA can address. ``b`` may have them as columns, and with fp8 must: the tensor cores take 8-bit
    factors only in lines along K."""
    if triton_dist.kind() != "gpu" or gpu().capability != (9, 0):
        return False
    if triton_dist.n_pes() > words.MAX_PES.value:
        return False
    if c.dtype not in _RESULTS or (a.dtype in FP8 and b.stride(1) == 1):
        return False
    return _addressable(a) and (_addressable(b) or _addressable(b.t())) and _addressable(c)


def _addressable(matrix: torch.Tensor) -> bool:
    step, one = matrix.stride()
    return (
        matrix.dtype in _TYPES
        and one == 1
        and step * matrix.element_size() % 16 == 0
        and step >= matrix.shape[1]
        and matrix.data_ptr() % 16 == 0
        and matrix.numel() > 0
    )


@dataclass(frozen=True)
class Launcher:
    """One schedule of one operation on this world. *Collective* to make, because it has symmetric flags.

    Attributes:
        out, gather: see ``hopper/send.py`` and ``hopper/load.py``.
        tile_columns: tiles beside each other in C.
        ring_tiles: how many tiles have flags of their own on the next PE.
        state_words: how many words of state the schedule names beyond the first ones.
        chunk_sizes: tiles of each chunk, where the copy engine sends.
        senders: programs that pass on what the others compute.
        spread: over which share of the time of the next tile a program sends one, in small pieces, so that NVLink is
            never asked for more than it can take (see ``send_to_peers``); 0: as fast as it can, in blocks.
    """

    schedule: Schedule
    config: Config
    out: str
    gather: bool
    tile_columns: int
    ring_tiles: int = 0
    state_words: int = 0
    chunk_sizes: Sequence[int] = ()
    senders: int = 0
    spread: float = 0

    def __post_init__(self) -> None:
        self.flags  # noqa: B018 (made now, by all PEs together)

    @cached_property
    def flags(self) -> torch.Tensor:
        return triton_dist.zeros(words.TILES.value + self.ring_tiles, dtype=torch.int32)

    @cached_property
    def distances(self) -> torch.Tensor:
        """Bytes from a symmetric object here to the same on each PE."""
        here = self.flags.data_ptr()
        there = [triton_dist.peer(self.flags, pe).data_ptr() for pe in range(triton_dist.n_pes())]
        return self._here([address - here for address in there], torch.int64)

    @cached_property
    def state(self) -> torch.Tensor:
        return self._zeros(words.CHUNKS.value + max(self.state_words, len(self.chunk_sizes)))

    @cached_property
    def chunk_flags(self) -> torch.Tensor:
        return self._zeros(max(1, len(self.chunk_sizes)))

    @cached_property
    def _tables(self) -> tuple[torch.Tensor, ...]:
        tile = self.config.block_m * self.config.block_n
        return (
            self._here(self.schedule.units, torch.int32),
            self._here(self.schedule.starts, torch.int32),
            torch.empty(max(1, self.schedule.slots) * tile, dtype=torch.float32, device=self.flags.device),
            self._zeros(max(1, self.schedule.slots * self.config.groups)),
            self._here(self.chunk_sizes or [0], torch.int32),
        )

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        *,
        a_own: torch.Tensor | None = None,
        everywhere: Sequence[torch.Tensor] = (),
        following: torch.Tensor | None = None,
        staging: torch.Tensor | None = None,
        scale: torch.Tensor | None = None,
    ) -> None:
        """Launch on the current stream.

        Args:
            a, b, c: the matrices [M, K], [K, N] and [M, N], as this PE sees them.
            a_own: this PE's rows of A, where ``a`` gathers.
            everywhere: C on all PEs, this one first.
            following, staging: where sums of a ring leave to, and come in.
            scale: what sums are multiplied by, one float32; for fp8 factors, and only for them.
        """
        config = self.config
        by_columns = b.stride(1) != 1
        part_m, k_block = config.block_m // config.groups, block_k(a.dtype)
        a_block, c_block = [part_m, k_block], [part_m, config.block_n]
        a_map, c_map = _map(a, a_block), _map(c, c_block)
        piece = list(_PIECE) if self.spread else c_block
        peers = [_map(there, piece) for there in everywhere]
        peers += [peers[-1] if peers else c_map] * (words.MAX_PES.value - len(peers))
        b_map = _map(b.t(), [config.block_n, k_block]) if by_columns else _map(b, [k_block, config.block_n])
        units, starts, slots, slot_flags, sizes = self._tables
        multiply[(len(self.schedule.starts) - 1,)](
            a_map,
            a_map if a_own is None else _map(a_own, a_block),
            b_map,
            c_map,
            *peers,
            c_map if following is None else _map(following, piece),
            c_map if staging is None else _map(staging, c_block),
            units, starts, slots, slot_flags, slots if scale is None else scale,
            self.state, self.flags, self.distances, sizes, self.chunk_flags,
            triton_dist.my_pe(), self.tile_columns, self._pace, self._gap,
            claim(*self._noted),
            config.block_m, config.block_n, k_block, config.stages, config.groups, triton_dist.n_pes(),
            self.out, self.gather, self.schedule.slots > 0, by_columns, self.senders, 2 if self.spread else _ALL,
            num_warps=4, maxnreg=REGISTERS[config.groups],
        )  # fmt: skip

    @cached_property
    def _noted(self) -> tuple[str, int, Callable[[torch.Tensor], Iterator[Event]]]:
        name = f"product, {'gathering' if self.gather else self.out.replace('_', ' ')}"
        return name, notes.words(self.schedule), partial(notes.read, self.schedule)

    @cached_property
    def _pace(self) -> int:
        """From piece to piece, 256ths of cycles for each step along K of the unit that is computed meanwhile."""
        config, peers = self.config, 1 if self.out == "ring" else max(1, triton_dist.n_pes() - 1)
        pieces = config.block_m * config.block_n * peers / (_PIECE[0] * _PIECE[1])
        # (Of 8-bit floats, a block has twice as many, multiplied twice as fast.)
        computed = 2 * config.block_m * config.block_n * (K_BYTES / 2) / _FLOPS_A_CYCLE
        return int(256 * self.spread * computed / pieces)

    @cached_property
    def _gap(self) -> int:
        """From piece to piece, nanoseconds, while a tile is computed."""
        return int(1e9 * _PIECE[0] * _PIECE[1] * 2 * portable.programs() / _TAKEN) if self.spread else 0

    def _here(self, values: Sequence[object], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.flags.device)

    def _zeros(self, n: int) -> torch.Tensor:
        return torch.zeros(n, dtype=torch.int32, device=self.flags.device)


def _map(matrix: torch.Tensor, block: list[int]) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(block, _TYPES[matrix.dtype])
    return TensorDescriptor.from_tensor(matrix, block, layout)


def all_tiles(a: torch.Tensor, c: torch.Tensor, out: str, *, peers: int = 0, spread: float = 0) -> Launcher:
    """The plain schedule of a product with ``a`` in ``c``: tile after tile, and all programs compute."""
    programs = portable.programs()
    config = choose(a, c, programs, peers=peers)
    rows, columns = config.tiles(c)
    # Peers take stores faster that lie near each other: 8192 × 36864 × 4608 on 4 H200s takes 3 % longer with 8 rows.
    tiles = [Tile(row, column, 0) for row, column in grouped(rows, columns, 4 if peers else 8)]
    schedule = make_schedule(tiles, config.k_steps(a), programs)
    return Launcher(schedule, config, out, False, len(columns), spread=spread)


def everywhere(tensor: torch.Tensor) -> list[torch.Tensor]:
    """A symmetric tensor as it lies on this PE, the next, and so on."""
    n_pes, me = triton_dist.n_pes(), triton_dist.my_pe()
    return [triton_dist.peer(tensor, (me + i) % n_pes) for i in range(n_pes)]
