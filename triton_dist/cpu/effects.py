"""What ops read, write and order, as the recorder wants to know it: what goes before an op, and what after.

The op table says what kind of effect an op has. A function for each kind is called with the op, the recorder, the world
and the op's operands and attributes by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from triton_dist._C.op_table import Effect, MemScope, Op, Sem, SignalUpdate, Update
from triton_dist.check.log import Flag
from triton_dist.cpu.accesses import Ranges
from triton_dist.cpu.ops.address_checks import local_array
from triton_dist.cpu.ops.elements import ELEMENTS, U64, Element
from triton_dist.cpu.recorder import Recorder, Word
from triton_dist.cpu.runtime.atomics import Order
from triton_dist.cpu.world import CpuWorld

__all__ = ["after", "before"]

_Arguments = Mapping[str, Any]
_Effect = Callable[[Op, Recorder, CpuWorld, _Arguments], None]


def before(op: Op, recorder: Recorder, world: CpuWorld, arguments: Sequence[Any]) -> None:
    """Called right before the op is done. ``arguments``: its operands, then its attributes."""
    if effect := _BEFORE.get(op.effect):
        effect(op, recorder, world, _named(op, arguments))


def after(op: Op, recorder: Recorder, world: CpuWorld, arguments: Sequence[Any]) -> None:
    """Called when the op has been done."""
    if effect := _AFTER.get(op.effect):
        effect(op, recorder, world, _named(op, arguments))


def _named(op: Op, arguments: Sequence[Any]) -> _Arguments:
    return dict(zip((*op.operands, *op.attributes), arguments, strict=True))


def _offset(world: CpuWorld, address: int) -> int | None:
    """Where in the heap this is; None if it is elsewhere, which the op itself complains of."""
    place = world.heap.find(address)
    return place[1] if place is not None and place[0] == world.pe else None


def _word_on_pe(world: CpuWorld, address: int, pe: int) -> Word | None:
    """The copy on a PE of what is at ``address``; None if there is none, which the op itself complains of."""
    place = _offset(world, address)
    return None if place is None or not 0 <= pe < world.n_pes else (pe, place)


# ---- copies


def _there(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments, name: str) -> Ranges | None:
    """What a copy touches at its argument ``name`` on ``pe``; None for a copy of nothing, or one that is a mistake."""
    word = _word_on_pe(world, a[name], a["pe"])
    if word is None:
        return None
    if "nbytes" in a:
        return rec.span(op.name, *word, a["nbytes"]) if a["nbytes"] > 0 else None
    stride, count, size = _strided(a, name)
    return rec.elements(op.name, *word, stride, count, size) if count > 0 and size > 0 else None


def _here(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments, name: str) -> Ranges | None:
    """What it touches at its argument ``name`` on this side; None where no other program can be looking."""
    if "nbytes" in a:
        return rec.local(op.name, a[name], a["nbytes"], op.nbi)
    place = world.heap.find(a[name])
    return place and rec.elements(op.name, *place, *_strided(a, name))


def _strided(a: _Arguments, name: str) -> tuple[int, int, int]:
    """Of a strided copy: the bytes from the begin of one part to the next, the number of parts, their bytes."""
    size = ELEMENTS[a["type"]].size
    count, part = (a["nblocks"], a["bsize"]) if "nblocks" in a else (a["nelems"], 1)
    return a[f"{name}_stride"] * size, count, part * size


def _put(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    if target := _there(op, rec, world, a, "dst"):
        rec.put(op.name, _here(op, rec, world, a, "src"), target, Flag.NBI if op.nbi else 0)


def _get(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    if source := _there(op, rec, world, a, "src"):
        rec.get(op.name, source, _here(op, rec, world, a, "dst"), Flag.NBI if op.nbi else 0)


def _put_signal(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    if word := _word_on_pe(world, a["sig_addr"], a["pe"]):
        _put(op, rec, world, a)
        carries = a["nbytes"] > 0 and _offset(world, a["dst"]) is not None
        _update_signal(op, rec, world, word, a, Flag.CARRIES if carries else 0)


# ---- single words


def _put_element(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    if word := _word_on_pe(world, a["dst"], a["pe"]):
        rec.put(op.name, None, rec.span(op.name, *word, ELEMENTS[a["type"]].size), Flag.ATOMIC)
        rec.release(op.name, [word], Flag.RELAXED | Flag.SETS | Flag.CARRIES)


def _get_element(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    if word := _word_on_pe(world, a["src"], a["pe"]):
        rec.word(op.name, *word, ELEMENTS[a["type"]].size)
        rec.proxy_fence(completes=True)


def _signal(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    if word := _word_on_pe(world, a["sig_addr"], a["pe"]):
        _update_signal(op, rec, world, word, a)


def _update_signal(op: Op, rec: Recorder, world: CpuWorld, word: Word, a: _Arguments, carries: int = 0) -> None:
    adds = a["sig_op"] is SignalUpdate.ADD
    flags = carries | (Flag.ADDS if adds else Flag.SETS)
    if world.delays_updates(word[0]):
        rec.send(op.name, word, U64.size, flags)
        return
    before = _value(world, word, U64)
    values = None if before is None else (before, before + a["signal"] if adds else a["signal"])
    rec.update(op.name, word, U64.size, values, flags)


def _value(world: CpuWorld, word: Word, element: Element) -> int | None:
    """The bits of a word; None if its element is not an integer or it is misaligned, which the op reports."""
    pe, place = word
    if not element.is_integer or place % element.size or place + element.size > world.heap.size:
        return None
    return element.word.load(world.heap.base(pe) + place, Order.RELAXED)


def _before_atomic(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    word = _word_on_pe(world, a["dst"], a["pe"])
    if word is None or op.update is None or op.update is Update.KEEP:
        return
    element = ELEMENTS[a["type"]]
    flags = {Update.SET: Flag.SETS, Update.ADD: Flag.ADDS}.get(op.update, 0) | Flag.ATOMIC
    relaxed = a["sem"] not in (Sem.RELEASE, Sem.ACQ_REL)
    if _is_late(op, world, word):
        rec.send(op.name, word, element.size, flags, relaxed=relaxed, scope=_scope(a))
        return
    before = _value(world, word, element)
    values = None if before is None else (before, _CHANGES[op.update](before, int(a.get("value", 1)), a.get("cond")))
    rec.update(op.name, word, element.size, values, flags, relaxed=relaxed, scope=_scope(a))


def _is_late(op: Op, world: CpuWorld, word: Word) -> bool:
    """Whether an atomic returns before it has arrived."""
    return op.result is None and world.delays_updates(word[0])


_CHANGES: dict[Update, Callable[[int, int, Any], int]] = {
    Update.SET: lambda before, value, cond: value,
    Update.ADD: lambda before, value, cond: before + value,
    Update.AND: lambda before, value, cond: before & value,
    Update.OR: lambda before, value, cond: before | value,
    Update.XOR: lambda before, value, cond: before ^ value,
    Update.COMPARE_SWAP: lambda before, value, cond: value if before == int(cond) else before,
}
"""What a word becomes."""


def _after_atomic(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    word = _word_on_pe(world, a["dst"], a["pe"])
    if word is not None and not _is_late(op, world, word):
        relaxed = a["sem"] not in (Sem.ACQUIRE, Sem.ACQ_REL)
        if op.update is Update.KEEP:
            rec.look(op.name, [word], ELEMENTS[a["type"]].size, relaxed=relaxed, scope=_scope(a))
            if a["sem"] in (Sem.RELEASE, Sem.ACQ_REL):
                rec.proxy_fence(completes=True)
        else:
            rec.acquire(op.name, [word], relaxed=relaxed, scope=_scope(a))
            if not relaxed:
                rec.proxy_fence()


def _scope(a: _Arguments) -> str:
    scope: MemScope = a["mem_scope"]
    return scope.name.lower()


# ---- waiting for words, and looking at them


def _look(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    place, count = _offset(world, a[next(iter(op.operands))]), a.get("nelems", 1)
    if place is None or count <= 0:
        return
    element = ELEMENTS[a["type"]] if "type" in a else U64
    chosen: Sequence[int] = range(count)
    if a.get("status"):
        chosen = np.flatnonzero(local_array("status", a["status"], count, np.int32) == 0).tolist()
    # Of words that a wait takes any of, none is what it waits for.
    is_known = op.effect is Effect.AWAIT and "cmp_value" in a and element.is_integer
    until = (a["cmp"], int(a["cmp_value"]), "type" in a and element.is_signed) if is_known else None
    rec.look(op.name, [(world.pe, place + i * element.size) for i in chosen], element.size, until=until)


# ---- order


def _fence(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    rec.fence(a.get("pe"))


def _quiet(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    rec.quiet(a.get("pe"))


# ---- all together


def _team(world: CpuWorld, a: _Arguments) -> tuple[int, ...]:
    """The PEs of the team that an op names, or of all, if it names none or one that is not there."""
    team = world.teams.get(a["team"]) if "team" in a else None
    return tuple((team or world.team_world).pes)


def _arrive(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    rec.arrive(op.name, _team(world, a), completes=op.effect is not Effect.SYNC)


def _leave(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    rec.leave(_team(world, a))


def _sizes(op: Op, pes: tuple[int, ...], a: _Arguments) -> tuple[int, int]:
    """The bytes of ``src`` and of ``dst``."""
    nbytes = a["nbytes"] if "nbytes" in a else a["nelems"] * ELEMENTS[a["type"]].size
    return nbytes * (len(pes) if op.src_for_each_pe else 1), nbytes * (len(pes) if op.dst_for_each_pe else 1)


def _before_exchange(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    pes = _team(world, a)
    to_read, to_write = _sizes(op, pes, a)
    place, dst_place = _offset(world, a["src"]), _offset(world, a["dst"])
    if place is not None and dst_place is not None and to_read > 0 and to_write > 0:
        source = rec.span(op.name, world.pe, place, to_read)
        target = rec.span(op.name, world.pe, dst_place, to_write)
        if not _is_own_part(op, pes.index(world.pe), place, to_read, dst_place, to_write):
            rec.overlap(op.name, source, target, same=op.src_for_each_pe and op.dst_for_each_pe)
        rec.plain(op.name, source, writes=False)
        # Members that have entered may write to dst at once, so reads of dst must be complete on all PEs.
        rec.plain(op.name, target, writes=True)
    rec.arrive(op.name, pes, completes=True)


def _is_own_part(op: Op, me: int, src: int, to_read: int, dst: int, to_write: int) -> bool:
    """Whether the smaller buffer is this PE's part of the larger one, which is no overlap."""
    if op.dst_for_each_pe and not op.src_for_each_pe:
        return src == dst + me * to_read
    return op.src_for_each_pe and not op.dst_for_each_pe and dst == src + me * to_write


def _after_exchange(op: Op, rec: Recorder, world: CpuWorld, a: _Arguments) -> None:
    pes = _team(world, a)
    rec.leave(pes)
    place, nbytes = _offset(world, a["dst"]), _sizes(op, pes, a)[1]
    if place is not None and nbytes > 0:
        rec.plain(op.name, rec.span(op.name, world.pe, place, nbytes), writes=True)
        rec.proxy_fence(completes=True)


_BEFORE: dict[Effect, _Effect] = {
    Effect.PUT: _put,
    Effect.PUT_ELEMENT: _put_element,
    Effect.PUT_SIGNAL: _put_signal,
    Effect.GET: _get,
    Effect.GET_ELEMENT: _get_element,
    Effect.UPDATE_SIGNAL: _signal,
    Effect.UPDATE_ATOMIC: _before_atomic,
    Effect.FENCE: _fence,
    Effect.QUIET: _quiet,
    Effect.SYNC: _arrive,
    Effect.BARRIER: _arrive,
    Effect.EXCHANGE: _before_exchange,
}

_AFTER: dict[Effect, _Effect] = {
    Effect.UPDATE_ATOMIC: _after_atomic,
    Effect.LOOK: _look,
    Effect.AWAIT: _look,
    Effect.SYNC: _leave,
    Effect.BARRIER: _leave,
    Effect.EXCHANGE: _after_exchange,
}
