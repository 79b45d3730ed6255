"""Which transport a world of GPUs takes, and what it says when it cannot have the one that was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from triton_dist.bootstrap.launch import Launch
from triton_dist.gpu import module_state, p2p
from triton_dist.gpu.device_choice import why_not_nvshmem
from triton_dist.gpu.world import GpuWorld, _choose_transport, _why_not_p2p
from triton_dist.world.hosts import Host, Hosts

ROOT = Path(__file__).resolve().parents[2]
ALONE = Launch(0, 1, 0, 1, None)
LACKS = "PE 0 cannot reach PE 1 by load and store"


class FakeLaunch(Launch):
    """PE 0 of two; the other one wishes nvshmem."""

    def exchange(self, key: str, value: str) -> list[str]:
        return [value, "nvshmem"]


@pytest.mark.parametrize(
    ("asked", "lacks", "chosen"),
    [
        ("auto", "", "p2p"),
        ("auto", LACKS, "nvshmem"),
        ("p2p", "", "p2p"),
        ("nvshmem", "", "nvshmem"),
        ("nvshmem", LACKS, "nvshmem"),
    ],
)
def test_choice(asked: str, lacks: str, chosen: str) -> None:
    assert _choose_transport(asked, lacks, ALONE) == chosen


def test_p2p_that_cannot_be_had_names_the_pes() -> None:
    with pytest.raises(RuntimeError, match=r"p2p cannot be had: PE 0 cannot reach PE 1 by load and store\. Set it to"):
        _choose_transport("p2p", LACKS, ALONE)


def test_a_transport_for_other_gpus_is_refused() -> None:
    with pytest.raises(RuntimeError, match="rocshmem is for AMD GPUs: set it to auto, p2p or nvshmem"):
        _choose_transport("rocshmem", "", ALONE)


def test_nvshmem_on_a_shared_gpu_needs_mps() -> None:
    lacks = why_not_nvshmem(True, 3)
    assert "MPS" in lacks
    assert why_not_nvshmem(False, 2) == why_not_nvshmem(True, 4) == ""
    with pytest.raises(RuntimeError, match=r"nvshmem cannot be had: several PEs share a GPU.* Set it to auto or p2p"):
        _choose_transport("nvshmem", "", ALONE, lacks)
    with pytest.raises(RuntimeError, match=r"no transport connects the PEs\. p2p: PE 0 .*\. nvshmem: several"):
        _choose_transport("auto", LACKS, ALONE, lacks)
    assert _choose_transport("auto", "", ALONE, lacks) == "p2p"


def test_pes_that_ask_for_different_transports_are_told() -> None:
    with pytest.raises(RuntimeError, match="is p2p on PE 0 and nvshmem on PE 1"):
        _choose_transport("p2p", "", FakeLaunch(0, 1, 0, 1, None))


def test_reasons() -> None:
    assert _why_not_p2p(["", "", ""]) == ""
    assert _why_not_p2p(["1, 2", "0", ""]) == ("PE 0 cannot reach PE 1, 2; PE 1 cannot reach PE 0 by load and store")
    assert _why_not_p2p([""] * 72) == ""
    assert _why_not_p2p([""] * 73) == "it connects up to 72 PEs, and there are 73"


@pytest.mark.parametrize("asks", [True, False])
def test_kernels_of_nvshmem_that_ask_for_pretended_hosts_get_their_state(
    asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world: Any = GpuWorld.__new__(GpuWorld)
    written: list[tuple[Any, ...]] = []
    world.pe, world.n_pes, world._hosts = 0, 2, Hosts((Host("a/0", (0,)), Host("a/1", (1,))), True)
    world._mapped, world._distances = [True, True], [0, 8192]
    world._sync, world._teams = torch.zeros(1), SimpleNamespace(table={})
    world._bindings = SimpleNamespace(cumodule_init=lambda handle: 0)
    monkeypatch.setattr(module_state, "holds", lambda handle, symbol: asks and symbol == p2p.state_symbol())
    monkeypatch.setattr(module_state, "write", lambda *data: written.append(data))
    module = module_state.Module(7, "kernel", 0, "nvshmem")
    world._fill_nvshmem(module)
    state = p2p.state(0, [0, 8192], world._sync.data_ptr(), unreachable=[1])
    assert written == ([(module, p2p.state_symbol(), state)] if asks else [])


def test_state_is_laid_out_as_the_device_library_says() -> None:
    layout = json.loads((ROOT / "triton_dist" / "_C" / "p2p_state.json").read_text())
    data = p2p.state(1, [-4096, 0, 8192], 0x7F00_0000_0000)

    def read(offset: int, nbytes: int) -> int:
        return int.from_bytes(data[offset : offset + nbytes], "little", signed=True)

    offsets, team = layout["offsets"], layout["team_offsets"]
    assert len(data) == layout["state_bytes"]
    assert (read(offsets["pe"], 4), read(offsets["n_pes"], 4)) == (1, 3)
    assert read(offsets["sync"], 8) == 0x7F00_0000_0000
    assert [read(offsets["distance"] + 8 * pe, 8) for pe in range(4)] == [-4096, 0, 8192, 0]
    assert [read(offsets["teams"] + team[name], 4) for name in ("start", "stride", "size")] == [0, 1, 3]
    assert not any(data[offsets["teams"] + layout["team_bytes"] :]), "other teams are none, and all PEs reachable"
    far = p2p.state(1, [-4096, 0, 8192], 0x7F00_0000_0000, unreachable=[0, 2])
    assert int.from_bytes(far[offsets["unreachable"] : offsets["unreachable"] + 4], "little") == 0b101

    data = p2p.state(1, [-4096, 0, 8192], 0x7F00_0000_0000, {6: range(1, 3), 31: range(0, 3, 2)})
    for handle, numbers in ((0, [0, 1, 3]), (6, [1, 1, 2]), (31, [0, 2, 2]), (7, [0, 0, 0])):
        at = offsets["teams"] + handle * layout["team_bytes"]
        assert [read(at + team[name], 4) for name in ("start", "stride", "size")] == numbers
