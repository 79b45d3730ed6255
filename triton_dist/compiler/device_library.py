"""The device library that kernels are linked with: where its bitcode lies, which version it has, and the part of it
that our ops can call.

NVSHMEM's bitcode has 31 MB, and linking it takes seconds per kernel. The plugin extracts what the op table can call, a
few kilobytes, once per library and plugin; Triton's cache keeps the extract, and writes it safely when several
processes make it at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import tempfile
from functools import cache
from pathlib import Path

import _triton_dist_loader

__all__ = ["linked_bitcode", "nvshmem_bitcode", "plugin_hash"]

_BITCODE = "lib/libnvshmem_device.bc"
_VERSION_HEADER = "include/non_abi/nvshmem_version.h"
_INSTALL = "pip install nvidia-nvshmem-cu13==3.4.5, or set NVSHMEM_HOME to an installed NVSHMEM"


@cache
def nvshmem_bitcode() -> tuple[Path, str]:
    """Path and version ("3.4.5") of NVSHMEM's device library.

    Looked for in ``NVSHMEM_HOME`` and in the package ``nvidia.nvshmem`` of the NVIDIA wheels.

    Raises:
        FileNotFoundError: there is none, or its version cannot be told; the message says what to install.
    """
    homes = list(_homes())
    for home in homes:
        if (home / _BITCODE).is_file():
            return home / _BITCODE, _version(home)
    looked = ", ".join(map(str, homes)) or "no NVSHMEM is installed"
    raise FileNotFoundError(f"NVSHMEM's device library {_BITCODE} was not found ({looked}): {_INSTALL}")


@cache
def linked_bitcode() -> Path:
    """The part of ``nvshmem_bitcode()`` that kernels are linked with.

    Raises:
        FileNotFoundError: there is no NVSHMEM.
        RuntimeError: its bitcode cannot be read, or lacks a routine.
    """
    from triton.runtime.cache import get_cache_manager

    whole, version = nvshmem_bitcode()
    stat = whole.stat()
    identity = f"triton_dist {plugin_hash()} nvshmem {version} {whole} {stat.st_size} {stat.st_mtime_ns}"
    cache_entry = get_cache_manager(hashlib.sha256(identity.encode()).hexdigest())
    name = f"nvshmem_device-{version}.bc"
    if (kept := cache_entry.get_file(name)) is None:
        kept = cache_entry.put(_extract(whole), name, binary=True)
    return Path(kept)


@cache
def plugin_hash() -> str:
    """Identifies the plugin's binary."""
    return hashlib.sha256(Path(_triton_dist_loader.plugin_path()).read_bytes()).hexdigest()


def _extract(whole: Path) -> bytes:
    plugin = ctypes.CDLL(_triton_dist_loader.plugin_path())
    message = ctypes.create_string_buffer(1024)
    with tempfile.TemporaryDirectory() as directory:
        extract = Path(directory, "extract.bc")
        arguments = (os.fsencode(whole), os.fsencode(extract), message, ctypes.c_size_t(len(message)))
        if plugin.tritonDistExtractDeviceLibrary(*arguments):
            raise RuntimeError(f"NVSHMEM's device library cannot be used: {message.value.decode()}")
        return extract.read_bytes()


def _homes() -> list[Path]:
    if home := os.environ.get("NVSHMEM_HOME"):
        return [Path(home)]
    try:
        package = importlib.util.find_spec("nvidia.nvshmem")
    except ModuleNotFoundError:
        return []
    return [Path(place) for place in (package.submodule_search_locations or ())] if package else []


def _version(home: Path) -> str:
    header = home / _VERSION_HEADER
    try:
        text = header.read_text()
    except OSError as error:
        raise FileNotFoundError(f"NVSHMEM's version header cannot be read ({error}): {_INSTALL}") from None
    parts = [re.search(rf"NVSHMEM_VENDOR_{part}_VERSION\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    if not all(parts):
        raise FileNotFoundError(f"{header} does not tell NVSHMEM's version: {_INSTALL}")
    return ".".join(part.group(1) for part in parts if part)
