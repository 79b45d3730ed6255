"""Committed figures name their commit, and none is shown as today's whose sources have changed since."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from results_index import RESULTS, Result, page, results  # noqa: E402


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)


def is_current(result: Result) -> bool:
    """Whether the sources of ``result`` are as they were at its commit."""
    return git("diff", "--quiet", result.commit, "--", *result.sources).returncode == 0


def test_every_result_is_in_the_index() -> None:
    listed = [file for result in results() for file in result.files]
    assert sorted(listed) == sorted({file.name for file in RESULTS.iterdir()} - {"index.toml", "README.md"})


@pytest.mark.parametrize("result", results(), ids=lambda result: result.files[0])
def test_changes_since_a_result_are_told(result: Result) -> None:
    for source in result.sources:
        assert (ROOT / source).exists(), f"{source} of {result.files} is gone: name the sources as they are now"
    if git("cat-file", "-e", f"{result.commit}^{{commit}}").returncode:
        pytest.skip("needs the history: this is a shallow clone, or no repository")
    assert result.changed or is_current(result), (
        f"{result.sources} have changed since {result.files} were measured at {result.commit}: measure again, or say in"
        " benchmarks/results/index.toml under `changed` what has changed"
    )


def test_the_page_is_of_the_index() -> None:
    assert (RESULTS / "README.md").read_text() == "\n".join(page()) + "\n", "run `make docs`"


def test_a_change_is_seen() -> None:
    """Of a result that is said to be of the first commit."""
    first = git("rev-list", "--max-parents=0", "HEAD").stdout.split()
    if not first:
        pytest.skip("needs a repository")
    assert not is_current(Result([], "", first[0], ["README.md"]))
