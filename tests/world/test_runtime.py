"""The C++ layer alone: words, barriers, and what is told between processes."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from limits import HANG_SECONDS
from numpy.typing import NDArray

import triton_dist  # noqa: F401 (checks the build first)
from triton_dist.cpu.runtime.atomics import WORDS, Order
from triton_dist.cpu.runtime.backoff import Backoff
from triton_dist.cpu.runtime.control import Caller, ControlBlock, State
from triton_dist.cpu.runtime.heap import SymmetricHeap

SEQ = Order.SEQUENTIALLY_CONSISTENT


def in_child(function: Callable[[], object]) -> int:
    """Start a process that calls the function; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return pid


def memory(heap: SymmetricHeap, pe: int) -> NDArray[np.uint8]:
    """The heap of a PE, valid as long as ``heap`` is."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * heap.size).from_address(heap.base(pe)))


def succeeded(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_words(bits: int) -> None:
    word = WORDS[bits // 8]
    words = np.zeros(3, dtype=f"uint{bits}")
    at = words.ctypes.data + bits // 8
    word.store(at, 5, Order.RELEASE)
    assert word.load(at, Order.ACQUIRE) == 5
    assert word.fetch_add(at, (1 << bits) - 2, Order.ACQUIRE_RELEASE) == 5  # modulo the word
    assert word.exchange(at, 9, SEQ) == 3
    assert word.compare_swap(at, 8, 1, Order.RELEASE) == 9
    assert word.compare_swap(at, 9, 1, Order.ACQUIRE_RELEASE) == 9
    assert words.tolist() == [0, 1, 0]
    assert word.fetch_or(at, 0b1100, Order.RELAXED) == 1
    assert word.fetch_and(at, 0b0111, Order.ACQUIRE) == 0b1101
    assert word.fetch_xor(at, (1 << bits) - 1, Order.RELEASE) == 0b0101
    assert words.tolist() == [0, (1 << bits) - 6, 0]


def test_adds_of_processes() -> None:
    heap = SymmetricHeap(0, 1, 4096)
    at, times = heap.base(0), 10_000
    children = [in_child(lambda: [WORDS[8].fetch_add(at, 1, Order.RELAXED) for _ in range(times)]) for _ in range(4)]
    assert all(map(succeeded, children))
    assert WORDS[8].load(at, Order.RELAXED) == 4 * times


def test_barrier_of_processes() -> None:
    """Nobody passes round k before all have arrived there."""
    n, rounds = 3, 500
    block, heap = ControlBlock.create(n), SymmetricHeap(0, 1, 4096)

    def take_part() -> None:
        for i in range(rounds):
            WORDS[8].fetch_add(heap.base(0), 1, Order.RELAXED)
            assert block.host_barrier.wait(block.host_barrier.arrive(), HANG_SECONDS)
            seen = WORDS[8].load(heap.base(0), Order.RELAXED)
            assert (i + 1) * n <= seen <= (i + 2) * n - 1 or (i == rounds - 1 and seen == n * rounds)

    assert all(list(map(succeeded, [in_child(take_part) for _ in range(n)])))


def test_barrier_wait_gives_up() -> None:
    block = ControlBlock.create(2)
    ticket = block.kernel_barrier.arrive()
    assert not block.kernel_barrier.passed(ticket) and not block.kernel_barrier.wait(ticket, 0.01)
    block.kernel_barrier.arrive()
    assert block.kernel_barrier.passed(ticket) and not block.host_barrier.passed(0)


def test_states() -> None:
    block = ControlBlock.create(4)
    children = [in_child(lambda: (block.enter(1), signal.pause())), in_child(lambda: (block.enter(2), block.leave(2)))]
    while State.ABSENT in (block.state(1), block.state(2)):
        pass
    assert block.state(0) == State.ABSENT and block.state(1) == State.RUNNING
    os.kill(children[0], signal.SIGKILL)
    while block.state(1) != State.LOST:  # also while nobody has reaped it
        pass
    for child in children:
        os.waitpid(child, 0)
    assert (block.state(1), block.state(2)) == (State.LOST, State.LEFT)
    assert block.pid(1) == children[0]


def test_first_abort_counts_and_long_words_are_cut() -> None:
    block = ControlBlock.create(2)
    assert block.aborted() is None
    block.abort(1, "ü" * 10_000)
    block.abort(0, "later")
    aborted = block.aborted()
    assert aborted is not None and aborted[0] == 1
    assert 4000 < len(aborted[1]) < 5000 and set(aborted[1]) == {"ü"}
    block.announce(Caller.HOST, 0, 7, "x" * 1000)
    block.announce(Caller.KERNEL, 0, 7, "of the kernels")
    block.announce(Caller.HOST, 0, 8, "next")
    assert block.announced(Caller.HOST, 0, 8) == "next" and len(block.announced(Caller.HOST, 0, 7)) == 511
    assert block.announced(Caller.KERNEL, 0, 7) == "of the kernels"


def test_heap_places() -> None:
    heap = SymmetricHeap(1, 2, 5000)  # rounded up to pages
    peer = SymmetricHeap(0, 2, 5000)
    heap.attach(0, os.dup(peer.fd))
    assert heap.size == 8192
    assert heap.find(heap.base(1)) == (1, 0) and heap.find(heap.base(0) + 8191) == (0, 8191)
    for outside in (0, heap.base(0) - 1, heap.base(0) + 8192, heap.base(1) + 8192, (1 << 64) - 1):
        assert heap.find(outside) is None
    memory(heap, 0)[5:9] = [1, 2, 3, 4]
    heap.write(1, 100, heap.base(0) + 5, 4)
    assert memory(heap, 1)[99:105].tolist() == [0, 1, 2, 3, 4, 0]
    assert memory(peer, 0)[5:9].tolist() == [1, 2, 3, 4]
    with pytest.raises(IndexError, match="4 bytes at offset 8190 leave the symmetric heap of PE 1"):
        heap.write(1, 8190, heap.base(0), 4)
    with pytest.raises(RuntimeError, match="cannot copy to address 0x8: Bad address"):
        heap.read(1, 0, 8, 4)


def test_memory_ends_with_the_heap() -> None:
    heap = SymmetricHeap(0, 1, 4096)
    begin, maps = f"{heap.base(0):x}-", Path("/proc/self/maps")
    assert begin in maps.read_text()
    del heap
    assert begin not in maps.read_text()


def test_failures_are_exceptions() -> None:
    with pytest.raises(RuntimeError, match=r"Cannot allocate memory|File too large|Invalid argument"):
        SymmetricHeap(0, 1, 1 << 62)
    with pytest.raises(RuntimeError, match="Bad file descriptor"):
        ControlBlock.open(1 << 20, 2)
    with pytest.raises(ctypes.ArgumentError):
        WORDS[8].load(1.5, Order.RELAXED)  # type: ignore[arg-type]


def test_a_wait_sleeps_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the wait, up to 1 ms, or to eight times what a look takes."""
    now, slept = [100.0], []
    yields: list[None] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("os.sched_yield", lambda: yields.append(None))

    def look(seconds: float, times: int) -> None:
        for _ in range(times):
            now[0] += seconds
            backoff.pause()

    backoff = Backoff()
    look(10e-6, 100)
    assert len(yields) == 19 and len(slept) == 81 and slept[0] == pytest.approx(50e-6)
    assert slept == sorted(slept) and slept[-1] == 1e-3
    slept.clear()
    look(500e-6, 20)
    assert slept[-1] == pytest.approx(4e-3)
    look(0.1, 3)
    assert slept[-1] == 20e-3
    backoff.reset()
    look(10e-6, 1)
    assert len(yields) == 20 and slept[-1] == 20e-3
