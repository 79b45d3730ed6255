"""How long a fused norm will take, by algorithm: what ``algorithm="auto"`` compares where no measured times are known.

A program exchanges one row of each PE after the other. The first exchange takes a message's latency; those behind it
overlap with what other programs of the same SM do, and with the bytes on the wire. The figures are from 2 H100s with
rows of 8192 columns (``benchmarks/norm.py``, 1 to 8192 rows): estimates of fused kernels are within 15 % of what was
measured there, those of ``unfused`` within 35 %.
"""

from __future__ import annotations

from collections.abc import Iterable

from triton_dist.kernels.collectives import model as collective
from triton_dist.kernels.rates import STORES

__all__ = ["estimates"]

_US = 1e-6
_FIRST = 3.4 * _US
_ROUND = 1.3 * _US
"""Of one exchange of rows, the first and a later one: that of a message, and of reducing and normalising a row."""
_MEMORY = 3.0e12
_PROGRAMS = 64
_LAUNCH = 2 * _US
_SECOND = 1 * _US
"""What a further kernel must gain at least: its launch takes the host of an eager call longer than this, and estimates
are no more exact."""


def estimates(
    operation: str, rows: int, columns: int, itemsize: int, n_pes: int, algorithms: Iterable[str]
) -> dict[str, float]:
    """Seconds of the algorithms that are available, for ``x`` of [rows, columns], in their order."""
    whole = rows * columns * itemsize
    gathered = whole * (n_pes - 1)
    share = whole // n_pes * (n_pes - 1)

    def rounds(count: int) -> float:
        return _FIRST + (-(-count // _PROGRAMS) - 1) * _ROUND if count else 0.0

    def local(count: int) -> float:
        """A norm: it reads rows and residuals and writes both."""
        return _LAUNCH + _SECOND + 4 * count * columns * itemsize / _MEMORY

    each = -(-rows // n_pes)
    of_all = {
        "all_reduce_norm": lambda: {
            "one_shot": _LAUNCH + rounds(rows) + gathered / STORES,
            "two_shot": _LAUNCH + 2 * rounds(each) + 2 * share / STORES,
            "unfused": local(rows)
            + min(
                collective.low_latency(gathered),
                collective.low_latency(2 * share, hops=2),
                collective.staged(2 * share, barriers=2),
                collective.exchanged(whole, n_pes),
            ),
        },
        "reduce_scatter_norm": lambda: {
            "fused": _LAUNCH + rounds(each) + share / STORES,
            "unfused": local(each) + min(collective.staged(share, 1), collective.low_latency(share)),
        },
        "norm_all_gather": lambda: {
            "fused": _LAUNCH + rounds(rows) + gathered / STORES,
            # The gathered rows are copied out of workspace.
            "unfused": local(rows)
            + min(collective.low_latency(gathered), collective.direct(gathered))
            + local(rows * n_pes),
        },
    }[operation]()
    return {algorithm: of_all[algorithm] for algorithm in algorithms}
