"""Accesses to the same memory that nothing orders, found by what happened before what and not by luck.

A program's accesses are ordered. What it did before it updated a word with release, is ordered before what another
does after it has acquired that word; an update without release orders the accesses before the program's last ``fence``
or ``quiet``. A put is no access of the program but of a copy that it has started: the copy's write is ordered before
something only through ``quiet``, through a ``fence`` and an update of the same PE, through the signal that it carries,
or through a barrier; a non-blocking copy reads its source as late. ``p`` is such a put, of one element. So are updates
that are logged when they are sent and again when they arrive.

TMA reads and writes through another proxy of memory (PTX ISA, memory consistency model). A store by TMA is a copy, too,
which ops that release or copy complete. A load by TMA comes after what was ordered before its program's last fence of
the proxies, which such ops and those that acquire contain.

Messages that say themselves that they have arrived are stored as data and read by volatile loads. Such a load orders
what comes after the reader's next fence behind what came before the writer's last one before the store. Fences are the
begin and the end of a launch, ``fence`` and ``quiet``, and atomics with "acq_rel" at system scope.

A barrier of all PEs' hosts orders everything: what lies before it is forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_dist._C.op_table import Cmp
from triton_dist.check.clocks import Clock
from triton_dist.check.findings import Finding, Findings, Side
from triton_dist.check.heap import Heap
from triton_dist.check.log import HOST, Flag, Kind
from triton_dist.check.run import Event, Run, Word
from triton_dist.check.shadow import ATOMIC, ELEMENT, PLAIN, VOLATILE, Conflict, Shadow, Who, was_among
from triton_dist.check.signals import OVERTAKES, Condition, Lost, Signals, Update
from triton_dist.check.threads import BY_TMA, GETS, Actors, Past, Thread

__all__ = ["Races"]

_CACHED_PIECES = 1 << 22
"""Piece numbers that are cached for recurring lists of ranges."""


@dataclass(frozen=True)
class _Sent:
    """An update that arrives later."""

    event: Event
    who: Who
    clock: Clock
    """What is ordered before it."""
    known: Clock
    """What an acquire of its word obtains."""


class Races:
    """Processes the events in order."""

    def __init__(self, run: Run, heap: Heap, findings: Findings) -> None:
        self._run, self._heap, self._findings = run, heap, findings
        self._shadows = {space: Shadow(bounds) for space, bounds in run.bounds().items()}
        self._pieces: dict[tuple[int, int], tuple[int, NDArray[np.int64]]] = {}
        self._n_cached = 0
        self._signals = Signals()
        self._numbers = np.zeros(len(run), np.int32)
        """By event: the number of its program's last event,"""
        self._actors_of = np.zeros(len(run), np.int32)
        """and its actor; for a copy, the program that started it."""
        self._index = -1
        kinds, flags = run.events["kind"], run.events["flags"]
        self._has_tma = bool(((kinds == Kind.ACCESS) & (flags & Flag.TMA != 0)).any())
        self._begin()

    def handle(self, index: int, event: Event) -> None:
        handler = _HANDLERS.get(event.kind)
        if handler is None:
            return
        self._index = index
        reaches_tma = self._has_tma and not event.flags & Flag.RELAXED
        if reaches_tma and event.kind in _COMPLETING_TMA_STORES:
            self._thread(event.pe, event.program).complete_tma_stores()
        handler(self, event)
        if reaches_tma and event.kind in _FENCING_FOR_TMA:
            self._thread(event.pe, event.program).fence_for_tma()

    def forget(self) -> None:
        """All hosts have passed a barrier."""
        self._report_lost()
        for shadow in self._shadows.values():
            shadow.forget()
        self._begin()

    def end(self) -> None:
        self._report_lost()

    def _begin(self) -> None:
        self._actors = Actors()
        self._threads: dict[tuple[int, int], Thread] = {}
        self._pasts: dict[tuple[int, int], Past] = {}
        self._ended: dict[int, list[Thread]] = defaultdict(list)
        self._under_way: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """By PE: copies of launches that have ended; actor and number of the last one."""
        self._launch: dict[int, Past] = {}
        """By PE: the state that programs without synchronisation share."""
        self._rounds: dict[Any, tuple[Clock, int]] = {}
        """By barrier: the joined clock of the programs that have arrived, and how many have not left yet."""
        self._in_flight: dict[tuple[int, int], _Sent] = {}
        """By PE and number of their events: updates that have been sent."""
        self._came: dict[Any, int] = {}
        """By PE and barrier: how often the PE has arrived."""
        for pe in range(self._run.n_pes):
            self._start(pe, HOST, Clock())

    # ---- programs

    def _start(self, pe: int, program: int, clock: Clock) -> Thread:
        actor, last = self._actors.take(pe)
        thread = Thread(actor, last, clock, Past([]))
        thread.go_on()
        thread.fence()
        if self._has_tma:
            thread.for_tma = Clock()
            thread.fence_for_tma()
        self._threads[pe, program] = thread
        self._pasts[pe, program] = thread.past
        return thread

    def _program(self, e: Event) -> None:
        host = self._threads[e.pe, HOST]
        self._start(e.pe, e.program, host.clock.copy()).waits = host.waits

    def _end(self, e: Event) -> None:
        thread = self._threads.pop((e.pe, e.program), None)
        if thread is None:
            return
        thread.complete_tma_stores()
        thread.acquire_seen()
        self._ended[e.pe].append(thread)
        past = thread.past
        if len(past.fences) == 1 and not (past.narrow or past.polled or past.put_flag):
            self._pasts[e.pe, e.program] = self._launch.setdefault(e.pe, past)

    def _launched(self, e: Event) -> None:
        host = self._threads[e.pe, HOST]
        self._launch.pop(e.pe, None)
        for thread in self._ended.pop(e.pe, []):
            host.clock.join(thread.clock)
            host.waits = max(host.waits, thread.waits + 1)
            self._actors.give(e.pe, thread.actor, thread.now)
            for actor in thread.copies.values():
                last = thread.issued.get(actor, 0)
                if thread.clock.of(actor) >= last:
                    self._actors.give(e.pe, actor, last)
                else:
                    self._under_way[e.pe].append((actor, last))
        host.fence()

    def _thread(self, pe: int, program: int) -> Thread:
        thread = self._threads.get((pe, program))
        return self._start(pe, program, Clock()) if thread is None else thread  # its begin is not in a damaged log

    # ---- accesses

    def _at(self, pe: int, index: int) -> tuple[int, NDArray[np.int64]]:
        """Space and pieces of a list of ranges."""
        found = self._pieces.get((pe, index))
        if found is None:
            space, begins, ends = self._run.ranges(pe, index)
            found = space, self._shadows[space].pieces(begins, ends)
            if self._n_cached + found[1].size > _CACHED_PIECES:
                self._pieces.clear()
                self._n_cached = 0
            self._n_cached += found[1].size
            self._pieces[pe, index] = found
        return found

    def _word(self, space: int, offset: int, size: int) -> tuple[int, NDArray[np.int64]]:
        begin = np.array([offset], np.int64)
        return space, self._shadows[space].pieces(begin, begin + size)

    def _touch(self, at: tuple[int, NDArray[np.int64]], writes: bool, who: Who, clock: Clock) -> None:
        space, pieces = at
        shadow = self._shadows[space]
        for conflict in (shadow.write if writes else shadow.read)(pieces, who, clock):
            if who.how != ELEMENT or conflict.how != ELEMENT or self._is_disorder(conflict, writes, clock):
                self._report(space, conflict, writes, who, clock)

    def _is_disorder(self, conflict: Conflict, writes: bool, clock: Clock) -> bool:
        """Whether two single elements had to have an order: both are written, or the one that is read was to be what is
        known to be in flight. Else reading is polling, which may come early."""
        return conflict.wrote and (writes or clock.knows(*self._started(conflict.event)))

    def _who(self, thread: Thread, how: int) -> Who:
        self._mark(thread)
        return Who(thread.actor, thread.now, self._index, how, thread.waits)

    def _mark(self, thread: Thread) -> None:
        self._numbers[self._index], self._actors_of[self._index] = thread.now, thread.actor

    def _access(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        at = self._at(e.pe, e.a)
        writes = bool(e.flags & Flag.WRITES)
        how = VOLATILE if e.flags & Flag.VOLATILE else PLAIN
        if e.flags & Flag.ATOMIC:
            how = ATOMIC if writes else ELEMENT
        if how == VOLATILE:
            thread.past.polled = True
            for known in self._written(at, thread.clock, waits=False):
                thread.see(known)
        if e.flags & Flag.TMA:
            self._access_by_tma(thread, e, at)
        else:
            self._touch(at, writes, self._who(thread, how), thread.clock)

    def _access_by_tma(self, thread: Thread, e: Event, at: tuple[int, NDArray[np.int64]]) -> None:
        if not e.flags & Flag.WRITES:
            who = self._who(thread, PLAIN)
            self._touch(at, False, who, thread.clock)
            self._check_proxy_fence(thread, at)
        elif e.flags & Flag.COMPLETES:
            self._touch(at, True, self._who(thread, PLAIN), thread.clock)
        else:
            clock = thread.clock.copy()  # one of them overwrites another in the program's order
            actor, number = self._copy(thread, e.pe, BY_TMA)
            clock.learn(actor, number)
            self._touch(at, True, Who(actor, number, self._index, PLAIN, thread.waits), clock)
            thread.go_on()

    def _check_proxy_fence(self, thread: Thread, at: tuple[int, NDArray[np.int64]]) -> None:
        """Report writes that ordinary loads would come after, and a load by TMA need not."""
        space, pieces = at
        assert thread.for_tma is not None
        for actor, number, index in self._shadows[space].unknown_writes(pieces, thread.for_tma):
            wrote, now = self._run.event(index), self._run.event(self._index)
            is_own = (wrote.pe, wrote.program) == (now.pe, now.program)
            if thread.clock.knows(actor, number) and not (is_own and wrote.flags & Flag.TMA):
                where = self._heap.name(space, *self._shadows[space].span(pieces))
                sides = [self._side(wrote, True), self._side(now, False)]
                self._findings.add(Finding("missing-proxy-fence", sides, [f"at {where}", _PROXY]))

    def _written(self, at: tuple[int, NDArray[np.int64]], clock: Clock, *, waits: bool) -> list[Clock]:
        """The clocks that fences give to a program that sees stores of other programs at ``at``."""
        space, pieces = at
        found = []
        for actor, number, index in self._shadows[space].unknown_writes(pieces, clock):
            event = self._run.event(index)
            is_copy = actor != self._actors_of[index] and event.kind != Kind.SENT
            # The data of a copy orders nothing, except for a wait on that data. Atomics order a wait by their own
            # semantics.
            wanted = is_copy or not _is_atomic(event) if waits else not is_copy
            if wanted and (past := self._pasts.get((event.pe, event.program))):
                known = past.known_at_fence(int(self._numbers[index]), space)
                if is_copy:
                    known = known.copy()
                    known.learn_one(actor, number)
                found.append(known)
        return found

    def _copy(self, thread: Thread, pe: int, target: int) -> tuple[int, int]:
        """The actor of a new copy, and its number."""
        actor = thread.copies.get(target)
        if actor is None:
            actor, last = self._actors.take(pe)
            thread.copies[target], thread.issued[actor] = actor, last
        thread.issued[actor] += 1
        self._mark(thread)
        return actor, thread.issued[actor]

    def _put(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        target = self._at(e.pe, e.b)
        actor, count = self._copy(thread, e.pe, target[0])
        copy = Who(actor, count, self._index, ELEMENT if e.flags & Flag.ATOMIC else PLAIN, thread.waits)
        if e.a >= 0:
            who = copy if e.flags & Flag.NBI else self._who(thread, PLAIN)
            self._touch(self._at(e.pe, e.a), False, who, thread.clock)
        self._touch(target, True, copy, thread.publish(target[0]))
        thread.go_on()

    def _get(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        who = self._who(thread, PLAIN)
        if e.flags & Flag.NBI:
            who = Who(*self._copy(thread, e.pe, GETS), self._index, PLAIN, thread.waits)
        self._touch(self._at(e.pe, e.a), False, who, thread.clock)
        if e.b >= 0:
            self._touch(self._at(e.pe, e.b), True, who, thread.clock)
        thread.go_on()

    # ---- order

    def _update(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        word = (e.a, e.b)
        self._touch(self._word(e.a, e.b, e.size), True, self._who(thread, ATOMIC), thread.clock)
        if e.flags & Flag.VALUED:
            update = Update(thread.actor, thread.now, self._index, e.c, e.d, e.flags)
            for lost in self._signals.update(word, update, thread.clock):
                self._lost(word, lost)
        self._publish(thread, e.pe, [word], e.flags)
        thread.go_on()
        thread.released = [] if e.flags & (Flag.RELAXED | Flag.SCOPE_GPU) else [word]

    def _send(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        clock = thread.publish(e.a)
        if e.flags & Flag.CARRIES and e.a in thread.copies:
            actor = thread.copies[e.a]
            number = thread.issued[actor]  # of its put: who knows that one of the two has arrived, knows it of both
            self._mark(thread)
        else:
            actor, number = self._copy(thread, e.pe, e.a)
        known = thread.publish_relaxed(e.a) if e.flags & Flag.RELAXED else clock.copy()
        known.learn_one(actor, number)
        thread.past.narrow |= bool(e.flags & Flag.SCOPE_GPU)
        who = Who(actor, number, self._index, ATOMIC, thread.waits)
        self._in_flight[e.pe, e.number] = _Sent(e, who, clock, known)
        thread.go_on()
        thread.released = []

    def _arrived(self, e: Event) -> None:
        sent = self._in_flight.pop((e.pe, e.a), None)
        if sent is None:
            return  # it is not in a damaged log
        self._index = sent.who.event
        word, flags = (sent.event.a, sent.event.b), sent.event.flags
        self._touch(self._word(*word, sent.event.size), True, sent.who, sent.clock)
        if e.flags & Flag.VALUED:
            update = Update(sent.who.actor, sent.who.number, sent.who.event, e.c, e.d, flags)
            for lost in self._signals.update(word, update, sent.clock):
                self._lost(word, lost)
        self._signals.release(word, e.pe, bool(flags & Flag.SCOPE_GPU), sent.known, _replaces(flags))

    def _publish(self, thread: Thread, pe: int, words: list[Word], flags: int) -> None:
        narrow = bool(flags & Flag.SCOPE_GPU)
        thread.past.narrow |= narrow
        by_target: dict[int, Clock] = {}
        for word in words:
            target = word[0]
            if target not in by_target:
                relaxed = flags & Flag.RELAXED
                by_target[target] = thread.publish_relaxed(target) if relaxed else thread.publish(target)
                if flags & Flag.CARRIES and target in thread.copies:
                    actor = thread.copies[target]
                    by_target[target].learn_one(actor, thread.issued[actor])
            self._signals.release(word, pe, narrow, by_target[target], _replaces(flags))

    def _release(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        words = self._run.words(e.pe, e.a)
        thread.past.put_flag |= bool(e.flags & Flag.CARRIES)
        self._publish(thread, e.pe, words, e.flags)
        thread.go_on()
        thread.released = [] if e.flags & (Flag.RELAXED | Flag.SCOPE_GPU) else words

    def _acquire(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        words = self._run.words(e.pe, e.a)
        self._learn(thread, e.pe, words, e.flags)
        if words == thread.released:  # by the same atomic: "acq_rel"
            thread.acquire_seen()
            thread.fence()
        thread.released = []

    def _learn(self, thread: Thread, pe: int, words: list[Word], flags: int) -> None:
        narrow = bool(flags & Flag.SCOPE_GPU)
        thread.past.narrow |= narrow
        thread.waits += 1
        for word in words:
            for known in self._signals.acquire(word, pe, narrow):
                if flags & Flag.RELAXED:
                    thread.see(known)
                else:
                    thread.clock.join(known)

    def _look(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        words = self._run.words(e.pe, e.a)
        who = self._who(thread, VOLATILE)
        for word in words:
            at = self._word(*word, e.size)
            for known in self._written(at, thread.clock, waits=True):
                thread.see(known)
            self._touch(at, False, who, thread.clock)
        self._learn(thread, e.pe, words, e.flags)
        if not e.flags & Flag.RELAXED:
            thread.acquire_seen()
        if e.flags & Flag.WAITS:
            condition = Condition(Cmp(e.cmp), e.c, 8 * e.size, bool(e.flags & Flag.SIGNED))
            for word in words:
                self._signals.waits(word, thread.actor, thread.now, self._index, condition)
        if words == thread.released:  # by the same atomic: "acq_rel"
            thread.fence()
        thread.released = []

    def _fence(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        for to, actor in thread.copies.items():
            if to >= 0 and e.a in (-1, to):
                thread.fenced[actor] = thread.issued[actor]
        thread.fence(None if e.a < 0 else e.a)

    def _quiet(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        self._complete(thread, e.a)
        thread.acquire_seen()
        thread.fence(None if e.a < 0 else e.a)

    def _proxy_fence(self, e: Event) -> None:
        if e.flags & Flag.COMPLETES:
            self._thread(e.pe, e.program).complete_tma_stores()

    @staticmethod
    def _complete(thread: Thread, target: int = -1) -> None:
        for to, actor in thread.copies.items():
            if target in (-1, to) or to == GETS:
                thread.clock.learn(actor, thread.issued[actor])

    def _arrive(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        if e.flags & Flag.COMPLETES:
            self._complete(thread)
        if e.program == HOST:  # of a team: one of all hosts ends all this
            for actor, last in self._under_way.pop(e.pe, []):  # it waits for all that its kernels started
                thread.clock.learn(actor, last)
                self._actors.give(e.pe, actor, last)
        pes = self._run.pes(e.pe, e.a)
        key = (pes, e.program == HOST)
        arrived = self._came.get((e.pe, key), 0)
        self._came[e.pe, key] = arrived + 1
        self._rounds.setdefault((key, arrived), (Clock(), len(pes)))[0].join(thread.clock)
        thread.rounds[key] = arrived
        thread.fence()

    def _leave(self, e: Event) -> None:
        thread = self._thread(e.pe, e.program)
        key = (self._run.pes(e.pe, e.a), e.program == HOST)
        which = (key, thread.rounds.get(key, -1))
        if which in self._rounds:
            clock, left = self._rounds[which]
            thread.clock.join(clock)
            if left > 1:
                self._rounds[which] = clock, left - 1
            else:
                del self._rounds[which]
        thread.acquire_seen()
        thread.waits += 1

    # ---- what is wrong with two accesses

    def _report(self, space: int, conflict: Conflict, wrote: bool, who: Who, clock: Clock) -> None:
        kind, notes = self._judge(space, conflict, wrote, who, clock)
        now = self._run.event(self._index)
        sides = [self._side(self._run.event(conflict.event), conflict.wrote), self._side(now, wrote)]
        where = f"both at {self._heap.name(space, conflict.begin, conflict.end)}"
        for event in (self._run.event(conflict.event), now):
            past = self._pasts.get((event.pe, event.program)) or Past([])
            if past.narrow:
                notes.append('tl.atomic_* orders programs of different PEs only with scope="sys"')
            if past.polled and not wrote:
                notes.append("a volatile tl.load orders nothing: wait with signal_wait_until, or use tl.atomic_*")
            if past.put_flag and event is not now and not _is_atomic(event):
                notes.append("p orders nothing but its own element: call fence before it, or use signal_op for a flag")
        self._findings.add(Finding(kind, sides, [where, *dict.fromkeys(notes)]))

    def _judge(self, space: int, conflict: Conflict, wrote: bool, who: Who, clock: Clock) -> tuple[str, list[str]]:
        earlier, later = self._run.event(conflict.event), self._run.event(self._index)
        same_pe = earlier.pe == later.pe
        nbi = bool(earlier.flags & Flag.NBI)
        if same_pe and earlier.kind == Kind.PUT and nbi and not conflict.wrote:
            return "missing-quiet", ["the put may still read its source: call quiet before the source is used again"]
        if earlier.kind == Kind.GET and nbi and conflict.wrote and same_pe:
            return "missing-quiet", ["the get may not have arrived: call quiet before its destination is used"]
        sent = earlier.kind in (Kind.PUT, Kind.SENT)
        if sent and conflict.wrote and clock.knows(*self._started(conflict.event)):
            if later.kind in (Kind.PUT, Kind.SENT) and same_pe:
                return "missing-fence", [
                    "two puts or signals to one PE may arrive in any order: call fence between them, or wait for a "
                    "program that has waited for the first"
                ]
            if same_pe and earlier.program == later.program:
                return "missing-quiet", ["the put may not have arrived: call quiet before its destination is used"]
            if earlier.kind == Kind.SENT:
                return "missing-fence", [
                    f"what was waited for says that the {self._what(earlier)} was started, not that it has arrived: "
                    "call fence (or quiet) between the two"
                ]
            return "missing-quiet" if nbi else "missing-fence", [
                "what was waited for says that the put was started, not that it has arrived: call fence (or quiet) "
                "between the put and the signal, or use putmem_signal"
            ]
        if _is_pending(earlier) and conflict.wrote and clock.knows(*self._started(conflict.event)):
            return "missing-fence", [
                "the descriptor store may not have arrived: what completes it is an op of triton_dist.language that "
                "releases or copies, such as fence or signal_op, and not a tl.atomic_*"
            ]
        if conflict.wrote and wrote:
            return "race", [
                "two writes, and nothing says which comes first: a signal and a wait, or a barrier between them"
            ]
        came = self._reads_what_came_before(conflict, who, clock) if conflict.wrote else self._read_what_came(conflict)
        if came or (not conflict.wrote and earlier.pe != space == later.pe):  # fetched by one, changed by its owner
            return "reuse", ["have the reader signal when it is done, and the writer wait for that before it writes"]
        return "early-read", [_WAIT]

    def _read_what_came(self, conflict: Conflict) -> bool:
        """Whether the earlier access, a read, was right to read, for all that is known."""
        if conflict.reread:
            return False
        if conflict.after_write >= 0:
            wrote, read = self._run.event(conflict.after_write), self._run.event(conflict.event)
            return (wrote.pe, wrote.program) != (read.pe, read.program) and wrote.program != HOST
        return False

    def _reads_what_came_before(self, conflict: Conflict, who: Who, clock: Clock) -> bool:
        """Whether a value that the reader had waited for was overwritten before it read the value."""
        actor, number, index = conflict.before
        if actor < 0 or not clock.knows(actor, number) or was_among(conflict.readers, who.actor):
            return False
        before, wrote, reads = (self._run.event(i) for i in (index, conflict.event, self._index))
        reader = (reads.pe, reads.program)
        return before.pe == wrote.pe and before.program != HOST and (before.pe, before.program) != reader

    def _started(self, index: int) -> tuple[int, int]:
        """The actor of the program that started a copy, and the number of its event."""
        return int(self._actors_of[index]), int(self._numbers[index])

    # ---- lost signals: two updates, or an update and a wait

    def _lost(self, word: Word, lost: Lost) -> None:
        update, other = self._run.event(lost.event), self._run.event(lost.other)
        name = self._heap.name(word[0], word[1], word[1] + update.size)
        if lost.other_waits:
            does = (f"{self._what(other)} waits for a value", f"{self._what(update)} overwrites it")
            note = "the wait may poll too late, and wait forever: have the waiter signal that it has seen the value"
        else:
            does = (f"{self._what(other)} updates a signal", f"{self._what(update)} updates it, too")
            note = (
                "nothing says which comes first, and a wait tells the difference: one may overwrite the other before "
                "it is seen; use SIGNAL_ADD, a word for each, or have the second one wait until the first one is seen"
            )
            if Kind.SENT == update.kind == other.kind and (update.pe, update.program) == (other.pe, other.program):
                note = f"{OVERTAKES}: call fence between the two"
        sides = [
            Side.of(self._run, event.pe, event.program, event.place, text)
            for event, text in zip((other, update), does, strict=True)
        ]
        self._findings.add(Finding("lost-signal", sides, [f"at {name}", note]))

    def _report_lost(self) -> None:
        for word, lost in self._signals.forget():
            self._lost(word, lost)

    def _what(self, event: Event) -> str:
        return self._run.place(event.pe, event.place).what

    def _side(self, event: Event, wrote: bool) -> Side:
        does = f"{self._what(event)} {'writes' if wrote else 'reads'}"
        if event.kind == Kind.PUT and not wrote:
            does += " its source"
        if event.kind == Kind.GET and wrote:
            does += " its destination"
        return Side.of(self._run, event.pe, event.program, event.place, does)


def _is_atomic(event: Event) -> bool:
    return event.kind in (Kind.UPDATE, Kind.SENT) or bool(event.flags & Flag.ATOMIC)


def _is_pending(event: Event) -> bool:
    """Whether it is a store by TMA that is not complete yet."""
    return event.kind == Kind.ACCESS and event.flags & (Flag.TMA | Flag.WRITES | Flag.COMPLETES) == _STARTED


def _replaces(flags: int) -> bool:
    """Whether an update ends the release sequence of its word."""
    return bool(flags & Flag.SETS) and not flags & Flag.ATOMIC


_STARTED = Flag.TMA | Flag.WRITES
_PROXY = (
    "what comes before ordinary loads need not come before those of TMA, another proxy of memory (PTX ISA): between "
    "the two call an op of triton_dist.language that acquires or fences, or in Gluon the instruction fence.proxy.async"
)
_WAIT = (
    "have the writer signal after its data (putmem_signal, or fence and signal_op) and the reader wait for that "
    "(signal_wait_until) before it reads; or put a barrier between them"
)

_COMPLETING_TMA_STORES = {Kind.PUT, Kind.GET, Kind.UPDATE, Kind.SENT, Kind.FENCE, Kind.QUIET, Kind.ARRIVE}
"""Events of ops that release or copy, unless they are relaxed."""
_FENCING_FOR_TMA = {*_COMPLETING_TMA_STORES, Kind.LOOK, Kind.LEAVE, Kind.PROXY_FENCE}
"""And of those that acquire."""

_HANDLERS: dict[int, Callable[[Races, Event], None]] = {
    Kind.PROGRAM: Races._program,
    Kind.END: Races._end,
    Kind.LAUNCHED: Races._launched,
    Kind.ACCESS: Races._access,
    Kind.PUT: Races._put,
    Kind.GET: Races._get,
    Kind.UPDATE: Races._update,
    Kind.SENT: Races._send,
    Kind.ARRIVED: Races._arrived,
    Kind.LOOK: Races._look,
    Kind.RELEASE: Races._release,
    Kind.ACQUIRE: Races._acquire,
    Kind.FENCE: Races._fence,
    Kind.PROXY_FENCE: Races._proxy_fence,
    Kind.QUIET: Races._quiet,
    Kind.ARRIVE: Races._arrive,
    Kind.LEAVE: Races._leave,
}
