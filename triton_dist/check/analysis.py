"""All that is looked for in a run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from triton_dist.check.findings import Finding, Findings, Side
from triton_dist.check.heap import Heap, Tensor
from triton_dist.check.log import HOST, Kind, PlainRanges, Run
from triton_dist.check.log import read as read_logs
from triton_dist.check.races import Event, Segment, Word

__all__ = ["analyse"]

_LISTED = 8
"""How many of the programs that wait a report shows."""


def analyse(fds: list[int]) -> tuple[list[Finding], int]:
    """What is wrong in a run whose PE i wrote its log to ``fds[i]``, and how many events were looked at."""
    run = read_logs(fds)
    analysis = _Analysis(run)
    analysis.go()
    return list(analysis.findings.found.values()), len(run.events)


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
class _Signals:
    """Updates of words, and who looked at them."""

    updates: dict[Word, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """PE, program and place of each, the last ones only."""
    sites: dict[tuple[int, int], tuple[int, set[Word]]] = field(default_factory=dict)
    """By PE and place of signals: a program, and the words."""
    awaited: set[Word] = field(default_factory=set)
    read: dict[tuple[int, int, int, int], PlainRanges] = field(default_factory=dict)

    def update(self, word: Word, pe: int, program: int, place: int, signals: bool) -> None:
        if len(self.updates[word]) < _LISTED:
            self.updates[word].append((pe, program, place))
        if signals:
            self.sites.setdefault((pe, place), (program, set()))[1].add(word)

    def looks(self, ranges: PlainRanges) -> None:
        space, begins, ends = ranges
        self.read[space, int(begins[0]), int(ends[-1]), len(begins)] = ranges

    def was_looked_at(self, word: Word) -> bool:
        if word in self.awaited:
            return True
        return any(
            space == word[0] and bool(np.any((begins < word[1] + 8) & (ends > word[1])))
            for space, begins, ends in self.read.values()
        )


class _Analysis:
    def __init__(self, run: Run) -> None:
        self.findings = Findings()
        self._run = run
        self._heap = Heap()
        self._signals = _Signals()
        self._stuck: list[_Stuck] = []
        self._failed = False
        self._dropped: dict[int, set[int]] = defaultdict(set)
        """By offset: the PEs that have dropped the tensor there."""

    def go(self) -> None:
        segment: list[Event] = []
        barriers = [0] * self._run.n_pes
        for pe, event in self._run.events:
            if event[1] == Kind.LEAVE and event[2] == HOST and len(event[3]) == self._run.n_pes:
                barriers[pe] += 1
                if barriers[pe] == max(barriers) and barriers.count(barriers[pe]) == 1:  # the first to leave it
                    self._analyse(segment)
                    segment = []
                continue
            if event[1] == Kind.ARRIVE and event[2] == HOST and len(event[5]) == self._run.n_pes:
                continue
            self._note(pe, event)
            segment.append((pe, event))
        self._analyse(segment)
        self._deadlocks()
        if not self.findings.found and not self._failed:  # an error leaves waits undone
            self._unawaited_signals()
            self._leaks()

    def _analyse(self, events: list[Event]) -> None:
        if events:
            Segment(self._run, self._heap, self.findings, events).analyse()

    # ---- one event

    def _note(self, pe: int, event: tuple[Any, ...]) -> None:
        kind, items = event[1], event[2:]
        if kind == Kind.ALLOCATE and pe == 0:
            place, offset, nbytes, text = items
            self._heap.tensors[offset] = Tensor(offset, nbytes, text, self._run.places[pe][place])
        elif kind == Kind.FREE and pe == 0:
            self._heap.tensors.pop(items[1], None)
        elif kind == Kind.STUCK:
            program, place, text, words, pes = items
            self._stuck.append(_Stuck(pe, program, place, text, tuple(words or ()), tuple(pes or ())))
        elif kind == Kind.OUTSIDE:
            self._outside(pe, *items)
        elif kind == Kind.DROPPED:
            self._dropped[items[1]].add(pe)
        elif kind == Kind.FAILED:
            self._failed = True
        elif kind == Kind.RELEASE:
            program, place, words = items[:3]
            is_signal = "signal" in self._run.places[pe][place].what
            for word in words:
                self._signals.update(tuple(word), pe, program, place, is_signal)
        elif kind == Kind.PUT and items[5] is not None:
            self._signals.update(tuple(items[5]), pe, items[0], items[1], True)
        elif kind == Kind.ACQUIRE:
            self._signals.awaited.update(map(tuple, items[2]))
        elif kind == Kind.ACCESS and not items[2]:
            self._signals.looks(items[4])
        elif kind == Kind.GET:
            self._signals.looks(items[3])

    # ---- memory that is not there

    def _outside(self, pe: int, program: int, place: int, what: str, space: int, begin: int, end: int) -> None:
        tensor = self._heap.before(begin)
        sides = [Side.of(self._run, pe, program, place, f"{what} touches {end - begin} bytes")]
        if tensor is None:
            where = f"offset {begin} of PE {space}'s heap, before the first tensor"
        else:
            sides.append(Side(0, "host", tensor.place, f"allocates the tensor before them ({tensor.text})"))
            past = end - tensor.offset - tensor.nbytes
            where = f"they end {past} bytes past the end of that tensor, which has {tensor.nbytes}, on PE {space}"
        self.findings.add(Finding("outside", sides, [where, "the access was not made"]))

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
                continue
            others = self._updaters_of(tensor)
            if others:
                notes.append(f"{me}, waits for what never came: nobody updated its {which}; others were, by {others}")
            else:
                notes.append(f"{me}, waits for what never came: nobody updated its {which}, nor any of that tensor")
        return notes

    def _where(self, pe: int) -> str:
        """What has become of a PE when nobody can go on."""
        places = [self._run.places[pe][stuck.place] for stuck in self._stuck if stuck.pe == pe]
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
        what = self._run.places[stuck.pe][stuck.place].what
        texts = []
        for pe in stuck.pes:
            theirs = [other for other in self._stuck if other.pe == pe]
            if any(self._run.places[pe][other.place].what == what for other in theirs):
                continue
            if theirs:
                side = self._waiting(theirs[0])
                texts.append(f"PE {pe}, which waits in {side.place.what} at {side.place}")
            else:
                texts.append(f"PE {pe}, which has left the world")
        return texts

    # ---- signals

    def _unawaited_signals(self) -> None:
        for (pe, place), (program, words) in self._signals.sites.items():
            if not any(self._signals.was_looked_at(word) for word in words):
                word = min(words)
                side = Side.of(self._run, pe, program, place, f"{self._run.places[pe][place].what} updates a signal")
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
