"""All that is looked for in a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from triton_dist.check.findings import Finding, Findings, Side
from triton_dist.check.heap import Heap, Tensor
from triton_dist.check.log import HOST, Flag, Kind, Place
from triton_dist.check.log import read as read_logs
from triton_dist.check.races import Races
from triton_dist.check.run import Event, Run, Word
from triton_dist.check.signals import OVERTAKES

__all__ = ["analyse"]

_LISTED = 8
"""How many of the programs that wait a report shows."""


def analyse(fds: Sequence[int]) -> tuple[list[Finding], int]:
    """The findings of a run whose PE i wrote its log to ``fds[i]``, and the number of analysed events.

    Raises:
        LogError: a log is damaged.
    """
    run = Run(read_logs(fds))
    analysis = _Analysis(run)
    analysis.go()
    return list(analysis.findings.found.values()), len(run)


@dataclass(frozen=True)
class _Stuck:
    """A program that waits, or host code that does."""

    pe: int
    program: int
    place: int
    text: str
    words: tuple[Word, ...]
    pes: tuple[int, ...]


@dataclass
class _Updates:
    """Updates of words, and who looked at them."""

    updates: dict[Word, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """PE, program and place of the first few."""
    sent: dict[Word, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    """PEs and numbers of those that arrived later than they were sent."""
    sites: dict[tuple[int, int], tuple[int, set[Word]]] = field(default_factory=dict)
    """By PE and place of signals: a program, and the words."""
    awaited: set[Word] = field(default_factory=set)
    read: set[tuple[int, int]] = field(default_factory=set)
    """PE and list of ranges."""

    def update(self, word: Word, event: Event, signals: bool) -> None:
        if len(self.updates[word]) < _LISTED:
            self.updates[word].append((event.pe, event.program, event.place))
        if event.kind == Kind.SENT:
            self.sent[word].add((event.pe, event.number))
        if signals:
            self.sites.setdefault((event.pe, event.place), (event.program, set()))[1].add(word)

    def was_looked_at(self, word: Word, run: Run) -> bool:
        if word in self.awaited:
            return True
        for pe, index in self.read:
            space, begins, ends = run.ranges(pe, index)
            if space == word[0] and bool(((begins < word[1] + 8) & (ends > word[1])).any()):
                return True
        return False


class _Analysis:
    def __init__(self, run: Run) -> None:
        self.findings = Findings()
        self._run = run
        self._heap = Heap()
        self._races = Races(run, self._heap, self.findings)
        self._signals = _Updates()
        self._stuck: list[_Stuck] = []
        self._failed = False
        self._uncompiled: list[Finding] = []
        self._dropped: dict[int, set[int]] = defaultdict(set)
        """By offset: the PEs that have dropped the tensor there."""

    def go(self) -> None:
        barriers = [0] * self._run.n_pes
        for index, event in self._run:
            if event.program == HOST and event.kind in (Kind.ARRIVE, Kind.LEAVE) and self._is_of_all(event):
                if event.kind == Kind.LEAVE:
                    barriers[event.pe] += 1
                    if barriers[event.pe] == max(barriers) and barriers.count(barriers[event.pe]) == 1:
                        self._races.forget()  # the first to leave it
                continue
            self._note(event)
            self._races.handle(index, event)
        self._races.end()
        self._deadlocks()
        if not self.findings.found and not self._failed:  # an error leaves waits undone
            self._unawaited_signals()
            self._leaks()
        for finding in self._uncompiled:
            self.findings.add(finding)

    def _is_of_all(self, event: Event) -> bool:
        return len(self._run.pes(event.pe, event.a)) == self._run.n_pes

    # ---- one event

    def _note(self, e: Event) -> None:
        run = self._run
        if e.kind == Kind.ALLOCATE and e.pe == 0:
            self._heap.allocate(Tensor(e.a, e.b, run.text(e.pe, e.c), run.place(e.pe, e.place)))
        elif e.kind == Kind.FREE and e.pe == 0:
            self._heap.free(e.a, run.place(e.pe, e.place))
        elif e.kind == Kind.STUCK:
            words = run.words(e.pe, e.b) if e.b >= 0 else ()
            pes = run.pes(e.pe, e.c) if e.c >= 0 else ()
            self._stuck.append(_Stuck(e.pe, e.program, e.place, run.text(e.pe, e.a), tuple(words), pes))
        elif e.kind == Kind.OUTSIDE:
            self._outside(e)
        elif e.kind == Kind.OVERLAP:
            self._overlap(e)
        elif e.kind == Kind.DROPPED:
            self._dropped[e.a].add(e.pe)
        elif e.kind == Kind.FAILED:
            self._failed = True
        elif e.kind == Kind.UNCOMPILED:
            kernel, target, why = (run.text(e.pe, text) for text in (e.a, e.b, e.c))
            side = Side(e.pe, f"kernel {kernel}", run.place(e.pe, e.place), f"does not compile for {target}")
            self._uncompiled.append(Finding("compile", [side], why.splitlines()))
        elif e.kind in (Kind.UPDATE, Kind.SENT):
            self._signals.update((e.a, e.b), e, "signal" in run.place(e.pe, e.place).what)
        elif e.kind == Kind.RELEASE:
            for word in run.words(e.pe, e.a):
                self._signals.update(word, e, False)
        elif e.kind in (Kind.ACQUIRE, Kind.LOOK):
            self._signals.awaited.update(run.words(e.pe, e.a))
        elif e.kind == Kind.GET or (e.kind == Kind.ACCESS and not e.flags & Flag.WRITES):
            self._signals.read.add((e.pe, e.a))

    # ---- memory that is not there

    def _outside(self, e: Event) -> None:
        space, begin, end = e.a, e.b, e.c
        what = self._run.place(e.pe, e.place).what
        sides = [Side.of(self._run, e.pe, e.program, e.place, f"{what} touches {end - begin} bytes")]
        freed = self._heap.freed_at(begin, end)
        if freed is not None:
            old, place = freed
            sides += [Side(0, "host", old.place, f"allocated them ({old.text})"), Side(0, "host", place, "freed them")]
            where = f"bytes {begin - old.offset} to {end - old.offset} of what was that tensor, on PE {space}"
            self.findings.add(Finding("use-after-free", sides, [where, "the access was not made"]))
            return
        tensor = self._heap.before(begin)
        if tensor is None:
            where = f"offset {begin} of PE {space}'s heap, before the first tensor"
        else:
            sides.append(Side(0, "host", tensor.place, f"allocates the tensor before them ({tensor.text})"))
            past = end - tensor.offset - tensor.nbytes
            where = f"they end {past} bytes past the end of that tensor, which has {tensor.nbytes}, on PE {space}"
        self.findings.add(Finding("outside", sides, [where, "the access was not made"]))

    def _overlap(self, e: Event) -> None:
        what = self._run.place(e.pe, e.place).what
        side = Side.of(self._run, e.pe, e.program, e.place, f"{what} copies within memory that overlaps")
        where = f"what it reads and what it writes share {self._heap.name(e.a, e.b, e.c)}"
        note = "which bytes are read before they are written is not said: use a buffer of its own for one of them"
        self.findings.add(Finding("overlap", [side], [where, note]))

    # ---- waits

    def _deadlocks(self) -> None:
        if not self._stuck:
            return
        waits = [stuck for stuck in self._stuck if not stuck.pes]
        barriers = [stuck for stuck in self._stuck if stuck.pes]
        listed = (waits or barriers)[:_LISTED] + ([] if not waits else barriers[:_LISTED])
        sides = [self._waiting(stuck) for stuck in listed]
        notes = [note for stuck in listed for note in self._who_could(stuck)]
        if waits:
            notes.append(f"nobody is left who could: {'; '.join(map(self._where, range(self._run.n_pes)))}")
        if len(self._stuck) > len(listed):
            notes.append(f"and {len(self._stuck) - len(listed)} programs more wait")
        self.findings.add(Finding("deadlock" if waits else "barrier", sides, list(dict.fromkeys(notes))))

    def _waiting(self, stuck: _Stuck) -> Side:
        return Side.of(self._run, stuck.pe, stuck.program, stuck.place, f"waits in {stuck.text}")

    def _place(self, stuck: _Stuck) -> Place:
        return self._run.place(stuck.pe, stuck.place)

    def _who_could(self, stuck: _Stuck) -> list[str]:
        me = f"PE {stuck.pe}, {self._waiting(stuck).who}"
        if stuck.pes:
            return [f"{me}, waits for {', '.join(self._instead(stuck))}"]
        notes = []
        for word in stuck.words[:_LISTED]:
            updates = self._signals.updates.get(word, [])
            tensor = self._heap.at(word[1])
            which = f"word at byte {word[1] - tensor.offset} of ({tensor.text})" if tensor else f"offset {word[1]}"
            if updates:
                shown = "; ".join(self._updater(*update) for update in dict.fromkeys(updates))
                notes.append(f"{me}, waits for more than came: its {which} was updated by {shown}")
                if len(self._signals.sent[word]) > 1:
                    notes.append(OVERTAKES)
                continue
            others = self._updaters_of(tensor)
            if others:
                notes.append(f"{me}, waits for what never came: nobody updated its {which}; others were, by {others}")
            else:
                notes.append(f"{me}, waits for what never came: nobody updated its {which}, nor any of that tensor")
        return notes

    def _where(self, pe: int) -> str:
        """What has become of a PE when nobody can go on."""
        places = [self._place(stuck) for stuck in self._stuck if stuck.pe == pe]
        if not places:
            return f"PE {pe} has left the world"
        return f"PE {pe} waits in " + " and ".join(dict.fromkeys(f"{place.what} at {place}" for place in places))

    def _updater(self, pe: int, program: int, place: int) -> str:
        side = Side.of(self._run, pe, program, place, "")
        return f"PE {pe}, {side.who}, {side.place.what} at {side.place}"

    def _updaters_of(self, tensor: Tensor | None) -> str:
        if tensor is None:
            return ""
        found = [
            f"{self._updater(*updates[0])} (byte {offset - tensor.offset} on PE {pe})"
            for (pe, offset), updates in self._signals.updates.items()
            if tensor.offset <= offset < tensor.offset + tensor.nbytes
        ]
        return "; ".join(dict.fromkeys(found[:_LISTED]))

    def _instead(self, stuck: _Stuck) -> list[str]:
        """The PEs that have not come to a barrier, and where they are."""
        texts = []
        for pe in stuck.pes:
            theirs = [other for other in self._stuck if other.pe == pe]
            if any(other.text == stuck.text for other in theirs):  # the op, and its team
                continue
            if theirs:
                place, what = self._place(theirs[0]), self._place(stuck).what
                waits = theirs[0].text if place.what == what else place.what  # of another team, which the text names
                texts.append(f"PE {pe}, which waits in {waits} at {place}")
            else:
                texts.append(f"PE {pe}, which has left the world")
        return texts

    # ---- signals

    def _unawaited_signals(self) -> None:
        for (pe, place), (program, words) in self._signals.sites.items():
            if not any(self._signals.was_looked_at(word, self._run) for word in words):
                word = min(words)
                side = Side.of(self._run, pe, program, place, f"{self._run.place(pe, place).what} updates a signal")
                name = self._heap.name(word[0], word[1], word[1] + 8)
                note = "no kernel waits for it, tests it or reads it: a wait is missing, or the signal goes elsewhere"
                self.findings.add(Finding("unawaited-signal", [side], [f"at {name}", note]))

    # ---- allocations

    def _leaks(self) -> None:
        for offset, pes in self._dropped.items():
            tensor = self._heap.at(offset)
            holding = [pe for pe in range(self._run.n_pes) if pe not in pes]
            if tensor is None or not holding:  # all have dropped it: given back at the next collective call
                continue
            side = Side(min(pes), "host", tensor.place, f"allocates ({tensor.text})")
            notes = [
                f"dropped by PE {', '.join(map(str, sorted(pes)))} and still held by PE {', '.join(map(str, holding))} "
                "at the end: its memory could not be used again",
                "drop it on all PEs, or free() it together",
            ]
            self.findings.add(Finding("leak", [side], notes))
