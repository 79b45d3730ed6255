"""What must hold when a kernel with shmem ops is launched, looked at before it is.

Four mistakes end in a hang, in overwritten memory or in a device assertion, and the host can see them coming: a
kernel with a collective whose grid is larger than what the GPU runs at a time (programs that wait keep those that they
wait for from starting), an argument that an op takes for symmetric although it is none, or although it was freed, and a
reducescatter that is larger than NVSHMEM's memory for it. The compiler notes in the kernel's metadata what there is to
look at (``triton_dist.compiler.hooks``), and the launcher of such a kernel, and of no other, gets ours in front.

What cannot be seen: programs of one grid that wait for each other, other kernels that occupy the GPU, and pointers and
sizes that were loaded or computed inside of the kernel.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_dist import environment, triton_api
from triton_dist.gpu import module_state
from triton_dist.gpu.shared_gpu import multiprocessors_to_fill
from triton_dist.gpu.waiting_kernels import PlacedLauncher, WaitingKernels
from triton_dist.process_state import of_process

__all__ = [
    "CheckedLauncher",
    "LaunchChecks",
    "Requirements",
    "SymmetricMemory",
    "install",
    "launcher_of_repeats",
    "place_checks",
]

_HIDDEN = triton_api.LAUNCHER_ARGUMENTS


class SymmetricMemory:
    """What a world has, as far as launches need it.

    Args:
        contains: whether an address is symmetric.
        freed: whether memory at a symmetric address was freed, and belongs to no tensor.
        owner: whose memory it is, for messages.
        scatter_limit: how many bytes each PE may contribute to a reducescatter of NVSHMEM's.
    """

    def __init__(
        self, contains: Callable[[int], bool], freed: Callable[[int], bool], owner: str, scatter_limit: int
    ) -> None:
        self.contains = contains
        self.freed = freed
        self.owner = owner
        self.scatter_limit = scatter_limit
        self.low, self.high = sys.maxsize, -1  # the first and the last symmetric address that was asked about

    def learn(self, address: int) -> bool:
        """Whether an address that was not asked about before is symmetric; what lies between two such is, too."""
        if not self.contains(address):
            return False
        self.low, self.high = min(self.low, address), max(self.high, address)
        return True


class LaunchChecks:
    """What launches are checked against. One for each process: loaded kernels outlive worlds."""

    memory: SymmetricMemory | None = None
    """The present world's."""
    shares_gpu: bool = False
    """Whether PEs of the present world share a GPU."""


def install() -> None:
    """Look at launches of kernels that are loaded from now on. A second call changes nothing."""
    triton_api.extend_loading(_place_checks, _has_state)
    triton_api.extend_autotuning()


def _has_state(kernel: Any) -> bool:
    """Whether worlds write to a kernel's module, as long as the process lives."""
    return hasattr(kernel.metadata, "shmem")


def _place_checks(kernel: Any) -> None:
    facts = getattr(kernel.metadata, "shmem", None)
    if not facts:
        return
    if name := triton_api.autotuned_kernel():
        warnings.warn(
            f"triton.autotune measures {name}, a kernel with shmem ops: each PE launches it as often as it finds, and"
            " chooses by itself, so PEs may wait for each other for ever or run different configurations. Use"
            " triton_dist.autotune, which takes the same arguments",
            RuntimeWarning,
            stacklevel=2,
        )
    kernel._run = triton_api.direct_launcher(kernel._run, kernel)
    place_checks(kernel)


def place_checks(kernel: Any) -> None:
    """Put our launchers in front of that of a loaded kernel with shmem ops, ``_run``.

    ``kernel`` is Triton's, or has the same ``name, module, function, metadata`` and ``src.fn.arg_names``.
    """
    facts = kernel.metadata.shmem
    if environment.get("TRITON_DIST_LAUNCH_CHECKS"):
        kernel._run = _checked(kernel, facts)
    if sites := facts.get("waits"):
        kernel._run = of_process(WaitingKernels).loaded(kernel, sites)


@dataclass(frozen=True)
class Requirements:
    """What a kernel needs at every launch. Arguments are told by their position among the kernel's."""

    kernel: str
    """Its name, for messages, as are the other strings."""
    collective: str = ""
    """The first collective and its line; empty when there is none."""
    resident: int = 0
    """How many programs the GPU runs at a time."""
    symmetric: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """Arguments that are symmetric: the name, and the op with its line."""
    scatters: tuple[tuple[int, int, str], ...] = ()
    """Arguments that are sizes of reducescatters: position, bytes of an element, the op with its line."""
    largest_scatter: tuple[int, str] = (0, "")
    """Of those of constant size: bytes, the op with its line."""


class CheckedLauncher:
    """A launcher of Triton's that looks first, at what ``requirements`` say."""

    def __init__(self, launcher: Any, requirements: Requirements) -> None:
        self._launcher = launcher
        self._checks = of_process(LaunchChecks)
        self._needs = requirements
        self._most_programs = requirements.resident if requirements.collective else 1 << 96
        self._pointers = tuple(_HIDDEN + position for position in requirements.symmetric)

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, *arguments: Any) -> None:
        if grid_x * grid_y * grid_z > self._most_programs:
            self._refuse_grid((grid_x, grid_y, grid_z))
        memory = self._checks.memory
        if memory is not None:
            for position in self._pointers:
                address = arguments[position].data_ptr()
                if not memory.low <= address <= memory.high:
                    self._look_closer(memory, position, arguments[position], address)
                if memory.freed(address):
                    self._refuse_freed(position, arguments[position])
            if self._needs.largest_scatter[0] > memory.scatter_limit:
                self._refuse_scatter(memory, *self._needs.largest_scatter)
            for position, nbytes, use in self._needs.scatters:
                if arguments[_HIDDEN + position] * nbytes > memory.scatter_limit:
                    self._refuse_scatter(memory, arguments[_HIDDEN + position] * nbytes, use)
        self._launcher(grid_x, grid_y, grid_z, *arguments)

    def passed(self, symmetric: Sequence[bool]) -> Any:
        """The launcher for launches that pass because an equal one did: only the first arguments are others.

        Args:
            symmetric: which of these are known to be symmetric, and not freed, at every launch.
        """
        known = all(symmetric[position] for position in self._needs.symmetric if position < len(symmetric))
        return self._launcher if known else self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)

    def _refuse_grid(self, grid: tuple[int, int, int]) -> None:
        programs = grid[0] * grid[1] * grid[2]
        raise RuntimeError(
            f"kernel {self._needs.kernel} has a collective ({self._needs.collective}) and is launched with {programs}"
            f" programs, grid {grid}, but this GPU runs {self._needs.resident} of them at a time: programs that wait"
            " would keep others from starting. Launch fewer, each with a loop over its part of the work"
        )

    def _look_closer(self, memory: SymmetricMemory, position: int, tensor: Any, address: int) -> None:
        if address == 0 or memory.learn(address):  # 0: a tensor without elements, with which nothing is done
            return
        what, use = self._told(position, tensor, address)
        from triton_dist.world.raw_tensor import of_another_backend  # with PyTorch, which kernels do without

        theirs = of_another_backend(tensor) if hasattr(tensor, "untyped_storage") else ""
        raise ValueError(
            f"{what}, is not in the symmetric heap of {memory.owner}, and must be ({use}):"
            f" {theirs or 'allocate it with triton_dist.empty, zeros, full or from_tensor'}"
        )

    def _refuse_freed(self, position: int, tensor: Any) -> None:
        what, use = self._told(position, tensor, tensor.data_ptr())
        raise ValueError(f"{what}, is a symmetric tensor that was freed ({use})")

    def _told(self, position: int, tensor: Any, address: int) -> tuple[str, str]:
        """An argument in words, and what is done with it where."""
        name, use = self._needs.symmetric[position - _HIDDEN]
        what = f" of shape {tuple(tensor.shape)} and {tensor.dtype}" if hasattr(tensor, "shape") else ""
        return f"kernel {self._needs.kernel}: argument {name}, a tensor{what} at {address:#x}", use

    def _refuse_scatter(self, memory: SymmetricMemory, nbytes: int, use: str) -> None:
        raise RuntimeError(
            f"kernel {self._needs.kernel}: a reducescatter of {nbytes} bytes for each PE ({use}) is more than NVSHMEM"
            f" has memory for, {memory.scatter_limit}: set NVSHMEM_REDUCE_SCRATCH_SIZE to twice what all PEs' parts"
            " need together before the program starts"
        )


def _checked(kernel: Any, facts: Mapping[str, Any]) -> Any:
    """The launcher of a kernel that was just loaded, with ours in front if there is something to look at."""
    names = list(kernel.src.fn.arg_names) if hasattr(kernel.src, "fn") else []
    collective = facts.get("collective", "")
    resident = _resident_programs(kernel) if collective else 0
    scratch = [(size, int(nbytes), use) for size, nbytes, use in facts.get("scratch", ())]
    requirements = Requirements(
        kernel=kernel.name,
        collective=collective if resident else "",
        resident=resident,
        symmetric={names.index(name): (name, use) for name, use in facts.get("symmetric", {}).items() if name in names},
        scatters=tuple((names.index(size), nbytes, use) for size, nbytes, use in scratch if size in names),
        largest_scatter=max(
            ((int(size) * nbytes, use) for size, nbytes, use in scratch if size.isdigit()), default=(0, "")
        ),
    )
    if requirements == Requirements(kernel.name):
        return kernel._run
    return CheckedLauncher(kernel._run, requirements)


def launcher_of_repeats(launcher: Any, symmetric: Sequence[bool], depth: int) -> Any:
    """See :meth:`triton_dist.world.base.World.launcher_of_repeats`."""
    placed = launcher if isinstance(launcher, PlacedLauncher) else None
    inner = placed.launcher if placed is not None else launcher
    if isinstance(inner, CheckedLauncher):
        inner = inner.passed(symmetric)
    return placed.below(depth, inner) if placed is not None else inner


def _resident_programs(kernel: Any) -> int:
    """How many programs of a loaded kernel the current GPU runs at a time; 0 when that is not known."""
    cuda = module_state.cuda_driver()
    if cuda is None:
        return 0
    blocks = ctypes.c_int()
    status = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(blocks),
        ctypes.c_void_p(kernel.function),
        ctypes.c_int(kernel.metadata.num_warps * triton_api.warp_size()),
        ctypes.c_size_t(kernel.metadata.shared),
    )
    if status != 0:
        return 0
    multiprocessors = triton_api.device_properties(triton_api.current_device())["multiprocessor_count"]
    return blocks.value * multiprocessors_to_fill(multiprocessors, shared=of_process(LaunchChecks).shares_gpu)
