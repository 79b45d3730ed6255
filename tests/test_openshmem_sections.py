"""Sections of OpenSHMEM that the op table and docstrings cite are those in which its specification has the routine."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import triton_dist
import triton_dist.language as dl
from triton_dist.world.teams import Team

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from openshmem_sections import read, sections  # noqa: E402

from triton_dist._C.op_table import OPS, Op  # noqa: E402

CITATION = re.compile(r"OpenSHMEM\s+(\d\.\d),\s+(\d+(?:\.\d+)+)")

ROUTINES = {
    "dl.symm_at": "ptr",
    "dl.sync": "team_sync",
    "dl.copy": "put",
    "triton_dist.reduce": "OP_reduce",
    "Team.split_strided": "team_split_strided",
    "Team.split_2d": "team_split_2d",
}
"""Functions that are not named as the routine is."""


def cited(text: str) -> list[tuple[str, str]]:
    """Versions and sections."""
    return CITATION.findall(text)


def functions() -> dict[str, Any]:
    parts = {"dl": (dl, dl.__all__), "triton_dist": (triton_dist, triton_dist.__all__), "Team": (Team, dir(Team))}
    found = {f"{part}.{name}": getattr(owner, name) for part, (owner, names) in parts.items() for name in names}
    return {name: value for name, value in found.items() if callable(value) and cited(inspect.getdoc(value) or "")}


@pytest.mark.parametrize("op", [op for op in OPS.values() if cited(op.description)], ids=lambda op: op.name)
def test_op(op: Op) -> None:
    routine = re.search(r"\b(shmem_[A-Za-z0-9_]+)\(", op.description)
    assert routine, f"the description of {op.name} has no C signature"
    assert cited(op.description) == [section_of(routine[1])]


@pytest.mark.parametrize("name", functions())
def test_function(name: str) -> None:
    routine = "shmem_" + ROUTINES.get(name, name.partition(".")[2])
    assert cited(inspect.getdoc(functions()[name]) or "") == [section_of(routine)]


def section_of(routine: str) -> tuple[str, str]:
    """The first version with a routine, and its section there.

    ``OP`` is any operator of reductions, which have a section together, and one each.
    """
    if "_OP_" in routine:
        version, section = section_of(routine.replace("_OP_", "_sum_"))
        return version, section.rpartition(".")[0]
    return sections()[routine.replace("_TYPENAME", "")]


def test_many_are_cited() -> None:
    assert sum(bool(cited(op.description)) for op in OPS.values()) > 50 and len(functions()) > 60


def test_sections_are_counted_as_latex_counts_them(tmp_path: Path) -> None:
    (tmp_path / "content").mkdir()
    (tmp_path / "main_spec.tex").write_text(
        r"""\newcommand{\subsubsubsection}[1]{\paragraph{#1}}
\input{content/frontmatter}
\section{One} % \section{no}
\section{Two}
\subsection{\textbf{SHMEM\_A}} \input{content/a}
\subsection*{not counted}
\subsubsection{Inner}
\subsubsubsection{\textbf{SHMEM\_B}} \input{content/b.tex}
\subsubsubsection{\textbf{SHMEM\_C, SHMEM\_D}} @\FuncDecl{shmem\_c}@ @\FuncDecl{shmem\_d}@
\section{Three}
\input{content/backmatter}
"""
    )
    (tmp_path / "content/a.tex").write_text(r"@\FuncDecl{shmem\_a}@ @\FuncDecl{shmem\_\FuncParam{TYPENAME}\_a}@")
    (tmp_path / "content/b.tex").write_text(r"@\FuncDecl{shmem\_b}@ like @\FuncDecl{shmem\_a}@")
    assert list(read(tmp_path)) == [
        ("shmem_a", "2.1", "SHMEM_A"),
        ("shmem_TYPENAME_a", "2.1", "SHMEM_A"),
        ("shmem_b", "2.1.1.1", "SHMEM_B"),
        ("shmem_c", "2.1.1.2", "SHMEM_C, SHMEM_D"),
        ("shmem_d", "2.1.1.2", "SHMEM_C, SHMEM_D"),
    ]
