"""``python -m triton_dist.triton_api.opt FILE.mlir --pass NAME``: run passes over IR and print the result.

What ``mlir-opt`` is to MLIR, inside the stock Triton: its dialects and ours are known, and the passes are those that
Triton and its plugins expose. The lit tests of the lowering are written with it. They run this file as a program, which
imports Triton and nothing else of this package: PyTorch, which the package imports, takes ten times as long as a test.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

import _triton_dist_loader

_triton_dist_loader.check()

from triton._C.libtriton import ir, nvidia, passes  # noqa: E402  # with the plugin

from _triton_dist_loader import plugin_pass  # noqa: E402

__all__ = ["main"]

_PASSES = {
    "order-async-copies": lambda manager, options: plugin_pass("shmem_order")(manager, []),
    "plan-shmem-calls": lambda manager, options: plugin_pass("shmem_plan")(manager, [options.transport, options.n_pes]),
    "convert-shmem-to-llvm": lambda manager, options: plugin_pass("shmem_to_llvm")(manager, [options.transport]),
    "canonicalize": lambda manager, options: passes.common.add_canonicalizer(manager),
    "cse": lambda manager, options: passes.common.add_cse(manager),
    "inline": lambda manager, options: passes.common.add_inliner(manager),
}


def main(arguments: list[str] | None = None) -> int:
    """Entry point; 0 when every pass ran on every module, 1 otherwise (MLIR has then printed the errors)."""
    parser = argparse.ArgumentParser(prog="triton-dist-opt", description="Run compiler passes over MLIR and print it.")
    parser.add_argument("file", type=Path, help="MLIR source")
    parser.add_argument(
        "--pass", dest="passes", action="append", default=[], choices=sorted(_PASSES), help="may be repeated"
    )
    parser.add_argument(
        "--split-input-file", action="store_true", help="take what stands between lines `// -----` as separate modules"
    )
    parser.add_argument("--transport", default="nvshmem", choices=["nvshmem", "rocshmem", "rocshmem-6", "p2p"])
    parser.add_argument("--n-pes", default="0", help="how many PEs there are, for plan-shmem-calls")
    options = parser.parse_args(arguments)
    failed = False
    for source in _sources(options.file, options.split_input_file):
        try:
            print(_transformed(source, options.file.name, options), flush=True)
        except RuntimeError as error:
            print(f"triton-dist-opt: {error}", file=sys.stderr, flush=True)
            failed = True
    return int(failed)


def _sources(file: Path, split: bool) -> list[str]:
    """The modules of a file; empty lines stand for what was before, so that errors name the file's lines."""
    text = file.read_text()
    if not split:
        return [text]
    sources, line = [], 0
    for part in re.split(r"^// -----$", text, flags=re.MULTILINE):
        sources.append("\n" * line + part)
        line += part.count("\n")
    return sources


def _transformed(source: str, name: str, options: argparse.Namespace) -> str:
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, name)
        copy.write_text(source)
        module = ir.parse_mlir_module(str(copy), context)
    manager = ir.pass_manager(context)
    for pass_name in options.passes:
        _PASSES[pass_name](manager, options)
    manager.run(module, "triton-dist-opt")
    return str(module.str_nodebug())


if __name__ == "__main__":
    sys.exit(main())
