"""The lowering, op by op: lit runs each ``*.mlir`` here, and each is one test to pytest.

(That every op has one is a test of tests/test_op_table.py.)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from limits import until

HERE = Path(__file__).parent
CASES = sorted(str(case.relative_to(HERE)) for case in HERE.rglob("*.mlir"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What lit says of each file, from one run of all of them."""
    filecheck = shutil.which("FileCheck-22") or shutil.which("FileCheck")
    assert filecheck, "FileCheck is missing: apt-get install llvm-22-tools"
    output = tmp_path_factory.mktemp("lit")
    report = output / "report.json"
    tool, address = HERE / "opt_forks.py", output / "socket"
    opt = f"{sys.executable} -S -E {tool} {address}"
    variables = {"OUTPUT": output, "FILECHECK": filecheck, "OPT": opt}
    environment = {**os.environ, **{f"TRITON_DIST_LIT_{name}": str(value) for name, value in variables.items()}}
    forking = subprocess.Popen([sys.executable, str(tool), "--listen", str(address)])
    try:
        until(lambda: address.exists() or forking.poll() is not None)
        run = subprocess.run(
            [sys.executable, "-c", "from lit.main import main; main()", "-v", "-j2", f"--output={report}", str(HERE)],
            env=environment,
            capture_output=True,
            text=True,
        )
    finally:
        forking.terminate()
        forking.wait()
    assert report.exists(), run.stdout + run.stderr
    return {test["name"].split(" :: ")[-1]: test for test in json.loads(report.read_text())["tests"]}


@pytest.mark.parametrize("case", CASES)
def test_lowering(case: str, results: dict[str, Any]) -> None:
    assert results[case]["code"] == "PASS", results[case]["output"]
