"""Fixtures of the loading tests."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest
from python_environment import Environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An empty environment of this Python."""
    folder = tmp_path / "environment"
    venv.EnvBuilder(symlinks=True).create(folder)
    return Environment(folder)
