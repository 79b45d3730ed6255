"""``triton_dist.language.extra.libshmem_device`` of Triton-distributed: the device routines of SHMEM libraries.

Each name is an operation of :mod:`triton_dist.language` with that library's argument order, and its suffix is the
operation's ``scope``: ``_block`` (``_wg``), ``_warp`` (``_wave``), or none for one thread. Whatever the scope, the
program acts once: where Triton-distributed lets all threads of a program signal, one does here. Under a condition on
``tid`` an operation acts once for each warp, each thread, or the program, as its suffix says: ``acts_once_per``, an
attribute of those with a suffix, is what :mod:`triton_dist.compat.threads` knows it by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton.language as tl

import triton_dist.language as dl
from triton_dist.language import _check
from triton_dist.language._builtin import builtin

# Symbolic constants: ours are the same whatever library a kernel is linked with.
NVSHMEM_SIGNAL_SET = ROCSHMEM_SIGNAL_SET = dl.SIGNAL_SET
NVSHMEM_SIGNAL_ADD = ROCSHMEM_SIGNAL_ADD = dl.SIGNAL_ADD
NVSHMEM_CMP_EQ = ROCSHMEM_CMP_EQ = dl.CMP_EQ
NVSHMEM_CMP_NE = ROCSHMEM_CMP_NE = dl.CMP_NE
NVSHMEM_CMP_GT = ROCSHMEM_CMP_GT = dl.CMP_GT
NVSHMEM_CMP_GE = ROCSHMEM_CMP_GE = dl.CMP_GE
NVSHMEM_CMP_LT = ROCSHMEM_CMP_LT = dl.CMP_LT
NVSHMEM_CMP_LE = ROCSHMEM_CMP_LE = dl.CMP_LE

NVSHMEM_TEAM_INVALID = dl.TEAM_INVALID
NVSHMEM_TEAM_WORLD = dl.TEAM_WORLD
NVSHMEM_TEAM_SHARED = tl.constexpr(1)
NVSHMEMX_TEAM_NODE = tl.constexpr(2)

# ---- queries

my_pe = dl.my_pe
n_pes = dl.n_pes
team_my_pe = dl.team_my_pe
team_n_pes = dl.team_n_pes
team_translate_pe = dl.team_translate_pe
remote_ptr = dl.symm_at


@builtin
def set_rocshmem_ctx(ctx: Any, _semantic: Any = None) -> None:
    """Nothing: a kernel's device state is there when it starts."""


# ---- copies


def _acting(function: Callable[..., None], scope: str) -> Callable[..., None]:
    """Record the threads that execute the operation together, unless each thread executes its own."""
    if scope != "thread":
        function.acts_once_per = scope  # type: ignore[attr-defined]
    return function


def _copy(op: Callable[..., None], scope: str) -> Callable[..., None]:
    @builtin
    def copy(dest: Any, source: Any, bytes: Any, pe: Any, qp_id: Any = 0, _semantic: Any = None) -> None:
        op(dest, source, bytes, pe, scope=scope, _semantic=_semantic)

    return _acting(copy, scope)


putmem = _copy(dl.putmem, "thread")
putmem_warp = putmem_wave = _copy(dl.putmem, "warp")
putmem_block = putmem_wg = _copy(dl.putmem, "block")
putmem_nbi = _copy(dl.putmem_nbi, "thread")
putmem_nbi_warp = putmem_nbi_wave = _copy(dl.putmem_nbi, "warp")
putmem_nbi_block = putmem_nbi_wg = _copy(dl.putmem_nbi, "block")
getmem = _copy(dl.getmem, "thread")
getmem_warp = getmem_wave = _copy(dl.getmem, "warp")
getmem_block = getmem_wg = _copy(dl.getmem, "block")
getmem_nbi = _copy(dl.getmem_nbi, "thread")
getmem_nbi_warp = getmem_nbi_wave = _copy(dl.getmem_nbi, "warp")
getmem_nbi_block = getmem_nbi_wg = _copy(dl.getmem_nbi, "block")


@builtin
def int_p(dest: Any, value: Any, pe: Any, qp_id: Any = 0, _semantic: Any = None) -> None:
    """Write one 32-bit integer."""
    dl.p(dest, value, pe, _semantic=_semantic)


# ---- signals


def _copy_and_signal(op: Callable[..., None], scope: str) -> Callable[..., None]:
    @builtin
    def copy(
        dest: Any,
        source: Any,
        bytes: Any,
        sig_addr: Any,
        signal: Any,
        sig_op: Any,
        pe: Any,
        qp_id: Any = 0,
        _semantic: Any = None,
    ) -> None:
        op(dest, source, bytes, sig_addr, signal, sig_op, pe, scope=scope, _semantic=_semantic)

    return _acting(copy, scope)


putmem_signal = _copy_and_signal(dl.putmem_signal, "thread")
putmem_signal_warp = putmem_signal_wave = _copy_and_signal(dl.putmem_signal, "warp")
putmem_signal_block = putmem_signal_wg = _copy_and_signal(dl.putmem_signal, "block")
putmem_signal_nbi = _copy_and_signal(dl.putmem_signal_nbi, "thread")
putmem_signal_nbi_warp = putmem_signal_nbi_wave = _copy_and_signal(dl.putmem_signal_nbi, "warp")
putmem_signal_nbi_block = putmem_signal_nbi_wg = _copy_and_signal(dl.putmem_signal_nbi, "block")

signal_op = dl.signal_op
signal_wait_until = dl.signal_wait_until


@builtin
def uint64_wait_until_equals(addr: Any, val: Any, _semantic: Any = None) -> Any:
    """Wait until a signal holds a value."""
    return dl.signal_wait_until(addr, dl.CMP_EQ, val, _semantic=_semantic)


@builtin
def ulong_put_signal(
    dest: Any, source: Any, nelems: Any, sig_addr: Any, signal: Any, sig_op: Any, pe: Any, _semantic: Any = None
) -> None:
    """Copy 64-bit words, then signal."""
    nbytes = _check.element_count("ulong_put_signal", "nelems", nelems, tl.uint64, _semantic)
    dl.putmem_signal(dest, source, nbytes, sig_addr, signal, sig_op, pe, scope="thread", _semantic=_semantic)


# ---- order and collectives

fence = dl.fence
quiet = dl.quiet
quiet_pe = dl.quiet


def _in_world(op: Callable[..., None], scope: str) -> Callable[..., None]:
    @builtin
    def collective(_semantic: Any = None) -> None:
        op(scope=scope, _semantic=_semantic)

    return _acting(collective, scope)


barrier_all = _in_world(dl.barrier_all, "thread")
barrier_all_warp = barrier_all_wave = _in_world(dl.barrier_all, "warp")
barrier_all_block = barrier_all_wg = _in_world(dl.barrier_all, "block")
sync_all = _in_world(dl.sync_all, "thread")
sync_all_warp = _in_world(dl.sync_all, "warp")
sync_all_block = _in_world(dl.sync_all, "block")


def _in_team(op: Callable[..., None], scope: str) -> Callable[..., None]:
    @builtin
    def collective(team: Any, _semantic: Any = None) -> None:
        op(team, scope=scope, _semantic=_semantic)

    return _acting(collective, scope)


barrier = _in_team(dl.barrier, "thread")
barrier_warp = _in_team(dl.barrier, "warp")
barrier_block = _in_team(dl.barrier, "block")
sync = _in_team(dl.sync, "thread")
team_sync_warp = _in_team(dl.sync, "warp")
team_sync_block = _in_team(dl.sync, "block")


def _in_bytes(pointer: Any, semantic: Any) -> Any:
    return semantic.cast(pointer, tl.pointer_type(tl.int8))


def _broadcast(scope: str, bytewise: bool = False) -> Callable[..., None]:
    @builtin
    def collective(team: Any, dest: Any, source: Any, nelems: Any, pe_root: Any, _semantic: Any = None) -> None:
        if bytewise:
            dest, source = _in_bytes(dest, _semantic), _in_bytes(source, _semantic)
        dl.broadcast(team, dest, source, nelems, pe_root, scope=scope, _semantic=_semantic)

    return _acting(collective, scope)


broadcast = _broadcast("thread")
broadcast_warp = _broadcast("warp")
broadcast_block = _broadcast("block")
broadcastmem = _broadcast("thread", bytewise=True)
broadcastmem_warp = _broadcast("warp", bytewise=True)
broadcastmem_block = _broadcast("block", bytewise=True)


def _fcollect(scope: str, bytewise: bool = False) -> Callable[..., None]:
    @builtin
    def collective(team: Any, dest: Any, source: Any, nelems: Any, _semantic: Any = None) -> None:
        if bytewise:
            dest, source = _in_bytes(dest, _semantic), _in_bytes(source, _semantic)
        dl.fcollect(team, dest, source, nelems, scope=scope, _semantic=_semantic)

    return _acting(collective, scope)


fcollect = _fcollect("thread")
fcollect_warp = _fcollect("warp")
fcollect_block = _fcollect("block")
fcollectmem = _fcollect("thread", bytewise=True)
fcollectmem_warp = _fcollect("warp", bytewise=True)
fcollectmem_block = _fcollect("block", bytewise=True)
