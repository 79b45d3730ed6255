"""The analysis on logs written by hand: what no run of one machine can be relied upon to show."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from triton_dist.check import Finding, analyse
from triton_dist.check.clocks import Clock
from triton_dist.check.log import HOST, Flag, Kind, Log, LogError, Place, Program
from triton_dist.check.shadow import PLAIN, Shadow, Who

PES = (0, 1)
RANGE = (1, np.array([0]), np.array([8]))  # the first 8 bytes of PE 1's heap

Logged = tuple[Any, ...]


def logs_of(*events: Logged) -> list[int]:
    """``(PE, kind, program, [operands], flags)`` in order; lists are lists. Place 0 is line 10 + PE."""
    fds = [os.memfd_create("log") for _ in PES]
    logs = [Log(fd) for fd in fds]
    for pe, log in enumerate(logs):
        log.place(Place("kernel.py", 10 + pe, "tl.load"))
    for number, (pe, kind, *items) in enumerate(events, 1):
        if kind == Kind.PROGRAM:
            logs[pe].program(number, Program("kernel", (0, 0, 0), 0))
            continue
        program, operands, flags = (*items, *(HOST, (), 0)[len(items) :])
        numbers = [_operand(logs[pe], operand) for operand in operands]
        logs[pe].add(number, kind, program, 0, *numbers, flags=flags, size=8)
    for log in logs:
        log.flush()
    return fds


def _operand(log: Log, operand: Any) -> int:
    if isinstance(operand, int):
        return operand
    return log.ranges(*operand) if isinstance(operand[1], np.ndarray) else log.list(operand)


def found(*events: Logged) -> list[Finding]:
    return analyse(logs_of(*events))[0]


def access(pe: int, writes: bool) -> list[Logged]:
    return [
        (pe, Kind.PROGRAM),
        (pe, Kind.ACCESS, 0, [RANGE], Flag.WRITES * writes),
        (pe, Kind.END, 0),
        (pe, Kind.LAUNCHED),
    ]


def arrive(pe: int) -> Logged:
    return pe, Kind.ARRIVE, HOST, [PES], Flag.COMPLETES


def leave(pe: int) -> Logged:
    return pe, Kind.LEAVE, HOST, [PES]


def test_a_pe_may_be_a_barrier_ahead() -> None:
    """PE 0 leaves a barrier, writes, and has come to the next one before PE 1 has left the first, and reads."""
    barrier = [arrive(0), arrive(1)]
    race = found(*barrier, leave(0), *access(0, True), arrive(0), leave(1), *access(1, False), arrive(1), leave(0))
    assert [finding.kind for finding in race] == ["early-read"]
    assert [(side.pe, side.place.line) for side in race[0].sides] == [(0, 10), (1, 11)]
    assert not found(*barrier, leave(0), *access(0, True), leave(1), *barrier, leave(1), *access(1, False))


@pytest.mark.parametrize("at", range(7))
def test_host_code_races_with_a_kernel_wherever_time_puts_it(at: int) -> None:
    """PE 1's host resets a tensor, which no schedule orders, while PE 0's program stores to it, behind one barrier."""
    kernels = [leave(0), *access(0, True), arrive(0)]
    reset = (1, Kind.ACCESS, HOST, [RANGE], Flag.WRITES)
    for joins in range(at + 1):
        order = [*kernels[:joins], leave(1), *kernels[joins:at], reset, *kernels[at:], arrive(1), leave(0), leave(1)]
        (race,) = found(arrive(0), arrive(1), *order)
        assert race.kind == "race" and {side.place.line for side in race.sides} == {10, 11}
    allowed = [leave(0), leave(1), reset, arrive(0), arrive(1), leave(1), leave(0), *access(0, True)]
    assert not found(arrive(0), arrive(1), *allowed)


def test_an_acquire_orders_only_what_was_released_before() -> None:
    word = [1, 64]

    def run(release_first: bool) -> list[Finding]:
        write = (0, Kind.ACCESS, 0, [RANGE], Flag.WRITES)
        release = (0, Kind.UPDATE, 0, [*word, 0, 1], Flag.SETS)
        return found(
            (0, Kind.PROGRAM),
            (1, Kind.PROGRAM),
            *((release, write) if release_first else (write, release)),
            (1, Kind.LOOK, 0, [word]),
            (1, Kind.ACCESS, 0, [RANGE]),
        )

    assert not run(False)
    assert [finding.kind for finding in run(True)] == ["early-read"]


@pytest.mark.parametrize("order", ["nothing", "fence", "quiet", "damaged"])
def test_what_is_sent_orders_when_it_arrives(order: str) -> None:
    """PE 0 sends an update of a word and a flag for it, and its program ends before either has arrived."""
    word, flag = [1, 0], [1, 64]
    between = {"fence": [(0, Kind.FENCE, 0, [-1])], "quiet": [(0, Kind.QUIET, 0, [-1])]}.get(order, [])
    sends = [
        (0, Kind.PROGRAM),
        (1, Kind.PROGRAM),
        (0, Kind.SENT, 0, word, Flag.ADDS | Flag.ATOMIC),
        *between,
        (0, Kind.SENT, 0, flag, Flag.SETS),
        (0, Kind.END, 0),
    ]
    first, second = 3, 4 + len(between)
    arrives = [(0, Kind.ARRIVED, 0, [number, 0, 0, 1], Flag.VALUED) for number in (first, second)]
    if order == "damaged":
        arrives = [(0, Kind.ARRIVED, 0, [1 << 40, 0, 0, 1], Flag.VALUED), *arrives[1:], *arrives[1:]]
    reads = [(1, Kind.LOOK, 0, [flag]), (1, Kind.ACCESS, 0, [RANGE])]
    kinds = [finding.kind for finding in found(*sends, *arrives, *reads)]
    assert kinds == (["missing-fence"] if order == "nothing" else []), kinds


def test_a_put_with_signal_tells_of_its_own_data_only() -> None:
    clock = Clock()
    clock.learn_one(1, 2)
    assert clock.knows(1, 2) and not clock.knows(1, 1)
    clock.learn_one(1, 1)
    assert clock.of(1) == 2 and clock.of(1000) == 0


def test_what_is_known_out_of_order_is_bounded() -> None:
    """Every second copy of many: the older ones are taken to be known, so that no alarm is false."""
    clock = Clock()
    for number in range(2, 1000, 2):
        clock.learn_one(1, number)
    assert clock.knows(1, 998) and clock.knows(1, 996) and not clock.knows(1, 997)
    assert clock.of(1) > 800 and len(clock._singles) <= 64


def test_many_events_are_known_as_each_is() -> None:
    """Of actors on several pages, some unknown, some none."""
    draw = random.Random(1)
    for _ in range(200):
        clock, most = Clock(), draw.choice([1, 40, 64, 65, 130, 300])
        for _ in range(draw.randrange(most)):
            (clock.learn if draw.random() < 0.8 else clock.learn_one)(draw.randrange(most), draw.randrange(1, 9))
        last = draw.choice([most, 2 * most])
        actors = np.array([draw.choice([-1, draw.randrange(last)]) for _ in range(draw.randrange(1, 12))], np.int32)
        numbers = np.array([draw.randrange(1, 9) for _ in actors], np.int32)
        each = zip(actors, numbers, strict=True)
        expected = [actor >= 0 and not clock.knows(actor, number) for actor, number in each]
        assert clock.unknown(actors, numbers).tolist() == expected


def test_clocks_share_what_they_know() -> None:
    one, many = Clock(), Clock()
    for actor in range(0, 10_000, 100):
        many.learn(actor, 5)
    one.join(many)
    assert all(a is b for a, b in zip(one._pages, many._pages, strict=True))
    one.learn(100, 7)
    assert many.of(100) == 5 and one.of(100) == 7 and one.of(9900) == 5
    actors = np.array([-1, 0, 100, 9900, 20_000], np.int32)
    assert one.unknown(actors, np.array([9, 5, 7, 6, 1], np.int32)).tolist() == [False, False, False, True, True]


def test_readers_of_one_place_are_all_remembered() -> None:
    """A write comes upon three reads, one of which it knows of; and only where they overlap."""
    shadow, clock = Shadow(np.array([0, 8, 16, 32])), Clock()
    for actor in (1, 2, 3):
        own = Clock()
        own.learn(actor, 1)
        assert not shadow.read(shadow.pieces(np.array([0]), np.array([16])), Who(actor, 1, actor, PLAIN), own)
    clock.learn(2, 1)
    conflicts = shadow.write(shadow.pieces(np.array([8]), np.array([32])), Who(0, 1, 4, PLAIN), clock)
    assert [(c.event, c.wrote, c.begin, c.end) for c in conflicts] == [(1, False, 8, 16), (3, False, 8, 16)]


# ---- many events


def launches(grid: int, count: int) -> Iterator[Logged]:
    """Programs of two PEs that put to each other and signal, launch after launch, with no barrier in between."""
    programs = 0
    for epoch in range(1, count + 1):
        for pe in PES:
            yield from ((pe, Kind.PROGRAM) for _ in range(grid))
        for pe in PES:
            for i in range(grid):
                target = (1 - pe, np.array([1 << 20 | i * 64]), np.array([(1 << 20 | i * 64) + 64]))
                yield pe, Kind.PUT, programs + i, [-1, target]
                signals = Flag.SETS | Flag.CARRIES | Flag.VALUED
                yield pe, Kind.UPDATE, programs + i, [1 - pe, i * 8, epoch - 1, epoch], signals
        for pe in PES:
            for i in range(grid):
                data = (pe, np.array([1 << 20 | i * 64]), np.array([(1 << 20 | i * 64) + 64]))
                yield pe, Kind.LOOK, programs + i, [[pe, i * 8]]
                yield pe, Kind.ACCESS, programs + i, [data]
                yield pe, Kind.QUIET, programs + i, [-1]
                yield pe, Kind.UPDATE, programs + i, [1 - pe, 1 << 16 | i * 8, epoch - 1, epoch], Flag.SETS
        for pe in PES:
            for i in range(grid):
                yield pe, Kind.LOOK, programs + i, [[pe, 1 << 16 | i * 8]]
                yield pe, Kind.END, programs + i
            yield pe, Kind.LAUNCHED
        programs += grid


@pytest.mark.parametrize(("grid", "count"), [(16, 16), (128, 2)])
def test_memory_is_linear_in_events(grid: int, count: int) -> None:
    import tracemalloc

    fds = logs_of(*launches(grid, count))
    analyse(fds)  # whatever is imported, or cached, is not counted
    tracemalloc.start()
    findings, events = analyse(fds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not findings and events > 4_000
    assert peak / events < 1024, f"{peak / events:.0f} bytes an event"


# ---- damaged logs


def test_a_log_is_good_up_to_its_last_whole_block() -> None:
    """The writer may have died."""
    fds = logs_of(*access(0, True), *access(1, False))
    assert [finding.kind for finding in analyse(fds)[0]] == ["early-read"]
    for fd in fds:
        os.truncate(fd, os.fstat(fd).st_size - 1)
    assert analyse(fds) == ([], 0)  # its events are its last block


def test_damaged_logs_are_refused() -> None:
    """Whatever bytes are changed, the analysis ends, with findings or with a LogError."""
    dice = random.Random(1)
    original = logs_of(*launches(2, 2), *access(0, True))
    data = [os.pread(fd, 1 << 20, 0) for fd in original]
    refused = 0
    for _ in range(400):
        fds = [os.memfd_create("log") for _ in PES]
        for fd, good in zip(fds, data, strict=True):
            bad = bytearray(good)
            for _ in range(dice.randrange(1, 4)):
                at = dice.randrange(len(bad))
                values = [struct.pack("<q", dice.choice([-1, 1 << 62, -(1 << 63), 255])), bytes([dice.randrange(256)])]
                value = dice.choice(values)
                bad[at : at + len(value)] = value
            os.write(fd, bad)
        try:
            analyse(fds)
        except LogError:
            refused += 1
        for fd in fds:
            os.close(fd)
    assert refused > 100


@pytest.mark.parametrize("data", [b"\x80\x04no log at all", struct.pack("<II", 0x7D000005, 1 << 30), b"[" * 5000])
def test_what_is_no_log_is_refused(data: bytes) -> None:
    fds = logs_of()
    os.write(fds[1], data)
    with pytest.raises(LogError, match="log of PE 1 is damaged"):
        analyse(fds)
