"""The signatures that docs/ops.md shows, and calls of them with every argument by its name."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

__all__ = ["PAGE", "VALUES", "as_call", "imported", "signatures"]

PAGE = (Path(__file__).resolve().parents[1] / "docs/ops.md").read_text()

VALUES = {
    **dict.fromkeys(("dst", "src", "ptr", "ivar", "ivars", "sig_addr", "indices", "cmp_values"), "words"),
    **dict.fromkeys(("pe", "root", "src_pe"), "0"),
    **dict.fromkeys(
        ("nbytes", "nelems", "bsize", "nblocks", "dst_stride", "src_stride", "signal", "cmp_value", "cond"), "n"
    ),
    **dict.fromkeys(("team", "src_team", "dest_team"), "dl.TEAM_WORLD"),
    "status": "status",
    "cmp": "dl.CMP_GE",
    "sig_op": "dl.SIGNAL_ADD",
    "value": "n",
    "token": "dl.signal_wait_until(words, dl.CMP_GE, 1)",
}
"""What fits an argument of each name: ``words`` is a pointer to int64, ``status`` one to int32, ``n`` a number."""


def signatures(level: str) -> dict[str, list[str]]:
    """Signatures by the title of their section (``"##"``) or by the name of their op (``"###"``)."""
    found = {}
    for part in re.split(rf"^{level} ", PAGE, flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"```python\n(.*?)```", part.split("\n## ")[0], re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        found[part.splitlines()[0]] = [line for line in lines if _is_signature(line)]
    return {title: lines for title, lines in found.items() if lines}


def as_call(signature: str, values: Mapping[str, str] = VALUES, **given: str) -> str:
    """The call of a signature. ``given`` are arguments that differ from ``values`` and from the defaults."""
    call = ast.parse(signature, mode="eval").body
    assert isinstance(call, ast.Call)
    arguments = {name.id: values[name.id] for name in call.args if isinstance(name, ast.Name)}
    arguments |= {str(keyword.arg): ast.unparse(keyword.value) for keyword in call.keywords}
    assert given.keys() <= arguments.keys(), f"{signature} has no {given.keys() - arguments.keys()}"
    return f"{ast.unparse(call.func)}({', '.join(f'{name}={value}' for name, value in (arguments | given).items())})"


def _is_signature(line: str) -> bool:
    """Whether a line is no example: names for arguments, some with a default that is a constant."""
    tree = ast.parse(line).body[0]
    if not isinstance(tree, ast.Expr) or not isinstance(tree.value, ast.Call):
        return False
    call = tree.value
    names = all(isinstance(argument, ast.Name) and argument.id in VALUES for argument in call.args)
    return names and all(isinstance(keyword.value, ast.Constant) for keyword in call.keywords)


def imported(lines: Iterable[str], file: Path) -> ModuleType:
    """The module of these lines, in ``file``, since Triton reads the source."""
    file.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
