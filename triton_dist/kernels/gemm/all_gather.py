"""All-gather and GEMM: C = A · B with A split by rows over the PEs, and B this PE's own.

- ``bulk_synchronous``: all of A is gathered, then multiplied.
- ``copy_engine``: the copy engine sends this PE's rows to one PE after the other, while the product begins with
  them; it goes on with the next PE's, which are here by then. PE p's order is p, p + 1, …, and its rows go to p - 1
  first: who needs them next has them next.
"""

from __future__ import annotations

from functools import partial

import torch

import triton_dist
from triton_dist.kernels.collectives.all_gather import all_gather
from triton_dist.kernels.gemm import portable, streams
from triton_dist.kernels.gemm.arguments import check_choice, check_factors, result
from triton_dist.kernels.gemm.config import Config, choose
from triton_dist.kernels.gemm.fp8 import scale_of
from triton_dist.kernels.gemm.local_gemm import alone
from triton_dist.kernels.gemm.measure import fastest
from triton_dist.kernels.gemm.plan_cache import kept, room, shape_of
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule
from triton_dist.kernels.protocols.side_stream import side_stream

__all__ = ["all_gather_gemm"]


def all_gather_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    pattern: str = "auto",
    scale_a: torch.Tensor | float | None = None,
    scale_b: torch.Tensor | float | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """C = A · B, where A is every PE's ``a``, one after the other. *Collective*, on the current stream; may be captured
    in a graph.

    When it ends on a PE, as far as its stream is concerned, its ``out`` is complete, and ``a`` and ``b`` may be
    overwritten. The result is the same whenever it is run with the same pattern.

    Args:
        a: [M / n_pes, K], this PE's rows; bfloat16, float16, float32, float8_e4m3fn or float8_e5m2, with contiguous
            rows. The same shape on every PE; it need not be symmetric. It travels as it is.
        b: [K, N], with contiguous rows or columns; of ``a``'s type, or if that is an fp8 one, of either.
        out: [M, N], contiguous; by default a new one. Of ``a``'s type; if that is an fp8 one, bfloat16, float16 or
            float32.
        pattern: how communication is overlapped (see the module), or ``auto``: the fastest of those that can be had
            here, as measured when a shape is first used. ``copy_engine`` needs a Hopper GPU and a multiple of 128 rows
            on each PE; with fp8, ``b`` by columns and a result of 16-bit floats, too.
        scale_a, scale_b: what the elements of A and ``b`` have to be multiplied by, as a float32 tensor of one element
            each, or a number; for fp8 only. By default 1. ``scale_a`` is for all of A, and so the same on every PE.
        out_dtype: of the result of fp8 factors; by default ``out``'s, or bfloat16.

    Returns:
        ``out``. Sums are accumulated in float32; of fp8 products, with the bits that the GPU keeps of them
        (``hopper/multiply.py``).

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
        RuntimeError: in the capture of a graph, before a first run of the same shape.
    """
    check_factors("all_gather_gemm", ("a", "b"), a, b)
    check_choice("all_gather_gemm", "pattern", pattern, ("auto", *PATTERNS))
    rows = a.shape[0] * triton_dist.n_pes()
    c = result("all_gather_gemm", out, (rows, b.shape[1]), a.dtype, symmetric=False, out_dtype=out_dtype)
    scale = scale_of("all_gather_gemm", a.dtype, scale_a, scale_b)
    possible = _possible(a, b, c)
    if pattern == "auto":
        ways = {name: partial(PATTERNS[name], a, b, c, scale) for name in possible}
        pattern = fastest("all_gather_gemm", a, b, c, ways)
    elif pattern not in possible:
        raise ValueError(
            f"all_gather_gemm: pattern {pattern} is not for these matrices or this world, of {', '.join(PATTERNS)}"
            f" there {'is' if len(possible) == 1 else 'are'} {', '.join(possible)}"
        )
    PATTERNS[pattern](a, b, c, scale)
    return c


def _possible(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[str]:
    from triton_dist.kernels.gemm.hopper.launch import fits

    if not fits(a, b, c):
        return ["bulk_synchronous"]
    names = ["bulk_synchronous"]
    if a.shape[0] % _config(a, b, c).block_m == 0:
        names.append("copy_engine")
    return names


def _config(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Config:
    """Of tiles that lie within one PE's rows, if that can be had. Kept, since choosing takes the host a while."""
    return kept(("tiles of chunks", *shape_of(a, b)), partial(choose, a, c, portable.programs(), each=a.shape[0]))


def _bulk_synchronous(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None) -> None:
    gathered = _gathered(a)
    all_gather(gathered, a.contiguous())
    alone(gathered, b, c, scale)


def _copy_engine(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None) -> None:
    from triton_dist.kernels.gemm.hopper.launch import Launcher
    from triton_dist.kernels.gemm.hopper.layout import ENTERED, GATHERED

    n_pes, me = triton_dist.n_pes(), triton_dist.my_pe()

    def make() -> Launcher:
        config = _config(a, b, c)
        each, (_, columns) = a.shape[0] // config.block_m, config.tiles(c)
        tiles = [
            Tile(row, column, pe)
            for pe in ((me + i) % n_pes for i in range(n_pes))
            for row, column in grouped(range(pe * each, (pe + 1) * each), columns)
        ]
        schedule = make_schedule(tiles, config.k_steps(a), portable.programs())
        return Launcher(schedule, config, "local", True, len(columns))

    launcher = kept(("chunks of a", *shape_of(a, b)), make)
    gathered = _gathered(a)
    mine = gathered[me * a.shape[0] : (me + 1) * a.shape[0]]
    with side_stream() as beside:
        launcher(gathered, b, c, a_own=a, scale=scale)
        for i in range(1, n_pes):
            pe = (me - i) % n_pes
            streams.take(beside, launcher.flags.data_ptr() + 4 * (ENTERED.value + pe))
            streams.copy(beside, triton_dist.peer(mine, pe), a)
            streams.give(beside, triton_dist.peer(launcher.flags, pe).data_ptr() + 4 * (GATHERED.value + me))


PATTERNS = {"bulk_synchronous": _bulk_synchronous, "copy_engine": _copy_engine}


def _gathered(a: torch.Tensor) -> torch.Tensor:
    """Room for all of A, on every PE."""
    return room("gathered", a.shape[0] * triton_dist.n_pes(), a.shape[1], a.dtype)
