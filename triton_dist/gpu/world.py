"""The GPU world: one process per GPU, and NVSHMEM's symmetric heap in their memory.

NVSHMEM comes through nvshmem4py, its unique id through the store of the launch.

Kernels work on that heap through NVSHMEM's device library or, where every PE is mapped into every other, through our
own, which needs no more than the distances between the mapped heaps and some symmetric memory to meet in. Kernels for
both get their state whenever there is one, so that the two can be compared in one run.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from triton_dist import environment
from triton_dist.bootstrap import exit_report
from triton_dist.bootstrap.launch import Launch
from triton_dist.compiler import transport
from triton_dist.compiler.device_library import nvshmem_bitcode
from triton_dist.gpu import module_state, nvshmem_api, p2p
from triton_dist.gpu.device_choice import choose_device, gpu_at, why_not_nvshmem
from triton_dist.gpu.heap import GpuHeap, rounded
from triton_dist.gpu.host_ops import GpuHostOps
from triton_dist.gpu.launch_check import LaunchChecks, SymmetricMemory, launcher_of_repeats
from triton_dist.gpu.module_state import LoadedModules
from triton_dist.gpu.register import obstacle
from triton_dist.gpu.teams import GpuTeams
from triton_dist.gpu.wait_reports import Place, WaitReports
from triton_dist.gpu.waiting_kernels import WaitingKernels, is_inside
from triton_dist.native_calls import Guard
from triton_dist.process_state import of_process
from triton_dist.torch_api import current_device_index, device_indices
from triton_dist.world.allocations import Allocation
from triton_dist.world.base import World, check_same_calls, group_memory_size
from triton_dist.world.calls import CallComparison
from triton_dist.world.gpus import agree
from triton_dist.world.groups import GroupMemory, HostGroup
from triton_dist.world.raw_tensor import bytes_at, start_of
from triton_dist.world.teams import Team

__all__ = ["GpuWorld"]

REDUCE_SCRATCH = "NVSHMEM_REDUCE_SCRATCH_SIZE"
REDUCE_SCRATCH_SIZE = 2 << 20
"""Bytes that NVSHMEM keeps of each PE's GPU memory for reductions, for each of 128 teams. What a device reducescatter
takes from all PEs must fit into a half, else it ends in a device assertion; NVSHMEM's own 512 KiB are soon too little.
"""


class GpuWorld(World):
    """PEs on NVIDIA GPUs. See :class:`World` for what its methods promise."""

    kind = "gpu"

    transport: str
    """The device library that this world's kernels are compiled for."""

    transports: tuple[str, ...]
    """All whose kernels work in this world; ``triton_dist.compiler.transport.using`` compiles for another."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self._rounds: Counter[str] = Counter()
        capacity = environment.get("TRITON_DIST_SYMMETRIC_SIZE")
        asked = environment.get("TRITON_DIST_TRANSPORT")
        reduce_scratch = _reduce_scratch()
        wait_timeout = environment.get("TRITON_DIST_WAIT_TIMEOUT")
        aborts_waits = environment.get("TRITON_DIST_WAIT_ACTION") == "abort"
        self.device, self.shares_gpu = choose_device(launch)
        self._nvshmem, self._bindings = nvshmem_api.load()
        _check_versions(self._nvshmem)
        torch.cuda.set_device(self.device)
        self.gpu = agree(launch, gpu_at(self.device.index, self.shares_gpu))
        sync_bytes = rounded(p2p.sync_bytes())  # beside what users may allocate
        for_groups = group_memory_size(launch)
        beside = sync_bytes + for_groups
        nvshmem_api.start(self._nvshmem, self._bindings, launch, self.device, capacity + beside)
        self._heap = GpuHeap(self._bindings, self.device, self.pe, capacity, self.registry)
        self._sync = bytes_at(self._bindings.malloc(sync_bytes), p2p.sync_bytes(), self.device)
        address = self._bindings.malloc(for_groups) if for_groups else 0
        if for_groups and not address:
            self._nvshmem.finalize()
            raise MemoryError(f"NVSHMEM has no {for_groups} bytes for groups: set TRITON_DIST_GROUP_MEMORY to less")
        self._of_groups = bytes_at(address, for_groups, self.device) if for_groups else None
        self.group_memory = GroupMemory(address, address, for_groups, self.device, self._of_groups)
        try:
            self._distances, p2p_lacks = self._prepare_p2p()
            nvshmem_lacks = why_not_nvshmem(self.shares_gpu, self._bindings.init_status())
            kernels_lack = nvshmem_lacks
            if self._hosts.pretended and self.n_pes > p2p.max_pes() and not kernels_lack:
                kernels_lack = f"its kernels know the pretended hosts of up to {p2p.max_pes()} PEs"
            self.transport = _choose_transport(asked, p2p_lacks, launch, kernels_lack)
        except BaseException:
            self._nvshmem.finalize()
            raise
        self.host_ops = GpuHostOps(self._bindings, self._heap, self.device, mapped=not p2p_lacks, lacks=nvshmem_lacks)
        self._calls = CallComparison(launch, self._give_up)
        self._teams = GpuTeams(None if nvshmem_lacks else self._bindings, self._sync)
        transport.choose(self.transport, self.n_pes, pretends_hosts=self._hosts.pretended)
        lacking = {name: why for name, why in (("p2p", p2p_lacks), ("nvshmem", kernels_lack)) if why}
        fill = {"nvshmem": self._fill_nvshmem, "p2p": self._fill_p2p}
        fill = {name: how for name, how in fill.items() if name not in lacking}
        self.transports = tuple(fill)
        of_process(LoadedModules).bind(self.device.index, fill, lacking)
        place = Place(self.registry, self._sync.data_ptr(), self.group_memory)
        self._wait_reports = WaitReports(
            self.pe, self.n_pes, self.device, place, launch.detector, wait_timeout, aborts_waits
        )
        of_process(WaitingKernels).bind(self._wait_reports.fill)
        of_process(LaunchChecks).shares_gpu = self.shares_gpu
        of_process(LaunchChecks).memory = SymmetricMemory(
            contains=lambda address: bool(self._bindings.ptr(address, self.pe)),
            freed=self._heap.is_freed,
            owner=f"PE {self.pe}",
            scatter_limit=reduce_scratch // 2 // self.n_pes if self.n_pes > 1 else sys.maxsize,
        )

    def peer(self, tensor: torch.Tensor, pe: int) -> torch.Tensor:
        self.check_live()
        there = self._heap.peer(tensor, self.check_pe(pe))
        self.check_reachable(pe)
        assert there is not None, "it is mapped"
        return there

    def check_symmetric(self, tensor: torch.Tensor, name: str = "the tensor") -> None:
        self._heap.owner(tensor, name)

    def register(self, tensor: torch.Tensor) -> torch.Tensor:
        self.check_live()
        nbytes = tensor.untyped_storage().nbytes()
        obstacles = self.together(self.team_world, f"register_tensor({nbytes} bytes)", obstacle(tensor, self.device))
        if any(obstacles):
            listed = "; ".join(f"PE {pe}: {theirs}" for pe, theirs in enumerate(obstacles) if theirs)
            raise ValueError(f"this memory cannot be registered. {listed}")
        self.finish_work()  # as for an allocation
        try:
            return self._heap.register(tensor)
        except RuntimeError:
            self.abort()  # NVSHMEM has taken its heap down
            raise

    def _free_bytes(self) -> int:
        return self._heap.free_bytes

    def _allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        # NVSHMEM's malloc contains a barrier of all PEs, and so may pending work of streams. Barriers of one team share
        # a counter and must not overlap on a PE.
        self.finish_work()
        return self._heap.allocate(shape, dtype)

    def _full(self, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        return self._heap.full(shape, dtype)

    def _begin_of(self, tensor: torch.Tensor) -> int:
        return start_of(tensor)

    def _give_back(self, allocation: Allocation) -> None:
        self._heap.give_back(allocation)

    def check_live(self) -> None:
        # Every prepared launch asks; which error it is takes further calls.
        detector = self._launch.detector
        has_trouble = detector is not None and detector.trouble is not None
        if self.finalized or has_trouble or self._bindings.init_status() < nvshmem_api.INITIALIZED:
            super().check_live()
            self._launch.check("go on")
            raise RuntimeError(
                "NVSHMEM has been finalized by another caller (nvshmem.core.finalize()), and this world's heap with it:"
                " call triton_dist.finalize() instead"
            )

    def _nvshmem_is_gone(self) -> bool:
        """Whether other code has finalized NVSHMEM. Nearly all of its functions abort the process then."""
        return bool(self._bindings.init_status() < nvshmem_api.INITIALIZED)

    def repeats_launches(self) -> bool:
        return not transport.override() and current_device_index() == self.device.index

    def guards_of_repeats(self) -> Sequence[Guard]:
        detector = self._launch.detector
        watched = () if detector is None else (Guard(detector, "attributes", ("trouble",), "is", None),)
        return (
            Guard(self, "attributes", ("finalized",), "is", False),
            *watched,
            Guard(self._bindings.init_status, "call", (), "at least", nvshmem_api.INITIALIZED),
            Guard(transport.override, "call", (), "empty"),
            Guard(device_indices(), "call", (), "equal", self.device.index),
        )

    @staticmethod
    def is_internal_file(file: str) -> bool:
        return is_inside(file)

    def launcher_of_repeats(self, launcher: Any, symmetric: Sequence[bool], depth: int) -> Any:
        return launcher_of_repeats(launcher, symmetric, depth)

    def finish_work(self) -> None:
        # CUDA's own error would end the capture, and names nothing.
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "a CUDA graph is being captured, in which the host cannot wait for the device: allocate and free"
                " symmetric tensors, and make teams, outside. A call without out= that returns symmetric memory"
                " allocates it: pass out= with a tensor that was allocated before"
            )
        torch.cuda.synchronize(self.device)

    def barrier_all(self) -> None:
        self.check_live()
        self.finish_work()
        self._bindings.barrier_all()

    def make_team(self, parent: Team, team: Team) -> int:
        self.finish_work()
        handle = self._teams.make(parent, team)
        self._tell_modules()
        handles = self.together(parent, "making a team", str(handle))  # only now may kernels of members meet
        known = {theirs for pe, theirs in zip(parent.pes, handles, strict=True) if pe in team.pes}
        if len(known) != 1:
            raise RuntimeError(f"NVSHMEM calls {team} by different numbers on its PEs: {', '.join(sorted(known))}")
        return handle

    def unmake_team(self, team: Team) -> None:
        self._teams.unmake(team)
        self._tell_modules()

    def compare_call(self, group: HostGroup, number: int, call: str, made: Callable[[int], str | None]) -> None:
        self._calls.compare(group.name, group.pes, number, call, made)

    def _give_up(self, what: str) -> None:
        """Break the world; the main thread may be waiting for a kernel that never ends."""
        if self._launch.detector is not None:
            self._launch.detector.give_up(what)

    def _close_group(self, group: HostGroup) -> None:
        self._calls.forget(group.name)

    def _exchange(self, team: Team | HostGroup, call: str, text: str) -> list[str]:
        self._rounds[team.name] += 1
        return self._launch.exchange(f"{team.name}/{self._rounds[team.name]}", text, team.pes, f"complete {call}")

    def _close(self) -> None:
        self.finish_work()
        if self._nvshmem_is_gone():  # as in scripts of Triton-distributed; finalizing was a barrier
            self._forget()
            return
        check_same_calls(
            self.team_world,
            [text.split("\n")[0] for text in self._exchange(self.team_world, "finalize()", "finalize()")],
        )
        self._stop_wait_reports()
        self._heap.close()
        self._bindings.free(self._sync.data_ptr())
        if self._of_groups is not None:
            self._bindings.free(self._of_groups.data_ptr())
        transport.choose(None)
        of_process(LaunchChecks).memory = None
        for module in of_process(LoadedModules).unbind():
            if module.transport == "nvshmem":
                self._bindings.cumodule_finalize(module.handle)
        self._nvshmem.finalize()

    def _drop(self) -> None:
        self._forget()
        nvshmem_api.leave()
        atexit.register(exit_report.limit_exit)

    def _forget(self) -> None:
        """Release all resources other than NVSHMEM's memory."""
        self._stop_wait_reports()
        transport.choose(None)
        of_process(LaunchChecks).memory = None
        of_process(LoadedModules).unbind()

    def _stop_wait_reports(self) -> None:
        self._calls.close()
        of_process(WaitingKernels).unbind()
        self._wait_reports.end()

    def _maps(self, pe: int) -> bool:
        return self._mapped[pe]

    def _prepare_p2p(self) -> tuple[list[int], str]:
        """How far each PE's heap is mapped from this one's, or why not all are, the same on every PE. *Collective.*"""
        self._sync.zero_()
        self.finish_work()
        here = self._sync.data_ptr()
        there = [self._bindings.ptr(here, pe) for pe in range(self.n_pes)]  # 0 where nothing is mapped
        self._mapped = [bool(address) for address in there]
        missing = [str(pe) for pe, address in enumerate(there) if not address]
        lists = self._launch.exchange("unreachable", ", ".join(missing))  # by now all have zeroed theirs
        return [address - here if address else 0 for address in there], _why_not_p2p(lists)

    def _fill_p2p(self, module: module_state.Module) -> None:
        """Write the state of our own library, which kernels of NVSHMEM have, too, if they ask for pretended hosts."""
        far = [pe for pe in range(self.n_pes) if not self._reaches(pe)]
        state = p2p.state(self.pe, self._distances, self._sync.data_ptr(), self._teams.table, far)
        module_state.write(module, p2p.state_symbol(), state)

    def _tell_modules(self) -> None:
        """Loaded modules learn of teams. No kernel may run. (NVSHMEM's find theirs in memory, which it keeps.)"""
        of_process(LoadedModules).refill("p2p")

    def _fill_nvshmem(self, module: module_state.Module) -> None:
        """Copy NVSHMEM's state into a module, so that its kernels know the PEs and the heap."""
        status = self._bindings.cumodule_init(module.handle)
        if status != 0:
            raise RuntimeError(f"NVSHMEM could not initialise the module of kernel {module.kernel}: status {status}")
        if self._hosts.pretended and module_state.holds(module.handle, p2p.state_symbol()):
            self._fill_p2p(module)


def _why_not_p2p(unreachable: list[str]) -> str:
    """Why kernels cannot do with load and store, if they cannot; ``unreachable`` holds a list of PEs for each PE."""
    if len(unreachable) > p2p.max_pes():
        return f"it connects up to {p2p.max_pes()} PEs, and there are {len(unreachable)}"
    lacks = [f"PE {pe} cannot reach PE {missing}" for pe, missing in enumerate(unreachable) if missing]
    return "; ".join(lacks) + " by load and store" if lacks else ""


def _choose_transport(asked: str, p2p_lacks: str, launch: Launch, nvshmem_lacks: str = "") -> str:
    """The transport that this world's kernels are compiled for, unless told otherwise. *Collective.*"""
    wishes = launch.exchange("transport", asked)
    for pe, wish in enumerate(wishes):
        if wish != wishes[0]:
            raise RuntimeError(
                f"TRITON_DIST_TRANSPORT is {wishes[0]} on PE 0 and {wish} on PE {pe}: set it to the same value for all"
            )
    if asked.startswith("rocshmem"):
        raise RuntimeError(f"TRITON_DIST_TRANSPORT={asked} is for AMD GPUs: set it to auto, p2p or nvshmem")
    if asked == "p2p" and p2p_lacks:
        raise RuntimeError(f"TRITON_DIST_TRANSPORT=p2p cannot be had: {p2p_lacks}. Set it to auto or nvshmem")
    if asked == "nvshmem" and nvshmem_lacks:
        raise RuntimeError(f"TRITON_DIST_TRANSPORT=nvshmem cannot be had: {nvshmem_lacks}. Set it to auto or p2p")
    if p2p_lacks and nvshmem_lacks:
        raise RuntimeError(f"no transport connects the PEs. p2p: {p2p_lacks}. nvshmem: {nvshmem_lacks}")
    if asked == "auto":
        return "nvshmem" if p2p_lacks else "p2p"
    return asked


def _reduce_scratch() -> int:
    """Bytes of NVSHMEM's memory for reductions: what the user wants, or else what we set for it."""
    os.environ.setdefault(REDUCE_SCRATCH, str(REDUCE_SCRATCH_SIZE))
    return environment.size_of(REDUCE_SCRATCH, REDUCE_SCRATCH_SIZE)


def _check_versions(nvshmem: Any) -> None:
    """The device library, linked into kernels, shares structures with the host library: versions must be equal."""
    path, device_version = nvshmem_bitcode()
    host_version = nvshmem.get_version().libnvshmem_version
    if device_version != host_version:
        raise RuntimeError(
            f"NVSHMEM's host library has version {host_version}, but its device library {path} has version"
            f" {device_version}: install one version of both"
        )
