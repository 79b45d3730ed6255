"""Finds where a file reaches into a library: names that are not documented, and objects that it changes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["is_private", "reaches"]


def reaches(file: Path, library: str, is_public: Callable[[str], bool]) -> Iterator[str]:
    """Names ``library.a.b`` that a file uses and that are not public, and ``changes x.y`` where it assigns to one."""
    text = file.read_text()
    if library not in text:
        return  # reading its syntax takes longest
    nodes = list(ast.walk(ast.parse(text)))
    aliases = _aliases(nodes, library)
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Attribute):
            names = [_full(node, aliases) or ""]
        yield from (name for name in names if name.split(".")[0] == library and not is_public(name))
    for node in nodes:
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = list(node.targets)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            targets = [ast.Attribute(node.args[0], "…", ast.Store())]
        for target in targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)) and (changed := _full(target, aliases)):
                yield f"changes {changed}"


def is_private(name: str) -> bool:
    """Whether a part of ``a.b.c`` begins with an underscore; ``__version__`` and the like are public."""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def _aliases(nodes: list[ast.AST], library: str) -> dict[str, str]:
    """By a file's name for something of the library: what that is, as ``library.a.b``."""
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == library:
                    known.update({name.asname: name.name} if name.asname else {library: library})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == library:
            known.update({name.asname or name.name: f"{node.module}.{name.name}" for name in node.names})
    return known


def _full(expression: ast.expr, aliases: dict[str, str]) -> str | None:
    """``library.a.b.c`` of ``b.c`` or ``b[…].c``, where ``b`` is an alias for ``library.a.b``."""
    names: list[str] = []
    while isinstance(expression, (ast.Attribute, ast.Subscript)):
        if isinstance(expression, ast.Attribute):
            names.insert(0, expression.attr)
        expression = expression.value
    if not isinstance(expression, ast.Name) or expression.id not in aliases:
        return None
    return ".".join([aliases[expression.id], *names])
