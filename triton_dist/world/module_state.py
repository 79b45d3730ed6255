"""NVSHMEM's state inside loaded GPU modules: who needs it, and that nobody runs without it.

A kernel that was linked with NVSHMEM's device library carries a global that the host library must fill before the first
launch. Triton tells about every module it loads, from its disk cache too, and whether the global is there tells whether
the module needs it: no list of kernels, no names. Modules outlive worlds, so they are remembered: those loaded before
``init()`` are filled by it, and those of a finalised world are filled again by the next. While a module waits to be
filled, a guard stands before every launch and refuses that module; otherwise there is no guard, and launches cost what
they always did.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Module", "bind", "install", "unbind"]

STATE_SYMBOL = b"nvshmemi_device_state_d"


@dataclass(frozen=True)
class Module:
    """A loaded module that needs NVSHMEM's state: its CUmodule, the kernel it was loaded for, and on which GPU."""

    handle: int
    kernel: str
    device: int


@dataclass(frozen=True)
class _World:
    device: int
    fill: Callable[[Module], None]


_modules: dict[int, Module] = {}  # by CUfunction, which is what a launch hook gets; Triton unloads none
_waiting: set[int] = set()  # those of _modules that are not filled
_world: _World | None = None  # the present one


def install() -> None:
    """Ask Triton to tell about the modules it loads. A second call changes nothing."""
    from triton import knobs

    knobs.runtime.kernel_load_end_hook.add(_loaded)


def bind(device: int, fill: Callable[[Module], None]) -> None:
    """A world on a GPU began: ``fill`` its modules that wait for one, and each that is loaded there from now on."""
    global _world
    _world = _World(device, fill)
    for function in tuple(_waiting):
        _fill(function)
    _place_guard()


def unbind() -> list[Module]:
    """The world ends: every module waits for the next one. Returns those that this world had filled."""
    global _world
    filled = [module for function, module in _modules.items() if function not in _waiting]
    _world = None
    _waiting.update(_modules)
    _place_guard()
    return filled


def _loaded(module: int, function: int, name: str, metadata_group: Mapping[str, str], key: str) -> None:
    if not _needs_state(module):
        return
    _modules[function] = Module(module, name, _current_device())
    _waiting.add(function)
    try:
        _fill(function)
    finally:
        _place_guard()  # also when filling failed: Triton keeps the module and would launch it at the next call


def _fill(function: int) -> None:
    if _world is not None and _world.device == _modules[function].device:
        _world.fill(_modules[function])
        _waiting.discard(function)


def _place_guard() -> None:
    from triton import knobs

    if _waiting:
        knobs.runtime.launch_enter_hook.add(_refuse)
    else:
        knobs.runtime.launch_enter_hook.remove(_refuse)


def _refuse(metadata: Any) -> None:
    """Before a launch: an error for a kernel whose module is not filled, which would crash."""
    function = metadata.get()["function"]
    if function not in _waiting:
        return
    module = _modules[function]
    if _world is None:
        raise RuntimeError(
            f"kernel {module.kernel} uses shmem ops, and there is no world: call triton_dist.init() first"
        )
    if module.device != _world.device:
        raise RuntimeError(
            f"kernel {module.kernel} uses shmem ops and is launched on cuda:{module.device}, but this PE's symmetric"
            f" heap is on cuda:{_world.device}"
        )
    raise RuntimeError(
        f"kernel {module.kernel} did not get this world's state when it was loaded: see the earlier error"
    )


def _needs_state(module: int) -> bool:
    driver = _cuda_driver()
    if driver is None:
        return False
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = driver.cuModuleGetGlobal_v2(
        ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(module), ctypes.c_char_p(STATE_SYMBOL)
    )
    return bool(status == 0)


def _current_device() -> int:
    from triton.runtime import driver

    return int(driver.active.get_current_device())


@functools.cache
def _cuda_driver() -> ctypes.CDLL | None:
    """The CUDA driver, which has loaded the module, or None on AMD GPUs, where there is nothing to fill yet."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
