"""Writes ``NAME.h``: a manifest as constants of C, and a launch function with the kernel's arguments."""

from __future__ import annotations

import json

from triton_dist.ahead_of_time.manifest import Argument, Manifest
from triton_dist.gpu import p2p

__all__ = ["fnv1a", "text"]

_TYPES = {
    **{f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)},
    "i1": "int8_t",
    "fp32": "float",
    "fp64": "double",
    "fp16": "uint16_t",
    "bf16": "uint16_t",
}
"""Of values; the 16-bit floats by their bits."""


def fnv1a(data: bytes) -> int:
    """FNV-1a of 64 bits, which tells damaged files; it is no protection against forged ones."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def text(manifest: Manifest, name: str, binary: bytes) -> str:
    """The header of a kernel for NVIDIA's GPUs, whose files are called ``name``."""
    symbols = {state.library: state for state in manifest.state}
    members: dict[str, object] = {
        "format": manifest.format,
        "name": manifest.kernel,
        "compute_capability": int(manifest.target.partition(":")[2]),
        "file_bytes": len(binary),
        "file_fnv1a": f"UINT64_C({fnv1a(binary):#x})",
        "num_warps": manifest.num_warps,
        "shared": manifest.shared,
        "is_collective": int(bool(manifest.requirements.get("collective"))),
        "num_arguments": len(manifest.arguments),
        "unused_pointers": manifest.unused_pointers,
        "nvshmem_symbol": symbols["nvshmem"].symbol if "nvshmem" in symbols else None,
        "p2p_symbol": symbols["p2p"].symbol if "p2p" in symbols else None,
        "p2p": None,
    }
    lines = []
    for member, value in members.items():
        if member == "p2p":
            lines += [f"    .{part} = {number}," for part, number in p2p.state_layout().items()]
        elif not (isinstance(value, str) and value.startswith("UINT64_C")):
            lines.append(f"    .{member} = {'0' if value is None else json.dumps(value)},")
        else:
            lines.append(f"    .{member} = {value},")
    taken = "".join(f", {_c_type(argument)} arg_{argument.name}" for argument in manifest.arguments)
    listed = ", ".join(f"&arg_{argument.name}" for argument in manifest.arguments)
    rules = [f"   arg_{argument.name}: {_rule(manifest, argument)}\n" for argument in manifest.arguments]
    grid = ", ".join(f"unsigned grid_{axis}" for axis in "xyz")
    return f"""\
/* Kernel {manifest.kernel} of {manifest.source}, for {manifest.target}, num_warps {manifest.num_warps}. Written by
   triton-dist-compile {manifest.triton_dist}; {manifest.binary.name} is loaded with it.
{"".join(rules)}*/
#pragma once
#include "triton_dist_kernel.h"
#if TRITON_DIST_KERNEL_FORMAT != {manifest.format}
#error "{name}.h has format {manifest.format} and triton_dist_kernel.h another: take both from one triton_dist"
#endif

static const struct triton_dist_kernel {name}_kernel = {{
{chr(10).join(lines)}
}};

static inline int {name}_launch(const struct triton_dist_loaded *loaded, {grid}, CUstream stream{taken},
                                char *error, size_t error_bytes) {{
  void *arguments[] = {{{listed or "0"}}};
  return triton_dist_launch(loaded, grid_x, grid_y, grid_z, stream, arguments, {len(manifest.arguments)}, error,
                            error_bytes);
}}
"""


def _c_type(argument: Argument) -> str:
    return "CUdeviceptr" if argument.type.startswith("*") else _TYPES.get(argument.type, "uint8_t")


def _rule(manifest: Manifest, argument: Argument) -> str:
    use = manifest.requirements.get("symmetric", {}).get(argument.name)
    parts = [argument.type, "a multiple of 16" if argument.divisible_by_16 else "", f"symmetric ({use})" if use else ""]
    return ", ".join(part for part in parts if part).replace("*/", "* /")
