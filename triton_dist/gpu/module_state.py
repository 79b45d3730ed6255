"""The state of device libraries inside loaded GPU modules: which kernels need it, and that none runs without it.

A kernel that was linked with a device library carries a global that must be filled before the first launch: NVSHMEM's
by its host library, our own by us. Triton tells about every module it loads, from its disk cache too, and which global
is there tells what the module needs: no list of kernels, no names. Modules outlive worlds, so they are remembered:
those loaded before ``init()`` are filled by it, and those of a finalised world are filled again by the next. While a
module waits to be filled, a guard stands before every launch and refuses that module; otherwise there is no guard, and
launches cost what they always did.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from triton_dist import triton_api
from triton_dist.gpu import p2p
from triton_dist.process_state import of_process

__all__ = ["LoadedModules", "Module", "cuda_driver", "holds", "install", "write"]


@dataclass(frozen=True)
class Module:
    """A loaded module that needs state: its CUmodule, the kernel it was loaded for, on which GPU, and whose state."""

    handle: int
    kernel: str
    device: int
    transport: str


Fill = Callable[[Module], None]


@dataclass(frozen=True)
class _World:
    device: int
    fill: Mapping[str, Fill]
    lacking: Mapping[str, str]


class LoadedModules:
    """The modules that need state. One for each process: Triton unloads none, so they outlive worlds."""

    def __init__(self) -> None:
        self._changing = threading.RLock()  # worlds begin and end in one thread, and modules are loaded in others
        self._modules: dict[int, Module] = {}  # by CUfunction, which is what a launch hook gets
        self._waiting: set[int] = set()  # those of _modules that are not filled
        self._world: _World | None = None  # the present one

    def install(self) -> None:
        """Ask Triton to tell about the modules it loads. A second call changes nothing."""
        triton_api.on_module_load(self._loaded)

    def bind(self, device: int, fill: Mapping[str, Fill], lacking: Mapping[str, str]) -> None:
        """A world on a GPU began. Its modules that wait for one are filled, and each that is loaded there from now on.

        Args:
            fill: how, for every transport whose kernels work in this world.
            lacking: why not, for every other transport.
        """
        with self._changing:
            self._world = _World(device, fill, lacking)
            for function in tuple(self._waiting):
                self._fill(function)
            self._place_guard()

    def unbind(self) -> list[Module]:
        """The world ends: every module waits for the next one. Returns those that this world had filled."""
        with self._changing:
            filled = [module for function, module in self._modules.items() if function not in self._waiting]
            self._world = None
            self._waiting.update(self._modules)
            self._place_guard()
            return filled

    def refill(self, transport: str) -> None:
        """The state of a transport has changed: its modules that are filled are filled again. No kernel may run."""
        with self._changing:
            for function, module in self._modules.items():
                if self._world is not None and module.transport == transport and function not in self._waiting:
                    self._world.fill[transport](module)

    def add(self, module: int, function: int, name: str) -> None:
        """A module was loaded for kernel ``name`` on the current GPU. It is filled as soon as there is a world."""
        transport = _transport(module)
        if transport is None:
            return
        with self._changing:
            self._modules[function] = Module(module, name, triton_api.current_device(), transport)
            self._waiting.add(function)
            try:
                self._fill(function)
            finally:  # also when filling failed: Triton keeps the module and would launch it at the next call
                self._place_guard()

    def check_filled(self, function: int) -> None:
        """Raise RuntimeError before the launch of a kernel whose module waits to be filled, which would crash."""
        if function in self._waiting:
            self._refuse_module(self._modules[function])

    def _loaded(self, module: int, function: int, name: str, metadata_group: Mapping[str, str], key: str) -> None:
        self.add(module, function, name)

    def _fill(self, function: int) -> None:
        module = self._modules[function]
        if self._world is not None and self._world.device == module.device and module.transport in self._world.fill:
            self._world.fill[module.transport](module)
            self._waiting.discard(function)

    def _place_guard(self) -> None:
        triton_api.guard_launches(self._refuse, on=bool(self._waiting))

    def _refuse(self, metadata: Any) -> None:
        self.check_filled(metadata.get()["function"])

    def _refuse_module(self, module: Module) -> None:
        if self._world is None:
            raise RuntimeError(
                f"kernel {module.kernel} uses shmem ops, and there is no world: call triton_dist.init() first"
            )
        if module.device != self._world.device:
            raise RuntimeError(
                f"kernel {module.kernel} uses shmem ops and is launched on cuda:{module.device}, but this PE's"
                f" symmetric heap is on cuda:{self._world.device}"
            )
        if module.transport in self._world.lacking:
            raise RuntimeError(
                f"kernel {module.kernel} was compiled for transport {module.transport}, which this world does not have:"
                f" {self._world.lacking[module.transport]}"
            )
        raise RuntimeError(
            f"kernel {module.kernel} did not get this world's state when it was loaded: see the earlier error"
        )


def install() -> None:
    """Have this process's :class:`LoadedModules` told of them. A second call changes nothing."""
    of_process(LoadedModules).install()


def holds(module: int, symbol: str) -> bool:
    """Whether a module has a global of this name: one that no code uses any more is not there."""
    return _global(module, symbol) is not None


def write(module: Module, symbol: str, data: bytes) -> None:
    """Copy ``data`` to a global of a module."""
    driver = cuda_driver()
    assert driver is not None, "a module that was loaded without a driver"
    found = _global(module.handle, symbol)
    if found is None or found[1] != len(data):
        raise RuntimeError(
            f"kernel {module.kernel} was linked with another build of the {module.transport} device library: its"
            f" {symbol} has {found[1] if found else 0} bytes, and not {len(data)}"
        )
    status = driver.cuMemcpyHtoD_v2(ctypes.c_uint64(found[0]), ctypes.c_char_p(data), ctypes.c_size_t(len(data)))
    if status != 0:
        raise RuntimeError(f"the state of kernel {module.kernel} could not be copied to its GPU: CUDA error {status}")


def _transport(module: int) -> str | None:
    """Whose state a module needs, if any."""
    symbols = {"nvshmem": "nvshmemi_device_state_d", "p2p": p2p.state_symbol()}
    return next((transport for transport, symbol in symbols.items() if _global(module, symbol)), None)


def _global(module: int, symbol: str) -> tuple[int, int] | None:
    """Address and size of a global of a module."""
    driver = cuda_driver()
    if driver is None:
        return None
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = driver.cuModuleGetGlobal_v2(
        ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(module), ctypes.c_char_p(symbol.encode())
    )
    return (address.value, size.value) if status == 0 else None


@functools.cache
def cuda_driver() -> ctypes.CDLL | None:
    """The CUDA driver, which has loaded the module, or None on AMD GPUs, where there is nothing to fill yet."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
