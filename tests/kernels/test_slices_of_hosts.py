"""GEMMs by slices of hosts with several PEs, as ``slices_of_hosts.py`` finds them."""

from __future__ import annotations

import pytest
from host_checks import results_of


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return results_of("slices_of_hosts.py", tmp_path_factory)


@pytest.mark.parametrize(
    "check",
    ["slices_are_hopper_kernels_of_a_host_beside_exchanges", "communicators_within_hosts_have_the_memory_of_all"],
)
def test_slices_of_hosts(found: dict[str, str], check: str) -> None:
    assert found[check] == "ok", found[check]
