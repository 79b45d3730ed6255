"""The JSON file beside a kernel that was compiled ahead of time: what a loader must know, and must not believe.

A kernel may come from another user, so a reader validates every member: its type, its range, the sizes and
hashes of the files, and the version of the format. What a reader cannot validate is the machine code itself: a user who
loads a kernel trusts its author (SECURITY.md).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from triton_dist.decoding import (
    DecodingError,
    Schema,
    boolean,
    decode,
    fields,
    integer,
    mapping,
    matching,
    optional,
    record,
    sequence,
    text,
)

__all__ = ["FORMAT", "Argument", "File", "Manifest", "ManifestError", "State", "parse", "read", "read_file"]

FORMAT = 1
"""The version of the format. A reader accepts its own only."""

_LIMIT = 1 << 20  # bytes of a manifest
_MOST_BYTES = 1 << 28  # of a file
_MOST_ARGUMENTS = 1024
_INTEGERS = {f"{sign}{bits}": bits for sign in "iu" for bits in (8, 16, 32, 64)} | {"i1": 1}
_FLOATS = ("fp16", "bf16", "fp32", "fp64")
_ELEMENTS = (*_INTEGERS, *_FLOATS, "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15")


class ManifestError(ValueError):
    """A kernel's files cannot be used; the message names the file and says why."""


@dataclass(frozen=True)
class File:
    """A file beside the manifest."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Argument:
    """What a kernel takes, in its order."""

    name: str
    type: str
    """As Triton spells it: ``"*fp32"``, ``"i32"``. Pointers to ``i8`` of kernels from MLIR may point to anything."""
    divisible_by_16: bool = False
    """The kernel relies on it."""


@dataclass(frozen=True)
class State:
    """A global of the module that holds a device library's state, which the loader fills."""

    library: str
    """``"p2p"``, ``"nvshmem"``, ``"rocshmem"``, ``"rocshmem-6"``; ``"waits"``: reports of long waits, which may stay
    zero."""
    symbol: str
    bytes: int
    version: str
    """Of the library that the kernel was linked with; of ``p2p``: the layout of its state."""


@dataclass(frozen=True)
class Manifest:
    """A kernel that was compiled ahead of time."""

    format: int
    triton_dist: str
    triton: str
    kernel: str
    """Its symbol."""
    source: str
    target: str
    """``"cuda:90"``, ``"hip:gfx942"``."""
    files: Mapping[str, File]
    """By kind: ``"ptx"``, ``"cubin"``, ``"amdgcn"``, ``"hsaco"``."""
    num_warps: int
    warp_size: int
    shared: int
    """Bytes of dynamic shared memory."""
    grid: tuple[int, int, int] | None
    """None: the launch says it."""
    arguments: tuple[Argument, ...]
    unused_pointers: int
    """How many null pointers the kernel takes behind its arguments: Triton's scratch memory."""
    constants: Mapping[str, str]
    """What was compiled into the kernel, for readers."""
    transport: str
    state: tuple[State, ...]
    requirements: Mapping[str, Any] = field(default_factory=dict)
    """What must hold at a launch, for :mod:`triton_dist.gpu.launch_check`: the first ``collective``, ``symmetric``
    arguments, ``waits``, and ``scratch`` memory of NVSHMEM."""

    @property
    def binary(self) -> File:
        """What a driver loads."""
        return self.files["hsaco" if self.target.startswith("hip") else "cubin"]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


_NAME = matching(r"[A-Za-z_][A-Za-z0-9_.$]{0,4000}", "a name")
_USE = text(4000)
_FILE = fields(
    name=matching(r"[\w+-][\w.+-]{0,200}", "the name of a file in the same folder"),
    bytes=integer(1, _MOST_BYTES),
    sha256=matching(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal digits"),
)


_ARGUMENT = fields(
    name=_NAME,
    type=matching(rf"\*?({'|'.join(_ELEMENTS)})", "a type such as *fp32 or i32"),
    divisible_by_16=boolean,
)
_STATE = fields(
    library=matching("p2p|nvshmem|rocshmem|rocshmem-6|waits", "the name of a device library"),
    symbol=_NAME,
    bytes=integer(1, 1 << 20),
    version=text(200),
)


def _wait(value: Any) -> Any:
    """Op, compared type, and source lines, if any."""
    words = sequence(_USE, 100)(value)
    if len(words) < 2:
        raise DecodingError(f"a wait of {len(words)} words")
    return words


_REQUIREMENTS: dict[str, Schema] = {
    "collective": _USE,
    "symmetric": mapping(_NAME, _USE, _MOST_ARGUMENTS),
    "waits": sequence(_wait, 10000),
    "scratch": sequence(
        record(matching(r"\d{1,18}|[A-Za-z_]\w*", "a size"), matching(r"\d\d?", "a size"), _USE), 10000
    ),
}


def _requirements(value: Any) -> dict[str, Any]:
    present = value.keys() if type(value) is dict else ()
    schemas = {name: schema for name, schema in _REQUIREMENTS.items() if name in present}
    checked: dict[str, Any] = fields(**schemas)(value)
    return checked


_MANIFEST = fields(
    format=integer(FORMAT, FORMAT),
    triton_dist=text(100),
    triton=text(100),
    kernel=_NAME,
    source=text(4000),
    target=matching(r"cuda:[1-9]\d{1,3}|hip:gfx[0-9a-f]{3,5}", "a target such as cuda:90 or hip:gfx942"),
    files=mapping(matching("ptx|cubin|amdgcn|hsaco", "ptx, cubin, amdgcn or hsaco"), _FILE, 4),
    num_warps=integer(1, 32),
    warp_size=integer(32, 64),
    shared=integer(0, 1 << 20),
    grid=optional(record(integer(1, 2**31 - 1), integer(1, 65535), integer(1, 65535))),
    arguments=sequence(_ARGUMENT, _MOST_ARGUMENTS),
    unused_pointers=integer(0, 8),
    constants=mapping(_NAME, text(4000), _MOST_ARGUMENTS),
    transport=matching("p2p|nvshmem|rocshmem|rocshmem-6", "the name of a transport"),
    state=sequence(_STATE, 4),
    requirements=_requirements,
)


def read(path: str | Path) -> Manifest:
    """Read and validate a manifest.

    Raises:
        ManifestError: it is not one, has another version, or says what cannot be.
        OSError: it cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        return parse(file.read(_LIMIT + 1), path)


def parse(data: bytes, path: Path) -> Manifest:
    """Validate the content of a manifest.

    Args:
        path: its file, for errors.

    Raises:
        ManifestError: as for :func:`read`.
    """
    found = re.search(rb'"format":\s*(\d{1,9})\b', data[:4096])
    if found and int(found[1]) != FORMAT:
        raise ManifestError(
            f"{path}: format {int(found[1])}, and this version of triton_dist reads format {FORMAT}: compile the kernel"
            " again with triton-dist-compile of this version"
        )
    try:
        value = decode(data, _MANIFEST, limit=_LIMIT)
        manifest = Manifest(
            **{
                **value,
                "files": {kind: File(**file) for kind, file in value["files"].items()},
                "arguments": tuple(Argument(**argument) for argument in value["arguments"]),
                "state": tuple(State(**state) for state in value["state"]),
            }
        )
        _check_consistent(manifest)
    except DecodingError as error:
        raise ManifestError(f"{path} is no manifest of a compiled kernel: {error}") from None
    return manifest


def _check_consistent(manifest: Manifest) -> None:
    binary = "hsaco" if manifest.target.startswith("hip") else "cubin"
    if binary not in manifest.files:
        raise DecodingError(f"files: there is no {binary}")
    if manifest.num_warps * manifest.warp_size > 1024:
        raise DecodingError(f"num_warps: {manifest.num_warps} of {manifest.warp_size} threads are more than 1024")
    names = [argument.name for argument in manifest.arguments]
    if len(set(names)) != len(names):
        raise DecodingError("arguments: two have the same name")
    if manifest.target.startswith("cuda") != (manifest.warp_size == 32):
        raise DecodingError(f"warp_size: {manifest.warp_size} on {manifest.target}")
    if unknown := set(manifest.requirements.get("symmetric", ())) - set(names):
        raise DecodingError(f"requirements: there is no argument {min(unknown)}")


def read_file(path: str | Path, file: File) -> bytes:
    """The content of a file beside the manifest at ``path``, which is what the manifest says.

    Raises:
        ManifestError: it has another size or content.
        OSError: it cannot be read.
    """
    place = Path(path).parent / file.name
    with place.open("rb") as opened:
        data = opened.read(file.bytes + 1)
    if len(data) != file.bytes:
        more = "more" if len(data) > file.bytes else f"{len(data)}"
        raise ManifestError(f"{place}: {more} bytes where {path} says {file.bytes}")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise ManifestError(f"{place}: its SHA-256 is not that in {path}: one of them was replaced or damaged")
    return data
