"""``python -m triton_dist.triton_api.opt FILE.mlir --pass NAME``: run passes over IR and print the result.

What ``mlir-opt`` is to MLIR, inside the stock Triton: its dialects and ours are known, and the passes are those that
Triton and its plugins expose. The lit tests of the lowering are written with it. They run this file as a program, which
imports Triton and nothing else of this package: PyTorch, which the package imports, takes ten times as long as a test.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _triton_dist_loader

_triton_dist_loader.check()

from triton._C.libtriton import ir, nvidia, passes  # noqa: E402  # with the plugin

from _triton_dist_info import escape_output  # noqa: E402
from _triton_dist_loader import plugin_pass  # noqa: E402

__all__ = ["PASSES", "TRANSPORTS", "add_conversion_to_llvm", "main", "set_attributes"]

TRANSPORTS = ("nvshmem", "rocshmem", "rocshmem-6", "p2p")


def add_conversion_to_llvm(manager: Any) -> None:
    """Add MLIR's own conversions of ``scf``, ``cf``, ``arith`` and ``index`` to what a pass manager runs."""
    for add in (
        passes.convert.add_scf_to_cf,
        passes.convert.add_arith_to_llvmir,
        passes.convert.add_index_to_llvmir,
        passes.convert.add_cf_to_llvmir,
        passes.common.add_canonicalizer,
    ):
        add(manager)


def _backend(options: argparse.Namespace) -> str:
    """Triton's name of what makes the target's code."""
    return (options.target or "cuda").split(":")[0]


PASSES: dict[str, Callable[[Any, argparse.Namespace], None]] = {
    "convert-to-llvm": lambda manager, options: add_conversion_to_llvm(manager),
    "keep-loop-bounds": lambda manager, options: plugin_pass("shmem_keep_bounds")(manager, [_backend(options)]),
    "order-async-copies": lambda manager, options: plugin_pass("shmem_order")(manager, []),
    "plan-shmem-calls": lambda manager, options: plugin_pass("shmem_plan")(manager, [options.transport, options.n_pes]),
    "convert-shmem-to-llvm": lambda manager, options: plugin_pass("shmem_to_llvm")(manager, [options.transport]),
    "canonicalize": lambda manager, options: passes.common.add_canonicalizer(manager),
    "cse": lambda manager, options: passes.common.add_cse(manager),
    "inline": lambda manager, options: passes.common.add_inliner(manager),
}


def main(arguments: list[str] | None = None) -> int:
    """Entry point; 0 when every pass ran on every module, 1 otherwise (MLIR has then printed the errors)."""
    escape_output()
    parser = argparse.ArgumentParser(prog="triton-dist-opt", description="Run compiler passes over MLIR and print it.")
    parser.add_argument("file", type=Path, help="MLIR source")
    parser.add_argument(
        "--pass", dest="passes", action="append", default=[], choices=sorted(PASSES), help="may be repeated"
    )
    parser.add_argument(
        "--split-input-file", action="store_true", help="take what stands between lines `// -----` as separate modules"
    )
    parser.add_argument("--transport", default="nvshmem", choices=TRANSPORTS)
    parser.add_argument("--n-pes", type=_n_pes, default="0", help="how many PEs there are, for plan-shmem-calls")
    parser.add_argument(
        "--target", type=_target, help="the module's GPU, cuda:90 or hip:gfx942, where the module does not say"
    )
    parser.add_argument("--num-warps", type=_num_warps, help="warps of a program, where the module does not say")
    options = parser.parse_args(arguments)
    failed = False
    try:
        sources = _sources(options.file, options.split_input_file)
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"{options.file}: {error}")
    for source in sources:
        try:
            print(_transformed(source, options), flush=True)
        except (RuntimeError, OSError) as error:
            print(f"triton-dist-opt: {error}", file=sys.stderr, flush=True)
            failed = True
    return int(failed)


def _n_pes(text: str) -> str:
    if not re.fullmatch("[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of PEs")
    return text


def _target(text: str) -> str:
    if not re.fullmatch("cuda:[0-9]{2,3}|hip:gfx[0-9a-f]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no GPU: say cuda:90, hip:gfx942, …")
    return text


def _num_warps(text: str) -> int:
    if text not in ("1", "2", "4", "8", "16", "32"):
        raise argparse.ArgumentTypeError(f"{text!r} is no power of 2 up to 32")
    return int(text)


def _sources(file: Path, split: bool) -> list[str]:
    """The modules of a file; empty lines stand for what was before, so that errors name the file's lines."""
    text = file.read_text(encoding="utf-8")
    if not split:
        return [text]
    sources, line = [], 0
    for part in re.split(r"^// -----$", text, flags=re.MULTILINE):
        sources.append("\n" * line + part)
        line += part.count("\n")
    return sources


def _transformed(source: str, options: argparse.Namespace) -> str:
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    if options.split_input_file:
        module = _parsed(source, options.file.name, context)
    else:
        module = ir.parse_mlir_module(str(options.file), context)
    set_attributes(module, context, options.target, options.num_warps)
    manager = ir.pass_manager(context)
    for pass_name in options.passes:
        PASSES[pass_name](manager, options)
    manager.run(module, "triton-dist-opt")
    return str(module.str_nodebug())


def _parsed(source: str, name: str, context: Any) -> Any:
    """The module of a part of the file ``name``, by which MLIR calls it in errors."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, name).write_text(source, encoding="utf-8")
        os.chdir(directory)
        try:
            return ir.parse_mlir_module(name, context)
        finally:
            os.chdir(before)


def set_attributes(module: Any, context: Any, target: str | None, num_warps: int | None) -> None:
    """Give a module those attributes of Triton's modules that the passes of shmem read."""
    builder = ir.builder(context)
    if target is not None:
        threads = 64 if target.startswith("hip") else 32
        module.set_attr("ttg.target", builder.get_string_attr(target))
        module.set_attr("ttg.threads-per-warp", builder.get_int32_attr(threads))
    if num_warps is not None:
        module.set_attr("ttg.num-warps", builder.get_int32_attr(num_warps))


if __name__ == "__main__":
    sys.exit(main())
