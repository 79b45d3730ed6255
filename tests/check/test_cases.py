"""Many small programs: the bugs are found, by the schedule that each names, on their lines; the right ones are not
blamed, however they are scheduled."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from forking import Forker, Outcome

from triton_dist.check import CLASSES

FOLDER = Path(__file__).parent / "cases"
SCHEDULES = ("round-robin", "eager", "adversarial", "random:1")


class Case(NamedTuple):
    file: Path
    name: str
    kinds: tuple[str, ...]
    fatal: bool
    schedule: str


def _cases() -> list[Case]:
    """What the files declare, read from their text: they run kernels when they are imported."""
    found = []
    for file in sorted(FOLDER.rglob("*.py")):
        program = file if file.parent == FOLDER else FOLDER / "correct.py"
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                call = node.decorator_list[0]
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "case":
                    more = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
                    kinds = tuple(ast.literal_eval(argument) for argument in call.args)
                    how = more.get("fatal", False), more.get("schedule", "round-robin")
                    found.append(Case(program, node.name, kinds, *how))
    return found


CASES = _cases()
BUGS = [case for case in CASES if case.kinds]
TOGETHER = sorted({(case.file, case.schedule) for case in BUGS if not case.fatal})
FATAL = [case for case in BUGS if case.fatal]


def test_there_are_many() -> None:
    assert len(BUGS) >= 60 and len(CASES) - len(BUGS) >= 30
    assert {kind for case in BUGS for kind in case.kinds} <= set(CLASSES)


def _run(forker: Forker, file: Path, *args: str, schedule: str) -> Outcome:
    hosts = {"TRITON_DIST_TOPOLOGY": "2x1"} if file.stem == "hosts" else {}
    return forker.run(file, *args, TRITON_DIST_CHECK="1", TRITON_DIST_SCHEDULE=schedule, **hosts)


def _assert_found(case: Case, output: str) -> None:
    lines = case.file.read_text().splitlines()
    marked = [rf"{case.file.name}:{i}\b" for i, line in enumerate(lines, 1) if line.endswith(f"# {case.name}")]
    assert len(marked) == 1, f"{case.name}: its line is marked {len(marked)} times"
    reports = re.split(r"^(?=error: )", output, flags=re.MULTILINE)
    theirs = [report for report in reports if re.search(marked[0], report)]
    kinds = {kind for report in theirs for kind in re.findall(r"^error: .* \[(.*)\]$", report, re.MULTILINE)}
    assert kinds & set(case.kinds), f"{case.name}: {kinds or 'nothing'} instead of {case.kinds}\n{output}"


@pytest.mark.parametrize(("file", "schedule"), TOGETHER, ids=lambda value: getattr(value, "stem", value))
def test_bugs_are_found(forker: Forker, file: Path, schedule: str) -> None:
    cases = [case for case in BUGS if case.file == file and case.schedule == schedule and not case.fatal]
    names = [case.name for case in cases]
    outcome = _run(forker, file, "bug", *names, schedule=schedule)
    assert outcome.statuses == [1, 1] and "Traceback" not in outcome.output, outcome.output
    for case in cases:
        _assert_found(case, outcome.output)


@pytest.mark.parametrize("case", FATAL, ids=lambda case: case.name)
def test_bugs_that_end_a_run_are_found(forker: Forker, case: Case) -> None:
    outcome = _run(forker, case.file, "bug", case.name, schedule=case.schedule)
    assert outcome.statuses == [1, 1] and "Traceback" not in outcome.output, outcome.output
    _assert_found(case, outcome.output)


@pytest.mark.parametrize(
    "schedule", [pytest.param(name, marks=[] if name == "adversarial" else pytest.mark.slow) for name in SCHEDULES]
)
@pytest.mark.parametrize("file", sorted({case.file for case in CASES}), ids=lambda file: file.stem)
def test_right_programs_are_not_blamed(forker: Forker, file: Path, schedule: str) -> None:
    if file.stem != "correct" and schedule in ("eager", "random:1"):
        pytest.skip("twins of bugs are tried with two schedules")
    outcome = _run(forker, file, "right", schedule=schedule)
    assert outcome.statuses == [0, 0] and "nothing found" in outcome.output, outcome.output
