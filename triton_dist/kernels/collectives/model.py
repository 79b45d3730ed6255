"""How long a collective will take, by algorithm: what ``algorithm="auto"`` compares where no measured times are known.

Every estimate is a fixed latency plus bytes on the wire by a rate; the figures are for H200s on one NVLink switch,
measured with ``benchmarks/collectives.py``. They need not be exact, only cross where the algorithms do.
"""

from __future__ import annotations

import math

from triton_dist.kernels.rates import COPY_ENGINE, PULL, STORES

__all__ = ["copy_engine", "direct", "exchanged", "exchanged_twice", "low_latency", "pulled", "staged"]

_US = 1e-6


def low_latency(nbytes: float, hops: int = 1) -> float:
    """Seconds to send ``nbytes`` from each PE by the LL protocol, ``hops`` exchanges one after the other."""
    return (1.3 + 2.1 * hops) * _US + 2 * nbytes / STORES


def exchanged(nbytes: float, n_pes: int) -> float:
    """Seconds of an ``exchange`` in which each PE sends ``nbytes`` to each other: all of a tensor for an all-reduce.

    Measured on 2 H100s, 256 KiB to 8 MiB: 4.4, 5.3, 6.7, 10.4, 16.8 and 32.1 µs. Of the reduce-scatter on 4 H100s,
    128, 256, 512, 1024 and 2048 KiB to each: 5.4, 6.9, 10.6, 15.2 and 32.5 µs; with shorter blocks since, 640, 1280 and
    2560 KiB: 12.1, 18.4 and 33.8.
    """
    rounds = max(1, math.ceil(nbytes / min(4 << 20, (8 << 20) / n_pes)))
    return (3.6 + 1.3 * (rounds - 1)) * _US + nbytes * (n_pes - 1) / PULL


def exchanged_twice(nbytes: float, n_pes: int) -> float:
    """Seconds of ``two_exchanges``, in which each PE sends ``nbytes`` to each other twice: parts, and their sums.

    Derived from :func:`exchanged`: the second message has its latency and bytes, but no launch. Measured since on 4
    H100s, all-reduces of 512 KiB to 8 MiB: 7.8, 11.0, 15.2, 24.1 and 46.9 µs; with shorter blocks of 1 and 2 MiB 10.2
    and 14.6; on 4 H200s, with up to 1024 programs, of 2.5, 4, 5 and 8 MiB 17.9, 24.8, 29.9 and 47.7.
    """
    rounds = max(1, math.ceil(nbytes / min(2 << 20, (8 << 20) / n_pes)))
    return (3.6 + 1.5 + 2.6 * (rounds - 1)) * _US + 2 * nbytes * (n_pes - 1) / PULL


def direct(nbytes: float) -> float:
    """Seconds for a barrier, ``nbytes`` sent from each PE straight to their destination, and a barrier."""
    return 7 * _US + nbytes / STORES


def pulled(nbytes: float) -> float:
    """Seconds for a barrier, ``nbytes`` loaded and sent together, and a barrier."""
    return 7 * _US + nbytes / PULL


def staged(nbytes: float, barriers: int) -> float:
    """Seconds to send ``nbytes`` from each PE through staging memory, which takes so many barriers."""
    return (2.2 + 2.7 * barriers) * _US + nbytes / STORES


def copy_engine(nbytes: float, copies: int) -> float:
    """Seconds for a barrier, ``nbytes`` sent by the copy engine in so many copies, and a barrier."""
    return (20 + 5 * copies) * _US + nbytes / COPY_ENGINE
