"""The device library, compiled for this machine."""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from device_tools import SOURCES, tool
from host_world import HostWorld


@pytest.fixture(scope="session")
def host_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all processes of this run: one compiles, and the others wait for it
    library = folder / "libdevice.so"
    with (folder / "libdevice.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(tmp_path_factory.mktemp("device"), library)
    return ctypes.CDLL(str(library))


def _compile(directory: Path, library: Path) -> None:
    options = [
        "-DTRITON_DIST_PRETENDED_HOSTS",
        f"-I{SOURCES}",
        "-std=c++17",
        "-fPIC",
        "-fno-strict-aliasing",
        "-fwrapv",
        "-fno-operator-names",
        "-Wno-psabi",
    ]
    sources = [file for file in SOURCES.glob("*.cpp") if file.stem != "StateLayout"] + [
        Path(__file__).with_name("host.cpp")
    ]

    def compile_(source: Path) -> str:
        output = str(directory / f"{source.stem}.o")
        # Of every operation on every type: optimizing these takes as long as ten times the rest.
        level = "-O0" if source.stem == "Reduce" else "-O1"
        subprocess.run([tool("clang"), *options, level, "-c", str(source), "-o", output], check=True)
        return output

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_, sources))
    subprocess.run([tool("clang"), "-shared", "-o", str(library), *objects], check=True)


@pytest.fixture
def world(host_library: ctypes.CDLL, n_pes: int) -> HostWorld:
    return HostWorld(host_library, n_pes)
