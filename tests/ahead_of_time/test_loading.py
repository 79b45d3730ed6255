"""Loading and launching kernels, with a driver and GPUs that are not there."""

from __future__ import annotations

import ctypes
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from triton_dist import ahead_of_time, process_state, triton_api
from triton_dist.ahead_of_time import ManifestError, loading
from triton_dist.gpu import module_state, p2p
from triton_dist.gpu.launch_check import LaunchChecks, SymmetricMemory
from triton_dist.gpu.module_state import LoadedModules
from triton_dist.gpu.waiting_kernels import WaitingKernels


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = property(lambda self: True)  # type: ignore[assignment]


def on_gpu(*size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(size, dtype=dtype).as_subclass(OnGpu)


class Driver:
    """Stands for libcuda: one module, whose globals the manifest's state are."""

    MODULE, FUNCTION = 0x1000, 0x2000

    def __init__(self, path: Path) -> None:
        state = json.loads(path.read_text())["state"]
        self.globals = {one["symbol"].encode(): (0x10_000 * (i + 1), one["bytes"]) for i, one in enumerate(state)}
        self.types = [one["type"] for one in json.loads(path.read_text())["arguments"]]
        self.loaded: list[bytes] = []
        self.written: dict[int, bytes] = {}
        self.launches: list[tuple[Any, ...]] = []
        self.status = 0

    def cuModuleLoadData(self, module: Any, data: bytes) -> int:  # noqa: N802  # the driver's name
        self.loaded.append(data)
        module._obj.value = self.MODULE
        return self.status

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:  # noqa: N802
        function._obj.value = self.FUNCTION
        return 0

    def cuModuleGetGlobal_v2(self, address: Any, size: Any, module: Any, name: Any) -> int:  # noqa: N802
        if name.value not in self.globals:
            return 500
        address._obj.value, size._obj.value = self.globals[name.value]
        return 0

    def cuMemcpyHtoD_v2(self, address: Any, data: Any, size: Any) -> int:  # noqa: N802
        self.written[address.value] = ctypes.string_at(data, size.value)
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, blocks: Any, *about: Any) -> int:  # noqa: N802
        blocks._obj.value = 1
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:  # noqa: N802
        *sizes, stream, addresses, extra = rest
        assert function.value == self.FUNCTION and stream.value is None and extra is None
        kinds = {"i32": ctypes.c_int32, "fp32": ctypes.c_float}
        values = [
            kinds.get(type, ctypes.c_uint64).from_address(a).value
            for type, a in zip(self.types, addresses, strict=False)
        ]
        unused = [ctypes.c_uint64.from_address(a).value for a in addresses[len(self.types) :]]
        self.launches.append((tuple(size.value for size in sizes), values, unused))
        return self.status


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 0}))
    monkeypatch.setattr(triton_api, "current_device", lambda: 0)
    monkeypatch.setattr(triton_api, "warp_size", lambda: 32)
    monkeypatch.setattr(triton_api, "device_properties", lambda device: {"multiprocessor_count": 4})
    for kind in (LoadedModules, LaunchChecks, WaitingKernels):
        monkeypatch.setitem(process_state._instances, kind, kind())
    yield
    triton_api.guard_launches(process_state.of_process(LoadedModules)._refuse, on=False)


@pytest.fixture
def load(gpu: None, made: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that loads the kernel of a case, or of a manifest, with a driver of its own."""

    def load(case: str | Path) -> tuple[ahead_of_time.Kernel, Driver]:
        path = made.manifest(case) if isinstance(case, str) else case
        driver = Driver(path)
        monkeypatch.setattr(module_state, "cuda_driver", lambda: driver)
        return ahead_of_time.load(path), driver

    return load


def bind(driver: Driver) -> None:
    """A world of two PEs, of which this is PE 1."""
    state = p2p.state(1, [-4096, 0], 0x7000)
    fill = {"p2p": lambda module: module_state.write(module, p2p.state_symbol(), state)}
    process_state.of_process(LoadedModules).bind(0, fill, {"nvshmem": "for a test"})


def arguments() -> tuple[Any, ...]:
    return on_gpu(256, dtype=torch.float32), on_gpu(1, dtype=torch.int64), -7, 0.5


def test_a_kernel_is_loaded_filled_and_launched(load: Any, made: Any) -> None:
    kernel, driver = load("ring")
    assert driver.loaded == [(made.manifest("ring").parent / "ring.cubin").read_bytes()]
    with pytest.raises(
        RuntimeError, match=r"kernel ring uses shmem ops, and there is no world: call triton_dist\.init"
    ):
        kernel[(3,)](*arguments())
    bind(driver)
    assert p2p.state(1, [-4096, 0], 0x7000) in driver.written.values()
    out, signal, n, scale = arguments()
    kernel[(3, 2)](out, signal, n, scale)
    sizes, values, unused = driver.launches[0]
    assert sizes == (3, 2, 1, 128, 1, 1, 16)
    assert values == [out.data_ptr(), signal.data_ptr(), -7, 0.5] and unused == [0, 0]


def test_a_kernel_that_was_loaded_in_a_world_works_at_once(load: Any) -> None:
    kernel, driver = load("ring")
    bind(driver)
    kernel, driver = load("ring")
    kernel[1](*arguments())
    assert len(driver.launches) == 1


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, 5, r"argument out: a tensor is expected, not int"),
        (0, on_gpu(9, dtype=torch.float16), r"argument out: a tensor of torch\.float32 is expected, not of torch\.fl"),
        (0, torch.zeros(9), r"argument out: a tensor of the GPU is expected, not of cpu"),
        (0, on_gpu(9, dtype=torch.float32)[1:], r"argument out: a multiple of 16 is expected, not 0x"),
        (2, 1 << 31, r"argument n: a whole number from -2147483648 to 2147483647 is expected, not 2147483648"),
        (2, 1.0, r"argument n: a whole number"),
        (3, "1", r"argument scale: a number is expected, not str"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(load: Any, position: int, value: Any, message: str) -> None:
    kernel, driver = load("ring")
    bind(driver)
    given = list(arguments())
    given[position] = value
    with pytest.raises(TypeError, match=message):
        kernel[1](*given)
    with pytest.raises(
        TypeError, match=r"takes 4 arguments, not 3: \(out: \*fp32, signal: \*i64, n: i32, scale: fp32\)"
    ):
        kernel[1](*given[:3])
    assert not driver.launches


@pytest.mark.parametrize("grid", [0, -1, (1, 1 << 16), (1, 1, 1, 1), (), 1.5, (True,), "1"])
def test_wrong_grids_are_refused(load: Any, grid: Any) -> None:
    kernel, driver = load("ring")
    bind(driver)
    with pytest.raises(ValueError, match=r"is none of one to three sizes"):
        kernel[grid](*arguments())


def test_launch_checks_hold(load: Any) -> None:
    kernel, driver = load("ring")
    bind(driver)
    process_state.of_process(LaunchChecks).memory = SymmetricMemory(
        lambda address: False, lambda address: False, "PE 1", 0
    )
    with pytest.raises(ValueError, match=r"kernel ring: argument signal, .* is not in the symmetric heap of PE 1"):
        kernel[1](*arguments())
    kernel, driver = load("meet")
    with pytest.raises(RuntimeError, match=r"has a collective .* launched with 8 programs.* runs 4 of them at a time"):
        kernel[8](on_gpu(1, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"kernel meet was compiled for grid \(8, 1, 1\), not for \(4, 1, 1\)"):
        kernel[4](on_gpu(1, dtype=torch.int32))


def test_errors_of_the_driver_are_told(load: Any) -> None:
    kernel, driver = load("ring")
    bind(driver)
    driver.status = 700
    with pytest.raises(RuntimeError, match=r"kernel ring: CUDA error 700 of cuLaunchKernel"):
        kernel[1](*arguments())


def test_kernels_for_elsewhere_are_refused(
    load: Any, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ManifestError, match=r"for hip:gfx942; GPU worlds are those of NVIDIA's GPUs"):
        load("amd")
    copy = shutil.copytree(made.manifest("ring").parent, tmp_path / "copy") / "ring.json"
    manifest = json.loads(copy.read_text())
    manifest["state"][0]["version"] = "0" * 16
    copy.write_text(json.dumps(manifest))
    with pytest.raises(ManifestError, match=r"linked with p2p 0{16}, and here is [0-9a-f]{16}: compile it with the"):
        load(copy)
    manifest["state"] = [{"library": "waits", "symbol": "absent", "bytes": 8, "version": p2p.layout_version()}]
    copy.write_text(json.dumps(manifest))
    monkeypatch.setattr(Driver, "cuModuleGetGlobal_v2", lambda *arguments: 500)
    with pytest.raises(ManifestError, match=r"its binary has no absent, which its manifest names"):
        load(copy)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(ManifestError, match=r"a kernel for cuda:90, and this GPU is cuda:80"):
        load("ring")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"PyTorch sees no GPU"):
        load("ring")


@pytest.mark.parametrize(
    ("type", "value", "bits"),
    [
        ("i8", -1, 0xFF), ("u16", 65535, 0xFFFF), ("i32", -2, 0xFFFFFFFE), ("i64", -(2**63), 1 << 63), ("i1", True, 1),
        ("fp16", 1.0, 0x3C00), ("bf16", -2.0, 0xC000), ("fp32", 1.0, 0x3F800000), ("fp64", 1.0, 0x3FF0000000000000),
    ],
)  # fmt: skip
def test_numbers_are_passed_as_the_kernel_takes_them(type: str, value: Any, bits: int) -> None:
    argument = ahead_of_time.manifest.Argument("x", type)
    assert loading._mistake(argument, value) == ""
    held = loading._as_c(argument, value)
    size = 1 if type in ("i1", "i8") else int(type.lstrip("biufp")) // 8
    assert int.from_bytes(ctypes.string_at(ctypes.addressof(held), size), "little") == bits
