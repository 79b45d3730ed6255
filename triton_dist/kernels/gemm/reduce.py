"""GEMM and reduce-scatter, GEMM and all-reduce: C = the sum over PEs of A · B, with K split over the PEs.

- ``bulk_synchronous``: the product, then the collective.
- ``ring``: one kernel. A PE computes the rows of C that the PE before it shall have first, then those of the PE
  before that, and its own last. It adds to each tile what the PE before it in the ring has sent of it, and sends the
  sum to the next: a tile of PE p's rows begins at PE p + 1, and has all PEs' sums when it ends at PE p. Every program
  works on a tile while a warp sends the one before and another fetches what has to be added. For the all-reduce, a
  PE's own tiles then go to everybody instead of to its own result alone.
- ``fused``, for few rows: one kernel that streams B and sends each tile to the PEs whose rows they are as soon as it is
  computed (``few_rows``).

Partial sums travel in the result's type and are added in float32, in the order of the PEs or of the ring.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import triton_dist
from triton_dist.kernels.collectives.all_reduce import all_reduce
from triton_dist.kernels.collectives.reduce_scatter import reduce_scatter
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.arguments import check_choice, check_factors, check_rows, result
from triton_dist.kernels.gemm.config import LARGE, choose
from triton_dist.kernels.gemm.fp8 import scale_of
from triton_dist.kernels.gemm.local_gemm import alone
from triton_dist.kernels.gemm.measure import fastest
from triton_dist.kernels.gemm.plan_cache import kept, room, shape_of
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule
from triton_dist.kernels.gemm.small_m import MAX_ROWS, few_rows, takes

__all__ = ["gemm_all_reduce", "gemm_reduce_scatter"]

PATTERNS = ("bulk_synchronous", "fused", "ring")

SPREAD = 0.5
"""Over which share of the next tile's time a program sends one. (What the next one is added to comes after that.)"""


def gemm_reduce_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    pattern: str = "auto",
    scale_a: torch.Tensor | float | None = None,
    scale_b: torch.Tensor | float | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """This PE's rows of the sum over all PEs of A · B. *Collective*, on the current stream; may be captured in a graph.

    When it ends on a PE, as far as its stream is concerned, its ``out`` is complete, and ``a`` and ``b`` may be
    overwritten. The result is the same whenever it is run with the same pattern.

    Args:
        a: [M, K / n_pes], this PE's columns of A; bfloat16, float16, float32, float8_e4m3fn or float8_e5m2, with
            contiguous rows. M is a multiple of the number of PEs.
        b: [K / n_pes, N], this PE's rows of B, with contiguous rows or columns; of ``a``'s type, or if that is an fp8
            one, of either.
        out: [M / n_pes, N], contiguous; by default a new one. PE p gets rows p · M / n_pes and on. Of ``a``'s type; if
            that is an fp8 one, bfloat16, float16 or float32, and so are the PEs' sums on their way.
        pattern: how communication is overlapped (see the module), or ``auto``: the faster of those that can be had
            here, as measured when a shape is first used. ``ring`` needs a Hopper GPU, and a multiple of 128 rows for
            each PE; with fp8, ``b`` by columns and a result of 16-bit floats, too. ``fused`` takes up to 128 rows in
            all, and no fp8.
        scale_a, scale_b: what the elements of ``a`` and ``b`` have to be multiplied by, as a float32 tensor of one
            element each, or a number; for fp8 only. By default 1. They may differ between PEs.
        out_dtype: of the result of fp8 factors; by default ``out``'s, or bfloat16.

    Returns:
        ``out``. A PE's sums are accumulated in float32; of fp8 products, with the bits that the GPU keeps of them
        (``hopper/multiply.py``).

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
        RuntimeError: in the capture of a graph, before a first run of the same shape.
    """
    check_factors("gemm_reduce_scatter", ("a", "b"), a, b)
    check_choice("gemm_reduce_scatter", "pattern", pattern, ("auto", *PATTERNS))
    rows = check_rows("gemm_reduce_scatter", "a", a.shape[0])
    c = result("gemm_reduce_scatter", out, (rows, b.shape[1]), a.dtype, symmetric=False, out_dtype=out_dtype)
    scale = scale_of("gemm_reduce_scatter", a.dtype, scale_a, scale_b)

    def bulk_synchronous() -> None:
        whole = room("product", a.shape[0], b.shape[1], c.dtype)
        alone(a, b, whole, scale)
        reduce_scatter(c, whole)

    ways = {
        "bulk_synchronous": bulk_synchronous,
        "fused": lambda: few_rows(a, b, c, to_all=False),
        "ring": lambda: _ring(a, b, c, scale),
    }
    _run("gemm_reduce_scatter", pattern, a, b, c, ways)
    return c


def gemm_all_reduce(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    pattern: str = "auto",
    scale_a: torch.Tensor | float | None = None,
    scale_b: torch.Tensor | float | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The sum over all PEs of A · B, on every PE. *Collective*, on the current stream; may be captured in a graph.

    Args:
        a, b, pattern, scale_a, scale_b, out_dtype: as of :func:`gemm_reduce_scatter`, except that
            ``bulk_synchronous`` and ``fused`` take any M.
        out: [M, N], contiguous and symmetric; by default a new one, which is *collective* and not for graphs.

    Returns:
        ``out``, equal on all PEs.

    Raises:
        as :func:`gemm_reduce_scatter`.
    """
    check_factors("gemm_all_reduce", ("a", "b"), a, b)
    check_choice("gemm_all_reduce", "pattern", pattern, ("auto", *PATTERNS))
    c = result("gemm_all_reduce", out, (a.shape[0], b.shape[1]), a.dtype, symmetric=True, out_dtype=out_dtype)
    scale = scale_of("gemm_all_reduce", a.dtype, scale_a, scale_b)

    def bulk_synchronous() -> None:
        whole = room("product", a.shape[0], b.shape[1], c.dtype)
        alone(a, b, whole, scale)
        all_reduce(whole, out=c)

    ways = {
        "bulk_synchronous": bulk_synchronous,
        "fused": lambda: few_rows(a, b, c, to_all=True),
        "ring": lambda: _ring(a, b, c, scale, to_all=True),
    }
    _run("gemm_all_reduce", pattern, a, b, c, ways)
    return c


def _run(
    function: str, pattern: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, ways: dict[str, Callable[[], None]]
) -> None:
    from triton_dist.kernels.gemm.hopper.launch import fits

    each, rest = divmod(a.shape[0], triton_dist.n_pes())
    ring = rest == 0 and each % LARGE.block_m == 0 and fits(a, b, c)
    if pattern == "ring" and not ring:
        raise ValueError(
            f"{function}: pattern ring needs a Hopper GPU, up to 8 PEs, factors of 16-bit floats, or of fp8 with b by"
            f" columns, a result of 16-bit floats, rows that begin at multiples of 16 bytes, and a multiple of"
            f" {LARGE.block_m} rows for each PE, got a of shape {tuple(a.shape)} and {a.dtype}. Take bulk_synchronous,"
            " or auto"
        )
    few = a.dtype == c.dtype and takes(a.shape[0], triton_dist.n_pes())
    if pattern == "fused" and not few:
        raise ValueError(
            f"{function}: pattern fused takes up to {MAX_ROWS} rows, counting as many for each PE as the next power of"
            f" two, and factors of the result's type, got a of shape {tuple(a.shape)} and {a.dtype}. Take"
            " bulk_synchronous, or auto"
        )
    possible = {name: way for name, way in ways.items() if {"ring": ring, "fused": few}.get(name, True)}
    if pattern == "auto":
        pattern = fastest(function, a, b, c, possible)
    possible[pattern]()


def _ring(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None, *, to_all: bool = False
) -> None:
    from triton_dist.kernels.gemm.hopper.launch import Launcher, everywhere

    n_pes, me = triton_dist.n_pes(), triton_dist.my_pe()

    def make() -> Launcher:
        rows = a.shape[0] // n_pes
        config = choose(a, staging, portable.programs(), each=rows)
        each, columns = rows // config.block_m, config.tiles(staging)[1]
        tiles = [
            Tile(row, column, pe)
            for pe in ((me - 1 - i) % n_pes for i in range(n_pes))
            for row, column in grouped(range(pe * each, (pe + 1) * each), columns)
        ]
        schedule = make_schedule(tiles, config.k_steps(a), portable.programs())
        out = "ring_all" if to_all else "ring"
        return Launcher(schedule, config, out, False, len(columns), ring_tiles=len(tiles), spread=SPREAD)

    staging = room("ring", a.shape[0], b.shape[1], c.dtype)
    following = triton_dist.peer(staging, (me + 1) % n_pes)
    launcher = kept(("ring", to_all, *shape_of(a, b)), make)
    launcher(a, b, c, everywhere=everywhere(c) if to_all else (), following=following, staging=staging, scale=scale)
