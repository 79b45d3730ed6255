"""Sharing Triton's single hooks with others, and its disk cache with other versions of us."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.backends.nvidia.compiler as nvidia
import triton.language as tl

import triton_dist.language as dl
from triton_dist.compiler import device_library, hooks, transport

Compile = Callable[..., Any]
SIGNATURE = {"x": "*fp32", "sig": "*i64", "pe": "i32"}


def kernel(x, sig, pe):
    tl.store(x, 1.0)
    dl.signal_op(sig, 1, dl.SIGNAL_SET, pe)


def test_an_earlier_hook_still_runs(compile_kernel: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def earlier(self=None, stages=None, options=None, language=None, capability=None):
        seen.append(stages)
        return "theirs", "their digest"

    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", earlier)
    hooks.install()
    hooks.install()  # changes nothing
    key, digest = triton.knobs.runtime.add_stages_inspection_hook()
    assert key.startswith("theirs") and key.count("triton_dist") == 1 and digest.startswith("their digest")
    compiled = compile_kernel(kernel, SIGNATURE)
    assert "nvshmemi_device_state_d" in compiled.asm["ptx"]
    assert any(stages is not None for stages in seen)


def test_instrumentation_of_others_still_runs(compile_kernel: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    points = []

    class Theirs:
        def load_dialects(self, context: Any) -> None:
            points.append("load_dialects")

        def patch(self, point: str, manager: Any, context: Any) -> None:
            points.append(point)

    if not hasattr(nvidia.CUDABackend, "instrumentation"):  # since Triton 3.9
        instrumentation = importlib.import_module("triton._instrumentation")
        monkeypatch.setattr(instrumentation, "_callbacks", {})
        for point in ("ttgpuir-to-llvmir", "llvmir-to-llvm"):
            callback = functools.partial(lambda point, manager: points.append(point), point)
            instrumentation.register_instrumentation(point=point, backend="nvidia", callback=callback)
        compile_kernel(kernel, SIGNATURE)
        assert points == ["ttgpuir-to-llvmir", "llvmir-to-llvm"]
        return
    theirs = Theirs()
    monkeypatch.setattr(nvidia.CUDABackend, "instrumentation", theirs)
    compile_kernel(kernel, SIGNATURE)
    assert "ttgpuir_to_llvmir" in points and "llvmir_to_llvm" in points
    assert nvidia.CUDABackend.instrumentation is theirs, "the slot is theirs again"


def test_another_plugin_means_another_binary(compile_kernel: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_kernel(kernel, SIGNATURE)
    assert compile_kernel(kernel, SIGNATURE).hash == first.hash
    monkeypatch.setattr(device_library, "plugin_hash", lambda: "another plugin")
    hooks._cache_key_for.cache_clear()
    try:
        assert compile_kernel(kernel, SIGNATURE).hash != first.hash
    finally:
        hooks._cache_key_for.cache_clear()


def test_another_transport_means_another_binary(compile_kernel: Compile) -> None:
    with transport.using("nvshmem"):
        nvshmem = compile_kernel(kernel, SIGNATURE)
    with transport.using("p2p"):
        p2p = compile_kernel(kernel, SIGNATURE)
    assert "nvshmemi_device_state_d" in nvshmem.asm["ptx"]
    assert "triton_dist_p2p_state" in p2p.asm["ptx"]
    assert "nvshmem" not in p2p.asm["ptx"]


def test_extract_is_made_once_and_is_small(compile_kernel: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    extract = device_library._extract
    monkeypatch.setattr(device_library, "_extract", lambda whole, names: made.append(names) or extract(whole, names))
    library = device_library.find("nvshmem", "sm_90")
    first = device_library.linked_bitcode(library, ("nvshmem_fence", "nvshmem_quiet"))
    assert device_library.linked_bitcode(library, ("nvshmem_quiet", "nvshmem_fence")) == first
    assert len(made) == 1
    assert first.stat().st_size < library.path.stat().st_size / 100
    assert library.version.count(".") == 2


def test_a_library_that_is_none_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device_library.nvshmem_bitcode.cache_clear()
    monkeypatch.setenv("NVSHMEM_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"not found .*pip install nvidia-nvshmem-cu13==3\.4\.5"):
        device_library.nvshmem_bitcode()
    broken = tmp_path / "broken.bc"
    broken.write_bytes(b"no bitcode")
    with pytest.raises(RuntimeError, match=r"broken\.bc"):
        device_library._extract(broken, ("nvshmem_fence",))
    device_library.nvshmem_bitcode.cache_clear()


@pytest.mark.parametrize(
    ("architecture", "chosen"),
    [("sm_80", "sm_80"), ("sm_86", "sm_80"), ("sm_90", "sm_90"), ("sm_100", "sm_100"), ("sm_120", "sm_100")],
)
def test_nvshmem_of_files_for_some_architectures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, architecture: str, chosen: str
) -> None:
    """As NVSHMEM is laid out from 3.7 on."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "include/non_abi").mkdir(parents=True)
    (tmp_path / "include/non_abi/nvshmem_version.h").write_text(
        "".join(
            f"#define NVSHMEM_VENDOR_{part}_VERSION {n}\n" for part, n in (("MAJOR", 3), ("MINOR", 8), ("PATCH", 0))
        )
    )
    for there in ("sm_75", "sm_80", "sm_90", "sm_100", "sm_nine"):
        (tmp_path / f"lib/libnvshmem_device_{there}.bc").touch()
    device_library.nvshmem_bitcode.cache_clear()
    monkeypatch.setenv("NVSHMEM_HOME", str(tmp_path))
    path, version = device_library.nvshmem_bitcode(architecture)
    assert (path.name, version) == (f"libnvshmem_device_{chosen}.bc", "3.8.0")
    with pytest.raises(FileNotFoundError, match=r"device library for sm_70.* was not found"):
        device_library.nvshmem_bitcode("sm_70")
    device_library.nvshmem_bitcode.cache_clear()
