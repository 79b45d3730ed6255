"""How long GEMMs of groups on several hosts take with and without overlap, from simulated parts.

    python benchmarks/slices_of_hosts.py [--rows M …] [--hosts H …]    # prints a table; some minutes

A layer of 8192 × 28672 in bfloat16 over all PEs. Slices by host are simulated with the plans of the kernels that
overlap inside of one (``planned_gemms.py``), and so are local GEMMs. What crosses takes its bytes by the rates of the
machine and a latency: no recording is that large. From these:

- ``two_level``: a slice, then for each other host a slice or what crosses beside it, whichever takes longer. A slice is
  the kernel that overlaps, or a local GEMM and what NVLink distributes, if that is shorter.
- ``bulk_synchronous``: the local GEMM, and what crosses or what NVLink distributes, whichever takes longer.

Launches, epilogues and the kernel that adds the sums of hosts are left out of both.
"""

from __future__ import annotations

import argparse

from planned_gemms import Gemm, simulated

from triton_dist.model.machine import Machine

HIDDEN, INNER, PER_HOST = 8192, 28672, 8


def times(name: str, rows: int, hosts: int, machine: Machine) -> tuple[float, float, float]:
    """Microseconds of ``bulk_synchronous``, of ``two_level``, and of the local GEMM alone."""
    n_pes = hosts * PER_HOST
    n, k = (INNER // n_pes, HIDDEN) if name == "all_gather_gemm" else (HIDDEN, INNER // n_pes)
    part = rows // n_pes * HIDDEN * 2  # bytes of a PE's rows of A, or of C
    local = simulated(Gemm("local_gemm", 1, rows, n, k), machine)
    apart = simulated(Gemm("local_gemm", 1, rows // hosts, n, k), machine)
    apart += part * (PER_HOST - 1) / machine.nvlink.bandwidth / 1e3
    piece = min(simulated(Gemm(name, PER_HOST, rows // hosts, n, k), machine), apart)
    crossing = part / machine.network.bandwidth / 1e3
    distributed = part * hosts * (PER_HOST - 1) / machine.nvlink.bandwidth / 1e3
    bulk = local + machine.network.latency + max(crossing * (hosts - 1), distributed)
    return bulk, piece + (hosts - 1) * max(piece, machine.network.latency + crossing), local


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[4096, 16384])
    parser.add_argument("--hosts", nargs="+", type=int, default=[2, 4, 8])
    args = parser.parse_args()
    machine = Machine.load("h200-hosts")
    print(
        "| function, M | hosts | the GEMM alone | `bulk_synchronous` | `two_level` |\n| --- | --- | --- | --- | --- |"
    )
    for name in ("all_gather_gemm", "gemm_reduce_scatter"):
        for rows in args.rows:
            for hosts in args.hosts:
                bulk, two_level, local = times(name, rows, hosts, machine)
                print(f"| {name}, {rows} | {hosts} | {local:.0f} | {bulk:.0f} | {two_level:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
