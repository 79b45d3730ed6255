"""``triton-dist-compile``: compile a kernel with shmem ops for a GPU that need not be there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _triton_dist_info import escape_output, put
from triton_dist import environment
from triton_dist.ahead_of_time.compiling import CompilationError, Request, compile_kernel

__all__ = ["main"]

_EPILOG = """\
examples:
  triton-dist-compile kernel.py:ring --signature "*fp32:16, *i64, i32, 1024" --target cuda:90 -o build/
  triton-dist-compile kernel.mlir --target cuda:90 --num-warps 8
"""


def main(arguments: list[str] | None = None) -> int:
    """Entry point; 0 when the files were written, 1 on an error, which is one line on stderr."""
    escape_output()
    parser = argparse.ArgumentParser(
        prog="triton-dist-compile",
        description="Compile a kernel with shmem ops ahead of time: binary, assembly, a manifest and a C header.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", help="kernel.py:function, or a file of MLIR, kernel.mlir")
    parser.add_argument(
        "--signature", help="an entry for each argument: *fp32, i32:16 (a multiple of 16), or a constant"
    )
    parser.add_argument("--target", required=True, help="cuda:90, hip:gfx942, …")
    parser.add_argument("--transport", help="p2p (the default), nvshmem, rocshmem, rocshmem-6")
    parser.add_argument("--grid", help="X,Y,Z: programs of every launch; without it each launch says")
    parser.add_argument("--num-warps", type=int, default=4, help="of a program; default 4")
    parser.add_argument("--num-stages", type=int, default=3, help="of the software pipeliner; default 3")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(), help="folder of the files; default: the current one"
    )
    parser.add_argument("--name", help="of the files, without an ending; default: the kernel's")
    options = parser.parse_args(arguments)
    try:
        file, function = _kernel(options.kernel)
        request = Request(
            file=file,
            function=function,
            signature=options.signature,
            target=options.target,
            transport=_transport(options.transport),
            options={
                "num_warps": _power_of_2("--num-warps", options.num_warps),
                "num_stages": _stages(options.num_stages),
            },
            grid=_grid(options.grid),
        )
        manifest = compile_kernel(request, options.output, options.name)
    except (CompilationError, OSError) as error:
        print(f"triton-dist-compile: {error}", file=sys.stderr)
        return 1
    names = [file.name for file in manifest.files.values()]
    names += [f"{Path(manifest.binary.name).stem}.{ending}" for ending in ("json", "h")]
    written = [options.output / name for name in names]
    found = [str(file) for file in written if file.exists()]  # only kernels of NVIDIA's GPUs have a header
    return put("triton-dist-compile", "\n".join(found))


def _kernel(text: str) -> tuple[Path, str]:
    file, _, function = text.rpartition(":")
    if text.endswith(".mlir"):
        return Path(text), ""
    if not file or not function.isidentifier():
        raise CompilationError(f"{text!r} names no kernel: say file.py:function, or file.mlir")
    return Path(file), function


def _transport(text: str | None) -> str:
    asked: str = text or environment.get("TRITON_DIST_TRANSPORT")
    if asked == "auto":
        return "p2p"
    if asked not in ("p2p", "nvshmem", "rocshmem", "rocshmem-6"):
        raise CompilationError(f"there is no transport {asked!r}: choose p2p, nvshmem, rocshmem or rocshmem-6")
    return asked


def _power_of_2(name: str, value: int) -> int:
    if value not in (1, 2, 4, 8, 16, 32):
        raise CompilationError(f"{name} is {value}: it must be 1, 2, 4, 8, 16 or 32")
    return value


def _stages(value: int) -> int:
    if not 1 <= value <= 16:
        raise CompilationError(f"--num-stages is {value}: it must be from 1 to 16")
    return value


def _grid(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    sizes = [int(part) for part in parts if part.isdecimal() and len(part) < 11] + [1] * (3 - len(parts))
    limits = (2**31 - 1, 65535, 65535)
    if len(parts) > 3 or len(sizes) != 3 or not all(0 < s <= limit for s, limit in zip(sizes, limits, strict=True)):
        most = ", ".join(map(str, limits))
        raise CompilationError(f"--grid is {text!r}: say up to three numbers, X,Y,Z, from 1 to {most}")
    return sizes[0], sizes[1], sizes[2]
