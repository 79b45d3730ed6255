"""The analysis on logs written by hand: what no run of one machine can be relied upon to show."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from triton_dist.check import Finding, analyse
from triton_dist.check.clocks import Clock
from triton_dist.check.log import HOST, Kind, Log, Place, Program
from triton_dist.check.shadow import Shadow, Who

PES = (0, 1)
RANGE = (1, np.array([0]), np.array([8]))  # the first 8 bytes of PE 1's heap


def found(*events: tuple[int, Any]) -> list[Finding]:
    """``(PE, kind, items...)`` in order. Program 0 of each PE is the only one; place 0 is line 10 + PE."""
    fds = [os.memfd_create("log") for _ in PES]
    logs = [Log(fd) for fd in fds]
    for pe, log in enumerate(logs):
        log.place(Place("kernel.py", 10 + pe, "tl.load"))
    for number, (pe, kind, *items) in enumerate(events, 1):
        if kind == Kind.PROGRAM:
            logs[pe].program(number, Program("kernel", (0, 0, 0), 0))
        else:
            logs[pe].add(number, kind, *items)
    for log in logs:
        log.flush()
    return analyse(fds)[0]


def access(pe: int, writes: bool) -> list[tuple[int, Any]]:
    return [
        (pe, Kind.PROGRAM),
        (pe, Kind.ACCESS, 0, 0, writes, "plain", RANGE),
        (pe, Kind.END, 0),
        (pe, Kind.LAUNCHED),
    ]


def arrive(pe: int) -> tuple[int, Any]:
    return pe, Kind.ARRIVE, HOST, 0, "barrier_all()", PES, True


def leave(pe: int) -> tuple[int, Any]:
    return pe, Kind.LEAVE, HOST, PES


def test_a_pe_may_be_a_barrier_ahead() -> None:
    """PE 0 leaves a barrier, writes, and has come to the next one before PE 1 has left the first, and reads."""
    meeting = [arrive(0), arrive(1)]
    race = found(*meeting, leave(0), *access(0, True), arrive(0), leave(1), *access(1, False), arrive(1), leave(0))
    assert [finding.kind for finding in race] == ["early-read"]
    assert [(side.pe, side.place.line) for side in race[0].sides] == [(0, 10), (1, 11)]
    assert not found(*meeting, leave(0), *access(0, True), leave(1), *meeting, leave(1), *access(1, False))


def test_an_acquire_orders_only_what_was_released_before() -> None:
    word = [(1, 64)]

    def run(release_first: bool) -> list[Finding]:
        write = (0, Kind.ACCESS, 0, 0, True, "plain", RANGE)
        release = (0, Kind.RELEASE, 0, 0, word, True, "sys")
        return found(
            (0, Kind.PROGRAM),
            (1, Kind.PROGRAM),
            *((release, write) if release_first else (write, release)),
            (1, Kind.ACQUIRE, 0, 0, word, "sys"),
            (1, Kind.ACCESS, 0, 0, False, "plain", RANGE),
        )

    assert not run(False)
    assert [finding.kind for finding in run(True)] == ["early-read"]


def test_a_put_with_signal_tells_of_its_own_data_only() -> None:
    clock = Clock.zero(2)
    clock.learn_one(1, 2)
    assert clock.knows(1, 2) and not clock.knows(1, 1)
    clock.learn_one(1, 1)
    assert clock.upto.tolist() == [0, 2] and not clock.also


def test_readers_of_one_place_are_all_remembered() -> None:
    """A write comes upon three reads, one of which it knows of; and only where they overlap."""
    ranges = [(np.array([0]), np.array([16])), (np.array([8]), np.array([32]))]
    shadow, clock = Shadow.of(ranges), Clock.zero(4)
    for actor in (1, 2, 3):
        own = Clock.zero(4)
        own.learn(actor, 1)
        assert not shadow.read(*ranges[0], Who(actor, 1, actor, 0), own)
    clock.learn(2, 1)
    conflicts = shadow.write(*ranges[1], Who(0, 1, 4, 0), clock)
    assert [(c.event, c.wrote, c.begin, c.end) for c in conflicts] == [(1, False, 8, 16), (3, False, 8, 16)]
