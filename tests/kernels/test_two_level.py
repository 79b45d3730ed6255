"""Two-level collectives, GEMMs and experts in the CPU world, on pretended hosts: a test for each check and topology."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import forking
import pytest
from check_files import CheckFiles
from forking import COMPILER, launch

from triton_dist.kernels.collectives.two_level.memory import staging_of
from triton_dist.testing import Result

CHECKS = Path(__file__).parent / "checks"
HARNESS = Path(__file__).parents[1] / "world" / "checks"
ENVIRONMENT = {
    "TRITON_DIST_WORLD": "cpu",
    "TRITON_DIST_WAIT_TIMEOUT": "600",
    "TRITON_DIST_SYMMETRIC_SIZE": "64M",
    "PYTHONPATH": str(HARNESS),
}
TOPOLOGIES = {"2x1": 2, "3x1": 3, "2x2": 4, "2x3": 6, "3x2": 6}
EVERY = ("two_level.py", "two_level_gemms.py", "two_level_moe.py")
FILES_OF = dict.fromkeys(("2x1", "3x1"), EVERY[1:])
"""Where a host has one PE, a slice of a GEMM is a local one. Collectives are tested with the others."""
OTHERS = (
    *("all_pes_get_the_same_bits", "special_numbers", "groups", "two_communicators", "round_robin_numbers"),
    *("numbers_wrap_around", "operators", "bytes_between_hosts", "elements_of_all_types_and_sizes_are_moved"),
)
"""Checks that are slow with three hosts. Of the rest every kind of element is left, and is reduced here alone."""
LONG = (
    *("deep_ep", "deep_ep_low_latency", "groups", "moe_compiled", "moe_opcheck", "moe_rounds", "reserved_memory"),
    "bytes_of_experts_between_hosts",
)
OF_EXPERTS = (
    *LONG,
    *("moe_bits_arrive", "moe_dtypes_and_scales", "moe_exchanges_in_flight", "moe_layer_and_gradients", "moe_modules"),
    *("moe_routings", "moe_rounds_mistakes", "moe_mistakes"),
)
"""Checks of experts that are slow with one PE on each host, and with two."""
SLOW = {
    "2x1": tuple(
        f"two_level_gemms-2-{name}"
        for name in (
            *("functional_forms_with_other_dimensions", "all_gather_gemm", "gemm_reduce_scatter_and_all_reduce"),
            *("no_rows", "uneven_all_gather_gemm", "uneven_sums_with_an_epilogue", "gemm_all_scatter", "gradients"),
        )
    )
    + tuple(f"two_level_moe-2-{name}" for name in LONG),
    "3x1": ("two_level_gemms-3", "two_level_moe-3"),
    "2x2": (
        *("two_level-4-elements_of_all_types_and_sizes_are_moved", "two_level-4-elements_are_reduced"),
        *(f"two_level_gemms-4-{name}" for name in ("sums_with_an_epilogue", "gradients", "uneven_gemm_reduce_scatter")),
        *(f"two_level_moe-4-{name}" for name in (*OF_EXPERTS, "several_chunks")),
    ),
    "2x3": ("two_level-6", "two_level_gemms-6", "two_level_moe-6"),
    "3x2": (*(f"two_level-6-{name}" for name in OTHERS), "two_level_gemms-6", "two_level_moe-6"),
}


def launched(topology: str, args: Sequence[str | Path], n_pes: int) -> Result:
    return launch(args, n_pes, env=ENVIRONMENT | {"TRITON_DIST_TOPOLOGY": topology}, modules=COMPILER)


FILES = {
    topology: CheckFiles(
        CHECKS,
        partial(launched, topology),
        dict.fromkeys(FILES_OF.get(topology, EVERY), (n_pes,)),
        SLOW[topology],
    )
    for topology, n_pes in TOPOLOGIES.items()
}


@pytest.mark.parametrize(
    ("topology", "file", "n_pes", "check"),
    [
        pytest.param(topology, *of.values, id=f"{topology}-{of.id}", marks=of.marks)
        for topology, files in FILES.items()
        for of in files.parameters()
    ],
)
def test_check(topology: str, file: str, n_pes: int, check: str) -> None:
    FILES[topology].assert_passed(file, n_pes, check)


@pytest.mark.parametrize(
    ("n_pes", "block", "megabytes"),
    [
        (2, 64 << 10, 36),
        (16, 8 << 10, 36),
        (128, 8 << 10, 36),
        (512, 2 << 10, 36),
        (1000, 2 << 10, 72),
        (4096, 2 << 10, 288),
    ],
)
def test_blocks_stay_large_in_bounded_memory(n_pes: int, block: int, megabytes: int) -> None:
    programs, room = staging_of(n_pes, gpu=True)
    assert room // (1 << (n_pes - 1).bit_length()) == block, "bytes of a message, as far as staging memory limits it"
    assert programs * room * 9 // 2 == megabytes << 20 and programs >= 8


@pytest.mark.parametrize("topology", ["2x2", pytest.param("3x2", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("file", "check"),
    [
        ("two_level.py", "bytes_between_hosts"),
        pytest.param("two_level_gemms.py", "bytes_of_gemms_between_hosts", marks=pytest.mark.slow),
        ("two_level_gemms.py", "what_crosses_is_between_slices"),
        pytest.param("two_level_moe.py", "bytes_of_experts_between_hosts", marks=pytest.mark.slow),
    ],
)
def test_bytes_between_hosts(file: str, check: str, topology: str) -> None:
    """Counted in the checker's log, or their order there; it finds nothing, either."""
    env = ENVIRONMENT | {"TRITON_DIST_CHECK": "1", "TRITON_DIST_TOPOLOGY": topology}
    n_pes = TOPOLOGIES[topology]
    outcome = forking.forker(COMPILER).run(CHECKS / file, check, n_pes=n_pes, **env)
    assert outcome.statuses == [0] * n_pes and "nothing found" in outcome.output, outcome.output


@pytest.mark.parametrize(
    "schedule",
    ["adversarial", *(pytest.param(s, marks=pytest.mark.slow) for s in ("random:3", "eager"))],
)
@pytest.mark.parametrize(
    ("file", "checks"),
    [
        ("two_level.py", ("groups", "special_numbers")),
        ("two_level_gemms.py", ("slices_of_hosts",)),
        pytest.param("two_level_gemms.py", ("uneven_rows",), marks=pytest.mark.slow),
        pytest.param(
            "two_level_moe.py",
            ("several_chunks", "groups", "moe_exchanges_in_flight", "deep_ep_low_latency"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_checked(file: str, checks: tuple[str, ...], schedule: str) -> None:
    """The checker finds nothing, in whatever order programs go on and puts arrive."""
    env = ENVIRONMENT | {"TRITON_DIST_CHECK": "1", "TRITON_DIST_TOPOLOGY": "2x2", "TRITON_DIST_SCHEDULE": schedule}
    outcome = forking.forker(COMPILER).run(CHECKS / file, *checks, n_pes=4, **env)
    assert outcome.statuses == [0] * 4 and "nothing found" in outcome.output, outcome.output
