"""The host's side of a Hopper GEMM: what it computes, its plan for a shape, and the TMA descriptors of a call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import is_hopper
from triton_dist.kernels.gemm.config import Config, block_k
from triton_dist.kernels.gemm.fp8 import FP8, BlockScales, RowScales
from triton_dist.kernels.gemm.hopper import trace_events
from triton_dist.kernels.gemm.hopper.block_scales import BlockFactors
from triton_dist.kernels.gemm.hopper.epochs import Peers
from triton_dist.kernels.gemm.hopper.layout import CHUNKS, MAX_PES, TILES
from triton_dist.kernels.gemm.hopper.load import PIECE
from triton_dist.kernels.gemm.hopper.memory import sums_of_parts, symmetric_flags
from triton_dist.kernels.gemm.hopper.multiply import SplitK
from triton_dist.kernels.gemm.hopper.scales import RowFactors
from triton_dist.kernels.gemm.hopper.store import Pacing
from triton_dist.kernels.gemm.hopper.warps import REGISTERS
from triton_dist.kernels.gemm.hopper.work import Work
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.schedule import Schedule, Tile, grouped, make_schedule
from triton_dist.kernels.gemm.tile_sizes import ROUNDS_OF_LARGE, choose
from triton_dist.kernels.protocols.workspace import peer_distances
from triton_dist.kernels.tracing.recorder import Event, claim
from triton_dist.world.current import current_world

__all__ = [
    "RESULTS",
    "Plan",
    "addressable",
    "descriptor",
    "fits",
    "grouped_schedule",
    "operand_maps",
    "operands_fit",
    "operands_fit_alone",
    "peer_maps",
    "peer_tensors",
    "scale_argument",
    "takes",
    "tile_map",
]

RESULTS = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
_TYPES = RESULTS | {torch.float8_e4m3fn: gl.float8e4nv, torch.float8_e5m2: gl.float8e5}


def fits(comm: Communicator, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    """Whether the Hopper kernels compute c = a · b: they take the operands (:func:`operands_fit`), and the result is of
    16-bit floats in rows that TMA can address."""
    return operands_fit(comm, a, b) and c.dtype in RESULTS and _rows_fit(c)


def operands_fit(comm: Communicator, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the Hopper kernels take the operands: a Hopper GPU, up to 8 PEs, 16-bit floats or fp8, in rows that TMA
    can address. ``b`` may have contiguous columns instead, and with fp8 must: tensor cores take 8-bit operands only in
    lines along K."""
    return comm.n_pes <= MAX_PES.value and operands_fit_alone(a, b)


def operands_fit_alone(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same of any number of PEs."""
    if not is_hopper() or (a.dtype in FP8 and b.stride(1) == 1):
        return False
    return _rows_fit(a) and (addressable(b) or addressable(b.t()))


def takes(gemm: Operands) -> bool:
    """Whether the Hopper kernels compute it."""
    return fits(gemm.comm, gemm.a, gemm.b, gemm.c)


def scale_argument(gemm: Operands) -> torch.Tensor | BlockFactors | RowFactors | None:
    """The scale as kernels take it."""
    scale = gemm.scale
    if isinstance(scale, BlockScales):
        return BlockFactors(*scale, scale.a.stride(0), scale.b.stride(0))
    if isinstance(scale, RowScales):
        return RowFactors(*scale, gemm.b.shape[1])
    return scale


def addressable(matrix: torch.Tensor) -> bool:
    """Whether TMA can load and store blocks of a matrix with contiguous rows."""
    return matrix.numel() > 0 and _rows_fit(matrix)


def _rows_fit(matrix: torch.Tensor) -> bool:
    """Whether TMA can address such rows, of which there may be none: a shard without rows is as those of other PEs."""
    step, one = matrix.stride()
    return (
        matrix.dtype in _TYPES
        and one == 1
        and step * matrix.element_size() % 16 == 0
        and step >= matrix.shape[1]
        and matrix.data_ptr() % 16 == 0
    )


@dataclass(frozen=True)
class Plan:
    """What an operation keeps for a shape: its schedule, and the memory that its launches share.

    *Collective* to make, if it has symmetric flags.

    Attributes:
        communicator: whose operation it is.
        name: of the operation, in traces.
        n_flags: symmetric flags (``layout.py``); 0 if PEs do not signal each other.
        state_words: words of state that the schedule names, behind the first ones.
        tile_columns: columns of tiles that C has, where tiles have flags.
        pacing: of tiles that are sent to peers while others are computed.
    """

    communicator: Communicator
    name: str
    schedule: Schedule
    config: Config
    n_flags: int = TILES.value
    state_words: int = 0
    tile_columns: int = 0
    pacing: Pacing | None = None

    def __post_init__(self) -> None:
        # Now, by all PEs in the same order: a run may be captured, when no memory can be made.
        self.flags, self.peers, self.state, self.work, self.split  # noqa: B018

    def config_of(self, gemm: Operands) -> Config:
        """The configuration that kernels are compiled for: tiles do not depend on scales of rows, which it names."""
        return replace(self.config, of_rows=True) if isinstance(gemm.scale, RowScales) else self.config

    @cached_property
    def flags(self) -> torch.Tensor:
        return symmetric_flags(self.communicator, self.n_flags) if self.n_flags else self.zeros(0)

    @cached_property
    def peers(self) -> Peers:
        comm = self.communicator
        distances = peer_distances(comm, self.flags) if self.n_flags else self.upload([], torch.int64)
        return Peers(comm.my_rank, self.flags, distances)

    @cached_property
    def state(self) -> torch.Tensor:
        return self.zeros(CHUNKS.value + self.state_words)

    @cached_property
    def work(self) -> Work:
        return Work(self.upload(self.schedule.units, torch.int32), self.upload(self.schedule.starts, torch.int32))

    @cached_property
    def split(self) -> SplitK | None:
        if not self.schedule.slots:
            return None
        return SplitK(sums_of_parts(self.communicator), self.zeros(self.schedule.slots * self.config.groups))

    @cached_property
    def grid(self) -> tuple[int]:
        return (len(self.schedule.starts) - 1,)

    @cached_property
    def options(self) -> dict[str, int]:
        return {"num_warps": 4, "maxnreg": REGISTERS[self.config.groups]}

    def trace(self) -> torch.Tensor | None:
        """Memory for the trace events of one launch; None, if it is not traced."""
        return claim(*self._traced)

    @cached_property
    def _traced(self) -> tuple[str, int, Callable[[torch.Tensor], Iterator[Event]]]:
        return self.name, trace_events.words(self.schedule), partial(trace_events.read, self.schedule)

    def upload(self, values: Sequence[object], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=current_world().device)

    def zeros(self, n: int) -> torch.Tensor:
        """int32 words on this PE's device."""
        return torch.zeros(n, dtype=torch.int32, device=current_world().device)


def tile_map(matrix: torch.Tensor, config: Config, block: tuple[int, int] | None = None) -> TensorDescriptor:
    """The TMA descriptor of C, in blocks of one group's rows of a tile, or as given."""
    return descriptor(matrix, block or (config.group_m, config.c_columns))


def operand_maps(
    a: torch.Tensor, b: torch.Tensor, config: Config
) -> tuple[TensorDescriptor, TensorDescriptor, TensorDescriptor, bool]:
    """The TMA descriptors of blocks and of pieces of A, and of blocks of B; and whether B has contiguous columns, so
    that the last is that of its transpose."""
    k = block_k(a.dtype)
    a_map, a_piece = descriptor(a, (config.group_m, k)), descriptor(a, (PIECE.value, k))
    if b.stride(1) == 1:
        return a_map, a_piece, descriptor(b, (k, config.block_n)), False
    return a_map, a_piece, descriptor(b.t(), (config.block_n, k)), True


def peer_maps(comm: Communicator, c: torch.Tensor, block: tuple[int, int]) -> list[TensorDescriptor]:
    """The TMA descriptors of C on the next PE, the one after it, and so on; the last stands for those that lack."""
    found, most = [descriptor(there, block) for there in peer_tensors(comm, c)], int(MAX_PES.value) - 1
    return (found[1:] + found[-1:] * most)[:most]


def peer_tensors(comm: Communicator, tensor: torch.Tensor) -> list[torch.Tensor]:
    """A symmetric tensor on this PE, the next, and so on."""
    n_pes, me = comm.n_pes, comm.my_rank
    return [comm.peer(tensor, (me + i) % n_pes) for i in range(n_pes)]


def descriptor(matrix: torch.Tensor, block: tuple[int, int]) -> TensorDescriptor:
    """The TMA descriptor of a matrix, in blocks of this shape."""
    layout = gl.NVMMASharedLayout.get_default_for(list(block), _TYPES[matrix.dtype])
    return TensorDescriptor.from_tensor(matrix, list(block), layout)


def grouped_schedule(
    a: torch.Tensor, c: torch.Tensor, programs: int, *, peers: int = 0, fold: int = 1, of_blocks: bool = False
) -> tuple[Schedule, Config]:
    """The plain schedule of a GEMM with ``a`` in ``c``: all ``programs`` compute, tile after tile, in groups of
    rows.

    Args:
        peers: how many PEs each tile is sent to.
        fold: how many columns of B make one of C.
        of_blocks: whether scales are of blocks.
    """
    most = ROUNDS_OF_LARGE if peers else math.inf
    config = choose(a, c, programs, peers=peers, fold=fold, of_blocks=of_blocks, rounds_of_large=most)
    # Peers take stores faster that lie near each other: 8192 × 36864 × 4608 on 4 H200s takes 3 % longer with 8 rows.
    # Else the cache decides.
    rows, columns = config.tiles(c)
    group = 4 if peers else config.order(a, len(rows), len(columns), programs)
    tiles = [Tile(row, column, 0) for row, column in grouped(rows, columns, group)]
    return make_schedule(tiles, config.k_steps(a), programs), config
