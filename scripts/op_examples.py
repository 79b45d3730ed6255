"""One line of a kernel for each op of the table: what the reference shows, and what its test compiles.

In these lines ``x`` and ``y`` point to float32, ``counters`` and ``indices`` to int64, ``flags`` to int32, and
``signal`` to a 64-bit signal, all of them symmetric; ``pe`` is a PE and ``n`` an int32.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

SIGNATURE = {
    "x": "*fp32",
    "y": "*fp32",
    "counters": "*i64",
    "indices": "*i64",
    "flags": "*i32",
    "signal": "*i64",
    "pe": "i32",
    "n": "i32",
}

EXAMPLES = {
    "my_pe": "next_pe = (dl.my_pe() + 1) % dl.n_pes()",
    "n_pes": "last = dl.my_pe() == dl.n_pes() - 1",
    "team_my_pe": "me = dl.team_my_pe(dl.TEAM_WORLD)",
    "team_n_pes": "size = dl.team_n_pes(dl.TEAM_WORLD)",
    "team_translate_pe": "pe = dl.team_translate_pe(dl.TEAM_WORLD, pe, dl.TEAM_WORLD)",
    "symm_offset": "tile = tl.load(dl.symm_at(x, pe) + tl.arange(0, 128))",
    "heap_distance": "dl.store(x + tl.arange(0, 128), 1.0, pe)",
    "is_reachable": "direct = dl.is_reachable(pe)",
    "putmem": "dl.putmem(x, y, n * 4, pe)",
    "putmem_nbi": "dl.putmem_nbi(x, y, n * 4, pe)",
    "getmem": "dl.getmem(y, x, n * 4, pe)",
    "getmem_nbi": "dl.getmem_nbi(y, x, n * 4, pe)",
    "iput": "dl.iput(x, y, 1, 16, n, pe)  # a column of a matrix with 16 columns",
    "iget": "dl.iget(y, x, 1, 16, n, pe)",
    "p": "dl.p(counters, 1, pe)",
    "g": "count = dl.g(counters, pe)",
    "putmem_signal": "dl.putmem_signal(x, y, n * 4, signal, 1, dl.SIGNAL_ADD, pe)",
    "putmem_signal_nbi": "dl.putmem_signal_nbi(x, y, n * 4, signal, 1, dl.SIGNAL_SET, pe)",
    "signal_op": "dl.signal_op(signal, 1, dl.SIGNAL_ADD, pe)",
    "signal_fetch": "arrived = dl.signal_fetch(signal)",
    "signal_wait_until": "token = dl.signal_wait_until(signal, dl.CMP_GE, n)",
    "atomic_fetch": 'count = dl.atomic_fetch(counters, pe, sem="acquire")',
    "atomic_set": 'dl.atomic_set(counters, 0, pe, sem="release")',
    "atomic_inc": "dl.atomic_inc(counters, pe)",
    "atomic_fetch_inc": "ticket = dl.atomic_fetch_inc(counters, pe)",
    "atomic_add": 'dl.atomic_add(counters, n, pe, sem="relaxed")',
    "atomic_fetch_add": "start = dl.atomic_fetch_add(counters, n, pe)",
    "atomic_and": "dl.atomic_and(flags, 1, pe)",
    "atomic_fetch_and": "before = dl.atomic_fetch_and(flags, 1, pe)",
    "atomic_or": "dl.atomic_or(flags, 4, pe)",
    "atomic_fetch_or": "before = dl.atomic_fetch_or(flags, 4, pe)",
    "atomic_xor": "dl.atomic_xor(flags, 4, pe)",
    "atomic_fetch_xor": "before = dl.atomic_fetch_xor(flags, 4, pe)",
    "atomic_swap": "before = dl.atomic_swap(counters, 0, pe)",
    "atomic_compare_swap": 'holder = dl.atomic_compare_swap(flags, -1, dl.my_pe(), pe, sem="acquire")',
    "wait_until": "token = dl.wait_until(flags, dl.CMP_EQ, 1)",
    "wait_until_all": "token = dl.wait_until_all(flags, dl.n_pes(), None, dl.CMP_EQ, 1)",
    "wait_until_any": "which = dl.wait_until_any(flags, dl.n_pes(), None, dl.CMP_EQ, 1)",
    "wait_until_some": "count = dl.wait_until_some(flags, dl.n_pes(), indices, None, dl.CMP_EQ, 1)",
    "wait_until_all_vector": "token = dl.wait_until_all_vector(counters, n, None, dl.CMP_GE, counters + n)",
    "wait_until_any_vector": "which = dl.wait_until_any_vector(counters, n, None, dl.CMP_GE, counters + n)",
    "wait_until_some_vector": "count = dl.wait_until_some_vector(counters, n, indices, None, dl.CMP_GE, counters + n)",
    "test": "ready = dl.test(flags, dl.CMP_EQ, 1)",
    "test_all": "ready = dl.test_all(flags, n, None, dl.CMP_EQ, 1)",
    "test_any": "which = dl.test_any(flags, n, None, dl.CMP_EQ, 1)",
    "test_some": "count = dl.test_some(flags, n, indices, None, dl.CMP_EQ, 1)",
    "test_all_vector": "ready = dl.test_all_vector(counters, n, None, dl.CMP_GE, counters + n)",
    "test_any_vector": "which = dl.test_any_vector(counters, n, None, dl.CMP_GE, counters + n)",
    "test_some_vector": "count = dl.test_some_vector(counters, n, indices, None, dl.CMP_GE, counters + n)",
    "fence": "dl.fence()",
    "quiet": "dl.quiet()",
    "pe_fence": "dl.pe_fence(pe)",
    "pe_quiet": "dl.pe_quiet(pe)",
    "barrier_all": "dl.barrier_all()",
    "sync_all": "dl.sync_all()",
    "barrier": "dl.barrier(dl.TEAM_WORLD)",
    "sync": "dl.sync(dl.TEAM_WORLD)",
    "broadcast": "dl.broadcast(dl.TEAM_WORLD, x, y, n, 0)",
    "fcollect": "dl.fcollect(dl.TEAM_WORLD, x, y, n)",
    "alltoall": "dl.alltoall(dl.TEAM_WORLD, x, y, n)",
    "reduce": "dl.sum_reduce(dl.TEAM_WORLD, x, y, n)",
    "reducescatter": "dl.max_reducescatter(dl.TEAM_WORLD, x, y, n)",
    "token_zero": "tile = tl.load(dl.consume_token(x, dl.wait_until(flags, dl.CMP_EQ, 1)))",
}
"""By the op's name. ``always`` has none: it is part of what a wait emits."""


def as_kernels(folder: Path) -> ModuleType:
    """A module, written to ``folder``, with a function of SIGNATURE for each example, to be compiled as a kernel."""
    lines = ["import triton.language as tl", "import triton_dist.language as dl"]
    for name, example in EXAMPLES.items():
        lines += [f"def {name}({', '.join(SIGNATURE)}):", f"    {example}"]
    file = folder / "examples.py"
    file.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("examples", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
