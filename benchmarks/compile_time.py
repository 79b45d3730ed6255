"""Seconds to compile a kernel with one shmem op, and the same kernel without it, from empty caches. Needs no GPU.

    python benchmarks/compile_time.py

Each compilation has a process and a cache directory of its own. `first ever` also takes from NVSHMEM's device library
the part that kernels are linked with, which happens once per NVSHMEM version; `later` finds it in the cache, as every
further kernel does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
import sys, time
import triton, triton.language as tl
import triton_dist, triton_dist.language as dl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def kernel(dst, src, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + offsets, tl.load(src + offsets) + 1)
    if OP:
        dl.putmem(dst, src, n, dl.my_pe() + 1)

@triton.jit
def warm(dst):
    tl.store(dst, 1)

def compile(fn, **constants):
    names = {"dst": "*fp32", "src": "*fp32", "n": "i32"} if fn is kernel else {"dst": "*fp32"}
    signature = names | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=fn, signature=signature, constexprs=constants)
    begin = time.perf_counter()
    triton.compile(source, target=GPUTarget("cuda", 90, 32))
    return time.perf_counter() - begin

compile(warm)  # what a process pays once, with or without us: imports, the compiler's own start
op, earlier = (argument == "True" for argument in sys.argv[1:])
if earlier:
    compile(kernel, OP=True, BLOCK=128)
print(compile(kernel, OP=op, BLOCK=1024))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    cases = {
        "without an op": (False, False),
        "with dl.putmem, first ever": (True, False),
        "with dl.putmem, later": (True, True),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (op, earlier) in cases.items():
            times[name].append(_compile_in_new_process(op, earlier))
    print(f"seconds to compile for sm_90, median of {rounds}")
    for name, found in times.items():
        print(f"{name:>28} {statistics.median(found):6.2f}  ({min(found):.2f} to {max(found):.2f})", flush=True)
    return 0


def _compile_in_new_process(op: bool, earlier: bool) -> float:
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as cache:
        script = Path(cache, "one_kernel.py")
        script.write_text(PROGRAM)
        environment = {"TRITON_CACHE_DIR": cache, "TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(path)}
        run = subprocess.run(
            [sys.executable, str(script), str(op), str(earlier)],
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    return float(run.stdout)


if __name__ == "__main__":
    sys.exit(main())
