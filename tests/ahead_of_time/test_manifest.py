"""Manifests are read back as they were written, and nothing in them is believed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from triton_dist import ahead_of_time
from triton_dist.ahead_of_time import ManifestError
from triton_dist.ahead_of_time.manifest import parse, read_file


@pytest.fixture
def ring(made: Any, tmp_path: Path) -> Path:
    """A manifest to be changed, with its files."""
    shutil.copytree(made.manifest("ring").parent, tmp_path / "copy")
    return tmp_path / "copy" / "ring.json"


def change(path: Path, place: str, value: object) -> None:
    """Set the member at ``a.0.b``; remove it where the value is ``...``."""
    found = document = json.loads(path.read_text())
    *outer, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    for part in outer:
        found = found[part]
    if value is ...:
        del found[last]
    else:
        found[last] = value
    path.write_text(json.dumps(document))


def test_it_is_read_back(ring: Path) -> None:
    manifest = ahead_of_time.read(ring)
    assert json.loads(manifest.to_json()) == json.loads(ring.read_text())
    assert read_file(ring, manifest.binary) == (ring.parent / "ring.cubin").read_bytes()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("format", 2, r"format 2, and this version of triton_dist reads format 1: compile the kernel again"),
        ("format", "1", r"format: a str where a whole number from 1 to 1 is expected"),
        ("kernel", ..., r"there is no kernel"),
        ("more", 1, r"there is an unknown member 'more'"),
        ("kernel", "a b", r"kernel: 'a b' where a name is expected"),
        ("target", "cuda:ninety", r"target: 'cuda:ninety' where a target such as"),
        ("target", "hip:gfx942", r"files: there is no hsaco"),
        ("files.cubin", ..., r"files: there is no cubin"),
        ("files.cubin.name", "../ring.cubin", r"files: cubin: name: .* the name of a file in the same folder"),
        ("files.cubin.name", "..", r"files: cubin: name: "),
        ("files.cubin.bytes", -1, r"files: cubin: bytes: -1 where a whole number from 1"),
        ("files.cubin.bytes", 1e3, r"files: cubin: bytes: 1000\.0 where"),
        ("files.cubin.sha256", "0" * 63, r"files: cubin: sha256: "),
        ("files.exe", {}, r"ptx, cubin, amdgcn or hsaco is expected"),
        ("num_warps", 64, r"num_warps: 64 where"),
        ("num_warps", True, r"num_warps: True where"),
        ("warp_size", 64, r"warp_size: 64 on cuda:90"),
        ("shared", 1 << 40, r"shared: "),
        ("grid", [1, 1], r"grid: a list where a list of 3 is expected"),
        ("grid", [1, 0, 1], r"grid: 0 where"),
        ("arguments.0.type", "*int", r"arguments: type: '\*int' where a type such as"),
        ("arguments.0.name", "n", r"arguments: two have the same name"),
        ("arguments.0.divisible_by_16", 1, r"divisible_by_16: 1 where true or false"),
        ("unused_pointers", 99, r"unused_pointers: 99"),
        ("state.0.library", "libc", r"state: library: 'libc' where the name of a device library"),
        ("requirements.symmetric", {"m": "use"}, r"requirements: there is no argument m"),
        ("requirements.other", 1, r"requirements: there is an unknown member 'other'"),
        ("requirements.waits", [["one"]], r"requirements: waits: a wait of 1 words"),
        ("requirements.scratch", [["n", "-4", "use"]], r"requirements: scratch: "),
        ("transport", "nccl", r"transport: 'nccl' where"),
    ],
)
def test_what_cannot_be_is_refused(ring: Path, place: str, value: object, message: str) -> None:
    change(ring, place, value)
    with pytest.raises(ManifestError, match=message):
        ahead_of_time.read(ring)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}', b" " * (1 << 20) + b"{}", b"9" * 9999],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "kernel.json").write_bytes(data)
    with pytest.raises(ManifestError, match=r"kernel\.json is no manifest of a compiled kernel: "):
        ahead_of_time.read(tmp_path / "kernel.json")


def test_files_are_those_that_were_compiled(ring: Path) -> None:
    manifest = ahead_of_time.read(ring)
    binary = ring.parent / "ring.cubin"
    data = binary.read_bytes()
    for other, message in ((data[:-1], "bytes where"), (data + b"\0", "more bytes"), (b"\0" + data[1:], "SHA-256")):
        binary.write_bytes(other)
        with pytest.raises(ManifestError, match=message):
            read_file(ring, manifest.binary)
    binary.unlink()
    with pytest.raises(FileNotFoundError):
        read_file(ring, manifest.binary)


def test_nonsense_is_refused_or_valid(made: Any, tmp_path: Path) -> None:
    """Sound manifests that were changed a little: an error of their own kind, and nothing worse. The seed is fixed."""
    chance = random.Random(20240611)
    sound = made.manifest("ring").read_bytes()
    scraps = [
        b"[",
        b"]",
        b'"',
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"NaN",
        b"9" * 400,
        b"\\ud800",
        b"\0",
        b"\xff",
        b"{}",
    ]
    accepted = 0
    for _ in range(3000):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 3)):
            at, removed = chance.randrange(len(data)), chance.choice((0, 1, 5))
            data[at : at + removed] = chance.choice([*scraps, bytes([chance.randrange(256)])])
        try:
            manifest = parse(bytes(data), tmp_path / "ring.json")
        except ManifestError:
            continue
        accepted += 1
        assert parse(manifest.to_json().encode(), tmp_path / "ring.json") == manifest
    assert accepted < 1500
