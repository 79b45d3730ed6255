"""Write the op table as a Python module, from what ``llvm-tblgen --dump-json`` says of ShmemOps.td.

    generate_op_table.py ShmemOps.json op_table.py

The module imports nothing but the standard library and parses nothing.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TRANSPORTS = ("nvshmem", "p2p", "rocshmem")

VALUES = {
    "Shmem_Ptr": "Value.POINTER",
    "Shmem_SymmetricPtr": "Value.SYMMETRIC_POINTER",
    "Shmem_Value": "Value.ELEMENT",
    "I1": "Value.I1",
    "I32": "Value.I32",
    "I64": "Value.I64",
}

HEAD = '''\
"""The op table, lowering/include/Shmem/ShmemOps.td. The build writes this file: change the table instead."""

from __future__ import annotations

import enum
from dataclasses import dataclass
'''

OP = '''\
class Value(enum.Enum):
    """What an operand or a result is."""

    POINTER = "pointer"
    SYMMETRIC_POINTER = "symmetric pointer"
    ELEMENT = "element"
    """Of the type that the attribute ``type`` names."""
    I1 = "i1"
    I32 = "i32"
    I64 = "i64"


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """An entry of the table."""

    name: str
    section: str
    """Of the reference."""
    summary: str
    description: str
    example: str
    """A line of a kernel, of arguments ``x`` and ``y`` (pointers to float32), ``counters`` and ``indices`` (int64),
    ``flags`` (int32) and ``signal``, all symmetric, and the numbers ``pe`` and ``n``."""
    operands: dict[str, Value]
    """In this order they are passed when an op is built or interpreted, and the attributes after them."""
    attributes: dict[str, type[enum.IntEnum]]
    effect: Effect
    routines: dict[str, str]
    """By transport; empty if its library has none. ``$type``, ``$op`` and ``$scope`` stand for the attributes as the
    library spells them, ``$aligned`` for what the compiler knows of the operands."""
    result: Value | None = None
    elements: tuple[ElementType, ...] = ()
    """What the attribute ``type`` may be."""
    caller: Caller | None = None
    """The threads that call the routine, unless the attribute ``scope`` says so. None: the op calls none."""
    update: Update | None = None
    """Of an atomic."""
    nbi: bool = False
    """``src`` is read, or ``dst`` written, until the program completes its operations."""
    release: bool = False
    """The program's earlier accesses are ordered before it. The attribute ``sem`` wins over this and ``acquire``."""
    acquire: bool = False
    wait: bool = False
    """It ends when another PE acts; its result is a token."""
    collective: bool = False
    src_for_each_pe: bool = False
    """Of a collective: ``src`` has a part for each PE of the team."""
    dst_for_each_pe: bool = False
'''


def module(table: Any) -> str:
    """The source of the module."""
    parts = [HEAD]
    for record in _records(table, "Shmem_Enum"):
        cases = [(case["str"].upper(), case["value"], "") for case in _cases(table, record)]
        parts.append(_enum(record["className"], "IntEnum", _sentence(record["summary"].partition(" (")[0]), cases))
    parts.append(_enum_of_records(table, "Caller", "Which threads of the program call a routine."))
    parts.append(_enum_of_records(table, "Effect", "What an op does to memory and to the order of accesses."))
    parts.append(_enum_of_records(table, "Update", "What an atomic makes of a word."))
    parts.append(OP)
    ops = _records(table, "Shmem_Op")
    parts.append("\n".join(f"{_constant(record)} = {_call('Op', _fields(table, record))}" for record in ops))
    names = "\n".join(f"    {_constant(record)}," for record in ops)
    parts.append(f"OPS: dict[str, Op] = {{\n    op.name: op\n    for op in (\n{_indent(names, 4)}\n    )\n}}\n")
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)


def _records(table: Any, kind: str) -> list[Any]:
    """The records of a class as the table orders them. (A record lists the places that made it, itself last.)"""
    records = (table[name] for name in table["!instanceof"][kind])
    return sorted(records, key=lambda record: int(record["!locs"][-1].rsplit(":", 1)[1]))


def _cases(table: Any, record: Any) -> list[Any]:
    return [table[case["def"]] for case in record["enumerants"]]


def _fields(table: Any, record: Any) -> dict[str, str]:
    """The arguments of ``Op``, as source; without those that have their default."""
    attributes = {name: kind["def"] for kind, name in record["arguments"]["args"] if "Attr" in _classes(table, kind)}
    operands = {name: kind["def"] for kind, name in record["arguments"]["args"] if name not in attributes}
    elements = table[record["elements"]["def"]]["names"] if "type" in attributes else []
    flags = ("nbi", "release", "acquire", "wait", "collective", "srcForEachPe", "dstForEachPe")
    optional = {
        "result": next((VALUES[kind["def"]] for kind, _ in record["results"]["args"]), None),
        "elements": _tuple(f"ElementType.{name.upper()}" for name in elements) if elements else None,
        "caller": _member("Caller", record.get("calledBy")),
        "update": _member("Update", record.get("update")),
        **{_snake(flag): bool(record.get(flag)) for flag in flags},
    }
    routines = {transport: record.get(transport) or "" for transport in TRANSPORTS}
    return {
        "name": _text(record["opName"]),
        "section": _text(record["section"]),
        "summary": _text(record["summary"]),
        "description": _text(inspect.cleandoc(record["description"] or "")),
        "example": _text(record["example"]),
        "operands": _dict({name: VALUES[kind] for name, kind in operands.items()}),
        "attributes": _dict({name: table[kind]["className"] for name, kind in attributes.items()}),
        "effect": str(_member("Effect", record["effect"])),
        "routines": _dict({transport: _text(routine) for transport, routine in routines.items()}),
        **{name: str(value) for name, value in optional.items() if value},
    }


def _classes(table: Any, kind: Any) -> list[str]:
    classes: list[str] = table[kind["def"]]["!superclasses"]
    return classes


def _enum_of_records(table: Any, name: str, summary: str) -> str:
    """An enumeration of the records of a class of the table, with what each means."""
    records = [(record, _snake(record["!name"].removeprefix("Shmem_"))) for record in _records(table, f"Shmem_{name}")]
    cases = [(member.upper(), _text(member), record.get("summary", "")) for record, member in records]
    return _enum(name, "Enum", summary, cases)


def _enum(name: str, base: str, summary: str, cases: list[tuple[str, Any, str]]) -> str:
    def lines() -> Iterator[str]:
        yield f'class {name}(enum.{base}):\n    """{summary}"""\n'
        for member, value, meaning in cases:
            yield f"    {member} = {value}"
            if meaning:
                yield f'    """{_sentence(meaning).replace("`", "``")}"""'

    return "\n".join(lines()) + "\n"


# ---- source text


def _constant(record: Any) -> str:
    name: str = record["opName"]
    return name.upper()


def _member(kind: str, record: Any) -> str | None:
    return f"{kind}.{_snake(record['def'].removeprefix('Shmem_')).upper()}" if record else None


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _text(text: str) -> str:
    if "\n" not in text:
        return json.dumps(text)
    assert '"""' not in text and "\\" not in text and not text.endswith('"'), text
    return f'"""{text}"""'


def _call(function: str, arguments: dict[str, str]) -> str:
    return f"{function}(\n" + "".join(f"    {name}={value},\n" for name, value in arguments.items()) + ")"


def _tuple(items: Any) -> str:
    items = list(items)
    return _wrapped(items, lambda text: f"({text}{',' * (len(items) == 1)})", "()")


def _dict(items: dict[str, str]) -> str:
    return _wrapped([f'"{key}": {value}' for key, value in items.items()], lambda text: f"{{{text}}}", "{}")


def _wrapped(items: list[str], bracketed: Callable[[str], str], brackets: str) -> str:
    """The items on one line if they fit, else one a line."""
    line = bracketed(", ".join(items))
    if len(line) <= 90:
        return line
    return brackets[0] + "\n" + "".join(f"        {item},\n" for item in items) + f"    {brackets[1]}"


def _indent(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("module", type=Path)
    arguments = parser.parse_args()
    arguments.module.parent.mkdir(parents=True, exist_ok=True)
    arguments.module.write_text(module(json.loads(arguments.table.read_text())))


if __name__ == "__main__":
    main()
