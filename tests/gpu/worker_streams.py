"""Each fused GEMM, each collective with a second stream, and `exchange`, on more streams than torch has: a PE's part.

    torchrun --nproc-per-node 2 tests/gpu/worker_streams.py

torch hands out 32 streams in turn. An operation whose second stream is the caller's hangs; then every PE prints where.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable
from functools import partial

import torch
from worker_checks import matrix

import triton_dist
from triton_dist import World, kernels
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE

STREAMS = 40
HANG_SECONDS = 60  # of one operation on all streams


def operations(world: World) -> dict[str, tuple[Callable[[], object], torch.Tensor]]:
    """What to call, and where its result is."""
    n_pes, pe = world.n_pes, world.pe
    m, k, n = 512 * n_pes, 512, 1024
    a, b = matrix(m, k, 1), matrix(k, n, 2 + pe)
    rows = matrix(m // n_pes, k, 100 + pe)
    whole = triton_dist.zeros(m, n * n_pes, dtype=torch.bfloat16)
    gathered, scattered = torch.zeros(m, n, device=world.device).bfloat16(), matrix(m // n_pes, n, 0)
    found: dict[str, tuple[Callable[[], object], torch.Tensor]] = {}
    for algorithm in (*GATHER, "auto"):
        call = partial(kernels.all_gather_gemm, rows, b, gathered, algorithm=algorithm)
        found[f"all_gather_gemm, {algorithm}"] = call, gathered
    for algorithm in (*SCATTER, "auto"):
        call = partial(kernels.gemm_all_scatter, a, b, whole, algorithm=algorithm)
        found[f"gemm_all_scatter, {algorithm}"] = call, whole
    for algorithm in (*(name for name in REDUCE if name != "fused"), "auto"):
        call = partial(kernels.gemm_reduce_scatter, a, b, scattered, algorithm=algorithm)
        found[f"gemm_reduce_scatter, {algorithm}"] = call, scattered
    part, out = matrix(1 << 10, 1 << 8, 7 + pe).view(-1), triton_dist.zeros(n_pes << 18, dtype=torch.bfloat16)
    total = torch.empty_like(part)
    for algorithm in ("exchange", "two_exchanges"):
        found[f"all_reduce, {algorithm}"] = partial(kernels.all_reduce, part, out=total, algorithm=algorithm), total
    chunk = torch.empty_like(part[: part.numel() // n_pes])
    chunks = part[: chunk.numel() * n_pes]
    found["reduce_scatter, exchange"] = partial(kernels.reduce_scatter, chunk, chunks, algorithm="exchange"), chunk
    found["all_gather, copy_engine"] = partial(kernels.all_gather, out, part, algorithm="copy_engine"), out
    parts = matrix(n_pes << 10, 1 << 8, 9 + pe).view(-1)
    found["all_to_all, copy_engine"] = partial(kernels.all_to_all, out, parts, algorithm="copy_engine"), out
    return found


def main() -> int:
    with triton_dist.init() as world:
        for name, (call, out) in operations(world).items():
            faulthandler.dump_traceback_later(120, exit=True)  # compiles, and measures
            call()
            torch.cuda.synchronize()
            expected = out.clone()
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            for i in range(STREAMS):
                out.fill_(77)
                triton_dist.barrier_all()
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.stream(stream):
                    call()
                torch.cuda.synchronize()
                assert torch.equal(out, expected), f"{name}: wrong on stream {i}"
                if i % 8 == 7:  # captured on this stream, replayed on another
                    triton_dist.barrier_all()
                    with torch.cuda.graph(graph, stream=stream):
                        call()
                        call()
                    out.fill_(77)
                    triton_dist.barrier_all()
                    with torch.cuda.stream(torch.cuda.Stream()):
                        graph.replay()
                        call()
                    torch.cuda.synchronize()
                    assert torch.equal(out, expected), f"{name}: wrong in a graph of stream {i}"
            triton_dist.barrier_all()
            if world.pe == 0:
                print(f"PASS {name}: {STREAMS} streams", flush=True)
        faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == "__main__":
    sys.exit(main())
