"""triton-dist-compile: what it writes for kernels, and what it says of mistakes."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any

import pytest
from requests_to_compile import GOOD, SOURCE, WRONG

from triton_dist import ahead_of_time
from triton_dist.ahead_of_time import compiling
from triton_dist.ahead_of_time.manifest import Argument
from triton_dist.gpu import p2p


@pytest.mark.parametrize("case", GOOD)
def test_kernels_are_compiled(case: str, made: Any) -> None:
    status, errors = made.answers[case]
    assert status == 0, errors
    files = {file.suffix for file in (made.folder / case).iterdir()}
    assert files == ({".amdgcn", ".hsaco", ".json"} if case == "amd" else {".ptx", ".cubin", ".json", ".h"})


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_error(case: str, made: Any) -> None:
    status, errors = made.answers[case]
    assert status == 1
    assert re.search(WRONG[case][1], errors.replace(str(made.folder), "FOLDER").strip()), errors
    assert errors.startswith("triton-dist-compile: ") and "Traceback" not in errors


def test_a_file_that_cannot_be_written_is_named_and_not_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a full disk, of whose error Python does not know the file."""
    path = tmp_path / "kernel.ptx"

    def full(file: Path, data: bytes) -> None:
        file.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{path}'"):
        compiling._write_file(path, b"text")
    assert not path.exists()


def test_the_manifest_says_what_a_loader_fills(made: Any) -> None:
    ring = ahead_of_time.read(made.manifest("ring"))
    assert ring.arguments == (
        *(Argument("out", "*fp32", True), Argument("signal", "*i64"), Argument("n", "i32"), Argument("scale", "fp32")),
    )
    assert ring.constants == {"BLOCK": "256"} and ring.unused_pointers == 2 and ring.grid is None
    assert (ring.num_warps, ring.warp_size, ring.shared, ring.target) == (4, 32, 16, "cuda:90")
    assert {state.library: state.symbol for state in ring.state} == {
        "p2p": p2p.state_symbol(),
        "waits": p2p.wait_symbol(),
    }
    assert {state.version for state in ring.state} == {p2p.layout_version()}
    assert re.fullmatch(rf"{SOURCE}:\d+:\d+: shmem\.signal_op, sig_addr", ring.requirements["symmetric"]["signal"])
    assert ring.requirements["waits"] == (("signal_wait_until", "u64", f"{SOURCE}:16"),)
    assert "collective" not in ring.requirements


def test_lines_are_those_of_the_file_and_not_of_a_copy(made: Any) -> None:
    """Triton's cache has one entry for both."""
    for case, file in {"ring": SOURCE, "copied": made.folder / "copy" / SOURCE.name}.items():
        (wait,) = ahead_of_time.read(made.manifest(case)).requirements["waits"]
        assert wait[2] == f"{file}:16"


def test_the_manifest_says_what_a_launch_needs(made: Any) -> None:
    meet = ahead_of_time.read(made.manifest("meet"))
    assert meet.grid == (8, 1, 1) and meet.num_warps == 8
    assert meet.requirements["collective"].endswith("shmem.barrier_all")


def test_kernels_of_other_transports_name_their_state(made: Any) -> None:
    nvshmem = ahead_of_time.read(made.manifest("nvshmem"))
    assert nvshmem.transport == "nvshmem" and nvshmem.kernel == "ring" and nvshmem.binary.name == "over_nvshmem.cubin"
    assert {state.library: state.version for state in nvshmem.state}["nvshmem"] == "3.4.5"
    amd = ahead_of_time.read(made.manifest("amd"))
    assert amd.warp_size == 64 and amd.target == "hip:gfx942" and {state.library for state in amd.state} >= {"p2p"}
    assert amd.unused_pointers == ahead_of_time.read(made.manifest("ring")).unused_pointers
