"""Fixtures of the loading tests."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from python_environment import Environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An empty environment of this Python."""
    folder = tmp_path / "environment"
    venv.EnvBuilder(symlinks=True).create(folder)
    return Environment(folder)


@pytest.fixture
def fails() -> Callable[[subprocess.CompletedProcess[str]], str]:
    """Asserts that a program ended with an ImportError and gives its message."""

    def message(result: subprocess.CompletedProcess[str]) -> str:
        assert result.returncode == 1, result
        last = result.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: "), result.stderr
        return last

    return message
