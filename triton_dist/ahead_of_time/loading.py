"""Loads a kernel that was compiled ahead of time, and launches it in the GPU world, without Triton's compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from triton_dist import triton_api
from triton_dist.ahead_of_time.manifest import Argument, Manifest, ManifestError, read, read_file
from triton_dist.compiler import device_library
from triton_dist.gpu import launch_check, module_state, p2p
from triton_dist.gpu.module_state import LoadedModules
from triton_dist.process_state import of_process

__all__ = ["Kernel", "load"]

_DTYPES = {
    **{f"i{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": getattr(torch, f"uint{bits}") for bits in (8, 16, 32, 64)},
    "i1": torch.bool,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
}
_FLOATS = {"fp32": ctypes.c_float, "fp64": ctypes.c_double}
_MAX_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_LARGE = 48 * 1024  # bytes of shared memory that need that attribute
_HIDDEN = (None,) * (triton_api.LAUNCHER_ARGUMENTS - 2)


def load(path: str | Path) -> Kernel:
    """Load the kernel that a manifest describes on the current GPU.

    The kernel may be loaded before ``triton_dist.init()`` and launched after it. It stays loaded.

    Args:
        path: of the JSON file that triton-dist-compile has written; the binary lies beside it.

    Raises:
        ManifestError: a file is damaged, or was compiled by or for something else: another format, GPU or library.
        RuntimeError: the driver refuses the binary, or there is no GPU.
        OSError: a file cannot be read.
    """
    manifest = read(path)
    binary = read_file(path, manifest.binary)
    _check_target(path, manifest)
    _check_state(path, manifest)
    driver = module_state.cuda_driver()
    if driver is None:
        raise RuntimeError(f"{path}: there is no CUDA driver to load a kernel with")
    return Kernel(manifest, driver, binary)


class Kernel:
    """A loaded kernel: ``kernel[grid](*arguments)`` launches it on the current stream, as Triton launches kernels.

    Arguments are those of :attr:`Manifest.arguments`, without constants: tensors for pointers, numbers for the others.
    """

    def __init__(self, manifest: Manifest, driver: Any, binary: bytes) -> None:
        self.manifest = manifest
        self.name = manifest.kernel
        self._driver = driver
        torch.cuda.synchronize()  # makes PyTorch's context the current one
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), binary)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, manifest.kernel.encode())
        if manifest.shared > _LARGE:
            self._call("cuFuncSetAttribute", function, ctypes.c_int(_MAX_SHARED), ctypes.c_int(manifest.shared))
        assert module.value is not None and function.value is not None
        self.module, self.function = module.value, function.value
        for state in manifest.state:
            if not module_state.holds(self.module, state.symbol):
                raise ManifestError(f"kernel {self.name}: its binary has no {state.symbol}, which its manifest names")
        self.metadata = SimpleNamespace(
            num_warps=manifest.num_warps, shared=manifest.shared, shmem=dict(manifest.requirements)
        )
        names = [argument.name for argument in manifest.arguments]
        self.src = SimpleNamespace(fn=SimpleNamespace(arg_names=names))
        self._run: Any = self._launch
        of_process(LoadedModules).add(self.module, self.function, self.name)
        launch_check.place_checks(self)

    def __getitem__(self, grid: Any) -> Any:
        asked = grid if isinstance(grid, tuple) else (grid,)
        sizes = (*asked, *(1,) * (3 - len(asked)))
        limits = (2**31 - 1, 65535, 65535)
        fits = all(type(s) is int and 0 < s <= most for s, most in zip(sizes, limits, strict=False))
        if not 1 <= len(asked) <= 3 or not fits:
            raise ValueError(f"kernel {self.name}: grid {grid} is none of one to three sizes from 1 to {limits}")
        if self.manifest.grid not in (None, sizes):
            raise ValueError(f"kernel {self.name} was compiled for grid {self.manifest.grid}, not for {sizes}")

        def launch(*arguments: Any) -> None:
            self._check(arguments)
            of_process(LoadedModules).check_filled(self.function)
            self._run(*sizes, torch.cuda.current_stream().cuda_stream, self.function, *_HIDDEN, *arguments)

        return launch

    def _check(self, arguments: tuple[Any, ...]) -> None:
        declared = self.manifest.arguments
        if len(arguments) != len(declared):
            listed = ", ".join(f"{argument.name}: {argument.type}" for argument in declared)
            raise TypeError(f"kernel {self.name} takes {len(declared)} arguments, not {len(arguments)}: ({listed})")
        for argument, value in zip(declared, arguments, strict=True):
            if mistake := _mistake(argument, value):
                raise TypeError(f"kernel {self.name}: argument {argument.name}: {mistake}")

    def _launch(self, x: int, y: int, z: int, stream: int, function: int, *rest: Any) -> None:
        """With the arguments of Triton's launchers."""
        declared = self.manifest.arguments
        values = [_as_c(argument, value) for argument, value in zip(declared, rest[len(_HIDDEN) :], strict=True)] + [
            ctypes.c_void_p() for _ in range(self.manifest.unused_pointers)
        ]
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        sizes = (x, y, z, self.manifest.num_warps * self.manifest.warp_size, 1, 1, self.manifest.shared)
        self._call(
            "cuLaunchKernel",
            ctypes.c_void_p(function),
            *map(ctypes.c_uint, sizes),
            ctypes.c_void_p(stream),
            addresses,
            None,
        )

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._driver, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"kernel {self.name}: CUDA error {status} of {name}")


def _check_target(path: str | Path, manifest: Manifest) -> None:
    if not manifest.target.startswith("cuda:"):
        raise ManifestError(f"{path}: a kernel for {manifest.target}; GPU worlds are those of NVIDIA's GPUs")
    if not torch.cuda.is_available():
        raise RuntimeError(f"{path}: PyTorch sees no GPU")
    major, minor = torch.cuda.get_device_capability()
    if manifest.target != f"cuda:{major}{minor}":
        raise ManifestError(f"{path}: a kernel for {manifest.target}, and this GPU is cuda:{major}{minor}")


def _check_state(path: str | Path, manifest: Manifest) -> None:
    """The versions of the libraries that the kernel was linked with are those of this world."""
    for state in manifest.state:
        if state.library in ("p2p", "waits"):
            here = p2p.layout_version()
        elif state.library == "nvshmem":
            here = device_library.nvshmem_bitcode()[1]  # of which init() verifies that the host library is the same
        else:
            raise ManifestError(f"{path}: library {state.library} has no world of GPUs")
        if state.version != here:
            raise ManifestError(
                f"{path}: the kernel was linked with {state.library} {state.version}, and here is {here}: compile it"
                " with the triton_dist and the NVSHMEM that are installed here"
            )


def _mistake(argument: Argument, value: Any) -> str:
    """Why a value cannot be passed; empty if it can."""
    if argument.type.startswith("*"):
        if not isinstance(value, torch.Tensor):
            return f"a tensor is expected, not {type(value).__name__}"
        dtype = _DTYPES.get(argument.type[1:])
        if dtype not in (None, torch.int8, value.dtype):
            return f"a tensor of {dtype} is expected, not of {value.dtype}"
        if not value.is_cuda:
            return f"a tensor of the GPU is expected, not of {value.device}"
        number = value.data_ptr()
    elif argument.type in _FLOATS or argument.type in ("fp16", "bf16"):
        return "" if isinstance(value, (int, float)) else f"a number is expected, not {type(value).__name__}"
    else:
        low, high = _range(argument.type)
        if not isinstance(value, int) or not low <= value <= high:
            return f"a whole number from {low} to {high} is expected, not {value!r}"
        number = value
    return f"a multiple of 16 is expected, not {number:#x}" if argument.divisible_by_16 and number % 16 else ""


def _range(type: str) -> tuple[int, int]:
    bits = int(type[1:])
    if bits == 1:
        return 0, 1
    return (0, 2**bits - 1) if type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _as_c(argument: Argument, value: Any) -> Any:
    """A value as the kernel takes it."""
    if argument.type.startswith("*"):
        return ctypes.c_void_p(value.data_ptr())
    if number := _FLOATS.get(argument.type):
        return number(value)
    if argument.type in ("fp16", "bf16"):
        bits = torch.tensor(value, dtype=_DTYPES[argument.type], device="cpu").view(torch.int16).item()
        return ctypes.c_int16(int(bits))
    return ctypes.c_uint64(value & 0xFFFFFFFFFFFFFFFF)  # little-endian: the first bytes are those of narrower types
