"""Where the device library lies, and the LLVM that it is built with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

__all__ = ["LIBRARIES", "ROOT", "SOURCES", "tool"]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "runtime" / "device"
LIBRARIES = ROOT / "triton_dist" / "_C"
LLVM = next(iter(json.loads((ROOT / "cmake" / "supported_triton.json").read_text()).values()))["llvm"]


def tool(name: str) -> str:
    """A program of the LLVM that the library is built with."""
    found = shutil.which(f"{name}-{LLVM}") or shutil.which(name, path=f"/usr/lib/llvm-{LLVM}/bin")
    assert found, f"{name} {LLVM} is not installed; scripts/install_system_packages.sh does that"
    return found
