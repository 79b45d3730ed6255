"""What each op reads, writes and orders, as the recorder wants to know it: what goes before the op, what after.

An effect is called with the recorder, the world and the op's operands and attributes. It may be a pair: what to note
before the op, and what after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from triton_dist.world.cpu.ops.elements import ELEMENTS, U64
from triton_dist.world.cpu.ops.places import local_array
from triton_dist.world.cpu.recorder import Recorder, Word
from triton_dist.world.cpu.world import CpuWorld

__all__ = ["NO_EFFECT", "after", "before", "known"]

_SEMS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "gpu", "sys")

_Effect = Callable[..., None]


def before(op: str, recorder: Recorder, world: CpuWorld, arguments: tuple[Any, ...]) -> None:
    """Called right before the op is done."""
    if op in _BEFORE:
        _BEFORE[op](op, recorder, world, *arguments)


def after(op: str, recorder: Recorder, world: CpuWorld, arguments: tuple[Any, ...]) -> None:
    """Called when the op has been done."""
    if op in _AFTER:
        _AFTER[op](op, recorder, world, *arguments)


def known() -> set[str]:
    """The ops that have an effect."""
    return {*_BEFORE, *_AFTER}


def _offset(world: CpuWorld, address: int) -> int | None:
    """Where in the heap this is; None if it is elsewhere, which the op itself complains of."""
    place = world.heap.find(address)
    return place[1] if place is not None and place[0] == world.pe else None


# ---- copies


def _put(nbi: bool) -> _Effect:
    def effect(op: str, rec: Recorder, world: CpuWorld, dst: int, src: int, nbytes: int, pe: int, *_: Any) -> None:
        place = _offset(world, dst)
        if nbytes > 0 and place is not None and 0 <= pe < world.n_pes:
            rec.put(op, nbi, rec.local(op, src, nbytes, nbi), rec.span(op, pe, place, nbytes))

    return effect


def _put_signal(nbi: bool) -> _Effect:
    def effect(
        op: str, rec: Recorder, world: CpuWorld,
        dst: int, src: int, nbytes: int, sig_addr: int, signal: int, pe: int, sig_op: int, *_: Any
    ) -> None:  # fmt: skip
        place, word = _offset(world, dst), _offset(world, sig_addr)
        if word is None or not 0 <= pe < world.n_pes:
            return
        rec.word(op, pe, word, U64.size, writes=True)
        if nbytes > 0 and place is not None:
            source, target = rec.local(op, src, nbytes, nbi), rec.span(op, pe, place, nbytes)
            rec.put(op, nbi, source, target, (pe, word), sig_op == _SIGNAL_ADD)
        else:
            rec.release(op, [(pe, word)], sets=sig_op != _SIGNAL_ADD)

    return effect


_SIGNAL_ADD = 1


def _get(nbi: bool) -> _Effect:
    def effect(op: str, rec: Recorder, world: CpuWorld, dst: int, src: int, nbytes: int, pe: int, *_: Any) -> None:
        place = _offset(world, src)
        if nbytes > 0 and place is not None and 0 <= pe < world.n_pes:
            rec.get(op, nbi, rec.span(op, pe, place, nbytes), rec.local(op, dst, nbytes, nbi))

    return effect


def _iput(
    op: str, rec: Recorder, world: CpuWorld,
    dst: int, src: int, dst_stride: int, src_stride: int, nelems: int, pe: int, type: int, *_: Any
) -> None:  # fmt: skip
    place, from_place, size = _offset(world, dst), world.heap.find(src), ELEMENTS[type].size
    if nelems > 0 and place is not None and 0 <= pe < world.n_pes:
        source = from_place and rec.elements(op, *from_place, src_stride * size, nelems, size, writes=False)
        rec.put(op, False, source, rec.elements(op, pe, place, dst_stride * size, nelems, size, writes=True))


def _iget(
    op: str, rec: Recorder, world: CpuWorld,
    dst: int, src: int, dst_stride: int, src_stride: int, nelems: int, pe: int, type: int, *_: Any
) -> None:  # fmt: skip
    place, to_place, size = _offset(world, src), world.heap.find(dst), ELEMENTS[type].size
    if nelems > 0 and place is not None and 0 <= pe < world.n_pes:
        target = to_place and rec.elements(op, *to_place, dst_stride * size, nelems, size, writes=True)
        rec.get(op, False, rec.elements(op, pe, place, src_stride * size, nelems, size, writes=False), target)


# ---- single words


def _p(op: str, rec: Recorder, world: CpuWorld, dst: int, value: Any, pe: int, type: int) -> None:
    place = _offset(world, dst)
    if place is not None and 0 <= pe < world.n_pes:
        rec.word(op, pe, place, ELEMENTS[type].size, writes=True)
        rec.release(op, [(pe, place)], sets=True)


def _g(op: str, rec: Recorder, world: CpuWorld, src: int, pe: int, type: int) -> None:
    place = _offset(world, src)
    if place is not None and 0 <= pe < world.n_pes:
        rec.word(op, pe, place, ELEMENTS[type].size, writes=False)


def _signal_op(op: str, rec: Recorder, world: CpuWorld, sig_addr: int, signal: int, pe: int, sig_op: int) -> None:
    place = _offset(world, sig_addr)
    if place is not None and 0 <= pe < world.n_pes:
        rec.word(op, pe, place, U64.size, writes=True)
        rec.release(op, [(pe, place)], sets=sig_op != _SIGNAL_ADD)


def _atomic_word(world: CpuWorld, dst: int, arguments: tuple[Any, ...]) -> tuple[Word, int, str, str] | None:
    """Word, size, sem and scope of an atomic op."""
    pe, type, sem, scope = arguments[-4:]
    place = _offset(world, dst)
    if place is None or not 0 <= pe < world.n_pes:
        return None
    return (pe, place), ELEMENTS[type].size, _SEMS[sem], _SCOPES[scope]


def _atomic_before(op: str, rec: Recorder, world: CpuWorld, dst: int, *arguments: Any) -> None:
    if found := _atomic_word(world, dst, arguments):
        word, size, sem, scope = found
        rec.word(op, *word, size, writes=op != "atomic_fetch")
        if sem in ("release", "acq_rel") and op != "atomic_fetch":
            rec.release(op, [word], sets=False, scope=scope)


def _atomic_after(op: str, rec: Recorder, world: CpuWorld, dst: int, *arguments: Any) -> None:
    if found := _atomic_word(world, dst, arguments):
        word, _, sem, scope = found
        if sem in ("acquire", "acq_rel"):
            rec.acquire(op, [word], scope)


# ---- waiting for words, and looking at them


def _look(op: str, rec: Recorder, world: CpuWorld, words: list[int], size: int) -> None:
    for word in words:
        rec.word(op, world.pe, word, size, writes=False)
    if words:
        rec.acquire(op, [(world.pe, word) for word in words])


def _looks_at_signal(op: str, rec: Recorder, world: CpuWorld, sig_addr: int, *_: Any) -> None:
    place = _offset(world, sig_addr)
    _look(op, rec, world, [] if place is None else [place], U64.size)


def _looks_at_one(op: str, rec: Recorder, world: CpuWorld, ivar: int, cmp_value: Any, cmp: int, type: int) -> None:
    place = _offset(world, ivar)
    _look(op, rec, world, [] if place is None else [place], ELEMENTS[type].size)


def _looks_at_many(op: str, rec: Recorder, world: CpuWorld, ivars: int, nelems: int, *arguments: Any) -> None:
    *_, status, _, _, type = arguments
    place, size = _offset(world, ivars), ELEMENTS[type].size
    if place is None or nelems <= 0:
        return
    chosen: Sequence[int] = range(nelems)
    if status:
        chosen = np.flatnonzero(local_array("status", status, nelems, np.int32) == 0).tolist()
    _look(op, rec, world, [place + i * size for i in chosen], size)


# ---- all together


def _team_of(world: CpuWorld, op: str, arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """The PEs of the team that an op names, or of all, if it names none or one that is not there."""
    team = None if op in ("barrier_all", "sync_all") else world.teams.get(arguments[0])
    return tuple((team or world.team_world).pes)


def _arrives(completes: bool) -> _Effect:
    def effect(op: str, rec: Recorder, world: CpuWorld, *arguments: Any) -> None:
        rec.arrive(op, _team_of(world, op, arguments), completes=completes)

    return effect


def _leaves(op: str, rec: Recorder, world: CpuWorld, *arguments: Any) -> None:
    rec.leave(_team_of(world, op, arguments))


def _collective(sizes: Callable[..., tuple[int, int]]) -> tuple[_Effect, _Effect]:
    """``sizes`` gives the bytes of ``src`` and of ``dst``, from the number of PEs and the arguments."""

    def begin(op: str, rec: Recorder, world: CpuWorld, team: int, dst: int, src: int, *more: Any) -> None:
        pes = _team_of(world, op, (team, *more))
        place, nbytes = _offset(world, src), sizes(len(pes), *more)[0]
        if place is not None and nbytes > 0:
            rec.plain(op, rec.span(op, world.pe, place, nbytes), writes=False)
        rec.arrive(op, pes, completes=True)

    def end(op: str, rec: Recorder, world: CpuWorld, team: int, dst: int, src: int, *more: Any) -> None:
        pes = _team_of(world, op, (team, *more))
        rec.leave(pes)
        place, nbytes = _offset(world, dst), sizes(len(pes), *more)[1]
        if place is not None and nbytes > 0:
            rec.plain(op, rec.span(op, world.pe, place, nbytes), writes=True)

    return begin, end


_COLLECTIVES = {
    "broadcast": _collective(lambda n, nbytes, root, *_: (nbytes, nbytes)),
    "fcollect": _collective(lambda n, nbytes, *_: (nbytes, n * nbytes)),
    "alltoall": _collective(lambda n, nbytes, *_: (n * nbytes, n * nbytes)),
    "reduce": _collective(lambda n, nelems, op, type, *_: (nelems * ELEMENTS[type].size,) * 2),
    "reducescatter": _collective(
        lambda n, nelems, op, type, *_: (n * nelems * ELEMENTS[type].size, nelems * ELEMENTS[type].size)
    ),
}

_ATOMICS = (
    *("atomic_fetch", "atomic_set", "atomic_inc", "atomic_fetch_inc", "atomic_add", "atomic_fetch_add", "atomic_and"),
    *("atomic_fetch_and", "atomic_or", "atomic_fetch_or", "atomic_xor", "atomic_fetch_xor", "atomic_swap"),
    "atomic_compare_swap",
)
_OF_MANY = tuple(
    f"{kind}_{which}{vector}"
    for kind in ("wait_until", "test")
    for which in ("all", "any", "some")
    for vector in ("", "_vector")
)

_BEFORE: dict[str, _Effect] = {
    "putmem": _put(False),
    "putmem_nbi": _put(True),
    "putmem_signal": _put_signal(False),
    "putmem_signal_nbi": _put_signal(True),
    "getmem": _get(False),
    "getmem_nbi": _get(True),
    "iput": _iput,
    "iget": _iget,
    "p": _p,
    "g": _g,
    "signal_op": _signal_op,
    **dict.fromkeys(_ATOMICS, _atomic_before),
    "fence": lambda op, rec, world: rec.fence(None),
    "quiet": lambda op, rec, world: rec.quiet(None),
    "pe_fence": lambda op, rec, world, pe: rec.fence(pe),
    "pe_quiet": lambda op, rec, world, pe: rec.quiet(pe),
    "barrier_all": _arrives(True),
    "barrier": _arrives(True),
    "sync_all": _arrives(False),
    "sync": _arrives(False),
    **{op: begin for op, (begin, _) in _COLLECTIVES.items()},
}

_AFTER: dict[str, _Effect] = {
    **dict.fromkeys(_ATOMICS, _atomic_after),
    "signal_fetch": _looks_at_signal,
    "signal_wait_until": _looks_at_signal,
    "wait_until": _looks_at_one,
    "test": _looks_at_one,
    **dict.fromkeys(_OF_MANY, _looks_at_many),
    **dict.fromkeys(("barrier_all", "barrier", "sync_all", "sync"), _leaves),
    **{op: end for op, (_, end) in _COLLECTIVES.items()},
}

NO_EFFECT = frozenset(
    ("my_pe", "n_pes", "team_my_pe", "team_n_pes", "team_translate_pe", "symm_offset", "heap_distance", "is_reachable")
) | {"token_zero", "always"}
"""Ops that touch no memory and order nothing."""
