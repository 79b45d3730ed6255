"""Processor time to compile kernels with shmem ops, and the same kernels without them. Needs no GPU.

    python benchmarks/compile_time.py

Milliseconds of this process and of ptxas, which other programs on the machine change less than the time on the clock.
Each transport has a process with an empty cache of its own. `first` also takes from the device library the part that
the kernel is linked with, which happens once for all kernels that call the same routines; `later` finds it in the
cache, as every further kernel does. With and without ops are compiled in turns. `ratio` is that of the medians,
`least` that of the smallest.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TRANSPORTS = ("p2p", "nvshmem")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=TRANSPORTS, help="this transport alone")
    parser.add_argument("--transport", choices=TRANSPORTS, help=argparse.SUPPRESS)  # the process of one transport
    args = parser.parse_args()
    if args.transport:
        measure(args.transport, args.rounds)
        return 0
    print(f"Triton {version('triton')}: ms of processor time to compile for sm_90, medians of {args.rounds}")
    header = f"{'':>36} {'transport':>10} {'without':>8} {'first':>8} {'later':>8} {'ratio':>6} {'least':>6}"
    print(header, flush=True)
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    for transport in [args.only] if args.only else TRANSPORTS:
        with tempfile.TemporaryDirectory() as cache:
            environment = {
                "TRITON_CACHE_DIR": cache,
                "TRITON_DIST_WORLD": "gpu",
                "TRITON_INTERPRET": "0",
                "TRITON_DIST_TRANSPORT": transport,
                "PYTHONPATH": os.pathsep.join(path),
            }
            command = [sys.executable, __file__, "--transport", transport, "--rounds", str(args.rounds)]
            if (status := subprocess.run(command, env=os.environ | environment).returncode) != 0:
                return status
    return 0


def measure(transport: str, rounds: int) -> None:
    """Print the times of all kernels for one transport, in this process."""
    kernels = _kernels()
    _compile(kernels["plain"], VARIANT=0)  # what a process pays once: the compiler's own start
    for title, kernel in list(kernels.items())[1:]:
        first = _compile(kernel, OP=True, VARIANT=0)
        without, later = [], []
        for variant in range(1, rounds + 1):
            without.append(_compile(kernel, OP=False, VARIANT=variant))
            later.append(_compile(kernel, OP=True, VARIANT=variant))
        times = (statistics.median(without), first, statistics.median(later))
        cells = "".join(f" {milliseconds:8.1f}" for milliseconds in times)
        ratios = f"{times[2] / times[0]:6.2f} {min(later) / min(without):6.2f}"
        print(f"{title:>36} {transport:>10}{cells} {ratios}", flush=True)


def _compile(kernel: Any, **constants: Any) -> float:
    """Milliseconds; a kernel that differs in ``VARIANT``, which it does not use, is compiled anew."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "sig": "*i64", "n": "i32", "any": "i32"}
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    multiples = types.keys() - {"any"}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if name in multiples}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    begin = _processor_time()
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    return 1000 * (_processor_time() - begin)


def _processor_time() -> float:
    """Seconds, of this process and of those that it has started and that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _kernels() -> dict[str, Any]:
    import triton
    import triton.language as tl

    import triton_dist.language as dl

    @triton.jit
    def plain(a, VARIANT: tl.constexpr):
        tl.store(a, 1.0)

    @triton.jit
    def a_put(a, c, n, OP: tl.constexpr, VARIANT: tl.constexpr):
        offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        tl.store(c + offsets, tl.load(a + offsets) + 1)
        if OP:
            dl.putmem(c, a, n, dl.my_pe() + 1)

    @triton.jit
    def a_put_of_any_size(a, c, any, OP: tl.constexpr, VARIANT: tl.constexpr):
        offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        tl.store(c + offsets, tl.load(a + offsets) + 1)
        if OP:
            dl.putmem(c, a, any, dl.my_pe() + 1)

    @triton.jit
    def a_put_anywhere(a, c, any, OP: tl.constexpr, VARIANT: tl.constexpr):
        offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        tl.store(c + offsets, tl.load(a + offsets) + 1)
        if OP:
            dl.putmem(c + any, a, any, dl.my_pe() + 1)

    @triton.jit
    def a_signal(a, c, sig, OP: tl.constexpr, VARIANT: tl.constexpr):
        offsets = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        tl.store(c + offsets, tl.load(a + offsets) + 1)
        if OP:
            dl.signal_op(sig, 1, dl.SIGNAL_ADD, dl.my_pe() + 1)
            dl.signal_wait_until(sig, dl.CMP_GE, 1)

    @triton.jit
    def gemm(a, b, n):
        """A tile of examples/03_gemm_all_scatter.py."""
        rows = tl.program_id(0) * 128 + tl.arange(0, 128)
        columns = tl.program_id(1) * 128 + tl.arange(0, 128)
        inner = tl.arange(0, 64)
        tile = tl.zeros((128, 128), dtype=tl.float32)
        for k in range(0, n, 64):
            a_tile = tl.load(a + rows[:, None] * n + (k + inner)[None, :])
            b_tile = tl.load(b + (k + inner)[:, None] * n + columns[None, :])
            tile = tl.dot(a_tile, b_tile, tile)
        return tile, rows[:, None] * n + columns[None, :]

    @triton.jit
    def gemm_all_scatter(a, b, c, n, OP: tl.constexpr, VARIANT: tl.constexpr):
        tile, offsets = gemm(a, b, n)
        if OP:
            for i in range(dl.n_pes()):
                tl.store(dl.symm_at(c, (dl.my_pe() + i) % dl.n_pes()) + offsets, tile.to(tl.float16))
        else:
            tl.store(c + offsets, tile.to(tl.float16))

    @triton.jit
    def gemm_put_signal(a, b, c, sig, n, OP: tl.constexpr, VARIANT: tl.constexpr):
        tile, offsets = gemm(a, b, n)
        tl.store(c + offsets, tile.to(tl.float16))
        if OP:
            mine = c + tl.program_id(0) * 128 * n
            dl.putmem_signal(mine, mine, 128 * n * 2, sig, 1, dl.SIGNAL_ADD, dl.my_pe() + 1)

    return {
        "plain": plain,
        "add, putmem": a_put,
        "add, putmem of any size": a_put_of_any_size,
        "add, putmem to any address": a_put_anywhere,
        "add, signal_op, signal_wait_until": a_signal,
        "GEMM, tiles stored to all PEs": gemm_all_scatter,
        "GEMM, rows by putmem_signal": gemm_put_signal,
    }


if __name__ == "__main__":
    sys.exit(main())
