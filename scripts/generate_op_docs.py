"""Write docs/ops.md, the reference of all ops, from the op table and the language's functions: ``make docs``.

``--check`` writes nothing and fails when the page is not what would be written.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton_dist.language as dl
from triton_dist._C.op_table import OPS, Caller, Op, Reduction

PAGE = Path(__file__).resolve().parents[1] / "docs/ops.md"

_REDUCTIONS = [reduction.name.lower() for reduction in Reduction]

# Functions of the language that are not named as their op is, or not alone: they end in another one.
FUNCTIONS = {
    "symm_offset": ("symm_at",),
    "heap_distance": ("symm_at", "load", "store"),
    "putmem": ("putmem", "put", "copy"),
    "putmem_nbi": ("putmem_nbi", "put_nbi"),
    "getmem": ("getmem", "get"),
    "getmem_nbi": ("getmem_nbi", "get_nbi"),
    "reduce": tuple(f"{operator}_reduce" for operator in _REDUCTIONS),
    "reducescatter": tuple(f"{operator}_reducescatter" for operator in _REDUCTIONS),
    "token_zero": ("consume_token",),
    "always": (),
    "poll": (),
}

_INTRODUCTION = """\
# All operations

This page is made from the [op table](../lowering/include/Shmem/ShmemOps.td) and the language's functions by
`make docs`. [The language](language.md) introduces them in the order of a story, with the rules that hold for all:
an operation acts once per program, and is ordered with the program's own accesses.
[What was run where](tested.md) is a table of these operations, too.

In routines, `TYPE` and `OP` stand for the element type and the operator as that library spells them, and a routine that
exists for several scopes is listed with each of its suffixes. `—` means that a library has no such routine: the op is
then an error at compile time that names the op and the transport. Where a list of types follows, it is complete.
"""

_CALLERS = {
    Caller.EVERY_THREAD: "A pure question, which every thread asks.",
    Caller.SOME_WARPS: "Called by every thread of some warps.",
    Caller.BLOCK: 'Called by the program\'s threads together (`scope="block"`), by its first warp, or by one thread.',
    Caller.ELECTED: "Called by one thread of the program.",
}


def page() -> str:
    parts = [_INTRODUCTION, *_contents()]
    section = ""
    for op in OPS.values():
        if op.section != section:
            section = op.section
            parts.append(f"## {section}\n")
        parts.append("\n".join(_entry(op)))
    return "\n".join(parts)


def functions(op: Op) -> tuple[str, ...]:
    """The names of the language's functions that emit an op."""
    return FUNCTIONS.get(op.name, (op.name,))


def _contents() -> Iterator[str]:
    yield "| section | ops |\n| --- | --- |"
    sections: dict[str, list[str]] = {}
    for op in OPS.values():
        sections.setdefault(op.section, []).append(f"[`{op.name}`](#{op.name})")
    for section, names in sections.items():
        yield f"| {section} | {', '.join(names)} |"
    yield ""


def _entry(op: Op) -> Iterator[str]:
    yield f"### {op.name}\n"
    yield f"{op.summary[0].upper()}{op.summary[1:]}.\n"
    if functions(op):
        yield "```python"
        for name in functions(op):
            yield f"dl.{name}{_signature(_function(name))}"
        yield "```\n"
        arguments = _arguments(_function(functions(op)[-1]))
        if arguments:
            yield "\n".join(f"- `{name}`: {text}" for name, text in arguments) + "\n"
    if op.description:
        yield f"{op.description}\n"
    if op.caller:
        yield f"**Order.** {_CALLERS[op.caller]} {_order(op)}".rstrip() + "\n"
        yield "| transport | routine |\n| --- | --- |"
        for transport in op.routines:
            yield f"| {transport} | {_routine(op, transport)} |"
        yield ""
    if op.example:
        yield f"```python\n{op.example}\n```\n"


def _function(name: str) -> Any:
    function = getattr(dl, name)
    return getattr(function, "fn", function)  # of what is written in the language itself, what was decorated


def _signature(function: Any) -> str:
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name.startswith("_"):
            continue
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parameters.append(parameter.name + default.replace("'", '"'))
    return f"({', '.join(parameters)})"


def _arguments(function: Any) -> list[tuple[str, str]]:
    """The "Args:" of a docstring."""
    found = re.search(r"^Args:\n((?: {4}.*\n?)+)", inspect.getdoc(function) or "", re.MULTILINE)
    if found is None:
        return []
    entries = re.findall(r"^ {4}(\w+(?:, \w+)*): ((?:.*\n?)(?: {8}.*\n?)*)", found.group(1), re.MULTILINE)
    return [(name, re.sub(r"\s+", " ", text.replace("``", "`")).strip()) for name, text in entries]


def _order(op: Op) -> str:
    clauses = []
    if "sem" in op.attributes:
        clauses.append("Publishes and acquires as `sem` says, for observers in `scope`.")
    else:
        if op.release:
            clauses.append("Publishes: who sees its effect sees what the program wrote before.")
        if op.acquire:
            clauses.append("Acquires: the program's later loads see what it has seen published.")
    if op.wait:
        clauses.append("Waits: its result is a token for `consume_token`.")
    return " ".join(clauses)


def _routine(op: Op, transport: str) -> str:
    text = op.routines[transport]
    if not text:
        return "—"
    name = re.search(r"\w[\w$]*(?=\(|$)", text)
    assert name, text
    types = text.partition(" for ")[2]
    spelled = [_spelled(each) for each in _with_scopes(name.group(), transport)]
    return ", ".join(f"`{each}`" for each in spelled) + (f" for {types.replace(' ', ', ')}" if types else "")


def _with_scopes(name: str, transport: str) -> list[str]:
    if "$scope" not in name:
        return [name]
    names = [name.replace("$scope", suffix) for suffix in ("", *_SUFFIXES[transport])]
    if transport == "nvshmem":  # what extends the standard has another prefix there
        names[1:] = [each.replace("nvshmem_", "nvshmemx_", 1) for each in names[1:]]
    return names


_SUFFIXES = {"nvshmem": ("_warp", "_block"), "p2p": ("_warp", "_block"), "rocshmem": ("_wave", "_wg")}


def _spelled(name: str) -> str:
    return (
        name.replace("$sig_op", "{set,add}")
        .replace("$aligned", "{,_aligned,_between_aligned}")
        .replace("$type", "TYPE")
        .replace("$op", "OP")
    )


def main() -> int:
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print("docs/ops.md is stale: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
