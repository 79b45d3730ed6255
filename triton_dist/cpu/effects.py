"""What each op reads, writes and orders, as the recorder wants to know it: what goes before the op, what after.

An effect is called with the recorder, the world and the op's operands and attributes. It may be a pair: what to note
before the op, and what after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from triton_dist._C._runtime import Order
from triton_dist.check.log import Flag
from triton_dist.cpu.ops.address_checks import local_array
from triton_dist.cpu.ops.elements import ELEMENTS, U64, Element
from triton_dist.cpu.recorder import Recorder, Word
from triton_dist.cpu.world import CpuWorld

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


def _put(nbi: int) -> _Effect:
    def effect(op: str, rec: Recorder, world: CpuWorld, dst: int, src: int, nbytes: int, pe: int, *_: Any) -> None:
        place = _offset(world, dst)
        if nbytes > 0 and place is not None and 0 <= pe < world.n_pes:
            rec.put(op, rec.local(op, src, nbytes, bool(nbi)), rec.span(op, pe, place, nbytes), nbi)

    return effect


def _put_signal(nbi: int) -> _Effect:
    def effect(
        op: str, rec: Recorder, world: CpuWorld,
        dst: int, src: int, nbytes: int, sig_addr: int, signal: int, pe: int, sig_op: int, *_: Any
    ) -> None:  # fmt: skip
        place, word = _offset(world, dst), _offset(world, sig_addr)
        if word is None or not 0 <= pe < world.n_pes:
            return
        carries = 0
        if nbytes > 0 and place is not None:
            rec.put(op, rec.local(op, src, nbytes, bool(nbi)), rec.span(op, pe, place, nbytes), nbi)
            carries = Flag.CARRIES
        _signal(op, rec, world, (pe, word), signal, sig_op, carries)

    return effect


def _get(nbi: int) -> _Effect:
    def effect(op: str, rec: Recorder, world: CpuWorld, dst: int, src: int, nbytes: int, pe: int, *_: Any) -> None:
        place = _offset(world, src)
        if nbytes > 0 and place is not None and 0 <= pe < world.n_pes:
            rec.get(op, rec.span(op, pe, place, nbytes), rec.local(op, dst, nbytes, bool(nbi)), nbi)

    return effect


def _iput(
    op: str, rec: Recorder, world: CpuWorld,
    dst: int, src: int, dst_stride: int, src_stride: int, nelems: int, pe: int, type: int, *_: Any
) -> None:  # fmt: skip
    place, from_place, size = _offset(world, dst), world.heap.find(src), ELEMENTS[type].size
    if nelems > 0 and place is not None and 0 <= pe < world.n_pes:
        source = from_place and rec.elements(op, *from_place, src_stride * size, nelems, size)
        rec.put(op, source, rec.elements(op, pe, place, dst_stride * size, nelems, size))


def _iget(
    op: str, rec: Recorder, world: CpuWorld,
    dst: int, src: int, dst_stride: int, src_stride: int, nelems: int, pe: int, type: int, *_: Any
) -> None:  # fmt: skip
    place, to_place, size = _offset(world, src), world.heap.find(dst), ELEMENTS[type].size
    if nelems > 0 and place is not None and 0 <= pe < world.n_pes:
        target = to_place and rec.elements(op, *to_place, dst_stride * size, nelems, size)
        rec.get(op, rec.elements(op, pe, place, src_stride * size, nelems, size), target)


# ---- single words


def _p(op: str, rec: Recorder, world: CpuWorld, dst: int, value: Any, pe: int, type: int) -> None:
    place = _offset(world, dst)
    if place is not None and 0 <= pe < world.n_pes:
        rec.put(op, None, rec.span(op, pe, place, ELEMENTS[type].size), Flag.ATOMIC)
        rec.release(op, [(pe, place)], Flag.RELAXED | Flag.SETS | Flag.CARRIES)


def _g(op: str, rec: Recorder, world: CpuWorld, src: int, pe: int, type: int) -> None:
    place = _offset(world, src)
    if place is not None and 0 <= pe < world.n_pes:
        rec.word(op, pe, place, ELEMENTS[type].size)


def _signal_op(op: str, rec: Recorder, world: CpuWorld, sig_addr: int, signal: int, pe: int, sig_op: int) -> None:
    place = _offset(world, sig_addr)
    if place is not None and 0 <= pe < world.n_pes:
        _signal(op, rec, world, (pe, place), signal, sig_op)


def _signal(op: str, rec: Recorder, world: CpuWorld, word: Word, signal: int, sig_op: int, carries: int = 0) -> None:
    adds = sig_op == _SIGNAL_ADD
    before = _value(world, word, U64)
    values = None if before is None else (before, before + signal if adds else signal)
    rec.update(op, word, U64.size, values, carries | (Flag.ADDS if adds else Flag.SETS))


_SIGNAL_ADD = 1


def _value(world: CpuWorld, word: Word, element: Element) -> int | None:
    """The bits of a word; None if its element is not an integer or it is misaligned, which the op reports."""
    pe, place = word
    if not element.is_integer or place % element.size or place + element.size > world.heap.size:
        return None
    return element.word.load(world.heap.base(pe) + place, order=Order.RELAXED)


def _atomic_word(world: CpuWorld, dst: int, arguments: tuple[Any, ...]) -> tuple[Word, Element, str, str] | None:
    """Word, element, sem and scope of an atomic op."""
    pe, type, sem, scope = arguments[-4:]
    place = _offset(world, dst)
    if place is None or not 0 <= pe < world.n_pes:
        return None
    return (pe, place), ELEMENTS[type], _SEMS[sem], _SCOPES[scope]


def _atomic_before(op: str, rec: Recorder, world: CpuWorld, dst: int, *arguments: Any) -> None:
    if found := _atomic_word(world, dst, arguments):
        word, element, sem, scope = found
        compute, how = _CHANGES[op.replace("fetch_", "")]
        before = _value(world, word, element)
        values = None if before is None else (before, compute(before, *map(int, arguments[:-4])))
        relaxed = sem not in ("release", "acq_rel")
        rec.update(op, word, element.size, values, how | Flag.ATOMIC, relaxed=relaxed, scope=scope)


_CHANGES: dict[str, tuple[Callable[..., int], int]] = {
    "atomic_set": (lambda before, value: value, Flag.SETS),
    "atomic_swap": (lambda before, value: value, Flag.SETS),
    "atomic_inc": (lambda before: before + 1, Flag.ADDS),
    "atomic_add": (lambda before, value: before + value, Flag.ADDS),
    "atomic_and": (lambda before, value: before & value, 0),
    "atomic_or": (lambda before, value: before | value, 0),
    "atomic_xor": (lambda before, value: before ^ value, 0),
    "atomic_compare_swap": (lambda before, cond, value: value if before == cond else before, 0),
}
"""What a word becomes."""


def _atomic_after(op: str, rec: Recorder, world: CpuWorld, dst: int, *arguments: Any) -> None:
    if found := _atomic_word(world, dst, arguments):
        word, element, sem, scope = found
        relaxed = sem not in ("acquire", "acq_rel")
        if op == "atomic_fetch":
            rec.look(op, [word], element.size, relaxed=relaxed, scope=scope)
        else:
            rec.acquire(op, [word], relaxed=relaxed, scope=scope)


# ---- waiting for words, and looking at them


def _looks_at_signal(op: str, rec: Recorder, world: CpuWorld, sig_addr: int, *wait: int) -> None:
    place = _offset(world, sig_addr)
    if place is not None:
        until = (wait[1], wait[0], False) if wait else None
        rec.look(op, [(world.pe, place)], U64.size, until=until)


def _looks_at_one(op: str, rec: Recorder, world: CpuWorld, ivar: int, cmp_value: Any, cmp: int, type: int) -> None:
    place, element = _offset(world, ivar), ELEMENTS[type]
    if place is not None:
        until = (cmp, int(cmp_value), element.is_signed) if op == "wait_until" and element.is_integer else None
        rec.look(op, [(world.pe, place)], element.size, until=until)


def _looks_at_many(op: str, rec: Recorder, world: CpuWorld, ivars: int, nelems: int, *arguments: Any) -> None:
    *_, status, cmp_value, cmp, type = arguments
    place, element = _offset(world, ivars), ELEMENTS[type]
    if place is None or nelems <= 0:
        return
    chosen: Sequence[int] = range(nelems)
    if status:
        chosen = np.flatnonzero(local_array("status", status, nelems, np.int32) == 0).tolist()
    # Of words that a wait takes any of, none is what it waits for.
    until = (cmp, int(cmp_value), element.is_signed) if op == "wait_until_all" and element.is_integer else None
    rec.look(op, [(world.pe, place + i * element.size) for i in chosen], element.size, until=until)


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
        to_read, to_write = sizes(len(pes), *more)
        place, dst_place = _offset(world, src), _offset(world, dst)
        if place is not None and dst_place is not None and to_read > 0 and to_write > 0:
            source, target = rec.span(op, world.pe, place, to_read), rec.span(op, world.pe, dst_place, to_write)
            if op not in _IN_PLACE or not _IN_PLACE[op](pes.index(world.pe), place, to_read, dst_place, to_write):
                rec.overlap(op, source, target, same=op == "alltoall")
            rec.plain(op, source, writes=False)
            # Members that have entered may write to dst at once, so reads of dst must be complete on all PEs.
            rec.plain(op, target, writes=True)
        rec.arrive(op, pes, completes=True)

    def end(op: str, rec: Recorder, world: CpuWorld, team: int, dst: int, src: int, *more: Any) -> None:
        pes = _team_of(world, op, (team, *more))
        rec.leave(pes)
        place, nbytes = _offset(world, dst), sizes(len(pes), *more)[1]
        if place is not None and nbytes > 0:
            rec.plain(op, rec.span(op, world.pe, place, nbytes), writes=True)

    return begin, end


_IN_PLACE: dict[str, Callable[[int, int, int, int, int], bool]] = {
    "fcollect": lambda me, src, nbytes, dst, _: src == dst + me * nbytes,
    "reducescatter": lambda me, src, _, dst, nbytes: dst == src + me * nbytes,
}
"""Whether a member's part of the larger buffer is the smaller one: from its number, and offset and size of ``src`` and
``dst``."""

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
    "putmem": _put(0),
    "putmem_nbi": _put(Flag.NBI),
    "putmem_signal": _put_signal(0),
    "putmem_signal_nbi": _put_signal(Flag.NBI),
    "getmem": _get(0),
    "getmem_nbi": _get(Flag.NBI),
    "iput": _iput,
    "iget": _iget,
    "p": _p,
    "g": _g,
    "signal_op": _signal_op,
    **dict.fromkeys((op for op in _ATOMICS if op != "atomic_fetch"), _atomic_before),
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
