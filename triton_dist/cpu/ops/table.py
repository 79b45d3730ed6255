"""The op table of this world: ShmemOps.td's names, in its order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton_dist.cpu.ops import atomics, collectives, ordering, query, rma, signal, sync, token
from triton_dist.cpu.schedule import Access

__all__ = ["IMPLEMENTATIONS", "intention"]

IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "my_pe": query.my_pe,
    "n_pes": query.n_pes,
    "team_my_pe": query.team_my_pe,
    "team_n_pes": query.team_n_pes,
    "team_translate_pe": query.team_translate_pe,
    "symm_offset": query.symm_offset,
    "heap_distance": query.heap_distance,
    "is_reachable": query.is_reachable,
    "putmem": rma.putmem,
    "putmem_nbi": rma.putmem_nbi,
    "getmem": rma.getmem,
    "getmem_nbi": rma.getmem_nbi,
    "iput": rma.iput,
    "iget": rma.iget,
    "p": rma.p,
    "g": rma.g,
    "putmem_signal": signal.putmem_signal,
    "putmem_signal_nbi": signal.putmem_signal,
    "signal_op": signal.signal_op,
    "signal_fetch": signal.signal_fetch,
    "signal_wait_until": signal.signal_wait_until,
    "atomic_fetch": atomics.fetch,
    "atomic_set": atomics.set_,
    "atomic_inc": atomics.inc,
    "atomic_fetch_inc": atomics.fetch_inc,
    "atomic_add": atomics.add,
    "atomic_fetch_add": atomics.fetch_add,
    "atomic_and": atomics.and_,
    "atomic_fetch_and": atomics.fetch_and,
    "atomic_or": atomics.or_,
    "atomic_fetch_or": atomics.fetch_or,
    "atomic_xor": atomics.xor,
    "atomic_fetch_xor": atomics.fetch_xor,
    "atomic_swap": atomics.swap,
    "atomic_compare_swap": atomics.compare_swap,
    "wait_until": sync.wait_until,
    "wait_until_all": sync.wait_until_all,
    "wait_until_any": sync.wait_until_any,
    "wait_until_some": sync.wait_until_some,
    "wait_until_all_vector": sync.wait_until_all_vector,
    "wait_until_any_vector": sync.wait_until_any_vector,
    "wait_until_some_vector": sync.wait_until_some_vector,
    "test": sync.test,
    "test_all": sync.test_all,
    "test_any": sync.test_any,
    "test_some": sync.test_some,
    "test_all_vector": sync.test_all_vector,
    "test_any_vector": sync.test_any_vector,
    "test_some_vector": sync.test_some_vector,
    "fence": ordering.fence,
    "quiet": ordering.quiet,
    "pe_fence": ordering.pe_fence,
    "pe_quiet": ordering.pe_quiet,
    "barrier_all": ordering.barrier_all,
    "sync_all": ordering.sync_all,
    "barrier": ordering.barrier,
    "sync": ordering.sync,
    "broadcast": collectives.broadcast,
    "fcollect": collectives.fcollect,
    "alltoall": collectives.alltoall,
    "reduce": collectives.reduce,
    "reducescatter": collectives.reducescatter,
    "token_zero": token.token_zero,
    "always": token.always,
}
"""By the dialect's name; called with the op's operands and then its attributes, in the order of its definition."""


_QUIET_MODULES = (query, token)
_READS = ("getmem", "getmem_nbi", "iget", "g", "signal_fetch")
_WRITES = ("putmem", "putmem_nbi", "iput", "fence", "pe_fence")


def intention(op: str) -> Access:
    """What a program that calls ``op`` is about to do, in a schedule's eyes."""
    if IMPLEMENTATIONS[op].__module__ in {module.__name__ for module in _QUIET_MODULES}:
        return Access.NOTHING
    if op in _READS or op.startswith(("wait", "test", "signal_wait")):
        return Access.READ
    return Access.WRITE if op in _WRITES else Access.PUBLISH
