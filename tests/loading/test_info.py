"""triton-dist-info: right where all is well, and helpful where nothing is."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import triton
from limits import HANG_SECONDS
from python_environment import REPOSITORY, Environment

import _triton_dist_info
import _triton_dist_loader
from _triton_dist_support import PYTORCH, TESTED, Found, matrix, satisfies, table


def run(*arguments: str, python: object = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-m", "triton_dist.info", *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=HANG_SECONDS,
    )


def test_a_sound_installation() -> None:
    done = run("--json")
    found = json.loads(done.stdout)
    assert found["problems"] == [] and done.returncode == 0, done.stdout
    assert found["versions"]["triton"] == found["versions"]["plugin"]["triton"]
    assert found["versions"]["LLVM of the plugin"] and found["world"]["kind"] in ("cpu", "gpu")
    assert found["places"]["triton_dist"] == str(REPOSITORY / "triton_dist")
    assert found["places"]["triton"] == str(Path(triton.__file__).parent)
    assert found["launch"] == {"launcher": "python", "pe": 0, "n_pes": 1}
    page = _triton_dist_info._page(found)
    assert re.search(r"^  Triton +3\.\S+ +3\.7\.1, .* ok: .*$", page, re.MULTILINE), page
    assert re.search(r"^  NVSHMEM bitcode +\d+\.\d+\.\d+ ", page, re.MULTILINE), page


@pytest.mark.parametrize(
    "command",
    [
        "_triton_dist_info",
        "triton_dist.check --help",
        pytest.param("_triton_dist_compile --help", marks=pytest.mark.slow),
        pytest.param("triton_dist.model --help", marks=pytest.mark.slow),
        pytest.param("triton_dist.triton_api.opt --help", marks=pytest.mark.slow),
    ],
)
def test_commands_print_in_any_encoding(command: str) -> None:
    """What they say has characters that ASCII and Latin-1 lack."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "TRITON_DIST_WORLD": "cpu"},
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0 and done.stdout.isascii() and len(done.stdout) > 200, done.stdout + done.stderr


def test_what_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "triton_dist.info"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY,
            timeout=HANG_SECONDS,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr == "triton-dist-info: cannot write to stdout: No space left on device\n"


def test_another_triton(environment: Environment) -> None:
    """Neither triton_dist nor PyTorch can be imported here."""
    environment.add_triton_dist()
    environment.add_fake_triton("3.0.0")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON", "PYTHON"))}
    command = [environment.python, "-m", "triton_dist.info"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=inherited, cwd=environment.folder, timeout=HANG_SECONDS
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert "Triton 3.0.0 is installed" in done.stdout.replace("\n    ", " "), done.stdout
    assert "To fix" in done.stdout and "PyTorch cannot be used" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        pytest.param(
            "TRITON_DIST_WORLD", "moon", "TRITON_DIST_WORLD='moon': expected one of cpu, gpu", marks=pytest.mark.slow
        ),
        ("TRITON_DIST_DISABLE_PLUGIN", "1", "switched off: unset TRITON_DIST_DISABLE_PLUGIN"),
        pytest.param(
            "TRITON_DIST_WAIT_TIMEOUT",
            "-3",
            "expected a number of seconds from 0.001 to 1000000, such as 30 or 0.5, or 0 for never",
            marks=pytest.mark.slow,
        ),
        pytest.param("PMI_SIZE", "4", "an MPI launcher started this process", marks=pytest.mark.slow),
    ],
)
def test_wrong_variables(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(_triton_dist_info, "_ASK_TORCH", "print('=====')")  # PyTorch is not what this is about
    found = _triton_dist_info.collect()
    assert said in " ".join(problem["what"] for problem in found["problems"]), found["problems"]
    assert found["environment"][variable] == value


def answers(monkeypatch: pytest.MonkeyPatch, **package: Any) -> dict[str, Any]:
    """What is found where the package and PyTorch on two GPUs say this."""
    torch = {
        "cuda": "13.0",
        "gpus": [{"name": "H200", "architecture": "sm_90", "memory": 1 << 37, "multiprocessors": 132}] * 2,
        "peers": package.pop("peers", [[True, True], [True, True]]),
    }
    said = {"kind": "gpu", "TRITON_DIST_TRANSPORT": "auto", "launcher": ["python", 0, 1], **package}
    monkeypatch.setattr(
        _triton_dist_info, "_answers", lambda program: torch if program == _triton_dist_info._ASK_TORCH else said
    )
    return _triton_dist_info.collect()


def test_transport_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    world = answers(monkeypatch)["world"]
    assert world["transport"] == "p2p" and "reaches every other" in world["why transport"]
    world = answers(monkeypatch, peers=[[True, False], [False, True]])["world"]
    assert world["transport"] == "nvshmem" and "GPU 0 cannot reach GPU 1" in world["why transport"]
    world = answers(monkeypatch, TRITON_DIST_TRANSPORT="nvshmem")["world"]
    assert world["why transport"] == "TRITON_DIST_TRANSPORT=nvshmem"


def test_two_versions_of_nvshmem(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(monkeypatch, **{"nvshmem device": ["/lib/x.bc", "3.8.0"], "nvshmem host": "3.4.5"})
    assert "host library has version 3.4.5, its device library 3.8.0" in found["problems"][0]["what"]
    page = _triton_dist_info._page(found)
    assert "NVSHMEM's host library has version 3.4.5" in page and "NVSHMEM_HOME" in page


def test_an_nvshmem_that_is_too_new_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_triton_dist_info, "_installed", lambda package: "0.4.1" if "nvshmem4py" in package else None)
    monkeypatch.setattr(_triton_dist_info, "_requirements", lambda: {"nvshmem": ">=3.4.5,<3.9"})
    found = answers(monkeypatch, **{"nvshmem bitcode": ["/lib/x.bc", "3.9.0"], "nvshmem host": "3.9.0"})
    told = [problem for problem in found["problems"] if "NVSHMEM" in problem["what"]]
    assert told and all("3.9.0: supported is >=3.4.5,<3.9" in problem["what"] for problem in told), found["problems"]
    assert told[0]["fix"] == NVSHMEM


def test_what_is_missing_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(monkeypatch, **{"nvshmem host error": "ModuleNotFoundError: No module named 'nvshmem'"})
    assert found["problems"][0]["fix"].startswith("pip install 'triton-dist[cuda13]'")


# ---- the matrix of what is supported

SOUND = Found(
    python="3.12.1",
    requires={"python": ">=3.10", "torch": ">=2.13", "nvshmem": ">=3.4.5,<3.9"},
    triton="3.7.1",
    plugins=("3.7.1",),
    supported=("3.7.1", "3.9.0"),
    plugin="libtriton_dist_plugin-3.7.1.so",
    runtime="libtriton_dist_runtime.so",
    torch="2.13.0+cu130",
    torch_gpu="13.0",
    gpus=2,
    nvshmem_device="3.4.5",
    nvshmem_host="3.4.5",
    nvshmem4py="0.3.1",
    mlir=(("jaxlib.mlir", "0.10.2"),),
)

ALL = ("3.7.1", "3.8.0", "3.9.0")
NEWEST = "pip install 'torch==2.15.*' triton==3.9.0"
NVSHMEM = "pip install 'nvidia-nvshmem-cu13>=3.4.5,<3.9'"


def test_all_is_well_where_all_is_installed() -> None:
    rows = matrix(SOUND)
    assert {row.status for row in rows} == {"ok"} and not any(row.action for row in rows)
    assert not [line for line in table(rows) if line.startswith("→")]


@pytest.mark.parametrize(
    ("changes", "component", "status", "action"),
    [
        ({"python": "3.9.2"}, "Python", "unsupported", "install another Python (supported: >=3.10)"),
        ({"triton": "3.9.0", "plugin": None}, "Triton", "unsupported", "make plugins (builds one for it), or pip inst"),
        ({"triton": "3.0.0", "plugin": None}, "Triton", "unsupported", "pip install triton==3.7.1"),
        ({"triton": None}, "Triton", "missing", "pip install triton==3.7.1"),
        ({"triton": None, "plugins": (), "supported": ()}, "Triton", "missing", "make build"),
        ({"plugin": None, "plugins": ()}, "plugin", "missing", "make build"),
        ({"torch": "2.9.1"}, "PyTorch", "unsupported", "pip install 'torch==2.13.*' triton==3.7.1"),
        ({"torch": None}, "PyTorch", "missing", "pip install 'torch==2.13.*' triton==3.7.1"),
        # PyTorch and Triton belong together: the command changes as few of the two as it can.
        ({"triton": "3.10.0", "plugins": ALL}, "Triton", "unsupported", "pip install triton==3.7.1"),
        ({"triton": None, "torch": "2.14.1", "plugins": ALL}, "Triton", "missing", "pip install triton==3.8.0"),
        ({"triton": "3.10.0", "torch": "2.16.0", "plugins": ALL}, "Triton", "unsupported", NEWEST),
        ({"triton": "3.7.0", "torch": "2.12.0", "plugins": ALL}, "Triton", "unsupported", NEWEST),
        ({"triton": None, "torch": None, "plugins": ALL}, "Triton", "missing", NEWEST),
        ({"triton": None, "torch": None, "plugins": ALL}, "PyTorch", "missing", NEWEST),
        ({"runtime": None}, "library of CPU worlds", "optional", "make build"),
        ({"runtime": None, "gpus": 0}, "library of CPU worlds", "missing", "make build"),
        ({"nvshmem_device": None}, "NVSHMEM bitcode", "missing", NVSHMEM),
        ({"nvshmem_device": "3.9.1"}, "NVSHMEM bitcode", "unsupported", NVSHMEM),
        ({"nvshmem_device": "3.3.24"}, "NVSHMEM bitcode", "unsupported", NVSHMEM),
        ({"nvshmem_device": "3.8.0"}, "NVSHMEM host library", "unsupported", "pip install 'triton-dist[cuda13]'"),
        ({"nvshmem4py": None, "torch_gpu": "12.9"}, "nvshmem4py", "missing", "pip install 'triton-dist[cuda12]'"),
        ({"nvshmem_host": "3.3.9"}, "NVSHMEM host library", "unsupported", "pip install 'triton-dist[cuda13]'"),
        ({"nvshmem4py": None}, "nvshmem4py", "missing", "pip install 'triton-dist[cuda13]'"),
        ({"nvshmem4py": None, "gpus": 0}, "nvshmem4py", "optional", "pip install 'triton-dist[cuda13]'"),
        ({"mlir": ()}, "MLIR bindings", "optional", "pip install 'triton-dist[mlir]'"),
    ],
)
def test_what_is_not_has_a_command(changes: dict[str, Any], component: str, status: str, action: str) -> None:
    rows = matrix(dataclasses.replace(SOUND, **changes))
    (row,) = [row for row in rows if row.component == component]
    assert row.status == status and row.action.startswith(action)
    optional = " (optional)" if status == "optional" else ""
    assert any(line.startswith(f"→ {component}{optional}: {action}") for line in table(rows))


def test_a_pytorch_that_cannot_be_used_is_one_problem_with_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = {"failure": "ModuleNotFoundError: No module named 'torch'"}
    monkeypatch.setattr(_triton_dist_info, "_answers", lambda program: failure)
    monkeypatch.setattr(_triton_dist_info, "_installed", lambda package: {"triton": "3.8.0"}.get(package))
    monkeypatch.setattr(_triton_dist_loader, "built_for", lambda: ["3.7.1", "3.8.0", "3.9.0"])
    (problem,) = _triton_dist_info.collect()["problems"]
    assert "No module named 'torch'" in problem["what"]
    assert problem["fix"] == "pip install 'torch==2.14.*' triton==3.8.0"


def test_why_pytorch_sees_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is too old for PyTorch says so itself."""
    old = "The NVIDIA driver on your system is too old (found version 11040)."
    torch = {"version": "2.15.0", "cuda": "13.2", "gpus": [], "peers": [], "no gpu": old}
    monkeypatch.setattr(_triton_dist_info, "_driver", lambda: "NVIDIA 470.57")
    said = {_triton_dist_info._ASK_TORCH: torch}
    monkeypatch.setattr(_triton_dist_info, "_answers", lambda program: said.get(program, {"kind": "cpu"}))
    (problem,) = _triton_dist_info.collect()["problems"]
    assert "NVIDIA 470.57" in problem["what"] and old in problem["what"] and "a newer driver" in problem["fix"]


def test_pytorch_is_asked_why_it_sees_no_gpu() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("PyTorch sees a GPU")
    assert _triton_dist_info._answers(_triton_dist_info._ASK_TORCH)["no gpu"]


def test_how_far_a_triton_was_tested_is_told() -> None:
    supported = json.loads((REPOSITORY / "cmake" / "supported_triton.json").read_text())
    assert list(TESTED) == list(PYTORCH) == list(supported)
    rows = matrix(dataclasses.replace(SOUND, triton="3.8.0", plugins=("3.7.1", "3.8.0")))
    (line,) = [line for line in table(rows) if line.startswith("Triton")]
    assert line.endswith("ok: tests that are not slow on CPU, not run on a GPU")


@pytest.mark.parametrize("version", ["3.4.5", "3.6.5", "3.8.0"])
def test_every_supported_nvshmem_is_well(version: str) -> None:
    rows = matrix(dataclasses.replace(SOUND, nvshmem_device=version, nvshmem_host=version))
    assert {row.status for row in rows} == {"ok"}


@pytest.mark.parametrize(
    ("version", "requirement", "held"),
    [
        ("2.13.0+cpu", ">=2.13", True), ("2.9", ">=2.13", False), ("3.7.1", "==3.7.1", True), ("3.7", "==3.7.0", True),
        ("3.8.0rc1", ">=3.8,<4", True), ("4.0", ">=3.8,<4", False), ("3.7.4", "==3.7.*", True), ("x", "garbage", True),
        ("3.7.4", "~=3.7", True), ("1!2", "", True),
    ],
)  # fmt: skip
def test_ranges_of_versions(version: str, requirement: str, held: bool) -> None:
    assert satisfies(version, requirement) == held
