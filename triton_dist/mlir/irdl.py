"""The shmem dialect in IRDL, MLIR's language for the definition of dialects.

A host that cannot load our library loads this description and knows the ops, their operands, results and attributes,
and verifies them. What IRDL cannot say is left to :func:`triton_dist.mlir.verify`: that a value has the type that
``type`` names, and that a bitwise reduction is not on floats.

IRDL: https://mlir.llvm.org/docs/Dialects/IRDL/
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping

from triton_dist._C.op_table import OPS, Op, Value

__all__ = ["description"]

_ELEMENTS = ("i8", "i16", "i32", "i64", "f32", "f64")  # the types of elements in registers
_CONSTRAINTS = {
    Value.ELEMENT: [f"irdl.is {type}" for type in _ELEMENTS],
    Value.I1: ["irdl.is i1"],
    Value.I32: ["irdl.is i32"],
    Value.I64: ["irdl.is i64"],
}


def description(pointers: tuple[str, ...] = ("!llvm.ptr",)) -> str:
    """The text of a module with the operation ``irdl.dialect @shmem``.

    Args:
        pointers: the types that pointers may have. A host accepts only types whose dialects it has loaded; empty: a
            pointer may be anything.
    """
    pointer = [f'irdl.base "{name}"' for name in pointers] or ["irdl.any"]
    constraints = {**_CONSTRAINTS, Value.POINTER: pointer, Value.SYMMETRIC_POINTER: pointer}
    lines = ["module {", "  irdl.dialect @shmem {"]
    for op in OPS.values():
        body = _Operation(op, constraints).lines()
        lines += [f"    irdl.operation @{op.name} {{", *(f"      {line}" for line in body), "    }"]
    return "\n".join([*lines, "  }", "}", ""])


class _Operation:
    """The body of an ``irdl.operation``."""

    def __init__(self, op: Op, constraints: Mapping[Value, list[str]]) -> None:
        self._op = op
        self._constraints = constraints
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        op = self._op
        operands = {name: self._any_of(self._constraints[value]) for name, value in op.operands.items()}
        results = {"result": self._any_of(self._constraints[op.result])} if op.result else {}
        attributes = {f'"{name}"': self._any_of(_cases(op, name, kind)) for name, kind in op.attributes.items()}
        if operands:
            self._lines.append(f"irdl.operands({_listed(operands, ': ')})")
        if attributes:
            self._lines.append(f"irdl.attributes {{{_listed(attributes, ' = ')}}}")
        if results:
            self._lines.append(f"irdl.results({_listed(results, ': ')})")
        return self._lines

    def _any_of(self, constraints: Iterable[str]) -> str:
        """The value that holds for any of these constraints."""
        values = [self._value(constraint) for constraint in constraints]
        return values[0] if len(values) == 1 else self._value(f"irdl.any_of({', '.join(values)})")

    def _value(self, constraint: str) -> str:
        name = f"%{len(self._lines)}"
        self._lines.append(f"{name} = {constraint}")
        return name


def _cases(op: Op, attribute: str, kind: type[enum.IntEnum]) -> Iterator[str]:
    members = op.elements if attribute == "type" else kind
    return (f"irdl.is {int(member)} : i32" for member in members)


def _listed(values: dict[str, str], between: str) -> str:
    return ", ".join(f"{name}{between}{value}" for name, value in values.items())
