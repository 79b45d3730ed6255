"""The documentation says what the code does: tables are the code's own, names and links exist, code blocks run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from forking import launch
from limits import HANG_SECONDS

import triton_dist
import triton_dist.language as dl
from triton_dist._C.op_table import OPS, Caller

ROOT = Path(__file__).resolve().parents[2]

PAGES = [
    page
    for folder in (".", "docs", "docs/decisions", "benchmarks/results")
    for page in sorted((ROOT / folder).glob("*.md"))
]


def test_environment_table_is_the_code_s_own() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "triton_dist.environment"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() in (ROOT / "docs/world.md").read_text(), (
        "docs/world.md: replace the table of variables by the output of `python -m triton_dist.environment`"
    )


def test_every_op_is_described() -> None:
    page = (ROOT / "docs/language.md").read_text()
    missing = [name for name in dl.__all__ if f"`{name}" not in page and f"`dl.{name}" not in page]
    assert not missing, f"docs/language.md says nothing of {missing}"


def test_the_table_of_orders_is_the_op_table_s() -> None:
    """Every op that acts has a row, and the row says that it acquires, or that it releases nothing, where it is so."""
    page = (ROOT / "docs/language.md").read_text()
    section = page[page.index("## Order and completion") : page.index("## Tensor descriptors")]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.count(" | ") == 2]
    rows = rows[2:]  # behind the head
    acting = [op for op in OPS.values() if op.caller in (Caller.BLOCK, Caller.ELECTED)]
    for op in acting:
        if op.name.startswith("atomic_"):
            continue  # their argument determines the order
        name = {"reduce": "sum_reduce", "reducescatter": "sum_reducescatter"}.get(op.name, op.name)
        found = [row for row in rows if any(fnmatch(name, known) for known in re.findall(r"`([\w*]+)", row[0]))]
        assert len(found) == 1, f"{name} has {len(found)} rows"
        _, before, after = found[0]
        assert before.startswith(("nothing", "(")) != op.release, f"{name}: {before}"
        if not name.endswith("_nbi"):
            assert ("acquire" in after) == op.acquire, f"{name}: {after}"


def test_every_function_is_described() -> None:
    page = (ROOT / "docs/world.md").read_text()
    missing = [name for name in triton_dist.__all__ if f"`{name}" not in page and f"`triton_dist.{name}" not in page]
    assert not missing, f"docs/world.md says nothing of {missing}"


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "README.md").read_text()
    records = {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert set(re.findall(r"\]\((\d{4}-[^)]+)\)", index)) == records


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_the_readme_s_kernel_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "readme.py"
    script.write_text(blocks[0])
    result = launch([script], 2, env={"TRITON_DIST_WORLD": "cpu"}).check()
    assert result[0].stdout == "PE 0 holds what PE 1 sent\n"


def test_the_notebook_s_function_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/frameworks.md").read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "spawn(" in block)
    script = tmp_path / "notebook.py"
    script.write_text(f"import triton_dist\n{block}")
    environment = os.environ | {"TRITON_DIST_WORLD": "cpu", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert run.stdout == f"{[torch.full((4,), 60.0)] * 4}\n", run.stderr
