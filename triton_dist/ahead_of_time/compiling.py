"""Compiles a kernel and writes its files: the binary, its assembly, the manifest, and a header for C."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

import triton_dist
from triton_dist.ahead_of_time import c_header, signature
from triton_dist.ahead_of_time.manifest import FORMAT, Argument, File, Manifest, ManifestError, State, parse
from triton_dist.compiler import device_library, hooks, transport
from triton_dist.gpu import p2p
from triton_dist.triton_api.front_end import line_of_error, line_of_kernel
from triton_dist.triton_api.launch_compiler import compile_function, gpu_target, kernel_arguments
from triton_dist.triton_api.module_compiler import compile_module

__all__ = ["CompilationError", "Request", "architecture", "compile_kernel"]


class CompilationError(ValueError):
    """What is asked for cannot be compiled; the message begins with ``file:line`` where there is one."""


@dataclass(frozen=True)
class Request:
    """What is to be compiled, and for what."""

    file: Path
    """``kernel.py``, or ``kernel.mlir``."""
    function: str
    """Of a Python file."""
    signature: str | None
    target: str
    """``"cuda:90"``, ``"hip:gfx942"``."""
    transport: str
    options: Mapping[str, int]
    """``num_warps`` and others of Triton's."""
    grid: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class _Compiled:
    name: str
    arguments: tuple[Argument, ...]
    constants: dict[str, str]
    asm: Mapping[str, Any]
    metadata: Mapping[str, Any]


def architecture(target: str) -> str:
    """``"sm_90"`` of ``"cuda:90"``, ``"gfx942"`` of ``"hip:gfx942"``.

    Raises:
        CompilationError: ``target`` is neither, or Triton compiles for no such GPU.
    """
    if found := re.fullmatch(r"cuda:([1-9]\d{1,2})", target):
        name = f"sm_{found[1]}"
        try:
            gpu_target(name)
        except ValueError as error:
            raise CompilationError(f"unknown target {target!r}: {error}") from None
        return name
    if found := re.fullmatch(r"hip:(gfx[0-9a-f]{3,5})", target):
        return found[1]
    raise CompilationError(f"unknown target {target!r}: say cuda:<compute capability>, such as cuda:90, or hip:gfx942")


def compile_kernel(request: Request, folder: Path, name: str | None = None) -> Manifest:
    """Compile a kernel and write ``NAME.json``, the files that it names, and ``NAME.h`` to ``folder``.

    Args:
        name: of the files; default: the kernel's.

    Raises:
        CompilationError: it cannot be compiled.
        OSError: a file cannot be written.
    """
    gpu = architecture(request.target)
    if request.transport.startswith("rocshmem") and request.target.startswith("cuda"):
        raise CompilationError(f"transport {request.transport} is for targets hip:…")
    if request.transport == "nvshmem" and request.target.startswith("hip"):
        raise CompilationError("transport nvshmem is for targets cuda:…")
    hooks.install()
    with transport.using(request.transport):
        compiled = _compile_module(request, gpu) if request.file.suffix == ".mlir" else _compile_function(request, gpu)
    if "shmem" not in compiled.metadata:
        raise CompilationError(
            f"{request.file}: kernel {compiled.name} has no shmem ops: triton.tools.compile compiles such kernels ahead"
            " of time"
        )
    for kind in ("global_scratch", "profile_scratch"):
        if compiled.metadata.get(f"{kind}_size"):
            raise CompilationError(f"{request.file}: kernel {compiled.name} needs {kind} memory, which no loader gives")
    return _write(request, compiled, gpu, folder, name or compiled.name)


# ---- Python


def _compile_function(request: Request, gpu: str) -> _Compiled:
    kernel = _load(request.file, request.function)
    names, constexprs = kernel_arguments(kernel)
    file, line = line_of_kernel(kernel)
    if request.signature is None:
        raise CompilationError(f"{file}:{line}: a kernel of Python needs --signature: {', '.join(names)}")
    try:
        parsed = signature.parse(request.signature, names, constexprs, request.function)
    except signature.SignatureError as error:
        raise CompilationError(f"{file}:{line}: {error}") from None
    try:
        compiled = compile_function(kernel, gpu, parsed.types, parsed.constants, parsed.aligned, dict(request.options))
    except Exception as error:
        raise CompilationError(_explained(kernel, error)) from error
    return _Compiled(
        name=compiled.metadata.name,
        arguments=tuple(
            Argument(argument, type, argument in parsed.aligned)
            for argument, type in parsed.types.items()
            if type != "constexpr"
        ),
        constants={constant: str(value) for constant, value in parsed.constants.items()},
        asm=compiled.asm,
        metadata=compiled.metadata._asdict(),
    )


def _load(file: Path, function: str) -> Any:
    """The kernel of a file, which is executed."""
    if not file.is_file():
        raise CompilationError(f"there is no file {file}")
    name = f"triton_dist_compiled_{file.stem}"  # that of no other module
    spec = importlib.util.spec_from_file_location(name, file)
    if file.suffix != ".py" or spec is None or spec.loader is None:
        raise CompilationError(f"{file} is no Python file (.py), and no file of MLIR (.mlir)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise CompilationError(f"{error.filename}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        here = str(file.resolve())
        line = next((frame.lineno for frame in reversed(frames) if os.path.realpath(frame.filename) == here), 1)
        raised = f"{type(error).__name__}: {error}"
        raise CompilationError(
            f"{file}:{line}: the file cannot be executed: {raised} (what the kernel does not need, as a world, belongs"
            ' under `if __name__ == "__main__":`)'
        ) from error
    finally:
        sys.path.remove(str(file.parent))
    kernel = getattr(module, function, None)
    if kernel is None:
        raise CompilationError(f"{file} has no {function}: it has {', '.join(_kernels(module)) or 'no kernel'}")
    if not isinstance(kernel, triton.JITFunction):
        found = f"{type(kernel).__name__}"
        hint = ": name the function that it wraps, and choose one configuration" if hasattr(kernel, "fn") else ""
        raise CompilationError(f"{file}: {function} is a {found} and no kernel (a function with @triton.jit){hint}")
    return kernel


def _kernels(module: Any) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, triton.JITFunction)]


def _explained(kernel: Any, error: Exception) -> str:
    if place := line_of_error(kernel, error):
        file, line, text = place
        return f"{file}:{line}: {text}"
    if re.match(r"[^\n:]+:\d+(:\d+)?: ", str(error)):
        return str(error)
    file, line = line_of_kernel(kernel)
    return f"{file}:{line}: {type(error).__name__}: {error}"


# ---- MLIR


def _compile_module(request: Request, gpu: str) -> _Compiled:
    if not request.file.is_file():
        raise CompilationError(f"there is no file {request.file}")
    if request.signature is not None:
        raise CompilationError(f"{request.file}: the arguments of a kernel of MLIR have types: leave out --signature")
    if not gpu.startswith("sm_"):
        raise CompilationError(f"{request.file}: MLIR is compiled for targets cuda:… only, not for {request.target}")
    try:
        module = compile_module(request.file, gpu, dict(request.options))
    except (ValueError, RuntimeError, hooks.ShmemCompilationError) as error:  # MLIR has printed why
        has_line = re.match(r"[^\n:]+:\d+:\d+: ", str(error))
        raise CompilationError(str(error) if has_line else f"{request.file}: {error}") from error
    return _Compiled(
        name=module.name,
        arguments=tuple(Argument(f"arg{i}", type) for i, type in enumerate(module.parameters)),
        constants={},
        asm=module.asm,
        metadata=module.metadata,
    )


# ---- files


def _write(request: Request, compiled: _Compiled, gpu: str, folder: Path, name: str) -> Manifest:
    if not re.fullmatch(r"[A-Za-z_]\w{0,180}", name):
        raise CompilationError(f"{name!r} cannot be the name of the files: it must be a name of C, too")
    kinds = ("amdgcn", "hsaco") if gpu.startswith("gfx") else ("ptx", "cubin")
    contents = {kind: compiled.asm[kind] for kind in kinds}
    data = {kind: text.encode() if isinstance(text, str) else text for kind, text in contents.items()}
    assembly = data[kinds[0]].decode()
    arguments = compiled.arguments
    manifest = Manifest(
        format=FORMAT,
        triton_dist=triton_dist.__version__,
        triton=triton.__version__,
        kernel=compiled.name,
        source=f"{request.file.name}:{request.function or compiled.name}",
        target=request.target,
        files={kind: File(f"{name}.{kind}", len(d), hashlib.sha256(d).hexdigest()) for kind, d in data.items()},
        num_warps=compiled.metadata["num_warps"],
        warp_size=64 if gpu.startswith("gfx") else 32,
        shared=compiled.metadata["shared"],
        grid=request.grid,
        arguments=arguments,
        unused_pointers=_parameters(assembly, compiled.name) - len(arguments),
        constants=compiled.constants,
        transport=request.transport,
        state=tuple(_state(assembly, request.transport, gpu)),
        requirements=compiled.metadata["shmem"],
    )
    path = folder / f"{name}.json"
    try:  # what cannot be read is not written
        manifest = parse(manifest.to_json().encode(), path)
    except ManifestError as error:
        raise CompilationError(f"{request.file}: kernel {compiled.name} cannot be described: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    for kind, file in manifest.files.items():
        _write_file(folder / file.name, data[kind])
    if "cubin" in data:
        _write_file(folder / f"{name}.h", c_header.text(manifest, name, data["cubin"]).encode())
    _write_file(path, manifest.to_json().encode())
    return manifest


def _write_file(path: Path, data: bytes) -> None:
    """Write a file, or leave none: the error of a full disk does not say which it was."""
    try:
        path.write_bytes(data)
    except OSError as error:
        if error.filename is None:  # it was opened, and is not whole
            path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


_PTX_ENTRY = r"\.visible \.entry {}\((?P<parameters>.*?)\n\)"


def _parameters(assembly: str, kernel: str) -> int:
    """How many parameters a kernel takes."""
    if found := re.search(_PTX_ENTRY.format(re.escape(kernel)), assembly, re.DOTALL):
        return found["parameters"].count(".param ")
    return len(re.findall(r"^ +(?:- )?\.value_kind: +(?:by_value|global_buffer)$", assembly, re.MULTILINE))


_PTX_GLOBAL = re.compile(r"^\.visible .*?\.b8 (?P<symbol>\w+)\[(?P<bytes>\d+)\]", re.MULTILINE)
_GCN_GLOBAL = re.compile(r"^\s*\.size\s+(?P<symbol>\w+), (?P<bytes>\d+)$", re.MULTILINE)


def _state(assembly: str, of_transport: str, gpu: str) -> list[State]:
    """The globals that a loader fills, as far as the kernel has them."""
    libraries = {p2p.state_symbol(): "p2p", p2p.wait_symbol(): "waits", "nvshmemi_device_state_d": "nvshmem"}
    libraries["ROCSHMEM_CTX_DEFAULT"] = of_transport if of_transport.startswith("rocshmem") else "rocshmem"
    found = {}
    for pattern in (_PTX_GLOBAL, _GCN_GLOBAL):
        for match in pattern.finditer(assembly):
            if library := libraries.get(match["symbol"]):
                found[match["symbol"]] = State(library, match["symbol"], int(match["bytes"]), _version(library, gpu))
    return list(found.values())


def _version(library: str, gpu: str) -> str:
    if library in ("p2p", "waits"):
        return p2p.layout_version()
    return device_library.find(library, gpu).version
