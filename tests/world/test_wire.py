"""Messages between PEs: a process without the key is refused, and cannot block a PE."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from limits import HANG_SECONDS

from triton_dist.bootstrap import framing as wire
from triton_dist.bootstrap.authentication import Key

KEY = Key(b"k" * 32)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def served(connection: socket.socket, greeting: wire.Greeting) -> wire.Channel:
    while (channel := greeting.receive(connection.recv(1 << 16))) is None:
        pass
    return channel


def connected(ends: tuple[socket.socket, socket.socket]) -> tuple[wire.Channel, wire.Channel]:
    """PE 0's channel and PE 3's."""
    found: list[wire.Channel] = []
    thread = threading.Thread(target=lambda: found.append(wire.greet(ends[1], KEY, 3, HANG_SECONDS)))
    thread.start()
    greeting = wire.Greeting(ends[0], KEY)
    channel = served(ends[0], greeting)
    thread.join()
    assert greeting.pe == 3
    return channel, found[0]


def heard(channel: wire.Channel) -> list[object]:
    return next(filter(None, wire.lines(channel)))


def test_messages_both_ways(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = connected(ends)
    for number in range(3):
        wire.say(ours, "broken", number, "ünïcode\n")
        wire.say(theirs, "bye")
        assert heard(theirs) == ["broken", number, "ünïcode\n"] and heard(ours) == ["bye"]
    wire.say(ours, "first")
    wire.say(ours, "second")
    received = wire.lines(theirs)
    assert [next(received), next(received)] == [["first"], ["second"]]
    ours.connection.close()
    assert [words for words in received if words] == []


def test_a_message_that_is_changed_replayed_or_left_out(ends: tuple[socket.socket, socket.socket]) -> None:
    for change in ("change", "replay", "omit", "reflect"):
        one, other = socket.socketpair()
        with one, other:
            ours, theirs = connected((one, other))
            wire.say(ours, "broken", 1, "a")
            first = other.recv(1 << 16)
            wire.say(ours, "broken", 2, "b")
            second = other.recv(1 << 16)
            data = {
                "change": first.replace(b'"a"', b'"c"'),
                "replay": first + first,
                "omit": second,
                "reflect": first,
            }[change]
            with pytest.raises(wire.ProtocolError, match="code is wrong"):
                list((ours if change == "reflect" else theirs).receive(data))


def test_who_does_not_have_the_key(ends: tuple[socket.socket, socket.socket]) -> None:
    errors: list[BaseException] = []

    def stranger() -> None:
        try:
            wire.greet(ends[1], Key(b"x" * 32), 1, HANG_SECONDS)
        except wire.ProtocolError as error:
            errors.append(error)

    thread = threading.Thread(target=stranger)
    thread.start()
    greeting = wire.Greeting(ends[0], KEY)
    assert greeting.receive(ends[0].recv(1 << 16)) is None
    thread.join()
    assert str(errors[0]) == "a wrong answer"
    with pytest.raises(wire.ProtocolError, match="a wrong proof"):
        greeting.receive(wire.frame(b'["' + b"00" * 32 + b'"]'))


def test_who_says_nothing_or_drips(ends: tuple[socket.socket, socket.socket]) -> None:
    """A frame that comes byte by byte keeps it no longer than nothing at all. Without a limit it would see the end."""
    with pytest.raises(TimeoutError):
        wire.greet(ends[1], KEY, 1, 0.3)
    stop = threading.Event()

    def drip() -> None:
        ends[0].send(wire.MAX_FRAME.to_bytes(4, "big"))
        for _ in range(1000):
            ends[0].send(b"[")
            if stop.wait(0.02):
                return
        ends[0].shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(TimeoutError):
        wire.greet(ends[1], KEY, 1, 0.3)
    stop.set()
    thread.join()


@pytest.mark.parametrize("size", [0, wire.MAX_FRAME + 1, 0xFFFFFFFF])
def test_frames_of_no_sensible_size(size: int) -> None:
    with pytest.raises(wire.ProtocolError, match=f"a frame of {size} bytes"):
        list(wire.Frames().feed(size.to_bytes(4, "big")))


def test_a_peer_that_takes_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    """It gets no half of a message with another one behind it."""
    ours, theirs = connected(ends)
    ours.connection.setblocking(False)
    for _ in range(1000):
        wire.say(ours, "broken", 1, "x" * 8000)
    ours.connection.close()
    assert all(words == ["broken", 1, "x" * 8000] for words in wire.lines(theirs) if words)
