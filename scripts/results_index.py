"""Print the page of benchmarks/results: which figures are of which commit, and what has changed since.

python scripts/results_index.py > benchmarks/results/README.md    # what `make docs` does
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tomllib

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks/results"


@dataclass(frozen=True)
class Result:
    """Files of one measurement."""

    files: list[str]
    what: str
    commit: str
    """The commit with which the files came into the repository, or the one that they name themselves."""
    sources: list[str]
    """Files and folders on which the figures depend."""
    changed: str = ""
    """What has changed in ``sources`` since ``commit``."""


def results() -> list[Result]:
    index = tomllib.loads((RESULTS / "index.toml").read_text())
    return [Result(**entry) for entry in index["result"]]


def page() -> Iterator[str]:
    yield "# Results"
    yield ""
    yield "Each result names its commit. The last column says what has changed since in the sources that it depends on."
    yield ""
    yield "| what | files | commit | changed since |"
    yield "| --- | --- | --- | --- |"
    for result in results():
        files = ", ".join(f"[{file}]({file})" for file in result.files)
        yield f"| {result.what} | {files} | {result.commit} | {result.changed or 'nothing'} |"


if __name__ == "__main__":
    print("\n".join(page()))
