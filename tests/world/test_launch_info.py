"""How a process learns who it is, from torchrun's environment, torch.distributed, or nothing."""

from __future__ import annotations

import pytest
from forking import launch

from triton_dist.bootstrap import discovery as launch_info

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TORCHRUN, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)


def _fails(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError) as error:
        launch_info.discover()
    return str(error.value)


def test_nothing_is_a_world_of_one() -> None:
    found = launch_info.discover()
    assert (found.pe, found.n_pes, found.local_pe, found.n_local_pes, found.store) == (0, 1, 0, 1, None)


def test_one_pe_needs_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert launch_info.discover().store is None


def test_rank_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    message = _fails(monkeypatch, RANK="0")
    assert message.startswith("WORLD_SIZE and MASTER_ADDR and MASTER_PORT must be set beside RANK='0'")
    assert "torchrun" in message


def test_no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "MASTER_ADDR must be set" in _fails(monkeypatch, RANK="0", WORLD_SIZE="2", MASTER_PORT="1")


def test_rank_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    message = _fails(monkeypatch, RANK="2", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="1")
    assert "RANK=2 is out of range [0, 2)" in message


def test_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    message = _fails(monkeypatch, RANK="one", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="1")
    assert message == "RANK='one' is not a number: a whole number from 0 to 1048575 is expected"


def test_launchers_that_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "torchrun" in _fails(monkeypatch, OMPI_COMM_WORLD_SIZE="4")


EXCHANGES = """
from triton_dist.bootstrap.discovery import discover
for generation in range(3):
    found = discover()
    expected = [f"{pe} in {generation}" for pe in range(found.n_pes)]
    assert found.exchange("key", f"{found.pe} in {generation}") == expected
    assert (found.local_pe, found.n_local_pes) == (found.pe, found.n_pes)
"""

INIT_PROCESS_GROUP = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
"""

END = """
dist.barrier()
dist.destroy_process_group()
"""


def test_worlds_have_keys_of_their_own() -> None:
    launch(["-c", EXCHANGES], 3).check()


def test_torch_distributed_can_be_initialised_afterwards() -> None:
    launch(["-c", EXCHANGES + INIT_PROCESS_GROUP + END], 2).check()


def test_torch_distributed_initialised_before() -> None:
    launch(["-c", INIT_PROCESS_GROUP + EXCHANGES + END], 2).check()


def test_local_position_without_torchruns_word() -> None:
    forget = "import os; del os.environ['LOCAL_RANK'], os.environ['LOCAL_WORLD_SIZE']\n"
    launch(["-c", forget + EXCHANGES], 3).check()


def test_worlds_of_different_kinds() -> None:
    program = """
import os, re
from triton_dist import api
api.kind = lambda: "gpu" if os.environ["RANK"] == "1" else "cpu"
try:
    api.init()
except RuntimeError as error:
    print(error)
"""
    result = launch(["-c", program], 2, env={"TRITON_DIST_WORLD": "cpu"}).check()
    for pe in result:
        # of whom the other one's failure may be the first news
        assert "PE 0 is in a cpu world and PE 1 in a gpu world: set TRITON_DIST_WORLD" in pe.stdout
