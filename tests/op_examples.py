"""The op table's examples, as kernels to be compiled."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from triton_dist._C.op_table import OPS

__all__ = ["EXAMPLES", "SIGNATURE", "as_kernels"]

SIGNATURE = {
    "x": "*fp32",
    "y": "*fp32",
    "counters": "*i64",
    "indices": "*i64",
    "flags": "*i32",
    "signal": "*i64",
    "pe": "i32",
    "n": "i32",
}

EXAMPLES = {op.name: op.example for op in OPS.values() if op.example}
"""By the op's name. ``always`` has none: it is part of what a wait emits."""


def as_kernels(folder: Path) -> ModuleType:
    """A module, written to ``folder``, with a function of SIGNATURE for each example, to be compiled as a kernel."""
    lines = ["import triton.language as tl", "import triton_dist.language as dl"]
    for name, example in EXAMPLES.items():
        lines += [f"def {name}({', '.join(SIGNATURE)}):", f"    {example}"]
    file = folder / "examples.py"
    file.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("examples", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
