"""Accesses to the same memory that nothing orders, found by what happened before what and not by luck.

A program's accesses are ordered. What it did before it updated a word with release, is ordered before what another
does after it has acquired that word. A put is no access of the program but of a copy that it has started: the copy's
write is ordered before something only through ``quiet``, through a ``fence`` and an update of the same PE, through the
signal that it carries, or through a barrier; a non-blocking copy reads its source as late.

Messages that say themselves that they have arrived are stored as data and read by volatile loads. Such a load orders
what comes after the reader's next fence behind what came before the writer's last one before the store. Fences are the
begin and the end of a launch, and atomics with "acq_rel" at system scope.

A barrier of all PEs' hosts orders everything, so what lies between two of them is looked at by itself (a *segment*).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triton_dist.check.clocks import Clock
from triton_dist.check.findings import Finding, Findings, Side
from triton_dist.check.heap import Heap
from triton_dist.check.log import HOST, Kind, PlainRanges, Run
from triton_dist.check.shadow import Conflict, Shadow, Who

__all__ = ["Segment"]

_HOW = {"plain": 0, "atomic": 1, "volatile": 2}
_FENCES = 64
"""Of a program, that are remembered: what was stored before the first of them comes after no fence that is known."""

_GETS = -(1 << 30)
"""In place of the PE that puts go to: the program's non-blocking gets."""

Word = tuple[int, int]
Event = tuple[int, tuple[Any, ...]]


@dataclass
class _Thread:
    """A program, or a PE's host code."""

    actor: int
    clock: Clock
    copies: dict[int, int] = field(default_factory=dict)
    """By target PE (or ``_GETS``): the actor of the copies it has started there."""
    issued: dict[int, int] = field(default_factory=dict)
    """By actor: how many it has started."""
    fenced: dict[int, int] = field(default_factory=dict)
    """By actor: how many of them come before its next update of that PE."""
    rounds: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    fences: deque[tuple[int, Clock]] = field(default_factory=lambda: deque(maxlen=_FENCES))
    """What it knew at each of its fences, and the number of its events from there on."""
    seen: Clock | None = None
    """What it will know, through its volatile loads, after its next fence."""
    released: list[Word] = field(default_factory=list)
    """By the atomic that it is about to end."""
    waited: bool = False
    narrow: bool = False
    """Whether it has used atomics that order the programs of one PE only."""
    polled: bool = False

    @property
    def now(self) -> int:
        return int(self.clock.upto[self.actor])

    def publish(self, pe: int) -> Clock:
        """What somebody knows who sees an update that this program makes on ``pe``."""
        clock = self.clock.copy()
        actor = self.copies.get(pe)
        if actor is not None:
            clock.learn(actor, self.fenced.get(actor, 0))
        return clock

    def see(self, clock: Clock) -> None:
        """A store of somebody who had known this at the last fence before it."""
        if self.seen is None:
            self.seen = clock.copy()
        else:
            self.seen.join(clock)

    def fence(self) -> None:
        if self.seen is not None:
            self.clock.join(self.seen)
            self.seen = None
        self.fences.append((self.now + 1, self.clock.copy()))
        self.go_on()

    def known_at_fence(self, number: int) -> Clock | None:
        """What it knew at the last fence before its event of this number; None: that is forgotten."""
        return next((clock for first, clock in reversed(self.fences) if first <= number), None)

    def go_on(self) -> None:
        """What follows is no part of what was published."""
        self.clock.upto[self.actor] += 1


@dataclass
class _SyncWord:
    """What is known to those who acquire a word: by PE and scope of those who released it."""

    known: dict[tuple[int, str], Clock] = field(default_factory=dict)

    def release(self, pe: int, scope: str, clock: Clock, sets: bool) -> None:
        if sets:
            self.known.clear()
        if (pe, scope) in self.known:
            self.known[pe, scope].join(clock)
        else:
            self.known[pe, scope] = clock.copy()

    def acquire(self, pe: int, scope: str, clock: Clock) -> None:
        for (other, theirs), known in self.known.items():
            if other == pe or (scope == "sys" and theirs == "sys"):
                clock.join(known)


class Segment:
    """What happened between two barriers of all hosts."""

    def __init__(self, run: Run, heap: Heap, findings: Findings, events: list[Event]) -> None:
        self._run, self._heap, self._findings, self._events = run, heap, findings, events
        self._actors: dict[tuple[int, int, int | None], int] = {}
        ranges: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
        for pe in range(run.n_pes):
            self._actor(pe, HOST, None)
        for pe, event in events:
            self._prepare(pe, event, ranges)
        self._shadows = {space: Shadow.of(found) for space, found in ranges.items()}
        self._threads: dict[tuple[int, int], _Thread] = {}
        self._words: dict[Word, _SyncWord] = defaultdict(_SyncWord)
        self._rounds: dict[Any, Clock] = {}
        self._pe_rounds: dict[Any, int] = defaultdict(int)
        self._ended: dict[int, list[_Thread]] = defaultdict(list)
        self._launched_before: dict[int, list[_Thread]] = defaultdict(list)
        self._issue: dict[int, tuple[_Thread, int]] = {}
        """By event: who started a copy, and its own number then."""
        self._had_waited: dict[int, bool] = {}
        self._current = -1

    def analyse(self) -> None:
        for pe in range(self._run.n_pes):
            self._start(pe, HOST, Clock.zero(len(self._actors)))
        for current, (pe, event) in enumerate(self._events):
            self._current = current
            handler = _HANDLERS.get(event[1])
            if handler is not None:
                handler(self, pe, *event[2:])

    # ---- before

    def _actor(self, pe: int, program: int, target: int | None) -> int:
        return self._actors.setdefault((pe, program, target), len(self._actors))

    def _prepare(self, pe: int, event: tuple[Any, ...], ranges: dict[int, list[tuple[Any, Any]]]) -> None:
        kind, items = event[1], event[2:]
        touched: list[PlainRanges | None] = []
        if kind == Kind.PROGRAM:
            self._actor(pe, items[0], None)
        elif kind == Kind.ACCESS:
            self._actor(pe, items[0], None)
            touched = [items[4]]
        elif kind == Kind.PUT:
            self._actor(pe, items[0], items[4][0])
            touched = [items[3], items[4]]
        elif kind == Kind.GET:
            self._actor(pe, items[0], _GETS)
            touched = [items[3], items[4]]
        for found in touched:
            if found is not None:
                ranges[found[0]].append(found[1:])

    # ---- programs

    def _start(self, pe: int, program: int, clock: Clock) -> _Thread:
        thread = _Thread(self._actor(pe, program, None), clock)
        thread.clock.upto[thread.actor] = 0
        thread.fence()
        self._threads[pe, program] = thread
        return thread

    def _program(self, pe: int, program: int, _: Any) -> None:
        self._start(pe, program, self._threads[pe, HOST].clock.copy())

    def _end(self, pe: int, program: int) -> None:
        self._threads[pe, program].fence()
        self._ended[pe].append(self._threads[pe, program])

    def _launched(self, pe: int) -> None:
        for thread in self._ended.pop(pe, []):
            self._threads[pe, HOST].clock.join(thread.clock)
            self._launched_before[pe].append(thread)

    def _thread(self, pe: int, program: int) -> _Thread:
        return self._threads[pe, program]

    # ---- accesses

    def _access(self, pe: int, program: int, place: int, writes: bool, how: str, ranges: PlainRanges) -> None:
        thread = self._thread(pe, program)
        thread.polled |= how == "volatile"
        self._had_waited[self._current] = thread.waited
        if how == "volatile":
            space, begins, ends = ranges
            for write in self._shadows[space].unknown_writes(begins, ends, thread.clock):
                writer = self._by(write.event)
                # (A copy, which has an actor of its own, says by a signal that it has arrived.)
                if writer.actor == write.actor and (known := writer.known_at_fence(write.number)):
                    thread.see(known)
        self._touch(ranges, writes, Who(thread.actor, thread.now, self._current, _HOW[how]), thread.clock)

    def _touch(self, ranges: PlainRanges, writes: bool, who: Who, clock: Clock) -> None:
        space, begins, ends = ranges
        shadow = self._shadows[space]
        for conflict in (shadow.write if writes else shadow.read)(begins, ends, who, clock):
            self._report(space, conflict, writes, clock)

    def _copy(self, thread: _Thread, pe: int, program: int, target: int) -> tuple[int, int]:
        """The actor of a new copy, and its number."""
        actor = thread.copies.setdefault(target, self._actor(pe, program, target))
        thread.issued[actor] = thread.issued.get(actor, 0) + 1
        self._issue[self._current] = (thread, thread.now)
        self._had_waited[self._current] = thread.waited
        return actor, thread.issued[actor]

    def _put(
        self, pe: int, program: int, place: int, nbi: bool, source: PlainRanges | None, target: PlainRanges,
        signal: Word | None, adds: bool,
    ) -> None:  # fmt: skip
        thread = self._thread(pe, program)
        actor, number = self._copy(thread, pe, program, target[0])
        copy = Who(actor, number, self._current, 0)
        if source is not None:
            who = copy if nbi else Who(thread.actor, thread.now, self._current, 0)
            self._touch(source, False, who, thread.clock)
        ordered = thread.publish(target[0])
        self._touch(target, True, copy, ordered)
        if signal is not None:
            ordered.learn_one(actor, number)
            self._words[signal].release(pe, "sys", ordered, not adds)
        thread.go_on()

    def _get(
        self, pe: int, program: int, place: int, nbi: bool, source: PlainRanges, target: PlainRanges | None
    ) -> None:
        thread = self._thread(pe, program)
        who = Who(thread.actor, thread.now, self._current, 0)
        if nbi:
            who = Who(*self._copy(thread, pe, program, _GETS), self._current, 0)
        else:
            self._had_waited[self._current] = thread.waited
        self._touch(source, False, who, thread.clock)
        if target is not None:
            self._touch(target, True, who, thread.clock)
        thread.go_on()

    # ---- order

    def _release(self, pe: int, program: int, place: int, words: list[Word], sets: bool, scope: str) -> None:
        thread = self._thread(pe, program)
        thread.narrow |= scope != "sys"
        published = {target: thread.publish(target) for target in {word[0] for word in words}}
        for word in words:
            self._words[word].release(pe, scope, published[word[0]], sets)
        thread.go_on()
        thread.released = words if scope == "sys" else []

    def _acquire(self, pe: int, program: int, place: int, words: list[Word], scope: str) -> None:
        thread = self._thread(pe, program)
        thread.waited = True
        thread.narrow |= scope != "sys"
        for word in words:
            if word in self._words:
                self._words[word].acquire(pe, scope, thread.clock)
        if words == thread.released:  # by the same atomic: "acq_rel"
            thread.fence()
        thread.released = []

    def _fence(self, pe: int, program: int, target: int | None) -> None:
        thread = self._thread(pe, program)
        for to, actor in thread.copies.items():
            if to != _GETS and target in (None, to):
                thread.fenced[actor] = thread.issued.get(actor, 0)

    def _quiet(self, pe: int, program: int, target: int | None) -> None:
        thread = self._thread(pe, program)
        for to, actor in thread.copies.items():
            if target in (None, to) or to == _GETS:
                thread.clock.learn(actor, thread.issued.get(actor, 0))

    def _arrive(self, pe: int, program: int, place: int, what: str, pes: tuple[int, ...], completes: bool) -> None:
        if completes:
            self._quiet(pe, program, None)
        thread = self._thread(pe, program)
        of_hosts = program == HOST  # of a team: one of all hosts ends the segment
        if of_hosts:  # which waits for all that its kernels started
            for ended in self._launched_before.pop(pe, []):
                for actor in ended.copies.values():
                    thread.clock.learn(actor, ended.issued.get(actor, 0))
        meeting = (pes, of_hosts, self._pe_rounds[pe, pes, of_hosts])
        self._pe_rounds[pe, pes, of_hosts] += 1
        self._rounds.setdefault(meeting, Clock.zero(len(self._actors))).join(thread.clock)
        thread.rounds[pes] = meeting[-1]
        thread.go_on()

    def _leave(self, pe: int, program: int, pes: tuple[int, ...]) -> None:
        thread = self._thread(pe, program)
        thread.clock.join(self._rounds[pes, program == HOST, thread.rounds[pes]])
        thread.waited = True

    # ---- what is wrong with two accesses

    def _report(self, space: int, conflict: Conflict, wrote: bool, clock: Clock) -> None:
        kind, notes = self._judge(space, conflict, wrote, clock)
        sides = [self._side(conflict.event, conflict.wrote), self._side(self._current, wrote)]
        where = f"both at {self._heap.name(space, conflict.begin, conflict.end)}"
        for thread in (self._by(conflict.event), self._by(self._current)):
            if thread.narrow:
                notes.append('tl.atomic_* orders programs of different PEs only with scope="sys"')
            if thread.polled and not wrote:
                notes.append("a volatile tl.load orders nothing: wait with signal_wait_until, or use tl.atomic_*")
        self._findings.add(Finding(kind, sides, [where, *dict.fromkeys(notes)]))

    def _judge(self, space: int, conflict: Conflict, wrote: bool, clock: Clock) -> tuple[str, list[str]]:
        (pe, earlier), (_, later) = self._events[conflict.event], self._events[self._current]
        same_pe = pe == self._events[self._current][0]
        if same_pe and earlier[1] == Kind.PUT and earlier[4] and not conflict.wrote:
            return "missing-quiet", ["the put may still read its source: call quiet before the source is used again"]
        if earlier[1] == Kind.GET and earlier[4] and conflict.wrote and same_pe:
            return "missing-quiet", ["the get may not have arrived: call quiet before its destination is used"]
        if earlier[1] == Kind.PUT and conflict.wrote and clock.knows(*self._issued(conflict.event)):
            if later[1] == Kind.PUT and same_pe:
                return "missing-fence", ["two puts to one PE may arrive in any order: call fence between them"]
            if same_pe and earlier[2] == later[2]:
                return "missing-quiet", ["the put may not have arrived: call quiet before its destination is used"]
            return "missing-fence" if not earlier[4] else "missing-quiet", [
                "what was waited for says that the put was started, not that it has arrived: call fence (or quiet) "
                "between the put and the signal, or use putmem_signal"
            ]
        if conflict.wrote and not wrote:
            return "early-read", [_WAIT]
        if wrote and not conflict.wrote:
            if self._read_what_came(conflict):
                return "reuse", [
                    "have the reader signal when it is done, and the writer wait for that before it writes"
                ]
            return "early-read", [_WAIT]
        return "race", [
            "two writes, and nothing says which comes first: a signal and a wait, or a barrier between them"
        ]

    def _read_what_came(self, conflict: Conflict) -> bool:
        """Whether the earlier access, a read, was right to read, for all that is known."""
        if conflict.after_write >= 0 and self._events[conflict.after_write][0] != self._events[conflict.event][0]:
            return True
        return self._had_waited.get(conflict.event, False)

    def _issued(self, event: int) -> tuple[int, int]:
        thread, number = self._issue[event]
        return thread.actor, number

    def _by(self, event: int) -> _Thread:
        pe, items = self._events[event]
        return self._threads[pe, items[2]]

    def _side(self, event: int, wrote: bool) -> Side:
        pe, (_, kind, program, place, *_) = self._events[event]
        what = self._run.places[pe][place].what
        does = f"{what} {'writes' if wrote else 'reads'}"
        if kind == Kind.PUT and not wrote:
            does = f"{what} reads its source"
        if kind == Kind.GET and wrote:
            does = f"{what} writes its destination"
        return Side.of(self._run, pe, program, place, does)


_WAIT = (
    "have the writer signal after its data (putmem_signal, or fence and signal_op) and the reader wait for that "
    "(signal_wait_until) before it reads; or put a barrier between them"
)

_HANDLERS: dict[int, Callable[..., None]] = {
    Kind.PROGRAM: Segment._program,
    Kind.END: Segment._end,
    Kind.LAUNCHED: Segment._launched,
    Kind.ACCESS: Segment._access,
    Kind.PUT: Segment._put,
    Kind.GET: Segment._get,
    Kind.RELEASE: Segment._release,
    Kind.ACQUIRE: Segment._acquire,
    Kind.FENCE: Segment._fence,
    Kind.QUIET: Segment._quiet,
    Kind.ARRIVE: Segment._arrive,
    Kind.LEAVE: Segment._leave,
}
