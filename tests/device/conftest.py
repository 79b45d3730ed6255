"""The device library on this machine: compiled for the CPU, and for GPUs that are not there."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triton_dist.world import p2p

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "runtime" / "device"
LIBRARIES = ROOT / "triton_dist" / "_C"
LLVM = list(json.loads((ROOT / "cmake" / "supported_triton.json").read_text()).values())[-1]["llvm"]
TIMEOUT = 60.0  # seconds until PEs that wait for each other are taken for lost


def tool(name: str) -> str:
    """A program of the LLVM that the library is built with."""
    found = shutil.which(f"{name}-{LLVM}") or shutil.which(name, path=f"/usr/lib/llvm-{LLVM}/bin")
    assert found, f"{name} {LLVM} is not installed; scripts/install_system_packages.sh does that"
    return found


class Pe:
    """One PE of a :class:`HostWorld`, for the thread that is this PE."""

    def __init__(self, world: HostWorld, number: int) -> None:
        self.number = number
        self.n_pes = world.n_pes
        self._world = world

    def array(self, offset: int, count: int, dtype: Any, pe: int | None = None) -> np.ndarray:
        """Symmetric elements, of this PE or of another."""
        heap = self._world.heaps[self.number if pe is None else pe]
        return heap[offset : offset + count * np.dtype(dtype).itemsize].view(dtype)

    def call(self, name: str, *arguments: Any, result: Any = None) -> Any:
        """Call a routine. Arrays stand for their addresses; integers are 64-bit, which suits 32-bit arguments too."""
        routine = getattr(self._world.library, f"triton_dist_{name}")
        routine.restype = result
        return routine(*map(_argument, arguments))


class HostWorld:
    """PEs that are threads, their heaps side by side in this process, and the library compiled for this machine."""

    HEAP = 1 << 16

    def __init__(self, library: ctypes.CDLL, n_pes: int) -> None:
        self.library = library
        self.n_pes = n_pes
        size = self.HEAP + -(-p2p.sync_bytes() // 4096) * 4096
        memory = np.zeros(n_pes * size + 4096, dtype=np.uint8)
        start = -memory.ctypes.data % 4096
        self.heaps = [memory[start + pe * size : start + (pe + 1) * size] for pe in range(n_pes)]

    def run(self, program: Callable[[Pe], None]) -> None:
        """Run ``program`` on every PE at once, and raise what one of them raises."""
        errors: list[BaseException] = []

        def be(number: int) -> None:
            try:
                distances = [(number_ - number) * len(self.heaps[0]) for number_ in range(self.n_pes)]
                sync = self.heaps[number].ctypes.data + self.HEAP
                data = p2p.state(number, distances, sync)
                self.library.state.restype = ctypes.c_void_p
                ctypes.memmove(self.library.state(), data, len(data))
                program(Pe(self, number))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=be, args=(number,), daemon=True) for number in range(self.n_pes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(0.1 if errors else TIMEOUT)  # the others may be waiting for one that failed
        if errors:
            raise errors[0]
        assert not any(thread.is_alive() for thread in threads), "PEs wait for each other, and nobody comes"


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, (int, np.integer)):
        return ctypes.c_int64(int(value))
    return value


@pytest.fixture(scope="session")
def host_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    directory = tmp_path_factory.mktemp("device")
    options = ["-std=c++17", "-O1", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-fno-operator-names", "-Wno-psabi"]
    sources = [file for file in SOURCES.glob("*.cpp") if file.stem != "StateLayout"] + [
        Path(__file__).with_name("host.cpp")
    ]

    def compile_(source: Path) -> str:
        output = str(directory / f"{source.stem}.o")
        command = [tool("clang"), *options, f"-I{SOURCES}", "-c", str(source), "-o", output]
        subprocess.run(command, check=True)
        return output

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_, sources))
    library = directory / "libdevice.so"
    subprocess.run([tool("clang"), "-shared", "-o", str(library), *objects], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture
def world(host_library: ctypes.CDLL, n_pes: int) -> HostWorld:
    return HostWorld(host_library, n_pes)
