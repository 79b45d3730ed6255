"""Device libraries: where each transport's bitcode lies, which version it has, and the part of it that a kernel calls.

NVSHMEM's bitcode has 31 MB, and linking it takes seconds per kernel. The plugin extracts the routines that one kernel
calls, a few kilobytes, in a few hundredths of a second; Triton's cache keeps the extract for all kernels that call the
same, and writes it safely when several processes make it at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import _triton_dist_loader
from triton_dist import triton_api

__all__ = [
    "DeviceLibrary",
    "MissingRoutineError",
    "find",
    "linked_bitcode",
    "nvshmem_bitcode",
    "plugin_hash",
]

_NVSHMEM_VERSION_HEADER = "include/non_abi/nvshmem_version.h"
_INSTALL_NVSHMEM = "pip install nvidia-nvshmem-cu13==3.4.5 (-cu12 with CUDA 12), or set NVSHMEM_HOME to an NVSHMEM"


@dataclass(frozen=True)
class DeviceLibrary:
    """Bitcode that kernels can be linked with."""

    transport: str
    path: Path
    version: str

    @property
    def link_name(self) -> str:
        """What Triton is to call it: its AMD backend links a library when an undefined symbol contains the name."""
        return {"p2p": "triton_dist", "rocshmem-6": "rocshmem"}.get(self.transport, self.transport)


class MissingRoutineError(Exception):
    """A device library lacks a routine; its name is the argument."""


def find(transport: str, architecture: str, *, pretends_hosts: bool = False) -> DeviceLibrary:
    """The library of a transport for a GPU: ``"sm_90"``, ``"gfx942"``.

    ``pretends_hosts``: the variant of ``p2p`` that asks at run time which PEs are on this host. It has NVSHMEM's
    question for that, too, ``nvshmem_ptr``, for kernels of that transport.

    Raises:
        FileNotFoundError: there is none; the message says what to install.
    """
    if transport == "nvshmem":
        path, version = nvshmem_bitcode(architecture)
        return DeviceLibrary(transport, path, version)
    if transport == "p2p":
        family = "amdgcn" if architecture.startswith("gfx") else "nvptx64"
        hosts = "hosts_" if pretends_hosts else ""
        path = Path(_triton_dist_loader.plugin_path()).parent / f"p2p_{hosts}{family}.bc"
        if not path.is_file():
            raise FileNotFoundError(
                f"triton_dist's own device library is not built ({path}). In a source tree: make build"
            )
        return DeviceLibrary(transport, path, _digest(path))
    home = Path(os.environ.get("ROCSHMEM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm")
    path, version = _rocshmem_bitcode(home, architecture)
    return DeviceLibrary(transport, path, version)


@cache
def nvshmem_bitcode(architecture: str = "sm_90") -> tuple[Path, str]:
    """Path and version ("3.4.5") of NVSHMEM's device library.

    Looked for in ``NVSHMEM_HOME`` and in the package ``nvidia.nvshmem`` of the NVIDIA wheels. Up to 3.6 one file is for
    all architectures. From 3.7 on there are files for some architectures; a GPU takes the newest that is not newer than
    itself, since what is compiled for a GPU also runs on later ones.

    Raises:
        FileNotFoundError: there is none, or its version cannot be told; the message says what to install.
    """
    homes = _nvshmem_homes()
    for home in homes:
        if (bitcode := _nvshmem_file(home / "lib", architecture)) is not None:
            return bitcode, _nvshmem_version(home)
    looked = ", ".join(map(str, homes)) or "no NVSHMEM is installed"
    raise FileNotFoundError(
        f"NVSHMEM's device library for {architecture}, lib/libnvshmem_device.bc or lib/libnvshmem_device_sm_*.bc, was "
        f"not found ({looked}): {_INSTALL_NVSHMEM}"
    )


def linked_bitcode(library: DeviceLibrary, routines: tuple[str, ...]) -> Path:
    """The part of ``library`` that a kernel which calls ``routines`` is linked with.

    Raises:
        MissingRoutineError: the library lacks one of them.
        RuntimeError: it cannot be read.
    """
    stat = library.path.stat()
    identity = f"triton_dist {plugin_hash()} {library} {stat.st_size} {stat.st_mtime_ns} {' '.join(sorted(routines))}"
    key = hashlib.sha256(identity.encode()).hexdigest()
    return Path(triton_api.cached_file(key, f"{library.transport}.bc", lambda: _extract(library.path, routines)))


@cache
def _rocshmem_bitcode(home: Path, architecture: str) -> tuple[Path, str]:
    """Path and version of ROCSHMEM's device library; the version covers those of all architectures."""
    names = [f"librocshmem_device_{architecture}.bc", "librocshmem_device.bc"]
    for name in names:
        if (home / "lib" / name).is_file():
            digests = "".join(_digest(file) for file in sorted((home / "lib").glob("librocshmem_device*.bc")))
            return home / "lib" / name, hashlib.sha256(digests.encode()).hexdigest()
    raise FileNotFoundError(
        f"ROCSHMEM's device library lib/{names[0]} was not found in {home}: set ROCSHMEM_HOME to a ROCSHMEM that was "
        "built with device bitcode (see docs/amd.md)"
    )


@cache
def plugin_hash() -> str:
    """Identifies the plugin's binary."""
    return _digest(Path(_triton_dist_loader.plugin_path()))


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _extract(whole: Path, routines: tuple[str, ...]) -> bytes:
    plugin = ctypes.CDLL(_triton_dist_loader.plugin_path())
    message = ctypes.create_string_buffer(1024)
    with tempfile.TemporaryDirectory() as directory:
        extract = Path(directory, "extract.bc")
        names = "\n".join(sorted(routines)).encode()
        arguments = (os.fsencode(whole), os.fsencode(extract), names, message, ctypes.c_size_t(len(message)))
        status = plugin.tritonDistExtractDeviceLibrary(*arguments)
        if status == 2:
            raise MissingRoutineError(message.value.decode())
        if status:
            raise RuntimeError(f"a device library cannot be used: {message.value.decode()}")
        return extract.read_bytes()


def _nvshmem_homes() -> list[Path]:
    if home := os.environ.get("NVSHMEM_HOME"):
        return [Path(home)]
    try:
        package = importlib.util.find_spec("nvidia.nvshmem")
    except ModuleNotFoundError:
        return []
    return [Path(place) for place in (package.submodule_search_locations or ())] if package else []


def _nvshmem_file(folder: Path, architecture: str) -> Path | None:
    """The bitcode in a folder for ``"sm_90"``; None when there is none."""
    wanted = re.match(r"sm_(\d+)", architecture)
    files = {}
    for file in folder.glob("libnvshmem_device_sm_*.bc"):
        if (found := re.fullmatch(r".*_sm_(\d+)\.bc", file.name)) and wanted and int(found[1]) <= int(wanted[1]):
            files[int(found[1])] = file
    if files:
        return files[max(files)]
    for_all = folder / "libnvshmem_device.bc"
    return for_all if for_all.is_file() else None


def _nvshmem_version(home: Path) -> str:
    header = home / _NVSHMEM_VERSION_HEADER
    try:
        text = header.read_text(encoding="utf-8")
    except OSError as error:
        raise FileNotFoundError(f"NVSHMEM's version header cannot be read ({error}): {_INSTALL_NVSHMEM}") from None
    parts = [re.search(rf"NVSHMEM_VENDOR_{part}_VERSION\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    if not all(parts):
        raise FileNotFoundError(f"{header} does not tell NVSHMEM's version: {_INSTALL_NVSHMEM}")
    return ".".join(part.group(1) for part in parts if part)
