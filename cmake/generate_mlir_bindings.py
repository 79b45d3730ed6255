"""Make a module of triton_dist of the Python that ``mlir-tblgen`` writes for a dialect.

    generate_mlir_bindings.py ops.py [enums.py …] module.py

mlir-tblgen's modules belong into a package of MLIR's bindings and import what they need from their neighbours there.
The module that is made takes the same names from whichever package of bindings is installed.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

BINDINGS = "triton_dist.mlir_bindings.dialect_support"

HEAD = '''\
"""Classes of the ops of ShmemOps.td for MLIR's Python bindings. mlir-tblgen wrote them, the build this file."""

# Types of bindings, which differ between their versions, stand in annotations only.
from __future__ import annotations
'''

RELATIVE_IMPORT = re.compile(r"^from \.+\w+ import (_(?=cext))?", re.MULTILINE)


def module(sources: list[str]) -> str:
    """The source of the module."""
    joined = "\n".join(re.sub(r"^from __future__ import .*$", "", source, flags=re.MULTILINE) for source in sources)
    return f"{HEAD}\n{RELATIVE_IMPORT.sub(f'from {BINDINGS} import ', joined)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("module", type=Path)
    arguments = parser.parse_args()
    arguments.module.parent.mkdir(parents=True, exist_ok=True)
    arguments.module.write_text(module([source.read_text() for source in arguments.sources]))


if __name__ == "__main__":
    main()
