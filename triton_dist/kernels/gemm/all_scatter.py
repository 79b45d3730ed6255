"""GEMM and all-scatter: C = A · B with B split by columns over the PEs, and all of C on every PE.

Five patterns, the taxonomy of Iris (Awad et al., "Iris: First-Class Multi-GPU Programming Experience in Triton", 2025),
and one more:

- ``bulk_synchronous``: the product, then its tiles are sent. Nothing overlaps.
- ``producer_consumer``: two kernels on two streams; the product's has most of the GPU and raises a flag for each tile,
  the other waits for the flags and sends.
- ``copy_engine``: the same, but the GPU's copy engine is the consumer, so that all SMs compute (``copy_engine.py``).
- ``fused_sequential``: one kernel; a program sends each tile that it has computed, then computes the next.
- ``fused_producer_consumer``: one kernel; some programs send what the others compute.
- ``warp_specialized``: one kernel; in every program one warp sends a tile while the others compute the next.
"""

from __future__ import annotations

from functools import partial

import torch
import triton

import triton_dist
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.arguments import check_choice, check_factors, result
from triton_dist.kernels.gemm.config import LARGE, WIRE, flops
from triton_dist.kernels.gemm.copy_engine import send_by_engine
from triton_dist.kernels.gemm.fp8 import FP8, scale_of
from triton_dist.kernels.gemm.local_gemm import alone
from triton_dist.kernels.gemm.measure import fastest
from triton_dist.kernels.gemm.plan_cache import kept, shape_of
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.stream_barrier import meeting

__all__ = ["PATTERNS", "gemm_all_scatter"]

SENDERS = 16
"""Programs, or multiprocessors, that send where some do nothing else: enough for most of an H200's NVLink."""

SPREAD = 0.9
"""Over which share of the next tile's time a program sends one, where it computes and sends."""


def gemm_all_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    pattern: str = "auto",
    scale_a: torch.Tensor | float | None = None,
    scale_b: torch.Tensor | float | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """C = A · B on every PE, from B's columns on each. *Collective*, on the current stream; may be captured in a graph.

    When it ends on a PE, as far as its stream is concerned, its ``out`` is complete, and ``a`` and ``b`` may be
    overwritten. The result is the same whenever it is run with the same pattern.

    Args:
        a: [M, K], the same on every PE; bfloat16, float16, float32, float8_e4m3fn or float8_e5m2, with contiguous rows.
        b: [K, N / n_pes], this PE's columns, with contiguous rows or columns. The same shape on every PE. Of ``a``'s
            type; if that is an fp8 one, of either.
        out: [M, N], contiguous and symmetric; by default a new one, which is *collective* and not for graphs. Of
            ``a``'s type; if that is an fp8 one, bfloat16, float16 or float32.
        pattern: how communication is overlapped (see the module), or ``auto``: the fastest of those that can be had
            here, as measured when a shape is first used. ``warp_specialized`` and ``copy_engine`` need a Hopper GPU,
            and rows that are multiples of 16 bytes; with fp8, ``b`` by columns and a result of 16-bit floats, too.
        scale_a, scale_b: what the elements of ``a`` and ``b`` have to be multiplied by, as a float32 tensor of one
            element each, or a number; for fp8 only. By default 1. They may differ between PEs.
        out_dtype: of the result of fp8 factors; by default ``out``'s, or bfloat16.

    Returns:
        ``out``. Sums are accumulated in float32; of fp8 products, with the bits that the GPU keeps of them
        (``hopper/multiply.py``).

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
        RuntimeError: in the capture of a graph, before a first run of the same shape.
    """
    check_factors("gemm_all_scatter", ("a", "b"), a, b)
    check_choice("gemm_all_scatter", "pattern", pattern, ("auto", *PATTERNS))
    n_pes, me = triton_dist.n_pes(), triton_dist.my_pe()
    m, n = a.shape[0], b.shape[1]
    c = result("gemm_all_scatter", out, (m, n * n_pes), a.dtype, symmetric=True, out_dtype=out_dtype)
    scale = scale_of("gemm_all_scatter", a.dtype, scale_a, scale_b)
    mine = c[:, me * n : (me + 1) * n]
    possible = _possible(a, b, mine)
    if pattern == "auto":
        ways = {name: partial(PATTERNS[name], a, b, mine, scale) for name in possible}
        pattern = fastest("gemm_all_scatter", a, b, mine, ways)
    elif pattern not in possible:
        raise ValueError(
            f"gemm_all_scatter: pattern {pattern} needs a Hopper GPU, up to 8 PEs, factors of 16-bit floats, or of fp8"
            " with b by columns, a result of 16-bit floats, and rows (of out: each PE's share, too) that begin at"
            " multiples of 16 bytes. Take another one, or auto"
        )
    PATTERNS[pattern](a, b, mine, scale)
    return c


def _possible(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[str]:
    if triton_dist.kind() == "cpu":
        return ["fused_sequential", "bulk_synchronous", "producer_consumer", "fused_producer_consumer"]
    return list(PATTERNS) if _for_hopper(a, b, c) else [name for name in PATTERNS if name not in _HOPPER]


def _for_hopper(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    from triton_dist.kernels.gemm.hopper.launch import fits

    # What is true here must be true everywhere: also the other PEs' columns begin at a multiple of 16 bytes.
    return c.shape[1] * c.element_size() % 16 == 0 and fits(a, b, c)


def _bulk_synchronous(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None) -> None:
    meeting()
    alone(a, b, c, scale)
    portable.send(c, None, portable.programs())
    meeting()


def _producer_consumer(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None) -> None:
    flags = _flags(c)
    grid = portable.programs()
    senders = min(SENDERS, grid // 2)
    meeting()
    if triton_dist.kind() == "cpu":  # one kernel at a time
        portable.local(a, b, c, flags, scale=scale)
        portable.send(c, flags, senders)
    else:
        with side_stream() as beside:
            portable.local(a, b, c, flags, grid - senders, scale=scale)
            with torch.cuda.stream(beside):
                portable.send(c, flags, senders)
    meeting()


def _fused_sequential(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None) -> None:
    meeting()
    portable.scatter(a, b, c, scale)
    meeting()


def _fused_producer_consumer(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None) -> None:
    if _for_hopper(a, b, c) and (b.stride(1) == 1 or a.dtype in FP8):
        _senders(a, b, c, scale, _how_many_send(a, c))
        return
    meeting()
    portable.scatter_by_programs(a, b, c, _flags(c), min(SENDERS, portable.programs() // 2), scale)
    meeting()


def _how_many_send(a: torch.Tensor, c: torch.Tensor) -> int:
    """More, where a product of this depth is computed faster than it can be sent."""
    sent = c.numel() * c.element_size() * (triton_dist.n_pes() - 1) / WIRE
    computed = 2 * c.numel() * a.shape[1] / flops(a.dtype)
    return SENDERS if sent < computed else 2 * SENDERS


def _senders(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None, senders: int) -> None:
    from triton_dist.kernels.gemm.hopper.launch import Launcher, everywhere
    from triton_dist.kernels.gemm.hopper.layout import CHUNKS

    def make() -> Launcher:
        config, programs = LARGE, portable.programs() - senders
        rows, columns = config.tiles(c)
        places = list(grouped(rows, columns))
        # A tile has a word of state, which its program raises for the sender. In the end nobody computes any more who
        # could be disturbed: the last round's tiles go to everybody straight from the programs that computed them.
        last = len(places) - programs
        tiles = [Tile(row, column, CHUNKS.value + i if i < last else -1) for i, (row, column) in enumerate(places)]
        sent = [tile for tile in tiles if tile.pe >= 0]
        sent_by = [sent[i::senders] for i in range(senders)]
        schedule = make_schedule(tiles, config.k_steps(a), programs, passed_on=sent_by)
        return Launcher(schedule, config, "senders", False, len(columns), state_words=len(tiles), senders=senders)

    launcher = kept(("senders", senders, *shape_of(a, b)), make)
    launcher(a, b, c, everywhere=everywhere(c), scale=scale)


def _warp_specialized(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None) -> None:
    from triton_dist.kernels.gemm.hopper.launch import all_tiles, everywhere

    peers = triton_dist.n_pes() - 1
    make = partial(all_tiles, a, c, "scatter", peers=peers, spread=SPREAD)
    kept(("scatter", *shape_of(a, b)), make)(a, b, c, everywhere=everywhere(c), scale=scale)


PATTERNS = {
    "bulk_synchronous": _bulk_synchronous,
    "producer_consumer": _producer_consumer,
    "copy_engine": send_by_engine,
    "fused_sequential": _fused_sequential,
    "fused_producer_consumer": _fused_producer_consumer,
    "warp_specialized": _warp_specialized,
}

_HOPPER = ("copy_engine", "warp_specialized")


def _flags(c: torch.Tensor) -> torch.Tensor:
    size = portable.blocks(c.dtype)
    tiles = triton.cdiv(c.shape[0], size["BLOCK_M"]) * triton.cdiv(c.shape[1], size["BLOCK_N"])
    return kept(("tile flags", tiles), lambda: torch.zeros(tiles, dtype=torch.int32, device=c.device))
