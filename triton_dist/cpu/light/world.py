"""The world of one coroutine, and what it shares with the others."""

from __future__ import annotations

import ctypes
import os
import resource
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from triton_dist import environment
from triton_dist.bootstrap import memfd
from triton_dist.bootstrap.launch import Launch
from triton_dist.bootstrap.rendezvous import Member
from triton_dist.check.log import Log
from triton_dist.check.symmetry import Symmetry
from triton_dist.cpu.checking import Checking
from triton_dist.cpu.host_accesses import note_access
from triton_dist.cpu.light.barrier import LightBarrier, Said
from triton_dist.cpu.light.representative import RepresentativeRecorder
from triton_dist.cpu.light.turns import LightTurns, Ring
from triton_dist.cpu.recorder import Recorder
from triton_dist.cpu.runtime.control import Caller, State
from triton_dist.cpu.runtime.heap import SymmetricHeap
from triton_dist.cpu.transport import Transport
from triton_dist.cpu.turn_taking import Turns
from triton_dist.cpu.world import CpuWorld
from triton_dist.process_state import of_process
from triton_dist.torch_api import Operators
from triton_dist.world.base import World
from triton_dist.world.current import Current
from triton_dist.world.groups import HostGroup

__all__ = ["LightWorld", "Shared"]


_LARGE = 64 << 10
"""Bytes of a tensor whose zeros are worth a call of the system: most of a workspace is never written."""

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Shared:
    """What all PEs of the process have together. ``begin`` before they start."""

    def __init__(self, n_pes: int, *, alone: int | None = None, programs: tuple[int, ...] | None = None) -> None:
        """``alone``: the one PE that runs, for all. ``programs``: of each launch, the first and the last program run,
        and those with these numbers."""
        _allow_files(2 * n_pes + 64)
        self.n_pes, self.alone, self.programs = n_pes, alone, programs
        self.ring = Ring(n_pes, range(n_pes) if alone is None else (alone,))
        self.values: dict[str, dict[int, str]] = defaultdict(dict)
        """What PEs have told each other, by key and PE."""
        me = Member.self(0, n_pes)
        self.members = tuple(replace(me, pe=pe) for pe in range(n_pes))
        self.said: dict[str, Said] = {}
        self.control = LightControl()
        self.recorders: list[Recorder] = []
        self.logs = [memfd.create("log", grows=True) for _ in range(n_pes)]
        self._heap: SymmetricHeap | None = None
        self._files: list[int] = []
        """Of the heaps, which belong to their mapping."""
        self._operators = Operators(self._touched)

    def begin(self) -> None:
        of_process(Current).join = self._join
        self._operators.start()

    def heap(self, size: int) -> SymmetricHeap:
        """The one mapping of all PEs' heaps, with ``size`` bytes each."""
        if self._heap is None:
            self._heap = SymmetricHeap(0, self.n_pes, size)
            self._files = [self._heap.fd]
            for pe in range(1, self.n_pes):
                self._files.append(os.memfd_create(f"heap_{pe}", os.MFD_CLOEXEC))
                os.ftruncate(self._files[-1], self._heap.size)
                self._heap.attach(pe, self._files[-1])
        return self._heap

    def clear(self, pe: int, offset: int, nbytes: int) -> None:
        """Make bytes of a heap zero, and give their memory back until they are written."""
        if _fallocate(self._files[pe], _KEEP_SIZE | _PUNCH_HOLE, offset, nbytes):
            raise OSError(ctypes.get_errno(), f"PE {pe}: {os.strerror(ctypes.get_errno())}")

    def barrier(self, name: str, n: int, member: int) -> LightBarrier:
        return LightBarrier(self.said.setdefault(name, Said(n, alone=self.alone is not None)), member)

    def _join(self) -> World:
        pe = self.ring.running
        launch = LightLaunch(pe, self.n_pes, pe, self.n_pes, None, "light", self.members, shared=self)
        of_process(Current).launch = launch
        return LightWorld(launch)

    def _touched(self, what: str, tensor: torch.Tensor, writes: bool) -> None:
        world = of_process(Current).world
        if isinstance(world, LightWorld) and world.recorder is not None and not world.finalized:
            note_access(world.recorder, what, tensor, writes)


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and count > hard:
        raise OSError(f"{count} files must be open at a time, and this process may open {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


@dataclass(frozen=True)
class LightLaunch(Launch):
    """Of a PE that finds the others in its process."""

    shared: Shared | None = None

    def __post_init__(self) -> None:
        assert self.shared is not None

    @property
    def turns(self) -> LightTurns:
        assert self.shared is not None
        return self.shared.ring.turns[self.pe]

    def exchange(self, key: str, value: str, pes: Sequence[int] | None = None, doing: str | None = None) -> list[str]:
        assert self.shared is not None
        values, members = self.shared.values[key], range(self.n_pes) if pes is None else pes
        values[self.pe] = value
        if self.shared.alone is not None:
            return [value] * len(members)
        self.turns.wait(lambda: len(values) == len(members))
        return [values[pe] for pe in members]

    def await_keys(self, keys: Iterable[str], doing: str, seconds: float | None = None) -> None:
        raise RuntimeError(f"PEs in one process cannot {doing}: run them as processes")


class LightControl:
    """Nothing happens to a coroutine alone."""

    def __init__(self) -> None:
        self._aborted: tuple[int, str] | None = None

    def leave(self, pe: int) -> None:
        pass

    def state(self, pe: int) -> State:
        return State.RUNNING

    def pid(self, pe: int) -> int:
        return os.getpid()

    def abort(self, pe: int, reason: str) -> None:
        self._aborted = self._aborted or (pe, reason)

    def aborted(self) -> tuple[int, str] | None:
        return self._aborted


class LightChecking(Checking):
    """The logs of all PEs are this process's."""

    def __init__(self, world: LightWorld, turns: Turns, shared: Shared) -> None:
        self._pe, self._turns, self._logs, self._alone = world.pe, turns, shared.logs, shared.alone
        self._host = []  # one for all watches the hosts
        self._folder = environment.get("TRITON_DIST_CHECK_LOG")
        log = Log(shared.logs[world.pe])
        if shared.alone is not None:
            symmetry = Symmetry(world.n_pes, len(world.hosts[0].pes))
            self.recorder: Recorder = RepresentativeRecorder(world, turns, log, symmetry)
        else:
            self.recorder = Recorder(world, turns, log, work=self._folder is not None)
        self._recorders = shared.recorders
        self._recorders.append(self.recorder)

    def finish(self) -> None:
        if self._pe == self._alone:
            self._report()
        super().finish()

    def give_up(self, *, first: bool) -> None:
        """The caller raises, and the run ends."""

    def _report(self, *, complete: bool = True) -> None:
        for recorder in self._recorders:
            recorder.flush()
        super()._report(complete=complete)


class LightWorld(CpuWorld):
    """See :mod:`triton_dist.cpu.light`."""

    _launch: LightLaunch

    @property
    def _shared(self) -> Shared:
        assert self._launch.shared is not None
        return self._launch.shared

    def _join(self, launch: Launch, size: int, reserved: int) -> Transport:
        barriers = {caller: self._shared.barrier(f"all, {caller.name}", self.n_pes, self.pe) for caller in Caller}
        return Transport(self._shared.heap(size + reserved), self._shared.control, barriers)

    def _take_turns(self, launch: Launch) -> Turns:
        return self._launch.turns

    def _begin_check(self, launch: Launch, turns: Turns) -> Checking:
        return LightChecking(self, turns, self._shared)

    def runs(self, index: tuple[int, int, int], grid: tuple[int, int, int]) -> bool:
        some = self._shared.programs
        number = (index[0] * grid[1] + index[1]) * grid[2] + index[2]
        return some is None or number in (0, grid[0] * grid[1] * grid[2] - 1, *some)

    def clear(self, tensor: torch.Tensor) -> None:
        nbytes = tensor.numel() * tensor.itemsize
        if nbytes < _LARGE:
            super().clear(tensor)
        else:
            self._shared.clear(self.pe, tensor.data_ptr() - self.heap.base(self.pe), nbytes)

    def _open_group(self, group: HostGroup) -> None:
        n, member = len(group.pes), list(group.pes).index(self.pe)
        self._group_places[group.name] = (
            self._shared.barrier(group.name, n, member),
            self._shared.barrier(f"{group.name}, calls", n, member),
        )

    def _close_group(self, group: HostGroup) -> None:
        del self._group_places[group.name]

    def _record_dropped(self) -> None:
        """Not looked for: that is for finding mistakes, and takes a collection of garbage for each PE."""

    def trouble(self, *, needs: Container[int] = ()) -> str | None:
        return None  # a PE that fails ends the process
