"""Reports of waits in GPU kernels that exceed ``TRITON_DIST_WAIT_TIMEOUT``.

A kernel that has waited for this time writes a record to memory of this process (``runtime/device/WaitReport.h``) and
goes on waiting. A thread polls the records a few times a second. It looks up the kernel, the source line and the
symmetric tensor, and sends a summary to the other PEs. One interval later, when other waiting PEs have sent theirs, it
prints this PE's wait and those of the other PEs. A faulty kernel may overwrite records, so every number is checked
before use.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from triton_dist._C.op_table import Cmp
from triton_dist.bootstrap import exit_report
from triton_dist.bootstrap.failure_detector import FailureDetector
from triton_dist.comparisons import SIGNS
from triton_dist.gpu import module_state, p2p
from triton_dist.gpu.waiting_kernels import Site, WaitingKernel, WaitingKernels
from triton_dist.process_state import of_process
from triton_dist.world.allocations import AllocationRegistry
from triton_dist.world.groups import GroupMemory

__all__ = ["Memories", "Memory", "Place", "WaitReports", "describe", "read"]

INTERVAL = 0.25
"""Seconds between two polls of the records, and between reading a record and printing it."""

_MOST_PLACES = 8  # that are printed at a time
_REPEATED = 5.0  # seconds within which equal reports are of warps in the same wait


class Memory:
    """The records of one GPU's kernels."""

    def __init__(self, device: torch.device) -> None:
        nbytes = p2p.wait_records() * p2p.wait_record().itemsize
        self._records = torch.zeros(nbytes, dtype=torch.uint8, device="cpu", pin_memory=device.type == "cuda")
        self._count = torch.zeros(1, dtype=torch.int32, device=device)
        self.array = self._records.numpy().view(p2p.wait_record())

    def state(self, timeout: float, kernel: int) -> bytes:
        """The ``WaitState`` of the kernel with this number; ``timeout`` in seconds."""
        return p2p.wait_state(timeout, self._records.data_ptr(), self._count.data_ptr(), kernel)


class Memories:
    """The records of each GPU. One for each process: kernels go on writing to them after their world."""

    def __init__(self) -> None:
        self._by_device: dict[torch.device, Memory] = {}

    def of(self, device: torch.device) -> Memory:
        if device not in self._by_device:
            self._by_device[device] = Memory(device)
        return self._by_device[device]


@dataclass(frozen=True)
class _Report:
    """One wait."""

    number: int
    kernel: int
    site: int
    program: tuple[int, int, int]
    address: int
    expected: int
    seen: int
    cmp: int
    pe: int
    programs: int
    """How many the kernel has; 0 if unknown."""
    seconds: float


def read(array: np.ndarray[Any, np.dtype[np.void]], known: np.ndarray[Any, np.dtype[np.uint32]]) -> list[_Report]:
    """The reports since the last call. ``known`` holds the last number of each record, and is updated."""
    found = []
    numbers = array["number"].copy()
    for place in np.flatnonzero((numbers != known) & (numbers != 0)):
        record = array[place].copy()
        if array["number"][place] != numbers[place] or record["number"] != numbers[place]:
            continue  # it is being overwritten
        known[place] = numbers[place]
        x, y, z = map(int, record["program"])
        names = "number", "kernel", "site", "address", "expected", "seen", "programs"
        fields = {name: int(record[name]) for name in names}
        cmp, pe = int(record["cmp"]), int(record["pe"])
        seconds = int(record["ticks"]) * p2p.wait_tick()
        found.append(_Report(**fields, program=(x, y, z), cmp=cmp, pe=pe, seconds=seconds))
    return sorted(found, key=lambda report: report.number)


@dataclass(frozen=True)
class Place:
    """Names for a PE's symmetric addresses."""

    registry: AllocationRegistry
    sync: int
    """Address of the barrier flags of all teams, ``p2p.sync_bytes()`` bytes."""
    of_groups: GroupMemory | None = None

    def name(self, address: int) -> str:
        """``address`` as a text."""
        if self.sync <= address < self.sync + p2p.sync_bytes():
            return f"the barrier flags of team {p2p.team_of(address - self.sync)}"
        allocation = None
        with contextlib.suppress(LookupError):  # the main thread may be freeing it
            found = self.of_groups.find(address) if self.of_groups is not None else None
            allocation = found[0] if found is not None else self.registry.find(address)
        if allocation is None:
            return f"{address:#x} (not symmetric)"
        index = (address - allocation.begin) // allocation.dtype.itemsize
        inside = index < math.prod(allocation.shape)
        where = ", ".join(map(str, np.unravel_index(index, allocation.shape))) if inside else str(index)
        return f"{address:#x} (element {where} of the symmetric tensor ({allocation}))"


def _value(number: int, site: Site | None) -> int:
    return number % (1 << 64) if site is not None and site.type.startswith("u") else number


def _awaited(report: _Report, site: Site | None, place: Place) -> str:
    sign = SIGNS[Cmp(report.cmp)] if report.cmp in {*Cmp} else "?"
    whom = f" from PE {report.pe}" if report.pe >= 0 else ""
    expected, seen = _value(report.expected, site), _value(report.seen, site)
    return f"{place.name(report.address)} {sign} {expected}{whom}, seen {seen}"


def describe(reports: Iterable[_Report], place: Place) -> list[tuple[WaitingKernel | None, str, str]]:
    """Reports as texts, grouped by source line: the kernel, the waiting programs, and what they wait for."""
    places: dict[tuple[int, int], list[_Report]] = {}
    for report in reports:
        places.setdefault((report.kernel, report.site), []).append(report)
    described = []
    for (number, site_number), those in places.items():
        first = min(those, key=lambda report: report.program[::-1])
        kernel = of_process(WaitingKernels).find(number)
        site = kernel.site(site_number) if kernel is not None else None
        line, *callers = site.lines if site is not None and site.lines else ("an unknown line",)
        called = f" (called at {', '.join(callers)})" if callers else ""
        programs = len({report.program for report in those}) - 1
        others = f" and {programs} more" if programs else ""
        op = "a loop" if site is None or site.op == "poll" else site.op
        of_all = f" of {first.programs}" if first.programs > 1 else ""
        who = f"program {first.program}{others}{of_all} at {line}{called}"
        described.append((kernel, who, f"waits in {op}: {_awaited(first, site, place)}"))
    return described


class WaitReports:
    """Reads and prints the reports of one PE.

    Args:
        timeout: seconds; infinite: no reports.
        aborts: whether a report breaks the world.
        write: copies a ``WaitState`` into a kernel's module.
    """

    def __init__(
        self,
        pe: int,
        n_pes: int,
        device: torch.device,
        place: Place,
        detector: FailureDetector | None,
        timeout: float,
        aborts: bool,
        write: Callable[[WaitingKernel, bytes], None] | None = None,
    ) -> None:
        self.pe, self.n_pes = pe, n_pes
        self._device, self._place, self._detector = device, place, detector
        self._timeout, self._aborts = timeout, aborts
        self._memory = of_process(Memories).of(device)
        self._known = self._memory.array["number"].copy()
        self._write = write or _write
        self._pending: list[_Report] = []
        self._recent: dict[tuple[Any, ...], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="triton_dist wait reports", daemon=True)

    def fill(self, kernel: WaitingKernel) -> None:
        """Enable the reports of a loaded kernel."""
        if kernel.device != self._device.index:
            return
        self._write(kernel, self._memory.state(self._timeout, kernel.number))
        if self._thread.ident is None and math.isfinite(self._timeout):
            self._thread.start()

    def end(self) -> None:
        """Stop the thread that reads reports."""
        self._stop.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(2.0)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self.look()

    def look(self) -> None:
        """Read new reports, and print those of the last call."""
        oldest = time.monotonic() - _REPEATED
        self._recent = {key: at for key, at in self._recent.items() if at > oldest}
        pending, self._pending = self._pending, [r for r in read(self._memory.array, self._known) if self._is_new(r)]
        if self._pending and self._detector is not None:
            self._detector.tell_waits(self._summary(self._pending))
        if pending:
            self._say(pending)

    def _is_new(self, report: _Report) -> bool:
        """Whether no other warp has just reported the same wait."""
        key = (report.kernel, report.site, report.program, report.address, report.expected)
        is_new = key not in self._recent
        self._recent[key] = time.monotonic()
        return is_new

    def _summary(self, reports: list[_Report]) -> str:
        kernel, who, what = describe(reports, self._place)[0]
        return f"kernel {_name(kernel)}, {who} {what}"[:1000]

    def _say(self, reports: list[_Report]) -> None:
        described = describe(reports, self._place)
        for kernel, who, what in described[:_MOST_PLACES]:
            launched = kernel.launch_line() if kernel is not None else ""
            exit_report.say(
                f"PE {self.pe}, kernel {_name(kernel)}: a wait has lasted for {self._timeout:g} s"
                f" (TRITON_DIST_WAIT_TIMEOUT)\n    {who} {what}"
                + (f"; last launched at {launched}" if launched else "")
            )
        if len(described) > _MOST_PLACES:
            exit_report.say(f"PE {self.pe}: kernels wait at {len(described) - _MOST_PLACES} more lines")
        if self._detector is not None:
            exit_report.say(f"PE {self.pe}: other PEs: {self._detector.waits(self.n_pes)}")
        if self._aborts:
            kernel, who, what = described[0]
            self._abort(f"waited for {self._timeout:g} s: kernel {_name(kernel)}, {who} {what}")

    def _abort(self, what: str) -> None:
        self._stop.set()
        if self._detector is None:
            exit_report.end_process(f"PE {self.pe} {what}. So this process", 1)
        self._detector.give_up(what)


def _name(kernel: WaitingKernel | None) -> str:
    return kernel.name if kernel is not None else "(unknown)"


def _write(kernel: WaitingKernel, state: bytes) -> None:
    if not module_state.holds(kernel.module, p2p.wait_symbol()):
        return  # the compiler has removed the waits as unreachable
    module = module_state.Module(kernel.module, kernel.name, kernel.device, "p2p")
    module_state.write(module, p2p.wait_symbol(), state)
