"""What a GPU reports of long waits becomes lines: with memory that a test writes to, and PEs that are not there."""

from __future__ import annotations

import contextlib
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from triton_dist import process_state
from triton_dist.bootstrap.failure_detector import BrokenWorldError, FailureDetector, _checked
from triton_dist.bootstrap.launch import Launch
from triton_dist.decoding import DecodingError
from triton_dist.gpu import module_state, p2p, wait_reports
from triton_dist.gpu.wait_reports import Memory, Place, WaitReports
from triton_dist.gpu.waiting_kernels import PlacedLauncher, Site, WaitingKernel, WaitingKernels
from triton_dist.gpu.world import GpuWorld
from triton_dist.world.allocations import AllocationRegistry
from triton_dist.world.base import World

SYNC = 0x7F0000000000
SITES = (
    Site("signal_wait_until", "u64", ("/home/me/kernels.py:17",)),
    Site("poll", "i32", ("/lib/meet.py:79", "/lib/barrier.py:20")),
    Site("barrier_all", "u64", ("/home/me/kernels.py:30",)),
)


class FakeDetector:
    """Stands for a detector whose other PEs say what ``heard`` holds."""

    def __init__(self, pe: int = 0) -> None:
        self.told: list[str] = []
        self.given_up: list[str] = []
        self._detector = FailureDetector(pe)
        self.heard = self._detector._waits

    def tell_waits(self, what: str) -> None:
        self.told.append(what)

    def waits(self, n_pes: int) -> str:
        return self._detector.waits(n_pes)

    def raise_trouble(self, doing: str) -> None:
        if self.given_up:
            raise BrokenWorldError(f"cannot {doing}: {self.given_up[0]}")

    def give_up(self, what: str) -> None:
        self.given_up.append(what)


class Pe:
    """PE 1 of 3, whose kernel number 0 is ``consumer``, and the memory that its GPU would write to."""

    def __init__(self, aborts: bool = False, timeout: float = 60.0) -> None:
        self.detector = FakeDetector(1)
        registry = AllocationRegistry()
        self.tensor = torch.zeros(8, dtype=torch.int64)
        _, self.use = registry.enter(self.tensor.data_ptr(), 64, (2, 4), torch.int64)
        self.states: list[bytes] = []
        place, device = Place(registry, SYNC), torch.device("cpu")
        write = lambda kernel, state: self.states.append(state)  # noqa: E731
        detector: Any = self.detector
        self.reports = WaitReports(1, 3, device, place, detector, timeout, aborts, write)
        self.array = self.reports._memory.array
        self.count = 0

    def report(self, **fields: Any) -> None:
        self.count += 1
        record = self.array[self.count % len(self.array)]
        known = {"address": self.tensor.data_ptr() + 40, "expected": 41, "seen": 5, "program": (0, 0, 0)}
        known |= {"kernel": 0, "site": 1, "pe": -1, "cmp": 3, "ticks": 1800}
        for name, value in (known | fields | {"number": self.count}).items():
            record[name] = value


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that are printed."""
    lines: list[str] = []
    monkeypatch.setitem(process_state._instances, wait_reports.Memories, wait_reports.Memories())
    monkeypatch.setattr(wait_reports.exit_report, "say", lines.append)
    kernels = WaitingKernels([WaitingKernel(0, "consumer", 0, 0, SITES)])
    monkeypatch.setitem(process_state._instances, WaitingKernels, kernels)
    return lines


def look_twice(pe: Pe) -> None:
    pe.reports.look()
    pe.reports.look()


def test_a_wait_is_told_once_with_line_tensor_index_and_values(said: list[str]) -> None:
    pe = Pe()
    pe.reports.look()
    pe.report()
    pe.reports.look()
    assert said == [], "the others have a moment to tell what they wait for"
    assert len(pe.detector.told) == 1 and "kernel consumer" in pe.detector.told[0]
    pe.detector.heard[0] = (time.monotonic(), "kernel producer, …")
    pe.reports.look()
    address = f"{pe.tensor.data_ptr() + 40:#x}"
    assert said == [
        "PE 1, kernel consumer: a wait has lasted for 60 s (TRITON_DIST_WAIT_TIMEOUT)\n"
        "    program (0, 0, 0) at /home/me/kernels.py:17 waits in signal_wait_until:"
        f" {address} (element 1, 1 of the symmetric tensor ((2, 4), torch.int64)) >= 41, seen 5",
        "PE 1: other PEs: PE 0 reported 0 s ago: kernel producer, …; no report from PE 2",
    ]
    look_twice(pe)
    assert len(said) == 2


def test_warps_and_programs_of_one_place_are_told_together(said: list[str]) -> None:
    pe = Pe()
    for program in range(132):
        for _ in range(8):
            pe.report(site=2, program=(program, 0, 0), cmp=1, expected=0, seen=0, pe=2)
    look_twice(pe)
    (line, _) = said
    assert "program (0, 0, 0)" not in line or "and" in line
    assert "more at /lib/meet.py:79 (called at /lib/barrier.py:20) waits in a loop" in line
    assert "!= 0 from PE 2, seen 0" in line


def test_the_wait_of_one_warp_stays_among_those_of_all_others(said: list[str]) -> None:
    """All warps of a large GPU wait for the one that waits elsewhere, and was the first to say so."""
    pe = Pe()
    pe.report(site=1, program=(152, 0, 0))
    for warp in range(152 * 64 - 1):
        pe.report(site=2, program=(warp // 64, 0, 0), programs=160)
    look_twice(pe)
    assert any("program (152, 0, 0) at /home/me/kernels.py:17" in line for line in said), said
    assert any("program (0, 0, 0) and 151 more of 160 at /lib/meet.py:79" in line for line in said), said


def test_a_barrier_names_its_team_and_whom_it_waits_for(said: list[str]) -> None:
    pe = Pe()
    pe.report(site=3, address=SYNC + 8, expected=7, seen=6, pe=2)
    look_twice(pe)
    assert "waits in barrier_all: the barrier flags of team 0 >= 7 from PE 2, seen 6" in said[0]


def test_signals_have_no_sign(said: list[str]) -> None:
    pe = Pe()
    pe.report(expected=-1, seen=-2, address=16)
    pe.report(site=2, expected=-1, seen=-2)
    look_twice(pe)
    text = "".join(said)
    assert f"0x10 (not symmetric) >= {2**64 - 1}, seen {2**64 - 2}" in text
    assert ">= -1, seen -2" in text


def test_garbage_is_survived(said: list[str]) -> None:
    pe, chaos = Pe(), random.Random(7)
    for _ in range(20):
        raw = pe.array[:512].view(np.uint8)
        raw[:] = np.frombuffer(chaos.randbytes(raw.nbytes), dtype=np.uint8)
        look_twice(pe)
    assert said and all(len(line) < 2000 for line in said)
    assert max(sum(line.startswith("PE 1, kernel") for line in said[i : i + 10]) for i in range(len(said))) <= 10


def test_a_record_that_is_being_written_waits_for_the_next_look(said: list[str]) -> None:
    pe = Pe()
    pe.report()
    pe.array[1]["number"] = 0
    look_twice(pe)
    assert said == []
    pe.array[1]["number"] = 1
    look_twice(pe)
    assert len(said) == 2


def test_abort_breaks_the_world_with_what_it_waited_for(said: list[str]) -> None:
    pe = Pe(aborts=True)
    pe.report()
    look_twice(pe)
    assert len(pe.detector.given_up) == 1
    assert "waited for 60 s: kernel consumer, program (0, 0, 0) at /home/me/kernels.py:17" in pe.detector.given_up[0]
    assert len(said) == 2


def test_kernels_are_told_timeout_and_number(said: list[str]) -> None:
    kernel = WaitingKernel(5, "late", 0, -1, ())
    for timeout, ticks in ((60.0, 1789), (1e-9, 1), (1e30, 1 << 18), (math.inf, 0)):
        pe = Pe(timeout=timeout)
        pe.reports._device = SimpleNamespace(index=-1)  # type: ignore[assignment]
        pe.reports.fill(kernel)
        pe.reports.end()
        layout = p2p._layout()
        at = layout["wait_state_offsets"]
        assert int.from_bytes(pe.states[0][at["timeout"] :][:4], "little") == ticks
        assert int.from_bytes(pe.states[0][at["kernel"] :][:4], "little") == 5
        assert int.from_bytes(pe.states[0][at["records"] :][:8], "little") == pe.array.ctypes.data


def test_a_module_whose_waits_are_never_reached_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(module_state, "write", lambda *arguments: written.append(arguments))
    for held in (False, True):
        monkeypatch.setattr(module_state, "holds", lambda module, symbol, held=held: held)
        wait_reports._write(WaitingKernel(0, "k", 11, 0, ()), b"state")
        assert len(written) == held


def test_kernels_of_another_gpu_are_left_alone(said: list[str]) -> None:
    pe = Pe()
    pe.reports._device = SimpleNamespace(index=0)  # type: ignore[assignment]
    pe.reports.fill(WaitingKernel(5, "elsewhere", 0, 1, ()))
    assert pe.states == []


def test_records_have_the_layout_of_the_device_library() -> None:
    record = p2p.wait_record()
    assert record.itemsize == 64 and record.fields is not None
    assert sorted(record.fields) == sorted(
        ["address", "cmp", "expected", "kernel", "number", "pe", "program", "programs", "seen", "site", "ticks"]
    )
    assert len(Memory(torch.device("cpu")).array) == p2p.wait_records()


def test_the_line_of_the_last_launch_is_known() -> None:
    kernel = WaitingKernel(0, "k", 0, 0, ())
    launched: list[tuple[Any, ...]] = []
    launcher = PlacedLauncher(lambda *arguments: launched.append(arguments), kernel)

    def run(*arguments: Any) -> None:  # Triton's
        launcher(*arguments)

    def launch() -> None:
        run(1, 2, 3)

    assert kernel.launch_line() == ""
    launch()
    line = launch.__code__.co_firstlineno + 1
    assert kernel.launch_line() == f"{__file__}:{line}"
    assert launched == [(1, 2, 3)]


def test_launch_lines_are_the_users_and_not_tritons() -> None:
    kernel = WaitingKernel(0, "k", 0, 0, ())
    import triton

    places = {"launcher": PlacedLauncher(lambda *arguments: None, kernel)}
    exec(compile("def run(): launcher()\ndef proxy(): run()\n", triton.__file__, "exec"), places)
    places["proxy"]()  # type: ignore[operator]
    assert kernel.launch_line() == f"{__file__}:{sys._getframe().f_lineno - 1}"


# ---- what PEs tell each other


def test_what_others_say_is_checked() -> None:
    detector = FailureDetector(1)
    members: Any = (None,) * 4
    detector._members = members
    for connection, pe, what in (
        (0, 1, "myself"),
        (0, 4, "no such PE"),
        (0, -1, "no such PE"),
        (0, True, "no number"),
        (0, "2", "no number"),
        (0, 2, 7),
        (0, 2, "x" * 1001),
        (3, 2, "in another's name"),
    ):
        with contextlib.suppress(DecodingError):
            detector._hear_waits(connection, *_checked(["waits", pe, what]))
    assert detector.waits(3) == "no report from PEs 0, 2"
    detector._hear_waits(0, 2, "kernel k\x1b[2J\nPE 0: lies")
    assert detector.waits(3) == "PE 2 reported 0 s ago: kernel k?[2J?PE 0: lies; no report from PE 0"
    detector.end()


# ---- waits of the host


@pytest.mark.parametrize("action", ["report", "abort"])
def test_a_long_wait_of_the_host_is_reported(
    action: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITON_DIST_WAIT_TIMEOUT", "0.05")
    monkeypatch.setenv("TRITON_DIST_WAIT_ACTION", action)
    store: Any = torch.distributed.HashStore()
    fake = FakeDetector()
    detector: Any = fake
    launch = Launch(0, 3, 0, 3, store, detector=detector)
    store.set("group/call 7/0", "")
    what = "the host waits for PEs 1, 2 to all_reduce((8,))"
    arrival = threading.Timer(1.0, lambda: [store.set(f"group/call 7/{pe}", "") for pe in (1, 2)])
    with arrival_of(arrival), pytest.raises(BrokenWorldError) if action == "abort" else contextlib.nullcontext():
        launch.await_keys([f"group/call 7/{pe}" for pe in range(3)], "all_reduce((8,))")
    assert fake.told == [what]
    assert fake.given_up == ([f"waited for 0.05 s: {what}"] if action == "abort" else [])
    said = capfd.readouterr().err
    assert said.count(f"PE 0: a wait has lasted for 0.05 s (TRITON_DIST_WAIT_TIMEOUT)\n    {what}\n") == 1, said
    assert "PE 0: other PEs: no report from PEs 1, 2" in said


def test_what_hosts_of_a_gpu_world_wait_for_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Barriers of hosts of a team or a communicator have numbers: the report has the call."""
    monkeypatch.setenv("TRITON_DIST_WAIT_TIMEOUT", "0.05")
    store: Any = torch.distributed.HashStore()
    monkeypatch.setattr(torch.distributed.HashStore, "get_all", torch.distributed.HashStore.multi_get, raising=False)
    world: Any = GpuWorld.__new__(GpuWorld)
    World.__init__(world, Launch(0, 1, 0, 1, None))
    world.check_live = lambda: None  # asks NVSHMEM
    world._launch = Launch(0, 2, 0, 2, store)
    world._rounds = Counter()
    team: Any = SimpleNamespace(name="implicit", pes=(0, 1))
    arrival = threading.Timer(1.0, lambda: store.set("implicit/1/1", "making a team\n7\n"))
    with arrival_of(arrival):
        assert world.together(team, "making a team", "5") == ["5", "7"]
    assert "the host waits for PE 1 to complete making a team\n" in capfd.readouterr().err


@contextlib.contextmanager
def arrival_of(timer: threading.Timer) -> Iterator[None]:
    timer.start()
    try:
        yield
    finally:
        timer.join()
