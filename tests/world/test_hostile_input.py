"""Everything that reads bytes of other processes, fed with nonsense: an error of its own kind, and nothing worse.

The seed is fixed, so that a failure can be looked at. Half of the inputs are sound ones that were changed a little,
since pure noise does not get past the first byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from triton_dist.bootstrap import failure_detector as detector
from triton_dist.bootstrap import framing as wire
from triton_dist.bootstrap import launchers
from triton_dist.bootstrap.authentication import Key
from triton_dist.bootstrap.rendezvous import Member
from triton_dist.check.log import HOST, NONE, Flag, Kind, Log, LogError, PELog, Place, Program
from triton_dist.cpu import bootstrap
from triton_dist.decoding import DecodingError, boolean, decode, integer, optional, record, sequence, text
from triton_dist.world import allocations as registry

SEED = 20240611
KEY = Key(b"k" * 32)
SCRAPS = [
    b"[",
    b"]",
    b'"',
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"NaN",
    b"9" * 400,
    b"\\ud800",
    b"\0",
    b"\xff",
    b"{}",
    b",",
]


def changed(draw: random.Random, sound: bytes) -> bytes:
    """A few bytes changed, left out, doubled or put in."""
    data = bytearray(sound)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(5):
            case 0:
                data[at : at + 1] = draw.randbytes(1)
            case 1:
                del data[at : at + draw.randrange(1, 9)]
            case 2:
                data[at:at] = data[at : at + draw.randrange(1, 33)]
            case 3:
                data[at:at] = draw.choice(SCRAPS)
            case 4:
                del data[at:]
    return bytes(data)


def nonsense(sound: list[bytes], count: int) -> Iterator[bytes]:
    draw = random.Random(SEED)
    for _ in range(count):
        yield changed(draw, draw.choice(sound)) if draw.random() < 0.7 else draw.randbytes(draw.randrange(64))


def feed(parse: Callable[[bytes], object], sound: list[bytes], count: int, allowed: type[Exception]) -> int:
    """How many of the inputs were taken for sound; what was not ended with an error of the ``allowed`` type."""
    for data in sound:
        parse(data)
    taken = 0
    tracemalloc.start()
    for data in nonsense(sound, count):
        try:
            parse(data)
            taken += 1
        except allowed:
            pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20, f"{peak} bytes for inputs of a few hundred"
    return taken


@pytest.fixture(params=[1, pytest.param(5, marks=pytest.mark.slow)], ids="{}times".format)
def times(request: pytest.FixtureRequest) -> int:
    """How many times as many inputs as are quick."""
    return int(request.param)


def test_frames(times: int) -> None:
    """Also as they come: in pieces of any size."""
    draw = random.Random(SEED)

    def parse(data: bytes) -> None:
        frames = wire.Frames()
        while data:
            size = draw.randrange(1, 99)
            list(frames.feed(data[:size]))
            data = data[size:]

    feed(parse, [wire.frame(b"x" * size) * 3 for size in (1, 7, 300)], 4_000 * times, wire.ProtocolError)


def test_greetings(times: int) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ours.setblocking(False)

    def parse(data: bytes) -> None:
        assert wire.Greeting(ours, KEY).receive(data) is None, "a random input has no valid code"
        with contextlib.suppress(BlockingIOError):
            theirs.recv(1 << 16)

    hello = wire.frame(json.dumps([1, "00" * 32]).encode())
    with ours, theirs:
        feed(parse, [hello], 4_000 * times, wire.ProtocolError)
        proofs = [hello + wire.frame(json.dumps(["00" * 32]).encode())]
        for data in nonsense(proofs, 1_000 * times):
            with contextlib.suppress(wire.ProtocolError):
                parse(data)


def test_messages_of_a_peer_that_has_gone_mad(times: int) -> None:
    """It has the key, so its codes are right."""
    ours, theirs = socket.socketpair()

    def parse(data: bytes) -> None:
        code = KEY.code((1).to_bytes(8, "big"), data)
        try:
            for words in wire.Channel(ours, KEY, KEY).receive(wire.frame(code + data)):
                detector._checked(words)
        except DecodingError as error:
            raise wire.ProtocolError(str(error)) from None

    sound = [b'["bye"]', b'["welcome"]', json.dumps(["broken", 2, "is lost: …\n"]).encode()]
    with ours, theirs:
        feed(parse, sound, 4_000 * times, wire.ProtocolError)


def test_members() -> None:
    taken = feed(Member.of, [Member.self(0, 4, detector="name", key=3).text().encode()], 15_000, DecodingError)
    assert taken < 15_000


def test_cards_of_heaps() -> None:
    feed(lambda data: decode(data, bootstrap._CARD), [b"[1048576, 3, -1]", b"[1, 0, 5]"], 10_000, DecodingError)


def test_logs(times: int) -> None:
    """Of two PEs, with every kind of table; what a damaged log still holds can be looked at."""
    fd = os.memfd_create("log")
    log = Log(fd)
    place = log.place(Place("kernel.py", 3, "tl.load"))
    ranges = log.ranges(1, np.array([0, 64]), np.array([8, 72]))
    program = log.program(1, Program("kernel", (0, 1, 2), 0))
    log.add(2, Kind.ACCESS, program, place, ranges, flags=Flag.WRITES)
    log.add(3, Kind.PUT, program, place, NONE, ranges)
    log.add(4, Kind.RELEASE, program, place, log.list([1, 64]), flags=Flag.SETS)
    log.add(5, Kind.ARRIVE, HOST, place, log.list([0, 1]), flags=Flag.COMPLETES)
    log.add(6, Kind.SENT, program, place, 1, 64, flags=Flag.ADDS, size=8)
    log.add(7, Kind.ARRIVED, program, NONE, 6, 0, 1, 2, flags=Flag.VALUED)
    log.add(8, Kind.FAILED, HOST, NONE, log.text("no good"))
    log.flush()
    sound = os.pread(fd, 1 << 16, 0)
    os.close(fd)

    def parse(data: bytes) -> None:
        theirs = PELog(0, data, 2)
        for event in theirs.events:
            if event["kind"] == Kind.ACCESS:
                theirs.ranges(event["a"])
            elif event["kind"] == Kind.RELEASE:
                theirs.words(event["a"])
            elif event["kind"] == Kind.ARRIVE:
                theirs.pes(event["a"])

    feed(parse, [sound], 1_000 * times, LogError)
    assert PELog(0, sound, 2).ranges(ranges)[1].tolist() == [0, 64]


def test_notes_of_what_was_dropped() -> None:
    allocations = registry.AllocationRegistry()
    held = [allocations.enter(64 * number, 64, (16,), torch.float32) for number in range(10)]
    sound = [b"", b"2-5,7", b"0", b"1,3,5-9"]

    def parse(data: bytes) -> None:
        allocations.unused([data.decode(errors="replace")] * 2)

    feed(parse, sound, 10_000, ValueError)
    feed(parse, [b"0-9"], 5_000, ValueError)
    for wrong in ("0-999999999999999999", "3-1", "11", "1,,2", "1-2-3", "²"):
        with pytest.raises(ValueError, match=r"dropped allocations|that there are not"):
            allocations.unused([wrong])
    assert len(held) == 10


VARIABLES = {
    "RANK": ["0", "1"],
    "WORLD_SIZE": ["2"],
    "MASTER_ADDR": ["127.0.0.1", "host-1.example", "::1"],
    "MASTER_PORT": ["29500"],
    "LOCAL_RANK": ["0"],
    "LOCAL_WORLD_SIZE": ["2"],
    "TORCHELASTIC_USE_AGENT_STORE": ["True"],
    "TORCHELASTIC_RESTART_COUNT": ["0"],
    "OMPI_COMM_WORLD_RANK": ["1"],
    "OMPI_COMM_WORLD_SIZE": ["2"],
    "OMPI_COMM_WORLD_LOCAL_RANK": ["1"],
    "OMPI_COMM_WORLD_LOCAL_SIZE": ["2"],
    "PMI_RANK": ["1"],
    "PMI_SIZE": ["2"],
    "MPI_LOCALRANKID": ["1"],
    "MPI_LOCALNRANKS": ["2"],
    "SLURM_JOB_ID": ["77"],
    "SLURM_STEP_ID": ["0"],
    "SLURM_PROCID": ["1"],
    "SLURM_STEP_NUM_TASKS": ["2"],
    "SLURM_STEP_NUM_NODES": ["1"],
    "SLURM_STEP_NODELIST": ["node[07-09]"],
}
ODD = [
    "",
    " ",
    "-1",
    "1.5",
    "0x1",
    "1e3",
    "nan",
    "inf",
    "9" * 5000,
    "²",
    "٣",
    "1_0",
    " 1",
    "1\n",
    "host:1",
    "a b",
    "\x1b[2J",
]


def test_variables_of_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in VARIABLES:
            monkeypatch.delenv(name)
    draw = random.Random(SEED)
    environment = dict(os.environ)
    refused = 0
    for _ in range(10_000):
        values = {
            name: draw.choice(ODD) if draw.random() < 0.15 else draw.choice(sound)
            for name, sound in VARIABLES.items()
            if draw.random() < 0.8
        }
        monkeypatch.setattr(os, "environ", environment | values)
        try:
            start = launchers.find()
        except RuntimeError as error:
            told = str(error)
            refused += 1
        else:
            assert 0 <= start.pe < start.n_pes <= 2 and (start.local is None or start.local[0] < start.local[1])
            continue
        assert any(name in told for name in values) and len(told) < 600
    assert 1_000 < refused < 10_000


def test_shapes() -> None:
    """What the decoder takes and what not, by example."""
    schema = record(integer(0, 9), text(3), boolean, optional(integer(0, 1)), sequence(integer(0, 9), 2))
    assert decode('[1, "abc", true, null, [1, 2]]', schema) == (1, "abc", True, None, (1, 2))
    assert decode('[1, "\\u001b[", true, 1, []]', schema)[1] == "\N{REPLACEMENT CHARACTER}["
    for wrong in (
        '[true, "a", true, null, []]',
        '[1.0, "a", true, null, []]',
        '[10, "a", true, null, []]',
        '[1, "abcd", true, null, []]',
        '[1, "a", 1, null, []]',
        '[1, "a", true, 2, []]',
        '[1, "a", true, null, [1, 2, 3]]',
        '[1, "a", true, null, {}]',
        '[1, "a", true, null]',
        '{"a": 1}',
        "NaN",
        "[" * 100_000,
        "9" * 10_000,
        "",
    ):
        with pytest.raises(DecodingError):
            decode(wrong, schema, limit=1 << 20)
    with pytest.raises(DecodingError, match="11 bytes where up to 10"):
        decode(b"[" + b" " * 10, schema, limit=10)
