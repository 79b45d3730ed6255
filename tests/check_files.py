"""Files of checks: functions ``check_…(world)`` that every PE of a launch calls, each of which is a test.

Making a world takes a while, so a launch runs the checks of its file one after the other, and each test looks for its
own outcome. The checks of a file that are slow have a launch of their own, which draws more examples: it is left out
where their tests are.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from triton_dist.testing import Result

__all__ = ["CheckFiles", "checks_of"]

MORE_EXAMPLES = "more_examples"
"""As of ``world/checks/running.py``, which tests do not import: it needs a world."""


@functools.cache
def checks_of(file: Path) -> list[str]:
    """The checks that a file imports and defines, in its order, read from its text: it may need another world."""
    names: list[str] = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += (alias.name for alias in node.names)
    return [name.removeprefix("check_") for name in names if name.startswith("check_")]


class Launch(Protocol):
    """Starts ``n_pes`` PEs of a command."""

    def __call__(self, args: Sequence[str | Path], n_pes: int) -> Result: ...


class CheckFiles:
    """The checks of a folder.

    ``runs`` says which files run with how many PEs. ``slow`` holds the tests that are marked ``slow``:
    ``file-2-check``, or ``file-2`` for all checks of a file with 2 PEs.
    """

    def __init__(
        self, folder: Path, launch: Launch, runs: Mapping[str, Collection[int]], slow: Collection[str] = ()
    ) -> None:
        self._folder, self._start, self._slow = folder, launch, frozenset(slow)
        self._results: dict[tuple[str, int, bool], Result] = {}
        self._tests = [
            (file, n, check) for file, counts in runs.items() for n in counts for check in self._checks(file)
        ]
        unknown = self._slow - {name for test in self._tests for name in self._names(*test)}
        assert not unknown, f"no checks are named {sorted(unknown)}"

    def parameters(self) -> list[Any]:
        """Of ``parametrize(("file", "n_pes", "check"), …)``."""
        return [
            pytest.param(*test, id=self._names(*test)[1], marks=[pytest.mark.slow] if self._is_slow(*test) else [])
            for test in self._tests
        ]

    def assert_passed(self, file: str, n_pes: int, check: str) -> None:
        """Launch the file, unless it was already, and fail where a PE did not pass the check."""
        result = self._launched(file, n_pes, self._is_slow(file, n_pes, check))
        missing = [pe.pe for pe in result if f"passed: {check}\n" not in pe.stdout]
        if missing:
            pytest.fail(f"{check} did not pass on PE {missing}\n{result.report}", pytrace=False)

    def assert_all_cases_passed(self, file: str, n_pes: int) -> None:
        """The checks of a launch that are not slow, with every case that they have: ``running.some`` draws a part."""
        checks = [check for check in self._checks(file) if not self._is_slow(file, n_pes, check)]
        result = self._start([self._folder / file, *checks, MORE_EXAMPLES], n_pes)
        missing = {check for check in checks if any(f"passed: {check}\n" not in pe.stdout for pe in result)}
        if missing:
            pytest.fail(f"{sorted(missing)} did not pass\n{result.report}", pytrace=False)

    def _launched(self, file: str, n_pes: int, slow: bool) -> Result:
        key = file, n_pes, slow
        if key not in self._results:
            checks = [check for check in self._checks(file) if self._is_slow(file, n_pes, check) == slow]
            drawn = [MORE_EXAMPLES] if slow else []
            self._results[key] = self._start([self._folder / file, *checks, *drawn], n_pes)
        return self._results[key]

    def _checks(self, file: str) -> list[str]:
        return checks_of(self._folder / file)

    def _names(self, file: str, n_pes: int, check: str) -> tuple[str, str]:
        run = f"{file.removesuffix('.py')}-{n_pes}"
        return run, f"{run}-{check}"

    def _is_slow(self, file: str, n_pes: int, check: str) -> bool:
        return not self._slow.isdisjoint(self._names(file, n_pes, check))
