"""Every launcher makes the same world: torchrun and the mpiruns where they are installed, Slurm by its variables."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from checking import HERE
from forking import launch
from limits import HANG_SECONDS, INIT_SECONDS
from started import Started

from triton_dist.bootstrap import launchers
from triton_dist.bootstrap.launchers import mpi
from triton_dist.bootstrap.launchers.slurm import first_host

PROGRAM = HERE / "launched.py"
CPU = {
    "TRITON_DIST_WORLD": "cpu",
    "TRITON_DIST_SYMMETRIC_SIZE": "16M",
    "TRITON_DIST_INIT_TIMEOUT": INIT_SECONDS,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(HERE.parents[1]),
}
MPIRUNS = {
    "openmpi": ("mpirun.openmpi", ["--allow-run-as-root", "--oversubscribe"], "Open MPI's mpirun"),
    "mpich": ("mpirun.mpich", [], "MPICH's mpirun"),
}


def mpirun(which: str) -> tuple[list[str], str]:
    """The command, and by which name it is known to us; skips where it is not installed."""
    command, arguments, name = MPIRUNS[which]
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    return [command, *arguments], name


def run(commands: Sequence[Sequence[str | Path]], environment: Mapping[str, str] | None = None) -> list[str]:
    """The output of programs that run at the same time, each of which must succeed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "SLURM_", "MPI_"))}
    programs = [
        subprocess.Popen(command, env=clean | CPU | dict(environment or {}), stdout=subprocess.PIPE, text=True)
        for command in commands
    ]
    outputs = [program.communicate(timeout=HANG_SECONDS)[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs), outputs
    return outputs


def assert_worlds(output: str, n_pes: int, launcher: str, turns: int = 2) -> None:
    expected = {
        f"turn {turn}: PE {pe} of {n_pes}, here {pe} of {n_pes}, by {launcher}"
        for turn in range(turns)
        for pe in range(n_pes)
    }
    assert set(output.splitlines()) == expected, output


def test_torchrun() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    [output] = run([[*torchrun, PROGRAM]])
    assert_worlds(output, 2, "torchrun")


@pytest.mark.parametrize(("which", "at_once"), [("openmpi", 1), pytest.param("mpich", 2, marks=pytest.mark.slow)])
def test_mpirun(which: str, at_once: int) -> None:
    """Two at once: neither may meet the other's PEs. (MPICH's give no name of the launch in the environment.)"""
    command, name = mpirun(which)
    for output in run([[*command, "-n", "2", sys.executable, PROGRAM]] * at_once):
        assert_worlds(output, 2, name)


@pytest.mark.slow
def test_mpi4py() -> None:
    """A communicator, in an order of its own; then the world of all, which mpi4py has started."""
    command, name = mpirun("openmpi")
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    [output] = run([[*command, "-n", "2", sys.executable, PROGRAM, "comm"]], {"MPI4PY_MPIABI": "openmpi"})
    lines = output.splitlines()
    assert_worlds("\n".join(line for line in lines if "turn 0" in line), 2, "mpi4py", 1)
    there = {f"turn 1: PE {pe} of 2, here {pe} of 2, by {name}, mpi4py" for pe in range(2)}
    assert {line for line in lines if "turn 1" in line} == there, output


def test_a_group_of_torch_distributed() -> None:
    """A world of some of the ranks; the others have nothing to do with it."""
    result = launch([PROGRAM, "group"], 3, env=CPU, timeout=HANG_SECONDS).check()
    for me, rank in enumerate((0, 2)):
        expected = [f"turn {turn}: PE {me} of 2, here {me} of 2, by torch.distributed" for turn in range(2)]
        assert result[rank].stdout.splitlines() == expected
    assert "this process is not in the group" in result[1].stdout


def test_slurm() -> None:
    """What srun sets on one node; PE 0 is where the others find it by job and step."""
    tasks = [
        Started(
            PROGRAM.read_text(),
            (),
            os.environ
            | CPU
            | {
                "SLURM_JOB_ID": f"{os.getpid()}",
                "SLURM_STEP_ID": "3",
                "SLURM_PROCID": str(task),
                "SLURM_LOCALID": str(task),
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_NTASKS": "4",  # the job's
                "SLURM_STEP_NUM_NODES": "1",
                "SLURM_STEP_NODELIST": "node[07-09]",
            },
        )
        for task in range(2)
    ]
    assert_worlds("".join(task.communicate(timeout=HANG_SECONDS)[0] for task in tasks), 2, "Slurm's srun")


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in tuple(os.environ):
        if re.match("RANK|WORLD_SIZE|LOCAL_|MASTER_|OMPI_|PMI|MPI_|SLURM_|TORCHELASTIC", name):
            monkeypatch.delenv(name)
    return monkeypatch


def found(variables: pytest.MonkeyPatch, **values: object) -> tuple[str, int, int, tuple[int, int] | None]:
    for name, value in values.items():
        variables.setenv(name, str(value))
    start = launchers.find()
    return start.launcher, start.pe, start.n_pes, start.local


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": 3,
    "OMPI_COMM_WORLD_SIZE": 8,
    "OMPI_COMM_WORLD_LOCAL_RANK": 1,
    "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
}
HYDRA = {"PMI_RANK": 2, "PMI_SIZE": 4, "MPI_LOCALRANKID": 0, "MPI_LOCALNRANKS": 2}
SLURM = {"SLURM_JOB_ID": 7, "SLURM_STEP_ID": 0, "SLURM_PROCID": 1, "SLURM_STEP_NUM_TASKS": 2}
TORCHRUN = {
    "RANK": 5,
    "WORLD_SIZE": 6,
    "MASTER_ADDR": "there",
    "MASTER_PORT": 1,
    "LOCAL_RANK": 1,
    "LOCAL_WORLD_SIZE": 2,
}


def test_the_innermost_launcher_is_believed(variables: pytest.MonkeyPatch) -> None:
    assert found(variables) == ("python", 0, 1, None)
    assert found(variables, **SLURM) == ("Slurm's srun", 1, 2, None)
    assert found(variables, PMI_RANK=1, PMI_SIZE=2) == ("Slurm's srun", 1, 2, None), "srun --mpi=pmi2"
    assert found(variables, **HYDRA) == ("MPICH's mpirun", 2, 4, (0, 2))
    assert found(variables, **OPEN_MPI) == ("Open MPI's mpirun", 3, 8, (1, 2))
    assert found(variables, **TORCHRUN) == ("torchrun", 5, 6, (1, 2))


def test_a_batch_script_is_alone(variables: pytest.MonkeyPatch) -> None:
    assert found(variables, SLURM_JOB_ID=7, SLURM_PROCID=0, SLURM_NTASKS=4) == ("python", 0, 1, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": 8}, r"OMPI_COMM_WORLD_RANK=8 is out of range \[0, 8\)"),
        ({**HYDRA, "PMI_SIZE": "many"}, "PMI_SIZE='many' is not a number"),
        ({**SLURM, "SLURM_PROCID": 2}, r"SLURM_PROCID=2 is out of range \[0, 2\)"),
        ({"SLURM_STEP_ID": 0, "SLURM_PROCID": 0}, "SLURM_STEP_NUM_TASKS or SLURM_NTASKS must be set"),
        ({"PMI_SIZE": 4}, "PMI_SIZE='4': an MPI launcher started this process"),
    ],
)
def test_variables_that_make_no_sense(variables: pytest.MonkeyPatch, values: dict[str, object], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        found(variables, **values)


def test_several_hosts_without_mpi4py_say_what_they_need(variables: pytest.MonkeyPatch) -> None:
    for name, value in OPEN_MPI.items():
        variables.setenv(name, str(value))
    variables.setattr(importlib.util, "find_spec", lambda name: None)
    meet = launchers.find().meet
    assert meet is not None
    with pytest.raises(RuntimeError, match=r"8 PEs on several hosts: .* mpi4py .* or MASTER_ADDR"):
        meet(1.0)


class Communicator:
    """What is used of one of mpi4py's, for PEs that are threads."""

    def __init__(self, pe: int, told: list[bytes], here: threading.Barrier) -> None:
        self.pe, self.told, self.here = pe, told, here

    def Get_rank(self) -> int:  # noqa: N802
        return self.pe

    def Get_size(self) -> int:  # noqa: N802
        return self.here.parties

    def Bcast(self, data: bytearray, root: int) -> None:  # noqa: N802
        if self.pe == root:
            self.told.append(bytes(data))
        self.here.wait(HANG_SECONDS)
        data[:] = self.told[-1]


def met(n_pes: int, told: list[bytes]) -> list[object]:
    """The store that each PE gets from a rendezvous by communicator, or its error message."""
    here, results = threading.Barrier(n_pes), [None] * n_pes

    def one(pe: int) -> None:
        meet = mpi.from_communicator(Communicator(pe, told, here)).meet
        assert meet is not None
        try:
            results[pe] = meet(HANG_SECONDS)
        except RuntimeError as error:
            results[pe] = str(error)

    threads = [threading.Thread(target=one, args=(pe,)) for pe in range(n_pes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    return results


def test_a_communicator_tells_where_the_store_is(variables: pytest.MonkeyPatch) -> None:
    """The address is broadcast as bytes that are not unpickled."""
    told: list[bytes] = []
    stores = met(3, told)
    stores[0].set("key", "value")
    assert [store.get("key") for store in stores] == [b"value"] * 3
    address, port = json.loads(told[0])
    assert isinstance(address, str) and port == stores[0].port


def test_a_communicator_tells_of_a_store_that_cannot_be(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("MASTER_ADDR", "192.0.2.7")  # no address of this host
    first, *others = met(3, [])
    assert "PE 0 cannot open the rendezvous store at 192.0.2.7" in str(first)
    assert all("PE 0 cannot open" in str(other) for other in others)


@pytest.mark.parametrize(
    "name",
    ["LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "RANK", "WORLD_SIZE", "MASTER_PORT"],
)
def test_no_numbers_of_torchrun(variables: pytest.MonkeyPatch, name: str) -> None:
    for text in ("", " ", "-1", "1.0", "0x1", "nan", "inf", "1e3", "9" * 400, "٣", "1_0", "1\n"):
        with pytest.raises(RuntimeError, match=rf"{name}.*(expected|must be set)"):
            found(variables, **{**TORCHRUN, name: text})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"MASTER_PORT": 99999}, "MASTER_PORT='99999' is out of range: a whole number from 1 to 65535 is expected"),
        ({"MASTER_PORT": 0}, "MASTER_PORT='0' is out of range"),
        ({"LOCAL_RANK": 9}, "LOCAL_RANK='9' is out of range: a whole number from 0 to 5"),
        ({"LOCAL_RANK": 2}, r"LOCAL_RANK=2 is out of range \[0, 2\), which LOCAL_WORLD_SIZE=2 allows"),
        ({"LOCAL_WORLD_SIZE": 7}, "LOCAL_WORLD_SIZE='7' is out of range: a whole number from 1 to 6"),
        ({"WORLD_SIZE": 1 << 30}, "WORLD_SIZE='1073741824' is out of range"),
        ({"MASTER_ADDR": "host:29500"}, "MASTER_ADDR='host:29500' is not a host: .* without a port"),
        ({"MASTER_ADDR": "http://host"}, "MASTER_ADDR='http://host' is not a host"),
        ({"MASTER_ADDR": "a b"}, "MASTER_ADDR='a b' is not a host"),
        ({"TORCHELASTIC_USE_AGENT_STORE": "1"}, "TORCHELASTIC_USE_AGENT_STORE='1': True or False is expected"),
    ],
)
def test_what_torchrun_does_not_set(variables: pytest.MonkeyPatch, values: dict[str, object], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        found(variables, **{**TORCHRUN, **values})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": 2}, r"OMPI_COMM_WORLD_LOCAL_RANK=2 is out of range \[0, 2\)"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": 9}, "OMPI_COMM_WORLD_LOCAL_SIZE='9' is out of range"),
        ({**HYDRA, "MPI_LOCALRANKID": "nan"}, "MPI_LOCALRANKID='nan' is not a number"),
        ({**SLURM, "SLURM_STEP_ID": "x"}, "SLURM_STEP_ID='x' is not a number"),
        ({**SLURM, "SLURM_JOB_ID": "-3"}, "SLURM_JOB_ID='-3' is not a number"),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "0"}, "SLURM_STEP_NUM_NODES='0' is out of range"),
        ({**SLURM, "MASTER_PORT": "70000"}, "MASTER_PORT='70000' is out of range"),
    ],
)
def test_what_other_launchers_do_not_set(
    variables: pytest.MonkeyPatch, values: dict[str, object], message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        found(variables, **values)


@pytest.mark.parametrize("nodes", ["a b", "-x", "…", "[" * 100])
def test_a_list_of_nodes_that_is_none(variables: pytest.MonkeyPatch, nodes: str) -> None:
    for name, value in {**SLURM, "SLURM_STEP_NUM_NODES": 2, "SLURM_STEP_NODELIST": nodes}.items():
        variables.setenv(name, str(value))
    meet = launchers.find().meet
    assert meet is not None
    with pytest.raises(RuntimeError, match=r"SLURM_STEP_NODELIST='.*' begins with no host"):
        meet(1.0)


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("node7", "node7"),
        ("a1,a2", "a1"),
        ("node[03-05,9],gpu7", "node03"),
        ("r[1-2]n[07-09]-ib", "r1n07-ib"),
        ("x[5,7-9]", "x5"),
    ],
)
def test_first_host_of_a_slurm_list(nodelist: str, first: str) -> None:
    assert first_host(nodelist) == first
