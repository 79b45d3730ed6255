"""Passes over the text of IR, in a process of their own: ``triton-dist-opt`` as a function."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triton_dist.triton_api import opt, printed_errors

__all__ = ["IRError", "as_text", "file_name", "first_error", "run_passes", "verify"]

_SECONDS = 600


class IRError(ValueError):
    """IR does not parse or verify, or cannot be lowered; the message has ``file:line:column`` where there is one."""


def verify(module: Any, *, name: str = "module.mlir") -> None:
    """Parse a module and run the verifiers of all of its ops.

    Args:
        module: the text of a module, or a module of MLIR's Python bindings. Its dialects are those of Triton: shmem,
            llvm, nvvm, arith, math, cf, scf, ub and Triton's own.
        name: the file that errors name, where the module has no other locations.

    Raises:
        IRError: the first error.
        TypeError: ``module`` is neither.
    """
    run_passes(module, [], name=name)


def run_passes(
    module: Any,
    passes: Sequence[str],
    *,
    transport: str = "p2p",
    n_pes: int = 0,
    target: str | None = None,
    num_warps: int | None = None,
    name: str = "module.mlir",
) -> str:
    """The text of a module behind passes of :data:`triton_dist.triton_api.opt.PASSES`.

    Args:
        module, name: as for :func:`verify`.
        passes: their names, in order.
        transport: of the passes of shmem.
        n_pes: how many PEs there are, 0 if that is not known.
        target: ``"cuda:90"``, ``"hip:gfx942"``: becomes the attribute ``ttg.target`` of the module.
        num_warps: becomes its attribute ``ttg.num-warps``.

    Raises:
        IRError: the first error of the parser, of a verifier or of a pass.
        ValueError: there is no such pass or transport.
    """
    for chosen in passes:
        if chosen not in opt.PASSES:
            raise ValueError(f"there is no pass {chosen!r}: choose from {', '.join(sorted(opt.PASSES))}")
    if transport not in opt.TRANSPORTS:
        raise ValueError(f"there is no transport {transport!r}: choose from {', '.join(opt.TRANSPORTS)}")
    options = [f"--transport={transport}", f"--n-pes={n_pes:d}", *(f"--pass={chosen}" for chosen in passes)]
    options += [f"--target={target}"] if target is not None else []
    options += [f"--num-warps={num_warps:d}"] if num_warps is not None else []
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, file_name(name))
        file.write_text(as_text(module), encoding="utf-8")
        done = run([sys.executable, opt.__file__, str(file), *options])
    if done.returncode != 0:
        raise IRError(first_error(done))
    return done.stdout


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What a command of the compiler printed.

    Raises:
        IRError: it did not end.
    """
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise IRError(f"the compiler has not finished this module after {_SECONDS} s") from None


def file_name(name: str) -> str:
    """The name of the temporary file for a module that is called ``name``."""
    stem = re.sub(r"[^\w.-]", "_", Path(name).stem)[:100]
    return f"{stem or 'module'}.mlir"


def as_text(module: Any) -> str:
    """The text of a module of MLIR's Python bindings: in the generic form, which all versions of MLIR read, with its
    locations. Text stays as it is."""
    if isinstance(module, str):
        return module
    operation = getattr(module, "operation", None)
    if operation is None or not hasattr(operation, "get_asm"):
        raise TypeError(f"expected the text of a module, or a module of MLIR's Python bindings, not {type(module)}")
    return str(operation.get_asm(print_generic_op_form=True, enable_debug_info=True))


def first_error(done: subprocess.CompletedProcess[str]) -> str:
    """What MLIR said first against the module; files by their names, since the module lay in a temporary folder."""
    if error := printed_errors.first_error(done.stderr):
        text = error.text.split("\n")[0]
        return f"{Path(error.file).name}:{error.line}:{error.column}: {text}" if error.file else text
    if found := re.search(r"^ptxas \w+ +: (?P<text>.*)", done.stderr, re.MULTILINE):
        return f"ptxas: {found['text']}"
    if done.returncode < 0:
        said = printed_errors.exit_report(done.stderr)
        return f"the compiler ended by signal {-done.returncode} on this module: {said}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"the compiler ended with status {done.returncode} and no message"
