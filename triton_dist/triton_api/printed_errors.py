"""What MLIR and LLVM print where a compilation fails, or ends its process."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["PrintedError", "exit_report", "first_error"]


class PrintedError(NamedTuple):
    """An error of MLIR; ``file`` is empty if it names none. The text may have several lines."""

    file: str
    line: int
    column: int
    text: str


_ERROR = re.compile(
    r'^(?:loc\(.*?"?(?P<place>[^"\s]+?)"?:(?P<at>\d+:\d+)\)+|(?P<place2>[^\s:]+):(?P<at2>\d+:\d+)|loc\(unknown\)): '
    # Behind the text are a line of source, which is indented, or another message.
    r"error: (?P<text>.*(?:\n(?!\s|loc\(|LLVM ERROR|.*: (?:error|note|remark|warning): |.*Assertion).+)*)",
    re.MULTILINE,
)


def first_error(printed: str) -> PrintedError | None:
    """The first error, as ``file:8:27: error: text`` or ``loc("name"("file":8:27)): error: text``."""
    found = _ERROR.search(printed)
    if found is None:
        return None
    line, column = map(int, (found["at"] or found["at2"] or "0:0").split(":"))
    return PrintedError(found["place"] or found["place2"] or "", line, column, found["text"])


def exit_report(printed: str) -> str:
    """Why the process ended: the line of an assertion, or LLVM's; else the first one."""
    lines = [line for line in printed.splitlines() if line.strip()]
    return next((line for line in lines if "Assertion" in line or "LLVM ERROR" in line), lines[0] if lines else "")
