"""Reads the sections that describe OpenSHMEM's routines from the sources of the specification.

    git clone --branch v1.6 https://github.com/openshmem-org/specification
    python scripts/openshmem_sections.py 1.6 specification >> scripts/openshmem_sections.tsv

LaTeX computes the section numbers, so this script counts the headings, too. Each line of the output is a version, a
routine, its section and the heading, separated by tabs. Tests compare docstrings and the op table with it: a routine is
cited from the first version that has it.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["read", "sections"]

OUTPUT = Path(__file__).with_suffix(".tsv")
_LEVELS = ("section", "subsection", "subsubsection", "subsubsubsection")
_BRACED = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_COMMAND = re.compile(rf"\\(?:(input){_BRACED}|({'|'.join(_LEVELS)}){_BRACED}|(FuncDecl){_BRACED})")


def read(root: Path) -> Iterator[tuple[str, str, str]]:
    """Routine, section and heading, in the specification's order; only the first declaration of each routine."""
    numbers, heading, seen = [0] * len(_LEVELS), "", set()
    for command, text in _commands(root, root / "main_spec.tex"):
        if command in _LEVELS:
            level = _LEVELS.index(command)
            numbers[level:] = [numbers[level] + 1, *[0] * (len(_LEVELS) - level - 1)]
            heading = _plain(text)
        elif (routine := _plain(text)) not in seen:
            seen.add(routine)
            yield routine, ".".join(str(number) for number in numbers if number), heading


@functools.cache
def sections() -> dict[str, tuple[str, str]]:
    """The first version with each routine and its section there, from the output that is stored next to this script."""
    found: dict[str, tuple[str, str]] = {}
    for version, routine, section, _ in sorted(line.split("\t") for line in OUTPUT.read_text().splitlines()):
        found.setdefault(routine, (version, section))
    return found


def _commands(root: Path, file: Path) -> Iterator[tuple[str, str]]:
    """Headings and declarations of routines up to the appendices, which have letters for numbers."""
    text = re.sub(r"(?<!\\)%.*", "", file.read_text())
    for match in _COMMAND.finditer(text):
        command, argument = [group for group in match.groups() if group is not None]
        if command != "input":
            yield command, argument
        elif argument.removeprefix("content/") in ("frontmatter", "backmatter"):
            continue
        elif argument.startswith("content/"):
            yield from _commands(root, (root / argument).with_suffix(".tex"))


def _plain(text: str) -> str:
    """``text`` without LaTeX commands: ``\\textbf{SHMEM\\_PUT}`` becomes SHMEM_PUT."""
    return re.sub(r"\\[A-Za-z]+|[{}\\]", "", text.replace(r"\_", "_")).strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("specification", type=Path, help="its sources, at the tag of the version")
    arguments = parser.parse_args()
    for row in read(arguments.specification):
        sys.stdout.write("\t".join((arguments.version, *row)) + "\n")
